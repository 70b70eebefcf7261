"""-f: what a job file asks for, put under what the command line asks for."""

import os
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from taco_launch.cli.options import Settings, add_option, complete_file
from taco_launch.errors import UsageError

if TYPE_CHECKING:
    from taco_launch.inventory.job_file import JobFile
    from taco_launch.model.jobs import JobSpec

_STDIN = "-"
# Where one of these is given on the command line, the file's other ones say nothing any more.
_EITHER = (
    (("np",), ("host_count", "slots_per_host", "workers", "gpus")),
    (("host_count", "slots_per_host"), ("np", "workers", "gpus")),
    (("workers", "gpus"), ("np", "host_count", "slots_per_host")),
    (("no_wait",), ("queue_timeout", "suspend")),
)
_PAIR = frozenset(("np", "slots_per_host"))

file_option = add_option(
    "-f",
    "--file",
    metavar="FILE",
    shell_complete=complete_file,
    help="Take the job from FILE (YAML), - for standard input: a job file (`submit --schema`), or an MPIJob of Kubernetes' "
    "MPI Operator as far as it can be read. Options and COMMAND go before what stands there.",
)


class Asked:
    """A job as it is asked for: by the command line, and by a file where one is named."""

    def __init__(self, settings: Settings, command: tuple[str, ...], options: Mapping[str, Any]) -> None:
        """Read the file.

        Raises:
            SpecError: it cannot be read, or something in it is wrong.
        """
        given = dict(options)
        path = given.pop("file", None)
        self._file = None if path is None else _read(path)
        self.command = command
        self.options = given
        if self._file is not None:
            if self._file.notes:
                settings.talk("\n  ".join((f"{self._file.source}: not used here:", *self._file.notes)))
            self.command = command or self._file.command
            self.options = merged(self._file, given, _typed(given))

    def check(self, spec: "JobSpec") -> None:
        """Refuse a job whose containers are not what its file says.

        Raises:
            UsageError: they are of another image, or there are none.
        """
        if self._file is not None:
            check_image(self._file, spec)


def check_image(file: "JobFile", spec: "JobSpec") -> None:
    """Refuse a job whose containers are not what its file says.

    Raises:
        UsageError: they are of another image, or there are none.
    """
    if not file.image or (spec.container is not None and spec.container.image == file.image):
        return
    have = f"is made from {spec.container.image}" if spec.container is not None else "there is none"
    raise UsageError(
        f"{file.source}: image: {file.image}: the training container of the inventory: {have}",
        hint="name the image in the inventory (container: {image: ...}), then: taco-launch -i FILE setup",
    )


def _read(path: str) -> "JobFile":
    from taco_launch.inventory import job_file, load

    if path != _STDIN:
        return job_file.parse(load.read_file(path, job_file.OPTION), path, os.environ)
    data = b"" if sys.stdin is None else sys.stdin.buffer.read(load.MAX_BYTES + 1)
    return job_file.parse(data, "standard input", os.environ)


def _typed(options: Mapping[str, Any]) -> set[str]:
    """Name the options that stand on the command line."""
    context = click.get_current_context()
    default = (None, ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP)
    return {name for name in options if context.get_parameter_source(name) not in default}


def merged(file: "JobFile", options: Mapping[str, Any], typed: set[str]) -> dict[str, Any]:
    """Give the options, those that are not among the `typed` taken from the file; variables are put together."""
    from taco_launch.inventory import job_file

    below = {name: value for name, value in file.options.items() if name not in typed}
    # A number of ranks and the most on each host are one size: one of them may be replaced alone.
    both = set(file.options) >= _PAIR and not typed & {"host_count", "workers", "gpus"}
    kept = _PAIR if both else frozenset()
    for given, others in _EITHER:
        if typed & set(given):
            below = {name: value for name, value in below.items() if name not in others or name in kept}
    if "suspend" in typed and below.get("queue_timeout") == 0:
        del below["queue_timeout"]
    if options.get("restart") == "never":
        below = {name: value for name, value in below.items() if name not in ("backoff_limit", "backoff")}
    elif options.get("backoff_limit") and below.get("restart") == "never":
        del below["restart"]
    named = _named(options)
    env, knobs, mca = job_file.texts(*(_others(pairs, named) for pairs in (file.env, file.knobs, file.mca)))
    below |= {"env": (*env, *options["env"]), "knobs": (*knobs, *options["knobs"]), "mca": (*mca, *options["mca"])}
    return {**options, **below}


def _named(options: Mapping[str, Any]) -> set[str]:
    """Give the names of what -x, --knob and --mca give, each by the one that all its aliases share."""
    texts = (*options["env"], *options["knobs"])
    return {_name(text.partition("=")[0]) for text in texts} | {_name(name) for name, _value in options["mca"]}


def _others(pairs: "Iterable[tuple[str, Any]]", named: set[str]) -> "list[tuple[str, Any]]":
    return [(name, value) for name, value in pairs if _name(name) not in named]


def _name(name: str) -> str:
    from taco_launch.launch import knobs

    knob = knobs.find(name)
    return knob.name if knob else name
