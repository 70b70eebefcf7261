"""A backend for tests, of which each test says what it answers; what nobody expects is a failure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from taco_launch.core.model.host.hosts import Inventory
from taco_launch.core.model.job_rows import JobRow
from taco_launch.core.model.job_view import JobUsage, JobView
from taco_launch.core.model.jobs import JobSpec
from taco_launch.jobs.backend import (
    CopiesRemoved,
    Counters,
    FollowListener,
    HeadFacts,
    HostOccupancy,
    LogQuery,
    Outcomes,
    Output,
)
from taco_launch.jobs.code.snapshot import Snapshot


class FakeBackend:
    """Refuses every call: a test overrides those that it expects."""

    name, typed, containers = "gpu1", "taco-launch", None

    def provide_code(self, snapshot: Snapshot, _say: Callable[[str], None]) -> None:
        raise AssertionError(f"provide_code {snapshot.id}")

    def submit(self, spec: JobSpec, _environ: Mapping[str, str]) -> JobView:
        raise AssertionError(f"submit {spec.name}")

    def run(self, spec: JobSpec, _environ: Mapping[str, str], _output: Output, _watch: FollowListener) -> JobView:
        raise AssertionError(f"run {spec.name}")

    def get(self, name: str) -> JobView:
        raise AssertionError(f"get {name}")

    def list(self) -> tuple[tuple[JobRow, ...], tuple[str, ...]]:
        raise AssertionError("list")

    def live(self) -> Any:
        raise AssertionError("live")

    def follow(self, query: LogQuery, _output: Output, _watch: FollowListener | None = None) -> JobView:
        raise AssertionError(f"follow {query}")

    def stop(
        self, names: Sequence[str], _by: str, _number: int, _grace: float | None = None, _owner: str | None = None
    ) -> Outcomes:
        raise AssertionError(f"stop {names}")

    def suspend(self, names: Sequence[str], _by: str, _owner: str | None = None) -> Outcomes:
        raise AssertionError(f"suspend {names}")

    def resume(self, names: Sequence[str], _by: str, _owner: str | None = None) -> Outcomes:
        raise AssertionError(f"resume {names}")

    def resize(self, names: Sequence[str], hosts: int, _by: str, _owner: str | None = None) -> Outcomes:
        raise AssertionError(f"resize {names} {hosts}")

    def delete(self, names: Sequence[str], _by: str | None = None, _owner: str | None = None) -> Outcomes:
        raise AssertionError(f"delete {names}")

    def prune(self, since: float, owner: str | None, *, dry_run: bool) -> tuple[tuple[JobRow, ...], tuple[str, ...]]:
        raise AssertionError(f"prune {since} {owner} {dry_run}")

    def prune_code(
        self, since: float, _inventory: Inventory, *, dry_run: bool
    ) -> tuple[tuple[CopiesRemoved, ...], tuple[str, ...]]:
        raise AssertionError(f"prune_code {since} {dry_run}")

    def nodes(self, _inventory: Inventory) -> tuple[HostOccupancy, ...]:
        raise AssertionError("nodes")

    def counters(self) -> Counters:
        raise AssertionError("counters")

    def at_rank(self, request: Any, *_more: Any) -> int:
        raise AssertionError(request)

    def stacks(self, name: str) -> Any:
        raise AssertionError(f"stacks {name}")

    def facts(self, **_what: Any) -> HeadFacts:
        raise AssertionError("facts")

    def used(self, _name: str) -> JobUsage | None:
        """Return that nothing was measured."""
        return None

    def send_message(self, _to: str, _message: Mapping[str, object]) -> str:
        """Return that it was delivered."""
        return ""

    def prestart(self, _operation: str) -> None:
        """Do nothing."""


def not_asked(missing: tuple[str, ...]) -> HeadFacts:
    """Stand for a head that no plan of the test has to ask."""
    raise AssertionError(missing)
