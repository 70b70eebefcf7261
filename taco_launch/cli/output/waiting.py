"""Show on the terminal that `run` and `wait` wait for a job, and that its ranks print nothing."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from taco_launch.cli.options import common
from taco_launch.cli.output import render
from taco_launch.core.model.jobs import JobState

# Seconds without output before the first note. A job that was silent for so long may be so for twice as long before the next.
_FIRST_SECONDS = 30.0


class WaitingLine:
    """A line on a terminal that says what is waited for, until there is output."""

    def __init__(self, name: str, status: Any) -> None:
        """`status` is rich's, None where nothing is shown."""
        self._name = name
        self._status = status

    def state(self, state: str) -> None:
        """Show a job's state."""
        if self._status is not None:
            self._status.update(f"job {self._name}: {state}")

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Take the line away while the block writes to the terminal."""
        if self._status is not None:
            self._status.stop()
        try:
            yield
        finally:
            if self._status is not None:
                self._status.start()

    def hide(self) -> None:
        """Take the line away for good."""
        if self._status is not None:
            self._status.stop()
            self._status = None


@contextmanager
def waiting(quiet: bool, name: str) -> Iterator[WaitingLine]:
    """Show a status line on stderr while a job is waited for; nothing where stderr is not a terminal."""
    if quiet or not sys.stderr.isatty():
        yield WaitingLine(name, None)
        return
    status = render.status_line(f"job {name}")
    status.start()
    shown = WaitingLine(name, status)
    common.aside = shown.aside
    try:
        yield shown
    finally:
        common.aside = nullcontext
        shown.hide()


class SilenceNotes:
    """Watches when a followed job printed last, and prints a note when that was long ago."""

    def __init__(self, note: Callable[[bool, float], None], seconds: float = _FIRST_SECONDS) -> None:
        """Call `note(printed, seconds)` in a thread: whether there was any output before, and the length of the silence."""
        self._note, self._patience = note, seconds
        self._printed, self._noted = False, False
        self._since: float | None = None  # None while the ranks do not run
        self._changed = threading.Condition()
        threading.Thread(target=self._watch, daemon=True).start()

    def state(self, state: str) -> None:
        """Take a job's state: silence counts while it is RUNNING."""
        with self._changed:
            self._since = time.monotonic() if state == JobState.RUNNING.value else None
            self._changed.notify()

    def output(self) -> None:
        """Note that there is output; the next silence starts here."""
        self._printed, self._noted = True, False
        if self._since is not None:
            self._since = time.monotonic()

    def _watch(self) -> None:
        with self._changed:
            while True:
                remaining = (
                    None if self._since is None or self._noted else self._since + self._patience - time.monotonic()
                )
                if remaining is None or remaining > 0:
                    self._changed.wait(self._patience if remaining is None else remaining)
                    continue
                self._noted = True
                self._note(self._printed, self._patience)
                self._patience *= 2
