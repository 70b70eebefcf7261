"""DistributedDataParallel with `attach`: four real ranks on two hosts, by gloo."""

import os
import re
import subprocess
import sys

import pytest

from tests.support.paths import ROOT
from tests.support.patience import patience

pytestmark = pytest.mark.e2e

SCENARIOS = [
    *(
        f"mode_{name}"
        for name in (
            *("none", "2d", "topk", "topk_fp16", "2d_topk", "2d_topk_fp16"),
            *("2d_topk_tensors", "2d_topk_no_feedback"),
        )
    ),
    *("unused_parameters", "accumulation", "nothing_is_lost", "float16", "bfloat16", "infinity", "scaler"),
    *("checkpoint", "refusals", "metrics", "announced"),
]


def ranks(*names: str) -> str:
    """Run scenarios (ddp_ranks.py) on four ranks; return what they wrote."""
    argv = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=4", "--standalone"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("LIGHT_")}
    done = subprocess.run(
        [*argv, "-m", "tests.light.ddp_ranks", *names],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env={**environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        check=False,
        timeout=patience(100),
    )
    assert done.returncode == 0 or not names, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def output() -> str:
    pytest.importorskip("torch")
    return ranks()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", SCENARIOS)
def test_ranks(output: str, name: str) -> None:
    assert f"passed {name}\n" in output, output[-6000:]


@pytest.mark.timeout(300)
def test_one_line_for_each_variable_and_the_bytes() -> None:
    pytest.importorskip("torch")
    lines = [line for line in ranks("announced").splitlines() if line.startswith("taco_launch.light:")]
    assert len(lines) == 1
    assert re.search("gloo, 2 hosts x 2 ranks, groups 2 x 2; LIGHT_2D_ALLREDUCE=1 LIGHT_INTRA_SIZE=8 ", lines[0])
    assert "LIGHT_TOPK_RATIO=0.05" in lines[0]
    assert re.search(r"a host sends about \d+[.]\d MB a step, without compression \d+[.]\d$", lines[0])
