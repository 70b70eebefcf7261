"""place: which GPUs of one host a job would get, from its captured outputs or facts; asks no host."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import shorten
from typing import IO, Any

from taco_launch.core.errors import UsageError
from taco_launch.core.facts.captures import captured
from taco_launch.core.facts.reports.changes import hosts_of
from taco_launch.core.frozen import dataclass
from taco_launch.core.model.choices import GpuChoice
from taco_launch.core.model.codec import from_json
from taco_launch.core.model.host.fact_value import NOT_ASKED, Absent, Unknown, known_value
from taco_launch.core.model.host.facts import HostFacts
from taco_launch.core.model.host.hardware import Topology
from taco_launch.core.placement.bandwidth import DEFAULT, KNOWN, Bandwidths, figures_of
from taco_launch.core.placement.gpus import choose
from taco_launch.core.placement.mesh import mesh_of
from taco_launch.core.protocol import framing
from taco_launch.hosts import read_captures
from taco_launch.hosts.inventory.ranges import fold

_MOST_SAID = 120
_READ = "the output of `nvidia-smi topo -m` or `taco-launch facts --json`"


@dataclass(frozen=True)
class GpuPlacement:
    """The choice, what a link was taken to carry, and a warning where that was not for the GPUs of the host."""

    choice: GpuChoice
    figures: str
    warning: str = ""


@dataclass(frozen=True)
class _Machine:
    """A host as far as a file says: its matrix, the models of its GPUs by index, and the GPUs in MIG mode."""

    topology: Topology
    models: Mapping[int, str]
    mig: frozenset[int]


def place(source: Path, stdin: IO[bytes], count: int, free: Sequence[int] | None, model: str | None) -> GpuPlacement:
    """Choose `count` of the free GPUs (None: of all) of the host that `source` tells of; `-` is `stdin`.

    `source` is the output of `nvidia-smi topo -m`, a document of `facts --json`, or a folder of captured outputs. `model`
    names the GPUs where it does not, else it says which of them are wanted.

    Raises:
        UsageError: no matrix of one host can be read there, a free GPU is not in it or is in MIG mode, the models differ
            or none is as requested.
        PlacementError: fewer are free.
    """
    name = "standard input" if source == read_captures.STDIN else str(source)
    machine = _read(name, source, stdin)
    known = range(len(machine.topology.gpus))
    chosen = list(known if free is None else free)
    beyond = next((gpu for gpu in chosen if gpu not in known), None)
    if beyond is not None:
        raise UsageError(f"--free {beyond}: the GPUs in {name} are 0 to {known[-1]}")
    if model is not None and machine.models:
        fitting = [gpu for gpu in chosen if model.lower() in machine.models.get(gpu, "").lower()]
        if not fitting and chosen:
            raise UsageError(
                f"--model {model}: no free GPU in {name} is of that model", hint=f"they are: {_models(machine)}"
            )
        chosen = fitting
    models = dict.fromkeys(filter(None, (machine.models.get(gpu) for gpu in chosen)))
    if len(models) > 1:
        raise UsageError(
            f"{name}: the GPUs are not all of one model: {_models(machine)}",
            hint=f"choose one model: --model {json.dumps(next(iter(models)))}",
        )
    _refuse_mig(name, chosen, machine.mig)
    figures, warning = _figures(name, next(iter(models), None), model)
    links = machine.topology.links
    strange = figures.strange(links[one][other] for one in known for other in known)
    if model is not None and not models and strange:
        warning = f"--model {model}: GPUs of this model have no {strange} links, but those in {name} do: is the model correct?"
    choice = choose(count, chosen, mesh_of(machine.topology, figures))
    return GpuPlacement(choice, figures.description, warning)


def _refuse_mig(name: str, chosen: Sequence[int], mig: frozenset[int]) -> None:
    refused = [gpu for gpu in chosen if gpu in mig]
    if refused:
        others = ",".join(str(gpu) for gpu in chosen if gpu not in mig)
        raise UsageError(
            f"{name}: GPU {','.join(map(str, refused))}: MIG mode is on, and its instances have neither NVLink nor "
            "access to one another's memory",
            hint=f"omit {'it' if len(refused) == 1 else 'them'}: --free {others}" if others else None,
        )


def _figures(name: str, found: str | None, asked: str | None) -> tuple[Bandwidths, str]:
    """Return what links carry, and a warning where that is not known of these GPUs.

    Raises:
        UsageError: the link bandwidths of the model are unknown.
    """
    figures = figures_of(found or asked or "")
    if figures is not None:
        return figures, ""
    if found is not None:
        return DEFAULT, f"the link bandwidths of {found} are unknown: {DEFAULT.description} is assumed"
    if asked is not None:
        hint = f"known models: {', '.join(KNOWN)} and their variants; without --model, {DEFAULT.description} is assumed"
        raise UsageError(f"--model {asked}: the link bandwidths of this model are unknown", hint=hint)
    return DEFAULT, f"{name} does not show the GPU model: {DEFAULT.description} is assumed (set the model with --model)"


def _models(machine: _Machine) -> str:
    by_name: dict[str, list[int]] = {}
    for gpu, name in sorted(machine.models.items()):
        by_name.setdefault(name, []).append(gpu)
    return "; ".join(f"{name}: GPU {','.join(map(str, gpus))}" for name, gpus in by_name.items())


def _read(name: str, source: Path, stdin: IO[bytes]) -> _Machine:
    files, left_out = read_captures.read((source,), stdin)
    if len(files) == 1 and not source.is_dir():
        document = framing.parsed(files[0][1])
        if document is not None:
            return _of_document(name, document)
    hosts = [host for host in captured.read(files) if host.topology != NOT_ASKED]
    if len(hosts) > 1:
        names = fold([host.host for host in hosts])
        raise UsageError(f"{name} describes {len(hosts)} hosts: {names}", hint="name the folder or file of one")
    if not hosts:
        unread = [*left_out, *(entry for host in captured.read(files) for entry in host.unread)]
        why = "; ".join(shorten(f"{file}: {reason}", _MOST_SAID, placeholder=" ...") for file, reason in unread[:3])
        raise UsageError(
            f"{name}: it contains no matrix of nvidia-smi topo -m{f' ({why})' if why else ''}",
            hint=f"expected: {_READ}",
        )
    return _of_facts(name, hosts[0])


def _of_document(name: str, document: Any) -> _Machine:
    """Take what is needed out of what `facts --json` printed.

    Raises:
        UsageError: the document is not that, or not of one host with a known topology.
    """
    hint = "create it with: taco-launch facts HOST --json"
    try:
        hosts = hosts_of(document)
    except ValueError as error:
        raise UsageError(f"{name} {error}", hint=hint) from error
    if len(hosts) != 1:
        raise UsageError(f"{name} describes {len(hosts)} hosts: {fold(tuple(hosts))}", hint=hint)
    (told,) = hosts.values()
    try:
        if told["topology"] is None:
            reasons = [entry["reason"] for entry in told["unknown"] if entry["where"] == "topology"]
            raise UsageError(f"{name}: its topology is not known: {'; '.join(reasons) or 'it was not requested'}")
        gpus = (told["gpu"] or {}).get("gpus") or ()
        models = {int(gpu["index"]): str(gpu["name"]) for gpu in gpus if gpu["name"]}
        mig = frozenset(int(gpu["index"]) for gpu in gpus if gpu["mig"])
        return _Machine(_checked(from_json(Topology, told["topology"])), models, mig)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{name} is not the output of `taco-launch facts --json`: {error}", hint=hint) from error


def _checked(topology: Topology) -> Topology:
    """Refuse a matrix that no facts have: this file may have been edited.

    Raises:
        ValueError: the matrix is not square and symmetric with X on its diagonal.
    """
    size = len(topology.gpus) + len(topology.nics)
    square = len(topology.links) == size and all(len(row) == size for row in topology.links)
    if (
        not topology.gpus
        or not square
        or any(row != column for row, column in zip(topology.links, zip(*topology.links, strict=True), strict=True))
    ):
        raise ValueError("its matrix is not square and symmetric")
    for place, row in enumerate(topology.links):
        for other, link in enumerate(row):
            if (link == "X") != (place == other):
                raise ValueError("its matrix must have X on the diagonal and nowhere else")
            if link != "X":
                DEFAULT.gbps(link)
    return topology


def _of_facts(name: str, facts: HostFacts) -> _Machine:
    if isinstance(facts.topology, (Absent, Unknown)):
        raise UsageError(f"{name}: {facts.topology.reason or 'there is no GPU'}", hint=f"expected: {_READ}")
    gpus = known_value(facts.gpus) or ()
    models = {gpu.index: gpu.name for gpu in gpus if gpu.name}
    return _Machine(facts.topology, models, frozenset(gpu.index for gpu in gpus if gpu.mig is True))
