"""Hosts that do not answer, or slowly: which and what was waited for is told, the others are shown, cuts are outlived."""

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from taco_launch.core.command import Command, kill
from taco_launch.core.errors import HostError
from taco_launch.hosts.ssh import connection, ssh_socket
from tests.lab import logins
from tests.lab.logins import BOTH, SYSTEM, Person
from tests.lab.rig import Lab, seconds_of
from tests.support.patience import patience

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

# fixtures are found by their names here
keys, person = logins.keys, logins.person


@pytest.fixture(scope="module")
def addresses(lab: Lab, keys: Path) -> Iterator[dict[str, str]]:
    with logins.users(lab, keys) as found:
        yield found


@contextmanager
def struck(lab: Lab, host: str, fault: str, undo: str) -> Iterator[None]:
    """Inject a fault half a second after the block has started, and undo it at its end."""
    timer = threading.Timer(0.5, lab.fault, (host, fault))
    timer.start()
    try:
        yield
    finally:
        timer.join()
        lab.fault(host, undo)


@pytest.mark.parametrize(
    ("fault", "undo", "message"),
    [
        pytest.param(
            "pause",
            "resume",
            r":22: its sshd did not answer within 3 s; the host does accept TCP connections$",
            marks=pytest.mark.nightly,
        ),
        ("power-off", "power-on", r"(waited 3 s for a TCP connection to .*:22|: No route to host)$"),
        ("stop-sshd", "start-sshd", r": no TCP connection to .*:22: Connection refused$"),
        pytest.param("partition", "heal", r": waited 3 s for a TCP connection to .*:22$", marks=pytest.mark.nightly),
    ],
)
def test_facts_of_the_others_are_shown(healthy: Lab, person: Person, fault: str, undo: str, message: str) -> None:
    person.knows(BOTH, config="ConnectTimeout 3\n")
    healthy.fault("gpu2", fault)
    try:
        begun = time.monotonic()
        code, found, said = person.facts(*SYSTEM)
        took = time.monotonic() - begun
    finally:
        healthy.fault("gpu2", undo)
    assert code == 5
    assert found["gpu1"]["system"]["hostname"] == "gpu1"
    assert re.search(rf"^gpu2.*{message}", found["gpu2"]), found["gpu2"]
    assert f"error: {found['gpu2']}" in said
    assert "\nhint: " in said
    assert took < patience(20)


def test_what_was_waited_for(healthy: Lab, person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    person.knows({"stuck": "stuck@gpu2"})
    with (
        person.connected() as fanout,
        pytest.raises(
            HostError,
            match="stuck: the login shell did not start /bin/sh within 2 s; its last output: looking for the licence",
        ),
    ):
        fanout.transports[0].run(Command(("true",), timeout=2))
    person.knows({"gpu2": "plain@gpu2"})
    # what is left of the command is ended too, which is given 10 s: nor is there a wait beyond these
    monkeypatch.setattr(connection, "kill", lambda group, *, sudo: replace(kill(group, sudo=sudo), timeout=1))
    with person.connected() as fanout:
        transport = fanout.transports[0]
        transport.run(Command(("true",)))
        with struck(healthy, "gpu2", "pause", "resume"):
            begun = time.monotonic()
            with pytest.raises(HostError, match="gpu2: sleep did not end within 3 s"):
                transport.run(Command(("sleep", "60"), timeout=3))
            assert time.monotonic() - begun < patience(8)


def test_a_command_outlives_a_cut(healthy: Lab, person: Person) -> None:
    person.knows({"gpu2": "plain@gpu2"})
    script = "i=0; while [ ! -e /tmp/test-cut ]; do echo $i; i=$((i + 1)); sleep 0.2; done; echo end"
    with person.connected() as fanout:
        transport = fanout.transports[0]
        connection_of = Command(("sh", "-c", "echo $SSH_CONNECTION"))
        before = transport.run(connection_of).stdout

        def cut() -> None:
            time.sleep(0.5)
            took.append(seconds_of(lambda: healthy.fault("gpu2", "cut", "5s")))
            healthy.sh("gpu2", "touch /tmp/test-cut")

        took: list[float] = []
        thread = threading.Thread(target=cut)
        thread.start()
        try:
            result = transport.run(Command(("sh", "-c", script), timeout=60))
        finally:
            thread.join()
            healthy.sh("gpu2", "rm -f /tmp/test-cut")
        assert took[0] > 5
        assert result.exit_code == 0
        *ticks, end = result.stdout.decode().split()
        assert (ticks, end) == ([str(number) for number in range(len(ticks))], "end")
        assert ticks, "nothing was said before the cut"
        assert transport.run(connection_of).stdout == before


def test_a_host_that_has_gone_is_noticed(healthy: Lab, person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_KEEPALIVE_SECONDS", 1)
    monkeypatch.setattr(ssh_socket, "_DEAD_SECONDS", 2)
    person.knows({"gpu2": "plain@gpu2"})
    with person.connected() as fanout:
        transport = fanout.transports[0]
        transport.run(Command(("true",)))
        with struck(healthy, "gpu2", "partition", "heal"):
            begun = time.monotonic()
            with pytest.raises(HostError, match=r"gpu2: the answer of sleep broke off \(the connection was lost\)"):
                transport.run(Command(("sleep", "60")))
            assert time.monotonic() - begun < patience(30)


@pytest.mark.nightly
def test_a_slow_link(healthy: Lab, person: Person) -> None:
    person.knows(BOTH)
    healthy.fault("gpu2", "slow-link", "2mbit")
    try:
        assert person.facts()[0] == 0
        with person.connected() as fanout:
            result = fanout.transports[1].run(Command(("head", "-c", "600000", "/dev/zero"), timeout=60))
    finally:
        healthy.fault("gpu2", "heal")
    assert result.stdout == bytes(600_000)
    assert result.seconds > 1.2  # 4.8 Mbit less the bucket's 1
