"""The reference of the Python API: its classes with the signatures, docstrings and field comments that the code has."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator

from reference_pages.markdown import code, prose, table
from reference_pages.messages import field_comments
from taco_launch.api import (
    Cluster,
    FollowListener,
    HostError,
    Job,
    JobRequest,
    LogQuery,
    NightlyListener,
    NightlyOptions,
    NightlyResult,
    NoJobError,
    PlacementError,
    Progress,
    SetupEnd,
    SetupListener,
    SetupOptions,
    SetupPlan,
    SpecError,
    TacoLaunchError,
    UsageError,
    run_nightly,
    set_up_hosts,
)

_INTRODUCTION = """\
# Python API

This page is generated from the docstrings of the package by `scripts/generate_docs.py`.
[Call taco-launch from Python](../guides/python.md) has an example. All names are imported from `taco_launch.api`; every other
module may change without notice.
"""
# The calls that stay; what else the classes have is for the command line.
_CALLS = {
    Cluster: (
        "__init__",
        "resolve",
        "plan",
        "submit",
        "run",
        "job",
        "jobs",
        "map",
        "as_completed",
        "wait_all",
        "facts",
        "inventory",
        "close",
    ),
    Job: (
        *(
            "name",
            "state",
            "exit_code",
            "spec",
            "record",
            "progress",
            "refresh",
            "wait",
            "logs",
            "follow",
            "execute",
            "fetch",
            "send",
        ),
        *("stop", "suspend", "resume", "delete"),
    ),
}
_FUNCTIONS = (set_up_hosts, run_nightly)
_OF_COMMAND_LINE = ("line_np", "source", "written")
_FIELDS = (
    *(JobRequest, LogQuery, FollowListener, Progress),
    *(SetupOptions, SetupListener, SetupPlan, SetupEnd),
    *(NightlyOptions, NightlyListener, NightlyResult),
)
_ERRORS = (TacoLaunchError, UsageError, SpecError, PlacementError, HostError, NoJobError)


def page() -> str:
    """Return the page."""
    lines = [_INTRODUCTION]
    for kind, names in _CALLS.items():
        lines += [f"## {kind.__name__}\n", f"{inspect.getdoc(kind)}\n"]
        lines += [line for name in names for line in _call(kind, name)]
    lines += ["## Functions\n", *(line for function in _FUNCTIONS for line in _signature(function.__name__, function))]
    for kind in _FIELDS:
        comments = field_comments(importlib.import_module(kind.__module__))[kind.__name__]
        rows = [
            (code(name), code(_type(form)), _default(kind, name), prose(comments.get(name, "")))
            for name, form in kind.__annotations__.items()
            if name not in _OF_COMMAND_LINE
        ]
        lines += [f"## {kind.__name__}\n", f"{inspect.getdoc(kind)}\n"]
        lines += table(("Field", "Type", "Default", ""), rows)
    lines.append("## Errors\n")
    errors = (
        (code(kind.__name__), code(kind.__bases__[0].__name__), prose(inspect.getdoc(kind) or "")) for kind in _ERRORS
    )
    lines += table(("Error", "Is a", "Meaning"), errors)
    return "\n".join(lines)


def _call(kind: type, name: str) -> Iterator[str]:
    member = inspect.getattr_static(kind, name)
    shown = kind.__name__ if name == "__init__" else f"{kind.__name__}.{name}"
    if callable(member):
        yield from _signature(shown, member)
    else:
        yield f"### `{shown}`\n\n{_markdown(inspect.getdoc(member) or '')}\n"


def _signature(shown: str, function: Callable[..., object]) -> Iterator[str]:
    words = _markdown(inspect.getdoc(function) or "")
    signature = inspect.signature(function)
    given = ", ".join(_arguments(one for one in signature.parameters.values() if one.name != "self"))
    returned = "" if function.__name__ == "__init__" else f" -> {_type(signature.return_annotation)}"
    yield f"### `{shown}`\n\n```text\n{shown}({given}){returned}\n```\n\n{words}\n"


def _arguments(parameters: Iterable[inspect.Parameter]) -> Iterator[str]:
    """Yield how each argument is declared, with the star before those that are given by name alone."""
    is_marked = False
    for one in parameters:
        stars = "*" if one.kind is one.VAR_POSITIONAL else "**" if one.kind is one.VAR_KEYWORD else ""
        if one.kind is one.KEYWORD_ONLY and not is_marked:
            yield "*"
        is_marked = is_marked or one.kind in (one.KEYWORD_ONLY, one.VAR_POSITIONAL)
        default = "" if one.default is one.empty else f" = {'...' if callable(one.default) else repr(one.default)}"
        yield f"{stars}{one.name}: {_type(one.annotation)}{default}"


def _type(annotation: object) -> str:
    """Return a type by the short names that its module has."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(
        r"\b(?:typing|collections\.abc|pathlib(?:\._local)?|taco_launch(?:\.\w+)+)\.(?=\w)", "", text.replace('"', "")
    )


def _default(kind: type, name: str) -> str:
    if not hasattr(kind, name):
        return "required"
    value = getattr(kind, name)
    return "none" if callable(value) else code(repr(value))


def _markdown(docstring: str) -> str:
    """Return a docstring with what it raises as a list."""
    words, raises, rest = docstring.partition("Raises:\n")
    faults = [line.strip().partition(": ") for line in rest.splitlines() if line.strip()]
    listed = "\n".join(f"- `{fault}`: {why}" for fault, _, why in faults)
    return f"{words.strip()}\n\nRaises:\n\n{listed}" if raises else words.strip()
