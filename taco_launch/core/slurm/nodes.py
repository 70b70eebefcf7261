"""What sinfo prints -> the nodes of a cluster. Pure."""

import re
from typing import Dict, NamedTuple, Tuple

# Of `sinfo --Node --noheader --Format`: node, address, partition, CPUs (allocated/idle/other/total), GPUs, GPUs in use, state.
FORMAT = "NodeList:|,NodeAddr:|,Partition:|,CPUsState:|,Gres:|,GresUsed:|,StateLong:|"
# Labels of a node besides its partition: its state in Slurm's words, its GPUs, and how many of its slots are in use.
STATE, GPUS, USED = "state", "gpus", "used"
_GPUS = re.compile(r"(?:^|,)gpu(?::[^,:()]+)*:(\d+)")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


class Node(NamedTuple):
    """A node: its slots (GPUs, else CPUs), how many of them are in use, its partitions, and its state in Slurm's words."""

    name: str
    address: str
    slots: int
    used: int
    gpus: int
    partitions: Tuple[str, ...]
    state: str


def parse_nodes(text: str) -> Tuple[Node, ...]:
    """Return the nodes in the order in which sinfo shows them: a line for each node and partition.

    Raises:
        ValueError: a line has another form; with the line.
    """
    by_name: Dict[str, Node] = {}
    for line in filter(str.strip, text.splitlines()):
        parts = line.strip().split("|")
        cpus = parts[3].split("/") if len(parts) == 8 else []
        if len(cpus) != 4 or not all(map(str.isdecimal, cpus)) or not _NAME.fullmatch(parts[0]):
            raise ValueError(f"sinfo printed a line that cannot be read: {line[:120]!r}")
        name, address, partition, _cpus, gres, gres_used, state, _end = parts
        partition = partition.rstrip("*")
        earlier = by_name.get(name)
        if earlier is not None:
            by_name[name] = earlier._replace(partitions=(*earlier.partitions, partition))
            continue
        gpus, gpus_used = (sum(map(int, _GPUS.findall(text))) for text in (gres, gres_used))
        slots, used = (gpus, gpus_used) if gpus else (int(cpus[3]), int(cpus[0]))
        by_name[name] = Node(name, address or name, slots, used, gpus, (partition,), state)
    return tuple(by_name.values())
