"""What jobs and hosts write, made safe to show on a terminal: text and colours, nothing that moves, hides or forges.

A terminal obeys control sequences (ECMA-48): they set its title, clear it, write over other lines, have it type answers.
"""

import codecs
import re

# A colour or style, SGR (ECMA-48, 8.3.117): the only sequence that is let through.
_STYLE = r"\x1b\[[0-9;:]{0,60}m"
# C0 but tab and line ends, DEL, C1, and what turns the direction of text around (Unicode's UAX 9).
_CONTROL = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
_UNSAFE = re.compile(_CONTROL)
_PART = re.compile(f"{_STYLE}|{_CONTROL}|[\n\r]")
_CUT = re.compile(r"\x1b(?:\[[0-9;:]{0,60})?\Z")
_RESET = "\x1b[0m"


class Safe:
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
        self._styled = found.strip("\x1b[m0;:") != ""
        return found


def safe(text: str) -> str:
    """Return a whole message, of one line or more, safe to show."""
    return Safe()(f"{text}\n".encode(errors="backslashreplace")).decode()[:-1]
