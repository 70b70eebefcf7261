"""Inventories that were found right, kept by a hash of their text: reading one again needs neither YAML nor pydantic.

Those two take longer to import than all else that `run` needs. Nothing depends on the cache: where it cannot be read or
written, the text is read anew.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from taco_launch.model.codec import from_json, to_json
from taco_launch.model.hosts import Inventory

_MOST_KEPT = 32


def place(text: bytes, source: str, environ: Mapping[str, str]) -> Path | None:
    """Name the file for an inventory, as this version of the package reads it; None where there is no cache folder."""
    root = Path(environ.get("XDG_CACHE_HOME") or environ.get("HOME", "") + "/.cache")
    if not root.is_absolute() or root == Path("/.cache"):
        return None
    here = Path(__file__).parent
    code = [(file.name, file.stat().st_mtime_ns) for file in sorted((*here.glob("*.py"), *here.glob("../model/*.py")))]
    digest = hashlib.sha256(f"{code}\0{source}\0".encode("utf-8", "surrogateescape") + text).hexdigest()
    return root / "taco-launch" / "inventories" / f"{digest[:32]}.json"


def get(file: Path) -> Inventory | None:
    """Give what is kept there, None where there is nothing."""
    try:
        return from_json(Inventory, json.loads(file.read_bytes()))
    except (OSError, ValueError):
        return None


def put(file: Path, inventory: Inventory) -> None:
    """Keep an inventory, and only the newest of the others."""
    part = file.with_suffix(f".{os.getpid()}")
    with contextlib.suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part.write_text(json.dumps(to_json(inventory)), encoding="ascii")
        part.rename(file)
        newest = sorted(file.parent.iterdir(), key=lambda path: path.stat().st_mtime_ns, reverse=True)
        for old in newest[_MOST_KEPT:]:
            old.unlink()
