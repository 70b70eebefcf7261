"""How the containers of a host get its GPUs: by CDI, by the runtime nvidia, or by the hook that the engine looks for.

CDI comes first: systemd then knows of the devices, and leaves them to the container whatever it does (scripts/reload.sh).
It came with Docker 25, and is on by itself from 28.2 on. Then the runtime, which an engine takes while it runs; for the
hook it has to be started anew, as it looks for that once.
"""

import re

from taco_launch.core.model.host.fact_value import known_value
from taco_launch.core.model.host.facts import DockerFacts, HostFacts
from taco_launch.core.model.host.hardware import Gpu
from taco_launch.core.model.host.hosts import Host, Toolkit

ALL = "nvidia.com/gpu=all"
# Where the toolkit's own service (from 1.18 on) describes the GPUs, too; memory, since it is of the driver that is loaded.
SPECIFICATION = "/var/run/cdi/nvidia.yaml"
RUNTIME = "nvidia"
BY_CDI = f"--device={ALL}"
BY_RUNTIME = f"--runtime={RUNTIME}"
BY_HOOK = "--gpus=all"
# An image may say otherwise, and mostly says the same.
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
_HOW = {BY_CDI: "by CDI", BY_RUNTIME: f"by the runtime {RUNTIME}", BY_HOOK: "by docker's hook"}
# The first toolkit with `nvidia-ctk cdi generate`.
_OLDEST = (1, 12)
# The first engine whose feature cdi is on where daemon.json says nothing of it (release notes of 28.2.0).
_CDI_UNASKED = (28, 2)


def gpus(host: Host, facts: HostFacts) -> tuple[Gpu, ...]:
    """Return the GPUs that are to be used on a host; none where they are not known."""
    return () if host.gpus == "none" else known_value(facts.gpus) or ()


def by_cdi(docker: DockerFacts, toolkit: Toolkit) -> bool:
    """Return whether containers get GPUs by CDI: the engine that runs takes it, the toolkit can, and it may be."""
    return isinstance(docker.cdi_folders, tuple) and docker.cdi_folders != () and _describes(docker, toolkit)


def by_cdi_if_on(docker: DockerFacts, toolkit: Toolkit) -> bool:
    """Return whether containers would get GPUs by CDI, were it not off in the engine that runs."""
    return docker.cdi_folders == () and _describes(docker, toolkit)


def undecided(docker: DockerFacts, toolkit: Toolkit) -> str:
    """Return what else than the runtime it may be, as long as no engine tells which it is; empty where that is known."""
    open_ = toolkit.cdi == "auto" and not isinstance(docker.version, str)
    return ", or by CDI if docker turns out to be version 25 or newer" if open_ else ""


def on_by_itself(docker: DockerFacts) -> bool:
    """Return whether an engine of this version has CDI without being told to."""
    return isinstance(docker.version, str) and version_numbers(docker.version) >= _CDI_UNASKED


def _describes(docker: DockerFacts, toolkit: Toolkit) -> bool:
    """Return whether the toolkit can describe GPUs for CDI, and may."""
    if toolkit.cdi == "off" or not isinstance(docker.toolkit, str):
        return False
    return "nvidia-ctk" in (known_value(docker.toolkit_programs) or ()) and version_numbers(docker.toolkit) >= _OLDEST


def version_numbers(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version."""
    return tuple(int(number) for number in re.findall("[0-9]+", version)[:2])


def option(docker: DockerFacts, toolkit: Toolkit) -> str:
    """Return the option of `docker create` that gives a container all GPUs; empty where the engine has none."""
    if by_cdi(docker, toolkit):
        return BY_CDI
    if isinstance(docker.runtimes, tuple) and RUNTIME in docker.runtimes:
        return BY_RUNTIME
    return BY_HOOK if isinstance(docker.toolkit, str) else ""


def gpu_method(options: tuple[str, ...]) -> str:
    """Return by what a container with these options gets GPUs; empty where it gets none."""
    return next((told for each, told in _HOW.items() if each in options), "")


def loses(options: tuple[str, ...], docker: DockerFacts) -> bool:
    """Return whether a running container with these options loses its GPUs when systemd reads its units again."""
    by_hook = BY_RUNTIME in options or BY_HOOK in options
    return by_hook and "--privileged" not in options and docker.cgroup_driver == "systemd"
