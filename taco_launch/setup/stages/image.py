"""The image stage: the training image on every host, the same one everywhere, by a digest that is resolved once."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

from taco_launch.core.command import shell, ssh_line
from taco_launch.core.errors import HostError, TacoLaunchError
from taco_launch.core.facts import MADE
from taco_launch.core.model.host import paths
from taco_launch.core.model.host.facts import DockerFacts, HostFacts, Image
from taco_launch.core.model.host.hosts import Container, Host, Inventory
from taco_launch.core.model.host.image_reference import Reference, parse_reference
from taco_launch.setup import scripts
from taco_launch.setup.model.host_images import HostImage, _is_named, image_by_digest, image_on_host
from taco_launch.setup.model.ops import (
    FileTarget,
    Op,
    PlanContext,
    Problem,
    Removal,
    SourceImage,
    StageRules,
    StageRun,
)
from taco_launch.setup.stage_parts import space

# What a dry run takes for the id of an image that does not exist yet.
PREDICTED = "sha256:" + "0" * 64
PASSWORD_FILE = f"{paths.RUN}/registry-password"
# The compressed layers lie beside what is unpacked of them, and are about half as large.
_SPACE = 1.5
_LEAST_SPACE = 2 << 30
_SECONDS = 1800
_LOAD_SECONDS = 3600
_HUB = "docker.io"
# How long a registry has to answer; an ordinary call spends less to learn of an image that was pushed.
REGISTRY_SECONDS, _GLANCE_SECONDS = 60, 1


def resolve(inventory: Inventory, facts: Mapping[str, HostFacts]) -> str | None:
    """Return the digest that the image's tag stands for: on the head, else on the first host that has the image.

    None where no host has it, or where none knows its digest at the registry.
    """
    if inventory.container is None:
        return None
    standard = _standard(parse_reference(inventory.container.image), inventory, facts)
    return min(standard[1].digests, default=None) if standard else None


def plan(host: Host, facts: HostFacts, cluster: PlanContext) -> Iterator[Op | Problem]:
    """Plan the image of one host."""
    container = cluster.inventory.container
    if container is None:
        return
    if not isinstance(facts.docker, DockerFacts):
        yield Problem("image", f"docker cannot list its images: {facts.docker.reason}")
        return
    if not isinstance(facts.docker.images, tuple):
        yield Problem("image", f"docker does not report which images it has: {facts.docker.images.reason}")
        return
    reference = parse_reference(container.image)
    here = image_on_host(reference, facts.docker)
    standard = cluster.once("image", lambda: _standard(reference, cluster.inventory, cluster.facts))
    if container.source != "registry":
        yield from _copy(facts, cluster, container, here, standard)
    else:
        yield from _from_registry(host, facts, cluster, here, standard)


def _from_registry(
    host: Host, facts: HostFacts, cluster: PlanContext, here: HostImage | None, standard: tuple[str, HostImage] | None
) -> Iterator[Op | Problem]:
    """Plan an image that a registry gives."""
    container = cluster.inventory.container
    if container is None:
        return
    reference = parse_reference(container.image)
    if reference.digest is not None:
        if here is None:
            yield from _pull(facts, cluster, container, reference.name, "it is not here", standard)
    elif cluster.latest is not None:
        if here is not None and here.same(image_by_digest(reference, cluster.latest, cluster.facts)):
            return
        why = f"{_is_here(here)}, and the registry has {_short(cluster.latest)} now"
        yield from _pull(facts, cluster, container, reference.at(cluster.latest), why, standard)
    elif standard is not None or cluster.digest is not None:
        name, wanted = standard or ("the head", HostImage("", frozenset((cluster.digest or "",))))
        if here is not None and here.same(wanted):
            return
        digest = cluster.digest or min(wanted.digests, default=None)
        if digest is None:
            yield _not_to_be_pulled(reference, here, host, name, wanted, cluster)
            return
        why = f"{_is_here(here)}, and on {name} it is {_short(digest)}"
        yield from _pull(facts, cluster, container, reference.at(digest), why, standard)
    elif here is None:
        yield from _pull(facts, cluster, container, reference.name, "it is not here", None)


def _standard(
    reference: Reference, inventory: Inventory, facts: Mapping[str, HostFacts]
) -> tuple[str, HostImage] | None:
    """Return the first host that has the image, the head first, and its image with the digests that any host knows."""
    having: list[tuple[str, HostImage]] = []
    for host in sorted(inventory.hosts, key=lambda host: host.name != inventory.head):
        of = facts.get(host.name)
        found = image_on_host(reference, of.docker) if of is not None and isinstance(of.docker, DockerFacts) else None
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
    facts: HostFacts,
    cluster: PlanContext,
    container: Container,
    image: str,
    why: str,
    standard: tuple[str, HostImage] | None,
) -> Iterator[Op | Problem]:
    reference = parse_reference(container.image)
    size = _size(reference, cluster) if standard else None
    need = max(_LEAST_SPACE, int(size * _SPACE)) if size else _LEAST_SPACE
    takes = (
        f"requires about {space.gib(need)}" if size else f"of unknown size, so at least {space.gib(need)} must be free"
    )
    root = space.data_root(facts, cluster.inventory.docker)
    short = space.too_small(facts, root, need)
    if short:
        yield Problem(
            "image",
            f"{container.image}: {short}; it {'' if size else 'is '}{takes}",
            "free some space: docker system df",
            stops="host",
        )
        return
    user = container.registry.user if container.registry else ""
    if user and cluster.password is None:
        yield Problem(
            "image",
            f"{container.image}: there is no password for {user} at {reference.registry or _HUB}",
            "name a file in container.registry.password_file, or set TACO_LAUNCH_REGISTRY_PASSWORD",
        )
        return
    digest = parse_reference(image).digest
    there = (image_by_digest(reference, digest, cluster.facts).id if digest else "") or PREDICTED
    secret = (FileTarget(PASSWORD_FILE, (cluster.password or "").encode(), 0o600, secret=True),) if user else ()
    tag = "" if image == reference.name else reference.name
    yield Op(
        "image",
        f"pull {image}" + (f" as {tag}" if tag else ""),
        f"{why}; {takes}" + ("" if root else ", which is checked on the host") + (f"; login as {user}" if user else ""),
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
        expect=lambda facts: _with(facts, reference, image, there),
    )


def _copy(
    facts: HostFacts,
    cluster: PlanContext,
    container: Container,
    here: HostImage | None,
    standard: tuple[str, HostImage] | None,
) -> Iterator[Op | Problem]:
    """Plan an image that the controller has: its stream is there before the operation starts (flows/image_copy)."""
    name = parse_reference(container.image).name
    given = cluster.given
    if not isinstance(given, SourceImage):
        if here is None or (standard is not None and not here.same(standard[1])):
            on = f", and on {standard[0]} it is {_short(standard[1].id)}" if here and standard else ""
            yield Problem(
                "image",
                f"{name}: {_is_here(here)}{on}; it cannot be copied: {given or 'no source was checked'}",
                f"see container.image in {cluster.inventory.source}: {{name: {name}, from: {container.source}}}",
            )
        return
    if here is not None and here.id in given.ids:
        return
    why = f"{_is_here(here)}" + (f", and it is {_short(min(given.ids))} there" if here else "")
    takes = f"requires about {space.gib(given.space)} during the copy, a third of that afterwards"
    root = space.data_root(facts, cluster.inventory.docker)
    short = space.too_small(facts, root, given.space)
    if short:
        yield Problem("image", f"{name}: {short}; it {takes}", "free some space: docker system df", stops="host")
        return
    yield Op(
        "image",
        f"copy {name} from {given.where}",
        f"{why}; {takes}"
        + ("" if root else ", which is checked on the host")
        + "; hosts that have the image pass it on to other hosts",
        scripts.text("look.sh") + scripts.text("load.sh"),
        (name, cluster.inventory.mpirun, *sorted(given.ids)),
        seconds=_LOAD_SECONDS,
        expect=lambda facts: _with(facts, parse_reference(name), name, min(given.ids)),
    )


def _with(facts: HostFacts, reference: Reference, pulled: str, identity: str = PREDICTED) -> HostFacts:
    """Return the facts of a host that has got the image."""
    if not isinstance(facts.docker, DockerFacts) or not isinstance(facts.docker.images, tuple):
        return facts
    others = tuple(image for image in facts.docker.images if not _is_named(reference, image))
    image = Image(reference.name, identity, parse_reference(pulled).digest, None)
    return replace(facts, docker=replace(facts.docker, images=(*others, image)))


def _size(reference: Reference, cluster: PlanContext) -> int | None:
    """Return the size of the image as the engine of any host tells it."""
    sizes = [
        image.size
        for facts in cluster.facts.values()
        if isinstance(facts.docker, DockerFacts) and isinstance(facts.docker.images, tuple)
        for image in facts.docker.images
        if _is_named(reference, image) and image.size
    ]
    return max(sizes, default=None)


def _not_to_be_pulled(
    reference: Reference, here: HostImage | None, host: Host, name: str, wanted: HostImage, cluster: PlanContext
) -> Problem:
    is_here = f"is another image here ({_short(here.id)})" if here else "is not here"
    save = ssh_line(_login(cluster.host(name)), shell(("docker", "save", reference.name)))
    load = ssh_line(_login(host), shell(("docker", "load")))
    return Problem(
        "image",
        f"{reference.name} {is_here}, and the image on {name} ({_short(wanted.id)}) was loaded or built there, not pulled from a registry",
        f"copy it: {save} | {load}; or, if this machine has it, let set-up copy it from here: container.image: "
        f"{{name: {reference.name}, from: controller}} in {cluster.inventory.source}",
    )


def _login(host: Host) -> tuple[str, ...]:
    if host.connection == "local":
        return ()
    port = ("-p", str(host.port)) if host.port != 22 else ()
    return (*port, f"{host.user}@{host.address}" if host.user else host.address)


def _is_here(here: HostImage | None) -> str:
    return f"it is {_short(here.id)} here" if here else "it is not here"


def _short(identity: str) -> str:
    return identity[: len("sha256:") + 12]


def take_back(removal: Removal) -> Iterator[Op]:
    """Plan to remove the image where that is requested."""
    docker = removal.facts.docker
    if removal.image is None or not isinstance(docker, DockerFacts):
        return
    reference = parse_reference(removal.image)
    if image_on_host(reference, docker) is not None:
        yield Op("image", f"remove {removal.image}", "--images", 'docker rmi "$1" >/dev/null', (reference.name,))


def learn(run: StageRun) -> PlanContext:
    """Look what the controller has of the image, or what the registry has under its tag now.

    Raises:
        HostError: with `--pull`, the registry cannot be asked.
    """
    cluster, container = run.cluster, run.cluster.inventory.container
    if container is not None and container.source != "registry":
        return replace(cluster, given=run.read_image(container))
    if run.pull:
        return replace(cluster, latest=run.ask_registry(REGISTRY_SECONDS))
    with suppress(HostError):
        return replace(cluster, now=run.ask_registry(_GLANCE_SECONDS) if cluster.digest is not None else None)
    return cluster


def _send(run: StageRun) -> Mapping[str, TacoLaunchError]:
    given = run.cluster.given
    return run.send_image(given) if isinstance(given, SourceImage) else {}


STAGE = StageRules(
    ("system", "docker", MADE),
    plan,
    after=("peermem",),
    learn=learn,
    before_apply=_send,
    changes=("system", "docker", MADE),
    take_back=take_back,
    of_container=True,
    pulls=True,
)
