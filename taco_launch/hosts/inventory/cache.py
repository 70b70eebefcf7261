"""Inventories and profiles that were found right, kept by a hash of their text: no YAML, no pydantic the next time.

Those two take longer to import than all else that `run` needs. Nothing depends on the cache: where it cannot be read or
written, the text is read anew.
"""

import contextlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from taco_launch.agent.store.folders import cache_folder, make_private, write_private
from taco_launch.agent.store.ownership import require_own, why_not_own
from taco_launch.core.digest import digest
from taco_launch.core.errors import UsageError
from taco_launch.core.model import codec
from taco_launch.core.model.codec import from_json, to_json

T = TypeVar("T")

_MOST_KEPT = 32


def through(kind: type[T], text: bytes, source: str, environ: Mapping[str, str], read: Callable[[bytes, str], T]) -> T:
    """Return what is kept for a text of `source`, else what `read(text, source)` gives, which is kept then."""
    file = _place(kind, text, source, environ)
    if file is None:
        return read(text, source)
    with contextlib.suppress(OSError, ValueError), file.open("rb") as opened:
        if not why_not_own(os.fstat(opened.fileno()), os.geteuid()):
            return from_json(kind, codec.load(opened.read()))
    value = read(text, source)
    _put(file, value)
    return value


def _place(kind: type[T], text: bytes, source: str, environ: Mapping[str, str]) -> Path | None:
    """Name the file for a text, as this version of the package reads it; None without a cache folder of the user's own."""
    try:
        root = cache_folder(environ, os.geteuid())
        require_own(root / "inventories", os.geteuid(), "the cache folder", "XDG_CACHE_HOME")
    except UsageError:
        return None
    if root == Path("/.cache/taco-launch"):
        return None
    package = Path(__file__).parents[2]
    files = [
        file for folder in ("hosts/inventory", "core/launch", "core/model") for file in (package / folder).rglob("*.py")
    ]
    code = [(str(file), file.stat().st_mtime_ns) for file in sorted(files)]
    key = digest(part.encode("utf-8", "surrogateescape") for part in (kind.__name__, str(code), source))
    return root / "inventories" / f"{digest((key.encode(), text))}.json"


def _put(file: Path, value: object) -> None:
    """Keep a value, and only the newest of the others."""
    part = file.with_suffix(f".{os.getpid()}")
    with contextlib.suppress(OSError):
        make_private(file.parent)
        write_private(part, json.dumps(to_json(value)))
        part.rename(file)
        newest = sorted(file.parent.iterdir(), key=lambda path: path.stat().st_mtime_ns, reverse=True)
        for old in newest[_MOST_KEPT:]:
            old.unlink()
