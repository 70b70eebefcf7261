"""A job that ended before its ranks could start is an error, with the hosts and their reasons as data."""

import pytest

from taco_launch.core.errors import PlacementError, TacoLaunchError, UnusableError
from taco_launch.core.model.jobs import JobState
from taco_launch.jobs.backend import require_started
from tests.support.job_rows import job


@pytest.mark.parametrize(
    ("code", "reason", "kind", "reasons"),
    [
        (
            4,
            "9 ranks do not fit\n  gpu1: 2 slots\n  gpu2: 0 of 2 free, 2 held by job a",
            PlacementError,
            ("gpu1", "gpu2"),
        ),
        (5, "2 hosts cannot be used\n  gpu1: no answer\n  gpu2: no key", UnusableError, ("gpu1", "gpu2")),
        (125, "the launcher exited with code 1 before any rank started", TacoLaunchError, ()),
    ],
)
def test_its_kind(code: int, reason: str, kind: type[TacoLaunchError], reasons: tuple[str, ...]) -> None:
    with pytest.raises(kind) as caught:
        require_started(job("a", 1, JobState.FAILED, 0.0, exit_code=code, started=None, reason=reason))
    assert (caught.value.message, caught.value.exit_code) == (f"job a: {reason}", code)
    assert tuple(host for host, _why in getattr(caught.value, "reasons", ())) == reasons


def test_a_job_that_started_is_no_error() -> None:
    require_started(job("a", 1, JobState.FAILED, 0.0, exit_code=1, started=1.0, reason="rank 0 exited"))
