"""Hosts are untrusted: whatever one answers is its error, in time, in little memory, and never a reason to obey it."""

import json
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from taco_launch.core.command import Command
from taco_launch.core.errors import HostError, TacoLaunchError
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.protocol import framing as protocol
from taco_launch.core.protocol.calls import Failure, Notice
from taco_launch.core.protocol.calls.job_list import List
from taco_launch.hosts.fanout import connect
from taco_launch.hosts.remote import session as sessions
from taco_launch.hosts.remote import transport as transports
from taco_launch.hosts.remote.credentials import Credentials
from taco_launch.hosts.remote.transport import Transport
from taco_launch.jobs.backend import agent_client as heads
from taco_launch.jobs.backend.agent_client import AgentClient, AgentError
from taco_launch.jobs.backend.agent_location import AgentLocation, in_container, on_host
from tests.hosts.conftest import inventory
from tests.security.evil_host import Evil, Session, evil_host
from tests.support.sshd import keygen

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120), pytest.mark.usefixtures("home")]
HEADER = b"ready\n" + protocol.dump(protocol.header("list", "x"))
SECRET = "s3cret-of-root"
# What a controller may need at most (the bound), besides what Python had before.
MOST_MIB = 200


@contextmanager
def reached(act: Callable[[Session, Evil], None], folder: Path) -> Iterator[tuple[Transport, Evil]]:
    """Connect to a host that acts so."""
    if not (folder / "login").exists():
        keygen(folder / "login")
    with evil_host(act) as evil:
        entry = Host("evil", "127.0.0.1", port=evil.port, user="plain", identity_file=str(folder / "login"))
        found = inventory(entry, known_hosts=str(folder / "known_hosts"))
        with connect(found, found.hosts, Credentials(SECRET)) as fanout:
            (transport,) = fanout.transports
            yield transport, evil


def answering(*pieces: bytes, endless: bytes = b"") -> Callable[[Session, Evil], None]:
    """Return an act: start the command, answer with the pieces, and then with the last one for ever."""

    def act(session: Session, evil: Evil) -> None:
        evil.sent.append(session.start())
        if b"kill 4711" in evil.sent[-1] and len(evil.sent) > 1:
            session.end()
        for piece in pieces:
            session.say(piece)
        while endless:
            session.say(endless)

    return act


def written(evil: Evil) -> list[bytes]:
    """Return the commands that were to write a file."""
    return [command for command in evil.sent if b"mktemp" in command]


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def fails(
    act: Callable[[Session, Evil], None], folder: Path, seat: AgentLocation | None = None
) -> tuple[TacoLaunchError, Evil]:
    """Return the error of `list` on such a host."""
    with reached(act, folder) as (transport, evil), pytest.raises(TacoLaunchError) as caught:
        AgentClient(transport, seat or on_host()).call(List())
    return caught.value, evil


@pytest.mark.parametrize(
    ("pieces", "endless", "said"),
    [
        ((HEADER,), b"x" * (1 << 20), "larger than"),
        ((b"x" * (1 << 20),), b"x" * (1 << 20), "larger than"),
        ((HEADER,), Notice(text="x" * 100_000).encode(), "larger than 32 MiB"),
        ((HEADER,), b'{"op":"rows","rows":[' + b"[]," * 1_000_000 + b"[]]}\n", "values"),
        ((HEADER, protocol.dump({"bytes": 10**12})), b"x" * (1 << 20), "invalid byte count 1000000000000"),
        ((HEADER, protocol.dump({"bytes": -1})), b"", "invalid byte count -1"),
        ((HEADER, protocol.dump({"bytes": True})), b"", "invalid byte count True"),
        ((HEADER, protocol.dump({"bytes": "8"})), b"", "invalid byte count 8"),
    ],
)
def test_h4_an_answer_has_a_size(pieces: tuple[bytes, ...], endless: bytes, said: str, tmp_path: Path) -> None:
    before = peak_mib()
    error, _evil = fails(answering(*pieces, endless=endless), tmp_path)
    assert said in error.message
    assert error.message.startswith("evil: ")
    assert peak_mib() - before < MOST_MIB


def test_h4_a_command_has_an_answer_of_a_size(tmp_path: Path) -> None:
    before = peak_mib()
    act = answering(endless=b"x" * (1 << 20))
    with reached(act, tmp_path) as (transport, _evil), pytest.raises(HostError, match="larger than 32 MiB") as caught:
        transport.run(Command(("/bin/true",)))
    assert caught.value.message.startswith("evil: ")
    assert peak_mib() - before < MOST_MIB


@pytest.mark.parametrize("drips", [False, True])
def test_h4_an_answer_has_a_deadline(drips: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "_ANSWER_SECONDS", 1.0)

    def act(session: Session, _evil: Evil) -> None:
        if b"kill 4711" in session.start():
            session.end()
        session.say(HEADER)
        while drips:
            session.say(b" ")
            time.sleep(0.01)

    error, _evil = fails(act, tmp_path)
    assert error.message == "evil: no complete answer after 1 s"


@pytest.mark.parametrize("sudo", [False, True])
def test_m1_the_password_goes_to_a_prompt_that_the_command_caused(
    sudo: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "START_SECONDS", 3.0)

    def act(session: Session, evil: Evil) -> None:
        session.say(session.marker + b":password")
        evil.sent.append(session.receive(2))

    with reached(act, tmp_path) as (transport, evil), pytest.raises(HostError):
        transport.run(Command(("/bin/true",), sudo=sudo))
    assert (SECRET.encode() in b"".join(evil.sent)) is sudo


@pytest.mark.parametrize("path", ["/etc/cron.d/evil", "/etc/ssh/sshd_config", "../../x", "/x/../agent/a"])
def test_h3_no_answer_names_a_file_to_write(path: str, tmp_path: Path) -> None:
    told = f"unready agent {path}\n".encode()
    error, evil = fails(answering(told), tmp_path)
    assert "names an agent's path that cannot be right" in error.message
    assert written(evil) == []
    error, evil = fails(answering(b"ready\n" + told), tmp_path, in_container("taco-launch-c"))  # the container's word
    assert "cannot be started" in error.message
    assert written(evil) == []


def test_h3_in_a_container_the_agent_goes_where_it_belongs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transports, "_PUT_SECONDS", 3.0)
    monkeypatch.setattr(transports, "_SLOWEST", 1e9)
    _error, evil = fails(answering(b"unready agent /etc/cron.d/evil\n"), tmp_path, in_container("taco-launch-c"))
    (command,) = written(evil)
    assert b"/etc/cron.d" not in command
    assert b"/var/lib/taco-launch/agent/" in command


@pytest.mark.parametrize(
    "frame",
    [
        {"error": {"message": "m", "hint": None, "exit_code": "1"}},
        {"error": {"message": 1, "hint": None, "exit_code": 1}},
        {"error": {"message": "m"}},
        {"error": []},
        {"job": []},
        {"job": {"record": []}},
        {"job": {"record": {"reason": 4}}},
        {"job": {"record": {"warnings": 4}}},
        [],
        "x",
    ],
)
def test_l5_a_malformed_message_is_the_hosts_error(frame: object, tmp_path: Path) -> None:
    error, _evil = fails(answering(HEADER, json.dumps(frame).encode() + b"\n"), tmp_path)
    assert type(error) is HostError
    assert error.message.startswith("evil: list: not a taco-launch message")


@pytest.mark.parametrize("code", [0, -1, 256, 1 << 40])
def test_l5_an_error_never_ends_in_success(code: int, tmp_path: Path) -> None:
    failure = Failure(message="m", hint=None, exit_code=code)
    error, _evil = fails(answering(HEADER, failure.encode()), tmp_path)
    assert isinstance(error, AgentError)
    assert 0 < error.exit_code < 256


@pytest.mark.parametrize("code", [b"x", b"-1", b"1e3", b"99999999999999999999", b""])
def test_l5_a_command_ends_in_an_exit_code(code: bytes, tmp_path: Path) -> None:
    def act(session: Session, _evil: Evil) -> None:
        session.start()
        session.end(code)

    with reached(act, tmp_path) as (transport, _evil), pytest.raises(HostError, match="ends in no exit code"):
        transport.run(Command(("/bin/true",)))
    assert sessions.ANSWER_BYTES < MOST_MIB << 20


def test_a_host_that_sends_more_than_it_may_is_hung_up_on(tmp_path: Path) -> None:
    """It does not keep to the window of SSH, while nobody reads: what comes would all be kept."""

    def act(session: Session, _evil: Evil) -> None:
        session.start()
        session.channel.out_window_size = 1 << 40
        while True:
            session.say(b"x" * (1 << 20))

    with reached(act, tmp_path) as (transport, _evil):
        before = peak_mib()
        with transport.tail(Command(("yes",))) as output:
            time.sleep(3)
            came = 0
            while piece := output.read(1 << 16):
                came += len(piece)
        assert came < 8 << 20
        assert peak_mib() - before < MOST_MIB / 4
