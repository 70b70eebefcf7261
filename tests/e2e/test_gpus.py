"""Jobs on GPUs that a nvidia-smi of ours tells of: each job has its own, and none that others use."""

import os
from pathlib import Path

import pytest

from tests.agent.smi import GPUS, Smi, install
from tests.conftest import Taco, eventually

pytestmark = pytest.mark.e2e

SHOW = ("sh", "-c", "echo $CUDA_VISIBLE_DEVICES")


@pytest.fixture
def smi(taco: Taco, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Smi:
    found = install(tmp_path / "smi", monkeypatch)
    found.gpus(GPUS)
    taco.env["PATH"] = os.environ["PATH"]
    taco.env.pop("CUDA_VISIBLE_DEVICES", None)
    return found


def run(taco: Taco, name: str, *options: str) -> list[str]:
    """Give what the ranks of a job see, each value once."""
    done = taco("run", "--name", name, *options, "--", *SHOW)
    assert done.returncode == 0, done.stderr
    return sorted({line.partition("| ")[2] for line in done.stdout.splitlines()})


def test_two_jobs_share_the_gpus_of_a_host(taco: Taco, smi: Smi) -> None:
    first = taco("submit", "--name", "vgg16", "--np", "3", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; sleep 60")
    assert first.returncode == 0, first.stderr
    eventually(lambda: taco("logs", "vgg16").stdout.count("GPU") >= 3)
    assert f"| {','.join(GPUS[:3])}\n" in taco("logs", "vgg16").stdout
    assert run(taco, "b", "--np", "1") == [GPUS[3]]
    refused = taco("run", "--name", "c", "--np", "2", "--no-wait", "--", "true")
    assert refused.returncode == 4
    assert "1 of 4 free, 3 held by job vgg16 since " in refused.stderr
    taco("stop", "--grace", "0", "vgg16")
    assert run(taco, "d", "--np", "4") == [",".join(GPUS)]
    assert smi.calls


def test_gpus_that_others_use_are_passed_over(taco: Taco, smi: Smi) -> None:
    smi.processes((GPUS[0], os.getpid(), "/usr/bin/python3"))
    smi.gpus(GPUS, (4, 20000))
    assert run(taco, "a", "--np", "2") == [",".join(GPUS[2:])]
    refused = taco("run", "--name", "b", "--np", "3", "--no-wait", "--", "true")
    assert refused.returncode == 4
    assert f"2 of 4 free, 1 used by process {os.getpid()} (python3 of " in refused.stderr
    assert "1 with 20000 MiB of its memory in use, by no process that can be seen" in refused.stderr


@pytest.mark.usefixtures("smi")
def test_the_users_choice_of_gpus_is_left_alone(taco: Taco) -> None:
    assert run(taco, "a", "--np", "1", "-x", "CUDA_VISIBLE_DEVICES=2") == ["2"]
    taco.env["CUDA_VISIBLE_DEVICES"] = "3,1"
    assert run(taco, "b", "--np", "1") == ["3,1"]
