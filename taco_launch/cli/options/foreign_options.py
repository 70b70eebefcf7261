"""Options that other tools have and this one has not, and how the same is said here."""

from collections.abc import Sequence

import click

_SET = "taco-launch sets it for every rank: omit it"
_PROFILE = "set it in a profile (--profile); the shipped profiles bind to none and map by slot"
_HOSTFILE = "use the hostfile as the inventory: -i FILE"
_PER_HOST = "set the ranks per host with --slots-per-host N"
_LOG = "each rank's output is kept separately: taco-launch logs NAME --rank N"
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
    "max-restarts": "set the number of retries with --backoff-limit N",
    "type": "jobs are found by their name alone, whatever their type: omit it",
    "loglevel": "-v prints more, -q less",
    **dict.fromkeys(("get ranks", "list ranks", "logs ranks"), "taco-launch stacks NAME shows what each rank is doing"),
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
    return click.UsageError(f"No such option: {error.option_name}: {how}", error.ctx) if how else error


def _known(option: str) -> str:
    return _OPTIONS.get(option.lstrip("-").replace("_", "-"), "")
