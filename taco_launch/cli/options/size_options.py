"""The options that say how many ranks a job has, and where they may be: as ranks, as hosts, or as Arena's workers."""

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from taco_launch.cli.options.common import add_option
from taco_launch.request.host_counts import parse_range

F = TypeVar("F", bound=Callable[..., Any])
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
