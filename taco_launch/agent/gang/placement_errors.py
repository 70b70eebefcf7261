"""Decide which of a job's hosts are asked for their slots, and say why the job cannot be placed on them."""

from dataclasses import replace
from typing import Callable, Dict, FrozenSet, List, Mapping, Optional, Sequence, Set, Tuple

from taco_launch.agent.store.folders import LEASES_VARIABLE
from taco_launch.core.errors import HostError, PlacementError, TacoLaunchError, UnusableError
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.plans import FreeSlots, SlotRequest
from taco_launch.core.model.slots import Occupancy
from taco_launch.core.placement.gpu_constraints import SEVERAL_MODELS, host_slots, place_alike
from taco_launch.core.placement.hosts import place, reason

_SHORT_ID = len("sha256:") + 12
# So many hosts are named in what is to be typed.
_MOST_LEFT_OUT = 8
# Two jobs that refuse each other's slots do so once or twice, and then one of them has these.
_REFUSALS = 3
_HIDDEN = "held by a job of another cluster, which is not visible here"
_LIST = "choose other hosts with -H, or see who runs what: taco-launch list"


def hosts_to_reach(wanted: SlotRequest, hosts: Sequence[Host], reached: Mapping[str, FreeSlots]) -> List[Host]:
    """Return the hosts to be reached next: as many as suffice, if all their slots are free; none where no more are needed.

    `hosts` are those that can be used as far as that is known, in the order in which they are filled; `reached` is what is
    free on those that answered. Of a job that takes as many as it can get, hosts to be left out are reached last.
    """
    if wanted.least is not None:
        kept = [host for host in hosts if host.name not in wanted.left_out]
        more = hosts_to_reach(replace(wanted, least=None, left_out=()), kept, reached)
        if more or _suffice(wanted, [reached[host.name] for host in kept if host.name in reached]):
            return more
        wanted = replace(wanted, hosts=wanted.least, least=None)
    ordered = sorted(hosts, key=lambda host: host.name in wanted.left_out)
    found = [
        reached.get(host.name, FreeSlots(host.name, host.slots or wanted.unit, leaf=host.leaf)) for host in ordered
    ]
    if len({entry.leaf for entry in found}) > 1:  # those of the fewest leaves, wherever they stand
        taken = _placed_on(wanted, found)
        return [host for host in ordered if host.name in taken and host.name not in reached]
    count, most = 0, len(found)  # the fewest of them that suffice, by bisection: place() looks at all
    while count < most:
        middle = (count + most) // 2
        if _suffice(wanted, found[:middle]):
            most = middle
        else:
            count = middle + 1
    return [host for host in ordered[:count] if host.name not in reached]


def refusal(
    wanted: SlotRequest, hosts: Sequence[Host], reached: Mapping[str, FreeSlots], unusable: Mapping[str, str]
) -> Optional[TacoLaunchError]:
    """Return why a job has no place: who has the slots, or which hosts have failed; None where it has one.

    Hosts that failed are to blame where those that are left would not suffice with all their slots free.
    """
    usable = [reached[host.name] for host in hosts if host.name in reached]
    failed = [(host.name, unusable[host.name]) for host in hosts if host.name in unusable]
    if failed and _is_every(wanted):
        leave = " ".join(f"--exclude {host}" for host, _why in failed[:_MOST_LEFT_OUT])
        which, rest = "it" if len(failed) == 1 else "them", " ..." if len(failed) > _MOST_LEFT_OUT else ""
        return _unusable(failed, f"leave {which} out: {leave}{rest}")
    try:
        place(wanted, usable)
    except PlacementError as error:
        found = error
    else:
        return None
    if not failed:
        return found
    if found.never and _would_fit(wanted, hosts, reached):
        other = "request fewer ranks, because the job's other hosts have too few slots"
        return _unusable(failed, other if usable else "run the job on other hosts")
    told = {**dict(found.reasons), **dict(failed)}
    reasons = tuple((host.name, told[host.name]) for host in hosts if host.name in told)
    return PlacementError(found.message.split("\n")[0], reasons, found.hint, never=found.never)


def held_up(
    wanted: SlotRequest,
    hosts: Sequence[Host],
    found: Mapping[str, Occupancy],
    silent: Mapping[str, str],
    words: Callable[[Occupancy], str],
) -> Tuple[Tuple[str, str], ...]:
    """Return what a job waits for, as one is told that looks for a place: (host, why), what concerns no single host under "".

    Each of the hosts is in `found`, or in `silent` with why it does not answer.
    """
    free = {
        host.name: host_slots(host, found[host.name], words, exclusive=wanted.exclusive)
        for host in hosts
        if host.name in found
    }
    told = tuple((host.name, reason(free[host.name]) if host.name in free else silent[host.name]) for host in hosts)
    try:
        place_alike(wanted, hosts, tuple(free.values()), found)
    except PlacementError as error:
        return ((("", error.message.split("\n")[0]), *told)) if error.message.startswith(SEVERAL_MODELS) else told
    return told


def crowded(wanted: SlotRequest, usable: Sequence[FreeSlots]) -> PlacementError:
    """Return the error that others were faster again and again, though there is room by the looks of it."""
    reasons = tuple(
        (entry.host, ", ".join(filter(None, (f"{entry.slots} of {entry.all} free", entry.why)))) for entry in usable
    )
    ranks = "the job" if wanted.np is None else f"{wanted.np} rank{'' if wanted.np == 1 else 's'}"
    why = f"could not reserve slots for {ranks}: other jobs took them first, several times in a row; run the command again"
    return PlacementError(why, reasons, _LIST)


def _unusable(reasons: Sequence[Tuple[str, str]], other_way: str) -> UnusableError:
    told = [f"{host} cannot be used: {why}" for host, why in reasons]
    lines = [f"  {host}: {why}" for host, why in reasons]
    message = told[0] if len(told) == 1 else "\n".join((f"{len(told)} hosts cannot be used", *lines))
    look = "taco-launch setup --check shows what is wrong there"
    if all(LEASES_VARIABLE in why for _host, why in reasons):
        look = f"export {LEASES_VARIABLE}=FOLDER, with a folder of your own"
    if any("Could not resolve hostname" in why for _host, why in reasons):
        look = (
            "after adding a host to the inventory, run taco-launch setup --only ssh_mesh so that the other hosts know its name "
            "(all of setup, if the host itself is not set up)"
        )
    return UnusableError(message, f"{look}; or {other_way}", reasons)


def no_ports(head: str, first: int, last: int) -> PlacementError:
    """Return the error that other jobs have all ports that mpirun and its daemons may have."""
    why = "jobs and other programs use all ports that mpirun may listen on, on this host and on the job's other hosts"
    hint = f"widen network.port_range, now {first}-{last}: an eighth of it is for mpirun, which needs two ports for each job"
    return PlacementError("no port is left for mpirun", ((head, why),), hint)


def no_own_port(host: str, port: int, who: str, *, per_host: bool) -> PlacementError:
    """Return the error that others have the port of the ranks' rendezvous on the job's first host: what --per-host always has, or asks for."""
    whose, other = ("--per-host", "leave out --per-host") if per_host else ("the job", "set another MASTER_PORT")
    why = f"port {port}, which the processes of {whose} use for rendezvous, is in use there by {who or 'another job'}"
    hint = f"wait until it is free, put another host first with -H, or {other}; ss -ltnp 'sport = :{port}' shows who listens"
    return PlacementError(f"port {port} is not free", ((host, why),), hint)


def _would_fit(wanted: SlotRequest, hosts: Sequence[Host], reached: Mapping[str, FreeSlots]) -> bool:
    """Return whether the job would fit if no host had failed; so many slots as nobody knows of are enough."""
    if any(host.name not in reached and host.slots is None for host in hosts):
        return True
    whole = [
        FreeSlots(host.name, reached[host.name].all if host.name in reached else host.slots or 0) for host in hosts
    ]
    try:
        place(wanted, whole)
    except PlacementError:
        return False
    return True


def _suffice(wanted: SlotRequest, found: Sequence[FreeSlots]) -> bool:
    """Return whether a job has a place on some hosts, which may be all that it asks for."""
    if wanted.hosts is None and (wanted.np is None or wanted.slots_per_host is not None):
        return False  # every host is needed
    try:
        place(replace(wanted, left_out=()), found)
    except PlacementError:
        return False
    return True


def _placed_on(wanted: SlotRequest, found: Sequence[FreeSlots]) -> FrozenSet[str]:
    """Name the hosts that a job would have, all where they do not suffice."""
    try:
        return frozenset(share.host for share in place(wanted, found).shares)
    except PlacementError:
        return frozenset(entry.host for entry in found)


def _is_every(wanted: SlotRequest) -> bool:
    return wanted.np is None and wanted.hosts is None


def check_images(images: Mapping[str, Sequence[str]]) -> None:
    """Compare what hosts know their container's image by: its id, and its digests at a registry.

    Engines of different kinds call an image by different ids; then they share a digest. A host that tells nothing, as its
    container is of a version before, is passed over.

    Raises:
        HostError: there are several images; with the hosts of each.
    """
    found: List[Set[str]] = []
    hosts: List[List[str]] = []
    shown: List[str] = []
    for host, names in images.items():
        if not names:
            continue
        same = next((number for number, known in enumerate(found) if known & set(names)), None)
        if same is None:
            found.append(set(names))
            hosts.append([host])
            shown.append(names[0][:_SHORT_ID])
        else:
            found[same] |= set(names)
            hosts[same].append(host)
    if len(found) > 1:
        told: Dict[str, str] = {image: ", ".join(names) for image, names in zip(shown, hosts)}
        raise HostError(
            "the containers of its hosts have different images: "
            + "; ".join(f"{image} on {names}" for image, names in told.items()),
            "to give all of them the inventory's image: taco-launch setup",
        )


class HiddenHolders:
    """Slots that look free and are refused again and again.

    A container sees the locks of its own PID namespace only (/proc/locks, proc(5)): a slot that a job of another cluster holds
    looks free to it, and taking it fails.
    """

    def __init__(self) -> None:
        """Know of no refusal."""
        self._refused: Dict[Tuple[str, str], int] = {}

    def note(self, host: str, before: Occupancy, after: Occupancy) -> None:
        """Take which slots looked free `before` a try, and are not by its answer."""
        free = {slot.name for slot in before.slots if slot.is_free}
        for slot in after.slots:
            if slot.name in free and not slot.is_free:
                self._refused[host, slot.name] = self._refused.get((host, slot.name), 0) + 1

    def applied(self, host: str, found: Occupancy) -> Occupancy:
        """Return what a host has free, without the slots that were refused too often."""
        return found.without(
            {slot: _HIDDEN for (of, slot), count in self._refused.items() if of == host and count >= _REFUSALS}
        )
