"""The controller brings the code of a job: it offers a snapshot, puts what is missing of it, and has old ones removed."""

from typing import Callable, Dict, Iterator, Type

from taco_launch.agent import ssh
from taco_launch.agent.snapshots import eviction
from taco_launch.agent.snapshots.store import DamagedError, SnapshotStore
from taco_launch.agent.store.folders import Jobs, make_private, require_local_disk
from taco_launch.errors import UsageError
from taco_launch.protocol.calls import Notice, Reply, Request
from taco_launch.protocol.calls import snapshots as calls
from taco_launch.protocol.calls.snapshots import (
    ChunksStored,
    SnapshotOffer,
    SnapshotPrune,
    SnapshotPut,
    SnapshotsRemoved,
)

_PRUNE_SECONDS = 120.0


def _offer(jobs: Jobs, _agent: str, request: SnapshotOffer) -> Iterator[Reply]:
    """Keep a manifest; say which chunks are missing.

    Raises:
        UsageError: it is none.
    """
    store = SnapshotStore(jobs.path.parent)
    make_private(jobs.path)
    require_local_disk(jobs.path)
    try:
        found = store.begin(request.snapshot, request.manifest)
    except (DamagedError, ValueError) as error:
        raise UsageError(f"the code is refused: {error}") from None
    missing = store.missing(found)
    if missing:
        eviction.shrink(store, keep=request.snapshot)
    else:
        store.finish(request.snapshot)
        store.use(request.snapshot)
    yield calls.missing(missing)


def _put(jobs: Jobs, _agent: str, request: SnapshotPut) -> Iterator[Reply]:
    """Keep chunks that belong to a snapshot which was offered.

    Raises:
        UsageError: a chunk is none of that snapshot's, or damaged.
    """
    store = SnapshotStore(jobs.path.parent)
    try:
        found, _text = store.read(request.snapshot)
        missing = store.missing(found)
        for chunk, data in calls.unpacked(request.data):
            if chunk in missing:
                store.put(chunk, data)
                del missing[chunk]
    except (DamagedError, ValueError) as error:
        raise UsageError(f"the code is refused: {error}", hint="submit again") from None
    if not missing:
        store.finish(request.snapshot)
        store.use(request.snapshot)
    yield ChunksStored(missing=len(missing))


def _prune(jobs: Jobs, agent: str, request: SnapshotPrune) -> Iterator[Reply]:
    """Remove what has been unused for long, here and on the other hosts at the same time."""
    state = jobs.path.parent
    found = eviction.prune(SnapshotStore(state), request.since, dry_run=request.dry_run)
    yield SnapshotsRemoved(host=request.here, snapshots=found.snapshots, freed=found.bytes)
    words = ("snapshot-prune", str(state), repr(request.since), *(["--dry-run"] if request.dry_run else []))
    for host, answer in ssh.ask(request.hosts, agent, SnapshotsRemoved, *words, seconds=_PRUNE_SECONDS):
        if not isinstance(answer, str):
            yield answer.but(host=host)
        elif not ssh.lacks_agent(answer):  # else no job of this version has ever run there
            yield Notice(text=f"host {host}: its copies of code are still there: {answer}")


OPERATIONS: Dict[Type[Request], Callable[..., Iterator[Reply]]] = {
    SnapshotOffer: _offer,
    SnapshotPut: _put,
    SnapshotPrune: _prune,
}
