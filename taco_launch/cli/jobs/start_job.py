"""Start a job for `run` or `submit`; for `run`, follow it to its end and exit as it does."""

import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace

import click

from taco_launch.cli.options.common import Settings
from taco_launch.cli.output import job_output, render, waiting
from taco_launch.core.errors import SIGNAL_BASE, TacoLaunchError, code_of_launcher
from taco_launch.core.lifecycle.waits import pending_reasons
from taco_launch.core.model.job_request import JobRequest
from taco_launch.core.model.job_view import JobView, WaitReasons
from taco_launch.core.model.jobs import JobSpec, JobState
from taco_launch.hosts.remote.credentials import Credentials
from taco_launch.jobs.backend import Backend, FollowListener, require_started

# So many hosts are named in the line that says where a job starts.
_MOST_HOSTS = 4
# The last lines of a failed rank that stand among as many lines are not repeated below them.
_TAIL_LINES = 40


def run(settings: Settings, access: Credentials, spec: JobSpec, request: JobRequest) -> int:
    """Run a job to its end, and return the exit code of `run`."""
    with launcher_errors():
        cluster = settings.cluster(access)
        job = _run(settings, cluster.backend, cluster.with_code(spec, request))
        print_job_data(settings, job)
        return code_of(job)


def submit(settings: Settings, access: Credentials, spec: JobSpec, request: JobRequest) -> None:
    """Start a job, and print its name, or the job where data is requested."""
    cluster = settings.cluster(access)
    job = cluster.backend.submit(cluster.with_code(spec, request), os.environ)
    require_started(job)
    render.waits(settings, job.spec.name, pending_reasons(job.record, job.spec.name))
    for warning in job.record.warnings:
        render.warning(settings, warning)
    if settings.output in ("json", "yaml"):
        print_job_data(settings, job)
    else:
        click.echo(render.printable(job.spec.name))
        settings.talk(f"follow its output: {settings.typed} logs -f {job.spec.name}")


@contextmanager
def launcher_errors() -> Iterator[None]:
    """Set the exit code of launcher errors to 125, as docker-run(1) does; 126 and 127 of a program stay.

    Raises:
        TacoLaunchError: the one that was raised in the block.
    """
    try:
        yield
    except TacoLaunchError as error:
        error.exit_code = code_of_launcher(error.exit_code)
        raise


def code_of(job: JobView) -> int:
    """Return the exit code of an ended job; 125 if it ended before a rank ran."""
    return job.launcher_code or 0


def print_job_data(settings: Settings, *jobs: JobView) -> None:
    """Print an ended job as `get` does, where JSON or YAML is requested; of several, a list."""
    if settings.output in ("json", "yaml"):
        from taco_launch.cli.output import job_tables  # noqa: PLC0415 - only where data is requested

        found = [job_tables.job_data(job) for job in jobs]
        render.data(found[0] if len(found) == 1 else {"jobs": found}, settings.output)


def _run(settings: Settings, backend: Backend, spec: JobSpec) -> JobView:
    """Start a job, follow it to its end, and report how it ended.

    The ranks' output goes to stdout, or to stderr where stdout is for data.
    """
    signals = _Signals(backend, spec.name, spec.policy.grace)
    warned: set[str] = set()  # each attempt has the warnings of the one before

    def placed(job: JobView) -> None:
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
    explained = False  # how to leave the queue
    with waiting.waiting(settings.quiet, spec.name) as wait:
        as_data = settings.output in ("json", "yaml")
        filtered = None if settings.verbose else job_output.BannerFilter()
        out = job_output.LogOutput(sys.stderr.buffer if as_data else sys.stdout.buffer, wait.hide)

        def changed(state: str) -> None:
            signals.is_queued = JobState(state).waits
            wait.state(state)
            notes.state(state)

        def waits(words: WaitReasons) -> None:
            nonlocal explained
            render.waits(settings, spec.name, words)
            if not explained and any(host for host, _why in words):
                explained = True
                settings.talk(f"  to see the queue: {settings.typed} list; to leave it: Ctrl-C; not to wait: --no-wait")

        watch = FollowListener(
            accepted=signals.job_started,
            job=placed,
            state=changed,
            waits=signals.while_wanted(waits),
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
    job_output.ending(settings, _without_repetition(job, tail))
    return job


def _without_repetition(job: JobView, tail: Collection[str]) -> JobView:
    """Return a job without the last lines of its failed rank if they are among the last lines that are shown right above."""
    end = job.record.first_failure
    together = os.path.sameopenfile(1, 2)
    if end is None or not together or not all(any(shown.endswith(line) for shown in tail) for line in end.lines):
        return job
    return replace(job, record=replace(job.record, first_failure=replace(end, lines=())))


def _until_closed(write: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """Write until the reader closes the pipe, as `| head` does; the job keeps running."""
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
        self.is_queued = False
        self._lock = threading.Lock()
        arrived, wakeup = os.pipe()
        os.set_blocking(wakeup, False)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # as under nohup: it follows on
                signal.signal(number, lambda _number, _frame: None)
        threading.Thread(target=self._act, args=(arrived,), daemon=True).start()

    def while_wanted(self, show: Callable[[WaitReasons], None]) -> Callable[[WaitReasons], None]:
        """Return what shows why the job waits, as long as no signal has asked it to end."""
        return lambda words: None if self._presses else show(words)

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
                f"removing job {self._name} from the queue"
                if self.is_queued
                else f"stopping job {self._name}: running ranks have {self._grace:g} s to end ({again} again kills the job)"
            )
            os.write(2, f"\n{first if self._presses == 1 else f'killing job {self._name}'}\n".encode())
            if self._presses == 1 and not self.is_queued and os.isatty(2):
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
