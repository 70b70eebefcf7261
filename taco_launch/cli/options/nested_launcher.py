"""A launcher as the command of a job, which is refused: the same job as it is typed here."""

import os
from collections.abc import Sequence

from taco_launch.core.command import BARE, shell
from taco_launch.core.launch.command_line.nested_launcher import inner
from taco_launch.jobs.command_lines.launcher_line import UnclearError
from taco_launch.jobs.command_lines.script_translation import translate_script
from taco_launch.jobs.command_lines.translation import Row, translate
from taco_launch.jobs.translate import from_here

_HAS_HOSTS = "the command has an inventory, or hosts, already"


def line(
    verb: str, own: Sequence[str], command: Sequence[str], *, sized: bool = False, launcher: str = "mpirun"
) -> tuple[str, tuple[Row, ...]]:
    """Return a job's line with what a launcher's line says as options, and what of that line it does not have.

    `own`: options that are given already, which go first; `sized`: the size is given elsewhere; `launcher` is the job's.
    """
    found = inner(command)
    if found is None:
        return f"{verb} {shell((*own, '--', *command))}", ()
    try:
        done = translate(command, found, own, sized=sized, launcher=launcher)
    except UnclearError as error:
        word = command[found.begin + error.index]
        return f"{verb} {shell((*own, '--'))} COMMAND ({word!r} of {found.name}: {error.problem})", ()
    rows = done.rows
    if _has_hosts(verb, own):
        rows = tuple(Row(row.original, "", _HAS_HOSTS) if row.here.startswith("-i ") else row for row in rows)
    return typed(verb, own, from_here(done.options), done.program, done.hostfile), tuple(
        row for row in rows if not row.here
    )


def of_script(program: str, verb: str, text: str) -> str:
    """Return what to type for a script; `program` is taco-launch with its inventory."""
    try:
        jobs = translate_script(text, os.path.expanduser("~")).jobs  # noqa: PTH111 - a home that is not known stays
    except UnclearError as error:
        return f"line {error.index} of the script {error.problem}: {error.hint}"
    if len(jobs) != 1:
        return "taco-launch translate FILE shows each job of the script"
    _line, job = jobs[0]
    return f"{typed(f'{program} {verb}', (), from_here(job.options), job.program, job.hostfile)}  (taco-launch translate FILE shows why)"


def typed(verb: str, own: Sequence[str], options: Sequence[str], program: Sequence[str], hostfile: str) -> str:
    """Return a line to type; the hostfile is the inventory, unless `verb` or `own` has another, or the hosts."""
    if hostfile and not _has_hosts(verb, own):
        verb = f"{BARE} -i {shell((hostfile,))}{verb.removeprefix(BARE)}"
    return f"{verb} {shell((*options, '--', *program))}"


def _has_hosts(verb: str, own: Sequence[str]) -> bool:
    return bool({"-i", "-H"} & {*verb.split(), *own})


def remarks(rows: Sequence[Row]) -> str:
    """Return what a line leaves out, a line of text for each reason."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if not row.is_remark:
            reasons.setdefault(row.why, []).append(row.original)
    lines = [f"left out: {', '.join(parts)}: {why}" for why, parts in reasons.items()]
    return "".join(
        f"\n  {line}" for line in (*lines, *(f"{row.original!r} {row.why}" for row in rows if row.is_remark))
    )


def is_launcher(words: Sequence[str]) -> bool:
    """Return whether a command starts ranks by itself."""
    return inner(words) is not None
