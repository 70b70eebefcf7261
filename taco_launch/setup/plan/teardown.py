"""Taking back what set-up made on a host, and only that: each stage plans its own part, the last stage first.

Docker, images unless requested, and what others made stay.
"""

from collections.abc import Iterator, Mapping

from taco_launch.core.model.host import paths
from taco_launch.core.model.host.fact_value import Absent, Unknown
from taco_launch.core.model.host.facts import DockerFacts, HostFacts, SetupFile, SetupState
from taco_launch.setup.model.job_containers import keys_of
from taco_launch.setup.model.ops import Op, Problem, Removal, Stage, StageRules


def plan(
    facts: HostFacts, cluster: str, image: str | None, added: str, rules: Mapping[Stage, StageRules]
) -> Iterator[Op | Problem]:
    """Plan to take back a cluster, and with the last one of a host what all share.

    `image` is a reference to be removed too; `added` is the text of docker_removal.ADDED on the host.
    """
    if not isinstance(facts.made, SetupState) or not isinstance(facts.made.files, tuple):
        why = facts.made.files if isinstance(facts.made, SetupState) else facts.made
        yield Problem("container", f"what set-up made there cannot be determined: {getattr(why, 'reason', '')}")
        return
    files = {file.path: file for file in facts.made.files}
    has_cluster = _has_cluster(facts, files, cluster)
    silent = _silent(facts.docker, images=image is not None) if has_cluster or image is not None else None
    if silent is not None:
        yield Problem(
            "container",
            f"docker does not report what it has, so not everything can be removed: {silent}",
            "start docker first: systemctl start docker",
        )
        return
    own = (paths.folder(cluster), paths.host_folder(cluster))
    variants = paths.host_folder(paths.variant(cluster, ""))
    others = (path for path, file in files.items() if _is_cluster(path, file) and not path.startswith(variants))
    is_last = all(path in own for path in others)
    removal = Removal(facts, files, cluster, has_cluster, is_last, image, added)
    for stage in reversed(tuple(rules.values())):
        yield from stage.take_back(removal)


def _has_cluster(facts: HostFacts, files: Mapping[str, SetupFile], cluster: str) -> bool:
    ours = (one for one in facts.containers if dict(one.labels).get(paths.CLUSTER_LABEL) == cluster)
    made = (
        paths.unit_file(cluster),
        paths.folder(cluster),
        paths.host_folder(cluster),
        paths.firewall_unit_file(cluster),
    )
    names = (paths.container(cluster), paths.unfinished(cluster))
    there = any(path in files for path in made) or any(one.name in names for one in ours)
    return there or bool(keys_of(facts, cluster))


def _silent(docker: DockerFacts | Absent | Unknown, *, images: bool) -> str | None:
    """Return why docker does not tell its containers, or its images where they matter; one that does not exist has none."""
    if isinstance(docker, Absent):
        return None
    if isinstance(docker, Unknown):
        return docker.reason
    if not isinstance(docker.version, str):
        return docker.version.reason
    asked = (docker.containers, *((docker.images,) if images else ()))
    return next((each.reason for each in asked if not isinstance(each, tuple)), None)


def _is_cluster(path: str, file: SetupFile) -> bool:
    """Return whether a path is a folder of a cluster: others may keep files beside them."""
    folder, _, name = path.rpartition("/")
    return folder in (paths.CLUSTERS, paths.HOST) and bool(name) and file.sha256 is None and file.link is None
