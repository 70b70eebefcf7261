"""Taking back what set-up made on a host, and only that: docker, images unless asked for, and foreign things stay."""

import json
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256

from taco_launch.model.host.fact_value import Absent, Unknown
from taco_launch.model.host.facts import Docker, HostFacts, Made, MadeFile
from taco_launch.setup import paths, scripts
from taco_launch.setup.files import daemon_json
from taco_launch.setup.ops import File, Op, Problem
from taco_launch.setup.stages import firewall
from taco_launch.setup.stages.docker_settings import MARKS
from taco_launch.setup.stages.image import held, parse_reference
from taco_launch.setup.stages.peermem_ops import service_off

# What set-up put into daemon.json, as docker_settings keeps it.
ADDED = f"{MARKS}/added"
# What daemon.json is without that: scripts/teardown_host.sh puts it there.
_WITHOUT = f"{MARKS}/daemon.json.without"
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
    has_cluster = _has_cluster(facts, files, cluster)
    silent = _silent(facts.docker, images=image is not None) if has_cluster or image is not None else None
    if silent is not None:
        yield Problem(
            "container",
            f"docker does not tell what it holds, so not all can be taken back: {silent}",
            "have it run first: systemctl start docker",
        )
        return
    if has_cluster:
        name = paths.container(cluster)
        for op in firewall.taken_back(facts, cluster, "the cluster is taken back"):
            idle = scripts.text("idle.sh") + 'idle "$1"\nshift\n'
            yield replace(op, stage="container", script=idle + op.script, args=(name, *op.args), disrupts="container")
        yield Op(
            "container",
            f"remove {name}, its unit and {paths.folder(cluster)}",
            "",
            scripts.text("idle.sh") + scripts.text("reload.sh") + scripts.text("teardown.sh"),
            (
                cluster,
                name,
                paths.unfinished(cluster),
                paths.unit(cluster),
                paths.unit_file(cluster),
                paths.folder(cluster),
                paths.host_folder(cluster),
                paths.secrets_file(cluster),
                paths.state(cluster),
            ),
            disrupts="container",
            seconds=_STOP_SECONDS,
        )
    if image is not None and _has_image(facts, image):
        name = parse_reference(image).name
        yield Op("image", f"remove {image}", "--images", 'docker rmi "$1" >/dev/null', (name,))
    others = [
        path
        for path, file in files.items()
        if _is_cluster(path, file) and path not in (paths.folder(cluster), paths.host_folder(cluster))
    ]
    if not others:
        yield from _peermem(files)
        yield from _shared(facts.made, files, added)


def _peermem(files: dict[str, MadeFile]) -> Iterator[Op]:
    """Plan that nothing of ours loads a module at boot any more."""
    stays = "no other cluster uses it; what is loaded stays so until a reboot"
    if ours := [path for path in (paths.PEERMEM, paths.PEERMEM_OPTIONS) if path in files]:
        yield Op("peermem", f"remove {' and '.join(ours)}", stays, 'rm -f -- "$@"\n', tuple(ours))
    if paths.NV_PEER_MEM in files:
        yield service_off(f"set-up installed it, and {stays}; the package stays")


def _shared(made: Made, files: dict[str, MadeFile], added: str) -> Iterator[Op | Problem]:
    """Plan to take back what all clusters of a host share."""
    ours = [path for path in (paths.AGENT, MARKS, paths.ENGINE_PROXY) if path in files]
    if not ours:
        return
    if ADDED in files and isinstance(made.daemon_json, Unknown):
        yield Problem(
            "docker",
            f"{paths.ENGINE_CONFIG}: what set-up put into it cannot be taken out: {made.daemon_json.reason}",
            f"{ADDED} says what that is: make the file readable, then run this again",
        )
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
        except json.JSONDecodeError as error:
            yield Problem(
                "docker",
                f"{ADDED}, which says what set-up put into {paths.ENGINE_CONFIG}, has a line of no JSON: {error.msg}",
                "an interrupted set-up wrote half of it: remove that line on the host, and what it names from "
                "daemon.json, then run this again",
            )
            return
        if text != config:
            put = (File(_WITHOUT, text.encode(), 0o600, shown=paths.ENGINE_CONFIG),)
    parts = ["the agent and the leases", *(["what set-up put into daemon.json"] if put else [])]
    proxy = paths.ENGINE_PROXY in files
    yield Op(
        "docker",
        f"remove {', '.join([*parts, *(['the proxy of docker.service'] if proxy else [])])}",
        "no other cluster uses them" + ("; docker goes on as it is until it starts anew" if put or proxy else ""),
        scripts.text("idle.sh") + scripts.text("reload.sh") + scripts.text("teardown_host.sh"),
        (
            paths.STATE,
            paths.LEASES,
            paths.ENGINE_PROXY,
            paths.ENGINE_CONFIG,
            *((_WITHOUT, sha256(config.encode()).hexdigest()) if put and config is not None else ()),
        ),
        put,
        old=((paths.ENGINE_CONFIG, config),) if put and config is not None else (),
    )


def _has_cluster(facts: HostFacts, files: dict[str, MadeFile], cluster: str) -> bool:
    docker = facts.docker
    containers = docker.containers if isinstance(docker, Docker) and isinstance(docker.containers, tuple) else ()
    ours = (one for one in containers if dict(one.labels).get(paths.CLUSTER_LABEL) == cluster)
    made = (
        paths.unit_file(cluster),
        paths.folder(cluster),
        paths.host_folder(cluster),
        paths.firewall_unit_file(cluster),
    )
    names = (paths.container(cluster), paths.unfinished(cluster))
    return any(path in files for path in made) or any(one.name in names for one in ours)


def _has_image(facts: HostFacts, image: str) -> bool:
    return isinstance(facts.docker, Docker) and held(parse_reference(image), facts.docker) is not None


def _silent(docker: Docker | Absent | Unknown, *, images: bool) -> str | None:
    """Return why docker does not tell its containers, or its images where they matter; one that is not there has none."""
    if isinstance(docker, Absent):
        return None
    if isinstance(docker, Unknown):
        return docker.reason
    if not isinstance(docker.version, str):
        return docker.version.reason
    asked = (docker.containers, *((docker.images,) if images else ()))
    return next((each.reason for each in asked if not isinstance(each, tuple)), None)


def _is_cluster(path: str, file: MadeFile) -> bool:
    """Return whether a path is a folder of a cluster: others may keep files beside them."""
    folder, _, name = path.rpartition("/")
    return folder in (paths.CLUSTERS, paths.HOST) and bool(name) and file.sha256 is None and file.link is None
