"""A pytest plugin: the tests of a tier, groups for xdist, limits on a hang, and what each module took beside its budget."""

import datetime as dt
import faulthandler
import functools
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests import budget, flaky, owed

_ROOT = Path(__file__).parent
# A report's attribute that carries CPU seconds from a worker to the process that prints the table.
_CPU = "cpu_seconds"
# The e2e and lab tests of every module that this process has collected.
COLLECTED: pytest.StashKey[dict[str, set[str]]] = pytest.StashKey()
# So long before scripts/test ends a section, every process writes what it does.
_BEFORE_LIMIT_SECONDS = 15
# What faulthandler writes above each stack.
_STACKS = "(most recent call first)"


@dataclass
class _Spent:
    """What the tests of a module took so far, in seconds; how many have finished, and whether one failed."""

    wall: float = 0.0
    cpu: float = 0.0
    finished: int = 0
    failed: bool = False


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that scripts/test gives."""
    group = parser.getgroup("taco-launch")
    group.addoption("--tier", choices=("gate", "all"), default="all", help="tests to run (default: all)")
    group.addoption("--record", choices=("fast", "docs", *budget.SECTIONS), help="note which units of a section passed")
    group.addoption("--hard-limit", type=float, default=0, metavar="SECONDS", help="when the run will be ended")
    group.addoption("--running", type=Path, metavar="FOLDER", help="keep the name of each process's current test here")


def pytest_configure(config: pytest.Config) -> None:
    """Read the budget once for each process, and choose how many examples a property is tried with.

    A deadline per example fails on a busy machine and says nothing about the code. The gate tries the same few examples in
    every run: what others find belongs to the change that finds it, not to the next person's.
    """
    settings.register_profile("gate", deadline=None, max_examples=10, derandomize=True, database=None)
    settings.register_profile("project", deadline=None, max_examples=30)
    settings.register_profile("thorough", deadline=None, max_examples=100)
    if not config.getoption("--hypothesis-profile"):
        tier = config.getoption("tier")
        settings.load_profile("gate" if tier == "gate" else "thorough" if config.getoption("record") else "project")
    config.pluginmanager.register(_Budget(budget.load(), config), "budget")


class _Budget:
    """The hooks, and what they have measured."""

    def __init__(self, own: budget.Budget, config: pytest.Config) -> None:
        """Index the modules by their path below tests/."""
        self._budget = own
        self._tier: str = config.getoption("tier")
        self._is_worker = hasattr(config, "workerinput")
        gate = self._tier == "gate"
        self._group_seconds = {
            name: seconds
            for section in own.sections.values()
            for name, seconds in budget.group_seconds(section.modules, gate=gate).items()
            if name
        }
        self._spent: dict[str, _Spent] = {}
        self._expected: Counter[str] = Counter()
        self._cpu_before = _cpu_seconds()
        self._keys: dict[str, str] = {}  # of the units to record
        section = config.getoption("record")
        if section and not self._is_worker:
            mine = {module.path for module in own.sections[section].modules}
            self._keys = {unit: key for unit, key in owed.keys(own).items() if unit in mine}
        self._running = _running(config)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Note which tests there are, keep those of the tier, and put the longest groups first where workers share them."""
        collected = config.stash.setdefault(COLLECTED, {})
        for item in items:
            names = collected.setdefault(_below_tests(item.path), set())
            if _has_section(item):
                names.add(item.name)
        if self._tier == "gate":
            left_out = flaky.left_out(flaky.FILE.read_text("utf-8"), dt.datetime.now(dt.timezone.utc).date())
            chosen = [(item, self._is_in_gate(item, left_out)) for item in items]
            config.hook.pytest_deselected(items=[item for item, is_mine in chosen if not is_mine])
            items[:] = [item for item, is_mine in chosen if is_mine]
        if self._is_worker:
            items.sort(key=self._group_order)

    def _is_in_gate(self, item: pytest.Item, left_out: frozenset[str]) -> bool:
        if item.get_closest_marker("nightly") or item.nodeid in left_out:
            return False
        path = _below_tests(item.path)
        return self._budget.is_in_gate(path, item.name, has_line=_has_section(item))

    def _group_order(self, item: pytest.Item) -> tuple[float, str]:
        group = self._group(item.path)
        return (-self._group_seconds.get(group, 0.0), group)

    def _group(self, file: Path) -> str:
        module = self._budget.modules.get(_below_tests(file))
        return module.group if module else ""

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
        """Assign the tests of a group to one worker, any other test to whichever is free.

        So does xdist's own `--dist loadgroup` by the marker xdist_group; but xdist 3.8 tells the groups by changing the
        ids of tests in a way that pytest 9.2 takes no notice of, and then every test goes to whichever is free.
        """
        return _ByGroup(config, log, self._group) if config.getvalue("dist") == "loadgroup" else None

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Note how many tests each unit has; every worker collects the same."""
        self._expected = Counter(self._unit(Path(each.partition("::")[0])) for each in ids)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note how many tests each unit has, without workers."""
        if session.items:
            self._expected = Counter(self._unit(item.path) for item in session.items)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Note what this process is about to do, for whoever has to end it."""
        if self._running is not None:
            self._running.seek(0)
            self._running.truncate()
            self._running.write(f"{nodeid}\n")
            self._running.flush()

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
        spent = self._spent.setdefault(self._unit(Path(report.fspath)), _Spent())
        spent.wall += report.duration
        spent.cpu += getattr(report, _CPU, 0.0)
        spent.finished += report.when == "teardown"
        spent.failed = spent.failed or report.failed

    def pytest_sessionfinish(self) -> None:
        """Record the units that failed, or passed as a whole; end the watch for a hang."""
        if self._running is not None:
            faulthandler.cancel_dump_traceback_later()
            self._running.close()
            path = Path(self._running.name)
            if _STACKS not in path.read_text("utf-8", "replace"):
                path.unlink()
        lines = [
            owed.line(self._keys[unit], passed=not spent.failed, seconds=spent.wall, unit=unit)
            for unit, spent in self._spent.items()
            if unit in self._keys and (spent.failed or spent.finished >= self._expected[unit])
        ]
        if lines:
            with owed.RECORD.open("a", encoding="utf-8") as file:
                file.writelines(lines)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print a row for each module that has a budget."""
        modules = self._budget.modules
        rows = [(modules[path], spent) for path, spent in self._spent.items() if path in modules]
        if not rows:
            return
        terminalreporter.section("time budget (tests/budget.toml), in seconds")
        terminalreporter.line(f"{'module':<36}{'group':<12}{'budget':>8}{'took':>8}{'CPU':>8}")
        for module, spent in sorted(rows, key=lambda row: -row[1].wall):
            limit = module.seconds if self._tier == "gate" else module.whole
            over = "  OVER" if spent.wall > limit else ""
            line = f"{module.path:<36}{module.group:<12}{limit:>8.0f}{spent.wall:>8.1f}{spent.cpu:>8.1f}{over}"
            terminalreporter.line(line)
        terminalreporter.line("CPU: of the test processes and of the processes that these have waited for")

    def _unit(self, file: Path) -> str:
        return self._budget.unit(_below_tests(file))


class _ByGroup(LoadScopeScheduling):  # type: ignore[misc]  # xdist carries no types
    """Tests in the units that one worker runs as a whole."""

    def __init__(self, config: pytest.Config, log: Producer, group: Callable[[Path], str]) -> None:
        super().__init__(config, log)
        self._group = group

    def _split_scope(self, nodeid: str) -> str:
        return self._group(Path(nodeid.partition("::")[0])) or nodeid


def _running(config: pytest.Config) -> IO[str] | None:
    """Return this process's file for the name of its test; the stacks of its threads follow shortly before the limit."""
    folder, limit = config.getoption("running"), config.getoption("hard_limit")
    if folder is None:
        return None
    file: IO[str] = (folder / f"running-{os.getpid()}").open("w", encoding="utf-8")
    if limit > _BEFORE_LIMIT_SECONDS:
        faulthandler.dump_traceback_later(limit - _BEFORE_LIMIT_SECONDS, file=file)
    return file


def _has_section(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in budget.SECTIONS)


@functools.cache  # asked several times for each of 20,000 tests
def _below_tests(path: Path) -> str:
    """Return a test module's name in the budget: its path below tests/."""
    absolute = path if path.is_absolute() else _ROOT.parent / path
    return absolute.relative_to(_ROOT).as_posix() if absolute.is_relative_to(_ROOT) else ""


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
