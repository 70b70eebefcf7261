"""The benchmark for real: under mpirun with Horovod and with torch.distributed, and alone."""

import importlib.util
import itertools
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from taco_launch.bench.logs.parse import Sample, parse
from tests.support.patience import patience

SCRIPTS = Path(__file__).parents[2] / "scripts"
SCRIPT = SCRIPTS / "pytorch_synthetic_benchmark.py"
SMALL = [
    "--model", "tiny", "--batch-size", "4", "--image-size", "32", "--threads", "1", "--no-cuda",
    "--num-warmup-batches", "1", "--num-batches-per-iter", "2", "--num-iters", "3",
]  # fmt: skip

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no mpirun on PATH"),
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch does not import"),
]
needs_horovod = pytest.mark.skipif(importlib.util.find_spec("horovod") is None, reason="horovod does not import")
HOROVOD = pytest.param("horovod", marks=needs_horovod)
BOTH = pytest.mark.parametrize("comm", [HOROVOD, "torch"])
# where what differs between them is proven by the others
BOTH_NIGHTLY = pytest.mark.parametrize("comm", [HOROVOD, pytest.param("torch", marks=pytest.mark.nightly)])


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def mpirun(*programs: list[str], ranks: int = 2) -> "subprocess.CompletedProcess[str]":
    """Run one program on so many ranks, or several on one rank each."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    environ = {name: value for name, value in os.environ.items() if name not in names}
    environ["MASTER_ADDR"] = "127.0.0.1"
    each = ranks if len(programs) == 1 else 1
    argv = [word for program in programs for word in (":", "-np", str(each), sys.executable, *program)][1:]
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    for _try in range(3):  # somebody else may take the port before rank 0 does
        run = subprocess.run(
            ["mpirun", *root, "--oversubscribe", "--bind-to", "none", *argv],
            env={**environ, "MASTER_PORT": str(free_port())},
            capture_output=True,
            text=True,
            timeout=patience(100),
            check=False,
        )
        if "EADDRINUSE" not in run.stderr:
            break
    return run


def sample(run: "subprocess.CompletedProcess[str]") -> Sample:
    assert run.returncode == 0, run.stderr
    found = parse(run.stdout)
    assert isinstance(found, Sample), (found, run.stdout)
    return found


@pytest.mark.parametrize(
    "options",
    [
        pytest.param([], marks=needs_horovod, id="horovod is the default"),
        pytest.param(["--comm", "torch"], id="torch"),
    ],
)
def test_the_lines_and_the_numbers_in_them(options: list[str]) -> None:
    run = mpirun([str(SCRIPT), *SMALL, *options])
    found = sample(run)
    assert (found.ranks, found.model, found.batch_size, found.iterations) == (2, "tiny", 4, 3)
    shape = re.sub(r"\d+\.\d", "V", run.stdout)
    assert shape.splitlines() == [
        "Model: tiny",
        "Batch size: 4",
        "Number of GPUs: 2",
        "No GPU is used: the ranks are CPU ranks",
        "Running warmup...",
        "Running benchmark...",
        *(f"Iter #{index}: V img/sec per GPU" for index in range(3)),
        "Img/sec per GPU: V +-V",
        "Total img/sec on 2 GPU(s): V +-V",
    ]
    numbers = [float(number) for number in re.findall(r"\d+\.\d", run.stdout)]
    rates, (mean, half_width, total, total_half_width) = numbers[:3], numbers[3:]
    assert mean == pytest.approx(statistics.fmean(rates), abs=0.11)
    assert half_width == pytest.approx(1.96 * statistics.pstdev(rates), abs=0.3)
    assert total == pytest.approx(2 * mean, abs=0.16)
    assert total_half_width == pytest.approx(2 * half_width, abs=0.16)


@BOTH_NIGHTLY
def test_the_gradients_of_a_real_model(comm: str) -> None:
    few = [
        "--fp16-allreduce",
        "--num-warmup-batches",
        "0",
        "--num-batches-per-iter",
        "1",
        "--num-iters",
        "2",
        "--batch-size",
        "64",
    ]
    run = mpirun([str(SCRIPT), "--gradients-only", "--model", "resnet50", "--comm", comm, "--no-cuda", *few])
    assert sample(run).model == "resnet50"
    assert "Gradients only: 161 tensors, 102.2 MB per step, no forward or backward pass\n" in run.stdout


@needs_horovod
def test_adasum() -> None:
    assert sample(mpirun([str(SCRIPT), *SMALL, "--use-adasum"])).ranks == 2


def test_alone() -> None:
    run = subprocess.run(
        [sys.executable, SCRIPT, *SMALL, "--comm", "none"], capture_output=True, text=True, check=False
    )
    assert sample(run).ranks == 1


# Ranks that start with other weights and see other images must end with equal weights; and the gradients of
# --gradients-only must be averaged.
TOGETHER = """
import json, os, sys, torch
sys.path.insert(0, sys.argv[1])
import benchmark_run as run

rank, seen = int(os.environ["OMPI_COMM_WORLD_RANK"]), []
torch.manual_seed(rank)
for fp16 in (False, True):
    horovod = sys.argv[2] == "horovod"
    comm = run.Horovod(fp16=fp16, adasum=False) if horovod else run.TorchDistributed(rank, 2, rank, fp16=fp16)
    if not fp16:
        comm.join(cuda=False)
    model = torch.nn.Linear(3, 1)
    net, optimizer = comm.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for _ in range(3):
        seen.append(model.weight.tolist())
        optimizer.zero_grad()
        net(torch.randn(4, 3)).square().sum().backward()
        optimizer.step()
    torch.manual_seed(0)
    noisy = run.Gradients(torch.nn.Linear(5, 1))
    net, optimizer = comm.distribute(noisy, torch.optim.SGD(noisy.parameters(), lr=0.1))
    (net() * rank).backward()
    optimizer.step()
    seen.append(bool(torch.allclose(noisy.model.weight.grad, noisy.noise[0] / 2, rtol=0.01)))
    torch.manual_seed(rank)
with open(sys.argv[3] + f"/{rank}", "w") as file:
    json.dump(seen, file)
comm.leave()
os._exit(0)
"""


@BOTH
def test_ranks_train_one_model(comm: str, tmp_path: Path) -> None:
    run = mpirun(["-c", TOGETHER, str(SCRIPTS), comm, str(tmp_path)])
    assert run.returncode == 0, run.stderr
    mine, other = (json.loads((tmp_path / str(rank)).read_text()) for rank in (0, 1))
    assert mine == other
    assert all(before != after for before, after in itertools.pairwise(mine))
    assert mine[3] is mine[7] is True


@BOTH_NIGHTLY
def test_one_rank_that_fails_ends_them_all(comm: str) -> None:
    """No rank hangs, and what is said first is why; the other ranks may say that they lost it."""
    good = [str(SCRIPT), *SMALL, "--comm", comm]
    run = mpirun(good, [*good, "--batch-size", "2000000000"])
    assert run.returncode == 1
    assert "rank 1 on " in run.stderr
    assert "tiny with batch size 2000000000 does not fit into memory" in run.stderr
    assert "Traceback" not in run.stderr
    assert "Total" not in run.stdout


def test_interrupted() -> None:
    with subprocess.Popen(
        [sys.executable, SCRIPT, *SMALL, "--comm", "none", "--num-batches-per-iter", "1000000000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as script:
        assert script.stdout is not None
        assert "Running benchmark...\n" in script.stdout  # each line comes when it is printed
        script.send_signal(signal.SIGINT)
        _, error = script.communicate(timeout=patience(30))
    assert (script.returncode, error) == (130, "")
