"""What `scripts/faults` adds to pytest: which cases, how often, and a table of them at the end."""

import statistics
from collections.abc import Iterator

import pytest

# What a test tells of the time that it took, where that is not its own.
SECONDS = "seconds"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("faults")
    group.addoption("--repeat", type=int, default=1, metavar="N", help="run every case N times")
    group.addoption("--list", action="store_true", dest="list_cases", help="print the cases, and run none")
    group.addoption("--case", action="append", default=[], metavar="CASE", help="run this case only; may be repeated")


def pytest_configure(config: pytest.Config) -> None:
    """Keep what was found beside the configuration."""
    config.pluginmanager.register(_Table(), "faults-table")


def case_of(item: pytest.Item) -> str:
    """Return a case's name: that of a wave, or else of the test."""
    params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    name = item.originalname if isinstance(item, pytest.Function) else item.name
    return str(params.get("case", name.removeprefix("test_").replace("_", "-")))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the cases that were named.

    Raises:
        UsageError: there is no such case.
    """
    wanted = set(config.getoption("--case"))
    known = {case_of(item) for item in items}
    if config.getoption("list_cases"):
        print(*sorted(known), sep="\n")
        items.clear()
        return
    if wanted - known:
        unknown = ", ".join(sorted(wanted - known))
        raise pytest.UsageError(f"no such case: {unknown}; there are: {', '.join(sorted(known))}")
    if wanted:
        items[:] = [item for item in items if case_of(item) in wanted]


class _Table:
    """How each case went, every time."""

    def __init__(self) -> None:
        self._seconds: dict[str, list[float]] = {}
        self._passed: dict[str, int] = {}
        self._skipped: dict[str, str] = {}
        self._left: list[str] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Iterator[None] | pytest.TestReport:
        report: pytest.TestReport = yield  # type: ignore[misc, assignment]
        case = case_of(item)
        if report.skipped:
            self._skipped[case] = str(call.excinfo.value) if call.excinfo else ""
        elif report.when == "call" or (report.when == "setup" and report.failed):
            told: object = dict(item.user_properties).get(SECONDS, call.duration)
            self._seconds.setdefault(case, []).append(told if isinstance(told, float) else call.duration)
            self._passed[case] = self._passed.get(case, 0) + report.passed
        elif report.when == "teardown" and report.failed:  # what the cases of a wave left behind
            self._left.append(case)
        return report

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table."""
        if not self._seconds and not self._skipped:
            return
        terminalreporter.section("faults")
        terminalreporter.line(f"{'case':<40}{'runs':>6}{'passed':>8}{'median s':>10}{'worst s':>9}")
        for case, runs in self._seconds.items():
            numbers = f"{len(runs):>6}{self._passed[case]:>8}{statistics.median(runs):>10.1f}{max(runs):>9.1f}"
            terminalreporter.line(f"{case:<40}{numbers}{'' if self._passed[case] == len(runs) else '  FAILED'}")
        for case in self._left:
            terminalreporter.line(f"{'after ' + case:<40}something was left: FAILED")
        for case, why in self._skipped.items():
            terminalreporter.line(f"{case:<40}{'skipped: ' + why}")
