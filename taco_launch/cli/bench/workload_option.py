"""The log of a benchmark, and --workload: which program's output it is, a kind of benchmark or a workload of a matrix."""

import os

import click

from taco_launch.bench.logs import MOST_BYTES
from taco_launch.bench.model.matrix import LogFormat, Workload
from taco_launch.bench.run import matrix_file
from taco_launch.cli.options.common import add_option
from taco_launch.core.errors import UsageError
from taco_launch.hosts.inventory.schema import names

# The kinds that need nothing but their name; bench.matrix.Kind has one more.
KINDS = ("horovod", "tf_cnn", "nccl-tests")
FORM = "|".join((*KINDS, "MATRIX:NAME"))

workload_option = add_option(
    "--workload",
    "workload",
    metavar=FORM,
    help="Benchmark that wrote the log: Horovod's synthetic benchmark or taco-launch's, tf_cnn_benchmarks, a program of nccl-tests, or a "
    "workload of a matrix (a file, or the name of a shipped one).",
)


def workload_of(text: str) -> Workload:
    """Return the workload that `--workload` names.

    Raises:
        UsageError: it names none.
        SpecError: the matrix is wrong.
    """
    if text in KINDS:
        return Workload(text, LogFormat(text), ())
    source, colon, name = text.rpartition(":")
    if not colon:
        hint = names.did_you_mean(text, KINDS) or f"use one of {', '.join(KINDS)} or MATRIX:NAME, such as lab:gradients"
        raise UsageError(f"--workload {names.shown(text)}: no such kind of benchmark", hint=hint)
    known = {workload.name: workload for workload in matrix_file.load(source, os.environ).workloads}
    if name not in known:
        hint = names.did_you_mean(name, known) or f"it has {', '.join(known)}"
        raise UsageError(f"--workload {names.shown(text)}: the matrix has no workload {names.shown(name)}", hint=hint)
    return known[name]


def read_log(log: str) -> str:
    """Return the text of a file, or with `-` of standard input.

    Raises:
        click.UsageError: it cannot be read, or is too large.
    """
    try:
        with click.open_file(log, "rb") as file:
            content: bytes = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise click.UsageError(f"{log}: {error.strerror}") from None
    if len(content) > MOST_BYTES:
        raise click.UsageError(f"{log}: larger than {MOST_BYTES >> 20} MiB: keep only the output of the run to be read")
    return content.decode("utf-8", "replace")
