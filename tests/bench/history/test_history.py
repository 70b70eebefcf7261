"""The history: what is added is there again; which nightly runs are baselines; which ladder continues."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.bench.history.history import History, LadderKind, default_path, open_history
from taco_launch.bench.history.series import SeriesQuery
from taco_launch.bench.model.runs import Measurement, Metric, MetricKey, Run
from taco_launch.bench.stats.estimates import Interval
from taco_launch.bench.stats.verdicts import Verdict, VerdictKind
from taco_launch.core.errors import TacoLaunchError
from tests.support.ladders import RATE, RUNS, ladder, run

KEY = MetricKey(("gpu2", "gpu1"), "A100", "horovod", "tcp", 16, "img/sec")


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with open_history(tmp_path / "folder" / "history.db") as found:
        yield found


def fill(history: History, nights: dict[int, tuple[float, ...]], **more: Any) -> None:
    """Add an accepted nightly run for each number, with a run for each value."""
    for number, values in nights.items():
        night = ladder(number, accepted=True, **more)
        history.merge(night, [(place, run(value)) for place, value in enumerate(values)])


def test_a_run_is_read_as_it_was_added(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    numbers = itertools.count()

    @given(runs=st.lists(RUNS, max_size=4))
    def check(runs: list[Run]) -> None:
        one = ladder(next(numbers))
        with open_history(path) as history:
            history.begin(one)
            for place, added in enumerate(runs):
                history.add(one.id, 2 * place, added)
        with open_history(path, create=False) as history:
            assert history.runs(one.id) == tuple((2 * place, added) for place, added in enumerate(runs))

    check()


def test_it_lies_in_the_state_folder() -> None:
    assert default_path({"TACO_LAUNCH_STATE": "/srv/state"}) == Path("/srv/state/history.db")


def test_a_ladder_from_its_begin_to_its_end(history: History) -> None:
    history.begin(ladder(1, digest="a"))
    history.begin(ladder(2, digest="a", kind=LadderKind.LADDER))
    history.begin(ladder(3, digest="b", matrix="lab"))
    assert history.resumable("a") == ladder(2, digest="a", kind=LadderKind.LADDER)
    history.end(ladder(2).id, "done")
    assert history.resumable("a") == ladder(1, digest="a")
    ended = history.ladder(ladder(2).id)
    assert ended is not None
    assert ended.outcome == "done"
    assert ended.ended is not None
    assert ended.ended > 1.7e9
    assert [one.seed for one in history.ladders()] == [3, 2, 1]
    assert [one.seed for one in history.ladders(matrix="taco", limit=1)] == [2]
    assert [one.seed for one in history.ladders(LadderKind.NIGHTLY_RUN)] == [3, 1]
    assert history.resumable("c") is None
    assert history.ladder("taco-") is None


def test_places_are_taken_once(history: History) -> None:
    history.begin(ladder(1))
    history.add(ladder(1).id, 0, run(1.0))
    with pytest.raises(TacoLaunchError, match="a sweep taco-000001 already exists"):
        history.begin(ladder(1, matrix="other"))
    with pytest.raises(TacoLaunchError, match="run 0 of sweep taco-000001 cannot be added: UNIQUE"):
        history.add(ladder(1).id, 0, run(2.0))
    with pytest.raises(TacoLaunchError, match="run 0 of sweep nobody cannot be added: FOREIGN KEY"):
        history.add("nobody", 0, run(2.0))
    assert history.runs(ladder(1).id) == ((0, run(1.0)),)


def test_the_baseline_is_of_accepted_nights_of_the_key(history: History) -> None:
    fill(history, {3: (3.0, 3.5), 1: (1.0,), 2: (2.0,)})
    history.begin(ladder(4))  # not accepted
    history.add(ladder(4).id, 0, run(4.0))
    fill(history, {5: (5.0,)}, kind=LadderKind.LADDER)  # no nightly run
    fill(history, {6: (6.0,)}, cluster="other")
    elsewhere = Measurement(Metric("busbw 8 B", "GB/s"), 70.0)
    not_counted = [
        *(run(7.0, warm_up=True), run(None), run(7.0, variant="rdma"), run(7.0, ranks=8), run(7.0, gpu="H100")),
        *(run(7.0, hosts=("gpu1",)), run(None, readings=(elsewhere,))),
    ]
    history.merge(ladder(7, accepted=True), list(enumerate(not_counted)))
    everything = ((1.0,), (2.0,), (3.0, 3.5), (6.0,))
    assert history.nightly_runs(KEY, 20, 100.0) == everything
    assert history.nightly_runs(replace(KEY, hosts=("gpu1", "gpu2")), 20, 100.0) == everything
    assert history.nightly_runs(KEY, 20, 100.0, "taco", "hcc") == everything[:3]
    assert history.nightly_runs(KEY, 2, 100.0, "taco", "hcc") == everything[1:3]
    assert history.nightly_runs(KEY, 20, 3.0, "taco", "hcc") == everything[:2]
    assert history.nightly_runs(KEY, 20, 100.0, matrix="lab") == ()
    history.accept(ladder(4).id)
    assert history.nightly_runs(KEY, 1, 100.0, "taco", "hcc") == ((4.0,),)


def test_runs_that_wait_are_those_since_the_oldest_that_counts(history: History) -> None:
    outcomes = {1: "pending", 2: "ok", 3: "unsure", 4: "regression", 5: "pending"}
    for number, outcome in outcomes.items():
        history.merge(
            ladder(number, ended=float(number), outcome=outcome, accepted=outcome == "ok"), [(0, run(number))]
        )
    waiting = ("unsure", "pending")
    assert history.nightly_runs(KEY, 20, 100.0, "taco", "hcc", waiting) == ((3.0,), (5.0,))
    assert history.nightly_runs(KEY, 20, 5.0, "taco", "hcc", waiting) == ((3.0,),)
    history.reject(ladder(2).id, "rejected")
    assert history.nightly_runs(KEY, 20, 100.0, "taco", "hcc", waiting) == ((1.0,), (3.0,), (5.0,))


def test_a_reset_is_of_a_matrix_on_a_cluster_and_of_what_was_before(history: History) -> None:
    fill(history, {1: (1.0,), 2: (2.0,), 3: (3.0,)})
    fill(history, {4: (4.0,)}, cluster="other", started=0.4)
    fill(history, {5: (5.0,)}, matrix="lab", started=0.5)
    history.reset(3.0, "taco", "hcc")
    assert history.nightly_runs(KEY, 20, 100.0) == ((4.0,), (5.0,), (3.0,))
    assert [one.seed for one in history.baseline("taco", "hcc")] == [3]
    assert len(history.ladders()) == 5
    history.accept(ladder(1).id)
    assert [one.seed for one in history.baseline("taco", "hcc")] == [3, 1]


def test_verdicts_are_kept_and_replaced(history: History) -> None:
    history.begin(ladder(1))
    found = (
        Verdict(KEY, VerdictKind.REGRESSION, Interval(-0.31, -0.33, -0.28), 0.0001, "31 % slower"),
        Verdict(replace(KEY, variant="rdma"), VerdictKind.NO_VERDICT_YET, None, None, "3 of 10 nightly runs"),
        Verdict(replace(KEY, ranks=1), VerdictKind.OK, Interval(0.01, None, None), 0.5, "no change"),
    )
    history.keep_verdicts(ladder(1).id, found[:1])
    history.keep_verdicts(ladder(1).id, found)
    assert history.verdicts(ladder(1).id) == found
    assert history.verdicts("other") == ()


def test_a_merge_adds_what_is_new_and_refuses_what_is_another(history: History) -> None:
    begun = ladder(1, ended=None)
    assert history.merge(begun, [(0, run(1.0))]) == 1
    ended = replace(begun, ended=9.0, outcome="done", accepted=True)
    assert history.merge(ended, [(0, run(1.0)), (1, run(2.0))]) == 1
    assert history.merge(ended, [(0, run(1.0)), (1, run(2.0))]) == 0
    # that it is accepted over there is decided there
    assert history.ladder(begun.id) == replace(ended, accepted=False, imported=True)
    with pytest.raises(TacoLaunchError, match="run 1 of sweep taco-000001 differs from the same run in"):
        history.merge(ended, [(2, run(3.0)), (1, run(2.5))])
    with pytest.raises(TacoLaunchError, match="a sweep taco-000001 already exists with other content"):
        history.merge(replace(ended, seed=5), [(2, run(3.0))])
    assert [place for place, _ in history.runs(begun.id)] == [0, 1]


def test_a_series_is_ladder_by_ladder_and_oldest_first(history: History) -> None:
    for number, value in ((2, 20.0), (1, 10.0), (3, 30.0)):
        runs = [run(value), run(value + 2), run(99.0, warm_up=True), run(5.0, "rdma"), run(None), run(7.0, ranks=8)]
        history.merge(ladder(number), list(enumerate(runs)))
    of_tcp = history.series(SeriesQuery(variant="tcp", ranks=16))
    assert [(one.ladder, one.count, one.mean, one.least, one.greatest) for one in of_tcp] == [
        ("taco-000001", 2, 11.0, 10.0, 12.0),
        ("taco-000002", 2, 21.0, 20.0, 22.0),
        ("taco-000003", 2, 31.0, 30.0, 32.0),
    ]
    assert (of_tcp[0].hosts, of_tcp[0].gpu, of_tcp[0].metric) == (("gpu1", "gpu2"), "A100", RATE)
    everything = history.series(SeriesQuery(last=2))
    assert [(one.cell.variant, one.cell.ranks, one.started) for one in everything] == [
        *(("rdma", 16, 2.0), ("tcp", 8, 2.0), ("tcp", 16, 2.0)),
        *(("rdma", 16, 3.0), ("tcp", 8, 3.0), ("tcp", 16, 3.0)),
    ]
    assert history.series(SeriesQuery(hosts=("gpu1", "gpu2"))) == history.series(SeriesQuery())
    nothing = (
        SeriesQuery(hosts=("gpu3",)),
        SeriesQuery(matrix="lab"),
        SeriesQuery(metric="busbw"),
        SeriesQuery(workload="tf"),
    )
    assert [history.series(asked) for asked in nothing] == [(), (), (), ()]
