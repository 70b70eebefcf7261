"""Snapshots written straight into a store, and damaged there."""

import hashlib
import os
from collections.abc import Mapping

from taco_launch.agent.snapshots.store import Pack, SnapshotStore, write
from taco_launch.core import manifest
from taco_launch.core.manifest import Manifest
from taco_launch.jobs.code.snapshot import Snapshot


def keep(store: SnapshotStore, tree: Manifest, *contents: bytes, base: str = "") -> str:
    """Keep a tree of these contents; return its ID."""
    found = {hashlib.sha256(data).hexdigest(): data for data in contents}
    return keep_text(store, manifest.written(tree), found, base)


def keep_taken(store: SnapshotStore, taken: Snapshot, base: "str | None" = None) -> str:
    """Keep a snapshot as a head does; return its ID."""
    if not store.use(taken.id):
        found = {content: b"".join(taken.read(content)) for content in taken.places}
        keep_text(store, taken.text, found, store.base_for(taken.manifest) if base is None else base)
    return taken.id


def keep_text(store: SnapshotStore, text: bytes, contents: Mapping[str, bytes], base: str = "") -> str:
    """Keep a manifest with contents, by their hashes; return its ID."""
    name = hashlib.sha256(text).hexdigest()
    pack, part, wanted = store.begin(name, base, text)
    with pack:
        for content in wanted:
            write(pack.file, contents[content])
        store.finish(name, pack, part)
    return name


def damage(pack: Pack, *contents: str) -> None:
    """Change a byte of each of some contents, by default of all."""
    places = pack.places()
    for content in contents or places:
        place = places[content]
        with open(f"/proc/self/fd/{place.file}", "r+b") as file:
            old = os.pread(place.file, 1, place.offset)
            file.seek(place.offset)
            file.write(bytes([old[0] ^ 1]))
