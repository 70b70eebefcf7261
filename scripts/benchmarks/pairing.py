"""Interleaved timing of several commands: A B C, A B C, ..., so that what slows the machine down slows all of them.

The clock runs from the start of a command to the end of its output and of the command itself. The CPU time counts
everything it started, also what continues in the background (a job's supervisor): the next command starts after that.
Linux only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

_PR_SET_CHILD_SUBREAPER = 36  # prctl(2)
_CHUNK = 1 << 20
# What a launcher gets to end its ranks after SIGINT, before it is killed: more than taco-launch's own grace time.
_END_SECONDS = 15
_PREPARE_SECONDS = 900
# A line that failed is told so far: a script may stand behind that.
_MOST_WORDS = 6


@dataclass(frozen=True)
class Contender:
    """A command to time, and one that clears up behind it, off the clock; `argv[0]` is a program's name or path."""

    name: str
    argv: tuple[str, ...]
    clear_up: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sample:
    """One run: seconds on the clock, seconds of them before the first byte of output, CPU seconds, lines of output."""

    wall: float
    silent: float
    cpu: float
    lines: int


@dataclass(frozen=True)
class Measured:
    """What a contender's runs gave, in the order of the rounds; none when it could not be run, and why."""

    contender: Contender
    samples: tuple[Sample, ...]
    missing: str = ""


@dataclass(frozen=True)
class Spread:
    """A median with the least and the largest value."""

    median: float
    least: float
    most: float


class FailedError(Exception):
    """A run that gives no sample: it exited with another code than 0, or not in time; the message says which."""


def environment(**settings: str) -> dict[str, str]:
    """Return this process's environment with the programs beside this Python first, and no inventory of the user's.

    Compiled code may be written, as it is where a package was installed.
    """
    left_out = ("TACO_LAUNCH_INVENTORY", "PYTHONDONTWRITEBYTECODE")
    inherited = {name: value for name, value in os.environ.items() if name not in left_out}
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    return {**inherited, "PATH": path, **settings}


def find(program: str, environ: Mapping[str, str]) -> str | None:
    """Return the path of a program that `environ` finds, else None."""
    return shutil.which(program, path=environ["PATH"])


def prepare(argv: Sequence[str], environ: Mapping[str, str]) -> str:
    """Run a command off the clock that has to work; give what it printed.

    Raises:
        SystemExit: it failed: its words.
    """
    done = subprocess.run(
        argv,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_PREPARE_SECONDS,
        check=False,
    )
    if done.returncode:
        print(done.stdout, done.stderr, file=sys.stderr)
        raise SystemExit(f"{shlex.join(argv[:_MOST_WORDS])}: exit code {done.returncode}")
    return done.stdout


def interleave(
    contenders: Sequence[Contender],
    environ: Mapping[str, str],
    *,
    runs: int,
    timeout: float,
    tell: Callable[[str], None],
) -> dict[str, Measured]:
    """Run every contender in turn, one round to warm up and `runs` rounds that count; give them by name.

    A contender that is not installed, fails or takes longer than `timeout` seconds is left out from then on.
    """
    missing = {entry.name: "not here: skipped" for entry in contenders if find(entry.argv[0], environ) is None}
    samples: dict[str, list[Sample]] = {entry.name: [] for entry in contenders}
    for number in range(runs + 1):
        tell(f"round {number} of {runs}" if number else "warming up")
        for entry in contenders:
            if entry.name in missing:
                continue
            try:
                sample = once(entry, environ, timeout)
            except FailedError as error:
                missing[entry.name] = f"failed: {error}"
                continue
            finally:
                clear_up(entry, environ, timeout)
            if number:
                samples[entry.name].append(sample)
    return {
        entry.name: Measured(
            entry, () if entry.name in missing else tuple(samples[entry.name]), missing.get(entry.name, "")
        )
        for entry in contenders
    }


def once(contender: Contender, environ: Mapping[str, str], timeout: float) -> Sample:
    """Run a contender to its end, and to that of all it left in the background.

    Raises:
        FailedError: it failed, or took longer than `timeout` seconds.
    """
    # Its orphans become our children: their CPU time is counted, and the next run has the machine for itself.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    program = find(contender.argv[0], environ) or contender.argv[0]
    with tempfile.TemporaryFile() as stderr:
        begin = time.perf_counter()
        process = subprocess.Popen(
            (program, *contender.argv[1:]),
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,  # a Ctrl-C reaches it once, through us: mpirun leaves its ranks after a second one
        )
        with process, _ended_on_error(process), _alarm(timeout):
            assert process.stdout is not None
            first, lines = _drain(process.stdout.fileno())
            _pid, status, usage = os.wait4(process.pid, 0)
            end = time.perf_counter()
            process.returncode = os.waitstatus_to_exitcode(status)
            cpu = usage.ru_utime + usage.ru_stime + _reap()
        if process.returncode:
            stderr.seek(0)
            said = stderr.read().decode(errors="replace").split("\n")
            last = next((line.strip() for line in reversed(said) if line.strip()), "it said nothing on stderr")
            raise FailedError(f"exit code {process.returncode}: {last[:200]}")
    return Sample(end - begin, (first or end) - begin, cpu, lines)


def clear_up(contender: Contender, environ: Mapping[str, str], timeout: float) -> None:
    """Run what clears up behind a contender, if it has that; where it fails, the next run says so."""
    if not contender.clear_up:
        return
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(contender.clear_up, env=environ, capture_output=True, timeout=timeout, check=False)


def spread(values: Sequence[float]) -> Spread:
    """Return median, least and largest of at least one value."""
    return Spread(statistics.median(values), min(values), max(values))


def paired(first: Measured, second: Measured, of: Callable[[Sample, Sample], float]) -> Spread | None:
    """Return the spread of `of` over the rounds, each of which ran both; None when one could not be run."""
    values = [of(*pair) for pair in zip(first.samples, second.samples, strict=False)]
    return spread(values) if values else None


def added(
    ours: Measured, peer: Measured, base: Measured, of: Callable[[Sample], float] = lambda sample: sample.wall
) -> Spread | None:
    """Return what ours adds to `base`, times what `peer` adds to it, round by round; None when one could not be run."""
    rounds = zip(ours.samples, peer.samples, base.samples, strict=False)
    values = [(of(one) - of(least)) / (of(other) - of(least)) for one, other, least in rounds]
    return spread(values) if values else None


def _drain(descriptor: int) -> tuple[float | None, int]:
    """Read to the end; give the moment of the first byte, None without one, and the number of lines."""
    first, lines = None, 0
    while data := os.read(descriptor, _CHUNK):
        first = first or time.perf_counter()
        lines += data.count(b"\n")
    return first, lines


def _reap() -> float:
    """Wait for what the command left in the background; give its CPU seconds."""
    seconds = 0.0
    with contextlib.suppress(ChildProcessError):
        while True:
            _pid, _status, usage = os.wait4(-1, 0)
            seconds += usage.ru_utime + usage.ru_stime
    return seconds


@contextlib.contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    def ring(_number: int, _frame: FrameType | None) -> None:
        raise FailedError(f"it had not ended after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def _ended_on_error(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """End the command as Ctrl-C would (SIGTERM only detaches from a job), when the block is left by an error."""
    try:
        yield
    except BaseException:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
            assert process.stdout is not None
            try:
                with _alarm(_END_SECONDS):
                    _drain(process.stdout.fileno())  # a command that cannot get rid of its output does not end
                    process.wait()
            except FailedError:
                process.kill()
                process.wait()
        # Its supervisor ends the job meanwhile: the next command's CPU time must not hold that.
        with contextlib.suppress(FailedError), _alarm(_END_SECONDS):
            _reap()
        raise
