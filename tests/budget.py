"""What the tests may take, and which of them the gate runs: tests/budget.toml, and what follows from it."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = Path(__file__).with_name("budget.toml")
# The sections of scripts/test whose modules have a line each.
SECTIONS = ("e2e", "lab")
# What the whole gate may take on two idle cores, with what a machine keeps between runs.
MOST_SECONDS = 600


@dataclass(frozen=True)
class Module:
    """The line of a test module; tests/budget.toml says what its fields are.

    Tests of one group run one after the other on one worker. Those of a module without a group go to any worker.
    """

    path: str
    seconds: float
    extended: float
    covers: Sequence[str]
    gate: Sequence[str] = ()
    group: str = ""

    @property
    def whole(self) -> float:
        """The seconds of all its tests, as the extended tier runs them."""
        return self.seconds + self.extended


@dataclass(frozen=True)
class Section:
    """A section of scripts/test: its workers and its modules, or its rooms."""

    name: str
    workers: int
    modules: tuple[Module, ...]


@dataclass(frozen=True)
class Budget:
    """The whole file: `steps` has the seconds of sections without modules, `slow` how ids of slow fast tests begin.

    A unit is what is owed and passes as a whole: a module that has a line, or a room of fast tests (`agent/`).
    """

    steps: Mapping[str, float]
    slow: tuple[str, ...]
    sections: Mapping[str, Section]

    @cached_property
    def units(self) -> dict[str, Module]:
        """Every unit, by its path below tests/."""
        return {module.path: module for section in self.sections.values() for module in section.modules}

    @cached_property
    def modules(self) -> dict[str, Module]:
        """Every module that has a line, by its path below tests/."""
        return {path: module for path, module in self.units.items() if not path.endswith("/")}

    def unit(self, path: str) -> str:
        """Return the unit that a test module belongs to."""
        return path if path in self.modules else path.partition("/")[0] + "/"

    def section(self, unit: str) -> Section:
        """Return the section of scripts/test that runs a unit."""
        return next(section for section in self.sections.values() if self.units[unit] in section.modules)

    def is_in_gate(self, path: str, name: str, *, has_line: bool) -> bool:
        """Return whether the gate runs a test: `path` is its module below tests/, `name` its name with its parameters.

        An e2e or lab test has a line, which names it; any other one is in the gate unless it is slow.
        """
        if not has_line:
            return not f"{path}::{name}".startswith(self.slow)
        module = self.modules.get(path)
        return module is not None and name.startswith(tuple(module.gate))


def read(text: str) -> Budget:
    """Return a budget.

    Raises:
        ValueError: the text is not TOML, or an entry is missing or of a wrong type; the message names it.
    """
    try:
        document = tomllib.loads(text)
        sections = {name: _section(name, document[name]) for name in ("fast", "docs", *SECTIONS)}
        return Budget(document["steps"], tuple(document["fast"]["slow"]), sections)
    except (KeyError, TypeError) as error:
        raise ValueError(f"budget.toml: {type(error).__name__}: {error}") from error


def _section(name: str, table: Mapping[str, object]) -> Section:
    lines = table["modules"]
    if not isinstance(lines, Mapping):
        raise TypeError(f"[{name}.modules] is not a table")
    modules = tuple(Module(path, **entry) for path, entry in lines.items())
    return Section(name, int(str(table["workers"])), modules)


def load() -> Budget:
    """Return what tests/budget.toml says."""
    return read(FILE.read_text("utf-8"))


def gate_paths(budget: Budget, section: str) -> list[str]:
    """Return the files that have a section's gate tests; rooms of fast tests have no names of their own."""
    return [f"tests/{module.path}" for module in budget.sections[section].modules if module.gate]


def group_seconds(modules: Iterable[Module], *, gate: bool) -> dict[str, float]:
    """Return the seconds of each group, in the gate or in the extended tier; modules without a group count as ""."""
    seconds: dict[str, float] = {}
    for module in modules:
        own = module.seconds if gate else module.extended
        seconds[module.group] = seconds.get(module.group, 0.0) + own
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


def gate_seconds(budget: Budget) -> float:
    """Return what the gate takes."""
    return sum(budget.steps.values()) + sum(
        makespan(group_seconds(section.modules, gate=True), section.workers) for section in budget.sections.values()
    )


def faults(budget: Budget, collected: Mapping[str, Iterable[str]]) -> list[str]:
    """Return what is wrong with a budget.

    `collected` has the modules that pytest has found, by their paths below tests/, and the names of their e2e and lab tests.
    """
    wrong = [
        f"{path}: no line in tests/budget.toml"
        for path, names in collected.items()
        if (path if names else budget.unit(path)) not in budget.units
    ]
    for path, module in budget.units.items():
        names = tuple(collected.get(path, ()))
        if path in collected and not names:
            wrong.append(f"tests/budget.toml: {path} has no test of its section")
        if not module.covers:
            wrong.append(f"tests/budget.toml: {path}: covers nothing")
        if bool(module.gate) != bool(module.seconds):
            wrong.append(f"tests/budget.toml: {path}: seconds in the gate and names of its gate tests go together")
        wrong += [
            f"tests/budget.toml: {path}: no test's name begins with {start}"
            for start in module.gate
            if path in collected and not any(name.startswith(start) for name in names)
        ]
    took = gate_seconds(budget)
    if took > MOST_SECONDS:
        wrong.append(f"the gate takes {took:.0f} s, limit {MOST_SECONDS} s: move tests to the extended tier")
    return sorted(wrong)


if __name__ == "__main__":
    sys.stdout.writelines(f"{path}\n" for path in gate_paths(load(), sys.argv[1]))
