"""A pytest plugin: groups of tests/budget.toml for xdist, and a table of what each module took beside its budget."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests import budget

_ROOT = Path(__file__).parent
# A report's attribute that carries CPU seconds from a worker to the process that prints the table.
_CPU = "cpu_seconds"
# The test modules that this process has collected, and the sections that their tests belong to.
COLLECTED: pytest.StashKey[dict[str, set[str]]] = pytest.StashKey()


@dataclass
class _Spent:
    """What the tests of a module took so far, in seconds; `nightly` says whether one of them is of the nightly tier."""

    wall: float = 0.0
    cpu: float = 0.0
    nightly: bool = False


def pytest_configure(config: pytest.Config) -> None:
    """Read the budget once for each process."""
    config.pluginmanager.register(_Budget(budget.load()), "budget")


class _Budget:
    """The hooks, and what they have measured."""

    def __init__(self, sections: dict[str, budget.Section]) -> None:
        """Index the modules by their path below tests/."""
        self._modules = {module.path: module for section in sections.values() for module in section.modules}
        self._group_seconds = {
            name: seconds
            for section in sections.values()
            for name, seconds in budget.group_seconds(section.modules).items()
            if name
        }
        self._spent: dict[str, _Spent] = {}
        self._cpu_before = _cpu_seconds()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Note which modules there are, and put the longest groups first where workers share the tests."""
        collected = config.stash.setdefault(COLLECTED, {})
        for item in items:
            path = _below_tests(item.path)
            belongs = {name for name in budget.SECTIONS if item.get_closest_marker(name)}
            collected.setdefault(path, set()).update(belongs)
        if hasattr(config, "workerinput"):
            items.sort(key=self._group_order)

    def _group_order(self, item: pytest.Item) -> tuple[float, str]:
        group = self._group(item.path)
        return (-self._group_seconds.get(group, 0.0), group)

    def _group(self, file: Path) -> str:
        module = self._modules.get(_below_tests(file))
        return module.group if module else ""

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
        """Assign the tests of a group to one worker, any other test to whichever is free.

        So does xdist's own `--dist loadgroup` by the marker xdist_group; but xdist 3.8 tells the groups by changing the
        ids of tests in a way that pytest 9.2 takes no notice of, and then every test goes to whichever is free.
        """
        return _ByGroup(config, log, self._group) if config.getvalue("dist") == "loadgroup" else None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None] | pytest.TestReport:
        """Add the CPU seconds since the report before to this one."""
        report: pytest.TestReport = yield  # type: ignore[misc, assignment]
        now = _cpu_seconds()
        setattr(report, _CPU, now - self._cpu_before)
        self._cpu_before = now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up what a module took."""
        spent = self._spent.setdefault(_below_tests(Path(report.fspath)), _Spent())
        spent.wall += report.duration
        spent.cpu += getattr(report, _CPU, 0.0)
        spent.nightly = spent.nightly or "nightly" in report.keywords

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print a row for each module that has a budget."""
        rows = [(self._modules[path], spent) for path, spent in self._spent.items() if path in self._modules]
        if not rows:
            return
        terminalreporter.section("time budget (tests/budget.toml), in seconds")
        terminalreporter.line(f"{'module':<36}{'group':<12}{'budget':>8}{'took':>8}{'CPU':>8}")
        for module, spent in sorted(rows, key=lambda row: -row[1].wall):
            limit = module.seconds + (module.nightly if spent.nightly else 0.0)
            over = "  OVER" if spent.wall > limit else ""
            line = f"{module.path:<36}{module.group:<12}{limit:>8.0f}{spent.wall:>8.1f}{spent.cpu:>8.1f}{over}"
            terminalreporter.line(line)
        terminalreporter.line("CPU: of the test processes and of the processes that these have waited for")


class _ByGroup(LoadScopeScheduling):  # type: ignore[misc]  # xdist carries no types
    """Tests in the units that one worker runs as a whole."""

    def __init__(self, config: pytest.Config, log: Producer, group: Callable[[Path], str]) -> None:
        super().__init__(config, log)
        self._group = group

    def _split_scope(self, nodeid: str) -> str:
        return self._group(Path(nodeid.partition("::")[0])) or nodeid


def _below_tests(path: Path) -> str:
    """Return a test module's name in the budget: its path below tests/."""
    absolute = path if path.is_absolute() else _ROOT.parent / path
    return absolute.relative_to(_ROOT).as_posix() if absolute.is_relative_to(_ROOT) else ""


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
