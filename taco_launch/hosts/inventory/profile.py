"""A profile, one that is shipped or the user's own file -> Profile: what its options say is checked when it is read."""

import os
from collections.abc import Mapping
from pathlib import Path

from taco_launch.agent.store.folders import config_folder, require_config
from taco_launch.core.errors import Fault, SpecError
from taco_launch.core.model.jobs import Profile
from taco_launch.hosts.inventory import cache
from taco_launch.hosts.inventory.load import read_file
from taco_launch.hosts.inventory.schema import names
from taco_launch.hosts.inventory.schema.faults import Faults
from taco_launch.hosts.inventory.schema.text import decode

OPTION = "--profile"
_SHIPPED = Path(__file__).parent / "profiles"
_SUFFIX = ".yaml"
_HINT = f"the shipped profiles are examples: {_SHIPPED}"


def load(name: str, beside: str, environ: Mapping[str, str]) -> Profile:
    """Read the profile `name`: a file where it holds a `/` or ends with .yaml, else one of those that are known by name.

    Names are looked for in the folder `profiles` beside the inventory file `beside`, in `taco-launch/profiles` of the
    user's configuration ($XDG_CONFIG_HOME, else ~/.config), and among those that are shipped.

    Raises:
        UsageError: another user can decide what is in the user's configuration.
        SpecError: there is none, it cannot be read, or something in it is wrong: all faults.
    """
    if names.is_profile_path(name):
        file = Path(name).expanduser()
        return cache.through(Profile, read_file(str(file), OPTION), str(file), environ, parse)
    folders = _folders(beside, environ)
    for folder in folders:
        file = folder / f"{name}{_SUFFIX}"
        if file.is_file():
            if folder.parent == config_folder(environ):
                require_config(folder.parent, os.geteuid())
            source = "shipped" if folder == _SHIPPED else str(file)
            return cache.through(Profile, read_file(str(file), OPTION), source, environ, parse)
    known = known_names(beside, environ)
    problem = f"no such profile; the known profiles are {', '.join(known)}"
    hint = names.did_you_mean(name, known) or "to use your own file: --profile ./NAME.yaml"
    raise SpecError(OPTION, (Fault("profile", names.shown(name), problem, hint),))


def known_names(beside: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of all profiles that `load` finds by name, sorted."""
    return tuple(sorted({file.stem for folder in _folders(beside, environ) for file in folder.glob(f"*{_SUFFIX}")}))


def parse(text: bytes, source: str) -> Profile:
    """Return the profile that the bytes of a file describe; `source` names it in messages and in the result.

    Raises:
        SpecError: something in it is wrong: all faults, each with its path, line and value.
    """
    from taco_launch.hosts.inventory.profile_check import ProfileCheck  # noqa: PLC0415 - only where the cache has nothing

    faults = Faults(source, _HINT)
    profile = ProfileCheck(faults).profile(decode(text, faults), source)
    faults.raise_any()
    return profile


def _folders(beside: str, environ: Mapping[str, str]) -> tuple[Path, ...]:
    near = (Path(beside).parent / "profiles",) if os.path.isfile(beside) else ()  # noqa: PTH113 - may be no path at all
    return (*near, config_folder(environ) / "profiles", _SHIPPED)
