"""Jobs on GPUs that a nvidia-smi of ours tells of: each job has its own, and none that others use."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.conftest import Taco, eventually
from tests.support.placement_machines import FOLDER
from tests.support.smi import GPUS, Smi, install

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
    """Return what the ranks of a job see, each value once."""
    done = taco.ok("run", "--name", name, *options, "--", *SHOW)
    return sorted({line.partition("| ")[2] for line in done.stdout.splitlines()})


def test_two_jobs_share_the_gpus_of_a_host(taco: Taco, smi: Smi) -> None:
    taco.ok("submit", "--name", "vgg16", "--np", "3", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; sleep 600")
    eventually(lambda: taco("logs", "vgg16").stdout.count("GPU") >= 3)
    assert f"| {','.join(GPUS[:3])}\n" in taco("logs", "vgg16").stdout
    assert run(taco, "b", "--np", "1") == [GPUS[3]]
    refused = taco("run", "--name", "c", "--np", "2", "--no-wait", "--", "true")
    assert refused.returncode == 125
    assert "1 of 4 free, 3 held by job vgg16 since " in refused.stderr
    taco("stop", "--grace", "0", "vgg16")
    assert run(taco, "d", "--np", "4") == [",".join(GPUS)]
    assert smi.calls


def test_gpus_that_others_use_are_passed_over(taco: Taco, smi: Smi) -> None:
    smi.processes((GPUS[0], os.getpid(), "/usr/bin/python3"))
    smi.gpus(GPUS, (4, 20000))
    assert run(taco, "a", "--np", "2") == [",".join(GPUS[2:])]
    refused = taco("run", "--name", "b", "--np", "3", "--no-wait", "--", "true")
    assert refused.returncode == 125
    assert f"2 of 4 free, 1 used by process {os.getpid()} (python3 of " in refused.stderr
    assert "1 with 20000 MiB of its memory in use by a process that is not visible here" in refused.stderr


@pytest.mark.usefixtures("smi")
def test_the_users_choice_of_gpus_is_left_alone(taco: Taco) -> None:
    assert run(taco, "a", "--np", "1", "-x", "CUDA_VISIBLE_DEVICES=2") == ["2"]
    taco.env["CUDA_VISIBLE_DEVICES"] = "3,1"
    assert run(taco, "b", "--np", "1") == ["3,1"]


EIGHT = tuple(f"GPU-{number}0000000-0000-0000-0000-000000000000" for number in range(8))
# The guide's two jobs, but for their program.
JOB = ("--np", "4", "-x", "NCCL_DEBUG=INFO")


@pytest.fixture
def v100(smi: Smi) -> Smi:
    smi.gpus(EIGHT, models=["Tesla V100-SXM2-16GB"] * 8)
    smi.topology((FOLDER / "dgx1v.txt").read_text("utf-8"))
    return smi


@pytest.mark.usefixtures("v100")
def test_the_guides_jobs_get_the_best_ring_of_what_is_free(taco: Taco) -> None:
    assert run(taco, "resnet50", *JOB) == [",".join(EIGHT[:4])]
    taco.ok("submit", "--name", "other", "--np", "1", "--gpu-ids", "2", "--", "sleep", "600")
    assert run(taco, "vgg16", *JOB) == [",".join(EIGHT[4:])]
    assert run(taco, "off", *JOB, "--no-gputopology") == [",".join((*EIGHT[:2], *EIGHT[3:5]))]
    (share,) = json.loads(taco("get", "vgg16", "--json").stdout)["shares"]
    assert share["choice"]["gpus"] == [4, 5, 6, 7]
    assert share["choice"]["bottleneck_gbps"] == 25
    told = taco("get", "vgg16", "-o", "wide").stdout
    assert "chosen  4,5,6,7  4-7-6-5    25  225  ring 4-7-6-5: NV2, NV2, NV2, NV1" in told
    assert told.count("\nlost ") == 2
    taco("stop", "--grace", "0", "other")


@pytest.mark.usefixtures("v100")
def test_gpus_that_are_sure_are_shown_and_named(taco: Taco) -> None:
    """Where there is no other set: in the line, which can be pasted, with --explain, in `get` and in `top node`."""
    sure = ("--np", "6", "--gpu-ids", "0,2,4-7")
    dry = taco("run", *sure, "--dry-run", "--", *SHOW)
    pasted = subprocess.run(["sh", "-c", dry.stdout], capture_output=True, text=True, check=True, env=taco.env)
    assert pasted.stdout == "0,2,4,5,6,7\n" * 6
    assert "note:" not in dry.stderr
    row = r"chosen  0,2,4,5,6,7  0-[-\d]{9} +25 +\d+  ring .* slowest link 25 GB/s; no other set of GPUs is possible"
    assert re.search(row, taco("run", *sure, "--dry-run", "--explain", "--", "true").stdout)
    some = taco("run", "--np", "3", "--dry-run", "--", "true")
    assert "note: which GPUs of localhost the job gets is chosen when it starts" in some.stderr
    taco("submit", "--name", "sure", *sure, "--", "sleep", "600")
    eventually(lambda: "RUNNING" in taco("get", "sure").stdout)
    assert re.search(row, taco("get", "sure", "-o", "wide").stdout)
    assert re.search(r"  job sure \(\S+\): GPU 0,2,4,5,6,7\n", taco("top", "node", "-o", "wide").stdout)
    taco("stop", "--grace", "0", "sure")


@pytest.mark.usefixtures("v100")
def test_the_order_of_devices_is_nvidia_smis(taco: Taco) -> None:
    show = ("--", "sh", "-c", "echo $CUDA_DEVICE_ORDER")
    assert "| PCI_BUS_ID\n" in taco("run", "--np", "1", *show).stdout
    assert "| FASTEST_FIRST\n" in taco("run", "--np", "1", "-x", "CUDA_DEVICE_ORDER=FASTEST_FIRST", *show).stdout
