"""Processes that share GPUs, which a nvidia-smi of ours tells of, and a stand-in for CUDA's Multi-Process Service."""

import os
import shutil
from pathlib import Path

import pytest

from tests.conftest import Taco, eventually
from tests.support.smi import GPUS, install

pytestmark = pytest.mark.e2e

SHOW = ("sh", "-c", 'echo "$RANK $PROCESS_INDEX $CUDA_VISIBLE_DEVICES $CUDA_MPS_PIPE_DIRECTORY" $*; sleep $HOLD', "x")
# As a daemon it goes to a session of its own, as the real one does.
STAND_IN = """#!/bin/sh
if [ "$1" = -d ]; then
    echo "$CUDA_VISIBLE_DEVICES" >"$TOLD/gpus"
    setsid sleep 600 >/dev/null 2>&1 &
    echo $! >"$TOLD/pid.new" && mv "$TOLD/pid.new" "$TOLD/pid"
elif [ "$(cat)" = quit ]; then
    echo quit >"$TOLD/quit"
    [ -n "$DEAF" ] || kill "$(cat "$TOLD/pid")"
fi
"""


@pytest.fixture
def gpus(taco: Taco, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """GPUs, and where the daemon leaves word."""
    install(tmp_path / "smi", monkeypatch).gpus(GPUS)
    found = shutil.which("nvidia-smi")
    assert found is not None
    control = Path(found).with_name("nvidia-cuda-mps-control")
    control.write_text(STAND_IN, encoding="ascii")
    control.chmod(0o755)
    taco.env["PATH"] = os.environ["PATH"]
    taco.env.pop("CUDA_VISIBLE_DEVICES", None)
    taco.env.update(TOLD=str(tmp_path), DEAF="", HOLD="0")
    return tmp_path


def lives(folder: Path) -> bool:
    return Path("/proc", (folder / "pid").read_text(encoding="ascii").strip()).exists()


@pytest.mark.parametrize("mps", [False, True])
def test_each_process_sees_the_gpu_of_its_slot(taco: Taco, gpus: Path, mps: bool) -> None:
    asked = ("--launcher", "env", "--np", "2", "--procs-per-gpu", "2", *(["--mps"] if mps else []))
    done = taco.ok("run", "--name", "a", *asked, "--", *SHOW)
    seen = sorted(line.partition("| ")[2].split() for line in done.stdout.splitlines())
    folder = [words.pop(3) for words in seen if mps]
    assert seen == [
        [str(slot), str(index), GPUS[slot], "--process_index", str(index), "--process_num", "2"]
        for slot in (0, 1)
        for index in (0, 1)
    ]
    assert (gpus / "quit").exists() == mps
    if mps:
        assert {Path(path).parts[-2:] for path in folder} == {("a", "mps")}
        assert (gpus / "gpus").read_text(encoding="ascii") == ",".join(GPUS[:2]) + "\n"
        assert not lives(gpus)


@pytest.mark.parametrize("stop", [(), ("--grace", "0")])
def test_a_service_that_does_not_quit_ends_with_the_job(taco: Taco, gpus: Path, stop: tuple[str, ...]) -> None:
    taco.env.update(DEAF="1", HOLD="600")
    asked = ("--launcher", "env", "--np", "1", "--procs-per-gpu", "2", "--mps")
    assert taco("submit", "--name", "a", *asked, "--", *SHOW).returncode == 0
    eventually(lambda: taco("logs", "a").stdout.count("--process_num") == 2)
    assert lives(gpus)
    beside = taco("exec", "a", "--rank", "1", "--", "sh", "-c", "echo $RANK $PROCESS_INDEX $CUDA_VISIBLE_DEVICES")
    assert beside.stdout.split() == ["0", "1", GPUS[0]]
    assert taco("stop", *stop, "a").returncode == 0
    assert not lives(gpus)
