"""Frozen dataclasses to JSON values and back, for what travels between controller and agent and for job folders."""

import enum
import functools
import json
import types
from dataclasses import fields, is_dataclass
from typing import Any, Dict, Mapping, Type, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
# `Optional[str]`, and `str | None` of Python 3.10.
_UNIONS = (Union, getattr(types, "UnionType", Union))
_MOST_LEVELS = 100
_TOO_DEEP = f"is nested in more than {_MOST_LEVELS} levels"


def load(text: Union[str, bytes]) -> Any:
    """Return the value of a JSON text that anybody may have written.

    Raises:
        ValueError: it is no JSON, no UTF-8, or nested too deeply for code that goes down into it.
    """
    try:
        value = json.loads(text)
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


def to_json(value: Any) -> Any:
    """Return `value` as dicts, lists, strings, numbers, booleans and None."""
    if is_dataclass(value) and not isinstance(value, type):
        return {entry.name: to_json(getattr(value, entry.name)) for entry in fields(value)}
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
    if not isinstance(data, Mapping):
        raise _wrong(path, "a mapping", data)
    hints = _hints(kind)  # type: ignore[arg-type]  # every class can be hashed
    values: Dict[str, Any] = {}
    for entry in fields(kind):  # type: ignore[arg-type]
        if entry.name in data:
            values[entry.name] = _decode(hints[entry.name], data[entry.name], f"{path}.{entry.name}")
    try:
        return kind(**values)
    except TypeError as error:
        raise ValueError(f"{path}: {error}") from None


@functools.lru_cache(maxsize=None)
def _hints(kind: Type[Any]) -> Mapping[str, Any]:
    """Return the types of a dataclass's fields; finding them takes longer than all else about a value."""
    return get_type_hints(kind)


def _decode(hint: Any, data: Any, path: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in _UNIONS:  # Optional[...] is the only union that records have
        return None if data is None else _decode(arguments[0], data, path)
    if origin is tuple:
        if not isinstance(data, (list, tuple)):
            raise _wrong(path, "a list", data)
        if arguments[-1] is Ellipsis:
            return tuple(_decode(arguments[0], item, path) for item in data)
        if len(data) != len(arguments):
            raise ValueError(f"{path}: {len(arguments)} items are needed, got {len(data)}")
        return tuple(_decode(argument, item, path) for argument, item in zip(arguments, data))
    if origin is not None:  # Mapping[str, Any]
        if not isinstance(data, Mapping):
            raise _wrong(path, "a mapping", data)
        return data
    return _plain(hint, data, path) if isinstance(hint, type) else data


def _plain(kind: Type[Any], data: Any, path: str) -> Any:
    if is_dataclass(kind):
        return from_json(kind, data, path)
    try:
        if issubclass(kind, enum.Enum):
            return kind(data)
        if kind is float and isinstance(data, int) and not isinstance(data, bool):
            data = float(data)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{path}: {error}") from None
    if not isinstance(data, kind) or (kind is int and isinstance(data, bool)):
        raise _wrong(path, kind.__name__, data)
    return data


def _wrong(path: str, wanted: str, data: Any) -> ValueError:
    return ValueError(f"{path}: {wanted} is needed, got {type(data).__name__}")
