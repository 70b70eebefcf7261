"""The dialogue with a login shell and with sudo, played by a pipe that says what it is told to."""

import time
from collections.abc import Sequence

import pytest

from taco_launch.core.command import Command
from taco_launch.core.errors import HostError
from taco_launch.hosts.remote import session
from taco_launch.hosts.remote.credentials import Credentials
from tests.hosts.conftest import NOBODY

LOGIN = ("-p", "2222", "me@10.0.0.1")


class Played:
    """A host that says these things, one by one; `{m}` is the marker."""

    def __init__(self, said: Sequence[tuple[str, str]], ending: str = "exit code 1") -> None:
        self.plan = session.plan("gpu1", Command(("prog", "arg"), b"input"))
        self._said = list(said)
        self._ending = ending
        self.sent: list[tuple[bytes, bool]] = []

    def receive(self, timeout: float | None) -> tuple[bytes, bytes] | None:
        del timeout
        if not self._said:
            return None
        out, err = (text.replace("{m}", self.plan.marker).encode("latin-1") for text in self._said.pop(0))
        return out, err

    def send(self, data: bytes, *, last: bool = False) -> None:
        self.sent.append((data, last))

    def write(self, data: bytes) -> None:
        self.sent.append((data, False))

    def ending(self) -> str:
        return self._ending

    def run(self, access: Credentials = NOBODY, *, sudo: bool = False) -> tuple[int, bytes, bytes]:
        command = Command(("prog", "arg"), b"input", sudo=sudo)
        self.plan = session.CommandSession("gpu1", command, self.plan.marker, self.plan.tty, LOGIN)
        started = session.start(self, self.plan, access, whole=True)
        result = session.finish(self, self.plan, started, time.monotonic())
        return result.exit_code, result.stdout, result.stderr


START = ("{m}:start 42\n", "{m}:start 42\n")


def test_noise_before_the_start_is_dropped() -> None:
    host = Played([("Welcome\nno newline", "err"), START, ("out", "err"), ("{m}:end 3\n", "{m}:end 3\n")])
    assert host.run() == (3, b"out", b"err")
    ((data, last),) = host.sent
    assert data.endswith(b"\ninput")
    assert last


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_whatever_the_pieces_it_comes_in(size: int) -> None:
    out = "noise\n{m}:start 42\nfirst\nsecond, no newline{m}:end 137\n"
    err = "{m}:start 42\naside\n{m}:end 137\n"
    host = Played([])
    out, err = out.replace("{m}", host.plan.marker), err.replace("{m}", host.plan.marker)
    pieces = max(len(out), len(err))
    host._said = [(out[at : at + size], err[at : at + size]) for at in range(0, pieces, size)]
    assert host.run() == (137, b"first\nsecond, no newline", b"aside\n")


def test_the_markers_parts_in_the_output_are_output() -> None:
    host = Played([START, ("{m} {m}:en {m}:start", ""), ("{m}:end 0\n", "{m}:end 0\n")])
    assert host.run()[1] == "{m} {m}:en {m}:start".replace("{m}", host.plan.marker).encode()


@pytest.mark.parametrize(
    "said", [[START], [START, ("part", "")], [START, ("all{m}:end 0\n", "")], [START, ("all{m}:end 0", "{m}:end 0\n")]]
)
def test_a_part_is_never_the_whole(said: list[tuple[str, str]]) -> None:
    with pytest.raises(HostError, match=r"gpu1: the answer of prog broke off \(exit code 1\)"):
        Played(said).run()


def test_nothing_is_sent_before_the_start() -> None:
    host = Played([("password: ", "who are you?\n"), ("", "bye\n")])
    with pytest.raises(HostError, match="gpu1: the login shell did not start /bin/sh: bye"):
        host.run(Credentials("secret"))
    assert host.sent == []


def test_the_password_goes_to_sudos_own_question_only() -> None:
    host = Played(
        [("", "We trust you\n[sudo] password: "), ("", "{m}:password"), START, ("{m}:end 0\n", "{m}:end 0\n")]
    )
    assert host.run(Credentials("s3cret"), sudo=True)[0] == 0
    assert host.sent[0][0] == b"s3cret\n"
    assert len(host.sent) == 2


@pytest.mark.parametrize(
    ("said", "ending", "password", "message"),
    [
        ([("", "{m}:password")], "", None, "sudo asks for a password"),
        ([("", "{m}:password"), ("", "Sorry, try again.\n{m}:password")], "", "x", "sudo rejected the password"),
        ([("", "env: 'sudo': No such file or directory\n")], "exit code 127", None, "there is no sudo: env: "),
        (
            [("", "joe is not in the sudoers file.\n")],
            "exit code 1",
            None,
            "sudo refuses: joe is not in the sudoers file",
        ),
        ([], "", None, "sudo refuses: the connection ended"),
    ],
)
def test_sudo_that_refuses(said: list[tuple[str, str]], ending: str, password: str | None, message: str) -> None:
    with pytest.raises(HostError, match=f"gpu1: {message}") as caught:
        Played(said, ending).run(Credentials(password), sudo=True)
    assert caught.value.hint
    assert "s3cret" not in repr(Credentials("s3cret"))


def test_hints_can_be_pasted() -> None:
    """They get there as the inventory says, and take no ssh to get to this machine."""
    command = Command(("prog",), sudo=True)
    for login, expected in ((LOGIN, "ssh -t -p 2222 me@10.0.0.1 sudo -l"), ((), "sudo -l")):
        begin = session._Begin(session.plan("gpu1", command, login=login), NOBODY)
        begin.take(b"", b"no\n")
        refused = begin.refused("exit code 1")
        assert isinstance(refused, HostError)
        assert refused.hint == f"see what it allows: {expected}"
    with pytest.raises(HostError) as caught:
        Played([START]).run()
    assert caught.value.hint == "is the host up, and does the network work? ssh -p 2222 me@10.0.0.1 uptime"


def test_sudo_that_wants_a_terminal_is_told_apart() -> None:
    with pytest.raises(session.TtyRequiredError):
        Played([("", "sudo: sorry, you must have a tty to run sudo\n")]).run(sudo=True)


def test_what_was_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "START_SECONDS", 0.0)
    host = Played([("Starting the conda environment ...\n", ""), ("", "")])
    with pytest.raises(
        HostError, match="gpu1: the login shell did not start /bin/sh within 0 s; its last output: Starting"
    ):
        host.run()


def test_control_characters_reach_no_terminal() -> None:
    with pytest.raises(HostError) as caught:
        Played([("\x1b[31mno\x07\n", "")]).run()
    assert caught.value.message.isprintable()


class Endless(Played):
    """A host whose rc file does not stop talking, for 50 MB at most."""

    def receive(self, timeout: float | None) -> tuple[bytes, bytes] | None:
        del timeout
        self.chunks = getattr(self, "chunks", 0) + 1
        time.sleep(0.001)
        return (b"y\n" * 50_000, b"") if self.chunks < 500 else None


def test_a_host_that_does_not_stop_talking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "START_SECONDS", 0.2)
    with pytest.raises(
        HostError,
        match=r"still printing after [0-9]+ bytes \(is a shell start-up file printing this\?\), its last output: y",
    ):
        Endless([]).run()


def test_of_what_stands_before_the_start_only_the_end_is_kept() -> None:
    begin = session._Begin(Played([]).plan, NOBODY)
    marker = begin._what.marker.encode()
    for _chunk in range(1000):
        begin.take(b"y\n" * 5000, b"z")
        assert len(begin._out.said) <= session._KEPT
    for piece in (marker[:5], marker[5:] + b":sta", b"rt 42\nout"):
        begin.take(piece, b"")
    begin.take(b"", marker + b":start 42\n")
    assert begin.started() == session.StartedProgram(42, b"out", b"")


def test_what_arrives_between_the_markers_of_two_streams_has_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """L2 of the second attack: a host that marks the start on one stream alone, and continues there."""
    monkeypatch.setattr(session, "ANSWER_BYTES", 1 << 20)
    begin = session._Begin(Played([]).plan, NOBODY)
    begin.take(begin._what.marker.encode() + b":start 42\n", b"")
    begin.take(b"y\n" * (1 << 18), b"")
    with pytest.raises(HostError, match=r"the answer of \S+ is larger than 1 MiB"):
        begin.take(b"y\n" * (1 << 18), b"")
