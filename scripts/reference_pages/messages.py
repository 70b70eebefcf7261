"""The message reference: the classes in taco_launch/core/protocol, their docstrings, fields, types and comments."""

from __future__ import annotations

import ast
import importlib
import inspect
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from taco_launch.core.protocol.message import Message

# Contributors read it: to others its words would hide the guides in the search.
_INTRODUCTION = """\
---
search:
  exclude: true
---

# Messages

This page is generated from the classes in `taco_launch/core/protocol` by `scripts/generate_docs.py`.

The processes of a cluster talk in messages: one line of JSON each, with the name of the message under `op`. A message that
carries raw bytes has their number under `bytes`, and the bytes follow its line. A field that is not listed here is ignored; a
message without a listed field that has no default, or with a value of another type, is refused. `taco-launch -vv` and a job's
agent log show messages under these names.
"""
_SECTIONS = (
    ("rank_messages", "Between a rank's wrapper and the guard of its host"),
    ("horovod_messages", "Between the hosts of an elastic Horovod job and its driver"),
    ("guard_messages", "Between a job's supervisor and the guards of its hosts"),
    ("relay_messages", "From the relay that starts, reaches or replaces a guard on another host"),
    ("stall_messages", "Between supervisors, guards and what reads stacks, about ranks that make no progress"),
    ("verify_messages", "What guards tell of their ranks, to be compared with the plan"),
    ("stack_messages", "What reads stacks on a host"),
    ("connection", "Of every connection between processes of a job"),
    ("calls", "Calls from the controller to the agent: every call"),
    ("calls.jobs", "Calls about one job"),
    ("calls.job_list", "Calls about all jobs"),
    ("calls.logs", "Calls about logs"),
    ("calls.exec_command", "Calls about commands beside a rank"),
    ("calls.stacks", "Calls about what the ranks do"),
    ("calls.copy_files", "Calls about files of a rank's host"),
    ("calls.caller_input", "What follows the request of a call beside a rank"),
    ("calls.facts", "Calls about the facts of the head"),
    ("calls.hosts", "Calls about the slots of hosts"),
    ("calls.job_containers", "Calls about containers that jobs bring"),
    ("calls.snapshots", "Calls about copies of code"),
    ("job_host_facts", "Parts of messages"),
)
_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", bytes: "bytes behind the line", Any: "any"}


def page() -> str:
    """Return the message reference."""
    return "\n".join([_INTRODUCTION, *(line for name, title in _SECTIONS for line in _section(name, title))])


def _section(name: str, title: str) -> Iterator[str]:
    module = importlib.import_module(f"taco_launch.core.protocol.{name}")
    file = Path(inspect.getfile(module)).relative_to(Path(__file__).resolve().parents[2])
    yield f"## {title}\n\n`{file}`\n"
    comments = field_comments(module)
    kinds = (
        value for value in vars(module).values() if isinstance(value, type) and value.__module__ == module.__name__
    )
    for kind in kinds:
        if issubclass(kind, Message) and (kind._fields or kind.op):
            yield from _message(kind, comments.get(kind.__name__, {}))


def _message(kind: type[Message], comments: Mapping[str, str]) -> Iterator[str]:
    yield f"### {kind.__name__}{f' (`{kind.op}`)' if kind.op else ''}\n"
    yield f"{inspect.getdoc(kind)}\n"
    if kind._fields:
        yield "| field | type | default | |\n|---|---|---|---|"
        for name, form in kind._fields:
            default = f"`{_default(getattr(kind, name))}`" if hasattr(kind, name) else "required"
            yield f"| `{name}` | {_type(form)} | {default} | {comments.get(name, '')} |"
        yield ""


def field_comments(module: ModuleType) -> dict[str, dict[str, str]]:
    """Return the comment above each field, by class and field."""
    source = inspect.getsource(module)
    lines = source.splitlines()
    found: dict[str, dict[str, str]] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            for part in node.body:
                if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                    above: list[str] = []
                    for line in reversed(lines[: part.lineno - 1]):
                        if not line.strip().startswith("# "):
                            break
                        above.insert(0, line.strip()[2:])
                    found.setdefault(node.name, {})[part.target.id] = " ".join(above)
    return found


def _type(form: Any) -> str:
    """Return a field's type in the words of JSON; records and messages by their names."""
    inner = typing.get_args(form)
    if not inner:
        return _PLAIN.get(form) or f"`{form.__name__}`"
    if type(None) in inner:
        return f"{_type(inner[0])} or null"
    if typing.get_origin(form) is not None and issubclass(typing.get_origin(form), Mapping):
        return f"object of {_type(inner[1])}"
    return f"list of {_type(inner[0])}"


def _default(value: object) -> str:
    if isinstance(value, Message):
        return f"{type(value).__name__}()"
    return {"None": "null", "True": "true", "False": "false", "()": "[]", "''": '""', "b''": "none"}.get(
        repr(value), repr(value)
    )
