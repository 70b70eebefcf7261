"""Which hosts a job's ranks run on: all or nothing, one host where one suffices, on the fewest leaves, pure.

Hosts are compared by how many of their slots are free alone. Which of its GPUs a job gets is chosen on each host then
(gpus.py): how fast their ring would be says nothing about which hosts, or each of them would have to be asked first.
"""

from collections import Counter
from dataclasses import replace
from itertools import accumulate
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from taco_launch.core.errors import PlacementError
from taco_launch.core.model.plans import FreeSlots, Placement, Share, SlotRequest
from taco_launch.core.model.slots import UNKNOWN_USERS

# More hosts than this are told by their number.
_MOST_TOLD = 8
_ORDER = "in the order of -H or the inventory"
_LIST = "choose other hosts with -H, or see who runs what: taco-launch list"


def place(wanted: SlotRequest, free: Sequence[FreeSlots]) -> Placement:
    """Return every rank a slot, on the first hosts in the order given that have what is wanted.

    Ranks that are wanted on no certain number of hosts fill one host before the next: the first one that has room for
    all of them, else the fewest of those leaves, of as few the earlier ones. Hosts to be left out come last.
    Ranks of one worker (`unit`) have one host: what a host has beyond whole workers is not used; nor is what it has beyond
    `most_per_host`.
    Where a least number of hosts is wanted, it is as many as can be had up to the most.
    Of hosts whose leaf is known, those of the fewest leaves that suffice come first, leaf after leaf.

    Raises:
        PlacementError: it does not fit; says how much there is on each host, and what would fit.
    """
    free = [_capped(entry, wanted.most_per_host) for entry in free]
    hosts = _arranged(wanted, ordered([_whole(entry, wanted.unit) for entry in free], wanted.left_out))
    shares = _shares(wanted, hosts)
    if not shares:
        never = not _shares(wanted, [FreeSlots(entry.host, entry.all) for entry in hosts])
        refused = _hosts_refused if _counts_hosts(wanted) else _refused if wanted.unit == 1 else _workers_refused
        raise refused(wanted, free, never)
    leaves = _leaves(shares, free)
    if not _counts_hosts(wanted):
        whole = "" if wanted.unit == 1 else f" with whole workers of {_slots(wanted.unit)}"
        fewest = "the fewest " if _passes_over(shares, ordered(free, wanted.left_out), wanted.unit) else ""
        most = "" if wanted.most_per_host is None else f" with at most {wanted.most_per_host}"
        return Placement(shares, f"{fewest}hosts {_ORDER}, each filled before the next{whole}{most}{leaves}")
    each = wanted.slots_per_host
    which = "free of other jobs" if each is None else f"with {_slots(each)} free"
    many = "" if wanted.least is None else f"; {_hosts(len(shares))}, of {wanted.least} to {wanted.hosts} requested"
    return Placement(shares, f"the first hosts {_ORDER} {which}{many}{leaves}")


def ordered(free: Sequence[FreeSlots], left_out: Sequence[str]) -> Tuple[FreeSlots, ...]:
    """Return hosts in the order in which they are taken: as they come, those to be left out behind all others."""
    return tuple(sorted(free, key=lambda entry: entry.host in left_out))


def _arranged(wanted: SlotRequest, hosts: Sequence[FreeSlots]) -> Tuple[FreeSlots, ...]:
    """Put the hosts of the fewest leaves first, among those not to be left out and then among the others."""
    counts, each = _counts_hosts(wanted), wanted.slots_per_host
    gives = {entry.host: int(_is_able(entry, each)) if counts else entry.slots for entry in hosts}
    asked = _count(wanted, hosts) if counts else wanted.np
    need = sum(gives.values()) if asked is None else asked
    found: Tuple[FreeSlots, ...] = ()
    for left_out in (False, True):
        some = [entry for entry in hosts if (entry.host in wanted.left_out) is left_out]
        found += arranged(some, gives, need)
        need -= sum(gives[entry.host] for entry in some)
    return found


def _passes_over(shares: Sequence[Share], hosts: Sequence[FreeSlots], unit: int) -> bool:
    """Return whether a host with room stands before others of its leaf that are taken, and is not."""
    taken = {share.host for share in shares}
    passed = set()
    for entry in hosts:
        if entry.host in taken and entry.leaf in passed:
            return True
        if entry.host not in taken and entry.slots >= unit:
            passed.add(entry.leaf)
    return False


def _leaves(shares: Sequence[Share], free: Sequence[FreeSlots]) -> str:
    """Return which leaves the ranks are on, nothing where that is not known."""
    taken = {share.host for share in shares}
    leaves = leaves_of([entry for entry in free if entry.host in taken])
    if not any(leaves):
        return ""
    names = ", ".join(leaf or "not known" for leaf in leaves[:_MOST_TOLD])
    more = f" and {len(leaves) - _MOST_TOLD} more" if len(leaves) > _MOST_TOLD else ""
    return f"; on {len(leaves)} {'leaf' if len(leaves) == 1 else 'leaves'}: {names}{more}"


def _counts_hosts(wanted: SlotRequest) -> bool:
    return wanted.hosts is not None or wanted.slots_per_host is not None


def _count(wanted: SlotRequest, hosts: Sequence[FreeSlots]) -> int:
    """Return how many of the hosts are to be taken; those to be left out only as far as the least number needs them."""
    if wanted.hosts is None or wanted.least is None:
        return len(hosts) if wanted.hosts is None else wanted.hosts
    able = sum(_is_able(entry, wanted.slots_per_host) for entry in hosts if entry.host not in wanted.left_out)
    return max(wanted.least, min(wanted.hosts, able))


def _shares(wanted: SlotRequest, hosts: Sequence[FreeSlots]) -> Tuple[Share, ...]:
    """Return the ranks of each host, nothing where it does not fit."""
    if _counts_hosts(wanted):
        each = wanted.slots_per_host
        count = _count(wanted, hosts)
        able = [entry for entry in hosts if _is_able(entry, each)][: max(count, 0)]
        return tuple(Share(entry.host, entry.slots if each is None else each) for entry in able if len(able) == count)
    left = sum(entry.all for entry in hosts) if wanted.np is None else wanted.np
    if left > sum(entry.slots for entry in hosts):
        return ()
    shares: List[Share] = []
    for entry in hosts:
        here = min(entry.slots, left)
        if here > 0:
            shares.append(Share(entry.host, here))
        left -= here
    return tuple(shares)


def _whole(entry: FreeSlots, unit: int) -> FreeSlots:
    """Return a host with the slots of whole workers alone."""
    if unit == 1:
        return entry
    return replace(entry, slots=entry.slots // unit * unit, total=entry.all // unit * unit)


def _capped(entry: FreeSlots, most: Optional[int]) -> FreeSlots:
    """Return a host with as many slots as a job may take of it."""
    if most is None or entry.all <= most:
        return entry
    return replace(entry, slots=min(entry.slots, most), total=most)


def _is_able(entry: FreeSlots, each: Optional[int]) -> bool:
    """Return whether a host has so many free slots, None for all that it has."""
    return 0 < (entry.all if each is None else each) <= entry.slots


def _refused(wanted: SlotRequest, free: Sequence[FreeSlots], never: bool) -> PlacementError:
    """Return the error that there are fewer slots than ranks."""
    total = sum(entry.all if never else entry.slots for entry in free)
    np = sum(entry.all for entry in free) if wanted.np is None else wanted.np
    ranks = "1 rank does" if np == 1 else f"{np} ranks do"
    if wanted.most_per_host is not None:
        fits = [f"--np {total}"] if total else []
        hint = " or ".join((*fits, f"more than --slots-per-host {wanted.most_per_host}"))
        found = f"there {'is' if total == 1 else 'are'} {_slots(total)}" if never else f"{_slots(total)} free"
        message = f"{ranks} not fit with at most {wanted.most_per_host} on each host: {found}"
        return PlacementError(message, _totals(free) if never else _reasons(free), f"use {hint}", never=never)
    if not never:
        fewer = f"request at most --np {total}, or " if total else ""
        message = f"{ranks} not fit: {_slots(total)} free"
        return PlacementError(message, _reasons(free), f"{fewer}{_others(free)}")
    message = f"{ranks} not fit: there {'is' if total == 1 else 'are'} {_slots(total)}"
    fewer = f"request at most --np {total}, or " if total else ""
    return PlacementError(message, _totals(free), f"{fewer}{_more_slots(np, free)}", never=True)


def _more_slots(ranks: int, free: Sequence[FreeSlots]) -> str:
    """Return what gives so many ranks a slot each: -H, unless the job wants GPUs of which there are no more."""
    if any("--gpus" in entry.lacks for entry in free):
        return "omit --gpus: then --np N starts N ranks on slots of any kind, one per rank"
    if any(entry.lacks for entry in free):
        return "allow the job other hosts or GPUs: --gpu-ids, --gpu-model, --exclude"
    level = -(-ranks // (len(free) or 1))
    listed = ",".join(f"{entry.host}:{max(entry.all, level)}" for entry in free)
    more = listed if len(free) <= _MOST_TOLD else f"{free[0].host}:{max(free[0].all + 1, level)},..."
    return f"allow more ranks than cores or GPUs with -H {more}"


def _workers_refused(wanted: SlotRequest, free: Sequence[FreeSlots], never: bool) -> PlacementError:
    """Return the error that the hosts have room for fewer workers than are wanted, each being on one host."""
    now = [entry.all if never else entry.slots for entry in free]
    count = sum(now) if wanted.np is None else wanted.np // wanted.unit
    room = sum(slots // wanted.unit for slots in now)
    many = count != 1
    message = (
        f"{count} worker{'s' if many else ''} with {_slots(wanted.unit)}{' each' if many else ''} "
        f"{'do' if many else 'does'} not fit: each must fit on one host, and there is room for {room or 'none'}"
    )
    hint = _as_many(count * wanted.unit, now, free, never)
    return PlacementError(message, _totals(free) if never else _reasons(free), hint, never=never)


def _as_many(ranks: int, now: Sequence[int], free: Sequence[FreeSlots], never: bool, instead: str = "") -> str:
    """Return the hint of workers or hosts that do not fit: how as many ranks start all the same."""
    said = []
    if sum(now) >= ranks:
        said.append(f"--np {ranks}{instead} starts the same number of ranks on any hosts")
    elif never:
        said.append(f"--np {ranks}{instead}, and {_more_slots(ranks, free)}")
    if not never:
        said.append(_others(free))
    return "; ".join(said)


def _others(free: Sequence[FreeSlots]) -> str:
    """Return what to do where others have the slots, or nobody can tell who has them."""
    unknown = next((entry.host for entry in free if UNKNOWN_USERS in entry.why), None)
    return _LIST if unknown is None else f"see what is wrong with its GPUs: taco-launch facts {unknown}"


def _hosts_refused(wanted: SlotRequest, free: Sequence[FreeSlots], never: bool) -> PlacementError:
    """Return the error that there are fewer hosts with as many slots than are wanted at least."""
    each = wanted.slots_per_host
    count = _count(wanted, free)
    least = "" if wanted.least is None else "at least "
    now = [FreeSlots(entry.host, entry.all if never else entry.slots, entry.all) for entry in free]
    able = sum(_is_able(entry, each) for entry in now)
    does = "does" if count == 1 else "do"
    some = _hosts(able) if able else "no host"
    if each is None:
        message = f"{least}{count} whole host{'' if count == 1 else 's'} {does} not fit: "
        are = "are" if able > 1 else "is"
        message += f"there {are} {some}" if never else f"{some} {are} free of other jobs"
    else:
        message = f"{least}{_hosts(count)} with {_slots(each)}{'' if count == 1 else ' each'} {does} not fit: "
        message += f"{some} {'have' if able > 1 else 'has'} as many{'' if never else ' free'}"
    if each is not None and wanted.least is not None and wanted.hosts is not None and able:
        hint = "; ".join((f"--hosts {able}:{wanted.hosts} starts it on {some}", *(() if never else (_others(free),))))
    elif each is not None:
        hint = _as_many(
            count * each,
            [entry.slots for entry in now],
            free,
            never,
            instead=" instead of --hosts and --slots-per-host",
        )
    else:
        hint = "; ".join(filter(None, (f"--hosts {able}" if able else "", "" if never else _others(free))))
    if count > len(free):
        hint = "; ".join(filter(None, (f"name an inventory with {_hosts(count)}: -i FILE", hint)))
    return PlacementError(message, _totals(free) if never else _reasons(free), hint, never=never)


def _totals(free: Sequence[FreeSlots]) -> Tuple[Tuple[str, str], ...]:
    """Return how many slots each host has; many hosts are counted."""
    if len(free) <= _MOST_TOLD:
        return tuple((entry.host, _with(_slots(entry.all), entry.lacks)) for entry in free)
    counts = Counter((entry.all, entry.lacks) for entry in free)
    return tuple((_hosts(hosts), _with(f"{_slots(slots)} each", lacks)) for (slots, lacks), hosts in counts.items())


def _reasons(free: Sequence[FreeSlots]) -> Tuple[Tuple[str, str], ...]:
    """Return how many slots of each host are free, and who has the others."""
    return tuple((entry.host, reason(entry)) for entry in free)


def reason(entry: FreeSlots) -> str:
    """Return how many slots of a host are free for a job, who has the others, and which it may not have."""
    return _with(", ".join(filter(None, (f"{entry.slots} of {entry.all} free", entry.why))), entry.lacks)


def _with(text: str, lacks: str) -> str:
    return f"{text} ({lacks})" if lacks else text


def _hosts(count: int) -> str:
    return f"{count} host" if count == 1 else f"{count} hosts"


def _slots(count: int) -> str:
    return f"{count} slot" if count == 1 else f"{count} slots"


# One host that suffices comes before all else: its ranks need no network. NCCL's rings follow the order of ranks, and ranks
# that of the hosts, so the hosts of a leaf switch stand together. Hosts of unknown leaves count as being on one leaf.
def arranged(hosts: Sequence[FreeSlots], gives: Mapping[str, int], need: int) -> Tuple[FreeSlots, ...]:
    """Return the hosts, the first one that gives `need` by itself first, else those of the fewest leaves that together do.

    `gives` is by host. Of as few leaves the earlier ones are taken, in the order of the hosts; all of them where not
    even all suffice. Of the hosts of these leaves the fewest come first that give as much, of as few the earlier ones,
    leaf after leaf; among the hosts of a leaf their order stays.
    """
    one = next((entry for entry in hosts if gives[entry.host] >= need), None)
    if one is not None:
        return (one, *(entry for entry in hosts if entry is not one))
    leaves: Dict[Optional[str], List[FreeSlots]] = {}
    for entry in hosts:
        leaves.setdefault(entry.leaf, []).append(entry)
    members = list(leaves.values())
    taken = _fewest([sum(gives[entry.host] for entry in some) for some in members], need)
    first = [entry for place in taken for entry in members[place]]
    few = set(_fewest([gives[entry.host] for entry in first], need))
    return (
        *(entry for place, entry in enumerate(first) if place in few),
        *(entry for place, entry in enumerate(first) if place not in few),
        *(entry for place, some in enumerate(members) if place not in taken for entry in some),
    )


def leaves_of(hosts: Sequence[FreeSlots]) -> Tuple[Optional[str], ...]:
    """Return the leaves of hosts, each once, in the order of the hosts."""
    return tuple(dict.fromkeys(entry.leaf for entry in hosts))


def _fewest(capacities: Sequence[int], need: int) -> Tuple[int, ...]:
    """Return the places of the fewest numbers that add up to `need`, of as few the earliest; all where all do not."""
    together = accumulate(sorted(capacities, reverse=True), initial=0)
    count = next((few for few, capacity in enumerate(together) if capacity >= need), len(capacities))
    found: List[int] = []
    behind = Counter(capacities)
    for place, capacity in enumerate(capacities):
        behind[capacity] -= 1
        left = count - len(found) - 1
        if left >= 0 and capacity + _most(behind, left) >= need:
            found.append(place)
            need -= capacity
    return tuple(found) if len(found) == count else tuple(range(len(capacities)))


def _most(capacities: Mapping[int, int], count: int) -> int:
    """Return the sum of the largest `count` numbers, of which there are as many each as is said."""
    total = 0
    for capacity in sorted(capacities, reverse=True):
        taken = min(count, capacities[capacity])
        total += taken * capacity
        count -= taken
    return total
