"""Run a nightly run of a matrix on a cluster, as `nightly run` does."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from taco_launch.api import nightly_messages
from taco_launch.api.cluster import Cluster
from taco_launch.api.matrix_jobs import prepare_jobs
from taco_launch.api.slow_hosts import find_slow_hosts
from taco_launch.bench.history.history import LadderKind, default_path, open_history
from taco_launch.bench.logs.workloads import reader
from taco_launch.bench.model.ladder import order
from taco_launch.bench.model.matrix import Matrix
from taco_launch.bench.model.runs import Cell
from taco_launch.bench.nightly import run as flow
from taco_launch.bench.nightly.install import check_name
from taco_launch.bench.nightly.open_hosts import OpenHosts, open_hosts
from taco_launch.bench.nightly.record import folder, last_outcome
from taco_launch.bench.nightly.recorded_run import NightlyResult, check_junit, record_run
from taco_launch.bench.nightly.summary import NightlyOutcome, Summary
from taco_launch.bench.run import run_ladder as ladders
from taco_launch.bench.run.matrix_file import load
from taco_launch.bench.run.new_ladder import describe_few_repeats, ladders_folder, new_ladder, new_seed
from taco_launch.bench.stats.verdicts import JudgeRules
from taco_launch.core.command import shell
from taco_launch.core.errors import HostError
from taco_launch.core.frozen import dataclass
from taco_launch.core.model.job_request import JobRequest
from taco_launch.core.model.jobs import JobSpec
from taco_launch.jobs.backend import HostOccupancy

# Between two looks at a head or a host that does not answer.
_LOOK_SECONDS = 5.0


@dataclass(frozen=True)
class NightlyListener:
    """Functions that `run_nightly` calls while it measures."""

    # The cells that are measured, before the first run.
    cells: Callable[[Sequence[Cell]], None] = lambda _cells: None
    # How far the run is: at each change of the job that runs, and at its end.
    progress: Callable[[ladders.LadderProgress], None] = lambda _progress: None
    # What happens besides, in a sentence.
    say: Callable[[str], None] = lambda _words: None
    # What the user should know or change, in a sentence.
    warn: Callable[[str], None] = lambda _words: None
    # Which message did not arrive, and why.
    undelivered: Callable[[str], None] = lambda _words: None


@dataclass(frozen=True)
class NightlyOptions:
    """Settings of a nightly run other than its matrix."""

    # Name of the nightly run; by default the matrix's.
    name: str | None = None
    # How long to wait for a busy cluster or an unreachable host, in seconds.
    deadline: float = 3600.0
    # Remove the logs of nightly runs that are older than this, in seconds; their results stay.
    keep_logs: float = 30 * 86400.0
    # Whether a cell that is unsure or pending fails the run: `exit_code` 6.
    strict: bool = False
    # Whether to measure the hosts after a regression, to name the slow one, and drain it as the inventory's `health` says.
    bisect: bool = False
    # File for the result as JUnit XML; none by default.
    junit: Path | None = None
    # File of the history; by default history.db in the state folder.
    history: Path | None = None
    # The command that repeats the run; the summary of an interrupted run names it.
    again: str = ""


def run_nightly(
    cluster: Cluster,
    matrix: str | os.PathLike[str],
    options: NightlyOptions | None = None,
    listener: NightlyListener | None = None,
    resolve: Callable[[JobRequest], JobSpec] | None = None,
) -> NightlyResult:
    """Measure a matrix once, compare it with earlier nightly runs, write the summary, and return it.

    `matrix` is the path of a matrix, or the name of one that is shipped. A regression raises nothing: `summary.outcome` and
    `summary.exit_code` of what is returned show it. Ctrl-C ends the measurement, and the summary says so. `resolve` replaces
    `Cluster.resolve`.

    Raises:
        UsageError: the name or the JUnit file is not usable, or a job cannot run as the matrix requests it.
        SpecError: the matrix or the inventory is wrong.
        TacoLaunchError: this nightly run is already running, a file cannot be read or written, or scipy is not installed.
    """
    work = _NightlyWork(cluster, options or NightlyOptions(), listener or NightlyListener(), resolve or cluster.resolve)
    return work.run(os.fspath(matrix))


@dataclass(frozen=True)
class _NightlyWork:
    """One nightly run."""

    cluster: Cluster
    options: NightlyOptions
    listener: NightlyListener
    resolve: Callable[[JobRequest], JobSpec]

    def run(self, matrix: str) -> NightlyResult:
        """Run it. See `run_nightly`."""
        if self.options.junit is not None:
            check_junit(self.options.junit)
        # With a name, the record shows that the matrix is wrong; without one, the nightly run cannot be identified.
        loaded = None if self.options.name else load(matrix, self.cluster.environ)
        name = str(self.options.name) if loaded is None else loaded.name
        check_name(name)

        def measure(started: float) -> Summary:
            nonlocal loaded
            loaded = loaded or load(matrix, self.cluster.environ)
            begun = Summary(name, loaded.name, self.cluster.inventory.cluster, "not-begun", started, started)
            try:
                summary = self._measure(loaded, name)
            except HostError as error:
                summary = replace(begun, ended=time.time(), unfit=error.message)
            except KeyboardInterrupt:  # before anything was prepared
                summary = replace(begun, ended=time.time(), interrupted="nothing was measured")
            summary = replace(summary, typed=self.cluster.typed)
            return self._with_continuation(summary) if summary.interrupted else summary

        run_folder = folder(self.cluster.environ, os.geteuid(), name)
        before = last_outcome(run_folder)

        def publish(result: NightlyResult) -> None:
            page = nightly_messages.write_pages(result, self._history, self.listener.warn)
            notices = (*self.cluster.inventory.notify, *(loaded.notify if loaded else ()))
            nightly_messages.send(result, before, notices, (page or result.path,), self.listener.undelivered)

        return record_run(run_folder, name, self.options.junit, measure, publish)

    @property
    def _history(self) -> Path:
        return self.options.history or default_path(self.cluster.environ)

    def _measure(self, matrix: Matrix, name: str) -> Summary:
        cluster, options, listener = self.cluster, self.options, self.listener
        inventory = cluster.inventory
        if advice := describe_few_repeats(matrix.repeats, nightly=True):
            listener.warn(advice)
        until = time.monotonic() + options.deadline
        hosts = self._open_hosts(matrix, until)
        jobs = prepare_jobs(cluster, matrix, hosts.names, resolve=self.resolve, warn=listener.warn, say=listener.say)
        specs = jobs.specs
        seed = new_seed() if matrix.seed is None else matrix.seed
        digest = ladders.digest(LadderKind.NIGHTLY_RUN, matrix, specs)
        ladder = new_ladder(matrix.name, LadderKind.NIGHTLY_RUN, digest, seed, inventory.cluster, matrix.variants)
        steps = order(tuple(specs), matrix.repeats, matrix.warm_ups, seed)
        logs = ladders_folder(cluster.environ)
        plan = ladders.LadderPlan(ladder, steps, specs, reader(matrix), logs / ladder.id, matrix.time_budget)
        rules = JudgeRules(min_effect=matrix.min_effect)
        patience = max(0.0, until - time.monotonic())
        waits = f"waited {flow.span(hosts.waited)}: {hosts.waited_for}" if hosts.waited else ""
        notes = tuple(filter(None, (jobs.lacking, waits)))
        request = flow.RunRequest(name, matrix, patience, rules, notes, options.strict, hosts.waited)
        listener.cells(tuple(specs))
        with open_history(self._history) as history:
            before = time.time() - options.keep_logs
            if cleared := flow.clear_logs(history, matrix.name, inventory.cluster, logs, before):
                listener.say(f"logs of {cleared} nightly runs were removed")
            tell = ladders.LadderListener(listener.progress, listener.say)
            try:
                summary = flow.run(
                    cluster.backend, inventory, plan, request, history, jobs.around, cluster.environ, tell
                )
            except HostError as error:
                return flow.failure_summary(plan, request, error.message)
            except KeyboardInterrupt:
                return flow.failure_summary(plan, request, "")
        slow: tuple[str, ...] = ()
        if options.bisect and summary.outcome is NightlyOutcome.REGRESSION:
            measured = dict.fromkeys(host.name for spec in specs.values() for host in spec.hosts)
            try:
                slow = find_slow_hosts(cluster, [*measured], listener.say)
            except KeyboardInterrupt:  # the night itself is measured and judged
                slow = ("the search for a slow host was interrupted",)
        return replace(summary, host_notes=(*filter(None, (hosts.remark,)), *slow))

    def _open_hosts(self, matrix: Matrix, until: float) -> OpenHosts:
        """Look which hosts are drained; wait for the head, and for hosts without declared slots, `until` then (monotonic).

        Raises:
            HostError: the head or such a host did not answer in time, or all hosts are drained.
        """
        told = ""
        began = time.monotonic()
        while True:
            nodes, why = self._nodes()
            waited = time.monotonic() - began if told else 0.0
            if not why:
                break
            remaining = until - time.monotonic()
            if remaining <= 0:
                raise HostError(flow.with_wait(why, waited))
            if why != told:
                self.listener.say(f"waiting: {why}")
                told = why
            time.sleep(min(_LOOK_SECONDS, remaining))
        hosts = replace(open_hosts(nodes, matrix), waited=waited, waited_for=told)
        if hosts.remark:
            self.listener.warn(hosts.remark)
        return hosts

    def _nodes(self) -> tuple[Sequence[HostOccupancy], str]:
        """Return the hosts with their slots, and which of them nothing can be planned without; "" for none."""
        try:
            nodes = self.cluster.backend.nodes(self.cluster.inventory)
        except HostError as error:
            return (), error.message
        silent = [node for node in nodes if node.problem and node.is_used and node.host.slots is None]
        return nodes, "; ".join(f"{node.host.name}: {node.problem}" for node in silent)

    def _with_continuation(self, summary: Summary) -> Summary:
        """Add to the summary of an interrupted run how to show its results, and how to run it again."""
        history = self.options.history
        words = ("bench", "show", summary.ladder, *(() if history is None else ("--db", str(history))))
        results = f": {self.cluster.typed} {shell(words)}" if summary.judged or summary.failed else ""
        again = f"; run it again: {self.options.again}" if self.options.again else ""
        why = f"{summary.interrupted}{results}; the run does not count in the baseline{again}"
        return replace(summary, interrupted=why)
