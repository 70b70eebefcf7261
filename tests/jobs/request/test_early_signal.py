"""USR1@120 and the like."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.core.model.jobs import EarlySignal
from taco_launch.jobs.request.policy import NAMES, parse_early_signal


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("USR1", EarlySignal("USR1", 60.0)),
        ("SIGUSR2@120", EarlySignal("USR2", 120.0)),
        ("usr1@2m", EarlySignal("USR1", 120.0)),
        ("TERM@0.5", EarlySignal("TERM", 0.5)),
        ("HUP@1h", EarlySignal("HUP", 3600.0)),
    ],
)
def test_what_is_one(text: str, found: EarlySignal) -> None:
    assert parse_early_signal(text) == found


@pytest.mark.parametrize(
    "text", ["", "KILL", "STOP@5", "10@60", "USR1@", "USR1@x", "USR1@-5", "USR1@0", "@60", "USR1@@6"]
)
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be"):
        parse_early_signal(text)


@given(st.text(max_size=20))
def test_any_text(text: str) -> None:
    try:
        found = parse_early_signal(text)
    except ValueError:
        return
    assert found.name in NAMES
    assert found.seconds > 0
