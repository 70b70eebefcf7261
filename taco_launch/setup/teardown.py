"""Taking back what set-up made on a host, and only that: docker, images unless asked for, and foreign things stay."""

from collections.abc import Iterator

from taco_launch.model.facts import Docker, HostFacts, Made, MadeFile
from taco_launch.setup import daemon_json, paths, scripts
from taco_launch.setup.docker_settings import MARKS
from taco_launch.setup.ops import File, Op, Problem

# What set-up put into daemon.json, as docker_settings keeps it.
ADDED = f"{MARKS}/added"
_STOP_SECONDS = 180


def plan(facts: HostFacts, cluster: str, image: str | None, added: str) -> Iterator[Op | Problem]:
    """Plan to take back a cluster, and with the last one of a host what all share.

    `image` is a reference to be removed too; `added` is the text of ADDED on the host.
    """
    if not isinstance(facts.made, Made) or not isinstance(facts.made.files, tuple):
        why = facts.made.files if isinstance(facts.made, Made) else facts.made
        yield Problem("container", f"what set-up made there cannot be told: {getattr(why, 'reason', '')}")
        return
    files = {file.path: file for file in facts.made.files}
    if _has_cluster(facts, files, cluster):
        name = paths.container(cluster)
        yield Op(
            "container",
            f"remove {name}, its unit and {paths.folder(cluster)}",
            "",
            scripts.text("idle.sh") + scripts.text("teardown.sh"),
            (cluster, name, paths.unit(cluster), paths.unit_file(cluster), paths.folder(cluster)),
            disrupts="container",
            seconds=_STOP_SECONDS,
        )
    if image is not None and _has_image(facts, image):
        yield Op("image", f"remove {image}", "--images", 'docker rmi "$1" >/dev/null', (image,))
    others = [path for path in files if _is_cluster(path) and path != paths.folder(cluster)]
    if not others:
        yield from _shared(facts.made, files, added)


def _shared(made: Made, files: dict[str, MadeFile], added: str) -> Iterator[Op | Problem]:
    """Plan to take back what all clusters of a host share."""
    ours = [path for path in (paths.AGENT, MARKS, paths.ENGINE_PROXY) if path in files]
    if not ours:
        return
    config = made.daemon_json if isinstance(made.daemon_json, str) else None
    put: tuple[File, ...] = ()
    if config is not None and added:
        try:
            text = daemon_json.taken_back(config, added)
        except daemon_json.NotOursError as error:
            yield Problem(
                "docker",
                f"{paths.ENGINE_CONFIG}: {error}",
                "it stays as it is: correct it on the host, then run this again",
            )
            return
        if text != config:
            put = (File(f"{MARKS}/daemon.json", text.encode(), 0o600, shown=paths.ENGINE_CONFIG),)
    parts = ["the agent and the leases", *(["what set-up put into daemon.json"] if put else [])]
    proxy = paths.ENGINE_PROXY in files
    yield Op(
        "docker",
        f"remove {', '.join([*parts, *(['the proxy of docker.service'] if proxy else [])])}",
        "no other cluster uses them" + ("; docker goes on as it is until it starts anew" if put or proxy else ""),
        scripts.text("teardown_host.sh"),
        (paths.STATE, paths.LEASES, paths.ENGINE_PROXY, paths.ENGINE_CONFIG),
        put,
        old=((paths.ENGINE_CONFIG, config),) if put and config is not None else (),
    )


def _has_cluster(facts: HostFacts, files: dict[str, MadeFile], cluster: str) -> bool:
    docker = facts.docker
    containers = docker.containers if isinstance(docker, Docker) and isinstance(docker.containers, tuple) else ()
    ours = (one for one in containers if dict(one.labels).get(paths.CLUSTER_LABEL) == cluster)
    made = (paths.unit_file(cluster), paths.folder(cluster))
    return any(path in files for path in made) or any(one.name == paths.container(cluster) for one in ours)


def _has_image(facts: HostFacts, image: str) -> bool:
    docker = facts.docker
    images = docker.images if isinstance(docker, Docker) and isinstance(docker.images, tuple) else ()
    return any(one.reference == image for one in images)


def _is_cluster(path: str) -> bool:
    """Say whether a path is the folder of a cluster."""
    folder, _, name = path.rpartition("/")
    return folder == paths.CLUSTERS and bool(name)
