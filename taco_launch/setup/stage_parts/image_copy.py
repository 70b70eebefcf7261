"""An image without a registry: what the controller has of it, and which host hands its stream on to which.

One copy leaves the controller. A host that has a part of the stream hands it on while the rest still comes, to two others
at most: so the copies are a binary tree, as deep as the logarithm of the hosts, and the links of all of them work at once.
"""

from collections.abc import Mapping, Sequence

from taco_launch.core.frozen import dataclass

# What stands for the controller where a host's source is named.
CONTROLLER = ""
# How many a host hands the stream on to at a time; and the controller, whose link is the narrow one.
FAN_OUT = 2
CONTROLLER_FAN_OUT = 1
# A line that is faster (bytes a second) is not worth the trial, see `pays`.
SLOW = 40e6


@dataclass(frozen=True)
class TransferNode:
    """A host in the tree: it `has` so many bytes of the stream, which it takes from `source` (None: from nobody now).

    `serves` says whether others can take it from there; `gone`: it failed, and is no source any more; `refused` are those
    that it could take nothing from.
    """

    has: int = 0
    source: str | None = None
    serves: bool = True
    gone: bool = False
    refused: frozenset[str] = frozenset()


def common_layers(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many of the lowest layers two images share, by their diff IDs."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (mine, its) in enumerate(pairs) if mine != its), min(len(one), len(other)))


def order(nodes: Mapping[str, TransferNode]) -> tuple[str, ...]:
    """Return the hosts in the order in which they are seated: those that serve and have the most of the stream first."""
    return tuple(sorted(nodes, key=lambda name: (not nodes[name].serves, -nodes[name].has)))  # stable


def source(name: str, nodes: Mapping[str, TransferNode], size: int) -> str | None:
    """Return where a host that takes it from nobody now is to take the stream of `size` bytes from; None where it has to wait.

    From the host that is nearest to the controller, or to one that has all of it; from the controller where no host can
    give it.
    """
    fed = [node.source for node in nodes.values() if _takes(node, size)]
    found: list[tuple[int, int, str]] = []
    for other, node in nodes.items():
        if other == name or not node.serves or node.gone or other in nodes[name].refused or fed.count(other) >= FAN_OUT:
            continue
        above = _above(other, nodes, size)
        if above is not None:
            found.append((len(above), -node.has, other))
    if found:
        return min(found, key=lambda each: each[:2])[2]
    return CONTROLLER if fed.count(CONTROLLER) < CONTROLLER_FAN_OUT else None


def compression_worthwhile(size: int, packed: int, seconds: float, rate: float) -> bool:
    """Return whether packing `size` bytes into `packed` in so many seconds is faster than sending them, at `rate` a second.

    Between hosts it is not, and is not tried: `gzip -1` packs a training image (torch for CPUs) to 33 % with about 100 MB
    a second and core (measured), and ssh's own compression to 29 % with 38 MB, while 1 Gbit/s carries 118 MB unpacked.
    The controller may be behind a slow line.
    """
    return seconds + packed / rate < size / rate


def _takes(node: TransferNode, size: int) -> bool:
    return node.source is not None and not node.gone and node.has < size


def _above(name: str, nodes: Mapping[str, TransferNode], size: int) -> tuple[str, ...] | None:
    """Return a host and all that it depends on, up to where the stream comes from; None where that is cut off."""
    path = [name]
    while nodes[path[-1]].has < size:
        above = nodes[path[-1]].source
        if above == CONTROLLER:
            break
        if above is None or above in path or nodes[above].gone:
            return None
        path.append(above)
    return tuple(path)
