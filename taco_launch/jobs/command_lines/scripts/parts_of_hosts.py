"""Join launchers that each start the part of one host (`torchrun --node_rank 0`, then 1): together they are one job; pure."""

import re
from collections.abc import Container, Sequence
from dataclasses import replace

from taco_launch.jobs.command_lines.shell_blocks import ScriptCommand
from taco_launch.jobs.command_lines.translation import Row, Translation

_NODE = re.compile(r"'?--?(?:node|machine)[-_]rank[= ]'?(?P<rank>[^']+)'?")
INSIDE = "it is in a loop or a condition of the script: run it as often as the script does"
_ROUNDS = "each round of the loop starts the part of one host: here one job has all of them"

Job = tuple[ScriptCommand, Translation]


def joined(jobs: Sequence[Job], counters: Container[str]) -> tuple[list[Job], list[Row]]:
    """Return the jobs, of which one has the parts of all its hosts, and a row for each command that is such a part.

    `counters` are the variables that count the rounds of loops.
    """
    separate: list[Job] = []
    rows: list[Row] = []
    for command, done in jobs:
        rank = _rank(done)
        first = next(
            (each for each, other in separate if rank and _is_same(other, done) and _rank(other) != rank), None
        )
        if first is not None:
            why = f"is the part of another host of the job of line {first.line}"
            rows.append(Row(f"line {command.line}: node rank {rank}", "", why))
        elif command.is_conditional and "$" in rank and (command.is_background or rank.strip("${}") in counters):
            row = Row(f"line {command.line}: node rank {rank}", "", _ROUNDS)
            rest = tuple(each for each in done.rows if not each.why.startswith(INSIDE))
            separate.append((replace(command, is_background=False), replace(done, rows=(*rest, row))))
        else:
            separate.append((command, done))
    return separate, rows


def _rank(done: Translation) -> str:
    """Return the rank that a launcher gives its host, "" where it gives none."""
    return next((match["rank"] for row in done.rows if (match := _NODE.fullmatch(row.original))), "")


def _is_same(one: Translation, other: Translation) -> bool:
    return (one.options, one.program, one.hostfile) == (other.options, other.program, other.hostfile)
