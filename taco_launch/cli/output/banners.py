"""What mpirun prints about a rank that failed, left out of the output: the end of `run` reports it once."""

import re

_OF_MPIRUN = re.compile(rb"(?:\d[0-9T:.-]+Z |- +)?\S+/mpirun *\| ?(.*)\n?")
_RULE = re.compile(rb"-{20,}")
# Open MPI 4.1 and 5.0 (PRRTE), help-orterun.txt and help-prterun.txt: they say that a rank failed, and not why.
_BANNERS = (
    b"Primary job  terminated normally, but",
    b"mpirun detected that one or more processes exited with non-zero status",
    b"prterun detected that one or more processes exited with non-zero status",
    b"mpirun noticed that process rank",
    b"prterun noticed that process rank",
)
# Lines of one banner; a longer text is none.
_MOST_LINES = 20


class BannerFilter:
    """Passes whole lines on but those of banners, which stand between two rules of dashes."""

    def __init__(self) -> None:
        """Start outside of a banner."""
        self._held: list[bytes] = []

    def feed(self, chunk: bytes) -> bytes:
        """Return what of a chunk of whole lines is shown now; a banner is held back until its end is seen."""
        if not self._held and b"/mpirun" not in chunk:
            return chunk
        return b"".join(map(self._line, chunk.splitlines(keepends=True)))

    def end(self) -> bytes:
        """Return what is still held back."""
        held, self._held = b"".join(self._held), []
        return held

    def _line(self, line: bytes) -> bytes:
        found = _OF_MPIRUN.fullmatch(line)
        if found is None:
            return line
        is_rule = _RULE.fullmatch(found[1].strip()) is not None
        if not self._held and not is_rule:
            return line
        self._held.append(line)
        if len(self._held) == 1 or (not is_rule and len(self._held) < _MOST_LINES):
            return b""
        text = self.end()
        return b"" if is_rule and any(banner in text for banner in _BANNERS) else text
