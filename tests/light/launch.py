"""Start ranks of real programs: by torchrun, or by mpirun."""

import os
import subprocess
import sys

from tests.support.paths import ROOT
from tests.support.patience import patience

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone")
_RANK = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LIGHT_")


def torchrun(ranks: int, *words: str, **variables: str) -> str:
    """Return what ranks of torchrun wrote, to either stream."""
    return _output((*TORCHRUN, f"--nproc-per-node={ranks}", *words), variables)


def mpirun(ranks: int, *words: str, **variables: str) -> str:
    """Return what ranks of mpirun wrote, to either stream."""
    root = ("--allow-run-as-root",) if os.geteuid() == 0 else ()
    line = ("mpirun", *root, "--oversubscribe", "--bind-to", "none", "-np", str(ranks), sys.executable, *words)
    return _output(line, variables)


def _output(argv: tuple[str, ...], variables: dict[str, str]) -> str:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(_RANK)}
    done = subprocess.run(
        argv,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env={**environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **variables},
        check=False,
        timeout=patience(100),
    )
    return done.stdout
