"""Launchers that have no ranks yet, among the processes of this host."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from taco_launch.agent.stacks.host_jobs import host_jobs, launcher_in
from taco_launch.agent.stacks.py_spy import PySpy
from taco_launch.core.model.run.host_jobs import HostJob


@pytest.mark.parametrize(
    ("command", "launcher"),
    [
        ("timeout 100 torchrun --nproc-per-node 2 train.py", "torchrun"),
        ("/opt/bin/python3.11 -u /opt/bin/torchrun --standalone train.py", "torchrun"),
        ("/opt/bin/python3 -m torch.distributed.run train.py", "torch.distributed.run"),
        ("mpirun -np 2 python train.py", "mpirun"),
        ("python -u train.py", ""),
        ("vim torchrun", ""),
        ("python3", ""),
        ("", ""),
    ],
)
def test_the_launcher_of_a_command_line(command: str, launcher: str) -> None:
    assert launcher_in(command) == launcher


def watched(text: str, *argv: str, executable: str | None = None) -> tuple[HostJob, ...]:
    with subprocess.Popen(argv, executable=executable, stdin=subprocess.PIPE) as process:
        try:
            time.sleep(0.5)
            return tuple(host_jobs(1.0, text, PySpy(None)).jobs)
        finally:
            process.kill()


@pytest.mark.enable_socket  # it asks the ports of debug servers
def test_a_launcher_that_has_no_ranks_yet_is_no_rank(tmp_path: Path) -> None:
    """This holds for launchers in Python and others; a process that they start briefly is no rank."""
    text = str(tmp_path / "train.py")
    launcher = tmp_path / "torchrun"
    launcher.write_text("import subprocess\nwhile True:\n    subprocess.run(['sleep', '0.1'])\n")
    (job,) = watched(text, sys.executable, str(launcher), text)
    assert (job.starting, len(job.ranks)) == ("torchrun", 1)
    (job,) = watched(text, "mpirun", "-c", "read line", "-np", "2", "python", text, executable="/bin/sh")
    assert (job.starting, job.ranks[0].stack) == ("mpirun", None)


@pytest.mark.enable_socket
def test_a_program_below_a_launcher_is_shown(tmp_path: Path) -> None:
    program, launcher = tmp_path / "train.py", tmp_path / "torchrun"
    program.write_text("import sys\nsys.stdin.read()\n")
    launcher.write_text("import subprocess, sys\nsubprocess.run(sys.argv[1:])\n")
    (job,) = watched(str(program), sys.executable, str(launcher), sys.executable, str(program))
    assert job.starting == ""
