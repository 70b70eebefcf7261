"""What a registry has under the image's tag now: for --pull, and to say that the tag moved since hosts pulled it."""

from collections.abc import Mapping, Sequence

from taco_launch.core.command import shell
from taco_launch.core.errors import UsageError
from taco_launch.core.model.host.facts import DockerFacts, HostFacts
from taco_launch.core.model.host.hosts import Host, Inventory
from taco_launch.core.model.host.image_reference import parse_reference
from taco_launch.hosts.fanout import Fanout
from taco_launch.setup.apply import sources
from taco_launch.setup.model.host_images import image_by_digest
from taco_launch.setup.model.ops import Stage


def may_pull(inventory: Inventory, chosen: Sequence[Host], left_out: Sequence[Stage]) -> None:
    """Refuse --pull where it means nothing, or would leave hosts with different images.

    `left_out` are the stages that it is for, and that do not run.

    Raises:
        UsageError: --pull cannot be used with these options.
    """
    container = inventory.container
    if container is None:
        return
    if container.source != "registry":
        raise UsageError(
            f"--pull: container.image in {inventory.source} comes from {container.source}, not from a registry",
            hint=f"without --pull, hosts get the image that {container.source} has now",
        )
    if parse_reference(container.image).digest is not None:
        raise UsageError(f"--pull: container.image in {inventory.source} names a digest, which never changes")
    if left_out:
        raise UsageError(f"--pull requires the stage {left_out[0]}, which --only leaves out")
    if len(chosen) < len(inventory.hosts):
        raise UsageError("--pull updates all hosts: omit -H")


def latest(
    inventory: Inventory, facts: Mapping[str, HostFacts], fanout: Fanout, password: str | None, seconds: int
) -> str | None:
    """Ask the registry by the first of these hosts with an engine, the head if it can: give the digest of the image.

    It has `seconds` to answer. None where no host has an engine, so that all is pulled anew, and where the inventory names
    a digest.

    Raises:
        HostError: it cannot be asked, or has no such image.
    """
    container = inventory.container
    names = sorted(facts, key=lambda name: name != inventory.head)
    engines = [
        name
        for name in names
        if isinstance(docker := facts[name].docker, DockerFacts) and isinstance(docker.version, str)
    ]
    if container is None or not engines or parse_reference(container.image).digest is not None:
        return None
    (host,) = fanout.only(engines[:1]).transports
    login = container.registry.user if container.registry else None
    return sources.latest(host, parse_reference(container.image), login, password, seconds)


def moved(inventory: Inventory, now: str | None, facts: Mapping[str, HostFacts]) -> str:
    """Return that the image's tag stands for another image by now, of the digest `now`; empty where it is not known to."""
    if inventory.container is None or now is None:
        return ""
    reference = parse_reference(inventory.container.image)
    if image_by_digest(reference, now, facts).id:
        return ""
    typed = shell(("taco-launch", "-i", inventory.source, "setup", "--pull"))
    return (
        f"the registry now has a different {reference.name}; the hosts keep their current one unless you run: {typed}"
    )
