"""The wrapper of a rank as a process of its own, its guard played over the socket, mpirun by its variables."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from taco_launch.agent.host import processes
from taco_launch.agent.logs import nccl_file
from taco_launch.agent.logs.segments import SegmentReader
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core.errors import NOT_EXECUTABLE, quoted
from taco_launch.core.protocol.connection import JsonConnection
from tests.agent.conftest import PYTHON, Family, Mail, held
from tests.conftest import eventually
from tests.support.log_segments import drain
from tests.support.patience import HANG

EXIT = {"op": "exit", "orphan": False, "size": 0, "killed": ""}  # what the guard adds to it
SHARED = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "4242", "WORLD_SIZE": "4"}
MPIRUN = {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"}
SHOW = "import json, os, sys; print(json.dumps([sys.argv[1:], {k: os.environ[k] for k in sorted(os.environ)}]))"


class Ranks:
    """Starts wrappers of rank 3, and plays their guard."""

    def __init__(self, folder: JobFolder, agent: Path, family: Family) -> None:
        self.folder, self._agent, self._family = folder, agent, family
        self.server: socket.socket = folder.listen()
        self.server.settimeout(HANG)

    def start(
        self, *command: str, env: Mapping[str, str] = MPIRUN, before: tuple[str, ...] = ()
    ) -> "subprocess.Popen[bytes]":
        argv = (*PYTHON, str(self._agent), "rank", str(self.folder.path), "--", *command)
        return self._family.start((*before, *argv), env={"PATH": os.environ["PATH"], **env}, stderr=subprocess.PIPE)

    def accept(self) -> Mail:
        return Mail(JsonConnection(self.server.accept()[0]))

    def run(self, *command: str, shared: Mapping[str, str] = SHARED) -> tuple["subprocess.Popen[bytes]", Mail]:
        """Start a wrapper and welcome it."""
        process = self.start(*command)
        guard = self.accept()
        guard.wait("register")
        guard.send("welcome", environment=dict(shared), log_max_bytes=1 << 20, umask=0o077)
        return process, guard

    @property
    def log(self) -> bytes:
        return drain(SegmentReader(self.folder.rank(3)))

    def wait_for(self, line: bytes) -> None:
        eventually(lambda: line in self.log, 10, f"{line!r} in the log")


@pytest.fixture
def ranks(folder: JobFolder, agent: Path, family: Family) -> Iterator[Ranks]:
    found = Ranks(folder, agent, family)
    yield found
    found.server.close()


def report(exit_code: int, reason: str = "") -> dict[str, Any]:
    return {**EXIT, "rank": 3, "exit_code": exit_code, "reason": reason, "lost": 0}


def test_it_registers_itself_and_its_parent(ranks: Ranks) -> None:
    process = ranks.start("true")
    entries = [processes.identify(pid) for pid in (process.pid, os.getpid())]
    assert ranks.accept().wait("register") == {
        "op": "register",
        "rank": 3,
        "roots": [[entry.pid, entry.start] for entry in entries if entry is not None],
    }


def test_a_rank_gets_its_environment_and_its_arguments(ranks: Ranks) -> None:
    words = ["", ":", "::", "a b", "$(id)", "-x", "\udcff"]
    escaped = ["", "::", ":::", "a b", "$(id)", "-x", "\udcff"]
    process, guard = ranks.run(sys.executable, "-c", SHOW, *escaped, shared={**SHARED, "GIVEN": "it's\n\udcff"})
    assert guard.wait("exit") == report(0)
    assert process.wait(HANG) == 0
    arguments, environment = json.loads(ranks.log)
    assert arguments == words
    expected = {**MPIRUN, **SHARED, "GIVEN": "it's\n\udcff", "RANK": "3", "LOCAL_RANK": "1", "PATH": os.environ["PATH"]}
    assert {name: environment.get(name) for name in expected} == expected
    assert not set(environment) - set(expected) - {"LC_CTYPE"}  # Python's own, where no locale is set


def test_nccl_writes_into_a_file_of_its_own_and_its_warnings_into_the_log(ranks: Ranks) -> None:
    script = (
        'file=${NCCL_DEBUG_FILE%.%p}.$$; echo "$NCCL_DEBUG"; echo "gpu1:$$:1 [0] NCCL INFO NET/IB : No device found." >$file; '
        'echo "gpu1:$$:1 [0] NCCL WARN no route" >>$file; sleep 1000'
    )
    ranks.start("sh", "-c", script)
    guard = ranks.accept()
    guard.wait("register")
    environment = {**SHARED, "NCCL_DEBUG": "WARN"}
    guard.send("welcome", environment=environment, log_max_bytes=1 << 20, umask=0o077, nccl_file=True)
    eventually(lambda: nccl_file.files(ranks.folder.rank(3)), 10, "NCCL's file")
    ranks.wait_for(b"NCCL WARN no route\n")  # while it runs
    guard.send("terminate")
    guard.wait("exit")
    assert b"INFO\n" in ranks.log
    assert b"No device found" not in ranks.log
    assert nccl_file.files(ranks.folder.rank(3)) == []


def test_a_container_that_names_its_own_file_for_nccl_keeps_it(ranks: Ranks) -> None:
    ranks.start("sh", "-c", "echo $NCCL_DEBUG $NCCL_DEBUG_FILE", env={**MPIRUN, "NCCL_DEBUG_FILE": "mine"})
    guard = ranks.accept()
    guard.wait("register")
    environment = {**SHARED, "NCCL_DEBUG": "WARN"}
    guard.send("welcome", environment=environment, log_max_bytes=1 << 20, umask=0o077, nccl_file=True)
    guard.wait("exit")
    assert ranks.log == b"WARN mine\n"


def test_each_attempt_has_a_log_of_its_own(ranks: Ranks) -> None:
    ranks.start("echo", "second")
    guard = ranks.accept()
    guard.wait("register")
    guard.send("welcome", environment=SHARED, log_max_bytes=1 << 20, umask=0o077, attempt=2)
    guard.wait("exit")
    assert ranks.log == b""
    assert (ranks.folder.logs / "attempt-2" / "rank-3.0.log").read_bytes() == b"second\n"


def test_what_the_guard_gives_wins(ranks: Ranks) -> None:
    _process, guard = ranks.run("sh", "-c", "echo $RANK $MASTER_PORT", shared={"RANK": "7", "MASTER_PORT": "1"})
    guard.wait("exit")
    assert ranks.log == b"7 1\n"


@pytest.mark.parametrize(
    ("script", "reported", "code"),
    [
        ("exit 0", 0, 0),
        ("exit 3", 3, 3),
        ("exit 137", 137, 137),
        ("exit 255", 255, 255),
        ("kill -TERM $$", 143, -15),
        ("kill -KILL $$", 137, -9),
        ("ulimit -c 0; kill -SEGV $$", 139, -11),
    ],
)
def test_it_ends_as_its_command_does(ranks: Ranks, script: str, reported: int, code: int) -> None:
    process, guard = ranks.run("sh", "-c", f"echo said; {script}")
    # A code that a shell gives after a signal, where none came.
    assert guard.wait("exit") == report(reported, "exited with code 137" if code == 137 else "")
    assert process.wait(HANG) == code
    assert ranks.log == b"said\n"


@pytest.mark.parametrize(
    ("command", "code", "why"),
    [
        ("no-such-command", 127, "cannot run 'no-such-command': No such file or directory"),
        ("/etc/passwd", 126, "cannot run '/etc/passwd': Permission denied"),
        ("/", 126, "cannot run '/': Permission denied"),
        (
            "python3 train.py",
            127,
            "cannot run 'python3 train.py': No such file or directory",
        ),
        ("x" * 300, 126, f"cannot run '{'x' * 300}': File name too long"),
    ],
)
def test_a_command_that_cannot_run(ranks: Ranks, command: str, code: int, why: str) -> None:
    process, guard = ranks.run(command)
    assert guard.wait("exit") == report(code, why)
    assert process.wait(HANG) == code
    advice = " (it is a folder)" if command == "/" else f" ({quoted('')})" if " " in command else ""
    assert ranks.log == f"taco-launch: {why}{advice}\n".encode()


def test_python3_is_there(ranks: Ranks, tmp_path: Path) -> None:
    (tmp_path / "python3").symlink_to("/bin/true")
    for name, advice in (
        ("python", "python3 is installed: use it instead"),
        ("pyhton3", "check the name: python3 is on the PATH"),
    ):
        _process, guard = ranks.run(name, "x.py", shared={**SHARED, "PATH": f"/nosuch:{tmp_path}"})
        assert guard.wait("exit") == report(127, f"cannot run '{name}': No such file or directory")
        assert ranks.log.endswith(f"No such file or directory ({advice})\n".encode())


@pytest.mark.parametrize(
    ("first", "named"),
    [
        ("#!/bin/sh\r\n", "'/bin/sh\\r'"),
        ("#! /nosuch/python3 -u\n", "'/nosuch/python3'"),
        ("#!/nosuch/\u00fc", "'/nosuch/\u00fc'"),
    ],
)
def test_a_script_without_its_interpreter(ranks: Ranks, tmp_path: Path, first: str, named: str) -> None:
    script = tmp_path / "run"
    script.write_text(f"{first}\necho hi\n", newline="")
    script.chmod(0o755)
    _process, guard = ranks.run(str(script))
    assert guard.wait("exit") == report(127, f"cannot run '{script}': No such file or directory")
    assert ranks.log.decode().endswith(f"No such file or directory (its first line names {named})\n")


@pytest.mark.parametrize("missing", MPIRUN)
def test_without_mpirun(ranks: Ranks, missing: str) -> None:
    process = ranks.start("true", env={name: value for name, value in MPIRUN.items() if name != missing})
    _out, err = process.communicate(timeout=HANG)
    assert process.returncode == 126
    assert (
        err
        == b"taco-launch: a rank has to be started by a launcher: neither OMPI_COMM_WORLD_RANK nor PMI_RANK nor RANK is set\n"
    )


def test_a_guard_that_goes_before_it_welcomes(ranks: Ranks) -> None:
    process = ranks.start("true")
    guard = ranks.accept()
    guard.wait("register")
    guard.close()
    _out, err = process.communicate(timeout=HANG)
    assert process.returncode == 126
    assert b"taco-launch: rank 3: the guard in " in err


def test_its_output_is_in_the_log_and_nowhere_else(ranks: Ranks) -> None:
    script = "import os; [os.write(fd, bytes([65 + n]) * 1000 + b'\\r') for n in range(20) for fd in (1, 2)]"
    process, guard = ranks.run(sys.executable, "-c", script)
    guard.wait("exit")
    assert process.communicate(timeout=HANG) == (b"", b"")
    assert ranks.log == b"".join(bytes([65 + n]) * 1000 + b"\r" for n in range(20) for _fd in (1, 2))


def test_it_has_no_input(ranks: Ranks) -> None:
    _process, guard = ranks.run("cat")
    assert guard.wait("exit") == report(0)


def test_output_before_and_after_the_command_closes_its_own(ranks: Ranks) -> None:
    process, guard = ranks.run("sh", "-c", "echo before; exec >&- 2>&-; sleep 0.4; exit 4")
    ranks.wait_for(b"before\n")
    time.sleep(0.1)
    assert _ticks(process.pid, 0.2) < 0.1 * os.sysconf("SC_CLK_TCK"), "it does not sleep"
    assert guard.wait("exit") == report(4)
    assert process.wait(HANG) == 4
    assert ranks.log == b"before\n"


def _ticks(pid: int, seconds: float) -> int:
    """Return the processor time that a process takes within some seconds, in clock ticks."""

    def used() -> int:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return int(fields[11]) + int(fields[12])

    before = used()
    time.sleep(seconds)
    return used() - before


def test_what_a_background_process_writes_is_not_waited_for(ranks: Ranks) -> None:
    """The command has ended; what it left behind writes on and on, and is ended with the job."""
    writer = "dd if=/dev/zero bs=1M 2>&- & "
    process, guard = ranks.run("sh", "-c", f"{writer * 3} echo said; exit 5")
    assert guard.wait("exit") == report(5)
    assert process.wait(HANG) == 5


def test_orphans_become_its_children(ranks: Ranks) -> None:
    script = "import os, time\nif os.fork() == 0:\n os.setsid()\n if os.fork(): os._exit(0)\n print(os.getpid(), flush=True)\ntime.sleep(60)"
    process, _guard = ranks.run(sys.executable, "-I", "-S", "-c", script)
    daemon = int(eventually(lambda: ranks.log))
    assert eventually(lambda: daemon in [entry.pid for entry in processes.children(process.pid)])
    # And zombies among them are collected.
    os.kill(daemon, signal.SIGKILL)
    eventually(lambda: processes.identify(daemon) is None)


def test_it_goes_on_without_its_guard(ranks: Ranks) -> None:
    process, guard = ranks.run("sh", "-c", "echo ready; sleep 0.3; echo on; exit 6")
    ranks.wait_for(b"ready\n")
    guard.close()
    assert process.wait(HANG) == 6
    assert ranks.log == b"ready\non\n"


# --- signals


def test_it_makes_a_group_of_its_own(ranks: Ranks) -> None:
    """Open MPI 4.1 does so for each rank; where it does not, a signal to a rank must not reach its launcher."""
    launcher = ranks.start("sleep", "60", before=("sh", "-c", '"$@" & wait', "-"))
    guard = ranks.accept()  # without its guard the wrapper ends
    ((wrapper, _start), _parent) = guard.wait("register")["roots"]
    assert os.getpgid(launcher.pid) == launcher.pid
    assert os.getpgid(wrapper) == wrapper != launcher.pid


# Says `ready`, and on a signal `saved`, and exits with 9.
SAVES = (
    *PYTHON,
    "-c",
    """
import os, signal, sys, time
def save(*_):
    os.write(1, b"saved\\n")
    os._exit(9)
signal.signal(int(sys.argv[1]), save)
os.write(1, b"ready\\n")
time.sleep(60)
""",
)
TERM = str(int(signal.SIGTERM))


def test_terminate_gives_the_command_its_grace_time(ranks: Ranks) -> None:
    process, guard = ranks.run(*SAVES, TERM)
    ranks.wait_for(b"ready\n")
    guard.send("terminate")
    assert guard.wait("exit") == report(9)
    # mpirun would end the other ranks if this one ended now.
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.3)
    guard.send("release")
    assert process.wait(HANG) == 9
    assert ranks.log == b"ready\nsaved\n"


def test_terminate_and_the_guard_is_gone(ranks: Ranks) -> None:
    process, guard = ranks.run(*SAVES, TERM)
    ranks.wait_for(b"ready\n")
    guard.send("terminate")
    guard.wait("exit")
    guard.close()
    assert process.wait(HANG) == 9


def test_terminate_reaches_a_command_in_a_session_of_its_own(ranks: Ranks) -> None:
    script = "import os, time; os.setsid(); print('ready', flush=True); time.sleep(60)"
    process, guard = ranks.run(sys.executable, "-c", script)
    ranks.wait_for(b"ready\n")
    guard.send("terminate")
    assert guard.wait("exit") == report(143)
    guard.send("release")
    assert process.wait(HANG) == -signal.SIGTERM


def test_terminate_that_comes_with_the_welcome(ranks: Ranks) -> None:
    process = ranks.start("sleep", "60")
    guard = ranks.accept()
    guard.wait("register")
    with held(process):  # it has no time to read the first message before the second comes
        guard.send("welcome", environment=SHARED, log_max_bytes=1 << 20, umask=0o077)
        guard.send("terminate")
    assert guard.wait("exit") == report(143)
    guard.send("release")
    assert process.wait(HANG) == -signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_what_mpirun_sends_to_the_group_is_the_commands_business(ranks: Ranks, number: signal.Signals) -> None:
    process, guard = ranks.run(*SAVES, str(int(number)))
    ranks.wait_for(b"ready\n")
    os.killpg(process.pid, number)
    assert guard.wait("exit") == report(9)
    assert process.wait(HANG) == 9
    assert ranks.log == b"ready\nsaved\n"


def test_signals_and_pipes_are_the_commands_as_from_a_shell(ranks: Ranks) -> None:
    """Nothing of the wrapper's own handling is left to the command: no signal ignored or blocked, no descriptor open."""
    script = "grep -E '^Sig(Blk|Ign)' /proc/self/status; exec ls -l /proc/self/fd"
    _process, guard = ranks.run("sh", "-c", script)
    assert guard.wait("exit") == report(0)
    lines = ranks.log.decode().splitlines()
    # 32 and 33 are glibc's own: its posix_spawn, by which Python 3.13 starts more, has them ignored
    of_libc = 3 << 31
    assert [int(line.split()[1], 16) & ~of_libc for line in lines[:2]] == [0, 0]
    opened = [line.split()[-3] for line in lines if "->" in line]
    assert opened[:3] == ["0", "1", "2"]
    assert len(opened) == 4  # ls has the folder open


SILENT = """
import sys
from pathlib import Path
from taco_launch.agent.rank import wrapper
from taco_launch.agent.store.folders import JobFolder
wrapper._GUARD_SECONDS = 0.5
sys.exit(wrapper.main(JobFolder(Path(sys.argv[1])), ["true"]))
"""


def test_a_guard_that_says_nothing_is_waited_for_without_work(ranks: Ranks, family: Family) -> None:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path), **MPIRUN}
    before = os.times()
    argv = (sys.executable, "-c", SILENT, str(ranks.folder.path))
    process = family.start(argv, env=env, stderr=subprocess.PIPE)
    guard = ranks.accept()  # which answers nothing
    _out, said = process.communicate(timeout=HANG)
    assert process.returncode == NOT_EXECUTABLE
    assert said.decode() == f"taco-launch: rank 3 on {os.uname().nodename}: the guard did not answer within 0.5 s\n"
    guard.line.close()
    assert os.times().children_system - before.children_system < 0.3
