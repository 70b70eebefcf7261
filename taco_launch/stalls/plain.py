"""Plain data out of a pickle: texts, numbers, lists, dictionaries; never an object, a function or code.

The standard library's `pickle` makes whatever a pickle asks for, and its C version takes memory for a memo of any size.
This reads the opcodes one by one, and knows those alone that torch writes for plain data.
"""

import pickletools
from typing import Any, Callable, Dict, List

MOST_BYTES = 64 << 20
_MARK = object()


class NotPlainError(ValueError):
    """A pickle is cut, too big, or holds something other than plain data; says what."""


def loads(data: bytes) -> Any:
    """Return what a pickle holds; a value may hold itself, or one other many times.

    Raises:
        NotPlainError: it cannot be read as plain data.
    """
    if len(data) > MOST_BYTES:
        raise NotPlainError(f"larger than {MOST_BYTES} bytes")
    stack: List[Any] = []
    memo: Dict[int, Any] = {}
    try:
        for opcode, argument, _position in pickletools.genops(data):
            if opcode.name != "STOP":
                _step(opcode.name, argument, stack, memo)
        (found,) = stack
    except NotPlainError:
        raise
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, MemoryError) as error:
        raise NotPlainError(f"no whole pickle: {error or type(error).__name__}") from None
    return found


def _step(name: str, argument: Any, stack: List[Any], memo: Dict[int, Any]) -> None:
    """Do what one opcode says; those that make objects or call something are none of ours."""
    if name in _VALUES:
        stack.append(argument)
    elif name in ("BINPUT", "LONG_BINPUT", "MEMOIZE"):
        memo[len(memo) if argument is None else argument] = stack[-1]
    elif name in ("BINGET", "LONG_BINGET"):
        stack.append(memo[argument])
    elif name in _CONSTANTS:
        stack.append(_CONSTANTS[name])
    elif name in _MADE:
        stack.append(_MADE[name]())
    elif name in _TAKE:
        _TAKE[name](stack)
    elif name not in ("PROTO", "FRAME"):
        raise NotPlainError(f"it holds {name}, which plain data has not")


def _since_mark(stack: List[Any]) -> List[Any]:
    for index in range(len(stack) - 1, -1, -1):
        if stack[index] is _MARK:
            found = stack[index + 1 :]
            del stack[index:]
            return found
    raise NotPlainError("no whole pickle: no mark")


def _appends(stack: List[Any]) -> None:
    found = _since_mark(stack)
    stack[-1].extend(found)


def _append(stack: List[Any]) -> None:
    found = stack.pop()
    stack[-1].append(found)


def _setitems(stack: List[Any]) -> None:
    found = _since_mark(stack)
    stack[-1].update(zip(found[::2], found[1::2]))


def _setitem(stack: List[Any]) -> None:
    value, key = stack.pop(), stack.pop()
    stack[-1][key] = value


def _tuple(count: int) -> Callable[[List[Any]], None]:
    def take(stack: List[Any]) -> None:
        found = tuple(stack[-count:])
        if len(found) != count:
            raise NotPlainError("no whole pickle: a tuple lacks values")
        del stack[-count:]
        stack.append(found)

    return take


def _marked_tuple(stack: List[Any]) -> None:
    found = tuple(_since_mark(stack))
    stack.append(found)


def _mark(stack: List[Any]) -> None:
    stack.append(_MARK)


_VALUES = frozenset(
    (
        "BINUNICODE",
        "SHORT_BINUNICODE",
        "BININT",
        "BININT1",
        "BININT2",
        "LONG1",
        "BINFLOAT",
        "BINBYTES",
        "SHORT_BINBYTES",
    )
)
_CONSTANTS: Dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_MADE: Dict[str, Callable[[], Any]] = {"EMPTY_LIST": list, "EMPTY_DICT": dict}
_TAKE: Dict[str, Callable[[List[Any]], None]] = {
    "MARK": _mark,
    "APPENDS": _appends,
    "APPEND": _append,
    "SETITEMS": _setitems,
    "SETITEM": _setitem,
    "TUPLE1": _tuple(1),
    "TUPLE2": _tuple(2),
    "TUPLE3": _tuple(3),
    "TUPLE": _marked_tuple,
}
