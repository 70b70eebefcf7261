"""How far the limits of waiting grow."""

import os
import subprocess
import sys

import pytest

from tests.conftest import eventually
from tests.support.patience import growth, highest, patience

SOME = "some avg10={} avg60=99.00 avg300=99.00 total=1\nfull avg10=99.00 avg60=0.00 avg300=0.00 total=0\n"


@pytest.mark.parametrize(
    ("pressure", "load", "factor"),
    [
        (SOME.format("0.00"), 9, 1),
        (SOME.format("50.00"), 0, 4.5),
        (SOME.format("100.00"), 0, 8),
        (None, 0.2, 1),
        (None, 3.5, 3.5),
        (None, 40, 8),
        ("", 2, 2),  # a kernel that measures none of it
    ],
)
def test_limits_grow_with_the_pressure(pressure: str | None, load: float, factor: float) -> None:
    assert growth(pressure, load) == factor


@pytest.mark.parametrize(
    ("now", "at_start", "environ", "factor"),
    [
        (1, 1, {}, 1),
        (1, 4.5, {}, 4.5),
        (5, 1, {"CI": "true"}, 5),
        (1, 1, {"CI": "true"}, 3),
        (1, 1, {"CI": "false"}, 1),
    ],
)
def test_the_reason_that_asks_for_most_decides(
    now: float, at_start: float, environ: dict[str, str], factor: float
) -> None:
    assert highest(now, at_start, environ) == factor


def test_limits_are_never_less_than_on_an_idle_machine() -> None:
    assert 10 <= patience(10) <= 80


def test_what_never_happens_is_waited_for_in_vain() -> None:
    with pytest.raises(AssertionError, match=r"^waited \d+\.\d s in vain for rain$"):
        eventually(lambda: False, 0.1, "rain")


def test_what_the_shell_has_set_for_taco_launch_is_not_for_the_tests() -> None:
    names = ("TACO_LAUNCH_STATE", "TACO_LAUNCH_LEASES", "TACO_LAUNCH_INVENTORY")
    script = f"import os, tests.conftest; print([name for name in {names} if name in os.environ])"
    env = {**os.environ, **dict.fromkeys(names, "/nowhere")}
    done = subprocess.run((sys.executable, "-c", script), env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
