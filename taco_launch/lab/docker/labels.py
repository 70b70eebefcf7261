"""What a container's labels say of the lab host it is: the lab has no other memory."""

import re
from collections.abc import Mapping

from taco_launch.core.errors import UsageError
from taco_launch.core.frozen import dataclass

KEY = "taco-launch.lab"  # its value is the lab's name: containers, networks and volumes of ours all carry it
IMAGE_KEY = "taco-launch.lab.image"  # containers inherit the labels of their image, so this is another key
REGISTRY = "registry"
NO_GPUS = "none"
DEFAULT_NAME = "lab"

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")
_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True)
class LabHost:
    """One host of a lab.

    `size` is how many hosts the lab has besides the registry; `slots` and `gpus` (a machine that is simulated, or
    `none`) are those of each of them, as are `release` (a code name of the distribution; empty: the machine's own) and
    `docker` (whether it was made with Docker Engine installed). The registry's labels say so too, but it takes no
    ranks, has no GPUs and no engine, and is of the machine's own release.
    """

    lab: str
    name: str
    address: str
    size: int
    slots: int
    gpus: str
    release: str = ""
    docker: bool = False

    @property
    def is_registry(self) -> bool:
        """Whether it keeps images, and takes no ranks."""
        return self.name == REGISTRY

    @property
    def container(self) -> str:
        """The name of its container."""
        return f"taco-lab-{self.lab}-{self.name}"


def option_of(lab: str) -> str:
    """Return what a command line needs to mean this lab, with a space before it: nothing for the default one."""
    return "" if lab == DEFAULT_NAME else f" --name {lab}"


def is_lab_name(text: str) -> bool:
    """Return whether a lab may have this name: it is part of names of containers, networks and host certificates."""
    return _NAME.fullmatch(text) is not None


def check_lab_name(text: str) -> None:
    """Refuse what no lab may be called: it would also be part of paths, which are removed with the lab.

    Raises:
        UsageError: it is such a name; what is allowed.
    """
    if not is_lab_name(text):
        raise UsageError(
            f"{text!r} is not a valid lab name: use at most 31 lower-case letters, digits and '-', with no '-' first"
        )


def to_labels(host: LabHost) -> tuple[tuple[str, str], ...]:
    """Return the labels of a host's container."""
    return (
        (KEY, host.lab),
        (f"{KEY}.host", host.name),
        (f"{KEY}.address", host.address),
        (f"{KEY}.size", str(host.size)),
        (f"{KEY}.slots", str(host.slots)),
        (f"{KEY}.gpus", host.gpus),
        (f"{KEY}.release", host.release),
        (f"{KEY}.docker", "installed" if host.docker else ""),
    )


def from_labels(labels: Mapping[str, str]) -> LabHost | None:
    """Read a host back from its container's labels; None where they are not those of a lab host."""
    try:
        host = LabHost(
            lab=labels[KEY],
            name=labels[f"{KEY}.host"],
            address=labels[f"{KEY}.address"],
            size=int(labels[f"{KEY}.size"]),
            slots=int(labels[f"{KEY}.slots"]),
            gpus=labels[f"{KEY}.gpus"],
            release=labels.get(f"{KEY}.release", ""),
            docker=labels.get(f"{KEY}.docker") == "installed",
        )
    except (KeyError, ValueError):
        return None
    return host if is_lab_name(host.lab) else None


def order(host: LabHost) -> tuple[str, bool, int]:
    """Return the key by which hosts are sorted: gpu2 before gpu10, the registry last."""
    number = _DIGITS.search(host.name)
    return host.lab, host.is_registry, int(number[0]) if number else 0
