"""The image stage: the training image on every host, the same one everywhere, by a digest that is resolved once."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from taco_launch.command import shell, ssh_line
from taco_launch.model.facts import Docker, HostFacts, Image, System
from taco_launch.model.hosts import Container, Host, Inventory
from taco_launch.setup import paths, scripts
from taco_launch.setup.ops import Cluster, File, Op, Problem

# What a dry run takes for the id of an image that is not there yet.
PREDICTED = "sha256:" + "0" * 64
PASSWORD_FILE = f"{paths.RUN}/registry-password"
# The compressed layers lie beside what is unpacked of them, and are about half as large.
_SPACE = 1.5
_LEAST_SPACE = 2 << 30
_SECONDS = 1800
_HUB = "docker.io"
_HUB_PREFIX = re.compile(r"^(?:(?:index\.)?docker\.io/)?(?:library/)?")


@dataclass(frozen=True)
class Reference:
    """What an image is asked for by: `repository` as the engine lists it, and a tag, or a digest (`sha256:...`)."""

    repository: str
    tag: str | None
    digest: str | None

    @property
    def name(self) -> str:
        """What the engine knows it by, once it is there."""
        return self.at(self.digest) if self.digest else f"{self.repository}:{self.tag}"

    def at(self, digest: str) -> str:
        """Name the very image of a digest, whatever tag it has."""
        return f"{self.repository}@{digest}"

    @property
    def registry(self) -> str:
        """The registry to log in at, empty for docker's own."""
        first, slash, _rest = self.repository.partition("/")
        return first if slash and (first == "localhost" or "." in first or ":" in first) else ""


@dataclass(frozen=True)
class Held:
    """An image that a host has: its id, and its digests at the registry (none where it was loaded or built there)."""

    id: str
    digests: frozenset[str]

    def same(self, other: "Held") -> bool:
        """Say whether it is the same image: by id, or, as engines differ in what they call an id, by a digest."""
        return self.id == other.id or bool(self.digests & other.digests)


def parse_reference(text: str) -> Reference:
    """Read `[REGISTRY/]NAME[:TAG][@DIGEST]`; as the engine does, a digest makes the tag mean nothing."""
    named, _at, digest = text.partition("@")
    head, slash, last = named.rpartition("/")
    last, _colon, tag = last.partition(":")
    repository = _HUB_PREFIX.sub("", f"{head}{slash}{last}", count=1)
    return Reference(repository, None if digest else tag or "latest", digest or None)


def held(reference: Reference, docker: Docker) -> Held | None:
    """Give what the image's name stands for on a host, None where it has no such image."""
    if not isinstance(docker.images, tuple):
        return None
    found = [image for image in docker.images if _is(reference, image)]
    if not found:
        return None
    return Held(found[0].id, frozenset(image.digest for image in found if image.digest and image.id == found[0].id))


def resolve(inventory: Inventory, facts: Mapping[str, HostFacts]) -> str | None:
    """Give the digest that the image's tag stands for: on the head, else on the first host that has the image.

    None where no host has it, or where none knows its digest at the registry.
    """
    if inventory.container is None:
        return None
    standard = _standard(parse_reference(inventory.container.image), inventory, facts)
    return min(standard[1].digests, default=None) if standard else None


def plan(host: Host, facts: HostFacts, cluster: Cluster) -> Iterator[Op | Problem]:
    """Plan the image of one host."""
    container = cluster.inventory.container
    if container is None:
        return
    if not isinstance(facts.docker, Docker):
        yield Problem("image", f"docker cannot be asked for its images: {facts.docker.reason}")
        return
    if not isinstance(facts.docker.images, tuple):
        yield Problem("image", f"docker does not tell which images it has: {facts.docker.images.reason}")
        return
    reference = parse_reference(container.image)
    here = held(reference, facts.docker)
    standard = _standard(reference, cluster.inventory, cluster.facts)
    if reference.digest is not None:
        if here is None:
            yield from _pull(facts, cluster, container, reference.name, "it is not here", standard)
    elif standard is not None or cluster.digest is not None:
        name, wanted = standard or ("the head", Held("", frozenset((cluster.digest or "",))))
        if here is not None and here.same(wanted):
            return
        digest = cluster.digest or min(wanted.digests, default=None)
        if digest is None:
            yield _not_to_be_pulled(reference, here, host, name, wanted, cluster)
            return
        is_here = f"it is {_short(here.id)} here" if here else "it is not here"
        why = f"{is_here}, and on {name} it is {_short(digest)}"
        yield from _pull(facts, cluster, container, reference.at(digest), why, standard)
    elif here is None:
        yield from _pull(facts, cluster, container, reference.name, "it is not here", None)


def _is(reference: Reference, image: Image) -> bool:
    listed = parse_reference(image.reference)
    if reference.digest is None:
        return (listed.repository, listed.tag) == (reference.repository, reference.tag)
    return listed.repository == reference.repository and reference.digest in (image.digest, listed.digest)


def _standard(reference: Reference, inventory: Inventory, facts: Mapping[str, HostFacts]) -> tuple[str, Held] | None:
    """Give the first host that has the image, the head first, and its image with the digests that any host knows."""
    having: list[tuple[str, Held]] = []
    for host in sorted(inventory.hosts, key=lambda host: host.name != inventory.head):
        of = facts.get(host.name)
        found = held(reference, of.docker) if of is not None and isinstance(of.docker, Docker) else None
        if found is not None:
            having.append((host.name, found))
    if not having:
        return None
    name, first = having[0]
    for _name, other in having:
        if not first.digests and other.id == first.id:
            first = other
    return name, first


def _pull(
    facts: HostFacts, cluster: Cluster, container: Container, image: str, why: str, standard: tuple[str, Held] | None
) -> Iterator[Op | Problem]:
    reference = parse_reference(container.image)
    size = _size(reference, cluster) if standard else None
    need = max(_LEAST_SPACE, int(size * _SPACE)) if size else _LEAST_SPACE
    takes = f"takes about {_gib(need)}" if size else f"of unknown size: at least {_gib(need)} have to be free"
    short = _too_small(facts, need)
    if short:
        yield Problem("image", f"{container.image}: {short}; it {takes}", "free some space: docker system df")
        return
    user = container.registry.user if container.registry else ""
    if user and cluster.password is None:
        yield Problem(
            "image",
            f"{container.image}: there is no password for {user} at {reference.registry or _HUB}",
            "name a file in container.registry.password_file, or set TACO_LAUNCH_REGISTRY_PASSWORD",
        )
        return
    secret = (File(PASSWORD_FILE, (cluster.password or "").encode(), 0o600, secret=True),) if user else ()
    tag = "" if image == reference.name else reference.name
    yield Op(
        "image",
        f"pull {image}" + (f" as {tag}" if tag else ""),
        f"{why}; {takes}" + (f"; login as {user}" if user else ""),
        scripts.text("look.sh") + scripts.text("pull.sh"),
        (
            image,
            tag,
            str(need >> 10),
            cluster.inventory.mpirun,
            reference.registry,
            user,
            PASSWORD_FILE if user else "",
        ),
        secret,
        seconds=_SECONDS,
        expect=lambda facts: _with(facts, reference, image),
    )


def _with(facts: HostFacts, reference: Reference, pulled: str) -> HostFacts:
    """Give the facts of a host that has pulled the image."""
    if not isinstance(facts.docker, Docker) or not isinstance(facts.docker.images, tuple):
        return facts
    others = tuple(image for image in facts.docker.images if not _is(reference, image))
    image = Image(reference.name, PREDICTED, parse_reference(pulled).digest, None)
    return replace(facts, docker=replace(facts.docker, images=(*others, image)))


def _size(reference: Reference, cluster: Cluster) -> int | None:
    """Give the size of the image as the engine of any host tells it."""
    sizes = [
        image.size
        for facts in cluster.facts.values()
        if isinstance(facts.docker, Docker) and isinstance(facts.docker.images, tuple)
        for image in facts.docker.images
        if _is(reference, image) and image.size
    ]
    return max(sizes, default=None)


def _too_small(facts: HostFacts, need: int) -> str:
    """Say that the disk of the engine's data root lacks space; empty where it does not, or is not among the facts."""
    docker, system = facts.docker, facts.system
    if not isinstance(docker, Docker) or not isinstance(system, System) or not isinstance(system.disks, tuple):
        return ""
    for disk in system.disks:
        if disk.path == docker.root and disk.free < need:
            return f"{disk.path} has {_gib(disk.free)} free"
    return ""


def _not_to_be_pulled(
    reference: Reference, here: Held | None, host: Host, name: str, wanted: Held, cluster: Cluster
) -> Problem:
    is_here = f"is another image here ({_short(here.id)})" if here else "is not here"
    save = ssh_line(_login(cluster.host(name)), shell(("docker", "save", reference.name)))
    load = ssh_line(_login(host), shell(("docker", "load")))
    return Problem(
        "image",
        f"{reference.name} {is_here}, and on {name} it ({_short(wanted.id)}) was loaded or built: no registry has it",
        f"copy it: {save} | {load}",
    )


def _login(host: Host) -> tuple[str, ...]:
    if host.connection == "local":
        return ()
    port = ("-p", str(host.port)) if host.port != 22 else ()
    return (*port, f"{host.user}@{host.address}" if host.user else host.address)


def _short(identity: str) -> str:
    return identity[: len("sha256:") + 12]


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"
