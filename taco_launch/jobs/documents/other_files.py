"""Recognise files of other kinds that people give where a job file is read: one sentence says what to do with them."""

import re
from collections.abc import Mapping
from typing import Any

from taco_launch.core.errors import UsageError
from taco_launch.jobs.command_lines import shell_script
from taco_launch.jobs.documents import horovod_config

_TRANSLATE = "to see the same job here: taco-launch translate {}"


# A line of a hostfile of mpirun, DeepSpeed or Horovod.
_HOST_LINE = re.compile(r"[\w.-]+(?:[ \t]+(?:slots|max[_-]slots)=\d+)+", re.ASCII)


def is_python(text: str, source: str) -> bool:
    """Return whether a file is a program in Python, which a scheduler is not to read."""
    first = text.partition("\n")[0]
    named = source.endswith((".py", ".pyw", ".ipynb")) or (first.startswith("#!") and "python" in first)
    return named and not shell_script.read(text).scheduler


def is_hostfile(text: str) -> bool:
    """Return whether each line of a text names a host with its slots."""
    lines = [line for line in (each.partition("#")[0].strip() for each in text.splitlines()) if line]
    return bool(lines) and all(map(_HOST_LINE.fullmatch, lines))


def refuse(text: str, source: str) -> None:
    """Refuse a text that is no document.

    Raises:
        UsageError: it is a script.
    """
    if shell_script.is_script(text):
        scheduler = shell_script.read(text).scheduler
        kind = f"a script for {scheduler}" if scheduler else "a shell script"
        raise UsageError(f"{source}: is {kind}, not a job file", hint=_TRANSLATE.format(source))


def refuse_document(value: Any, source: str) -> None:
    """Refuse a document that is of another kind.

    Raises:
        UsageError: it is an inventory, or a configuration of horovodrun.
    """
    if not isinstance(value, Mapping):
        return
    if horovod_config.is_config(value):
        raise UsageError(f"{source}: is a configuration of horovodrun, not a job file", hint=_TRANSLATE.format(source))
    if "hosts" in value and not isinstance(value["hosts"], (int, str)) and "command" not in value:
        raise UsageError(
            f"{source}: is an inventory, not a job file", hint=f"to use it: taco-launch -i {source} run -- COMMAND"
        )
