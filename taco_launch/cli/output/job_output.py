"""Print the log of a job, without what launchers print about a failed rank, and how the job ended: that reports it once."""

import functools
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import click

from taco_launch.cli.options.common import Settings, colour_wanted
from taco_launch.cli.output import render
from taco_launch.core.lifecycle.state import numbered
from taco_launch.core.model.job_view import JobView, age
from taco_launch.core.model.jobs import JobRecord
from taco_launch.core.model.launchers import LAUNCHERS
from taco_launch.core.model.stalls import HANGS, doing, shown_time

if TYPE_CHECKING:
    from taco_launch.hosts.remote.terminal import SafeStream

# Colours of ranks in a merged log, one after the other (ECMA-48, 8.3.117: cyan, yellow, green, magenta, blue).
_RANK_COLOURS = (36, 33, 32, 35, 34)
_RULE = re.compile(rb"-{20,}")


class _Noise(NamedTuple):
    """A text of a launcher that only says that a rank failed: it starts at a line that matches `begins`, and has one of `words`.

    It goes up to the next line that matches `ends`; without that the launcher says nothing else any more.
    """

    begins: re.Pattern[bytes]
    words: tuple[bytes, ...]
    ends: re.Pattern[bytes] | None = None


_NOISE = {
    # Open MPI 4.1 and 5.0 (PRRTE), help-orterun.txt and help-prterun.txt: they say that a rank failed, and not why.
    b"mpirun": _Noise(
        _RULE,
        (
            b"Primary job  terminated normally, but",
            b"mpirun detected that one or more processes exited with non-zero status",
            b"prterun detected that one or more processes exited with non-zero status",
            b"mpirun noticed that process rank",
            b"prterun noticed that process rank",
        ),
        _RULE,
    ),
    # MPICH and Intel MPI, hydra's ui/utils/uiu.c.
    b"hydra": _Noise(re.compile(rb"={40,}"), (b"BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES",)),
    # torch/distributed/elastic: what it ends, its own traceback, and a table with the rank that it saw fail first as root
    # cause, which may be one that it ended itself.
    b"torchrun": _Noise(
        re.compile(rb"[WE]\d.*\btorch/distributed/elastic/.*"),
        (
            b"] failed (exitcode: ",
            b"] Sending process ",
            b"] Closing process ",
            b"] Received Signals.",
            b" death signal",
        ),
    ),
}
_OF_LAUNCHER = re.compile(
    rb"(?:\d[0-9T:.-]+Z |- +)?(?P<source>\S+/(?P<name>%s)) *\| ?(?P<text>.*)\n?" % b"|".join(_NOISE)
)
_ATTEMPT = b"[taco-launch: attempt "
# Lines of a text that is looked through for such words; a longer one is none.
_MOST_LINES = 20


def _took(record: JobRecord) -> str:
    """Return how long a job took from its first start, and how much of that it did not wait."""
    training = record.training(record.ended or 0.0)
    if not record.ended or record.first_start is None or training is None:
        return ""
    took = record.ended - record.first_start
    return f" after {age(took)}" + (f" ({age(training)} without waiting)" if took - training >= 1 else "")


def ending(settings: Settings, found: JobView) -> None:
    """Print on stderr how a job stands or ended."""
    record = found.record
    colour = {"SUCCEEDED": "green", "FAILED": "red", "LOST": "red"}.get(record.state.value, "yellow")
    took = _took(record)
    failed = record.state.value in ("FAILED", "LOST")
    say = replace(settings, quiet=settings.quiet and not failed).talk  # -q says errors all the same
    state = click.style(record.state.value, fg=colour) + took
    diverged = found.progress is not None and found.progress.diverged and "not a number" not in record.reason
    lost = "; the loss is not a number" if diverged else ""
    say(f"job {found.spec.name}: {state}: {render.printable(render.one_line(record.reason))}{lost}")
    if record.hint:
        say(f"hint: {render.printable(record.hint)}")
    for name, text in render.job_fields(record, found.spec.name):
        say(f"{name.lower()}: {render.printable(text)}")
    if hung := _hang(record):
        say(f"it hung: {render.printable(hung)}")
    end, stalled = record.first_failure, record.stalled.ranks if record.stalled else ()
    if failed and end is not None and any(_is_news(line, record.reason) for line in end.lines):
        number = numbered(end.rank, found.spec.procs_per_gpu)
        settings.talk(f"the last lines of rank {number} on {end.host} ({render.printable(end.log)}):")
        for line in end.lines:
            settings.talk(f"  {render.printable(line)}")
    if failed and record.attempt:  # one that never had a place has no log
        odd = end.rank if end else stalled[0].rank if stalled else None
        alone = "" if odd is None else f" (that rank alone: --rank {odd})"
        settings.talk(f"its log: {settings.typed} logs {found.spec.name}{alone}")
        if stalled:
            settings.talk(f"what each rank did: {settings.typed} get {found.spec.name}")


def _is_news(line: str, reason: str) -> bool:
    """Return whether the reason of a job's end does not say the same already."""
    return line.removeprefix("taco-launch: ") not in reason


def _hang(record: JobRecord) -> str:
    """Return since when a job hung, and what the most telling of its ranks did; nothing where its reason says so."""
    if record.stalled is None or not (record.stalled.hung and record.stalled.ranks) or HANGS in record.reason:
        return ""
    first = record.stalled.ranks[0]
    return f"{HANGS} since {shown_time(record.stalled.since)}; rank {first.rank} on {first.host} {doing(first)}"


class LogOutput:
    """Writes a merged log to stdout: as it is, or for a terminal made safe and with coloured labels."""

    def __init__(self, out: BinaryIO, before: Callable[[], None] = lambda: None, *, colour: bool = True) -> None:
        """Call `before` ahead of every write."""
        self._out = out
        self._before = before
        self._safe = _safe() if sys.stdout.isatty() or out.isatty() else None
        self._colour = colour and self._safe is not None and colour_wanted()

    def write(self, chunk: bytes) -> None:
        """Write whole lines.

        Raises:
            OSError: they cannot be written, or the reader has closed the pipe (BrokenPipeError).
        """
        self._before()
        if self._safe is not None:
            chunk = self._safe(chunk)
        self._out.write(_label().sub(_coloured, chunk) if self._colour else chunk)
        self._out.flush()


def _safe() -> "SafeStream":
    from taco_launch.hosts.remote.terminal import SafeStream  # noqa: PLC0415 - only for a terminal

    return SafeStream()


@functools.cache
def _label() -> re.Pattern[bytes]:
    """Match the label of a line in a merged log, with its time where that was asked for: a rank's, or a launcher's."""
    names = "|".join(LAUNCHERS)
    return re.compile(rf"^((?:\d[0-9T:.-]+Z |- +)?\S+/(\d+|{names}) *) \| ".encode(), re.MULTILINE)


def _coloured(match: re.Match[bytes]) -> bytes:
    rank = match.group(2)
    colour = _RANK_COLOURS[int(rank) % len(_RANK_COLOURS)] if rank.isdigit() else 2
    return b"\x1b[%dm%s |\x1b[0m " % (colour, match.group(1))


class BannerFilter:
    """Passes whole lines on but those of launchers that only say that a rank failed."""

    def __init__(self) -> None:
        """Start outside of such a text."""
        self._held: dict[bytes, list[bytes]] = {}
        self._silent: set[bytes] = set()

    def feed(self, chunk: bytes) -> bytes:
        """Return what of a chunk of whole lines is shown now; a text is held back until it is known what it says."""
        if not any(b"/" + name in chunk for name in _NOISE) and _ATTEMPT not in chunk:
            return chunk
        return b"".join(map(self._line, chunk.splitlines(keepends=True)))

    def end(self) -> bytes:
        """Return what is still held back."""
        held, self._held = b"".join(line for lines in self._held.values() for line in lines), {}
        return held

    def _line(self, line: bytes) -> bytes:
        found = _OF_LAUNCHER.fullmatch(line)
        if found is None:
            if line.startswith(_ATTEMPT):  # with launchers of its own
                self._silent.clear()
            return line
        source, text, noise = found["source"], found["text"].strip(), _NOISE[found["name"]]
        if source in self._silent:
            return b""
        held = self._held.pop(source, [])
        if not held and noise.begins.fullmatch(text) is None:
            return line
        held.append(line)
        told = any(word in each for word in noise.words for each in held)
        if noise.ends is None and told:
            self._silent.add(source)
            return b""
        ended = len(held) > 1 and noise.ends is not None and noise.ends.fullmatch(text) is not None
        if ended or len(held) >= _MOST_LINES:
            return b"" if ended and told else b"".join(held)
        self._held[source] = held
        return b""
