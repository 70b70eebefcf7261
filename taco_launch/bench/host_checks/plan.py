"""Plans what a job measures of its hosts, and the request of that job."""

import json
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from taco_launch.core.model.job_request import JobRequest

FULL, PAIRS = "full", "pairs"
# Each measurement in a few short repetitions; streams of TCP side by side, since one does not fill a fast network.
REPEATS, _SECONDS, _STREAMS = 3, 0.3, 4
_KINDS = ("CPU", "core", "memory", "disk")
# What the job gets as its code; it runs the folder `program` of it.
_CODE = Path(__file__).parent
_TTL = 86400.0
# As program/__main__.py has it: a secret that the ranks share; arguments would show it to everyone on the host.
_VARIABLE = "TACO_CHECK_TOKEN"

# Pairs of hosts, by their numbers, that are measured side by side; no host is in two of them.
Round = tuple[tuple[int, int], ...]


def rounds(count: int, *, bisect: bool = False) -> tuple[Round, ...]:
    """Return rounds of disjoint pairs in which each of `count` hosts meets each other one once; fewest rounds.

    With `bisect` about log2(count) of these, spread over all: enough partners of each host for a majority.
    """
    places = [*range(count), *([-1] if count % 2 else [])]
    every = []
    for _ in range(len(places) - 1):
        half = len(places) // 2
        pairs = zip(places[:half], reversed(places[half:]), strict=True)
        every.append(tuple((min(pair), max(pair)) for pair in pairs if -1 not in pair))
        places = [places[0], places[-1], *places[1:-1]]  # the circle method: one stays, the others turn
    few = max(3, (count - 1).bit_length() + 1)
    if not bisect or few >= len(every):
        return tuple(every)
    return tuple(every[number * len(every) // few] for number in range(few))


def plan(level: str, count: int, *, bisect: bool = False, ports: tuple[int, int] | None = None) -> dict[str, Any]:
    """Return what the program is given; it listens on `ports` alone, the first and the last, or on any with None."""
    return {
        "rounds": rounds(count, bisect=bisect) if level == PAIRS else (),
        "hosts": _KINDS if level == FULL else (),
        "repeats": REPEATS,
        "seconds": _SECONDS,
        "streams": _STREAMS,
        "ports": ports,
    }


def request(level: str, hosts: Sequence[str], what: dict[str, Any], patience: float) -> JobRequest:
    """Return the job that measures hosts: a process on each, all their slots; it waits for them `patience` seconds.

    A new token in its environment keeps other connections out. Rank 0 listens on the last of the plan's ports.
    """
    meeting = (("MASTER_PORT", str(what["ports"][1])),) if what["ports"] else ()
    return JobRequest(
        command=("python3", "-m", "program", json.dumps(what, separators=(",", ":"))),
        name=f"check-{level}-{secrets.token_hex(3)}",
        launcher="env",
        env=((_VARIABLE, secrets.token_hex(8)), *meeting),
        per_host=True,
        hosts=len(hosts),
        host=",".join(hosts),
        exclusive=True,
        sync=str(_CODE),
        no_wait=not patience,
        queue_timeout=patience if 0 < patience < float("inf") else None,
        ttl=_TTL,
    )
