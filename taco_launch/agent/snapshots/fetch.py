"""`agent code FOLDER FD`: a child of a guard that has the job's code on its host, checked, and written into the job's folder.

It takes the order from a socket of the guard's, and answers on it; it ends when the guard does.
"""

import os
import shutil
import socket
import threading
import time
from pathlib import Path
from typing import List, Optional, Sequence, Tuple

from taco_launch.agent.snapshots import eviction, recycled_tree, transfer
from taco_launch.agent.snapshots.checkout import Damaged, check_out, of_chunks, write_files
from taco_launch.agent.snapshots.placed_links import LinkError, PlacedLinks
from taco_launch.agent.snapshots.store import DamagedError, SnapshotStore
from taco_launch.agent.snapshots.transfer import TransferError
from taco_launch.agent.store.folders import JobFolder, make_private
from taco_launch.core.errors import FAILED, OK, HostError, free_space
from taco_launch.core.manifest import Manifest
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
    try:
        answer = _Fetch(folder, order).run()
    except HostError as error:
        answer = CodeFetched(error=error.message, hint=error.hint or "")
    except OSError as error:
        answer = CodeFetched(
            error=f"{error.filename or folder.path}: {error.strerror or error}", hint=free_space(error)
        )
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
            found = self._bring()
            tree = self._write(found)
            self._place(found)
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

    def _bring(self) -> Manifest:
        """Have the snapshot here, from the first of the sources that gives it.

        Raises:
            HostError: no source has the snapshot.
        """
        store, order = self._store, self._order
        with store.arriving(order.snapshot):
            found = self._whole()
            failed: List[str] = []
            for source in order.sources if found is None else ():
                try:
                    self._received += transfer.fetch(store, order.snapshot, source, order.agent)
                except TransferError as error:
                    failed.append(f"{source}: {error}")
                    continue
                found = self._whole()
                if found is not None:
                    break
            if found is None:
                raise _not_had(order, failed)
            self._notes += [f"the code could not be fetched from {why}" for why in failed]
        if self._received:
            eviction.shrink(store, keep=order.snapshot)
        return found

    def _whole(self) -> Optional[Manifest]:
        """Return the snapshot's manifest where all chunks are here."""
        store, snapshot = self._store, self._order.snapshot
        try:
            found, _text = store.read(snapshot)
        except DamagedError:
            store.manifest(snapshot).unlink(missing_ok=True)
            return None
        if store.missing(found):
            return None
        store.finish(snapshot)
        store.use(snapshot)
        return found

    def _write(self, found: Manifest) -> Path:
        """Write the tree, whole or not at all, in the place of an earlier attempt's.

        Raises:
            HostError: chunks are damaged here and where they were fetched again.
        """
        tree = self._folder.code
        part = tree.with_name(".code.part")
        for old in (part, tree):
            if old.is_symlink() or old.exists():
                gone = old.with_name(f".code.{os.urandom(4).hex()}")
                old.rename(gone)
                shutil.rmtree(gone, ignore_errors=True)
        recycled_tree.take(self._store, part)
        try:
            damaged = check_out(self._store, found, part)
            if damaged:
                found = self._repair(found, damaged)
                damaged = write_files(self._store, of_chunks(found, {chunk for chunk, _path in damaged}), part)
            if damaged:
                raise HostError(
                    f"{_paths(damaged)}: the copy on this host is damaged, and the copy that was fetched to replace it is damaged too"
                )
            part.rename(tree)
        finally:  # a disk that is full is not kept so by half a tree
            shutil.rmtree(part, ignore_errors=True)
        recycled_tree.note(self._folder, self._order.snapshot)
        return tree

    def _repair(self, found: Manifest, damaged: Damaged) -> Manifest:
        """Fetch chunks again, from the head; files that have one of them are missing in the tree.

        Raises:
            HostError: the snapshot is damaged here, and the head did not give the chunks.
        """
        store, order = self._store, self._order
        store.drop(order.snapshot, [chunk for chunk, _path in damaged])
        if not order.sources:
            raise HostError(
                f"{_paths(damaged)}: the copy on this host was damaged and has been removed",
                hint="submit the job again: that copies it again",
            )
        head = order.sources[-1]
        with store.arriving(order.snapshot):
            try:
                self._received += transfer.fetch(store, order.snapshot, head, order.agent)
            except TransferError as error:
                raise HostError(
                    f"{_paths(damaged)}: the copy on this host is damaged, and a new copy could not be fetched from {head}: {error}"
                ) from None
        self._notes.append(
            f"{_paths(damaged)}: the copy on this host was damaged, so a new copy was fetched from {head}"
        )
        return found

    def _place(self, found: Manifest) -> None:
        """Put the config files where they are to be, and the code where its program looks for it.

        Raises:
            HostError: a config file is damaged, or a path cannot be placed.
        """
        links: List[Tuple[str, Path]] = []
        config = self._folder.path / "config"
        shutil.rmtree(config, ignore_errors=True)
        for number, file in enumerate(found.config):
            make_private(config)
            entry = file._replace(path=str(number), executable=False)
            damaged = write_files(self._store, [entry], config)
            if damaged:
                self._repair(found, [(damaged[0][0], file.path)])
                damaged = write_files(self._store, [entry], config)
            if damaged:
                raise HostError(f"{file.path}: the copy on this host is damaged")
            links.append((file.path, config / str(number)))
        if self._order.at:
            links.append((self._order.at, self._folder.code))
        try:
            PlacedLinks(self._folder).make(links)
        except LinkError as error:
            raise HostError(str(error), hint="choose another path with --config-file SRC:DST or --workdir") from None


def _paths(damaged: Sequence[Tuple[str, str]]) -> str:
    paths = list(dict.fromkeys(path for _chunk, path in damaged))
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
