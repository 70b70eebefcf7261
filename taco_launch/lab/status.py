"""lab status: what exists of the labs, host by host."""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from taco_launch.core.command import shell
from taco_launch.core.errors import UsageError
from taco_launch.core.frozen import dataclass
from taco_launch.lab import access, faults
from taco_launch.lab.access import LabFiles
from taco_launch.lab.docker import engine, hosts
from taco_launch.lab.docker.labels import LabHost, check_lab_name, option_of
from taco_launch.lab.registry import ADDRESS


@dataclass(frozen=True)
class LabHostStatus:
    """One host: `state` is on, off or paused, `faults` those in force, `ssh` what to type to enter it."""

    host: LabHost
    state: str
    faults: tuple[str, ...]
    ssh: str


@dataclass(frozen=True)
class Status:
    """One lab: its hosts; the registry as hosts of the lab call it, its user, and the file with the password.

    What is not in this user's state folder, as another made the lab, is "". `image` is the training image, "" as well where
    the registry has none.
    """

    lab: str
    hosts: tuple[LabHostStatus, ...]
    complete: bool
    registry: str
    user: str
    password_file: str
    authority_file: str
    image: str

    @property
    def option(self) -> str:
        """The option that names the lab where a command is typed, "" where none is needed."""
        return option_of(self.lab)


def status(lab: str | None, environ: Mapping[str, str]) -> tuple[Status, ...]:
    """Look at a lab, or at all of them.

    Raises:
        UnreachableError: no engine answers.
        UsageError: there is no lab of that name.
    """
    if lab is not None:
        check_lab_name(lab)
    engine.connect(environ)
    found = hosts.find(lab)
    if lab is not None and not found:
        raise hosts.no_lab(lab)
    with ThreadPoolExecutor(8) as pool:
        in_force = list(pool.map(faults.in_force, found))
    names = tuple(dict.fromkeys(each.host.lab for each in found))
    pairs = tuple(zip(found, in_force, strict=True))
    return tuple(
        _status(name, [pair for pair in pairs if pair[0].host.lab == name], access.access(environ, os.geteuid(), name))
        for name in names
    )


def _status(lab: str, pairs: Sequence[tuple[hosts.FoundHost, tuple[str, ...]]], files: LabFiles) -> Status:
    seen = tuple(
        LabHostStatus(
            each.host,
            hosts.state_word(each.state),
            words,
            shell(("ssh", "-F", str(files.ssh_config), each.host.name)) if files.ssh_config.is_file() else "",
        )
        for each, words in pairs
    )
    return Status(
        lab=lab,
        hosts=seen,
        complete=len(seen) == seen[0].host.size + 1,
        registry=ADDRESS,
        user=access.REGISTRY_USER,
        password_file=str(files.password) if files.password.is_file() else "",
        authority_file=str(files.authority) if files.authority.is_file() else "",
        image=files.image.read_text("utf-8").strip() if files.image.is_file() else "",
    )


def one(lab: str, name: str, environ: Mapping[str, str]) -> hosts.FoundHost:
    """Find one host of a lab.

    Raises:
        UsageError: there is no such lab or host.
    """
    check_lab_name(lab)
    engine.connect(environ)
    found = hosts.find(lab)
    for each in found:
        if each.host.name == name:
            return each
    if not found:
        raise hosts.no_lab(lab)
    names = ", ".join(each.host.name for each in found)
    raise UsageError(f"the lab {lab!r} has no host {name!r}: it has {names}")
