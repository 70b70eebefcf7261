"""Options that other tools have and this one has not, and how the same is said here."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from taco_launch.core.command import shell
from taco_launch.core.errors import UsageError
from taco_launch.core.model.job_request import JobRequest
from taco_launch.jobs.command_lines.arena.arena_line import MPI, OTHER_TYPES, TORCH
from taco_launch.jobs.request import code_options as asked

_SET = "taco-launch sets it for every rank: omit it"
_PROFILE = "set it in a profile (--profile); the shipped profiles bind to none and map by slot"
_HOSTFILE = "use the hostfile as the inventory: -i FILE"
_PER_HOST = "set the ranks per host with --slots-per-host N"
_LOG = "each rank's output is kept separately: taco-launch logs NAME --rank N"
_NO_LIMIT = "taco-launch sets no limit on memory or cores; a rank is a slot, and a slot is a GPU or a core"
# By its name without leading -, and with - for _: options of mpirun(1), horovodrun(1), torch/distributed/run.py and Arena.
# Behind the name of a command those that are meant there alone.
_OPTIONS = {
    **dict.fromkeys(("bind-to", "map-by", "rank-by", "report-bindings", "display-map", "display-allocation"), _PROFILE),
    **dict.fromkeys(("bind-to-core", "bind-to-none", "bycore", "byslot", "bynode"), _PROFILE),
    "allow-run-as-root": "taco-launch adds it where it is needed: omit it",
    **dict.fromkeys(
        ("oversubscribe", "nooversubscribe"), "a host runs as many ranks as it has slots: -H HOST:SLOTS sets how many"
    ),
    **dict.fromkeys(("hostfile", "machinefile", "default-hostfile"), _HOSTFILE),
    **dict.fromkeys(("N", "npernode", "ppr", "nproc-per-node"), _PER_HOST),
    **dict.fromkeys(("wdir", "wd"), "use --workdir PATH for the folder that the ranks start in"),
    **dict.fromkeys(("tag-output", "timestamp-output", "output-filename"), _LOG),
    "gmca": "set an MCA parameter with --mca NAME VALUE",
    **dict.fromkeys(("num-proc", "ranks", "nprocs"), "use --np N for the number of ranks"),
    **dict.fromkeys(("nnodes", "nodes", "num-nodes"), "use --hosts N for the number of hosts"),
    **dict.fromkeys(("node-rank", "master-addr", "master-port", "use-env", "standalone"), _SET),
    **dict.fromkeys(("rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf"), _SET),
    **dict.fromkeys(("memory", "mem", "cpus", "mem-per-cpu", "cpus-per-task"), _NO_LIMIT),
    **dict.fromkeys(("cwd", "chdir"), "use --workdir PATH for the folder that the ranks start in"),
    "detach": "taco-launch submit starts a job and returns",
    "after": "a job waits for another one only on Slurm (--dependency); elsewhere: start it after taco-launch wait NAME",
    **dict.fromkeys(("retries", "max-retries"), "set the number of retries with --backoff-limit N"),
    "max-restarts": "set the number of retries with --backoff-limit N",
    "type": "jobs are found by their name alone, whatever their type: omit it",
    "loglevel": "-v prints more, -q less",
    **dict.fromkeys(("get ranks", "list ranks", "logs ranks"), "taco-launch stacks NAME shows what each rank is doing"),
    **dict.fromkeys(
        ("run each", "run array"), "taco-launch submit starts a job for each value: it has --each and --array"
    ),
    **dict.fromkeys(
        ("gres", "num-gpus", "ngpus", "gpus-per-node"),
        "a rank is a slot, and a slot is a GPU: --np N, or --gpus G for each worker",
    ),
    "time": "limit the time of a job with --timeout TIME",
    "delete all": "taco-launch prune --older-than 1d removes jobs that have ended; '*' in quotes names all of your own",
    "run dry-run": "taco-launch run --dry-run shows the line of a job, bench ladder --dry-run the cells of a sweep",
    **dict.fromkeys(("logs n", "logs lines"), "use -t LINES for the last lines"),
}


def refuse(ctx: click.Context, words: Sequence[str]) -> None:
    """Refuse a long option with one dash, as mpirun has them: its letters would be taken for options of their own.

    Raises:
        NoSuchOption: with the option as it was typed.
    """
    for word in words:
        name = word.partition("=")[0]
        if name.startswith("-") and not name.startswith("--") and len(name) > 2 and _known(name):
            raise click.NoSuchOption(name, ctx=ctx)


def explained(error: click.NoSuchOption) -> click.UsageError:
    """Return the error that says how it is said here; the same one where that is not known."""
    command = error.ctx and error.ctx.info_name
    how = _known(f"{command} {error.option_name.lstrip('-')}") or _known(error.option_name)
    if command == "translate":
        return click.UsageError(f"{error.option_name} is no option of translate: {_OF_A_LINE}", error.ctx)
    return click.UsageError(f"No such option: {error.option_name}: {how}", error.ctx) if how else error


def _known(option: str) -> str:
    return _OPTIONS.get(option.lstrip("-").replace("_", "-"), "")


_ENV, _OF_A_LINE = (
    "--env",
    "put -- before the line: taco-launch translate -- LINE",
)


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


def with_arena_source(request: JobRequest, options: Mapping[str, Any]) -> JobRequest:
    """Return a request with the code that Arena's options name, if they do.

    Raises:
        UsageError: --sync names some as well, or one of them lacks the other.
    """
    mode, source = options.get("sync_mode"), options.get("sync_source")
    if mode is None and source is None:
        return request
    if mode is None:
        raise UsageError("--sync-source requires --sync-mode", hint="add --sync-mode git or --sync-mode rsync")
    if request.sync is not None:
        raise UsageError(
            "--sync and --sync-source cannot be combined: both name where the code comes from",
            hint="leave one of them out",
        )
    return asked.from_arena(request, mode, source or "")
