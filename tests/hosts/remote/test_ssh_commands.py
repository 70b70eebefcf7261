"""Commands over a real sshd: bytes arrive as they are whatever the login shell, ends are told as they were, sudo answers."""

import contextlib
import json
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from taco_launch.core.command import Command, Result
from taco_launch.core.errors import HostError
from taco_launch.hosts.fanout import connect
from taco_launch.hosts.remote.credentials import Credentials
from taco_launch.hosts.remote.transport import Transport
from tests.conftest import eventually
from tests.e2e.typist import typist
from tests.hosts.conftest import NOBODY, USERS, host, inventory
from tests.support.patience import HANG, patience
from tests.support.sshd import Sshd, keygen

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("home")]

ODD = (
    "", " ", "two words", "new\nline\n\n", "\n", "\r", "\t", "'", '"', "\\", "\\n", "$HOME", "`id`", "$(id)", "!", "!!", "*", "~",
    "a=b", "-n", "--", "%s", "%%", "你好", "\x01\x7f", "\udcff\udc81\udc88", "#", ";", "x" * 100_000,
)  # fmt: skip
ENV = (("PLAIN", "value"), ("ODD", 'it\'s\n"$x" !\udcff'), ("LC_ALL", "zz_ZZ.UTF-8"), ("EMPTY", ""), ("IFS", "x"))
EVERYTHING = bytes(range(256))


@pytest.fixture
def shared(sshd: Sshd, tmp_path: Path) -> tuple[Path, str]:
    """Return a folder of the sshd's in which every user may write: as it is called here, and there.

    pytest's own folders are closed to others, anew whenever a pytest starts.
    """
    here = sshd.folder / tmp_path.name
    here.mkdir()
    here.chmod(0o777)
    return here, f"/run/test/{tmp_path.name}"


@contextmanager
def one(sshd: Sshd, name: str, access: Credentials = NOBODY, user: str | None = None) -> Iterator[Transport]:
    with connect(inventory(host(sshd, name, user=user)), (host(sshd, name, user=user),), access) as fanout:
        yield fanout.transports[0]


def run(sshd: Sshd, name: str, command: Command, access: Credentials = NOBODY) -> Result:
    with one(sshd, name, access) as transport:
        return transport.run(command)


def await_end(pid: int) -> None:
    eventually(lambda: not Path(f"/proc/{pid}").exists(), 5, f"process {pid} to end")


def encoded(words: tuple[str, ...]) -> bytes:
    return b"".join(word.encode("utf-8", "surrogateescape") + b"\0" for word in words)


# --- bytes


@pytest.mark.parametrize("name", [*(user.name for user in USERS if user.uid < 5010), "root"])
def test_bytes_arrive_whatever_the_login_shell(sshd: Sshd, name: str) -> None:
    shell = next((user.shell for user in USERS if user.name == name), "/bin/bash")
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed (apt-get install tcsh fish zsh)")
    with one(sshd, name) as transport:
        words = transport.run(Command(("printf", r"%s\0", *ODD)))
        assert (words.exit_code, words.stdout, words.stderr) == (0, encoded(ODD), b"")
        names = tuple(f"{key}={value}" for key, value in ENV)
        told = transport.run(Command(("env", "-0"), env=ENV)).stdout
        assert set(encoded(names).split(b"\0")) <= set(told.split(b"\0"))
        data = EVERYTHING * 20_000  # larger than a channel's window
        echoed = transport.run(Command(("sh", "-c", "cat; echo aside >&2; exit 3"), stdin=data))
        assert (echoed.exit_code, echoed.stdout == data, echoed.stderr) == (3, True, b"aside\n")


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (("sh", "-c", "exit 7"), 7),
        (("sh", "-c", "kill -9 $$"), 137),
        (("sh", "-c", "kill -11 $$"), 139),
        (("/no/such/program",), 127),
        (("/etc/passwd",), 126),
        (("test", "1", "=", "1"), 0),
    ],
)
def test_how_a_program_ended(sshd: Sshd, argv: tuple[str, ...], code: int) -> None:
    result = run(sshd, "plain", Command(argv))
    assert result.exit_code == code
    if code > 128:
        assert result.stderr == b""  # the shell's own word on it is not the program's


def test_input_that_nobody_reads(sshd: Sshd) -> None:
    result = run(sshd, "plain", Command(("sh", "-c", "exec <&-; echo sorry"), stdin=b"x" * 10_000_000))
    assert (result.exit_code, result.stdout) == (0, b"sorry\n")


def test_much_on_stderr_while_stdout_is_silent(sshd: Sshd) -> None:
    result = run(sshd, "plain", Command(("sh", "-c", "head -c 8000000 /dev/zero >&2; echo done")))
    assert (result.stdout, len(result.stderr)) == (b"done\n", 8_000_000)


def test_a_child_that_stays_keeps_nobody_waiting(sshd: Sshd) -> None:
    result = run(sshd, "plain", Command(("sh", "-c", "sleep 90 & echo started")))
    assert result.stdout == b"started\n"
    assert result.seconds < HANG


def test_nothing_of_the_users_is_in_the_process_list(sshd: Sshd) -> None:
    script = "tr '\\0' '\\n' </proc/$PPID/cmdline"
    result = run(sshd, "plain", Command(("sh", "-c", script, "tell-tale"), env=(("TELL", "tale"),)))
    assert b"taco_m=" in result.stdout
    assert b"tale" not in result.stdout


def test_a_connection_is_kept(sshd: Sshd) -> None:
    with one(sshd, "plain") as transport:
        ports = {transport.run(Command(("sh", "-c", "echo $SSH_CONNECTION"))).stdout for _phase in range(3)}
    assert len(ports) == 1


def test_a_login_shell_that_is_none(sshd: Sshd) -> None:
    with pytest.raises(HostError, match="broken: the login shell did not start /bin/sh: exit code 1"):
        run(sshd, "broken", Command(("true",)))


# --- time


def test_a_command_that_takes_too_long_is_ended(sshd: Sshd, tmp_path: Path) -> None:
    script = f"echo $$ >{tmp_path}/pid; trap '' TERM; echo still at it >&2; while :; do sleep 0.2; done"
    begun = time.monotonic()
    with pytest.raises(HostError, match="sh did not end within 4 s; the last on its stderr: still at it"):
        run(sshd, "root", Command(("sh", "-c", script), timeout=4))
    assert time.monotonic() - begun < patience(14)
    await_end(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize("name", ["root", "free", "asked", "terminal"])
def test_tail_gives_output_as_it_comes_and_ends_the_command(
    sshd: Sshd, name: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    command = Command(("sh", "-c", "echo $$; cat; echo aside >&2; exec sleep 600"), stdin=b"given\n", sudo=True)
    with one(sshd, name, Credentials("pässword")) as transport:
        with transport.tail(command) as stdout:
            pid = int(stdout.readline())
            assert stdout.readline() == b"given\n"
            assert Path(f"/proc/{pid}").exists()
            time.sleep(0.2)
        await_end(pid)
    if name != "terminal":
        with one(sshd, "plain") as transport, transport.tail(Command(("sh", "-c", "echo a; echo b >&2"))) as stdout:
            assert stdout.read() == b"a\n"
        assert capfdbinary.readouterr().err.endswith(b"b\n")


def test_a_cut_is_never_taken_for_the_end(sshd: Sshd) -> None:
    script = "echo half of it; kill -9 $PPID; sleep 1"
    with pytest.raises(HostError, match="the answer of sh broke off"):
        run(sshd, "plain", Command(("sh", "-c", script)))


def test_a_lost_connection_is_made_again_for_the_next_command(sshd: Sshd) -> None:
    cut = 'read -r _ _ _ daemon _ </proc/$PPID/stat; kill -9 "$daemon"; sleep 1'
    with one(sshd, "root") as transport:
        before = transport.run(Command(("sh", "-c", "echo $SSH_CONNECTION"))).stdout
        with pytest.raises(HostError, match=r"the answer of sh broke off \(the connection was lost\)"):
            transport.run(Command(("sh", "-c", cut)))
        after = transport.run(Command(("sh", "-c", "echo $SSH_CONNECTION"))).stdout
    assert after not in (b"", before)


def test_close_from_another_thread_ends_a_run(sshd: Sshd, tmp_path: Path) -> None:
    runs = tmp_path / "runs"

    def close() -> None:
        eventually(runs.exists)
        transport.close()

    with one(sshd, "root") as transport:
        transport.run(Command(("true",)))
        threading.Thread(target=close, daemon=True).start()
        with pytest.raises(HostError, match="broke off"):
            transport.run(Command(("sh", "-c", f"touch {runs}; exec sleep 600")))


@pytest.mark.parametrize("name", ["root", "free", "terminal"])
def test_ctrl_c_ends_what_runs_on_hosts(sshd: Sshd, name: str, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    command = Command(("sh", "-c", f"echo $$ >{file}.part; mv {file}.part {file}; exec sleep 600"), sudo=name != "root")
    with contextlib.suppress(KeyboardInterrupt), one(sshd, name, Credentials("pässword")) as transport:

        def work() -> None:
            with pytest.raises(HostError):
                transport.run(command)

        threading.Thread(target=work, daemon=True).start()
        eventually(file.exists)
        begun = time.monotonic()
        raise KeyboardInterrupt
    assert time.monotonic() - begun < HANG
    await_end(int(file.read_text()))
    with pytest.raises(HostError, match="the connection was closed"):
        transport.run(command)


# --- sudo


@pytest.mark.parametrize("name", ["root", "free", "asked", "terminal"])
def test_sudo(sshd: Sshd, name: str) -> None:
    data = EVERYTHING * 2000
    script = 'id -un; printf %s "$ODD" | od -An -c; echo "$PATH"; echo "[$LC_ALL]" >&2; cat; exit 3'
    env = (("ODD", "a b\n'c'"),)
    with one(sshd, name, Credentials("pässword")) as transport:
        for _phase in range(2):
            result = transport.run(Command(("sh", "-c", script), stdin=data, env=env, sudo=True))
            lines = result.stdout.split(b"\n", 3)
            assert (result.exit_code, lines[0]) == (3, b"root")
            assert lines[1].split() == [b"a", b"b", rb"\n", b"'", b"c", b"'"]
            assert lines[3] == data
            assert result.stderr == b"[]\n"
            if name != "root":
                assert lines[2] == b"/usr/sbin:/usr/bin:/sbin:/bin"  # secure_path
        assert transport.run(Command(("id", "-un"))).stdout.strip() == name.encode()


@pytest.mark.parametrize(
    ("name", "password", "message", "hint"),
    [
        ("asked", None, "asked: sudo asks for a password", "--ask-sudo-password"),
        ("asked", "wrong", "asked: sudo rejected the password", "{ssh} asked@127.0.0.1 sudo -k true"),
        ("terminal", "wrong", "terminal: sudo rejected the password", "{ssh} terminal@127.0.0.1 sudo -k true"),
        ("stranger", "pässword", "stranger: sudo refuses: stranger is not in the sudoers file", "@127.0.0.1 sudo -l"),
    ],
)
def test_sudo_that_refuses(sshd: Sshd, name: str, password: str | None, message: str, hint: str) -> None:
    with pytest.raises(HostError, match=message) as caught:
        run(sshd, name, Command(("true",), sudo=True), Credentials(password))
    assert hint.format(ssh=f"ssh -t -i {sshd.login} -p {sshd.port}") in (caught.value.hint or "")


# --- questions on a terminal


def answering(sshd: Sshd, folder: Path, key: Path, names: tuple[str, ...], question: str, *words: str) -> list[str]:
    """Ask hosts for facts on a terminal, answer the one question that is shown, and return who reads them there."""
    inventory, out = folder / "cluster.yaml", folder / "out"
    hosts = "".join(f"  {name}{at}: {{user: {name}, address: 127.0.0.{at}}}\n" for at, name in enumerate(names, 1))
    inventory.write_text(
        f"cluster: c\nssh: {{identity_file: {key}, host_keys: accept-new}}\n"
        f"defaults: {{port: {sshd.port}}}\nhosts:\n{hosts}"
    )
    argv = [sys.executable, "-m", "taco_launch", "-i", str(inventory), "facts", "--json", "--only", "system", *words]
    with typist(["sh", "-c", 'exec "$@" >"$0"', str(out), *argv], os.environ) as person:
        person.sees(re.escape(question))
        person.type("pässword\n")
        assert person.leaves(60) == 0, person.shown
        assert question not in person.shown  # once for all hosts
        assert "pässword" not in person.shown
    return [host["system"]["access"] for host in json.loads(out.read_text())["hosts"]]


def test_a_sudo_password_is_asked_for_once_on_a_terminal(sshd: Sshd, tmp_path: Path) -> None:
    names = ("asked", "asked", "terminal")
    found = answering(sshd, tmp_path, sshd.login, names, "sudo password: ", "--ask-sudo-password")
    assert found == ["root"] * 3


def test_a_passphrase_is_asked_for_once_on_a_terminal(sshd: Sshd, tmp_path: Path) -> None:
    key = keygen(tmp_path / "key", passphrase="pässword")
    with (sshd.folder / "authorized").open("a") as file:
        file.write(key.with_suffix(".pub").read_text())
    assert answering(sshd, tmp_path, key, ("plain", "plain"), f"passphrase of {key}: ") == ["user"] * 2


# --- files


@pytest.mark.parametrize("name", ["plain", "free", "terminal"])
def test_a_file_is_put_whole_and_private(sshd: Sshd, name: str, shared: tuple[Path, str]) -> None:
    target, there = shared[0] / "a b" / "it's", f"{shared[1]}/a b/it's"
    data, sudo = EVERYTHING * 4000, name != "plain"
    with one(sshd, name, Credentials("pässword")) as transport:
        transport.put(data, there, 0o640, sudo=sudo)
        assert target.read_bytes() == data
        assert target.stat().st_mode & 0o777 == 0o640
        assert target.parent.stat().st_mode & 0o777 == 0o700
        assert target.owner() == "root" if sudo else target.stat().st_uid == 5001
        transport.put(b"", there, sudo=sudo)
        assert target.read_bytes() == b""
        with pytest.raises(HostError, match=f"{name}: cannot write .*: is a folder"):
            transport.put(b"x", f"{shared[1]}/a b", sudo=sudo)
        assert os.listdir(target.parent) == ["it's"]


def test_a_file_that_cannot_be_put(sshd: Sshd) -> None:
    with one(sshd, "plain") as transport:
        for path, reason in (
            ("/proc/none", "cannot write /proc/none"),
            ("/dev/full/x", "cannot write"),
            (f"/etc/taco-launch-{os.getpid()}", "Permission"),
        ):
            with pytest.raises(HostError, match=reason):
                transport.put(b"x" * 1_000_000, path)
