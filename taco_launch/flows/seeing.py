"""Looking at a cluster's jobs and slots from the controller: list, top, prune, exec."""

import contextlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from taco_launch.errors import TacoLaunchError
from taco_launch.frozen import dataclass
from taco_launch.model.hosts import Host, Inventory
from taco_launch.model.rows import JobRow
from taco_launch.model.slots import Occupancy
from taco_launch.remote.head import AgentError, Head


@dataclass(frozen=True)
class Node:
    """A host and who has which of its slots; `problem` says why nobody knows that, `occupancy` is None then."""

    host: Host
    is_head: bool
    occupancy: Occupancy | None
    problem: str = ""


def rows(head: Head) -> tuple[tuple[JobRow, ...], tuple[str, ...]]:
    """Give a line of every job, the newest first, and warnings about records that could not be read."""
    return _rows(head.call("list"))


def nodes(head: Head, inventory: Inventory) -> tuple[Node, ...]:
    """Look at the slots of every host of the inventory; a host that does not answer is told with the reason."""
    asked = [host for host in inventory.hosts if head.seat.container or host.name == inventory.head]
    hosts = [[host.name, host.slots, host.gpus] for host in asked]
    answers = {frame["host"]: frame for frame in head.call("top", hosts=hosts, here=inventory.head)}
    nobody: Mapping[str, Any] = {"problem": "without a container jobs run on the head alone: no other host is asked"}
    found = []
    for host in inventory.hosts:
        answer = answers.get(host.name, nobody)
        told = answer.get("occupancy")
        found.append(Node(host, host.name == inventory.head, told, answer.get("problem", "")))
    return tuple(found)


def held(occupancy: Occupancy, *, jobs: bool = True) -> str:
    """Say who has the slots of a host: jobs with their owners, and processes that are not ours; GPUs by their indices.

    Without `jobs` the latter alone. Nothing is said where all of them are free.
    """
    found: dict[str, list[int]] = {}
    for number, slot in enumerate(occupancy.slots):
        if slot.holder is not None:
            owner = f" ({slot.holder.owner})" if slot.holder.owner else ""
            words = (f"job {slot.holder.job}{owner}" if slot.holder.job else "a job") if jobs else ""
        else:
            words = slot.foreign
        if words:
            found.setdefault(words, []).append(number)
    told = []
    for words, numbers in found.items():
        gpus = ",".join(str(number) for number in numbers if number < occupancy.gpus)
        told.append(f"{len(numbers)} {words}{f': GPU {gpus}' if gpus else ''}")
    return "; ".join(told)


def prune(head: Head, since: float, owner: str | None, *, dry_run: bool) -> tuple[tuple[JobRow, ...], tuple[str, ...]]:
    """Remove the records of jobs that ended more than `since` seconds ago, of all owners or one; give those.

    With `dry_run` they stay.
    """
    return _rows(head.call("prune", since=since, owner=owner, dry_run=dry_run))


def execute(
    head: Head,
    name: str,
    rank: int,
    command: tuple[str, ...],
    out: Callable[[bytes], None],
    err: Callable[[bytes], None],
) -> int:
    """Run a command beside a rank, give what it says to `out` and `err`, and its exit code back.

    Whatever ends this call ends the command.
    """
    request = {"name": name, "rank": rank, "command": list(command), "token": secrets.token_hex(8)}
    code = None
    try:
        with head.stream("exec", **request) as frames:
            for frame in frames:
                if frame.raw:
                    (out if frame.data["stream"] == "out" else err)(frame.raw)
                code = frame.data.get("exit", code)
    except BaseException as error:
        if not isinstance(error, AgentError):
            with contextlib.suppress(TacoLaunchError):  # the agent in a container outlives the connection to it
                head.call("exec-end", name=name, token=request["token"])
        raise
    return int(code or 0)


def _rows(frames: Sequence[Mapping[str, Any]]) -> tuple[tuple[JobRow, ...], tuple[str, ...]]:
    found = [row for frame in frames for row in frame.get("rows", ())]
    found.sort(key=lambda row: (-(row.submitted or 0), row.name))
    return tuple(found), tuple(frame["warning"] for frame in frames if "warning" in frame)
