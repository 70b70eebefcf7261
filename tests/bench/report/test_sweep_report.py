"""What a report shows of a sweep, by runs that are written down."""

from dataclasses import replace

from taco_launch.bench.model.runs import RunEnvironment
from taco_launch.bench.report.markdown import markdown
from taco_launch.bench.report.sweep_report import Sweep, report
from tests.support.ladders import ladder, run


def sweep(number: int, *rates: float, driver: str = "1") -> Sweep:
    """Return a sweep of one cell."""
    on = RunEnvironment((("gpu1", "driver", driver),))
    runs = (run(rate, repeat=at, circumstances=on) for at, rate in enumerate(rates))
    return Sweep(ladder(number), tuple(runs))


def test_the_baseline_is_the_variant_that_was_asked_for() -> None:
    both = Sweep(ladder(1), (*(run(r, "tcp", repeat=n) for n, r in enumerate((9.0, 10.0))), run(20.0, "rdma")))
    assert report(both, (), ()).measured[0].variants == ("rdma", "tcp")
    named = report(both, (), (), "tcp")
    assert named.measured[0].variants == ("tcp", "rdma")
    assert named.sentences[0].startswith("horovod: tcp to rdma: at 16 GPUs")


def test_of_sweeps_of_earlier_versions_the_first_variant_is_known() -> None:
    runs = tuple(run(10.0, variant) for variant in ("plain", "bad", "slow"))
    shown = report(Sweep(ladder(1, variants=("plain",)), runs), (), ())
    assert shown.measured[0].variants == ("plain", "bad", "slow")
    assert report(Sweep(ladder(1, variants=("slow",)), runs), (), ()).measured[0].variants == ("slow", "bad", "plain")
    named = report(Sweep(ladder(1, variants=("plain", "slow", "bad")), runs), (), (), "bad")
    assert named.measured[0].variants == ("bad", "plain", "slow")


def test_earlier_sweeps_show_trends_and_what_changed_between_them() -> None:
    before = (sweep(1, 10.0, 12.0), sweep(2, 11.0))
    shown = report(sweep(3, 8.0, driver="2"), before, ())
    (trend,) = shown.trends
    assert trend.points == ((1.0, 11.0, 10.0, 12.0), (2.0, 11.0, 11.0, 11.0), (3.0, 8.0, 8.0, 8.0))
    (change,) = shown.changes
    assert (change.ladder, change.differs) == (ladder(3).id, (("driver", "1", "2"),))


def test_a_host_that_is_slow_beside_others_is_named() -> None:
    runs = tuple(
        run(rate, repeat=n, hosts=(host,)) for n, (host, rate) in enumerate((("a", 10.0), ("b", 10.0), ("c", 8.0)))
    )
    (slow,) = report(Sweep(ladder(1), runs), (), ()).slow
    assert (slow.host, slow.share, slow.runs) == ("c", 0.8, 1)
    same = tuple(run(10.0, repeat=n, hosts=(host,)) for n, host in enumerate("abc"))
    assert report(Sweep(ladder(1), same), (), ()).slow == ()


def test_cells_without_a_sample_are_named_and_warm_ups_do_not_count() -> None:
    runs = (run(5.0, warm_up=True), run(10.0), run(None, "rdma"))
    shown = report(Sweep(ladder(1), runs), (), ())
    assert [(gap.cell.variant, gap.failed) for gap in shown.missing] == [("rdma", 1)]
    assert [entry.values for entry in shown.measured[0].entries] == [(10.0,)]


def test_a_sweep_that_broke_off_says_so_and_compares_nothing() -> None:
    shown = report(Sweep(ladder(1), (run(5.0, "rdma", warm_up=True),)), (), ())
    page = markdown(shown, "en")
    assert "Nothing is compared: only one variant, or none, has samples." in page
    assert "- horovod/rdma/16: it was not run\n" in page
    assert "- Outcome: has not ended: it is still running or was interrupted\n" in page


def test_lines_of_the_legend_are_broken_by_a_backslash_but_the_last() -> None:
    shown = replace(report(sweep(1, 10.0), (), ()), legend="first\nsecond\nlast")
    assert "\n\nfirst\\\nsecond\\\nlast\n\n" in markdown(shown, "en")


def test_differences_that_are_not_shown_are_counted() -> None:
    def on(value: str) -> RunEnvironment:
        return RunEnvironment(tuple(("gpu1", f"driver of {number:02}", value) for number in range(20)))

    one, other = (Sweep(ladder(n), (run(10.0, circumstances=on(str(n))),)) for n in (1, 2))
    (change,) = report(other, (one,), ()).changes
    assert len(change.differs) == 13
    assert change.differs[-1] == ("8 more", "", f"taco-launch bench diff {ladder(1).id} {ladder(2).id}")
