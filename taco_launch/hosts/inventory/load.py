"""An inventory in YAML, a hostfile, or the inventory that is shipped -> Inventory."""

import difflib
import errno
import importlib
import itertools
from collections.abc import Callable, Mapping
from pathlib import Path

from taco_launch.agent.store import untrusted
from taco_launch.core.command import BARE, shell
from taco_launch.core.errors import Fault, SpecError
from taco_launch.core.model.host.hosts import Inventory
from taco_launch.core.model.instances import is_name
from taco_launch.hosts.inventory import VARIABLE, cache
from taco_launch.hosts.inventory.schema import names
from taco_launch.hosts.inventory.schema.faults import Faults
from taco_launch.hosts.inventory.schema.text import begins_as_yaml, decode, has_yaml_name, is_hostfile

# Of a folder, how many files are looked at for one with a similar name.
_MOST_NEAR = 1000

MAX_BYTES = 1 << 20
# `Inventory.source` where nothing else was named.
SHIPPED = "the built-in inventory (this machine)"


def load(
    source: str | None, environ: Mapping[str, str], local_names: Callable[[], frozenset[str]] = frozenset
) -> Inventory:
    """Read the inventory at the path `source` (of `-i`), else at $TACO_LAUNCH_INVENTORY, else the one that is shipped.

    An empty variable counts as unset. `local_names` gives this machine's names; it is asked where a hostfile is read.

    Raises:
        SpecError: it cannot be read, or something in it is wrong: all faults.
    """
    if source is not None:
        data, name = _inventory_file(source, "-i"), source
    elif path := environ.get(VARIABLE):
        data, name = _inventory_file(path, VARIABLE), path
    else:
        data, name = (_shipped() / "local.yaml").read_bytes(), SHIPPED
    if is_hostfile(decode(data, Faults(name)), name):
        return parse(data, name, local_names)  # it depends on more than its text, and is read soon
    return cache.through(Inventory, data, name, environ, parse)


def parse(data: bytes, source: str, local_names: Callable[[], frozenset[str]] = frozenset) -> Inventory:
    """Return the inventory that the bytes of a file describe; `source` names it in messages and in the result.

    Raises:
        SpecError: something in it is wrong: all faults, each with its place and value.
    """
    check_size(data, source, "inventory")
    text = decode(data, Faults(source))
    # Needed only where the cache has nothing.
    from taco_launch.hosts.inventory import ansible, file_kinds, hostfile  # noqa: PLC0415

    is_ini = is_hostfile(text, source)
    if is_ini:
        file_kinds.refuse_text(text, source)
        if not ansible.is_ini(text):
            return hostfile.parse(text, source, local_names())
    from taco_launch.hosts.inventory import resolve  # noqa: PLC0415 - a hostfile needs neither YAML nor pydantic

    hint = (ansible.HINT,) if is_ini else _yaml_hint(text, source)
    return resolve.parse(text, Faults(source, *hint), is_ini=is_ini)


def read_file(path: str, option: str, missing: str = "") -> bytes:
    """Return the bytes of a regular file of at most MAX_BYTES; nothing else is opened, nothing is waited for.

    Raises:
        SpecError: it cannot be read; `option` is what named it, `missing` what to do where there is no such file.
    """
    try:
        return untrusted.read_named(Path(path), MAX_BYTES)
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise _unreadable(path, option, _too_large()) from None
        if error.errno == errno.ENOENT:
            raise _missing(path, option, missing) from None
        raise _unreadable(path, option, f"cannot be read: {error.strerror}") from None
    except ValueError:  # a NUL or half a character in the path
        raise _unreadable(path, option, "cannot be read: this is not a valid file name") from None


def _inventory_file(path: str, option: str) -> bytes:
    name = path.rpartition("/")[2].removesuffix(".yaml")
    shipped = next((file for file in _shipped().glob("*.yaml") if file.stem == name), None)
    hint = f"the file shipped with taco-launch is {shipped}" if shipped else _near(Path(path))
    if option == "-i" and is_name(path):  # Arena's -i
        hint = f"did you mean --instance {path}? -i names the inventory"
    return read_file(path, option, hint)


def _near(path: Path) -> str:
    """Return what to do about a path that does not exist: a file there with a similar name, else the folder that was searched."""
    try:
        files = (each.name for each in path.parent.iterdir() if each.suffix in (".yaml", ".yml", ".ini", ".txt"))
        there = list(itertools.islice(files, _MOST_NEAR))
    except OSError:
        there = []
    if close := difflib.get_close_matches(path.name, there, 1, 0.8):
        return f"did you mean {path.parent / close[0]}?"
    try:
        where = "" if path.is_absolute() else f": it is relative to {Path.cwd()}"
    except FileNotFoundError:  # that folder was removed
        where = ""
    return f"check the path{where}; to write an inventory: {shell(('taco-launch', 'init', 'HOST', '--to', str(path)))}"


def _yaml_hint(text: str, source: str) -> tuple[str, ...]:
    """Return the hint for whoever may have meant a hostfile; none where both name and text say YAML."""
    if not begins_as_yaml(text):
        return ("it was read as YAML because of its name; a hostfile needs another name, such as hosts.txt",)
    if has_yaml_name(source):
        return ()
    schema = "`taco-launch inventory --schema` describes every key"
    return (f"it was read as YAML because of how it starts: {schema}; a hostfile has lines such as gpu1 slots=8",)


def _shipped() -> Path:
    return Path(importlib.import_module("taco_launch.hosts.inventory.shipped").__path__[0])


def _unreadable(path: str, option: str, problem: str) -> SpecError:
    return SpecError(names.plain(path, names.PATH_MAX), (Fault(option, names.shown(path), problem),))


def _missing(path: str, option: str, hint: str) -> SpecError:
    source = names.plain(path, names.PATH_MAX)
    fault = Fault(option, names.shown(path), "file not found", hint)
    return SpecError(source, (fault,), hint or None, short=f"{option}: file not found: {source}")


def check_size(data: bytes, source: str, what: str) -> None:
    """Refuse what is too large to be read; `what` is what it is to be, `source` where it came from.

    Raises:
        SpecError: it has more than MAX_BYTES.
    """
    if len(data) > MAX_BYTES:
        raise SpecError(names.plain(source, names.PATH_MAX), (Fault(what, f"{len(data)} bytes", _too_large()),))


def _too_large() -> str:
    return f"is larger than {MAX_BYTES} bytes (1 MiB), which is the limit"


def typed_anywhere(inventory: Inventory, folder: str = "") -> str:
    """Return how taco-launch is called with this inventory from any folder of this machine, "" where none was named.

    `folder` is the one that a relative path starts from, by default that of this process, which may be gone if the path is absolute.
    """
    source = inventory.source
    if source == SHIPPED or not source:
        return ""
    file = Path(folder, source).absolute()
    return shell((BARE, "-i", str(file) if file.exists() else source))  # lab:NAME and slurm:LOGIN are no files
