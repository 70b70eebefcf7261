"""Horovod with LIGHT_* in effect: four real ranks on two hosts, by mpirun."""

import shutil

import pytest

from tests.light.launch import mpirun

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no mpirun on PATH"),
]

MODES = ("none", "2d", "topk", "topk_fp16", "2d_topk", "2d_topk_fp16", "2d_topk_tensors", "2d_topk_no_feedback")


@pytest.fixture(scope="module")
def output() -> str:
    pytest.importorskip("horovod.torch")
    return mpirun(4, "-m", "tests.light.horovod_ranks")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [*(f"mode_{name}" for name in MODES), "like_stock", "refusals", "metrics"])
def test_ranks(output: str, name: str) -> None:
    assert f"passed {name}\n" in output, output[-6000:]
