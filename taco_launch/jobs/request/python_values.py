"""Check a JobRequest that a Python program made: each value has the type of its field, or becomes one that has."""

import contextlib
import enum
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from taco_launch.core.errors import Fault, SpecError, TacoLaunchError, UsageError
from taco_launch.core.model.job_request import JobRequest
from taco_launch.hosts.inventory.schema import names
from taco_launch.jobs.request import job_fields

_MOST_SHOWN = 60
# What to write instead of a text, by its field or by the field's type.
_SPLIT = "split it into words: shlex.split(...)"
_SECONDS = "give a number of seconds, such as 12 * 3600 for 12 hours"
# An option, and the word after it.
_OPTION = re.compile(r"(?<![\w-])(-[Hx]|--(no-)?([a-z]+(?:-[a-z]+)*))(?![\w-])(?: ([^\s,;)]*[\w\]]))?")
# A line to type in a shell stays as it is.
_TYPED = "taco-launch "
_PAIRS = ("variables", "knobs")
_REQUEST = "JobRequest"
_NAMES = {option: name for name, option in job_fields.OPTIONS.items()}
_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "True or False", type(None): "None"}


def coerce_fields(request: JobRequest) -> JobRequest:
    """Return a request whose fields have their types: a dict becomes pairs, a list a tuple.

    Raises:
        UsageError: a value cannot have the type of its field, or is out of its range; names the field and what it has to be.
    """
    hints = _hints()
    changes = {}
    for each in fields(request):
        value = getattr(request, each.name)
        try:
            read = _read(value, hints[each.name])
        except TypeError:
            shown = repr(value)
            shown = shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]}..."
            hint = _hint(each.name, hints[each.name]) if isinstance(value, str) else None
            raise UsageError(f"JobRequest.{each.name}: {shown}: must be {_described(hints[each.name])}", hint) from None
        _check(each.name, read)
        if read is not value:
            changes[each.name] = read
    return replace(request, **changes) if changes else request


@contextlib.contextmanager
def errors_with_fields() -> Iterator[None]:
    """Write in an error the fields of a request as Python does (`np=4`) where it has their options (`--np 4`).

    Raises:
        TacoLaunchError: the one that was raised in the block.
    """
    try:
        yield
    except TacoLaunchError as error:
        if isinstance(error, SpecError):
            if error.source == names.COMMAND_LINE:
                error.source = _REQUEST
                error.faults = tuple(
                    Fault(_NAMES.get(path, path), value, in_fields(problem), in_fields(hint))
                    for path, value, problem, hint in error.faults
                )
            error.short = error.short and in_fields(error.short)
            error.message = SpecError(error.source, error.faults, short=error.short).message
        else:
            error.message = in_fields(error.message)
        error.args = (error.message,)
        error.hint = error.hint and in_fields(error.hint)
        raise


def in_fields(text: str) -> str:
    """Return a text with fields of a request in place of their options: np=4 for --np 4."""
    words, typed, line = text.partition(_TYPED)
    return _OPTION.sub(_as_field, words) + typed + line


def _as_field(match: re.Match[str]) -> str:
    option, no, rest, word = match.groups()
    name = _NAMES.get(option) or _NAMES.get(f"--{rest}" if no else "")
    if name is None:
        return match[0]
    told = job_fields.BY_NAME[name]
    after = f" {word}" if word else ""
    if told.kind in ("flag", "switch"):
        return f"{name}={told.kind == 'flag' or not no}{after}"
    left, equals, right = (word or "").partition("=")
    if told.kind in _PAIRS and equals:
        return f"{name}={{{left!r}: {right!r}}}"
    if word and (word.isdecimal() or word.isupper()):
        return f"{name}={word}"
    return f"{name}={word!r}" if word and (word in told.choices or told.kind == "hosts") else f"{name}{after}"


def _hint(name: str, kind: Any) -> str | None:
    return _SPLIT if name == "command" else _SECONDS if float in get_args(kind) else None


def _check(name: str, value: Any) -> None:
    """Refuse a number out of its range, and a word that is none of those known.

    Raises:
        UsageError: the value is out of its range, or none of the words.
    """
    told = job_fields.BY_NAME.get(name)
    if value is None or told is None:
        return
    if told.limits is not None:
        least, most = told.limits
        if not all(least <= each <= most for each in (value if isinstance(value, tuple) else (value,))):
            raise UsageError(f"JobRequest.{name}: {value!r}: must be from {least} to {most}")
    if told.choices and value not in told.choices:
        raise UsageError(f"JobRequest.{name}: {value!r:.60}: must be one of {', '.join(told.choices)}")


@cache
def _hints() -> dict[str, Any]:
    return get_type_hints(JobRequest)


def _read(value: Any, hint: Any) -> Any:
    """Return a value of a type.

    Raises:
        TypeError: it is none, and none can be made of it.
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Union:
        for one in arguments:
            try:
                return _read(value, one)
            except TypeError:
                continue
        raise TypeError
    if origin is tuple:
        return _tuple(value, arguments)
    kind = origin or hint  # of a Mapping its own class
    is_number = kind is float and type(value) is int
    if not is_number and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
        raise TypeError
    return value


def _tuple(value: Any, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    if isinstance(value, Mapping):
        value = tuple(value.items())
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise TypeError
    if arguments[-1] is ...:
        read = tuple(_read(each, arguments[0]) for each in value)
    elif len(value) == len(arguments):
        # Variables and parameters are texts; a number is written as one, as in a job file.
        texts = (
            str(each) if type(each) in (int, float) and hint is not int else each
            for each, hint in zip(value, arguments, strict=True)
        )
        read = tuple(map(_read, texts, arguments))
    else:
        raise TypeError
    return value if read == value else read


def _described(hint: Any) -> str:
    """Return a type in words."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Union:
        return " or ".join(_described(one) for one in arguments if one is not type(None))
    if origin is not tuple:
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            return f"{hint.__name__}." + f" or {hint.__name__}.".join(one.name for one in hint)
        return _WORDS.get(hint, "a mapping")
    if arguments[-1] is not ...:
        return f"a pair ({', '.join(map(_described, arguments))})"
    if get_origin(arguments[0]) is tuple:
        return "a dict of strings or numbers, or a list of pairs"
    return "a list of strings"
