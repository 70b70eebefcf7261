"""Leave out what launchers print about a failed rank: `run` reports it once at the end."""

import re
from typing import NamedTuple

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
