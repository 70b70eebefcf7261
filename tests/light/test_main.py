"""`python -m taco_launch.light` runs an unchanged script with LIGHT_* in effect."""

import shutil

import pytest

from tests.light.launch import mpirun, torchrun

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

ON = {"LIGHT_TOPK_ALLREDUCE": "1", "LIGHT_TOPK_THRESHOLD": "0", "LIGHT_TOPK_RATIO": "0.05"}
# two ranks that send 5 % each, after a step that sends all
LEAST, MOST = 0.05, 0.1


def shares(output: str, arguments: list[str]) -> list[float]:
    """Return which share of the values was sent in each step, of a script that got its arguments."""
    line = next((line for line in output.splitlines() if line.startswith("shares ")), None)
    assert line is not None, output
    assert line.endswith(str(arguments))
    return [float(text) for text in line.split("[")[1].split("]")[0].split(",")]


@pytest.mark.parametrize("script", [["tests/light/plain.py"], ["-m", "tests.light.plain"]])
def test_a_script_of_torch(script: list[str]) -> None:
    pytest.importorskip("torch")
    output = torchrun(2, "-m", "taco_launch.light", *script, "ddp", "--more", **ON)
    first, *others = shares(output, ["ddp", "--more"])
    assert first == 1.0
    assert all(LEAST <= share <= MOST for share in others), output
    assert "taco_launch.light: gloo, 2 hosts x 1 ranks" in output


def test_a_script_of_horovod() -> None:
    pytest.importorskip("horovod.torch")
    if shutil.which("mpirun") is None:
        pytest.skip("there is no mpirun on PATH")
    output = mpirun(2, "-m", "taco_launch.light", "tests/light/plain.py", "horovod", **ON)
    first, *others = shares(output, ["horovod"])
    assert first == 1.0
    assert all(LEAST <= share <= MOST for share in others), output


def test_without_variables_the_script_is_as_it_was() -> None:
    pytest.importorskip("torch")
    output = torchrun(2, "-m", "taco_launch.light", "tests/light/plain.py", "ddp")
    assert shares(output, ["ddp"]) == [1.0, 1.0, 1.0]
    assert "gradients are reduced as usual" in output


def test_a_variable_that_is_wrong_ends_the_job() -> None:
    pytest.importorskip("torch")
    output = torchrun(2, "-m", "taco_launch.light", "tests/light/plain.py", "ddp", LIGHT_TOPK_RATIO="2")
    assert "rank 0: LIGHT_TOPK_RATIO='2': must be a number above 0, at most 1" in output


@pytest.mark.parametrize("words", [[], ["-m"], ["--help"]])
def test_usage(words: list[str]) -> None:
    pytest.importorskip("torch")
    assert "usage: python -m taco_launch.light" in torchrun(1, "-m", "taco_launch.light", *words)
