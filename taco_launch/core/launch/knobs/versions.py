"""Which knobs of a job the versions that it runs with do not read: not yet, or no more, or as far as is known here."""

from typing import Iterator, Mapping, Optional, Sequence, Tuple

from taco_launch.core.launch.knobs import NEWEST, find, must_be_known
from taco_launch.core.launch.knobs.knob import Knob
from taco_launch.core.model.host.versions import OWN_GID, version

_NAMES = {"nccl": "NCCL", "horovod": "Horovod", "openmpi": "Open MPI"}


def by_version(pairs: Sequence[Tuple[str, Optional[str]]], versions: Mapping[str, str]) -> Tuple[str, ...]:
    """Return warnings for the knobs of one job that these versions do not read, each a sentence.

    `pairs` are as for `knob_remarks.remarks`. `versions` has those of nccl, horovod and openmpi that are known, such as
    {"nccl": "2.9.9"}; of a library without one nothing is said. Where a version is given with fewer parts than the
    table has (2.22 beside 2.22.3), the parts that are given count.
    """
    return tuple(_remarks(pairs, versions))


def _remarks(pairs: Sequence[Tuple[str, Optional[str]]], versions: Mapping[str, str]) -> Iterator[str]:
    for name, value in pairs:
        knob = find(name)
        if knob is None and must_be_known(name):
            newest = next((who for prefix, who in NEWEST.items() if name.startswith(prefix)), "")
            yield f"{name}: not known to taco-launch, which knows {newest}: it is passed on unchanged"
        told = versions.get(knob.library, "") if knob else ""
        numbers = version(told)
        if knob is None or not numbers:
            continue
        who = f"{_NAMES[knob.library]} {told}"
        since, until = _life(knob, name)
        if since and numbers < version(since)[: len(numbers)]:
            yield f"{name}: {who} does not read it: it was added in {since}{_other(knob, name)}"
        elif until and numbers >= _shortest(until):
            yield f"{name}: {who} no longer reads it: it was removed in {until}{_other(knob, name)}"
        elif name == "NCCL_IB_GID_INDEX" and numbers >= OWN_GID and value != "-1":
            yield f"{name}: {who} finds the index of each host by itself: better omit it"


def _life(knob: Knob, name: str) -> Tuple[str, str]:
    """Return since when and until when a name is read: an alias of a name that is gone is what came in its place."""
    return (knob.since, knob.until) if name == knob.name or not knob.until else (knob.until, "")


def _other(knob: Knob, name: str) -> str:
    """Return what to write instead, where it is another name of the same knob."""
    if not knob.until or not knob.aliases:
        return f" ({knob.history})" if knob.until and knob.history.startswith(knob.until) else ""
    return f"; write {knob.aliases[0] if name == knob.name else knob.name}"


def _shortest(text: str) -> Tuple[int, ...]:
    """Return a version without the zeros at its end, so that 5 is not below 5.0."""
    numbers = version(text)
    while numbers and not numbers[-1]:
        numbers = numbers[:-1]
    return numbers
