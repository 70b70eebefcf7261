"""The fold of a job's events is total, its end is final, and the verdict is the table below."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taco_launch import state
from taco_launch.errors import FAILED, NO_JOB, OK
from taco_launch.model.codec import to_json
from taco_launch.model.jobs import Event, Finding, JobRecord, JobState, RankEnd

TIMES = st.floats(min_value=0, max_value=4e9)
TERMINAL = [entry for entry in JobState if entry.is_terminal]
ROOTS = st.lists(st.lists(st.integers(1, 1 << 22), min_size=2, max_size=2), max_size=3)


def events_of(kind: str, **data: st.SearchStrategy[object]) -> st.SearchStrategy[Event]:
    return st.builds(Event, TIMES, st.just(kind), st.text(max_size=8), st.fixed_dictionaries(dict(data)))


EVENTS = st.one_of(
    events_of(state.SUBMITTED, id=st.text(min_size=1)),
    events_of(state.PLACED, np=st.integers(1, 99), hosts=st.lists(st.text(min_size=1)), line=st.text()),
    events_of("launched", boot=st.text(), roots=ROOTS),
    events_of(state.RUNNING, boot=st.text(), roots=ROOTS),
    events_of(state.RANK_FAILED, rank=st.integers(0, 99), host=st.text(), exit_code=st.integers(1, 255)),
    events_of(state.STOPPING),
    events_of(state.ENDED, state=st.sampled_from([entry.value for entry in TERMINAL]), exit_code=st.integers(0, 255)),
    st.builds(Event, TIMES, st.text(), st.text(), st.just({})).filter(
        lambda event: event.kind not in (state.SUBMITTED, state.PLACED, state.RANK_FAILED, state.ENDED)
    ),
)


def test_no_events_is_a_queued_job() -> None:
    assert state.reduce(()) == JobRecord(id="", state=JobState.QUEUED)


def test_the_life_of_a_job() -> None:
    life = [
        Event(1.0, state.SUBMITTED, "waiting", {"id": "abc"}),
        Event(2.0, state.PLACED, "fits", {"np": 2, "hosts": ["gpu1", "gpu2"], "line": "mpirun -np 2 true"}),
        Event(2.5, "launched", "mpirun is process 7", {"boot": "b", "roots": [[7, 1]]}),
        Event(3.0, state.RUNNING, "all ranks", {"boot": "b", "roots": [[8, 2]]}),
        Event(4.0, state.RANK_FAILED, "exited with code 3", {"rank": 1, "host": "gpu2", "exit_code": 3}),
        Event(4.1, state.RANK_FAILED, "was killed", {"rank": 0, "host": "gpu1", "exit_code": 137}),
        Event(5.0, state.STOPPING, "TERM", {}),
        Event(6.0, state.ENDED, "rank 1 failed", {"state": "FAILED", "exit_code": 3, "rank": 1, "host": "gpu2"}),
        Event(7.0, state.RUNNING, "late", {"boot": "b", "roots": []}),
        Event(8.0, state.ENDED, "twice", {"state": "LOST", "exit_code": 1}),
    ]
    states = [state.reduce(life[:count]).state.value for count in range(len(life) + 1)]
    assert states == ["QUEUED"] * 2 + ["STARTING"] * 2 + ["RUNNING"] * 3 + ["STOPPING"] + ["FAILED"] * 3
    assert state.reduce(iter(life)) == JobRecord(
        id="abc",
        state=JobState.FAILED,
        reason="rank 1 failed",
        np=2,
        hosts=("gpu1", "gpu2"),
        submitted=1.0,
        started=2.0,
        ended=6.0,
        exit_code=3,
        line="mpirun -np 2 true",
        first_failure=RankEnd(1, "gpu2", 3, "rank 1 failed"),
    )


@given(st.lists(EVENTS, max_size=12))
def test_any_order_of_events_is_a_record_and_the_end_is_final(events: list[Event]) -> None:
    before = state.reduce(())
    for count in range(1, len(events) + 1):
        record = state.reduce(events[:count])
        assert record.state.is_terminal == (record.exit_code is not None) == (record.ended is not None)
        if before.state.is_terminal:
            assert record == before
        if before.first_failure is not None:
            assert record.first_failure == before.first_failure
        before = record


@settings(max_examples=60)
@given(st.lists(EVENTS, max_size=6))
def test_a_job_that_is_being_stopped_does_not_go_back(events: list[Event]) -> None:
    # TERM to a supervisor may come before it has a place for the job: `placed` then follows `stopping`.
    records = [state.reduce(events[:count]) for count in range(len(events) + 1)]
    stopping = [record.state for record in records if record.state is JobState.STOPPING or record.state.is_terminal]
    assert [record.state for record in records][len(records) - len(stopping) :] == stopping


def test_terminal_states() -> None:
    assert {entry.value for entry in TERMINAL} == {"SUCCEEDED", "FAILED", "CANCELLED", "LOST"}


STOPPED = (JobState.CANCELLED, 143, "stopped by somebody")


@pytest.mark.parametrize(
    ("np", "started", "first_failure", "launcher_code", "cut_short", "expected"),
    [
        pytest.param(2, 2, None, 0, None, (JobState.SUCCEEDED, OK, "every rank exited with 0"), id="succeeded"),
        pytest.param(2, 2, None, 0, STOPPED, STOPPED, id="stopped-wins-over-success"),
        pytest.param(2, 1, RankEnd(0, "a", 143), 1, STOPPED, STOPPED, id="stopped-wins-over-failure"),
        pytest.param(2, 0, None, -15, STOPPED, STOPPED, id="stopped-before-any-rank"),
        pytest.param(
            2,
            0,
            None,
            7,
            None,
            (JobState.FAILED, NO_JOB, "the launcher exited with code 7 before any rank started"),
            id="no-rank",
        ),
        pytest.param(
            2,
            0,
            None,
            0,
            None,
            (JobState.FAILED, NO_JOB, "the launcher exited with code 0 before any rank started"),
            id="no-rank-and-0",
        ),
        pytest.param(
            2,
            0,
            None,
            -11,
            None,
            (JobState.FAILED, NO_JOB, "the launcher was ended by signal 11 (SIGSEGV) before any rank started"),
            id="no-rank-and-a-signal",
        ),
        pytest.param(
            2,
            2,
            RankEnd(1, "gpu2", 3),
            3,
            None,
            (JobState.FAILED, 3, "rank 1 on gpu2 exited with code 3"),
            id="a-rank-failed",
        ),
        pytest.param(
            2,
            2,
            RankEnd(1, "gpu2", 139),
            139,
            None,
            (JobState.FAILED, 139, "rank 1 on gpu2 was ended by signal 11 (SIGSEGV)"),
            id="a-rank-was-killed",
        ),
        pytest.param(
            2,
            1,
            RankEnd(0, "gpu1", 127, "cannot run 'x': No such file or directory"),
            1,
            None,
            (JobState.FAILED, 127, "rank 0 on gpu1 cannot run 'x': No such file or directory"),
            id="a-rank-with-its-own-reason",
        ),
        pytest.param(
            2,
            2,
            RankEnd(0, "gpu1", 9),
            0,
            None,
            (JobState.FAILED, 9, "rank 0 on gpu1 exited with code 9"),
            id="a-rank-failed-though-the-launcher-did-not",
        ),
        pytest.param(
            2,
            2,
            None,
            1,
            None,
            (JobState.FAILED, 1, "the launcher exited with code 1 while its ranks ran"),
            id="the-launcher-failed",
        ),
        pytest.param(
            2,
            1,
            None,
            -9,
            None,
            (JobState.FAILED, 137, "the launcher was ended by signal 9 (SIGKILL) while its ranks ran"),
            id="the-launcher-was-killed",
        ),
        pytest.param(
            2,
            1,
            None,
            0,
            None,
            (JobState.FAILED, FAILED, "only 1 of 2 ranks started, though the launcher exited with 0"),
            id="too-few-ranks",
        ),
    ],
)
def test_verdict(
    np: int,
    started: int,
    first_failure: RankEnd | None,
    launcher_code: int,
    cut_short: tuple[JobState, int, str] | None,
    expected: tuple[JobState, int, str],
) -> None:
    assert state.verdict(np, started, first_failure, launcher_code, cut_short) == expected


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "exited with code 0"),
        (1, "exited with code 1"),
        (128, "exited with code 128"),
        (129, "was ended by signal 1 (SIGHUP)"),
        (137, "was ended by signal 9 (SIGKILL)"),
        (128 + 35, "was ended by signal 35"),  # a real-time signal without a name of its own
        (128 + 64, "was ended by signal 64 (SIGRTMAX)"),
        (193, "exited with code 193"),  # Linux has no signal above 64
        (255, "exited with code 255"),
    ],
)
def test_ending(code: int, words: str) -> None:
    assert state.ending(code) == words


def end(rank: int, code: int, *, consequence: bool = False) -> RankEnd:
    return RankEnd(rank, "gpu1", code, "", consequence)


@pytest.mark.parametrize(
    ("failures", "launcher_code", "rank"),
    [
        pytest.param([], 0, None, id="none"),
        pytest.param([end(1, 3), end(0, 1)], 3, 1, id="the-first"),
        pytest.param([end(0, 1, consequence=True), end(1, 3)], 1, 1, id="not-one-that-blames-another"),
        pytest.param([end(0, 1, consequence=True)], 1, 0, id="unless-there-is-no-other"),
        pytest.param([end(0, 143), end(1, 3)], 3, 1, id="not-one-that-mpirun-ended"),
        pytest.param([end(0, 143)], 1, None, id="mpirun-ended-all"),
        pytest.param([end(0, 143)], 143, 0, id="a-term-from-elsewhere"),
    ],
)
def test_culprit(failures: list[RankEnd], launcher_code: int, rank: int | None) -> None:
    found = state.culprit(failures, launcher_code)
    assert (None if found is None else found.rank) == rank


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
    assert state.explained("rank 1 exited", 2, (), "bad lr") == "rank 1 exited; its last words: bad lr"
    assert state.explained("rank 1 exited", 2, (Finding("s", "c", "n", "", 1),), "bad lr") == "rank 1 exited"
