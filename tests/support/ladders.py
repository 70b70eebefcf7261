"""Ladders and runs that the tests of the history keep, read and compare; and any there could be, for hypothesis."""

from typing import Any

from hypothesis import strategies as st

from taco_launch.bench.history.history import Ladder, LadderKind
from taco_launch.bench.model.runs import Cell, Measurement, Metric, Run, RunEnvironment

RATE = Metric("img/sec", "img/sec")


def ladder(number: int, **more: Any) -> Ladder:
    """Return the nightly run of a day; `started` is the day's number."""
    values = {"matrix": "taco", "kind": LadderKind.NIGHTLY_RUN, "digest": "d", "seed": number, "cluster": "hcc"}
    return Ladder(**{"id": f"taco-{number:06x}", **values, "started": float(number), **more})


def run(value: float | None, variant: str = "tcp", ranks: int = 16, **more: Any) -> Run:
    """Return a run of two hosts that measured `value`, or has no sample."""
    values: dict[str, Any] = {
        "cell": Cell("horovod", variant, ranks),
        "repeat": 0,
        "warm_up": False,
        "job": "taco-r1",
        "started": 10.5,
        "seconds": 55.25,
        "hosts": ("gpu2", "gpu1"),
        "gpu": "A100",
        "readings": () if value is None else (Measurement(RATE, value),),
        "why": "" if value is not None else "job failed: exit code 1",
        "log": "/var/lib/taco-launch/ladders/taco/r1.log",
        "circumstances": RunEnvironment((("", "command", "python3 train.py"), ("gpu1", "driver", "535.104.05"))),
    }
    return Run(**{**values, **more})


# What UTF-8 and CSV can hold: Python 3.10 reads no NUL in CSV.
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
NAME = TEXT.filter(bool)
TIME = st.floats(0, 1e11)
_POSITIVE = st.floats(1e-18, 1e30)  # see bench.runs.is_reading
_METRIC = st.builds(Metric, NAME, TEXT, st.booleans())
_READINGS = st.lists(st.builds(Measurement, _METRIC, _POSITIVE), max_size=4, unique_by=lambda one: one.metric.name).map(
    tuple
)
_FACTS = st.lists(st.tuples(TEXT, TEXT, TEXT), max_size=4).map(lambda facts: RunEnvironment(tuple(sorted(facts))))
RUNS = st.builds(
    Run,
    cell=st.builds(Cell, TEXT, TEXT, st.integers(1, 1 << 40)),
    repeat=st.integers(0, 1000),
    warm_up=st.booleans(),
    job=TEXT,
    started=TIME,
    seconds=TIME,
    hosts=st.lists(NAME, max_size=3, unique=True).map(tuple),
    gpu=TEXT,
    readings=_READINGS,
    why=TEXT,
    log=TEXT,
    circumstances=_FACTS,
)
LADDERS = st.builds(
    Ladder,
    id=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", fullmatch=True),
    matrix=TEXT,
    kind=st.sampled_from(LadderKind),
    digest=TEXT,
    seed=st.integers(0, (1 << 63) - 1),
    cluster=TEXT,
    started=TIME,
    ended=st.none() | TIME,
    outcome=TEXT,
    accepted=st.booleans(),
    variants=st.lists(TEXT, max_size=3).map(tuple),
)
