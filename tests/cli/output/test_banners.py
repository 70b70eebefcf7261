"""mpirun's banners: left out of what `run` shows, whatever else mpirun prints stays."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.cli.output.banners import BannerFilter

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
