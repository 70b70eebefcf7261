"""Write a job request as a person would: as options of the command line, or as the document of a job file."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from taco_launch.core.model.job_request import JobRequest
from taco_launch.core.model.jobs import CleanUp, Restart
from taco_launch.jobs.request.job_fields import BY_NAME, FIELDS, KEYS, OPTIONS, operator_word

# Fields whose value is a list of pairs, and what is between the two words of an option's value; None: two words.
_PAIRS: Mapping[str, str | None] = {"env": "=", "knobs": "=", "mca": None, "selectors": "="}


def options(request: JobRequest) -> tuple[str, ...]:
    """Return the options of a request, in the order of their table; the command is not among them."""
    return tuple(word for name, value in _given(request) for word in _option(name, value))


def document(request: JobRequest) -> dict[str, Any]:
    """Return the document of a job file that asks for the same."""
    written: dict[str, Any] = {}
    for name, value in _given(request):
        section = written
        for step in BY_NAME[name].section or ():
            section = section.setdefault(step, {})
        section[KEYS[name]] = _written(name, value)
    return {**written, "command": list(request.command)}


def text(document: Mapping[str, Any], reasons: Mapping[str, str]) -> str:
    """Return the text of a job file, in which words of the command have a reason behind them: what to write in their place."""
    dumped = yaml.safe_dump(dict(document), sort_keys=False, width=math.inf)
    for word, why in reasons.items():
        item = yaml.safe_dump([word], width=math.inf)
        dumped = dumped.replace(f"\n{item}", f"\n{item[:-1]}  # {why}\n")
    return dumped


def _given(request: JobRequest) -> Iterator[tuple[str, Any]]:
    for field in FIELDS:
        value = getattr(request, field.name)
        if value not in (None, (), False, ""):
            yield field.name, value


def _written(name: str, value: Any) -> Any:
    if name in _PAIRS:
        return dict(value)
    if isinstance(value, (CleanUp, Restart)):
        return operator_word(value)
    if name == "hosts" and isinstance(value, tuple):
        return f"{value[0]}:{value[1]}"
    if isinstance(value, float):
        return int(value) if value.is_integer() else f"{value:g}s"
    return list(value) if isinstance(value, tuple) else value


def _option(name: str, value: Any) -> Iterator[str]:
    option = OPTIONS[name]
    if name in _PAIRS:
        between = _PAIRS[name]
        for first, second in value:
            yield option
            yield from (
                (first, second) if between is None else (first if second is None else f"{first}{between}{second}",)
            )
    elif value is True:
        yield option
    elif isinstance(value, tuple) and name != "hosts":
        for each in value:
            yield from (option, each)
    else:
        yield from (option, _value(name, value))


def _value(name: str, value: Any) -> str:
    if isinstance(value, (CleanUp, Restart)):
        return str(value.value)
    if isinstance(value, tuple):
        return f"{value[0]}:{value[1]}"
    if isinstance(value, float) or name.endswith("timeout"):
        return f"{value:g}s"
    return str(value)
