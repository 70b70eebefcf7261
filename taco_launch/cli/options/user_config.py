"""The user's configuration file: defaults of options that stand before every verb."""

import os
from pathlib import Path

from taco_launch.agent.store.folders import require_config
from taco_launch.agent.store.ownership import why_not_own
from taco_launch.cli.options.common import FORMATS
from taco_launch.core.errors import Fault, SpecError
from taco_launch.core.frozen import dataclass
from taco_launch.core.model.engines import CONTAINERS, SLURM_PREFIX
from taco_launch.hosts.inventory.load import read_file
from taco_launch.hosts.inventory.schema import document
from taco_launch.hosts.inventory.schema.faults import Faults
from taco_launch.hosts.inventory.schema.text import decode

_KEYS = ("inventory", "output", "slurm")


@dataclass(frozen=True)
class UserConfig:
    """What the file sets, and its path; None for what it does not set."""

    path: Path
    inventory: str | None = None
    output: str | None = None
    # What `slurm:` as the inventory has for containers: one of CONTAINERS, "" for nothing.
    containers: str = ""


def read(path: Path, uid: int) -> UserConfig:
    """Read the file; without one nothing is set.

    Raises:
        UsageError: another user can decide what is in its folder.
        SpecError: it cannot be read, others may write to it, or something in it is wrong: all faults.
    """
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return UserConfig(path)
    require_config(path.parent, uid)
    why = why_not_own(status, uid)
    if why:  # an inventory names programs that ssh starts (ProxyCommand)
        raise SpecError(str(path), (Fault("", "", f"it {why}"),), hint=f"chmod go-w {path}, or chown it to yourself")
    return _parsed(read_file(str(path), "the configuration file"), path)


def _parsed(data: bytes, path: Path) -> UserConfig:
    """Check the text of the file.

    Raises:
        SpecError: something in it is wrong: all faults.
    """
    faults = Faults(str(path), hint="taco-launch help environment", whole="configuration file")
    values = document.read(decode(data, faults), faults)
    if values is None:  # comments only
        values = {}
    if not isinstance(values, dict):
        faults.add((), f"must be a mapping with the keys {', '.join(_KEYS)}")
        raise faults.error()
    for key, value in values.items():
        if key not in _KEYS:
            faults.add_unknown((key,), str(key), _KEYS, "unknown key", lists="known keys")
        elif key == "slurm":
            if not (isinstance(value, dict) and [*value] == ["containers"] and value["containers"] in CONTAINERS):
                faults.add((key,), f"must be a mapping with the key containers, which is {' or '.join(CONTAINERS)}")
        elif not isinstance(value, str) or not value:
            faults.add((key,), "must be a string")
        elif key == "output" and value not in FORMATS:
            faults.add_unknown((key,), value, FORMATS, f"must be one of {', '.join(FORMATS)}")
        elif key == "inventory" and not _is_absolute(value):
            faults.add((key,), "must be lab, lab:NAME, slurm:, slurm:USER@LOGIN, or a path that starts with / or ~/")
    faults.raise_any()
    inventory = values.get("inventory")
    expanded = os.path.expanduser(inventory) if inventory else None  # noqa: PTH111 - lab:NAME is not a path
    return UserConfig(path, expanded, values.get("output"), values.get("slurm", {}).get("containers", ""))


def _is_absolute(inventory: str) -> bool:
    """Return whether an inventory's name means the same in every folder."""
    return inventory.startswith(("/", "~/", SLURM_PREFIX)) or inventory.partition(":")[0] == "lab"
