"""The options that set how many ranks a job has: as ranks, as hosts, or as Arena's workers."""

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from taco_launch.cli.options.option_groups import OptionGroup, option, options_of_group
from taco_launch.jobs.request.sizes import parse_range

F = TypeVar("F", bound=Callable[..., Any])
_RANGE = re.compile(r"\d*:\d*")


class _HostCount(click.IntRange):
    """A number of hosts, or the least and the most; host names belong to another option."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read a number, or two as MIN:MAX."""
        if isinstance(value, str) and _RANGE.fullmatch(value):
            try:
                return parse_range(value)
            except ValueError as error:
                self.fail(f"{value!r} {error}", param, ctx)
        if isinstance(value, str) and not value.lstrip("-").isdecimal():
            self.fail(f"{value!r} is not a number of hosts; select hosts with -H", param, ctx)
        return super().convert(value, param, ctx)


_OPTIONS = (
    option("--np", "-np", "-n", "np", type=click.IntRange(min=1), help="Number of ranks. Default: one per slot."),
    option(
        "--hosts",
        "host_count",
        type=_HostCount(min=1),
        metavar="N|MIN:MAX",
        help="Number of hosts. MIN:MAX uses as many as are free when the job starts. Default: all hosts, if --slots-per-host is given.",
    ),
    option(
        "--slots-per-host",
        type=click.IntRange(min=1),
        metavar="N",
        help="Ranks on each host; with --np the maximum. Default: all slots of hosts without other jobs.",
    ),
    option(
        "--workers",
        type=click.IntRange(min=1),
        metavar="W",
        help="Number of workers as Arena counts them, master included: W x G ranks. One host may run several workers; no worker "
        "spans two hosts. With --per-host each worker is a host. Default: 1, if --gpus is given.",
    ),
    option(
        "--gpus",
        type=click.IntRange(min=1),
        metavar="G",
        help="GPUs per worker: G ranks on one host; with --per-host one process that sees G GPUs. Default: 1 slot of any kind.",
    ),
    option(
        "--slots-per-worker",
        type=click.IntRange(min=1),
        metavar="N",
        help="Slots of any kind per worker, instead of --gpus, as slotsPerWorker of an MPIJob.",
    ),
    option(
        "--procs-per-gpu",
        type=click.IntRange(min=1),
        metavar="N",
        help="With --launcher env: start COMMAND N times per slot. Each process sees only its GPU and gets --process_index I "
        "--process_num N after its own arguments (and PROCESS_INDEX, PROCESS_NUM). RANK and WORLD_SIZE count slots.",
    ),
    option(
        "--mps",
        is_flag=True,
        help="With --procs-per-gpu: run a CUDA Multi-Process Service for this job on each host.",
    ),
)


def size_options(function: F) -> F:
    """Add --np; --hosts and --slots-per-host; --workers with --gpus or --slots-per-worker; --procs-per-gpu and --mps."""
    return options_of_group(OptionGroup.SIZE, _OPTIONS, function)
