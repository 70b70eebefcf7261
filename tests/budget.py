"""The time that the gate may take: tests/budget.toml, and what follows from it. Pure but for reading that file."""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = Path(__file__).with_name("budget.toml")
# The sections of scripts/test whose modules have a line each.
SECTIONS = ("e2e", "lab")


@dataclass(frozen=True)
class Module:
    """The line of a test module: seconds in the gate, seconds that its nightly tests add, and its group ("": none).

    Tests of one group run one after the other on one worker. Those of a module without a group go to any worker.
    """

    path: str
    seconds: float
    nightly: float = 0.0
    group: str = ""


@dataclass(frozen=True)
class Section:
    """A section of scripts/test: its workers and modules, its limit in seconds, and what nightly tests may add to that.

    The limits are those of a machine with two idle cores.
    """

    name: str
    workers: int
    limit: float
    nightly_limit: float
    modules: tuple[Module, ...]


def read(text: str) -> dict[str, Section]:
    """Return the sections of a budget.

    Raises:
        ValueError: the text is not TOML, or an entry is missing or of a wrong type; the message names it.
    """
    try:
        document = tomllib.loads(text)
        return {name: _section(name, document[name]) for name in SECTIONS}
    except (KeyError, TypeError) as error:
        raise ValueError(f"budget.toml: {type(error).__name__}: {error}") from error


def _section(name: str, table: Mapping[str, object]) -> Section:
    lines = table["modules"]
    if not isinstance(lines, Mapping):
        raise TypeError(f"[{name}.modules] is not a table")
    modules = tuple(Module(path, **entry) for path, entry in lines.items())
    workers, limit, nightly = (float(str(table[key])) for key in ("workers", "limit", "nightly_limit"))
    return Section(name, int(workers), limit, nightly, modules)


def load() -> dict[str, Section]:
    """Return the sections of tests/budget.toml."""
    return read(FILE.read_text("utf-8"))


def group_seconds(modules: Iterable[Module], *, nightly: bool = False) -> dict[str, float]:
    """Return the seconds of each group, in the gate or with its nightly tests; modules without a group count as ""."""
    seconds: dict[str, float] = {}
    for module in modules:
        more = module.nightly if nightly else 0.0
        seconds[module.group] = seconds.get(module.group, 0.0) + module.seconds + more
    return seconds


def makespan(groups: Mapping[str, float], workers: int) -> float:
    """Return the seconds until the last worker is done: longest group first, each to the worker that is free first.

    What belongs to no group (the key "") fills the gaps.
    """
    busy = [0.0] * workers
    for seconds in sorted((value for name, value in groups.items() if name), reverse=True):
        busy[busy.index(min(busy))] += seconds
    free = groups.get("", 0.0)
    return max(*busy, (sum(busy) + free) / workers)


def faults(section: Section, collected: Mapping[str, bool]) -> list[str]:
    """Return what is wrong with a section: modules without a line, lines of no module, a path over the limit.

    `collected` has the test modules that pytest has found, and whether one of their tests belongs to the section.
    """
    lines = {module.path for module in section.modules}
    wrong = [
        f"{path}: no line in tests/budget.toml, [{section.name}.modules]"
        for path, belongs in collected.items()
        if belongs and path not in lines
    ]
    wrong += [
        f"tests/budget.toml: [{section.name}.modules]: {path} has no {section.name} test"
        for path in lines
        if not collected.get(path, True)
    ]
    gate, everything = (
        makespan(group_seconds(section.modules, nightly=nightly), section.workers) for nightly in (False, True)
    )
    if gate > section.limit:
        wrong.append(
            f"section {section.name} takes {gate:.0f} s on {section.workers} workers, limit {section.limit:.0f} s: "
            "make a test faster, or move a slow variation to the nightly tier"
        )
    if everything > section.limit + section.nightly_limit:
        wrong.append(
            f"section {section.name} with its nightly tests takes {everything:.0f} s on {section.workers} workers, "
            f"limit {section.limit + section.nightly_limit:.0f} s: make a test faster"
        )
    return sorted(wrong)
