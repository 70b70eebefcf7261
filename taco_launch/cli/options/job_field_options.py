"""Make the options of jobs from the table of job fields, and read the values of a command line back into fields."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from taco_launch.cli.options.common import Seconds, add_option, complete_file
from taco_launch.cli.options.completion import complete_host_list
from taco_launch.cli.options.option_groups import OptionGroup
from taco_launch.jobs.request.job_fields import FIELDS, OPTIONS, JobField, Part
from taco_launch.jobs.request.sizes import parse_range

F = TypeVar("F", bound=Callable[..., Any])
_RANGE = re.compile(r"\d*:\d*")
# Parts of the table, by the verbs that have them; within each, by the order of the help.
OF_EACH_JOB = (
    Part.JOB,
    Part.LAUNCHER,
    Part.TUNING,
    Part.CONTAINER,
    Part.CODE,
    Part.HOSTS,
    Part.LIMITS,
    Part.LOGS,
)
OF_QUEUED_JOBS = (Part.QUEUE, Part.SLURM, Part.RETRIES, Part.RECORDS)
_GROUPS = {
    Part.SUSPEND: OptionGroup.QUEUE,
    Part.RETRIES: OptionGroup.LIMITS,
    Part.RECORDS: OptionGroup.LOGS,
}


class _HostCount(click.IntRange):
    """A number of hosts, or the least and the most; host names belong to another option."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read a number, or two as MIN:MAX."""
        if isinstance(value, str) and _RANGE.fullmatch(value):
            try:
                return parse_range(value)
            except ValueError as error:
                self.fail(f"{value!r} {error}", param, ctx)
        if isinstance(value, str) and not value.lstrip("-").isdecimal():
            self.fail(f"{value!r} is not a number of hosts; select hosts with -H", param, ctx)
        return super().convert(value, param, ctx)


class _Size(click.types.IntParamType):
    """A size in bytes, written as 500m, 2g or a number."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read a size; a number is one already."""
        from taco_launch.hosts.inventory.schema.mounts import parse_size

        try:
            return value if isinstance(value, int) else parse_size(value)
        except ValueError as error:
            self.fail(f"{value!r}: {error.args[0]}", param, ctx)


def _complete_knob(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from taco_launch.core.launch import knobs

    return [CompletionItem(f"{knob.name}=") for knob in knobs.TABLE if knob.name.startswith(incomplete)]


def _complete_profile(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from taco_launch.hosts.inventory import profile

    known = [name for name in profile.known_names("", os.environ) if name.startswith(incomplete)]
    return [CompletionItem(name) for name in known] or [CompletionItem(incomplete, type="file")]


_REPEATED: dict[str, Any] = {"multiple": True}
# What click is told of a kind; a kind that is not here is text.
_SETTINGS: Mapping[str, Callable[[JobField], dict[str, Any]]] = {
    "count": lambda field: {"type": click.IntRange(*field.bounds)},
    "host count": lambda field: {"type": _HostCount(*field.bounds)},
    "time": lambda field: {"type": Seconds(field.bounds[0] or 0), "metavar": "TIME"},
    "size": lambda _field: {"type": _Size()},
    "flag": lambda _field: {"is_flag": True},
    "switch": lambda _field: {"default": None},
    "choice": lambda field: {"type": click.Choice(list(field.choices))},
    "words": lambda field: {"type": click.Choice([word.value for word in field.words or ()])},
    "parameters": lambda _field: {"type": (str, str), **_REPEATED},
    **dict.fromkeys(("hosts", "list", "files", "labels", "variables", "knobs"), lambda _field: _REPEATED),
}
_COMPLETERS = {
    "knobs": _complete_knob,
    "profile": _complete_profile,
    "host": complete_host_list,
    "sync": complete_file,
    "env_files": complete_file,
}


def options_of(*parts: Part) -> Callable[[F], F]:
    """Return the decorator that adds the options of some parts of the table."""

    def add(function: F) -> F:
        for part in reversed(parts):
            for field in reversed([each for each in FIELDS if each.part is part]):
                function = _option(field)(function)
        return function

    return add


def _option(field: JobField) -> Callable[[F], F]:
    settings: dict[str, Any] = _SETTINGS[field.kind](field) if field.kind in _SETTINGS else {}
    names = [f"{name}/--no-{name[2:]}" for name in field.options] if field.kind == "switch" else field.options
    text = field.help.format_map(OPTIONS)
    if settings.get("multiple") and field.kind != "hosts":
        text += " Repeatable."
    metavar = {} if field.metavar is None else {"metavar": field.metavar}
    completer = {"shell_complete": _COMPLETERS[field.name]} if field.name in _COMPLETERS else {}
    group = _GROUPS.get(field.part) or OptionGroup[field.part.name]
    return add_option(*names, field.name, group=group.value, help=text, **{**settings, **metavar, **completer})


def values_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a request that a command line gives, by their names; one that it does not have is as if not given.

    Raises:
        SpecError: a variable, a knob or a selector is not a pair.
    """
    return {field.name: _READERS.get(field.kind, _as_it_is)(field, options.get(field.name)) for field in FIELDS}


def _as_it_is(_field: JobField, value: Any) -> Any:
    return value


def _tuple(_field: JobField, value: Any) -> tuple[Any, ...]:
    return tuple(value or ())


def _pairs(_field: JobField, texts: Sequence[str] | None) -> tuple[tuple[str, str | None], ...]:
    if not texts:
        return ()
    from taco_launch.jobs.request.variables import pairs

    return pairs(texts)


def _labels(_field: JobField, texts: Sequence[str] | None) -> tuple[tuple[str, str], ...]:
    if not texts:
        return ()
    from taco_launch.jobs.request.selection import selector

    return tuple(map(selector, texts))


_READERS: Mapping[str, Callable[[JobField, Any], Any]] = {
    "flag": lambda _field, value: bool(value),
    "hosts": lambda _field, texts: ",".join(texts) if texts else None,
    "words": lambda field, value: None if value is None or field.words is None else field.words(value),
    **dict.fromkeys(("list", "files", "parameters"), _tuple),
    **dict.fromkeys(("variables", "knobs"), _pairs),
    "labels": _labels,
}
