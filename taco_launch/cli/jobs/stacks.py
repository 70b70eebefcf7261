"""stacks: what the ranks of a running job do, grouped, with the frames of one rank of each group."""

from collections.abc import Iterator, Sequence
from typing import Any

import click

from taco_launch.cli.options.common import access_of, add_option, settings_of, verb
from taco_launch.cli.options.completion import complete_job
from taco_launch.cli.output import render
from taco_launch.core.errors import HOST_FAILED, UsageError
from taco_launch.core.model.codec import to_json
from taco_launch.core.model.run.rank_samples import RankStack
from taco_launch.core.model.stalls import doing
from taco_launch.core.stalls import groups

# Of a stack that is shown for its group; --rank shows all frames.
_MOST_FRAMES = 12
_PYTHON = (".py", ".pyx", ">")


@verb(access=True, output=True)
@add_option("--rank", type=click.IntRange(min=0), metavar="N", help="Show only this rank, with all its frames.")
@click.argument("name", shell_complete=complete_job)
def stacks(ctx: click.Context, /, name: str, *, rank: int | None, **access: Any) -> int:
    """Show where each rank of a running job is.

    Ranks on the same line are one group, shown with the Python frames of one of them. Groups that wait for no other rank
    come first, then the smallest: the others usually wait for those. py-spy reads the stacks and stops each rank for
    less than a second; set-up puts it on the hosts. A rank that runs no Python program, or that may not be traced, is
    listed with the reason.

    \b
    Exit codes: 0 shown, 1 no such job, 2 the job or the rank does not run, 5 a host did not answer.

    \b
    Examples:
      taco-launch stacks vgg16
      taco-launch stacks vgg16 --rank 5
      taco-launch stacks vgg16 -o json
    """
    settings = settings_of(ctx)
    backend = settings.backend(access_of(access))
    found, problems = backend.stacks(name)
    if rank is not None:
        found = tuple(told for told in found if told.look.rank == rank)
        if not found and not problems:
            raise UsageError(
                f"job {name}: rank {rank} is not running", hint=f"{settings.typed} get {name} shows its ranks"
            )
    if settings.output in ("json", "yaml"):
        render.data({"ranks": to_json(found), "problems": dict(problems)}, settings.output)
    else:
        click.echo("\n\n".join(_text(found, most=_MOST_FRAMES if rank is None else None)))
    for host, why in problems.items():
        render.error(f"{host}: {why}", None)
    return HOST_FAILED if problems else 0


def _text(found: Sequence[RankStack], *, most: int | None) -> Iterator[str]:
    """Yield a paragraph for each group of ranks whose stacks are known, then one for the others."""
    known = {told.look.rank: told for told in found if told.stack is not None}
    for group in groups.groups([told.look for told in known.values()]):
        shown = known[group.ranks[0][0]]
        ranks = ", ".join(str(rank) for rank, _host in group.ranks)
        title = render.printable(groups.words(group))
        of = f"ranks {ranks}; the stack of rank {shown.look.rank}:" if group.ranks[1:] else "its stack:"
        yield "\n".join((title, f"  {of}", *_frames(shown, most)))
    rest = [told for told in found if told.stack is None]
    if rest:
        rows = [
            [
                str(told.look.rank),
                told.look.host,
                str(told.look.pid or ""),
                told.look.program,
                doing(told.look),
                told.why,
            ]
            for told in rest
        ]
        yield render.columns(["RANK", "NODE", "PID", "PROGRAM", "DOES", "WHY NO STACK"], rows, numbers=("RANK", "PID"))


def _frames(told: RankStack, most: int | None) -> Iterator[str]:
    """Yield the frames of a stack, the innermost first; of native code only that one, unless all are asked for."""
    assert told.stack is not None
    frames = told.stack.frames
    if most is not None:
        frames = tuple(frame for frame in frames if frame.file.endswith(_PYTHON) or frame is frames[0])
    for frame in frames[:most]:
        where = f"{frame.file}:{frame.line}" if frame.line else frame.file
        yield render.printable(f"    {frame.function}  {where}")
    if most is not None and len(frames) > most:
        yield f"    ... {len(frames) - most} more: --rank {told.look.rank}"
