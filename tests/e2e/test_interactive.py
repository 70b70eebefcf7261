"""A terminal and plain input beside a rank of this machine: keys, sizes, exit codes, and that nothing is left behind."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Taco, eventually
from tests.e2e.process_table import running
from tests.e2e.typist import Typist, asked, typist

pytestmark = pytest.mark.e2e


@pytest.fixture
def job(taco: Taco, tmp_path: Path) -> str:
    """A job of two ranks that run."""
    words = ("--launcher", "env", "--np", "2", "--name", "j", "--grace", "1", "--", "sleep", "600")
    taco.ok("submit", *words, cwd=tmp_path)
    eventually(lambda: taco.job("j")["state"] == "RUNNING")
    return "j"


@pytest.fixture
def shell(taco: Taco, job: str) -> Iterator[Typist]:
    """A shell beside rank 1."""
    with typist(taco.argv("shell", job, "--rank", "1"), {**taco.env, "PS1": "> "}) as found:
        found.type("PS1='$ '; echo be'gun'\r")
        found.sees("begun\r\n")
        yield found


def test_a_pipe_through_a_command(taco: Taco, job: str, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "big").write_bytes(os.urandom(5_000_000))
    (tmp_path / "there").mkdir()
    packed = subprocess.run(["tar", "c", "-C", str(tmp_path), "data"], stdout=subprocess.PIPE, check=True).stdout
    script = f"cd {tmp_path}/there && tar x && echo $RANK && exit 7"
    argv = taco.argv("exec", job, "-i", "--rank", "1", "--", "sh", "-c", script)
    done = subprocess.run(argv, input=packed, env=taco.env, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (7, b"1\n", b"")
    assert (tmp_path / "there/data/big").read_bytes() == (folder / "big").read_bytes()


def test_without_i_it_reads_nothing(taco: Taco, job: str) -> None:
    done = taco("exec", job, "--", "wc", "-c", input="not for it")
    assert (done.returncode, done.stdout) == (0, "0\n")


def test_a_shell_of_two_lines(taco: Taco, job: str) -> None:
    done = taco("shell", job, input="echo $RANK of $WORLD_SIZE\nexit 5\n")
    assert (done.returncode, done.stdout) == (5, "0 of 2\n")


def test_a_terminal(shell: Typist, tmp_path: Path) -> None:
    """Its environment and folder, its size and each new one, Ctrl-C, and the exit code."""
    assert shell.is_raw
    shell.type("stty size; pwd; echo $RANK $TERM; test -t 0 && test -t 1 && echo terminal\r")
    told = shell.sees("\r\nterminal\r\n")
    assert f"24 80\r\n{tmp_path}\r\n1 xterm" in told
    shell.resize(50, 132)
    eventually(lambda: "50 132" in asked(shell, "stty size"))
    shell.type("sleep 61.5; echo after-$?\r")
    eventually(lambda: running("sleep", "61.5"))
    shell.type("\x03")
    shell.sees("after-130|\\$ ")
    shell.type("exit 9\r")
    assert shell.leaves() == 9


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, None])
def test_what_ends_it_ends_its_command(shell: Typist, number: signal.Signals | None) -> None:
    """A signal, or the escape."""
    shell.type("sleep 62.5\r")
    eventually(lambda: running("sleep", "62.5"))
    if number is None:
        shell.type("\r~.")
    else:
        os.kill(shell.process.pid, number)
    assert shell.leaves() == 128 + (number or signal.SIGHUP)
    eventually(lambda: not running("sleep", "62.5"))


def test_the_end_of_its_job(taco: Taco, shell: Typist, job: str) -> None:
    assert taco("stop", job).returncode == 0
    shell.sees(f"job {job} has ended, so this command was ended too")
    assert shell.leaves() in (129, 137, 143)


def test_the_agent_is_killed(taco: Taco, shell: Typist) -> None:
    """As good as a connection that was lost: the terminal is as it was, and nothing goes on running."""
    shell.type("sleep 64.5\r")
    eventually(lambda: running("sleep", "64.5"))
    (agent,) = [
        pid for pid in running("pyz", "exec", "") if str(taco.state) in Path(f"/proc/{pid}/cmdline").read_text()
    ]
    os.kill(agent, signal.SIGKILL)
    assert shell.leaves() == 125
    assert "localhost: the answer to exec broke off" in shell.shown
    eventually(lambda: not running("sleep", "64.5"))
    assert taco.job("j")["state"] == "RUNNING"


def test_the_command_line_is_killed(taco: Taco, job: str) -> None:
    with typist(taco.argv("exec", "-it", job, "--", "sleep", "65.5"), taco.env) as found:
        eventually(lambda: len(running("sleep", "65.5")) > 1)
        found.process.kill()
        eventually(lambda: not running("sleep", "65.5"))


def test_a_terminal_for_a_command_without_input(taco: Taco, job: str) -> None:
    with typist(taco.argv("exec", "-t", job, "--", "sh", "-c", "stty size; tty; wc -c"), taco.env) as found:
        found.sees(r"24 80[\r\n]+/dev/pts/\d+[\r\n]+")
        assert not found.is_raw
        found.type("\x03")
        assert found.leaves() == 130


def test_what_is_refused(taco: Taco, job: str) -> None:
    done = taco("exec", "-it", job, "--", "true", input="")
    assert done.returncode == 2
    assert "-t: standard input is not a terminal" in done.stderr
    done = taco("exec", "-i", "hosts.yaml", job, "true")
    assert done.returncode == 2
    assert "hint: name the inventory before the verb: taco-launch -i hosts.yaml exec" in done.stderr
    done = taco("exec", "--instance", "j-worker-7", job, "true")
    assert "its instances are j-master-0, j-worker-0" in done.stderr
    assert taco("exec", "--instance", "j-worker-0", job, "--", "sh", "-c", "echo $RANK").stdout == "1\n"


def test_files_there_and_back(taco: Taco, job: str, tmp_path: Path) -> None:
    (tmp_path / "out/run").mkdir(parents=True)
    (tmp_path / "out/run/data").write_bytes(os.urandom(1_000_000))
    (tmp_path / "mine").mkdir()
    done = taco("cp", f"{job}:out", str(tmp_path / "mine"))
    assert (done.returncode, done.stderr) == (0, f"{tmp_path}/mine/out: 1 file, 977 KiB\n")
    taco.ok("cp", "--rank", "1", str(tmp_path / "mine/out/run"), f"{job}:again")
    assert (tmp_path / "again/data").read_bytes() == (tmp_path / "out/run/data").read_bytes()
    done = taco("cp", f"{job}:nosuch", ".")
    assert (done.returncode, done.stderr) == (2, f"error: {job}: rank 0: nosuch: No such file or directory\n")
    done = taco("cp", "--max", "100k", f"{job}:out", str(tmp_path / "x"))
    assert "error: j: rank 0: out: is larger than 102400 bytes\nhint: copy a part, or raise --max\n" in done.stderr
    assert not (tmp_path / "x").exists()
    assert not list(tmp_path.glob(".*"))


def test_run_on_a_terminal_keeps_the_name_of_the_job_and_no_message_continues_a_line(
    taco: Taco, tmp_path: Path
) -> None:
    words = ("--launcher", "env", "--np", "1", "--name", "j", "-x", "NCCL_IB_DISABLE=0", "--", "echo", "hi")
    with typist(taco.argv("run", *words), taco.env, cwd=tmp_path) as found:
        shown = found.sees("SUCCEEDED.*\n")
    erased = r"\x1b\[2K"
    assert re.search(rf"{erased}job j: 1 rank on localhost; follow it: .*\n", shown), shown
    assert re.search(rf"{erased}(\x1b\[\d+m)*warning:.*\n", shown), shown
