"""What differs between two measurings: the circumstances of their runs, the largest suspects first."""

from collections.abc import Iterable, Iterator, Sequence

from taco_launch.bench.compare.causes import CAUSES, KNOB
from taco_launch.bench.model.runs import RunEnvironment
from taco_launch.core.frozen import dataclass

_SUSPECTS = tuple(cause.name for cause in CAUSES)
# A machine is another one where none of these is as it was. Each is a list with commas.
_HARDWARE = frozenset(
    (
        "bonds",
        "CPU",
        "driver",
        "GPU model",
        "GPU PCIe lanes",
        "HCA rate",
        "HCAs",
        "machine",
        "NIC firmware",
        "NIC rate",
        "NICs",
    )
)
_HOSTS = "hosts"
_IDENTITY = ("MAC addresses", "HCA GUIDs", "GPUs")


@dataclass(frozen=True)
class Difference:
    """One thing that differs; `hosts` are those that it differs on in the same way, none where it is of the whole job."""

    what: str
    hosts: tuple[str, ...]
    before: str
    after: str

    @property
    def is_of_hardware(self) -> bool:
        """Whether it is of a host's hardware, its rates, or its driver."""
        return _cause(self.what) in _HARDWARE

    @property
    def is_of_hosts(self) -> bool:
        """Whether the hosts or the GPU model differ: such runs are not compared."""
        return self.what in (_HOSTS, "GPU model")

    @property
    def description(self) -> str:
        """What differs and how, without the hosts."""
        return f"{self.what}: {self.before} -> {self.after}"


def differences(before: RunEnvironment, after: RunEnvironment) -> tuple[Difference, ...]:
    """Return everything that differs, the largest suspects first: in the order of CAUSES.

    What only one side tells is left out, since nobody knows what it was, but for knobs: the line has all of those.
    Hosts that one side alone has are told once; they count in a thing only where no host of the other side has it so.
    """
    old, new = _by_what(before), _by_what(after)
    found = [*_hosts(old, new), *_knobs(old, new)]
    for what in old.keys() & new.keys():
        if what not in _IDENTITY and not _is_knob(what):
            found += _one(what, old[what], new[what])
    found += _machines(old, new)
    return tuple(sorted(found, key=order))


def order(difference: Difference) -> tuple[int, str, tuple[str, ...]]:
    """Return what differences are sorted by: the largest suspects first."""
    return _place(difference.what), difference.what, difference.hosts


def merged(of_runs: Iterable[RunEnvironment]) -> RunEnvironment:
    """Return the circumstances of several runs as one; where they differ among themselves all values stand: `A / B`."""
    values: dict[tuple[str, str], dict[str, None]] = {}
    for one in of_runs:
        for host, what, value in one.facts:
            values.setdefault((host, what), {})[value] = None
    return RunEnvironment(tuple(sorted((*place, " / ".join(sorted(found))) for place, found in values.items())))


_Values = dict[str, dict[str, str]]


def _by_what(circumstances: RunEnvironment) -> _Values:
    found: _Values = {}
    for host, what, value in circumstances.facts:
        found.setdefault(what, {})[host] = value
    return found


def _cause(what: str) -> str:
    """Return the name of the cause: `knob NCCL_DEBUG` is a knob, `NIC rate eth0` a NIC rate."""
    return what if what in _SUSPECTS else what.rpartition(" ")[0]


def _place(what: str) -> int:
    name = _cause(what)
    return _SUSPECTS.index(name) if name in _SUSPECTS else len(_SUSPECTS)


def _is_knob(what: str) -> bool:
    return what.startswith(f"{KNOB} ")


def _names(values: _Values) -> list[str]:
    return sorted({host for of in values.values() for host in of if host})


def _hosts(old: _Values, new: _Values) -> Iterator[Difference]:
    if _names(old) and _names(new) and _names(old) != _names(new):
        yield Difference(_HOSTS, (), ", ".join(_names(old)), ", ".join(_names(new)))


def _knobs(old: _Values, new: _Values) -> Iterator[Difference]:
    if "command" not in old or "command" not in new:  # a log that somebody brought: nobody knows its line
        return
    for what in {what for what in (*old, *new) if _is_knob(what)}:
        before, after = (side.get(what, {}).get("", "not set") for side in (old, new))
        if before != after:
            yield Difference(what, (), before, after)


def _one(what: str, old: dict[str, str], new: dict[str, str]) -> Iterator[Difference]:
    pairs = [((old[host], new[host]), host) for host in sorted(old.keys() & new.keys())]
    if what != "GPUs used":  # those are each host's own
        # An image that one side tells of the job, the other of each host, is the same kind of thing.
        known = " / ".join(sorted(set(old.values())))
        pairs += [
            ((known, new[host]), host) for host in sorted(new.keys() - old.keys()) if new[host] not in old.values()
        ]
    yield from _grouped(what, [(pair, host) for pair, host in pairs if pair[0] != pair[1]])


def _grouped(what: str, pairs: Sequence[tuple[tuple[str, str], str]]) -> Iterator[Difference]:
    hosts: dict[tuple[str, str], list[str]] = {}
    for pair, host in pairs:
        hosts.setdefault(pair, []).append(host)
    for (before, after), names in hosts.items():
        yield Difference(what, tuple(filter(None, names)), before, after)


def _machines(old: _Values, new: _Values) -> Iterator[Difference]:
    """Tell of hosts that are another machine now, and of others what of them was replaced."""
    parts: list[tuple[str, tuple[tuple[str, str], str]]] = []
    for host in _names(old):
        known = [what for what in _IDENTITY if old.get(what, {}).get(host) and new.get(what, {}).get(host)]
        sides = [(what, set(old[what][host].split(", ")), set(new[what][host].split(", "))) for what in known]
        if sides and all(before.isdisjoint(after) for _, before, after in sides):
            what = known[0]
            yield Difference(
                "machine",
                (host,),
                f"{what} {old[what][host]}",
                f"a different machine with the same name, {new[what][host]}",
            )
            continue
        for what, before, after in sides:
            gone, came = (", ".join(sorted(one - other)) or "none" for one, other in ((before, after), (after, before)))
            if before != after:
                parts.append((what, ((gone, came), host)))
    for what in _IDENTITY:
        yield from _grouped(what, [pair for part, pair in parts if part == what])
