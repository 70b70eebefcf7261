"""`agent code FOLDER FD`: a child of a guard that has the job's code on its host, checked, and written into the job's folder.

It takes the order from a socket of the guard's, and answers on it; it ends when the guard does.
"""

import gc
import os
import shutil
import socket
import threading
import time
from pathlib import Path
from typing import Callable, List, Optional, Sequence, Tuple

from taco_launch.agent.snapshots import eviction, recycled_tree, transfer
from taco_launch.agent.snapshots.checkout import check_out, write_files
from taco_launch.agent.snapshots.placed_links import LinkError, PlacedLinks
from taco_launch.agent.snapshots.store import DamagedError, Pack, SnapshotStore
from taco_launch.agent.snapshots.transfer import TransferError
from taco_launch.agent.store.folders import JobFolder, make_private
from taco_launch.core.errors import FAILED, OK, HostError, write_hint
from taco_launch.core.protocol.connection import JsonConnection
from taco_launch.core.protocol.guard_messages import CodeFetched, FetchCode

_MOST_NAMED = 5


def main(folder: JobFolder, descriptor: int) -> int:
    """Do what the guard orders, and answer."""
    sock = socket.socket(fileno=descriptor)
    line = JsonConnection(sock)
    order = _order(line, sock)
    if order is None:
        return FAILED
    threading.Thread(target=_end_with, args=(sock,), daemon=True).start()
    begun = time.monotonic()
    gc.disable()  # this process ends soon, and a large tree has many objects that stay until then
    try:
        answer = _Fetch(folder, order).run()
    except HostError as error:
        answer = CodeFetched(error=error.message, hint=error.hint or "")
    except DamagedError as error:
        answer = CodeFetched(error=str(error), hint="submit the job again: that copies it again")
    except OSError as error:
        where = str(error.filename or folder.path)
        answer = CodeFetched(error=f"{where}: {error.strerror or error}", hint=write_hint(error, where))
    line.send(answer.replace(seconds=time.monotonic() - begun))
    return OK


def _order(line: JsonConnection, sock: socket.socket) -> Optional[FetchCode]:
    while True:
        sock.recv(1, socket.MSG_PEEK)  # waits
        messages = line.receive()
        if messages is None:
            return None
        for message in messages:
            if isinstance(message, FetchCode):
                return message


def _end_with(sock: socket.socket) -> None:
    """End this process when the guard is gone."""
    while sock.recv(1 << 10):
        continue
    os._exit(FAILED)


class _Fetch:
    """One order, from the store of another host to the folder of the ranks."""

    def __init__(self, folder: JobFolder, order: FetchCode) -> None:
        self._folder, self._order = folder, order
        self._store = SnapshotStore(folder.path.parent.parent)
        self._notes: List[str] = []
        self._received = 0

    def run(self) -> CodeFetched:
        order = self._order
        base = order.cwd
        if order.snapshot:
            tree = self._folder.code
            self._pack = self._bring(order.sources)
            self._write(tree)
            if order.tree:
                base = str(tree)
        start = os.path.normpath(os.path.join(base, order.workdir)) if order.workdir else base  # noqa: PTH118
        if order.workdir and not os.path.isdir(start):  # noqa: PTH112 - it may be any text
            where = "in the code" if order.tree and not order.workdir.startswith("/") else "there"
            raise HostError(f"--workdir {order.workdir}: there is no such folder {where}")
        return CodeFetched(
            folder=start if order.workdir or order.tree else "",
            tree=base if order.tree else "",
            received=self._received,
            notes=self._notes,
        )

    def _bring(self, sources: Sequence[str]) -> Pack:
        """Have the snapshot here, from the first of the sources that gives it, and open it.

        Raises:
            HostError: no source has the snapshot.
        """
        store, order = self._store, self._order
        with store.arriving(order.snapshot):
            pack = store.found(order.snapshot)
            if pack is None:
                failed: List[str] = []
                for source in sources:
                    try:
                        self._received += transfer.fetch(store, order.snapshot, source, order.agent)
                        break
                    except TransferError as error:
                        failed.append(f"{source}: {error}")
                else:
                    raise _not_had(order, failed)
                self._notes += [f"the code could not be fetched from {why}" for why in failed]
                pack = store.open(order.snapshot)
            store.use(order.snapshot)
        if self._received:
            eviction.shrink(store, keep=order.snapshot)
        return pack

    def _write(self, tree: Path) -> None:
        """Write the tree, whole or not at all, in the place of an earlier attempt's; and put the config files where they are to be.

        Raises:
            HostError: contents are damaged here and where they were fetched again; or a path cannot be placed.
        """
        part = tree.with_name(".code.part")
        for old in (part, tree):
            if old.is_symlink() or old.exists():
                gone = old.with_name(f".code.{os.urandom(4).hex()}")
                old.rename(gone)
                shutil.rmtree(gone, ignore_errors=True)
        before = recycled_tree.take(self._store, part, self._pack)
        try:
            self._checked(lambda pack: check_out(pack, part, before))
            part.rename(tree)
        finally:  # a disk that is full is not kept so by half a tree
            shutil.rmtree(part, ignore_errors=True)
        recycled_tree.note(self._folder, self._order.snapshot)
        links: List[Tuple[str, Path]] = []
        self._checked(lambda pack: self._write_config(pack, links))
        if self._order.at:
            links.append((self._order.at, tree))
        try:
            PlacedLinks(self._folder).make(links)
        except LinkError as error:
            raise HostError(str(error), hint="choose another path with --config-file SRC:DST or --workdir") from None

    def _checked(self, act: Callable[[Pack], List[str]]) -> None:
        """Have a snapshot written; where contents are damaged, fetch it again from the head and write it once more.

        Raises:
            HostError: it is damaged, and no other could be fetched.
        """
        store, order = self._store, self._order
        damaged = act(self._pack)
        if not damaged:
            return
        store.drop(order.snapshot)
        if not order.sources:
            raise HostError(
                f"{_paths(damaged)}: the copy on this host was damaged and has been removed",
                hint="submit the job again: that copies it again",
            )
        head, bad = order.sources[-1], f"{_paths(damaged)}: the copy on this host"
        try:
            self._pack = self._bring([head])
        except HostError as error:
            raise HostError(f"{bad} is damaged, and a new copy could not be fetched: {error.message}") from None
        if act(self._pack):
            store.drop(order.snapshot)
            raise HostError(f"{bad} is damaged, and the copy that was fetched to replace it is damaged too")
        self._notes.append(f"{bad} was damaged, so a new copy was fetched from {head}")

    def _write_config(self, pack: Pack, links: List[Tuple[str, Path]]) -> List[str]:
        """Write the config files into the job's folder, and name the links to them; return the paths that are damaged."""
        config = self._folder.path / "config"
        shutil.rmtree(config, ignore_errors=True)
        files = pack.manifest.config
        if not files:
            return []
        make_private(config)
        entries = [file._replace(path=str(number), executable=False) for number, file in enumerate(files)]
        links[:] = [(file.path, config / entry.path) for file, entry in zip(files, entries)]
        return [files[int(number)].path for number in write_files(pack, entries, config)]


def _paths(paths: Sequence[str]) -> str:
    named = ", ".join(path if path.isprintable() else ascii(path) for path in paths[:_MOST_NAMED])
    return f"{named} and {len(paths) - _MOST_NAMED} more" if len(paths) > _MOST_NAMED else named


def _not_had(order: FetchCode, failed: Sequence[str]) -> HostError:
    if not order.sources:
        return HostError(
            "the job's code is no longer on this host", hint="submit the job again, which copies the code again"
        )
    return HostError(
        f"the job's code could not be fetched from {'; '.join(failed)}", "submit the job again: that copies it again"
    )
