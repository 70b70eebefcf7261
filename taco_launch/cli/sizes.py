"""The options that say how many ranks a job has, and where they may be: as ranks, as hosts, or as Arena's workers."""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from taco_launch.cli.options import add_option
from taco_launch.errors import UsageError
from taco_launch.inventory.host_counts import parse_range

F = TypeVar("F", bound=Callable[..., Any])
# Each of these groups says how many ranks there are: option by option's name in the code.
_WAYS = (
    {"np": "--np"},
    {"host_count": "--hosts", "slots_per_host": "--slots-per-host"},
    {"workers": "--workers", "gpus": "--gpus"},
)
_RANGE = re.compile(r"\d*:\d*")


class _HostCount(click.IntRange):
    """A number of hosts, or the least and the most; whoever names them means another option."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read a number, or two as MIN:MAX."""
        if isinstance(value, str) and _RANGE.fullmatch(value):
            try:
                return parse_range(value)
            except ValueError as error:
                self.fail(f"{value!r} {error}", param, ctx)
        if isinstance(value, str) and not value.lstrip("-").isdecimal():
            self.fail(f"{value!r} is not a number of hosts; which ones is said with -H", param, ctx)
        return super().convert(value, param, ctx)


def size_options(function: F) -> F:
    """Add the options that say how many ranks a job has: --np; --hosts and --slots-per-host; --workers and --gpus."""
    for option in (
        add_option(
            "--mps",
            is_flag=True,
            help="With --procs-per-gpu: a CUDA Multi-Process Service of the job's own on each host, under its processes.",
        ),
        add_option(
            "--procs-per-gpu",
            type=click.IntRange(min=1),
            default=1,
            metavar="N",
            help="With --launcher env: start COMMAND N times for each slot. Each sees its GPU alone, and has --process_index I "
            "--process_num N behind its own arguments (and PROCESS_INDEX, PROCESS_NUM); RANK and WORLD_SIZE count slots.",
        ),
        add_option(
            "--gpus",
            type=click.IntRange(min=1),
            metavar="G",
            help="GPUs of each worker: G ranks on one host, or with --per-host one process that has G. Default: 1 slot, of any kind.",
        ),
        add_option(
            "--workers",
            type=click.IntRange(min=1),
            metavar="W",
            help="Number of workers, the master among them, as Arena counts: W x G ranks. Several may be on one host, but "
            "none is on two; with --per-host each is a host. Default: 1, with --gpus.",
        ),
        add_option(
            "--slots-per-host",
            type=click.IntRange(min=1),
            metavar="N",
            help="Number of ranks on each host; with --np at most that many. Default: every slot, on hosts that no other job is "
            "on.",
        ),
        add_option(
            "--hosts",
            "host_count",
            type=_HostCount(min=1),
            metavar="N|MIN:MAX",
            help="Number of hosts, of those that -H names or the inventory has; MIN:MAX: as many as are free when the job "
            "begins, at least MIN, and these to its end. Default: all, with --slots-per-host.",
        ),
        add_option("--np", "-np", "-n", "np", type=click.IntRange(min=1), help="Number of ranks. Default: every slot."),
    ):
        function = option(function)
    return function


def sizes_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Give what a JobSpec says of its size, out of the options; those that a command does not have say nothing.

    Raises:
        UsageError: two options say how many ranks there are, or the launcher cannot do what is asked.
    """
    _refuse_two(options)
    shared = _shared(options)
    workers, gpus = options.get("workers"), options.get("gpus")
    if workers is None and gpus is None:
        sizes = {name: options.get(name) for name in ("np", "host_count", "slots_per_host")}
        if sizes["np"] is not None:
            sizes["most_per_host"] = sizes.pop("slots_per_host")
        if isinstance(sizes["host_count"], tuple):
            sizes["least_hosts"], sizes["host_count"] = sizes["host_count"]
        return {**sizes, **shared}
    workers, gpus = workers or 1, gpus or 1
    if options["per_host"]:
        return {"host_count": workers, "slots_per_host": gpus, **shared}
    return {"np": workers * gpus, "slots_per_worker": gpus, **shared}


def _refuse_two(options: Mapping[str, Any]) -> None:
    given = [[option for name, option in way.items() if options.get(name) is not None] for way in _WAYS]
    said = [found[0] for found in given if found]
    if said == ["--np", "--slots-per-host"]:
        return
    if len(said) > 1:
        raise UsageError(f"{' and '.join(said)}: each says how many ranks there are", hint="leave one of them out")


def _shared(options: Mapping[str, Any]) -> dict[str, Any]:
    count, mps = options.get("procs_per_gpu", 1), options.get("mps", False)
    if mps and count == 1:
        raise UsageError("--mps: a GPU of a job is shared only by --procs-per-gpu N", hint="add it, or leave --mps out")
    if count > 1 and options["launcher"] != "env":
        why = f"--launcher {options['launcher']} gives each slot one rank"
        raise UsageError(f"--procs-per-gpu: {why}", hint="add --launcher env, or leave it out")
    if count > 1 and options["per_host"]:
        raise UsageError(
            "--procs-per-gpu and --per-host: one starts several processes for a slot, the other one for all of a host's",
            hint="leave one of them out",
        )
    return {"procs_per_gpu": count, "mps": mps}
