"""What jobs and hosts write, made safe to show on a terminal: text and colours, nothing that moves, hides or forges.

A terminal obeys control sequences (ECMA-48): they set its title, clear it, write over other lines, have it type answers.
"""

import codecs
import re
from typing import IO

# A colour or style, SGR (ECMA-48, 8.3.117): the only sequence that is let through.
_STYLE = r"\x1b\[[0-9;:]{0,60}m"
# Styles that hide: conceal (8). A colour on the same colour hides no more than blanks do.
_HIDES = re.compile(r"\x1b\[(?:[0-9:]*;)*0*8(?:;[0-9;:]*)?m")
# C0 but tab and line ends, DEL, C1, and what turns the direction of text around (Unicode's UAX 9).
_CONTROL = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
_UNSAFE = re.compile(_CONTROL)
_PART = re.compile(f"{_STYLE}|{_CONTROL}|[\n\r]")
_CUT = re.compile(r"\x1b(?:\[[0-9;:]{0,60})?\Z")
_RESET = "\x1b[0m"
# Of a host's stderr no more bytes are shown.
_MOST = 1 << 22


class SafeStream:
    """Makes one stream of bytes safe, chunk by chunk; no style lasts beyond its line."""

    def __init__(self) -> None:
        """Start where no style is in force."""
        # Bytes that are no UTF-8 are shown: some terminals take 0x9b for an escape sequence.
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._rest = ""
        self._styled = False

    def __call__(self, data: bytes) -> bytes:
        """Return what may be shown of the next chunk; the start of a sequence or character waits for its rest."""
        text = self._rest + self._decoder.decode(data)
        self._rest = ""
        if self._styled or _UNSAFE.search(text):
            if cut := _CUT.search(text):
                text, self._rest = text[: cut.start()], cut.group()
            text = _PART.sub(self._part, text)
        return text.encode()

    def _part(self, match: "re.Match[str]") -> str:
        found = match.group()
        if found in "\n\r":
            styled, self._styled = self._styled, False
            return f"{_RESET}{found}" if styled else found
        if len(found) == 1:
            return repr(found)[1:-1]
        if _HIDES.fullmatch(found) and not found.startswith(("\x1b[38", "\x1b[48")):
            return ""
        self._styled = found.strip("\x1b[m0;:") != ""
        return found


class HostErrors:
    """What a host says on stderr, on this process's: as it is in a file, safe on a terminal, and not without an end."""

    def __init__(self, out: IO[bytes]) -> None:
        """Write to `out`."""
        self._out = out
        self._safe = SafeStream() if out.isatty() else None
        self._left = _MOST

    def write(self, data: bytes) -> int:
        """Write what may be shown of the next chunk."""
        shown, self._left = data[: self._left], max(0, self._left - len(data))
        self._out.write(shown if self._safe is None else self._safe(shown))
        return len(data)

    def flush(self) -> None:
        """Have it appear."""
        self._out.flush()


def safe(text: str) -> str:
    """Return a whole message, of one line or more, safe to show."""
    return SafeStream()(f"{text}\n".encode(errors="backslashreplace")).decode()[:-1]
