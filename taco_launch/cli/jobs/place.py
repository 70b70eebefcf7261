"""place: which GPUs of a host a job would get, from what its nvidia-smi printed."""

import io
import sys
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from taco_launch.cli.options.common import add_option, settings_of, verb
from taco_launch.cli.output import choice_tables, render
from taco_launch.core.model.codec import to_json
from taco_launch.core.placement.bandwidth import KNOWN
from taco_launch.jobs import place as flow
from taco_launch.jobs.request.selection import indices


def _indices(_ctx: click.Context, _param: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    if value is None:
        return None
    return indices(value, "--free")


def _complete_model(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in KNOWN if incomplete.lower() in name.lower()]


@verb(output=True)
@add_option(
    "--topology",
    "source",
    required=True,
    type=click.Path(exists=True, allow_dash=True, path_type=Path),
    metavar="FILE",
    help="Output of `nvidia-smi topo -m` (- for standard input) or of `taco-launch facts HOST --json`, or a folder "
    "of captured outputs of one host, as `facts --from` reads it.",
)
@add_option(
    "--gpus", "count", required=True, type=click.IntRange(min=1), metavar="N", help="Number of GPUs of the job."
)
@add_option(
    "--free",
    callback=_indices,
    metavar="LIST",
    help="The GPUs that no other job uses, by nvidia-smi's index: 0,2,4-7. Default: all.",
)
@add_option(
    "--model",
    metavar="NAME",
    shell_complete=_complete_model,
    help="Model of the GPUs; it determines the bandwidth of the links. If FILE names the models, use only GPUs whose model "
    "contains NAME.",
)
def place(ctx: click.Context, /, *, source: Path, count: int, free: tuple[int, ...] | None, model: str | None) -> None:
    """Show which GPUs of a host a job would get. Contacts no host.

    The set of free GPUs with the highest bottleneck bandwidth of its best ring wins. Ties: most bandwidth over all pairs,
    fewest NUMA nodes, nearest HCAs, best remaining GPUs, lowest indices. Bandwidths are GB/s in one direction, estimated
    from data sheets and NCCL's model, not measured.

    \b
    Examples:
      nvidia-smi topo -m | taco-launch place --topology - --gpus 4 --model "Tesla V100-SXM2"
      taco-launch place --topology topo.txt --gpus 4 --free 0,1,4-7 --json
      taco-launch -i cluster.yaml facts gpu1 --json > gpu1.json; taco-launch place --topology gpu1.json --gpus 2

    \b
    Exit codes: 2 where FILE holds no matrix of one host, 4 where fewer GPUs are free.
    """
    settings = settings_of(ctx)
    placed = flow.place(source, sys.stdin.buffer if sys.stdin else io.BytesIO(), count, free, model)
    if placed.warning:
        render.warning(settings, placed.warning)
    if settings.output in ("json", "yaml"):
        render.data(to_json(placed.choice), settings.output)
        return
    click.echo(choice_tables.text(placed.choice))
    click.echo(
        f"\nBandwidths are GB/s in one direction, of the ring's slowest link and over all pairs; assumed: {placed.figures}"
    )
