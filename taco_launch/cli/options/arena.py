"""What people type who come from Arena, and how it is said here."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from taco_launch.command import shell
from taco_launch.request.lines.arena_line import MPI, OTHER_TYPES, TORCH

if TYPE_CHECKING:
    from taco_launch.model.job_request import JobRequest

_ENV = "--env"


def arena_hint(
    typed: str, given: Sequence[str], words: Sequence[str], behind: Sequence[str], *, alone: bool
) -> str | None:
    """Return what is wrong with a job's words as Arena has them, and how to type it here; None where nothing is.

    `typed` is taco-launch with its inventory, `given` all that stands before `--` as it was typed, `words` what of that is no
    option that is known here, `behind` what stands after it. `alone` says that nothing else was given, so that the only word
    may be the program.
    """
    kind = next((word for word in words if not word.startswith("-")), "")
    if kind in (*MPI, *TORCH, *OTHER_TYPES) and not alone:
        line = f"{kind!r} would be taken for the program: jobs have no type here"
        if kind in OTHER_TYPES:
            return f"{line}, so omit it and put -- before the program"
        return f"{line}. Type: {typed} arena {shell(('submit', *given, *behind))}"
    if any(word.partition("=")[0] == _ENV for word in words):
        return f"No such option: {_ENV}: set a variable with -x NAME=VALUE"
    return None


def with_arena_source(request: "JobRequest", options: Mapping[str, Any]) -> "JobRequest":
    """Return a request with the code that Arena's options name, if they do.

    Raises:
        UsageError: --sync names some as well, or one of them lacks the other.
    """
    mode, source = options.get("sync_mode"), options.get("sync_source")
    if mode is None and source is None:
        return request
    from taco_launch.errors import UsageError
    from taco_launch.request import code_options as asked

    if mode is None:
        raise UsageError("--sync-source requires --sync-mode", hint="add --sync-mode git or --sync-mode rsync")
    if request.sync is not None:
        raise UsageError(
            "--sync and --sync-source cannot be combined: both name where the code comes from",
            hint="leave one of them out",
        )
    return asked.from_arena(request, mode, source or "")
