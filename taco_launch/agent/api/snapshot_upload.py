"""The controller brings the code of a job that it submits, as far as it is not here, and has old code removed."""

import select
import zlib
from typing import Callable, Dict, Iterator, Type

from taco_launch.agent.rank.caller_stream import CallerStream
from taco_launch.agent.snapshots import eviction
from taco_launch.agent.snapshots.store import DamagedError, SnapshotStore, checked, write
from taco_launch.agent.ssh import commands as ssh
from taco_launch.agent.store.folders import Jobs, make_private, require_local_disk
from taco_launch.core.errors import UsageError
from taco_launch.core.manifest import MOST_BYTES
from taco_launch.core.protocol.calls import Notice, Reply, Request
from taco_launch.core.protocol.calls.caller_input import SILENT_SECONDS, InputData
from taco_launch.core.protocol.calls.snapshots import SnapshotPrune, SnapshotsRemoved, wanted

_PRUNE_SECONDS = 120.0


def receive(jobs: Jobs, snapshot: str, caller: CallerStream) -> Iterator[Reply]:
    """Have a snapshot here, and note that it is used: say what of it is wanted, and keep what the caller sends.

    Raises:
        UsageError: what it sends is not that.
        BrokenPipeError: it is gone; the files that came stay, and are not wanted again.
    """
    store = SnapshotStore(jobs.path.parent)
    if store.use(snapshot):
        return
    make_private(jobs.path)
    require_local_disk(jobs.path)
    with store.arriving(snapshot):
        if not store.use(snapshot):
            try:
                yield from _receive(store, snapshot, _Sent(caller))
            except (DamagedError, ValueError) as error:
                raise UsageError(
                    f"the head rejected the uploaded code: {error}",
                    hint="submit the job again; the upload was damaged",
                ) from None
            store.use(snapshot)


def _receive(store: SnapshotStore, snapshot: str, sent: "_Sent") -> Iterator[Reply]:
    yield wanted([snapshot])
    text = sent.text()
    base = store.base_for(checked(snapshot, text))
    pack, part, lacks = store.begin(snapshot, base, text)
    with pack:
        if lacks:
            eviction.shrink(store, keep=base)
            yield wanted(lacks)
        try:
            for data in sent.pieces(sum(lacks.values())):
                write(pack.file, data)
            store.finish(snapshot, pack, part)
        except BrokenPipeError:
            raise
        except (DamagedError, OSError):  # a disk that is full is not kept so
            part.unlink()
            raise


class _Sent:
    """The input of a caller, which is waited for."""

    def __init__(self, caller: CallerStream) -> None:
        self._caller = caller
        self._rest = b""

    def pieces(self, count: int) -> Iterator[bytes]:
        """Yield the next bytes, as they come."""
        while count:
            data = self._rest or self._more()
            yield data[:count]
            self._rest = data[count:]
            count -= min(count, len(data))

    def text(self) -> bytes:
        """Return a text that is sent compressed, which tells where it ends.

        Raises:
            ValueError: it is no such text, or too large.
        """
        unpack, text = zlib.decompressobj(), b""
        try:
            while not unpack.eof:
                if len(text) == MOST_BYTES:
                    raise ValueError("its manifest is too large")
                text += unpack.decompress(unpack.unconsumed_tail or self._more(), MOST_BYTES - len(text))
        except zlib.error as error:
            raise ValueError(f"its manifest is damaged: {error}") from None
        self._rest = unpack.unused_data
        return text

    def _more(self) -> bytes:
        poll, event = select.poll(), 0
        self._caller.listen(poll, wanted=True)
        while True:
            found = self._caller.receive(event, wanted=True)
            data = b"".join(frame.data for frame in found if isinstance(frame, InputData))
            if data:
                return data
            if self._caller.gone:
                raise BrokenPipeError
            event = sum(flags for _file, flags in poll.poll(SILENT_SECONDS * 1000))


def _prune(jobs: Jobs, agent: str, request: SnapshotPrune) -> Iterator[Reply]:
    """Remove what has been unused for long, here and on the other hosts at the same time."""
    state = jobs.path.parent
    found = eviction.prune(SnapshotStore(state), request.since, dry_run=request.dry_run)
    yield SnapshotsRemoved(host=request.here, snapshots=found.snapshots, freed=found.bytes)
    words = ("snapshot-evict", str(state), repr(request.since), *(["--dry-run"] if request.dry_run else []))
    for host, answer in ssh.ask(request.hosts, agent, SnapshotsRemoved, *words, seconds=_PRUNE_SECONDS):
        if not isinstance(answer, str):
            yield answer.replace(host=host)
        elif not ssh.lacks_agent(answer):  # else no job of this version has ever run there
            yield Notice(text=f"host {host}: its copies of job code could not be removed: {answer}")


OPERATIONS: Dict[Type[Request], Callable[..., Iterator[Reply]]] = {SnapshotPrune: _prune}
