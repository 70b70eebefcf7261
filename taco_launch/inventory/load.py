"""An inventory file, or the one that is shipped -> Inventory."""

import errno
import importlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from taco_launch.errors import Fault, SpecError
from taco_launch.inventory import cache, names
from taco_launch.model.hosts import Inventory

VARIABLE = "TACO_LAUNCH_INVENTORY"
MAX_BYTES = 1 << 20
# `Inventory.source` where nothing else was named.
SHIPPED = "the built-in inventory (this machine)"


def load(source: str | None, environ: Mapping[str, str]) -> Inventory:
    """Read the inventory at the path `source` (of `-i`), else at $TACO_LAUNCH_INVENTORY, else the one that is shipped.

    An empty variable counts as unset.

    Raises:
        SpecError: it cannot be read, or something in it is wrong: all faults.
    """
    if source is not None:
        text, name = _read(source, "-i"), source
    elif path := environ.get(VARIABLE):
        text, name = _read(path, VARIABLE), path
    else:
        shipped = importlib.import_module("taco_launch.inventory.shipped").__path__[0]
        text, name = Path(shipped, "local.yaml").read_bytes(), SHIPPED
    kept = cache.place(text, name, environ)
    inventory = cache.get(kept) if kept else None
    if inventory is None:
        inventory = parse(text, name)
        if kept:
            cache.put(kept, inventory)
    return inventory


def parse(text: bytes, source: str) -> Inventory:
    """Give the inventory that the bytes of a file describe; `source` names it in messages and in the result.

    Raises:
        SpecError: something in it is wrong: all faults, each with its path, line and value.
    """
    if len(text) > MAX_BYTES:
        raise SpecError(names.plain(source, names.PATH_MAX), (Fault("inventory", f"{len(text)} bytes", _too_large()),))
    # Needed only where the cache has nothing.
    from taco_launch.inventory import check, document, resolve  # noqa: PLC0415
    from taco_launch.inventory.faults import Faults  # noqa: PLC0415

    faults = Faults(source)
    value = document.read(document.decode(text, faults), faults)
    return resolve.resolve(check.check(value, faults), faults)


def _read(path: str, option: str) -> bytes:
    """Give the bytes of a regular file of at most MAX_BYTES; nothing else is opened, nothing is waited for."""
    try:
        mode = Path(path).stat().st_mode
        if not stat.S_ISREG(mode):
            raise _unreadable(path, option, f"is {_kind(mode)}; an inventory is a YAML file")
        # a FIFO that took the file's place since then must not hold us up
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            data = b""
            while piece := os.read(handle, MAX_BYTES + 1 - len(data)):
                data += piece
        finally:
            os.close(handle)
    except (OSError, ValueError) as error:  # ValueError: a NUL or half a character in the path
        problem = (
            os.strerror(error.errno) if isinstance(error, OSError) and error.errno else "no file can have this name"
        )
        hint = f"without {option} the built-in inventory is used" if getattr(error, "errno", 0) == errno.ENOENT else ""
        raise _unreadable(path, option, f"cannot be read: {problem}", hint) from None
    if len(data) > MAX_BYTES:
        raise _unreadable(path, option, _too_large())
    return data


def _unreadable(path: str, option: str, problem: str, hint: str = "") -> SpecError:
    return SpecError(names.plain(path, names.PATH_MAX), (Fault(option, names.shown(path), problem, hint),))


def _too_large() -> str:
    return f"is larger than {MAX_BYTES} bytes (1 MiB), which is the most for an inventory"


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a pipe (FIFO)",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return kinds.get(stat.S_IFMT(mode), "no file")
