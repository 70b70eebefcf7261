"""doctor and version: what this machine has of what taco-launch needs; no host is contacted."""

import enum
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import taco_launch
from taco_launch.agent.store.folders import require_local_disk, state_folder
from taco_launch.core.command import shell
from taco_launch.core.errors import TacoLaunchError
from taco_launch.core.frozen import dataclass
from taco_launch.core.launch.masking import is_secret
from taco_launch.core.model.host.hosts import Inventory
from taco_launch.hosts.inventory.ranges import fold
from taco_launch.hosts.remote import agent_bundle

# How long a program may take to print its version.
_SECONDS = 10.0
_LIBRARIES = ("click", "fabric", "paramiko", "pydantic", "PyYAML", "rich", "torch", "horovod", "scipy")
_PYTHON = (3, 10)
# A command writes the agent into the state folder, and keeps its size free beside it.
_LEAST_BYTES = 6 << 20


class CheckState(enum.Enum):
    """How a check ended; a note is no problem unless you need what it names."""

    OK = "ok"
    NOTE = "note"
    ERROR = "error"


@dataclass(frozen=True)
class Check:
    """One checked part: what was found, and what to do where it is not ok."""

    name: str
    state: CheckState
    found: str
    todo: str = ""


@dataclass(frozen=True)
class Named:
    """An inventory by name, and where the name is from: an option, a variable or a file."""

    source: str
    origin: str


def checks(environ: Mapping[str, str], load: Callable[[], Inventory], named: Named | None) -> Iterator[Check]:
    """Yield the checks of this machine and of its inventory.

    Args:
        environ: The caller's environment.
        load: Reads the inventory.
        named: The inventory that is used, None for this machine.
    """
    yield _python()
    yield _program("ssh", ("ssh", "-V"), "needed to reach hosts", "apt-get install openssh-client")
    yield _program("mpirun", ("mpirun", "--version"), "needed for jobs on this machine", "scripts/quickstart")
    yield _docker()
    yield _horovod()
    yield _library("scipy", "needed for intervals and nightly runs", "pip install -e '.[bench]'")
    yield _state(environ)
    yield _inventory(load, named)


def versions() -> Mapping[str, str]:
    """Return the versions that a bug report needs, by name; a library that is not installed is left out."""
    found = {
        "taco-launch": taco_launch.__version__,
        "agent": agent_bundle.name(agent_bundle.sources()),
        "python": platform.python_version(),
        "system": f"{_system()}, Linux {platform.release()}, {platform.machine()}",
    }
    for library in _LIBRARIES:
        try:
            found[library.lower()] = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return "unknown system"


def _python() -> Check:
    found = f"{platform.python_version()} at {sys.executable}"
    if sys.version_info >= _PYTHON:
        return Check("python", CheckState.OK, found)
    return Check("python", CheckState.ERROR, found, f"install Python {'.'.join(map(str, _PYTHON))} or newer")


def _program(name: str, argv: tuple[str, ...], purpose: str, install: str) -> Check:
    path = shutil.which(name)
    if path is None:
        return Check(name, CheckState.NOTE, "not found on PATH", f"{purpose}: {install}")
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check(name, CheckState.ERROR, f"{path} does not run: {error}", f"{purpose}: {install}")
    # ssh -V writes its version to stderr. A program that fails gives its reason there, behind what it had already printed.
    streams = (done.stderr, done.stdout) if done.returncode else (done.stdout, done.stderr)
    line = next((text.strip() for each in streams for text in each[:1000].decode("utf-8", "replace").splitlines()), "")
    if done.returncode:
        return Check(name, CheckState.ERROR, f"{path}: exit code {done.returncode}: {line}", f"{purpose}: {install}")
    return Check(name, CheckState.OK, f"{line} at {path}")


def _docker() -> Check:
    answer = _program(
        "docker",
        ("docker", "version", "--format", "Docker Engine {{.Server.Version}}"),
        "needed for the lab and for images from this machine",
        "apt-get install docker.io",
    )
    if answer.state is CheckState.ERROR:
        todo = "for the lab: the engine does not answer (not running, or no permission); as root, `taco-launch lab up` starts one"
        return Check(answer.name, CheckState.NOTE, answer.found, todo)
    return answer


def _horovod() -> Check:
    """Return whether Horovod is here, with its extension for torch: pip builds it without, where it finds no torch or compiler."""
    installed = _library("horovod", "needed for Horovod jobs on this machine", "scripts/quickstart")
    spec = importlib.util.find_spec("horovod")
    if spec is None or spec.origin is None or any((Path(spec.origin).parent / "torch").glob("mpi_lib*.so")):
        return installed
    todo = "scripts/quickstart, or build it again: HOROVOD_WITH_PYTORCH=1 pip install --no-cache-dir --force-reinstall horovod"
    return Check("horovod", CheckState.NOTE, f"{installed.found}, built without PyTorch", todo)


def _library(name: str, purpose: str, install: str) -> Check:
    if importlib.util.find_spec(name) is None:
        return Check(name, CheckState.NOTE, "not installed", f"{purpose}: {install}")
    return Check(name, CheckState.OK, importlib.metadata.version(name))


def _state(environ: Mapping[str, str]) -> Check:
    todo = "name another folder: export TACO_LAUNCH_STATE=FOLDER"
    try:
        folder = state_folder(environ, os.getuid())
        there = next(path for path in (folder, *folder.parents) if path.exists())
        require_local_disk(there)
    except TacoLaunchError as error:
        return Check("state folder", CheckState.ERROR, error.message, error.hint or todo)
    except OSError as error:  # a folder above it that this user may not enter, a name that is too long
        return Check("state folder", CheckState.ERROR, f"{error.filename}: {error.strerror}", todo)
    if not there.is_dir():
        return Check("state folder", CheckState.ERROR, f"{there} is not a folder", todo)
    if not os.access(there, os.W_OK | os.X_OK):
        return Check("state folder", CheckState.ERROR, f"{there} is not writable", todo)
    free = shutil.disk_usage(there).free
    found = f"{folder}, {free / (1 << 30):.1f} GiB free"
    if free < _LEAST_BYTES:
        todo = f"free {_LEAST_BYTES >> 20} MiB there, which every command needs, or {todo}"
        return Check("state folder", CheckState.ERROR, f"{folder}, {free >> 20} MiB free", todo)
    if free < 1 << 30:
        return Check("state folder", CheckState.NOTE, found, "the logs of jobs need more free space there")
    return Check("state folder", CheckState.OK, found)


def _inventory(load: Callable[[], Inventory], named: Named | None) -> Check:
    try:
        inventory = load()
    except TacoLaunchError as error:
        return Check("inventory", CheckState.ERROR, error.message, error.hint or "taco-launch -i FILE inventory")
    slots = sum(host.slots or 0 for host in inventory.hosts)
    where = "this machine" if named is None else f"{named.source} (from {named.origin})"
    found = f"{where}: cluster {inventory.cluster}, hosts: {len(inventory.hosts)}"
    found += f", slots: {slots}" if slots else ""
    if named is None:
        return Check("inventory", CheckState.OK, found)
    if missing := missing_keys(inventory):
        what = "; ".join(f"identity_file of {hosts} not found: {key}" for key, hosts in missing)
        make = shell(("ssh-keygen", "-t", "ed25519", "-f", str(Path(missing[0][0]).expanduser())))
        return Check(
            "inventory", CheckState.ERROR, f"{found}; {what}", f"correct identity_file, or make the key: {make}"
        )
    asks = shell(("taco-launch", "-i", named.source, "setup", "--check"))
    return Check("inventory", CheckState.OK, f"{found}; no host was contacted; to check the hosts: {asks}")


def missing_keys(inventory: Inventory) -> list[tuple[str, str]]:
    """Return the private keys that an inventory names and this machine lacks: (path, its hosts)."""
    hosts: dict[str, list[str]] = {}
    for host in inventory.hosts:
        if host.identity_file:
            hosts.setdefault(host.identity_file, []).append(host.name)
    return [(key, fold(names)) for key, names in hosts.items() if not Path(key).expanduser().is_file()]


def shown_value(name: str, value: str) -> str:
    """Return a variable's value for people; that of a secret is not shown."""
    return "set" if is_secret(name) else value
