"""What launchers print about a rank that failed: left out of what `run` and `logs` show, whatever else they print stays."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.cli.output.job_output import BannerFilter

RULE = b"localhost/mpirun | " + b"-" * 74 + b"\n"
# Open MPI 4.1.4, as `run` shows it.
BANNER = (
    RULE
    + b"localhost/mpirun | Primary job  terminated normally, but 1 process returned\n"
    + b"localhost/mpirun | a non-zero exit code. Per user-direction, the job has been aborted.\n"
    + RULE
)
SECOND = (
    RULE + b"localhost/mpirun | mpirun noticed that process rank 1 with PID 0 on node a exited on signal 9.\n" + RULE
)
OTHER = RULE + b"localhost/mpirun | There are not enough slots available in the system\n" + RULE
RANK = b"localhost/0 | step 1\n"
# MPICH 4.0.
HYDRA = (
    b"h/hydra | \n",
    b"h/hydra | " + b"=" * 83 + b"\n"
    b"h/hydra | =   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n"
    b"h/hydra | =   EXIT CODE: 9\n"
    b"h/hydra | " + b"=" * 83 + b"\n"
    b"h/hydra | YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)\n",
)
# torch 2.13; rank 1 failed, and torchrun saw another end first.
OMP = b"a/torchrun | W1126 05:40:04.6 7 torch/distributed/run.py:774] Setting OMP_NUM_THREADS to be 1\n"
TORCHRUN = (
    b"a/torchrun | E1126 05:40:04.6 7 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -15) local_rank: 0\n"
    b"a/torchrun | Traceback (most recent call last):\n"
    b"a/torchrun | Root Cause (first observed failure):\n"
)
STOPPED = b"a/torchrun | W1126 05:40:04.6 7 torch/distributed/elastic/agent/server/api.py:751] Received Signals.SIGTERM death signal\n"
UNMET = b"a/torchrun | Traceback (most recent call last):\na/torchrun | torch.distributed.DistNetworkError: no host\n"
SECOND_ATTEMPT = b"[taco-launch: attempt 2]\n"


def shown(*chunks: bytes) -> bytes:
    banners = BannerFilter()
    return b"".join((*map(banners.feed, chunks), banners.end()))


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (RANK + BANNER + RANK, RANK + RANK),
        (BANNER + SECOND, b""),
        (OTHER, OTHER),
        (b"localhost/mpirun | no license\n" + RANK, b"localhost/mpirun | no license\n" + RANK),
        (RULE + RANK + BANNER.removeprefix(RULE), RANK),  # a rank writes in between
        (RULE + b"localhost/mpirun | cut", RULE + b"localhost/mpirun | cut"),  # the job ended within
        (b"2026-11-25T02:00:00.000Z " + RULE + BANNER.removeprefix(RULE), b""),
        (RULE + b"localhost/mpirun | x\n" * 30 + RULE, RULE + b"localhost/mpirun | x\n" * 30 + RULE),
        (b"".join(HYDRA), HYDRA[0]),
        (b"h/hydra | " + b"=" * 83 + b"\nh/hydra | x\n", b"h/hydra | " + b"=" * 83 + b"\nh/hydra | x\n"),
        (OMP + RANK + TORCHRUN + RANK + TORCHRUN.replace(b"a/", b"b/"), OMP + RANK + RANK),
        (b"2026-11-25T02:00:00.000Z " + TORCHRUN, b""),
        (STOPPED + UNMET, b""),
        (UNMET + RANK, UNMET + RANK),  # no rank failed: that is all that there is
        (TORCHRUN + SECOND_ATTEMPT + OMP + TORCHRUN, SECOND_ATTEMPT + OMP),
        (TORCHRUN.replace(b"a/torchrun", b"a/0"), TORCHRUN.replace(b"a/torchrun", b"a/0")),
        (
            b"localhost/0 | Primary job  terminated normally, but\n",
            b"localhost/0 | Primary job  terminated normally, but\n",
        ),
    ],
)
def test_only_banners_are_left_out(text: bytes, left: bytes) -> None:
    assert shown(text) == left
    assert shown(*text.splitlines(keepends=True)) == left


@given(st.lists(st.sampled_from([RULE, RANK, b"gpu1/mpirun | words\n", b"\n", b"gpu1/mpirun |\n"]), max_size=60))
def test_nothing_else_is_lost(lines: list[bytes]) -> None:
    assert sorted(shown(*lines).splitlines()) == sorted(b"".join(lines).splitlines())
