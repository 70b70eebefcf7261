"""The supervisor's connections to guards: what is said again over a new one, and that nobody waits for a silent host."""

import os
import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from taco_launch.agent.gang import guard_connection
from taco_launch.agent.gang.guard_connection import GuardConnection, RemoteGuardConnection
from taco_launch.agent.ssh import commands as ssh_commands
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core import trace
from taco_launch.core.model.host.hosts import GpuConstraints, Host
from taco_launch.core.protocol.connection import JsonConnection
from taco_launch.core.protocol.guard_messages import Heartbeat, Launched, Lease, ReleaseSlots
from taco_launch.core.protocol.message import Message
from taco_launch.core.protocol.relay_messages import Attached, NoAgent
from tests.agent.conftest import Mail
from tests.support.patience import HANG

HOST = Host("n2", "10.0.0.2")
# The first connection joins and ends at once; every later one is made to a host that says nothing.
SSH = """#!/bin/sh
echo x >>"$0.calls"
[ "$(wc -l <"$0.calls")" -eq 1 ] || exec sleep 600
echo '{"op":"attached"}'
"""
# A host, which is this one but for the agent's place on the head.
HOST_ITSELF = """#!/bin/sh
for last; do :; done
exec sh -c "$(printf %s "$last" | sed s,{agent},/nowhere/agent.pyz,)"
"""
# The agent, as far as it is needed here; it ends as a zip file does.
ATTACHED = """import sys; print('{"op":"attached"}', flush=True); sys.stdin.read()  # PK""" + "x" * 20
# What keeps the agent there continues once a file is there.
SLOW_HEAD = """#!/bin/sh
until [ "$2" = 2 ] || [ -e "$0.go" ]; do sleep 0.05; done
exec /usr/bin/head "$@"
"""

# What ssh of OpenSSH 9.2 prints where its process in the background does not answer in time (seen with 256 hosts on two cores).
UNSHARED = """#!/bin/sh
echo "$*" >>{said}
case $* in
  *ControlMaster*) echo "Failed to connect to new control master" >&2; exit 255 ;;
esac
echo '{{"op":"attached"}}'
exec sleep 600
"""


@pytest.mark.parametrize(
    ("given", "holds"),
    [
        (("lease", "unlease", "lease"), "lease"),
        (("lease", "unlease", "lease", "unlease"), "unlease"),
    ],
)
def test_of_taking_slots_and_letting_them_go_only_the_last_is_said_again(
    folder: JobFolder, given: tuple[str, ...], holds: str
) -> None:
    with folder.listen() as server:
        link = GuardConnection(HOST, folder)
        link.order(Launched(root=[]))
        for number, op in enumerate(given):
            link.order(lease(number) if op == "lease" else ReleaseSlots(look=bool(number % 2)))
        link.order(Heartbeat())
        link.step()
        guard = Mail(JsonConnection(server.accept()[0]))
        guard.wait("beat")
        last = len(given) - 1
        held = lease(last) if holds == "lease" else ReleaseSlots(look=bool(last % 2))
        assert guard.box == [{"op": "launched", "root": []}, held.to_wire()]
        guard.close()
        link.close()


def lease(count: int) -> Lease:
    return Lease(
        count=count,
        ports=[],
        rendezvous=None,
        allowed=None,
        cluster="",
        owner="",
        constraints=GpuConstraints(),
        whole=False,
        shared=[],
    )


def script(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a program called ssh first on PATH."""
    made = folder / "bin" / "ssh"
    made.parent.mkdir()
    made.write_text(text)
    made.chmod(0o755)
    monkeypatch.setenv("PATH", f"{made.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("TACO_LAUNCH_STATE", str(folder / "state"))
    return made


@pytest.fixture
def bringing(folder: JobFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RemoteGuardConnection]:
    """A connection to a host that has not got the agent."""
    agent = tmp_path / "agent.pyz"
    agent.write_text(ATTACHED)
    script(tmp_path, HOST_ITSELF.format(agent=agent), monkeypatch)
    link = RemoteGuardConnection(HOST, folder, str(agent), ["id", "leases"], beat=10)
    yield link
    link.close()
    (tmp_path / "bin/head.go").touch()


def step_until(link: RemoteGuardConnection, done: Callable[[], bool]) -> list[Message]:
    """Return what was read until something holds."""
    said: list[Message] = []
    deadline = time.monotonic() + HANG
    while not done():
        assert time.monotonic() < deadline
        link.step()
        if link.line is None:
            time.sleep(0.02)
        elif select.select([link.line], [], [], 0.02)[0]:
            said += link.read()
    return said


@pytest.mark.parametrize("there", [None, ATTACHED[:-1], ""], ids=["no-agent", "a-part-of-one", "an-empty-one"])
def test_the_agent_is_brought_to_a_host_and_nobody_waits(
    bringing: RemoteGuardConnection, tmp_path: Path, there: str | None
) -> None:
    agent = tmp_path / "state/jobs/.agents/agent.pyz"
    if there is not None:
        agent.parent.mkdir(parents=True)
        agent.write_text(there)
    head = tmp_path / "bin/head"
    head.write_text(SLOW_HEAD)
    head.chmod(0o755)
    steps = 0

    def waited() -> bool:
        nonlocal steps
        steps += bringing.dialling
        return steps > 10

    said = step_until(bringing, waited)
    assert len(bringing.pids()) == 1  # what was sent fits into the socket
    head.with_name("head.go").touch()
    said += step_until(bringing, lambda: not bringing.dialling)
    assert said == [NoAgent(), Attached()]
    assert [file.read_text() for file in agent.parent.iterdir()] == [ATTACHED]


def test_a_host_that_has_the_agent_is_not_sent_it(bringing: RemoteGuardConnection, tmp_path: Path) -> None:
    agent = tmp_path / "state/jobs/.agents/agent.pyz"
    agent.parent.mkdir(parents=True)
    agent.write_text(ATTACHED)
    assert step_until(bringing, lambda: not bringing.dialling and bringing.line is not None) == [Attached()]


def test_a_host_that_cannot_keep_the_agent(bringing: RemoteGuardConnection, tmp_path: Path) -> None:
    (tmp_path / "state/jobs").mkdir(parents=True)
    (tmp_path / "state/jobs/.agents").touch()
    said = step_until(bringing, lambda: bool(bringing.gone))
    assert said == [NoAgent()]
    assert bringing.gone.startswith(f"the agent cannot be copied to {tmp_path}/state/jobs/.agents: ")
    assert "agent.pyz" in bringing.gone


def test_an_agent_that_cannot_be_read(bringing: RemoteGuardConnection, tmp_path: Path) -> None:
    cat = tmp_path / "bin/cat"
    cat.write_text("#!/bin/sh\nexit 3\n")
    cat.chmod(0o755)
    step_until(bringing, lambda: bool(bringing.gone))
    assert bringing.gone == f"the agent cannot be copied to {tmp_path}/state/jobs/.agents: cat: exit 3"
    assert bringing.pids() == []


def test_an_agent_that_comes_too_slowly(
    bringing: RemoteGuardConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh_commands, "_PUT_SECONDS", 0.2)
    (tmp_path / "agent.pyz").write_text("#" * 4_000_000 + "\n" + ATTACHED)
    head = tmp_path / "bin/head"
    head.write_text(SLOW_HEAD)
    head.chmod(0o755)
    step_until(bringing, lambda: bool(bringing.gone))
    assert bringing.gone == f"the agent cannot be copied to {tmp_path}/state/jobs/.agents: it takes too long"
    assert bringing.pids() == []


def test_a_connection_that_ssh_cannot_share_in_time_is_made_again_for_the_guard_alone(
    folder: JobFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a head with much to do ssh gives up its own process that has the shared connection, after any time."""
    script(tmp_path, UNSHARED.format(said=tmp_path / "said"), monkeypatch)
    monkeypatch.setattr(guard_connection, "_SLOW_SECONDS", 0.0)
    shared = ("-o", "ControlMaster=yes")
    link = RemoteGuardConnection(HOST, folder, __file__, ["id", "leases"], beat=10, options=shared)
    try:
        messages: list[Message] = []
        deadline = time.monotonic() + HANG
        while not messages:
            assert time.monotonic() < deadline
            assert not link.gone
            link.step()
            if link.line is not None and select.select([link.line], [], [], 0.02)[0]:
                messages = link.read()
    finally:
        link.close()
    assert messages == [Attached()]
    assert ["ControlMaster" in line for line in (tmp_path / "said").read_text().splitlines()] == [True, False]


def test_a_host_that_is_silent_keeps_nobody_waiting(
    folder: JobFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tmp_path, SSH, monkeypatch)
    traced: list[str] = []
    monkeypatch.setattr(trace, "level", trace.DECISIONS)
    monkeypatch.setattr(trace, "_write", lambda _at, text: traced.append(text))
    link = RemoteGuardConnection(HOST, folder, __file__, ["id", "leases"], beat=0.1)
    meanwhile, silent = 0, 0
    deadline = time.monotonic() + HANG
    try:
        while silent < 2:
            assert time.monotonic() < deadline
            before = link.pids()
            link.step()
            silent += before != [] and link.pids() == []
            meanwhile += before != [] and link.pids() == before
            if link.line is None:
                time.sleep(0.02)
            elif select.select([link.line], [], [], 0.02)[0]:
                link.read()
    finally:
        link.close()
    assert not link.gone
    assert meanwhile >= silent  # steps that did not wait for a word of it
    assert traced[:4] == [
        "connecting to n2 by ssh: guard-start",
        "connected to the guard of n2",
        "the connection to n2 ended: no reason is known",
        "connecting to n2 by ssh: attach",
    ]
    link.lost_after(0.0, time.monotonic())
    assert traced[-1] == "host n2 is lost: no heartbeat for 0 s"


def test_a_host_that_does_not_answer_is_told_once_and_so_is_its_return(folder: JobFolder) -> None:
    link = RemoteGuardConnection(HOST, folder, "agent.pyz", [], 5.0)
    link.error = "ssh: No route to host"
    assert link.absence(60, link.heard + 14) == ""
    told = link.absence(60, link.heard + 16)
    assert told == "n2 has not answered for 16 s (ssh: No route to host); it counts as lost after 60 s"
    assert link.absence(60, link.heard + 17) == ""
    assert link.absence(60, link.heard + 1) == "n2 answers again"
    assert link.absence(60, link.heard + 2) == ""


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


def test_a_host_that_is_slow_to_connect_to_is_given_its_time_from_then_on(
    folder: JobFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a busy host is: neither the connection nor the wait for its report ends before its guard could say a word."""
    script(tmp_path, """#!/bin/sh\necho '{"op":"attached"}'\nexec sleep 600\n""", monkeypatch)
    clock = Clock()
    monkeypatch.setattr("taco_launch.agent.gang.guard_connection.time", clock)
    link = RemoteGuardConnection(HOST, folder, __file__, ["id", "leases"], beat=5.0)
    ordered, limit = clock.now, 45.0
    try:
        clock.now += 100
        assert not link.is_late(ordered, limit)  # others were dialled before it
        link.step()
        clock.now += 44
        assert not link.is_late(ordered, limit)
        line = link.line
        assert line is not None
        assert select.select([line], [], [], HANG)[0]
        assert link.read() == [Attached()]
        pid = link.pids()
        clock.now += 12
        link.step()
        assert link.pids() == pid != []
        clock.now += 32
        assert not link.is_late(ordered, limit)
        clock.now += 2
        assert link.is_late(ordered, limit)
        link.step()
        assert link.line is None  # it was silent for too long
        link.give_up()
    finally:
        link.close()
    assert link.gone == "its guard did not report its host in time"
