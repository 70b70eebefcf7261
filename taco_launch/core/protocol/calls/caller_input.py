"""What a caller sends while its call goes on, behind the request: frames of their own family, and how they are read."""

from typing import Any, ClassVar, Dict, Iterator, Mapping, Type

from taco_launch.core.protocol.message import Message

# Of one frame's data.
MOST_DATA = 1 << 20
# Data on its way that is kept in one process: who sends more waits.
WINDOW = 1 << 18
# A caller shows this often that it is there, and is given up after so long without a word.
ALIVE_SECONDS = 10.0
SILENT_SECONDS = 60.0
_MOST_CELLS = 10_000


class CallerInput(Message):
    """What the caller of a call sends."""

    by_op: ClassVar[Dict[str, Type[Message]]] = {}


class InputData(CallerInput):
    """Input for the program."""

    op = "input"
    data: bytes = b""


class EndOfInput(CallerInput):
    """The program's input ends; the call goes on."""

    op = "end-of-input"


class WindowSize(CallerInput):
    """The size of the caller's terminal, in characters."""

    op = "window"
    rows: int
    columns: int

    def check(self) -> None:
        """Check that it is a size."""
        check_size(self.rows, self.columns)


class Alive(CallerInput):
    """The caller is there."""

    op = "alive"


class Hangup(CallerInput):
    """The caller leaves: end what runs for it."""

    op = "hangup"


def pieces(data: bytes) -> Iterator[CallerInput]:
    """Yield data as frames."""
    for begin in range(0, len(data), WINDOW):
        yield InputData(data=data[begin : begin + WINDOW])


def check_size(rows: int, columns: int) -> None:
    """Check the size of a terminal; 0 is not known.

    Raises:
        ValueError: it is not a size.
    """
    if not (0 <= rows <= _MOST_CELLS and 0 <= columns <= _MOST_CELLS):
        raise ValueError(f"a terminal of {rows} rows and {columns} columns")


def input_of(line: Mapping[str, Any]) -> CallerInput:
    """Return what a line says.

    Raises:
        ValueError: it is no frame of a caller.
    """
    kind = CallerInput.by_op.get(str(line.get("op")))
    if kind is None:
        raise ValueError(f"op is {str(line.get('op'))[:60]!r}")
    found = kind.from_wire(line)
    assert isinstance(found, CallerInput)
    return found
