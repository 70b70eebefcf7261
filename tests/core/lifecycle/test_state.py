"""The fold of a job's events is total, its end is final, and the verdict is the table below."""

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taco_launch.core.errors import FAILED, NO_JOB, OK, DamagedRecordError
from taco_launch.core.lifecycle import state
from taco_launch.core.model.codec import to_json
from taco_launch.core.model.jobs import Event, Finding, JobRecord, JobState, RankEnd, Transition

TIMES = st.floats(min_value=0, max_value=4e9)
TERMINAL = [entry for entry in JobState if entry.is_terminal]
ROOTS = st.lists(st.lists(st.integers(1, 1 << 22), min_size=2, max_size=2), max_size=3)


def events_of(kind: str, **data: st.SearchStrategy[object]) -> st.SearchStrategy[Event]:
    return st.builds(Event, TIMES, st.just(kind), st.text(max_size=8), st.fixed_dictionaries(dict(data)))


KINDS = {value for name, value in vars(state).items() if name.isupper() and isinstance(value, str)}
PLACING = events_of(state.PLACED, np=st.integers(1, 99), hosts=st.lists(st.text(min_size=1)), line=st.text())
RUNNING = events_of(state.RUNNING, boot=st.text(), roots=ROOTS)
EVENTS = st.one_of(
    events_of(state.SUBMITTED, id=st.text(min_size=1)),
    PLACING,
    events_of("launched", boot=st.text(), roots=ROOTS),
    RUNNING,
    events_of(state.RANK_FAILED, rank=st.integers(0, 99), host=st.text(), exit_code=st.integers(1, 255)),
    events_of(state.STOPPING),
    events_of(state.WAITING, hosts=st.lists(st.tuples(st.text(), st.text()), max_size=2)),
    events_of(state.SUSPENDED),
    events_of(state.RESUMED),
    events_of(state.RESTARTING, delay=st.floats(0, 1e6), exit_code=st.integers(1, 255), left_out=st.lists(st.text())),
    events_of(state.ENDED, state=st.sampled_from([entry.value for entry in TERMINAL]), exit_code=st.integers(0, 255)),
    st.builds(Event, TIMES, st.text(), st.text(), st.just({})).filter(lambda event: event.kind not in KINDS),
)


def test_no_events_is_a_queued_job() -> None:
    assert state.reduce(()) == JobRecord(id="", state=JobState.QUEUED)


def test_the_life_of_a_job() -> None:
    life = [
        Event(1.0, state.SUBMITTED, "waiting", {"id": "abc"}),
        Event(2.0, state.PLACED, "fits", {"np": 2, "hosts": ["gpu1", "gpu2"], "line": "mpirun -np 2 true"}),
        Event(2.5, "launched", "mpirun is process 7", {"boot": "b", "roots": [[7, 1]]}),
        Event(3.0, state.RUNNING, "all ranks", {"boot": "b", "roots": [[8, 2]]}),
        Event(3.9, state.SOME_ENDED, "rank 2 has ended", {"ranks": [2]}),
        Event(4.0, state.RANK_FAILED, "exited with code 3", {"rank": 1, "host": "gpu2", "exit_code": 3}),
        Event(4.1, state.RANK_FAILED, "was killed", {"rank": 0, "host": "gpu1", "exit_code": 137}),
        Event(5.0, state.STOPPING, "TERM", {}),
        Event(5.5, state.SOME_ENDED, "ranks 0 and 2 have ended", {"ranks": [0, 2]}),
        Event(6.0, state.ENDED, "rank 1 failed", {"state": "FAILED", "exit_code": 3, "rank": 1, "host": "gpu2"}),
        Event(7.0, state.RUNNING, "late", {"boot": "b", "roots": []}),
        Event(8.0, state.ENDED, "twice", {"state": "LOST", "exit_code": 1}),
    ]
    states = [state.reduce(life[:count]).state.value for count in range(len(life) + 1)]
    assert states == ["QUEUED"] * 2 + ["STARTING"] * 2 + ["RUNNING"] * 4 + ["STOPPING"] * 2 + ["FAILED"] * 3
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
        mark="abc",
        attempt=1,
        done=(2,),
        transitions=(
            Transition(1.0, JobState.QUEUED, "waiting"),
            Transition(2.0, JobState.STARTING, "fits"),
            Transition(3.0, JobState.RUNNING, "all ranks"),
            Transition(5.0, JobState.STOPPING, "TERM"),
            Transition(6.0, JobState.FAILED, "rank 1 failed"),
        ),
        admitted=True,
    )


@given(st.lists(EVENTS, max_size=12))
def test_any_order_of_events_is_a_record_and_the_end_is_final(events: list[Event]) -> None:
    before = state.reduce(())
    for count in range(1, len(events) + 1):
        record = state.reduce(events[:count])
        assert record.state.is_terminal == (record.exit_code is not None) == (record.ended is not None)
        if before.state.is_terminal:
            assert record == before
        changes = [change.state for change in record.transitions]
        assert all(one is not other for one, other in itertools.pairwise(changes))
        assert not changes or changes[-1] is record.state
        before = record


@settings(max_examples=60)
@given(st.lists(st.one_of(events_of(state.STOPPING), PLACING, RUNNING), max_size=6))
def test_a_job_that_is_being_stopped_does_not_go_back(events: list[Event]) -> None:
    # TERM to a supervisor may come before it has a place for the job: `placed` then follows `stopping`.
    records = [state.reduce(events[:count]) for count in range(len(events) + 1)]
    stopping = [record.state for record in records if record.state is JobState.STOPPING]
    assert [record.state for record in records][len(records) - len(stopping) :] == stopping


SUBMITTED = Event(1.0, state.SUBMITTED, "", {"id": "abc"})
PLACED_AGAIN = Event(40.0, state.PLACED, "", {"np": 1, "hosts": ["b"], "line": "", "mark": "abc.2", "attempt": 2})
FAILED_ONCE = Event(20.0, state.RESTARTING, "rank 0 on a failed", {"delay": 10, "left_out": ["a"], "exit_code": 3})


def test_a_job_is_tried_again() -> None:
    record = state.reduce([SUBMITTED, FAILED_ONCE])
    assert (record.state, record.not_before, record.left_out) == (JobState.RESTARTING, 30.0, ("a",))
    record = state.reduce([SUBMITTED, FAILED_ONCE, PLACED_AGAIN])
    assert (record.state, record.not_before, record.left_out) == (JobState.STARTING, None, ("a",))
    assert (record.id, record.mark, record.attempt) == ("abc", "abc.2", 2)


def test_a_job_that_waits_says_why_until_it_has_a_place_or_is_suspended() -> None:
    waiting = Event(2.0, state.WAITING, "2 of 4 slots are free", {"hosts": [["gpu3", "2 of 8 free"]]})
    record = state.reduce([SUBMITTED, waiting])
    assert (record.state, record.waiting) == (JobState.QUEUED, (("gpu3", "2 of 8 free"),))
    assert state.reduce([SUBMITTED, waiting, PLACED_AGAIN]).waiting == ()
    suspended = Event(3.0, state.SUSPENDED, "suspended by root")
    record = state.reduce([SUBMITTED, waiting, suspended])
    assert (record.state, record.waiting) == (JobState.SUSPENDED, ())
    failed = Event(2.0, state.RESTARTING, "", {"delay": 9.0})
    assert state.reduce([SUBMITTED, failed, suspended]).not_before is None
    assert state.reduce([SUBMITTED, suspended, Event(4.0, state.RESUMED)]).state is JobState.QUEUED
    assert state.reduce([Event(1.0, state.SUBMITTED, "", {"id": "a", "suspend": True})]).state is JobState.SUSPENDED


def test_an_attempt_has_a_mark_of_its_own() -> None:
    marks = [state.mark("abc", attempt) for attempt in (1, 2, 3)]
    assert marks == ["abc", "abc.2", "abc.3"]
    assert all(state.marks_same_job(one, other) for one in marks for other in marks)
    assert not any(state.marks_same_job(one, state.mark("abcd", 2)) for one in marks)


def test_terminal_states() -> None:
    assert {entry.value for entry in TERMINAL} == {"SUCCEEDED", "FAILED", "CANCELLED", "LOST"}


def test_verdict_of_a_success() -> None:
    expected = state.JobOutcome(JobState.SUCCEEDED, OK, "every rank exited with 0")
    assert state.verdict(2, 2, None, 0, None) == expected


@pytest.mark.parametrize(
    ("started", "first_failure", "launcher_code"), [(2, None, 0), (1, RankEnd(0, "a", 143), 1), (0, None, -15)]
)
def test_a_stop_is_the_verdict_whatever_else_happened(
    started: int, first_failure: RankEnd | None, launcher_code: int
) -> None:
    stopped = state.JobOutcome(JobState.CANCELLED, 143, "stopped by somebody")
    assert state.verdict(2, started, first_failure, launcher_code, stopped) == stopped


NOT_RUN = "cannot run 'x': No such file or directory"


@pytest.mark.parametrize(
    ("started", "first_failure", "launcher_code", "code", "reason"),
    [
        (0, None, 7, NO_JOB, "the launcher exited with code 7 before any rank started"),
        (0, None, 0, NO_JOB, "the launcher exited with code 0 before any rank started"),
        (0, None, -11, NO_JOB, "the launcher was ended by signal 11 (SIGSEGV) before any rank started"),
        (2, RankEnd(1, "gpu2", 3), 3, 3, "rank 1 on gpu2 exited with code 3"),
        (2, RankEnd(1, "gpu2", 139), 139, 139, "rank 1 on gpu2 was ended by signal 11 (SIGSEGV)"),
        (1, RankEnd(0, "gpu1", 127, NOT_RUN), 1, 127, f"rank 0 on gpu1 {NOT_RUN}"),
        (2, RankEnd(0, "gpu1", 9), 0, 9, "rank 0 on gpu1 exited with code 9"),
        (2, None, 1, 1, "the launcher exited with code 1 while its ranks ran"),
        (1, None, -9, 137, "the launcher was ended by signal 9 (SIGKILL) while its ranks ran"),
        (1, None, 137, 137, "a rank's wrapper was killed while its ranks ran"),
        (0, None, 137, NO_JOB, "a rank's wrapper was killed before any rank started"),
        (1, None, 0, FAILED, "only 1 of 2 ranks started, though the launcher exited with 0"),
    ],
)
def test_verdict_of_a_failure(
    started: int, first_failure: RankEnd | None, launcher_code: int, code: int, reason: str
) -> None:
    found = state.verdict(2, started, first_failure, launcher_code, None)
    assert found == state.JobOutcome(JobState.FAILED, code, reason)


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


@pytest.mark.parametrize("delay", ["nan", float("inf"), -1.0])
def test_a_delay_that_is_no_time_is_a_damaged_record(delay: object) -> None:
    with pytest.raises(DamagedRecordError, match="restarting"):
        state.reduce([Event(1.0, state.SUBMITTED, "", {"id": "a"}), Event(2.0, state.RESTARTING, "", {"delay": delay})])


# --- The reason of an end: what is known of the cause goes before what the launcher says, and last output where nothing is


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


def test_a_hang_is_known_with_the_time_when_its_ranks_were_looked_at() -> None:
    events = (
        Event(1.0, state.SUBMITTED, "", {"id": "1"}),
        Event(2.0, state.PLACED, "", {"np": 1, "hosts": ["gpu1"], "line": ""}),
        Event(3.0, state.RUNNING, "", {"boot": "", "roots": []}),
        Event(700.0, state.STALLED, "it hangs", {"since": 100.0}),
    )
    stalled = state.reduce(events).stalled
    assert stalled is not None
    assert (stalled.since, stalled.seen) == (100.0, 700.0)
