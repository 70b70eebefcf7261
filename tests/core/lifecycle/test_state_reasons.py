"""The reason of an end: what is known of the cause goes before what the launcher says, and last output where nothing is."""

import json

import pytest

from taco_launch.core.lifecycle import state
from taco_launch.core.model.codec import to_json
from taco_launch.core.model.jobs import Event, Finding

FOUND = Finding("ssh-refused", "gpu2 is up, but no sshd listens on its port 22.", "Start it.", "gpu2", 3)


def test_findings_come_with_the_end_and_old_records_have_none() -> None:
    end = {"state": "FAILED", "exit_code": 125}
    assert state.reduce([Event(1.0, state.ENDED, "why", end)]).findings == ()
    told = json.loads(json.dumps(to_json({**end, "findings": [FOUND]})))
    assert state.reduce([Event(1.0, state.ENDED, "why", told)]).findings == (FOUND,)


@pytest.mark.parametrize(
    ("started", "findings", "reason"),
    [
        pytest.param(0, (FOUND, FOUND), f"no rank started: {FOUND.cause}", id="no-rank"),
        pytest.param(0, (), "the launcher exited", id="nothing-known"),
        pytest.param(1, (FOUND,), "the launcher exited", id="a-rank-ran"),
    ],
)
def test_the_reason_is_the_cause_where_no_rank_started(
    started: int, findings: tuple[Finding, ...], reason: str
) -> None:
    assert state.explained("the launcher exited", started, findings, "") == reason


def test_what_was_written_last_where_nothing_known_was() -> None:
    assert state.explained("rank 1 exited", 2, (), "bad lr") == "rank 1 exited; its last output: bad lr"
    assert state.explained("rank 1 exited", 2, (Finding("s", "c", "n", "", 1),), "bad lr") == "rank 1 exited"
