"""Which GPUs of a host were chosen, and which were not, as a table."""

from typing import TYPE_CHECKING

import click

from taco_launch.cli.render import columns

if TYPE_CHECKING:
    from taco_launch.model.choices import GpuChoice, Lost


def show(choice: "GpuChoice") -> None:
    """Print the set that was chosen, and those that came next."""
    click.echo(text(choice))


def text(choice: "GpuChoice") -> str:
    """Give the same as text."""
    rows = [_row("chosen", choice), *(_row("lost", each) for each in choice.alternatives)]
    return columns(["", "GPUS", "RING", "GB/S", "SUM", "WHY"], rows, numbers=("GB/S", "SUM"))


def _row(what: str, each: "GpuChoice | Lost") -> list[str]:
    ring = "-".join(map(str, each.ring)) or "-"
    numbers = ["-" if number is None else f"{number:g}" for number in (each.bottleneck_gbps, each.sum_gbps)]
    return [what, ",".join(map(str, each.gpus)), ring, *numbers, each.why]
