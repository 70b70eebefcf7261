"""DistributedDataParallel with `attach`: four real ranks on two hosts, by gloo."""

import re

import pytest

from tests.light.launch import torchrun

pytestmark = pytest.mark.e2e

MODES = ("none", "2d", "topk", "topk_fp16", "2d_topk", "2d_topk_fp16", "2d_topk_tensors", "2d_topk_no_feedback")
OTHERS = ("unused_parameters", "accumulation", "nothing_is_lost", "float16", "bfloat16", "infinity", "scaler")
SCENARIOS = [*(f"mode_{name}" for name in MODES), *OTHERS, "checkpoint", "refusals", "metrics", "announced"]


@pytest.fixture(scope="module")
def output() -> str:
    pytest.importorskip("torch")
    return torchrun(4, "-m", "tests.light.ddp_ranks")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", SCENARIOS)
def test_ranks(output: str, name: str) -> None:
    assert f"passed {name}\n" in output, output[-6000:]


@pytest.mark.timeout(300)
def test_one_line_for_each_variable_and_the_bytes() -> None:
    pytest.importorskip("torch")
    output = torchrun(4, "-m", "tests.light.ddp_ranks", "announced")
    lines = [line for line in output.splitlines() if line.startswith("taco_launch.light:")]
    assert len(lines) == 1
    assert re.search("gloo, 2 hosts x 2 ranks, groups 2 x 2; LIGHT_2D_ALLREDUCE=1 LIGHT_INTRA_SIZE=8 ", lines[0])
    assert "LIGHT_TOPK_RATIO=0.05" in lines[0]
    assert re.search(r"a host sends about \d+[.]\d MB a step, without compression \d+[.]\d$", lines[0])
