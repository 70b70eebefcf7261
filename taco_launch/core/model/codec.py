"""Typed values to JSON and back: messages between processes, and the frozen dataclasses that travel in them or lie in job folders.

Every rank imports this, so it does not import `dataclasses`.
"""

import enum
import functools
import json
import types
from typing import Any, Callable, Dict, Mapping, Tuple, Type, TypeVar, Union, get_type_hints

T = TypeVar("T")
# `int | None`, of Python 3.10 and later.
_NEW_UNION: Any = getattr(types, "UnionType", ())
_MOST_LEVELS = 100
# What 64 bits hold; no time, size or count is larger.
_MOST = 1 << 64
_MOST_DIGITS = 400
_TOO_DEEP = f"is nested in more than {_MOST_LEVELS} levels"


def load(text: Union[str, bytes]) -> Any:
    """Return the value of a JSON text that anybody may have written.

    Raises:
        ValueError: it is no JSON, no UTF-8, nested too deeply for code that goes down into it, or has a number that is none
            (NaN, Infinity) or beyond 64 bits.
    """
    try:
        value = json.loads(
            text, parse_constant=_number, parse_float=_number, parse_int=functools.partial(_number, kind=int)
        )
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    opened = text.count("[") + text.count("{") if isinstance(text, str) else text.count(b"[") + text.count(b"{")
    level = [value] if opened > _MOST_LEVELS else []
    for _level in range(_MOST_LEVELS):
        inner = [part for part in level if isinstance(part, (dict, list))]
        level = [part for each in inner for part in (each.values() if isinstance(each, dict) else each)]
    if level:
        raise ValueError(_TOO_DEEP)
    return value


def _number(text: str, kind: Callable[[str], float] = float) -> float:
    number = kind(text[:_MOST_DIGITS])
    if len(text) > _MOST_DIGITS or not -_MOST <= number <= _MOST:
        raise ValueError(f"{text:.40} is out of range")
    return number


def to_json(value: Any) -> Any:
    """Return `value` as dicts, lists, strings, numbers, booleans and None."""
    if hasattr(value, "to_wire"):
        return value.to_wire()
    if hasattr(type(value), "__dataclass_fields__"):
        return {name: to_json(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    return value


def from_json(kind: Type[T], data: Any, path: str = "") -> T:
    """Rebuild a value of the dataclass `kind` from `to_json`'s result; unknown keys are ignored.

    Raises:
        ValueError: the data does not have the shape of `kind`; the message names the field, below `path` if given.
    """
    path = path or kind.__name__
    hints = _hints(kind)  # type: ignore[arg-type]  # every class can be hashed
    values: Dict[str, Any] = {}
    for name, value in _mapping(data, path).items():
        if name in hints:
            values[name] = read_value(hints[name], value, f"{path}.{name}")
    try:
        return kind(**values)
    except TypeError as error:
        raise ValueError(f"{path}: {error}") from None


@functools.lru_cache(maxsize=None)
def _hints(kind: Type[Any]) -> Mapping[str, Any]:
    """Return the types of a dataclass's fields; finding them takes longer than all else about a value."""
    return get_type_hints(kind)


def read_value(kind: Any, value: Any, path: str) -> Any:
    """Return a value of JSON as one of a type: a plain type, an enum, a message, a record, or typing's forms of these.

    Raises:
        ValueError: it has another shape; the message names `path`.
    """
    inner: Tuple[Any, ...] = getattr(kind, "__args__", ())
    origin = getattr(kind, "__origin__", None)
    if kind is Any:
        return value
    if origin is Union or isinstance(kind, _NEW_UNION):  # Optional[...] is the only union that fields have
        return None if value is None else read_value(inner[0], value, path)
    if origin is None:
        return _read_plain(kind, value, path)
    if issubclass(origin, Mapping):
        return {key: read_value(inner[1], each, path) for key, each in _mapping(value, path).items()}
    if not isinstance(value, (list, tuple)):
        raise _wrong(path, "a list", value)
    if origin is not tuple:
        return [read_value(inner[0], each, path) for each in value]
    if inner[-1] is not Ellipsis and len(value) != len(inner):
        raise ValueError(f"{path}: {len(inner)} items are needed, got {len(value)}")
    items = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
    return tuple(read_value(item, each, path) for item, each in zip(items, value))


def is_nested(kind: Any) -> bool:
    """Return whether values of a type are messages or records; a look at a record's fields would have frozen.py write the class."""
    return isinstance(kind, type) and (hasattr(kind, "from_wire") or "__dataclass_fields__" in vars(kind))


def _read_plain(kind: Type[Any], value: Any, path: str) -> Any:
    if is_nested(kind):
        return kind.from_wire(_mapping(value, path)) if hasattr(kind, "from_wire") else from_json(kind, value, path)
    try:
        if issubclass(kind, enum.Enum):
            return kind(value)
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{path}: {error}") from None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise _wrong(path, kind.__name__, value)
    return value


def _mapping(value: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _wrong(path, "a mapping", value)
    return value


def _wrong(path: str, wanted: str, value: Any) -> ValueError:
    return ValueError(f"{path}: {wanted} is needed, got {type(value).__name__}")
