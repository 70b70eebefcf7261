"""stacks: what the ranks of a running job do, grouped, with the frames of one rank of each group."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import click
from click.core import ParameterSource

from taco_launch.cli.options.common import Seconds, Settings, access_of, add_option, settings_of, verb
from taco_launch.cli.options.completion import complete_job
from taco_launch.cli.output import host_errors, render
from taco_launch.core.errors import FAILED, HOST_FAILED, UsageError
from taco_launch.core.model.codec import to_json
from taco_launch.core.model.run.rank_samples import Life, RankStack
from taco_launch.core.model.stalls import doing
from taco_launch.core.stalls import groups
from taco_launch.hosts.fanout import connect
from taco_launch.hosts.inventory.ranges import fold
from taco_launch.jobs import any_ranks
from taco_launch.jobs.any_ranks import AnyJob

# Of a stack that is shown for its group; --rank shows all frames.
_MOST_FRAMES = 12
_PYTHON = (".py", ".pyx", ">")
# Of ranks that were not seen.
_MOST_NAMED = 8
_VERDICTS = {Life.HUNG: "HANGS", Life.WORKING: "WORKS", Life.UNKNOWN: "UNKNOWN"}


@verb(access=True, output=True)
@add_option("--rank", type=click.IntRange(min=0), metavar="N", help="Show only this rank, with all its frames.")
@add_option(
    "--match",
    metavar="TEXT",
    help="Instead of NAME: look for jobs of any launcher that have TEXT, such as train.py, in the command line of a rank.",
)
@add_option(
    "-H",
    "--hosts",
    metavar="HOSTS",
    help="Look for jobs of any launcher on these hosts: of the inventory, or without one by their SSH names, such as gpu[1-4].",
)
@add_option(
    "--watch",
    "seconds",
    type=Seconds(least=1),
    default=10.0,
    metavar="TIME",
    help="Without NAME: how long to watch the ranks before saying whether they hang. Default: 10s.",
)
@click.argument("name", required=False, shell_complete=complete_job)
def stacks(
    ctx: click.Context,
    /,
    name: str | None,
    *,
    rank: int | None,
    match: str | None,
    hosts: str | None,
    seconds: float,
    **access: Any,
) -> int:
    """Show the line of code that each rank of a running job is on.

    Ranks on the same line are one group, shown with the Python frames of one of them. Groups that wait for no other rank
    come first, then the smallest: the others usually wait for those. py-spy reads the stacks and stops each rank for
    less than a second; set-up puts it on the hosts. A rank that runs no Python program, or that may not be traced, is
    listed with the reason.

    Without NAME the ranks of all jobs on the hosts are found by their environment, whatever started them: mpirun, torchrun,
    Hydra, horovodrun, Slurm, Kubernetes, in containers too. They are watched for some seconds, and it is shown whether the
    job hangs or works. Hosts need no set-up, only a Python, and nothing is installed there. Without a launcher's rank in
    their environment (Ray, multiprocessing), programs are found by --match. Ranks of other users need root: as root, or
    where sudo asks for no password, or with --ask-sudo-password.

    \b
    Exit codes: 0 shown, 1 the job was not found or does not run, 2 it has no such rank, 5 a host did not answer.

    \b
    Examples:
      taco-launch stacks vgg16
      taco-launch stacks vgg16 --rank 5
      taco-launch stacks vgg16 -o json
      taco-launch stacks --match train.py
      taco-launch stacks --hosts 'gpu[1-4]' --match train.py
    """
    settings = settings_of(ctx)
    if name is None:
        return _of_any_launcher(settings, access, hosts, match or "", seconds, rank)
    for option in ("match", "hosts", "seconds"):
        if ctx.get_parameter_source(option) is not ParameterSource.DEFAULT:
            shown = "--watch" if option == "seconds" else f"--{option}"
            raise UsageError(f"{shown} is for jobs of any launcher: omit NAME ({name})")
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


def _of_any_launcher(
    settings: Settings, access: Mapping[str, Any], hosts: str | None, match: str, seconds: float, rank: int | None
) -> int:
    """Show the jobs of any launcher on hosts; return the exit code."""
    inventory, chosen = any_ranks.hosts_to_watch(settings.source, settings.load, hosts)
    credentials = access_of(access)
    sudo = credentials.sudo_password is not None
    sent = any_ranks.payload(match)
    with (
        connect(inventory, chosen, credentials) as fanout,
        render.progress(settings, "stacks", len(chosen)) as progress,
    ):
        answers = fanout.each(lambda host: any_ranks.watch(host, sent, seconds, sudo=sudo), lambda _answer: progress())
    jobs = any_ranks.jobs_of(answers)
    if rank is not None:
        jobs = tuple(replace(job, ranks=tuple(one for one in job.ranks if one.look.rank == rank)) for job in jobs)
        jobs = tuple(job for job in jobs if job.ranks)
    came = {answer.host: answer.value for answer in answers if answer.value is not None}
    if settings.output in ("json", "yaml"):
        problems = {answer.host: answer.error.message for answer in answers if answer.error}
        rest = {
            host: {"hidden": value.hidden, "left_out": value.left_out, "ras": value.ras} for host, value in came.items()
        }
        render.data({"jobs": [_document(job) for job in jobs], "hosts": rest, "problems": problems}, settings.output)
    else:
        click.echo("\n\n".join(part for job in jobs for part in _job(job, rank)), nl=bool(jobs))
        for host, value in came.items():
            if value.ras:
                lines = map(render.printable, value.ras.splitlines())
                click.echo("\n".join(("", f"NCCL's RAS on {host}:", *lines)))
    for host, value in came.items():
        if value.hidden:
            settings.talk(f"note: {host}: {value.hidden}: log in as root, or add --ask-sudo-password")
        if value.left_out:
            settings.talk(f"note: {host}: {value.left_out} more ranks are left out: add --match")
    host_errors.show(answers, {host.name: host.address for host in chosen})
    if any(answer.error for answer in answers):
        return HOST_FAILED
    if not jobs and rank is not None and any(value.jobs for value in came.values()):
        raise UsageError(f"rank {rank} was not found", hint="without --rank all ranks are shown")
    if not jobs:
        what = f"no rank or Python program with {match!r} in its command line" if match else "no rank of any launcher"
        hint = None if match else "a program that no launcher has started is found by --match TEXT of its command line"
        render.error(f"{what} was found on {fold([host.name for host in chosen])}", hint)
        return FAILED
    return 0


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


def _job(job: AnyJob, rank: int | None) -> Iterator[str]:
    """Yield what a job is, its verdict and the stacks of its ranks."""
    without = "no ranks yet, its own processes" if job.is_starting else "processes without a rank"
    count = f"{job.size} rank{'s' * (job.size != 1)}" if job.size else without
    hosts = fold(list(dict.fromkeys(each.look.host for each in job.ranks)))
    numbered = "" if job.size else ", numbered here,"
    where = f"{numbered} on {hosts}" if hosts else ""  # they may have ended while they were watched
    title = f"{job.launcher or 'No launcher'}, {count}{where}: {job.command}"
    lines = [title, f"{_VERDICTS[job.verdict.life]}: {job.verdict.why}"]
    if job.absent:
        lines.append(f"not seen on these hosts: {_numbers(job.absent, job.absent_count)} of {job.size}")
    yield "\n".join(map(render.printable, lines))
    # A launcher that is no Python program has no stack.
    ranks = [each for each in job.ranks if each.stack is not None or not job.is_starting]
    yield from _text(ranks, most=_MOST_FRAMES if rank is None else None)


def _document(job: AnyJob) -> dict[str, Any]:
    return {
        "launcher": job.launcher,
        "size": job.size,
        "command": job.command,
        "verdict": to_json(job.verdict),
        "absent_count": job.absent_count,
        "absent": list(job.absent),
        "ranks": to_json(job.ranks),
    }


def _numbers(ranks: Sequence[int], count: int) -> str:
    shown = ", ".join(map(str, ranks[:_MOST_NAMED]))
    return f"rank{'s' * (count > 1)} {shown}" + (f" and {count - _MOST_NAMED} more" if count > _MOST_NAMED else "")
