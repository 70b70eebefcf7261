"""A malicious head: whatever frames it answers with, every verb ends with the host's error or shows them; review L5.

The frames are those of an honest agent, changed in one place to something else that JSON can hold.
"""

from typing import Any

import pytest
from click.testing import Result
from hypothesis import given, settings
from hypothesis import strategies as st

from taco_launch.core.errors import TacoLaunchError
from taco_launch.core.model.codec import to_json
from taco_launch.core.model.job_rows import encoded, row_of
from taco_launch.core.model.jobs import Event
from taco_launch.core.model.slots import Occupancy, SlotState
from tests.support.evil_head import JOB, RECORD, SPEC, answered, changed
from tests.support.spoilt import places

EVENTS = [to_json(Event(1.0, "submitted", "by root", {}))]
ROW = encoded(row_of(SPEC, RECORD))
OCCUPANCY = to_json(Occupancy("n1", (SlotState("slot-0"), SlotState("slot-1"))))

VERBS: dict[str, tuple[tuple[str, ...], list[Any]]] = {
    "get": (("get", "vgg16"), [{"op": "job", "job": {**JOB, "events": EVENTS}}]),
    "get as JSON": (("get", "vgg16", "--json"), [{"op": "job", "job": {**JOB, "events": EVENTS}}]),
    "list": (("list", "-o", "wide"), [{"op": "rows", "rows": [ROW]}, {"op": "warned", "text": "job x is damaged"}]),
    "top node": (("top", "node"), [{"op": "slots", "host": "localhost", "occupancy": OCCUPANCY}]),
    "top job": (("top", "job"), [{"op": "rows", "rows": [ROW]}]),
    "metrics": (
        ("metrics",),  # it asks for `top` as well
        [{"op": "counted", "rows": [ROW], "removed": {"created": 1}, "last": ""},
         {"op": "slots", "host": "localhost", "occupancy": OCCUPANCY}],
    ),
    "logs": (("logs", "vgg16"), [{"op": "place", "offset": 0, "log": 1, "since": None}, {"op": "job", "job": JOB}]),
    "follow": (
        ("logs", "-f", "vgg16"),
        [{"op": "place", "offset": 3, "log": 1, "since": 1.0}, {"op": "waiting", "why": [["n1", "full"]]},
         {"op": "began", "job": JOB}, {"op": "state", "state": "RUNNING"}, {"op": "skipped", "count": 1},
         {"op": "piece", "offset": 4}, {"op": "job", "job": JOB}],
    ),
    "stop": (("stop", "vgg16", "--yes"), [{"op": "job", "job": JOB}]),
    "delete": (("delete", "vgg16", "--yes"), [{"op": "job", "job": JOB}, {"op": "warned", "text": "n1: no answer"}]),
    "prune": (("prune", "--since", "1d"), [{"op": "rows", "rows": [ROW]}]),
    "submit": (("submit", "--np", "2", "--name", "vgg16", "--", "true"), [{"op": "accepted", "name": "vgg16"}, {"op": "job", "job": JOB}]),
    "run": (("run", "--np", "2", "--name", "vgg16", "--", "true"), [{"op": "accepted", "name": "vgg16"}, *[{"op": "job", "job": JOB}] * 2]),
    "dry run": (
        ("run", "--np", "2", "--dry-run", "--", "true"),
        [{"op": "known", "known": {"slots": 2, "gpus": None, "single_copy": True}, "openmpi": "4.1.4", "problem": ""}],
    ),
    "exec": (("exec", "vgg16", "--yes", "--", "true"), [{"op": "job", "job": JOB}, {"op": "output", "stream": "out"}, {"op": "exited", "code": 0}]),
}  # fmt: skip


STRANGE = st.one_of(
    st.just(...),
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([10**15, 10**300, -1, 1e300, -1e300, float("nan"), float("inf"), 1 << 62]),
    st.sampled_from(["", "x", "RUNNING", "\x1b[2J", "\udcff", "a\nb", "../../etc/passwd", "-1"]),
    st.lists(st.one_of(st.none(), st.integers(), st.text(max_size=3)), max_size=3),
    st.dictionaries(st.text(max_size=5), st.none(), max_size=2),
)


def refused(result: Result) -> bool:
    """Return whether a verb ended in the host's error; fail where it ended as only a bug of ours does."""
    if isinstance(result.exception, TacoLaunchError):
        assert result.exception.exit_code, result.exception
        return True
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return False


@pytest.mark.parametrize("verb", VERBS)
def test_an_honest_answer_is_taken(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TACO_LAUNCH_INVENTORY", raising=False)
    words, frames = VERBS[verb]
    assert not refused(answered(words, frames))


@pytest.mark.parametrize("verb", VERBS)
@settings(deadline=None)
@given(data=st.data())
def test_no_answer_is_a_bug_of_ours(verb: str, data: st.DataObject) -> None:
    words, frames = VERBS[verb]
    where = data.draw(st.sampled_from(list(places(frames))))
    refused(answered(words, changed(frames, where, data.draw(STRANGE))))


@pytest.mark.parametrize("verb", VERBS)
def test_an_answer_that_says_nothing_is_no_success(verb: str) -> None:
    words, _frames = VERBS[verb]
    result = answered(words, [])
    assert (
        refused(result) or result.exit_code or result.return_value or verb in ("list", "top job", "top node", "prune")
    ), result.stdout


def test_a_missing_reply_names_host_and_operation() -> None:
    result = answered(("get", "vgg16"), [])
    assert isinstance(result.exception, TacoLaunchError)
    assert result.exception.message == "n1: get: not a taco-launch message: the answer has no job"
