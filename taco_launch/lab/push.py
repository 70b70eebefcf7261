"""lab push: puts an image of this machine's engine into a lab's registry."""

from collections.abc import Callable, Mapping

from taco_launch.lab import hosts, registry
from taco_launch.lab.labels import REGISTRY
from taco_launch.lab.status import one


def push(lab: str, image: str, environ: Mapping[str, str], show: Callable[[str], None]) -> str:
    """Put an image into the registry, and `show` how far that is; give the reference by which hosts of the lab pull it.

    Raises:
        UsageError: there is no such lab, its registry is off, or this is no name of an image.
        TacoLaunchError: the engine has no such image.
        HostError: the registry did not take it.
    """
    name = registry.name_of(image)
    tagged = image if image.endswith(f":{name.rpartition(':')[2]}") else f"{image}:latest"
    found = one(lab, REGISTRY, environ)
    hosts.require_on(found, "it takes no image")
    registry.push(found.host, found.container, tagged, name, show)
    return f"{registry.ADDRESS}/{name}"
