"""A lab as an inventory: `-i lab`, `-i lab:NAME`."""

import os
from collections.abc import Mapping

from taco_launch.core.errors import TacoLaunchError, UsageError
from taco_launch.core.model.host.hosts import Container, Host, Inventory, Network, Registry, Toolkit
from taco_launch.lab import access
from taco_launch.lab.docker import engine, hosts
from taco_launch.lab.docker.labels import DEFAULT_NAME, NO_GPUS, option_of
from taco_launch.lab.images import repository

_WORD = "lab"
_PORTS = (40000, 40999)
_SHM_BYTES = 1 << 30  # hosts are small
_DATA_ROOTS = (("/srv", "rw"),)


def words() -> tuple[str, ...]:
    """Return what `-i` takes besides files: `lab`, and `lab:NAME` for every other lab that is up."""
    try:
        names = sorted({each.host.lab for each in hosts.find()})
    except TacoLaunchError:
        names = []
    return (_WORD, *(f"{_WORD}:{name}" for name in names if name != DEFAULT_NAME))


def load(source: str, environ: Mapping[str, str]) -> Inventory:
    """Return the hosts of the lab that `source` names (`lab`, `lab:NAME`); those that are off are in it as well.

    Raises:
        UsageError: there is no such lab, or its keys are not here.
        TacoLaunchError: the engine does not answer.
    """
    lab = source.partition(":")[2] or DEFAULT_NAME
    option = option_of(lab)
    files = access.access(environ, os.geteuid(), lab)
    try:
        engine.connect(environ)
    except engine.UnreachableError as silent:  # whose hint names no lab
        hint = silent.hint and silent.hint.replace("lab up", f"lab up{option}")
        raise engine.UnreachableError(silent.message, hint, refused=silent.refused) from None
    found = [each.host for each in hosts.find(lab) if not each.host.is_registry]
    if not found:
        error = hosts.no_lab(lab)
        raise UsageError(error.message, hint=f"{error.hint} (for a file of that name, use -i ./{source})")
    if not (files.key.is_file() and files.known_hosts.is_file()):
        raise UsageError(
            f"the keys of the lab {lab!r} are not in {files.folder}",
            hint=f"taco-launch lab up{option} makes them again",
        )
    return Inventory(
        cluster=lab,
        head=found[0].name,
        hosts=tuple(
            Host(
                name=host.name,
                address=host.address,
                user=access.USER,
                identity_file=str(files.key),
                slots=host.slots,
                labels=(("lab", lab), ("gpus", NO_GPUS if host.gpus == NO_GPUS else f"simulated-{host.gpus}")),
            )
            for host in found
        ),
        container=_container(files),
        network=Network(port_range=_PORTS),
        data_roots=_DATA_ROOTS,
        toolkit=Toolkit() if found[0].gpus == NO_GPUS else _toolkit(files),
        source=f"{_WORD}:{lab}",
        known_hosts=str(files.known_hosts),
    )


def _toolkit(files: access.LabFiles) -> Toolkit:
    key = str(files.packages_key) if files.packages_key.is_file() else None
    return Toolkit(url=repository.TOOLKIT_URL, key=key)


def _container(files: access.LabFiles) -> Container | None:
    """Return the training container; None for a lab whose registry has no training image."""
    if not files.image.is_file():
        return None
    return Container(
        image=files.image.read_text("utf-8").strip(),
        shm_size=_SHM_BYTES,
        registry=Registry(access.REGISTRY_USER, str(files.password)),
    )
