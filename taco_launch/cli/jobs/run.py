"""run and submit: start a job; run also follows it."""

import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from taco_launch.api.cluster import Cluster
from taco_launch.cli.options.common import Settings, access_of, add_option, settings_of, verb
from taco_launch.cli.options.job_field_options import OF_QUEUED_JOBS, options_of
from taco_launch.cli.options.job_options import JobCommand, file_option, job_options, request_of, spec_of
from taco_launch.cli.options.option_groups import OptionGroup, option, options_of_group
from taco_launch.cli.output import render
from taco_launch.core.errors import SIGNAL_BASE, TacoLaunchError, UsageError
from taco_launch.core.model.jobs import JobSpec
from taco_launch.hosts.remote.credentials import Credentials
from taco_launch.jobs.backend import Backend, FollowListener, require_started
from taco_launch.jobs.request.job_fields import Part

if TYPE_CHECKING:
    from taco_launch.core.model.job_view import JobView


_DRY_RUN = (
    option(
        "--dry-run",
        is_flag=True,
        help="Print the command line that would start the job (one per host if mpirun is not used) and start nothing.",
    ),
    option(
        "--explain", is_flag=True, help="With --dry-run: show where each part of the command line comes from, and why."
    ),
    option(
        "--to",
        "out",
        type=click.Path(file_okay=False),
        metavar="DIR",
        help="With --dry-run: write the files that the command line names (a hostfile for 64 or more hosts) to DIR. Without mpirun, write "
        "each host's command line there as HOST.sh.",
    ),
)


# So many hosts are named in the line that says where a job starts.
_MOST_HOSTS = 4
# The last lines of a failed rank that stand among as many lines are not repeated below them.
_TAIL_LINES = 40


def _dry_run_options(function: Callable[..., int]) -> Callable[..., int]:
    return options_of_group(OptionGroup.DRY_RUN, _DRY_RUN, function)


@verb(cls=JobCommand, access=True, output=True)
@_dry_run_options
@file_option
@options_of(Part.SIZE)
@job_options
@options_of(*OF_QUEUED_JOBS)
def run(
    ctx: click.Context, /, command: tuple[str, ...], *, dry_run: bool, explain: bool, out: str | None, **options: Any
) -> int:
    """Run a job, follow its output and exit with its code.

    Ctrl-C stops the job, a second one kills it; so does SIGTERM, which `timeout` and CI systems send. A closed terminal
    (SIGHUP), a SIGKILL or a connection to the head that is lost for minutes only leave it (`taco-launch logs -f NAME`).
    The ranks read nothing from standard input. What a launcher prints about a rank that failed is shown with -v only, by
    `logs -v` too. With --json the output goes to stderr, and the job, or the error, to stdout.

    With an inventory that names a container, the job runs in the containers that `setup` made, in their environment and
    folder: -x NAME takes a variable of yours there.

    \b
    Examples:
      taco-launch run --np 2 -- python3 train.py --epochs 1
      taco-launch run --np 4 -H localhost:4 -x OMP_NUM_THREADS=1 -- python3 train.py
      taco-launch run --np 2 --dry-run -- python3 train.py
      taco-launch -i hosts.yaml run --np 16 --dry-run --explain -- python3 train.py
      taco-launch -i hosts.yaml run --hosts 2 --slots-per-host 8 --queue-timeout 3h -- python3 train.py
      taco-launch -i hosts.yaml run -f job.yaml --np 8
      taco-launch -i hosts.yaml run --launcher torchrun --hosts 2 -- python3 train.py
      taco-launch -i hosts.yaml run --launcher env --workers 3 --gpus 1 -- python3 mnist.py --backend nccl
      taco-launch run --launcher env --np 1 --procs-per-gpu 3 -- python3 mytask.py --lr 0.1
      taco-launch -i hosts.yaml run --launcher env --per-host --hosts 2 --slots-per-host 8 -- bash -c \\
        'python3 -m torch.distributed.launch --nproc_per_node=8 --nnodes=$WORLD_SIZE --node_rank=$RANK \\
        --master_addr=$MASTER_ADDR --master_port=$MASTER_PORT train.py'
    """
    settings = settings_of(ctx)
    if not dry_run and (explain or out):
        raise UsageError(
            f"{'--explain' if explain else '--to'} requires --dry-run", hint="add --dry-run: it starts nothing"
        )
    request = request_of(settings, command, options)
    spec = spec_of(settings, request)
    if spec.policy.suspend and not dry_run:
        raise UsageError("a suspended job has no output to follow", hint="start it with submit instead of run")
    if dry_run:
        if spec.policy.suspend:
            settings.talk(f"note: job {spec.name} would stay suspended until `taco-launch resume {spec.name}`")
        if request.sync is not None:
            settings.talk(
                f"note: {request.sync} is copied to each host when the job starts, and the ranks start in the copy"
            )
        _print_plan(settings, spec, access_of(options), out or "", explain=explain)
        return 0
    from taco_launch.cli.jobs.exit_code import code_of, launcher_errors, print_job_data

    with launcher_errors():
        cluster = settings.cluster(access_of(options))
        job = _run(settings, cluster.backend, cluster.with_code(spec, request))
        print_job_data(settings, job)
        return code_of(job)


@verb(cls=JobCommand, access=True, output=True)
@file_option
@options_of(Part.SIZE)
@job_options
@options_of(*OF_QUEUED_JOBS, Part.SUSPEND)
@add_option("--schema", is_flag=True, help="Print the JSON Schema of a job file, for an editor's completion.")
def submit(ctx: click.Context, /, command: tuple[str, ...], *, schema: bool, **options: Any) -> int:
    """Start a job in the background and print its name.

    \b
    Examples:
      taco-launch submit --name vgg16 --np 2 -- python3 train.py
      taco-launch logs -f vgg16
      taco-launch -i hosts.yaml submit --hosts 2 --priority 10 --backoff-limit 3 --ttl 2d -- python3 train.py
      taco-launch -i hosts.yaml submit -f job.yaml
      taco-launch submit --schema > job.schema.json
    """
    settings = settings_of(ctx)
    if schema:
        from taco_launch.jobs.documents.job_schema import json_schema

        render.data(json_schema(), "json")
        return 0
    from taco_launch.core.lifecycle.waits import pending_reasons

    request = request_of(settings, command, options)
    cluster = settings.cluster(access_of(options))
    job = cluster.backend.submit(cluster.with_code(spec_of(settings, request), request), os.environ)
    require_started(job)
    render.waits(settings, job.spec.name, pending_reasons(job.record, job.spec.name))
    for warning in job.record.warnings:
        render.warning(settings, warning)
    if settings.output in ("json", "yaml"):
        from taco_launch.cli.output import job_tables

        render.data(job_tables.job_data(job), settings.output)
    else:
        click.echo(render.printable(job.spec.name))
        settings.talk(f"follow its output: {settings.typed} logs -f {job.spec.name}")
    return 0


def _print_plan(settings: Settings, spec: JobSpec, access: Credentials, out: str, *, explain: bool) -> None:
    from taco_launch.cli.output import plan_tables
    from taco_launch.jobs import dry_run as plan

    if spec.slurm is not None:
        if out:
            raise UsageError("--to does not apply to Slurm", hint="the whole script is printed: redirect it to a file")
        plan_tables.show_script(spec, settings.output, explain=explain)
        return
    cluster = settings.cluster(access)
    if spec.container is not None and spec.container.variant:
        spec = _planned_container(settings, cluster, spec) if explain else _own_container(settings, spec)
    found = cluster.plan_of(spec, folder=out, explain=explain)
    launch = found.plan
    for warning in launch.warnings:
        render.warning(settings, warning)
    for note in found.notes:
        settings.talk(f"note: {note}")
    if out:
        for path in plan.write_files(launch, spec, out):
            settings.talk(f"wrote {path}")
    elif any(file.path in launch.argv for file in launch.files):
        settings.talk(f"the command line names a file; write it with --to DIR, for example --to {spec.name}")
    plan_tables.show(
        launch, spec.launcher, settings.output, explain=explain, choices=found.choices, nearest=found.nearest
    )


def _own_container(settings: Settings, spec: JobSpec) -> JobSpec:
    """Return a job as if the cluster's own container had its image; no host is asked."""
    assert spec.container is not None
    settings.talk(
        f"hosts without a container of {spec.container.image} prepare one first; to see what they prepare, add --explain"
    )
    return replace(spec, container=replace(spec.container, variant=""))


def _planned_container(settings: Settings, cluster: Cluster, spec: JobSpec) -> JobSpec:
    """Tell which container a job would get, and what would be prepared for it; return the job with that container."""
    from taco_launch.cli.output import setup_output

    spec, plans = cluster.planned_container(spec)
    assert spec.container is not None
    key, image = spec.container.variant, spec.container.image
    todo = any(plan.ops or plan.problems for plan in plans)
    settings.talk(f"container {key} of {image}: {'would be prepared first' if todo else 'is there'}")
    for line in setup_output.plan_lines(setup_output.folded(plans)):
        settings.talk(line)
    for plan in plans:
        for problem in plan.problems:
            render.error(f"{plan.host}: {problem.message}", problem.hint or None)
    if todo:  # nobody can look into it yet
        settings.talk("note: until it is prepared, the software versions shown are those of the inventory's image")
        spec = replace(spec, container=replace(spec.container, variant=""))
    return spec


def _run(settings: Settings, backend: Backend, spec: JobSpec) -> "JobView":
    """Start a job, follow it to its end, and report how it ended.

    The ranks' output goes to stdout, or to stderr where stdout is for data.
    """
    from taco_launch.cli.output import banners, waiting

    signals = _Signals(backend, spec.name, spec.policy.grace)
    warned: set[str] = set()  # each attempt has the warnings of the one before

    def placed(job: "JobView") -> None:
        require_started(job)
        if job.record.state.waits:
            return
        for warning in job.record.warnings:
            if warning not in warned:
                render.warning(settings, warning)
        warned.update(job.record.warnings)
        hosts = job.record.hosts
        where = ", ".join(hosts[:_MOST_HOSTS]) + (
            f" and {len(hosts) - _MOST_HOSTS} more" if hosts[_MOST_HOSTS:] else ""
        )
        ranks = f"{job.record.np} rank{'' if job.record.np == 1 else 's'} on {where}"
        settings.talk(f"job {spec.name}: {ranks}; follow it: {settings.typed} logs -f {spec.name}")
        if settings.verbose:
            settings.talk(f"job {spec.name}: {job.record.line}")

    def silent(printed: bool, seconds: float) -> None:
        since = f"no output for {seconds:g} s" if printed else f"every rank has started; no output for {seconds:g} s"
        settings.talk(f"job {spec.name}: {since}; to see what the ranks do: {settings.typed} stacks {spec.name}")

    notes = waiting.SilenceNotes(silent)
    with waiting.waiting(settings.quiet, spec.name) as wait:
        as_data = settings.output in ("json", "yaml")
        filtered = None if settings.verbose else banners.BannerFilter()
        out = render.LogOutput(sys.stderr.buffer if as_data else sys.stdout.buffer, wait.hide)

        def changed(state: str) -> None:
            wait.state(state)
            notes.state(state)

        watch = FollowListener(
            accepted=signals.job_started,
            job=placed,
            state=changed,
            waits=lambda words: render.waits(settings, spec.name, words),
            say=settings.talk,
        )
        tail: deque[str] = deque(maxlen=_TAIL_LINES)

        def output(chunk: bytes) -> None:
            notes.output()
            tail.extend(chunk.decode("utf-8", "replace").splitlines())
            out.write(chunk)

        write = _until_closed(output)
        show = write if filtered is None else (lambda chunk: write(filtered.feed(chunk)))
        job = backend.run(spec, os.environ, show, watch)
        if filtered is not None and (rest := filtered.end()):
            write(rest)
    require_started(job)
    render.ending(settings, _without_repetition(job, tail))
    return job


def _without_repetition(job: "JobView", tail: Collection[str]) -> "JobView":
    """Return a job without the last lines of its failed rank if they are among the last lines that are shown right above."""
    end = job.record.first_failure
    together = os.path.sameopenfile(1, 2)
    if end is None or not together or not all(any(shown.endswith(line) for shown in tail) for line in end.lines):
        return job
    return replace(job, record=replace(job.record, first_failure=replace(end, lines=())))


def _until_closed(write: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """Write as long as somebody reads; the job keeps running when `| head` has seen enough."""
    closed = False

    def output(chunk: bytes) -> None:
        nonlocal closed
        if not closed:
            try:
                write(chunk)
            except BrokenPipeError:
                closed = True
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    return output


class _Signals:
    """Ctrl-C or TERM stops the job that is followed, a second one kills it, a third leaves it, and so does HUP at once.

    A thread acts on them: Python calls a handler in the main thread alone, and not before a read there has returned, where
    the signal arrives just before that. Messages go by os.write: the main thread may be in the middle of a buffered write.
    """

    def __init__(self, backend: Backend, name: str, grace: float) -> None:
        self._backend = backend
        self._name = name
        self._grace = grace
        self._presses = 0
        self._number = signal.SIGINT
        self._started = False
        self._lock = threading.Lock()
        arrived, wakeup = os.pipe()
        os.set_blocking(wakeup, False)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # as under nohup: it follows on
                signal.signal(number, lambda _number, _frame: None)
        threading.Thread(target=self._act, args=(arrived,), daemon=True).start()

    def job_started(self) -> None:
        """Note that there is a job now; an earlier signal reaches it."""
        with self._lock:
            self._started = True
            if self._presses:
                self._stop()

    def _act(self, arrived: int) -> None:
        while True:
            for number in os.read(arrived, 64):
                if number == signal.SIGHUP:
                    self._leave(number, f"job {self._name} keeps running: {self._backend.typed} logs -f {self._name}")
                elif number in (signal.SIGINT, signal.SIGTERM):
                    self._interrupt(number)

    def _interrupt(self, number: int) -> None:
        with self._lock:
            self._presses += 1
            self._number = signal.Signals(number)
            again = "Ctrl-C" if number == signal.SIGINT else self._number.name
            if self._presses > 2:
                typed = f"{self._backend.typed} get {self._name}"
                self._leave(number, f"leaving job {self._name} to its supervisor; to see its state: {typed}")
            first = (
                f"stopping job {self._name}: running ranks have {self._grace:g} s to end ({again} again kills the job)"
            )
            os.write(2, f"\n{first if self._presses == 1 else f'killing job {self._name}'}\n".encode())
            if self._presses == 1 and os.isatty(2):
                threading.Thread(target=self._count_down, daemon=True).start()
            if self._started:
                self._stop()

    def _count_down(self) -> None:
        """Show the seconds that ranks have left; each line of output takes the place of the number."""
        until = time.monotonic() + self._grace
        while self._presses == 1 and (left := until - time.monotonic()) > 0:
            os.write(2, f"{left:.0f} s left\x1b[K\r".encode())
            time.sleep(1)

    def _leave(self, number: int, message: str) -> None:
        os.write(2, f"\n{message}\n".encode())
        os._exit(SIGNAL_BASE + number)

    def _stop(self) -> None:
        # In a thread of its own: a second signal must not wait for the call.
        threading.Thread(target=self._ask, args=(None if self._presses == 1 else 0.0,), daemon=True).start()

    def _ask(self, grace: float | None) -> None:
        try:
            by = "Ctrl-C" if self._number == signal.SIGINT else self._number.name
            self._backend.stop([self._name], by, self._number, grace).job(self._name)
        except TacoLaunchError as error:
            os.write(2, f"job {self._name} could not be signaled: {error.message}\n".encode(errors="backslashreplace"))
