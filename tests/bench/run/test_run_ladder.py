"""The runs of a ladder, with jobs that are made up: what is kept of each, where it stops, and how it continues."""

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from taco_launch.bench.compare.tables import tables
from taco_launch.bench.history.history import History, Ladder, LadderKind, open_history
from taco_launch.bench.history.series import SeriesQuery
from taco_launch.bench.logs.parse import NoSample
from taco_launch.bench.model.ladder import order
from taco_launch.bench.model.matrix import Matrix
from taco_launch.bench.model.runs import Cell, Measurement, Metric, RunEnvironment
from taco_launch.bench.report import read_history
from taco_launch.bench.run import run_ladder
from taco_launch.core.errors import HostError, TacoLaunchError
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.job_view import JobView
from taco_launch.core.model.jobs import Finding, HostRanks, JobRecord, JobSpec, JobState, Transition
from taco_launch.jobs.backend import Outcomes
from taco_launch.jobs.backend.agent_client import AgentError
from tests.support.fake_backend import FakeBackend
from tests.support.raisers import raiser

CELLS = (Cell("w", "a", 1), Cell("w", "b", 1))
FINDING = Finding("script-missing", "Python finds no script /x.py.", "Copy it there.", "gpu1", 1)
Says = Callable[[JobSpec], JobRecord]


def record(state: JobState = JobState.SUCCEEDED, code: int = 0, **more: Any) -> JobRecord:
    return JobRecord("1", state, exit_code=code, shares=(HostRanks("gpu1", 1), HostRanks("gpu2", 1)), **more)


class Around:
    """Stands for the hosts of a ladder."""

    def __init__(self) -> None:
        self.looks = 0

    def refresh(self) -> None:
        self.looks += 1

    def gpu(self, _job: JobView) -> str:
        return "A100"

    def circumstances(self, _spec: JobSpec, _job: JobView | None) -> RunEnvironment:
        return RunEnvironment((("", "knobs", "none"),))


class Bench(FakeBackend):
    """A ladder of two cells, two repeats each, whose jobs do what `says` says."""

    def __init__(self, history: History, folder: Path) -> None:
        self.history, self.around = history, Around()
        self.says: Says = lambda _spec: record()
        self.output = b"host/0 | rate 5\n"
        self.ran: list[str] = []
        self.stopped: list[str] = []
        self.deleted: list[str] = []
        self.rows: list[Any] = []
        self.told: list[run_ladder.LadderProgress] = []
        one = Ladder("m-1", "m", LadderKind.LADDER, "d", 7, "c", 1.0)
        specs = {cell: JobSpec("", ("x",), (Host("gpu1", "gpu1"),), head="gpu1", np=1) for cell in CELLS}
        self.plan = run_ladder.LadderPlan(one, order(CELLS, 2, 0, 7), specs, self._read, folder)
        history.begin(one)

    def run(self, spec: JobSpec, _environ: object, output: Callable[[bytes], None], _watch: object) -> JobView:
        self.ran.append(spec.name)
        output(self.output)
        return JobView(spec, self.says(spec), "/")

    def delete(self, names: Sequence[str], *_more: object) -> Outcomes:
        self.deleted.extend(names)
        return _done(names)

    def stop(self, names: Sequence[str], *_more: object) -> Outcomes:
        self.stopped.extend(names)
        return _done(names)

    def follow(self, *_more: object) -> Any:
        """Nothing is left of any job."""

    def list(self) -> tuple[tuple[Any, ...], tuple[str, ...]]:
        return tuple(self.rows), ()

    def _read(self, _cell: Cell, text: str) -> tuple[Measurement, ...] | NoSample:
        return (Measurement(Metric("r", "r"), 5.0),) if "rate 5\n" in text else NoSample("no line matches")

    def __call__(self, plan: run_ladder.LadderPlan | None = None) -> run_ladder.LadderResult:
        around: Any = self.around
        tell = run_ladder.LadderListener(self.told.append, lambda _words: None)
        return run_ladder.run(self, plan or self.plan, self.history, around, {}, tell)


def _done(names: Sequence[str]) -> Outcomes:
    job: Any = object()  # nobody looks at it
    return Outcomes(dict.fromkeys(names, job))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with open_history(tmp_path / "h.db") as history:
        yield Bench(history, tmp_path / "logs")


def fails_at(number: int, error: BaseException, bench: Bench) -> Says:
    def says(_spec: JobSpec) -> JobRecord:
        if len(bench.ran) == number:
            raise error
        return record()

    return says


def names(numbers: Sequence[int]) -> list[str]:
    return [f"m-1-r{number}" for number in numbers]


def test_each_run_is_kept_as_it_ends_and_its_job_is_not(bench: Bench) -> None:
    measured = bench()
    assert (measured.outcome, len(measured.runs)) == (run_ladder.DONE, 4)
    assert bench.ran == bench.deleted == names([1, 2, 3, 4])
    assert bench.around.looks == 2  # once a block
    kept = bench.history.runs("m-1")
    assert [position for position, _run in kept] == [0, 1, 2, 3]
    assert tuple(run for _position, run in kept) == measured.runs
    first = measured.runs[0]
    assert (first.hosts, first.gpu, first.readings[0].value) == (("gpu1", "gpu2"), "A100", 5.0)
    assert (first.circumstances, first.why) == (RunEnvironment((("", "knobs", "none"),)), "")
    assert Path(first.log).read_bytes() == bench.output
    assert [(told.number, told.of) for told in bench.told if told.run] == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_the_time_in_the_queue_is_no_time_of_a_run(bench: Bench) -> None:
    now = time.time()
    queued = Transition(now - 1000.0, JobState.QUEUED), Transition(now, JobState.RUNNING)
    bench.says = lambda _spec: record(transitions=queued, ended=now)
    assert bench().runs[0].seconds == 0.0  # 1000 s of waiting are taken off what the clock showed


@pytest.mark.parametrize(
    ("says", "why"),
    [
        (
            record(JobState.FAILED, 2, reason="rank 0 exited with 2", findings=(FINDING,)),
            "job m-1-r1 FAILED: rank 0 exited with 2; Python finds no script /x.py.",
        ),
        (AgentError("4 ranks do not fit", "use -H", 4), "4 ranks do not fit; use -H"),
        (record(), "no line matches"),
    ],
)
def test_a_run_without_a_sample_is_kept_with_the_reason_and_the_rest_goes_on(
    bench: Bench, says: JobRecord | AgentError, why: str
) -> None:
    bench.output = b"host/0 | lost\nhost/mpirun | ----\n"

    def once(_spec: JobSpec) -> JobRecord:
        if len(bench.ran) > 1:
            bench.output = b"rate 5\n"
            return record()
        if isinstance(says, AgentError):
            raise says
        return says

    bench.says = once
    measured = bench()
    assert measured.runs[0].why == why
    assert [bool(run.readings) for run in measured.runs][2:] == [True, True]
    assert "m-1-r1" not in bench.deleted
    assert bench.told[-1].run is not None
    failed = next(told for told in bench.told if told.run)
    assert failed.evidence == ("host/0 | lost",)  # what the launcher says of it is none
    assert not measured.hosts_failed


@pytest.mark.parametrize(("state", "runs"), [(JobState.SUCCEEDED, 1), (JobState.FAILED, 4)])
def test_one_that_cannot_be_read_ends_a_plan_that_asks_for_it(bench: Bench, state: JobState, runs: int) -> None:
    bench.plan = replace(bench.plan, ends_unread=True)
    bench.output, bench.says = b"host/0 | nothing\n", lambda _spec: record(state)
    assert bench().outcome == run_ladder.DONE
    assert len(bench.ran) == runs


def test_a_ladder_goes_on_where_it_broke_off(bench: Bench) -> None:
    bench.says = fails_at(3, KeyboardInterrupt(), bench)
    measured = bench()
    assert (measured.outcome, len(measured.runs)) == (run_ladder.INTERRUPTED, 2)
    assert (bench.stopped, bench.deleted) == (names([3]), names([1, 2, 3]))
    assert not (bench.plan.logs / "m-1-r3.log").exists()
    bench.says = lambda _spec: record()
    bench.ran.clear()
    measured = bench()
    assert (bench.ran, measured.outcome, len(measured.runs)) == (names([3, 4]), run_ladder.DONE, 4)
    bench.ran.clear()
    assert bench().runs == measured.runs
    assert bench.ran == []


class Row:
    """What `list` knows of a job."""

    def __init__(self, name: str, state: JobState) -> None:
        self.name, self.state = name, state


def test_what_a_broken_ladder_left_is_ended_before_it_goes_on(bench: Bench) -> None:
    bench.says = fails_at(2, HostError("gpu1: lost"), bench)
    assert bench().outcome == run_ladder.HEAD_LOST
    running, failed, other = (
        Row("m-1-r2", JobState.RUNNING),
        Row("m-1-r1", JobState.FAILED),
        Row("m-12-r2", JobState.RUNNING),
    )
    theirs = Row("m-1-resnet", JobState.RUNNING)
    bench.rows = [running, failed, other, theirs, Row("m-1-r4", JobState.SUCCEEDED)]
    bench.says = lambda _spec: record()
    bench.ran.clear()
    bench.deleted.clear()
    bench()
    assert bench.stopped == ["m-1-r2"]
    assert bench.deleted[:2] == ["m-1-r2", "m-1-r4"]  # the first run is kept, and so is its record
    assert bench.ran == names([2, 3, 4])


def test_without_a_head_nothing_is_measured(bench: Bench) -> None:
    bench.says = fails_at(1, HostError("gpu1: lost"), bench)
    with pytest.raises(HostError, match="gpu1: lost"):
        bench()
    assert bench.history.runs("m-1") == ()


def test_hosts_that_cannot_be_used_are_told_from_jobs_that_fail(bench: Bench) -> None:
    bench.says, bench.output = raiser(AgentError("gpu2 cannot be used", None, 5)), b""
    measured = bench()
    assert (measured.hosts_failed, len(measured.runs)) == (True, 4)


def test_a_time_budget_ends_between_runs_and_complete_rounds_count(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 10_000, 10))  # each run takes 10 s: the clock is read twice a run
    monkeypatch.setattr("taco_launch.bench.run.run_ladder.time.monotonic", lambda: next(clock))
    measured = bench(replace(bench.plan, budget=35.0))
    assert (measured.outcome, len(bench.ran), len(measured.runs)) == (run_ladder.TIME_BUDGET, 3, 2)
    assert bench.told[-1].left == 5.0, "the budget ends the ladder before its other runs are made"
    assert len(bench.history.runs("m-1")) == 3
    # What was spent before it broke off counts.
    assert bench(replace(bench.plan, budget=35.0)).outcome == run_ladder.TIME_BUDGET
    assert len(bench.ran) == 3


@pytest.mark.parametrize(
    ("budget", "ends", "outcome"),
    [
        (None, KeyboardInterrupt(), run_ladder.INTERRUPTED),
        (None, HostError("gpu1: lost"), run_ladder.HEAD_LOST),
        (75.0, None, run_ladder.TIME_BUDGET),
    ],
)
def test_all_tables_of_a_sweep_that_broke_off_agree(
    budget: float | None,
    ends: BaseException | None,
    outcome: str,
    bench: Bench,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`bench ladder`, `history`, and the report, which `plot` draws."""
    clock, values, cells = itertools.count(0, 10), itertools.count(1), CELLS[::-1]
    monkeypatch.setattr("taco_launch.bench.run.run_ladder.time.monotonic", lambda: next(clock))
    one = Ladder("m-2", "m", LadderKind.LADDER, "d", 7, "c", 2.0, variants=("b", "a"))
    bench.history.begin(one)
    plan = replace(
        bench.plan,
        ladder=one,
        steps=order(cells, 3, 1, 7),
        budget=budget,
        logs=tmp_path,
        read=lambda _cell, _text: (Measurement(Metric("r", "r"), float(next(values))),),
    )
    bench.says = bench.says if ends is None else fails_at(8, ends, bench)
    measured = bench(plan)
    assert (measured.outcome, len(bench.history.runs(one.id))) == (outcome, 7)
    (shown,) = tables(cells, measured.runs)
    assert {len(entry.values) for entry in shown.entries} == {2}
    assert read_history.read(bench.history, one).measured == (shown,)
    assert [(point.cell, point.count, point.mean) for point in bench.history.series(SeriesQuery())] == [
        (entry.cell, len(entry.values), entry.rate.value) for entry in shown.entries
    ]


def test_the_same_ladder_is_measured_once_at_a_time(tmp_path: Path) -> None:
    with run_ladder.exclusive_lock(tmp_path, "a" * 64):
        with (
            pytest.raises(TacoLaunchError, match="being measured already, by process"),
            run_ladder.exclusive_lock(tmp_path, "a" * 64),
        ):
            pass
        with run_ladder.exclusive_lock(tmp_path, "b" * 64):
            pass
    with run_ladder.exclusive_lock(tmp_path, "a" * 64):
        pass


def test_a_ladder_is_another_with_another_job_or_number(bench: Bench) -> None:
    matrix = Matrix("m", (), (), (1,), digest="text")
    specs = bench.plan.specs
    first = CELLS[0]
    others = [
        (replace(matrix, digest="other"), specs),
        (replace(matrix, repeats=6), specs),
        (matrix, {**specs, first: replace(specs[first], env=(("A", "1"),))}),
        (matrix, {first: specs[first]}),
    ]
    own = LadderKind.LADDER
    same = run_ladder.digest(own, matrix, specs)
    assert run_ladder.digest(own, replace(matrix, time_budget=9.0), dict(specs)) == same
    found = {
        same,
        run_ladder.digest(LadderKind.NIGHTLY_RUN, matrix, specs),
        *(run_ladder.digest(own, *other) for other in others),
    }
    assert len(found) == 6


def test_a_log_without_end_is_kept_up_to_a_limit(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that writes for ever would fill the controller's disk, and its memory when the log is read."""
    monkeypatch.setattr(run_ladder, "MOST_BYTES", 1 << 20)
    bench.output = b"x" * 1023 + b"\n"
    bench.output *= 4096
    bench()
    logs = [path.read_bytes() for path in tmp_path.rglob("*.log")]
    assert logs
    for log in logs:
        assert (1 << 20) - 1200 < len(log) <= 1 << 20
        *lines, last = log.splitlines()
        assert set(map(len, lines)) == {1023}
        assert last == b"taco-launch: log truncated: only its first 1 MiB are kept"
