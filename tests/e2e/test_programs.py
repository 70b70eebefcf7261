"""Programs that train with libraries of other people, under each launcher across two hosts: the right number of ranks, or a reason.

TACO_LAUNCH_PROGRAMS names a Python that has the libraries: `scripts/programs` makes one and runs this.
"""

import os
import re
import sys
from pathlib import Path

import pytest

from taco_launch.core.model.host.hosts import Network
from taco_launch.core.signatures.log_scan import explain
from tests.e2e.cluster import Cluster

pytestmark = [pytest.mark.e2e, pytest.mark.nightly, pytest.mark.timeout(900)]

VARIABLE = "TACO_LAUNCH_PROGRAMS"
FOLDER = Path(__file__).with_name("programs")
LAUNCHERS = ("mpirun", "torchrun", "env")
PROGRAMS = {
    "ddp": ("ddp.py",),
    "accelerate": ("accelerated.py",),
    "transformers": ("trainer.py",),
    "deepspeed": ("zero.py",),
    "lightning": ("lit.py", "2", "2"),
}
SECONDS = 240


@pytest.fixture(scope="module")
def python() -> Path:
    if VARIABLE not in os.environ:
        pytest.skip(f"cannot: {VARIABLE} names no Python that has the libraries (scripts/programs)")
    return Path(os.environ[VARIABLE]).absolute()


@pytest.fixture(scope="module")
def kept(python: Path) -> tuple[Path, ...]:
    return (Path(__file__).parent, Path(sys.base_prefix), Path(sys.prefix), python.parents[1])


def run(cluster: Cluster, name: str, launcher: str, python: Path, *words: str) -> tuple[str, str]:
    """Run a job of four ranks on two hosts; return its state, and all that was said."""
    script, *arguments = words
    command = (str(python), str(FOLDER / script), *arguments)
    shape = {"host_count": 2, "slots_per_host": 2, "network": Network(interface="eth0")}
    path = f"{python.parent}:{Path(sys.prefix) / 'bin'}:{os.environ['PATH']}"
    cluster.submit(cluster.spec(name, *command, launcher=launcher, **shape), PATH=path, HOME="/root")
    job = cluster.ended(name, SECONDS)
    return str(job["state"]), "\n".join(map(str, (*cluster.log(name), job)))


def trained(text: str) -> list[str]:
    return sorted(re.findall(r"trained \d+ of \d+", text))


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_every_rank_knows_all_ranks(cluster: Cluster, name: str, python: Path, program: str, launcher: str) -> None:
    state, text = run(cluster, name, launcher, python, *PROGRAMS[program])
    assert state == "SUCCEEDED", text
    assert trained(text) == [f"trained {rank} of 4" for rank in range(4)], text


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_lightning_that_is_told_of_one_host_only_says_so(
    cluster: Cluster, name: str, python: Path, launcher: str
) -> None:
    """It does not train as two worlds that do not know of each other, in a job that succeeds: of one host's ranks each is refused."""
    state, text = run(cluster, name, launcher, python, "lit.py", "1", "2")
    assert state == "FAILED", text
    assert trained(text) in ([], ["trained 0 of 2"], ["trained 0 of 2", "trained 1 of 2"]), text
    # Under torchrun Lightning says so itself; elsewhere Gloo refuses the rank, which `explain` knows.
    assert "num_nodes" in text or {"torch-rank-number"} <= {found.signature for found in explain(text.split("\n"))}, (
        text
    )
