"""What has changed on a host between two documents of `taco-launch facts --json`: after a reboot, an update, a repair."""

import re
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple

from taco_launch.core.facts import SUBJECTS
from taco_launch.core.frozen import dataclass

# What tells the items of a list apart; the first that all items of a list have, each its own. GPUs, which alone have
# both of the first two, are numbered anew where one is gone, and their places are not.
_GPU = ("uuid", "pci")
_KEYS = ("index", "name", "reference", "address", "path", "number", "detail")
# What differs from one look at a host to the next, or by a reboot, and says nothing: clocks, what is free, who runs.
_PASSING = (
    r"system\.(clock_offset|clock_error|clock_synchronised|booted)",
    r"system\.memory\.available",
    r"system\.disks\[[^]]*\]\.free",
    r"network\.listeners.*",
    r"gpu\.processes.*",
    r"gpu\.gpus\[[^]]*\]\.(index|memory_used|temperature|slowdowns.*)",
    # since the driver was loaded
    r"gpu\.gpus\[[^]]*\]\.ecc_uncorrected",
)
_SKIP = re.compile("|".join(f"(?:{each})" for each in _PASSING))
# What is told along the GPUs and NICs of a topology: where those are others, it follows from them.
_DEVICES, _ALONG = ("topology.gpus", "topology.nics"), ("topology.links", "topology.cpus", "topology.numa")
# The kernel makes up names of these, unless they have an address as a container's only interface has, and MACs of those.
_NAMELESS, _MADE_UP = ("veth",), ("bridge", "virtual", "veth")


@dataclass(frozen=True)
class FactChange:
    """One value that is another one now; `where` is its path in the document, None stands for none or not known."""

    where: str
    before: Any
    after: Any


def hosts_of(document: Any) -> Mapping[str, Mapping[str, Any]]:
    """Return the hosts of a document of one host or of several, by name.

    Raises:
        ValueError: it is none.
    """
    hosts = document.get("hosts", [document]) if isinstance(document, dict) else None
    if not isinstance(hosts, list) or not all(
        isinstance(host, dict) and isinstance(host.get("host"), str) and set(SUBJECTS) <= set(host) for host in hosts
    ):
        raise ValueError("is not the output of taco-launch facts --json")
    return {host["host"]: host for host in hosts}


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Tuple[FactChange, ...]:
    """Compare two documents of one host, in the subjects that both have, without what differs at every look."""
    found: List[FactChange] = []
    for subject in SUBJECTS:
        if _was_asked(before, subject) and _was_asked(after, subject):
            found += _differ(before[subject], after[subject], subject)
    follows = _ALONG if any(each.where in _DEVICES for each in found) else ()
    return tuple(each for each in found if not _SKIP.fullmatch(each.where) and each.where not in follows)


def _was_asked(document: Mapping[str, Any], subject: str) -> bool:
    """Return whether a subject was looked at; documents of before this was told have null for what was not."""
    asked = document.get("asked")
    return subject in asked if isinstance(asked, list) else document[subject] is not None


def _differ(before: Any, after: Any, where: str) -> Iterator[FactChange]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys([*before, *after]):
            made_up = key == "mac" and after.get("kind") in _MADE_UP
            if not made_up:
                yield from _differ(before.get(key), after.get(key), f"{where}.{key}")
    elif isinstance(before, list) and isinstance(after, list):
        key = _key(before, after)
        if key is None:
            if before != after:
                yield FactChange(where, before, after)
            return
        old, new = _named(before, key), _named(after, key)
        for name in dict.fromkeys([*old, *new]):
            yield from _differ(old.get(name), new.get(name), f"{where}[{name}]")
    elif before != after:
        yield FactChange(where, before, after)


def _key(before: Sequence[Any], after: Sequence[Any]) -> Any:
    of_gpus = all(isinstance(item, dict) and set(_GPU) <= set(item) for item in (*before, *after))
    for key in (*reversed(_GPU), *_KEYS) if of_gpus else _KEYS:
        if all(
            isinstance(item, dict) and item.get(key) is not None and not isinstance(item[key], (dict, list))
            for item in (*before, *after)
        ) and all(len({item[key] for item in items}) == len(items) for items in (before, after)):
            return key
    return None


def _named(items: Sequence[Dict[str, Any]], key: str) -> Dict[str, Dict[str, Any]]:
    return {str(item[key]): item for item in items if item.get("kind") not in _NAMELESS or item.get("addresses")}
