"""CUDA's Multi-Process Service of a job: the commands, their environment and their order, with a stand-in for the daemon."""

import os
from pathlib import Path

import pytest

from taco_launch.agent.rank import spawner
from taco_launch.agent.store.folders import JobFolder

# Says what it is given; as a daemon it leaves a process behind that holds its output, as the real one does.
STAND_IN = """#!/bin/sh
echo "$* $CUDA_VISIBLE_DEVICES $CUDA_MPS_PIPE_DIRECTORY" >>"$TOLD"
if [ "$1" = -d ]; then sleep 3 & else cat >>"$TOLD"; fi
[ -z "$FAILS" ] || { echo "Cannot find MPS"; exit 1; }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobFolder:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "nvidia-cuda-mps-control").write_text(STAND_IN, encoding="ascii")
    (programs / "nvidia-cuda-mps-control").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("TOLD", str(tmp_path / "told"))
    monkeypatch.setenv("FAILS", "")
    (tmp_path / "j").mkdir()
    return JobFolder(tmp_path / "j")


def told(folder: JobFolder) -> list[str]:
    return (folder.path.parent / "told").read_text(encoding="ascii").splitlines()


def test_the_daemon_runs_while_ranks_do(folder: JobFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    script = 'echo "rank $RANK $CUDA_MPS_PIPE_DIRECTORY ${CUDA_VISIBLE_DEVICES-none} $*" >>"$TOLD"'
    monkeypatch.setattr("taco_launch.agent.processes.agent_program.wrapper", lambda *_: ("sh", "-c", script))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("taco_launch.agent.host.processes.become_subreaper", lambda: None)
    assert spawner.main(folder, 4, 2, 8, 2, "GPU-a,GPU-b", ("x", "y")) == 0
    first, *ranks, quits, word = told(folder)
    assert first == f"-d GPU-a,GPU-b {folder.path}/mps"
    assert sorted(ranks) == [
        f"rank {4 + index} {folder.path}/mps none y --process_index {index} --process_num 2" for index in (0, 1)
    ]
    assert (quits, word) == (f" GPU-a,GPU-b {folder.path}/mps", "quit")


def test_without_it_nothing_runs(
    folder: JobFolder, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAILS", "1")
    monkeypatch.setattr("taco_launch.agent.host.processes.become_subreaper", lambda: None)
    assert spawner.main(folder, 0, 1, 1, 2, "GPU-a", ("false",)) == 126
    assert "--mps: nvidia-cuda-mps-control -d exited with 1: Cannot find MPS" in capfd.readouterr().err
    monkeypatch.setenv("PATH", "/nowhere")
    own = spawner.environment(folder, "GPU-a", os.environ)
    assert (
        spawner.start(folder, own)
        == "--mps: the program nvidia-cuda-mps-control was not found here: it comes with the NVIDIA driver"
    )


def test_its_sockets_have_to_have_room() -> None:
    folder = JobFolder(Path("/state/" + "x" * 90))
    assert "is too long a path for the sockets" in spawner.start(folder, spawner.environment(folder, "GPU-a", {}))
    assert not folder.path.exists()
