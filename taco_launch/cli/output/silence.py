"""What `run` prints while the ranks of a job print nothing: that they run, and which command shows what they do."""

import threading
import time
from collections.abc import Callable

from taco_launch.core.model.jobs import JobState

# Seconds without output before the first note. A job that was silent for so long may be so for twice as long before the next.
_FIRST_SECONDS = 30.0


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
