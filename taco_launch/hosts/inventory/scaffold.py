"""The text of a new inventory, of what is known of its hosts: pure."""

import re
from collections.abc import Iterable, Mapping

from taco_launch.core.facts.network.interface import carrier
from taco_launch.core.frozen import dataclass
from taco_launch.core.model.host.fact_value import Absent, Unknown, known_value
from taco_launch.core.model.host.facts import HostFacts
from taco_launch.hosts.inventory.ranges import fold
from taco_launch.hosts.inventory.schema.names import is_interface

# What is between ranges, not between the numbers of one.
_BETWEEN_KEYS = re.compile(r",(?![^\[]*\])")
_HEAD = """\
# Inventory of {cluster}. Every key: `taco-launch inventory --schema`. Check it: `taco-launch -i {file} inventory`.
cluster: {cluster}
# The head keeps the queue and the records of jobs.
head: {head}
"""


@dataclass(frozen=True)
class HostSketch:
    """What a look at a host found: how many GPUs it has, and the interface by which others reach it; None: not known."""

    gpus: int | None = None
    interface: str | None = None
    has_rdma: bool | None = None

    @classmethod
    def of(cls, facts: HostFacts) -> "HostSketch":
        """Return what the facts of a host say; what could not be read is None."""
        there = () if isinstance(facts.gpu, Absent) else known_value(facts.gpus)
        gpus = None if there is None else len(there)
        interface = known_value(carrier(facts.network))
        # Another name would stand in a file that decides what all hosts run.
        name = interface.name if interface is not None and is_interface(interface.name) else None
        has_rdma = None if isinstance(facts.rdma, Unknown) else not isinstance(facts.rdma, Absent)
        return cls(gpus, name, has_rdma)


def text(
    hosts: Mapping[str, HostSketch],
    *,
    cluster: str,
    file: str,
    user: str | None = None,
    key: str | None = None,
    image: str | None = None,
) -> str:
    """Return the inventory as YAML with comments.

    Args:
        hosts: What is known of each host, by the name that reaches it; the first is the head.
        cluster: The cluster's name.
        file: What the inventory will be called, for the comments.
        user: The login on the hosts; None leaves it to the ssh configuration.
        key: The private key for the hosts, a path from / or ~/; None leaves it to the ssh configuration.
        image: The training image; None leaves it to be filled in.
    """
    parts = [_HEAD.format(cluster=cluster, head=_quoted(next(iter(hosts))), file=file)]
    ssh = [f"{name}: {_quoted(value)}" for name, value in (("user", user), ("identity_file", key)) if value]
    if ssh:
        parts.append(f"ssh: {{{', '.join(ssh)}}}\n")
    parts.append(_network(hosts))
    if image:
        parts.append(f"container: {{image: {_quoted(image)}}}\n")
    else:
        parts.append(
            "# The training image; without it jobs run on the head only, without a container.\n# container: {image: NAME:TAG}\n"
        )
    parts.append("# Folders of the hosts that jobs may mount (--data); without it none.\n# data_roots: [/data]\n")
    parts += _slots(hosts)
    return "".join(parts)


def _network(hosts: Mapping[str, HostSketch]) -> str:
    found = {name: one.interface for name, one in hosts.items() if one.interface}
    names = set(found.values())
    if len(names) == 1 and len(found) == len(hosts):
        rdma = "auto" if any(one.has_rdma for one in hosts.values()) else "off"
        why = "hosts reach each other by this interface" + ("" if rdma == "auto" else "; no RDMA port was found")
        return f"# {why[0].upper()}{why[1:]}.\nnetwork: {{interface: {_quoted(names.pop())}, rdma: {rdma}}}\n"
    if not names:
        return "# The interface between the hosts.\n# network: {interface: NAME}\n"
    told = "; ".join(f"{fold(host for host, name in found.items() if name == one)}: {one}" for one in sorted(names))
    return f"# The interface differs between hosts or is not known on all of them ({told}): each job chooses it from the hosts' facts.\n"


def _slots(hosts: Mapping[str, HostSketch]) -> Iterable[str]:
    counts = [one.gpus for one in hosts.values()]
    usual = max(set(counts), key=counts.count) if any(counts) else None
    if usual:
        yield f"defaults: {{slots: {usual}}}\n"
    else:
        yield "# How many ranks a host runs, usually its number of GPUs.\n# defaults: {slots: 8}\n"
    yield "hosts:\n"
    for slots in dict.fromkeys(counts):
        names = [name for name, one in hosts.items() if one.gpus == slots]
        own = f"{{slots: {slots}}}" if slots and slots != usual else "{}"
        for key in _BETWEEN_KEYS.split(fold(names)):
            yield f"  {_quoted(key)}: {own}\n"


def _quoted(value: str) -> str:
    """Return a YAML scalar, in quotes where it would be something else without them."""
    plain = all(letter.isalnum() or letter in "._-/" for letter in value) and value[0].isalpha()
    if plain and value.lower() not in ("y", "n", "yes", "no", "on", "off", "true", "false", "null"):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
