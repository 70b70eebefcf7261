"""Find a named image among those that a host has."""

from collections.abc import Mapping

from taco_launch.core.frozen import dataclass
from taco_launch.core.model.host.fact_value import known_value
from taco_launch.core.model.host.facts import DockerFacts, HostFacts, Image
from taco_launch.core.model.host.image_reference import Reference, parse_reference


@dataclass(frozen=True)
class HostImage:
    """An image that a host has: its id, and its digests at the registry (none where it was loaded or built there)."""

    id: str
    digests: frozenset[str]

    def same(self, other: "HostImage") -> bool:
        """Return whether it is the same image: by id, or, as engines differ in what they call an id, by a digest."""
        return self.id == other.id or bool(self.digests & other.digests)


def image_on_host(reference: Reference, docker: DockerFacts) -> HostImage | None:
    """Return what the image's name stands for on a host, None where it has no such image."""
    found = [image for image in known_value(docker.images) or () if _is_named(reference, image)]
    if not found:
        return None
    return HostImage(
        found[0].id, frozenset(image.digest for image in found if image.digest and image.id == found[0].id)
    )


def image_by_digest(reference: Reference, digest: str, facts: Mapping[str, HostFacts]) -> HostImage:
    """Return the image of a digest, with its id where a host has it: one that has it by `docker load` knows no digest."""
    there = (image_on_host(reference, each.docker) for each in facts.values() if isinstance(each.docker, DockerFacts))
    return next((each for each in there if each and digest in each.digests), HostImage("", frozenset((digest,))))


def _is_named(reference: Reference, image: Image) -> bool:
    listed = parse_reference(image.reference)
    if reference.digest is None:
        return (listed.repository, listed.tag) == (reference.repository, reference.tag)
    return listed.repository == reference.repository and reference.digest in (image.digest, listed.digest)
