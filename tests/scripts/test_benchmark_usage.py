"""What the benchmark says when it cannot run: one line with what to type next, and an exit code, never a traceback."""

import importlib
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.patience import patience

SCRIPTS = Path(__file__).parents[2] / "scripts"
SCRIPT = SCRIPTS / "pytorch_synthetic_benchmark.py"
TORCH = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
HUGE = "2000000000"  # images: more bytes than an address can tell apart

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch does not import")


def complaint(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, argv: str, environ: dict[str, str]
) -> tuple[int, str]:
    """Run the script in this process; give its exit code and the one line of stderr."""
    monkeypatch.syspath_prepend(SCRIPTS)
    script: Any = importlib.import_module("pytorch_synthetic_benchmark")
    code = script.main(argv.split(), environ)
    error = capsys.readouterr().err
    assert error.endswith("\n")
    assert error.count("\n") == 1
    return code, error


@pytest.mark.parametrize(
    ("argv", "part"),
    [
        ("--batch-size 0", "--batch-size: '0' is not a whole number of at least 1; "),
        ("--batch-size 1.5", "'1.5' is not a whole number"),
        ("--num-warmup-batches -1", "'-1' is not a whole number of at least 0"),
        ("--num-iters many", "'many' is not a whole number"),
        ("--image-size 31", "'31' is not a whole number of at least 32"),
        ("--comm mpi", "invalid choice: 'mpi'"),
        ("--modell tiny", "unrecognized arguments: --modell"),
        (
            "--local_rank=1 --local-rank=1 --modell tiny",
            "unrecognized arguments: --modell",
        ),  # torch.distributed.launch's
        ("--batch-size", "expected one argument"),
    ],
)
def test_options(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, argv: str, part: str) -> None:
    code, error = complaint(capsys, monkeypatch, argv, {})
    assert code == 2
    assert part in error
    assert "--help" in error


@pytest.mark.e2e  # it imports torch
@needs_torch
@pytest.mark.parametrize(
    ("argv", "environ", "code", "part"),
    [
        ("--model resnt50 --comm none", {}, 2, "unknown model 'resnt50': did you mean resnet50"),
        ("--gradients-only", {}, 2, "give --comm horovod or --comm torch"),
        ("--use-adasum --comm none", {}, 2, "--use-adasum needs --comm horovod, not none"),
        ("--comm torch", {}, 2, "no RANK and WORLD_SIZE: start it with mpirun or torchrun"),
        ("", {"RANK": "0", "WORLD_SIZE": "2"}, 2, "needs MASTER_ADDR and MASTER_PORT in the environment"),
        ("", {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "h"}, 2, "rank 1 on "),
        (
            "--comm torch",
            {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"},
            2,
            "mpirun -x MASTER_ADDR=HOST -x MASTER_PORT=29500",
        ),
        ("", {"RANK": "0", "WORLD_SIZE": "2", **TORCH, "MASTER_PORT": "http"}, 2, "a port number, not 'http'"),
        ("", {"RANK": "2", "WORLD_SIZE": "2", **TORCH}, 2, "RANK=2, WORLD_SIZE=2 is not a rank"),
        ("", {"RANK": "x", "WORLD_SIZE": "2", **TORCH}, 2, "RANK=x, WORLD_SIZE=2 is not a rank"),
        (f"--model tiny --comm none --batch-size {HUGE}", {}, 1, "try --batch-size 1000000000"),
        ("--model tiny --comm none --batch-size 1 --image-size 9999999", {}, 1, "try a smaller --image-size"),
        ("--model resnet18 --comm none --batch-size 1 --image-size 32", {}, 1, "resnet18 failed (ValueError: "),
    ],
)
def test_what_needs_torch(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    argv: str,
    environ: dict[str, str],
    code: int,
    part: str,
) -> None:
    found, error = complaint(capsys, monkeypatch, f"{argv} --no-cuda", environ)
    assert found == code
    assert part in error


@pytest.fixture
def broken_horovod(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A Horovod that was built for something else, before any other."""

    def forget() -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] == "horovod"]:
            del sys.modules[name]

    (tmp_path / "horovod").mkdir()
    (tmp_path / "horovod" / "__init__.py").write_text("")
    (tmp_path / "horovod" / "torch.py").write_text("raise ImportError('Extension horovod.torch\\nhas not been built')")
    monkeypatch.syspath_prepend(tmp_path)
    forget()
    yield
    forget()


@pytest.mark.e2e  # it imports torch
@needs_torch
@pytest.mark.usefixtures("broken_horovod")
@pytest.mark.parametrize("argv", ["", "--comm horovod"])
def test_a_horovod_that_does_not_import(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, argv: str
) -> None:
    code, error = complaint(capsys, monkeypatch, argv, {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"})
    assert code == 1
    assert "horovod does not import (Extension horovod.torch has not been built)" in error
    assert "--comm torch" in error
    assert "--comm none" in error


def test_without_torch() -> None:
    run = subprocess.run(
        [sys.executable, "-S", SCRIPT, "--model", "tiny"],
        env={"RANK": "1", "WORLD_SIZE": "2"},
        capture_output=True,
        text=True,
        timeout=patience(60),
        check=False,
    )
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr.startswith("pytorch_synthetic_benchmark.py: rank 1 on ")
    assert run.stderr.endswith(": torch does not import (No module named 'torch'): pip install torch\n")


def test_help_needs_no_torch() -> None:
    run = subprocess.run(
        [sys.executable, "-S", SCRIPT, "--help"], capture_output=True, text=True, timeout=patience(60), check=False
    )
    assert run.returncode == 0
    for option in (
        "--fp16-allreduce",
        "--model",
        "--batch-size",
        "--num-warmup-batches",
        "--num-batches-per-iter",
        "--num-iters",
        "--no-cuda",
        "--use-adasum",
        "--comm",
        "--gradients-only",
        "--image-size",
        "--threads",
    ):
        assert option in run.stdout


def test_the_script_copied_without_its_parts(tmp_path: Path) -> None:
    shutil.copy(SCRIPT, tmp_path)
    run = subprocess.run(
        [sys.executable, tmp_path / SCRIPT.name],
        capture_output=True,
        text=True,
        timeout=patience(60),
        check=False,
        cwd=tmp_path,
    )
    assert run.returncode == 1
    assert "No module named 'benchmark_models'): copy it here too" in run.stderr
    assert run.stderr.count("\n") == 1
