"""What teardown takes back on a host, by what is there."""

import hashlib
import json
from dataclasses import replace

from taco_launch.model.facts import ContainerState, Docker, HostFacts, Image, Made, MadeFile
from taco_launch.model.found import Absent, Unknown
from taco_launch.setup import paths
from taco_launch.setup.docker_settings import MARKS
from taco_launch.setup.ops import Op, Problem
from taco_launch.setup.teardown import plan
from tests.facts.hosts import host

IMAGE = "registry/train:1"
MIRRORS = {"registry-mirrors": ["https://mirror"]}
ADDED = json.dumps({"registry-mirrors": {"is": ["https://mirror"]}}) + "\n"


def facts(*made: str, config: str | None = None, labels: tuple[tuple[str, str], ...] | None = None) -> HostFacts:
    """Give a host with these files, a daemon.json of that text, and a container of these labels."""
    files = tuple(MadeFile(path, hashlib.sha256(b"").hexdigest(), 0o600) for path in made)
    none = Absent()
    daemon_json = none if config is None else config
    made_ = Made(files, (), (), None, none, none, none, none, none, none, none, none, daemon_json)
    found = host("gpu1", made=made_)
    assert isinstance(found.docker, Docker)
    containers = () if labels is None else (ContainerState(paths.container("c"), IMAGE, "running", labels),)
    return replace(found, docker=replace(found.docker, containers=containers, images=(Image(IMAGE, "id", None, 1),)))


def names(found: HostFacts, image: str | None = None, added: str = "") -> list[str]:
    return [item.name for item in plan(found, "c", image, added) if isinstance(item, Op)]


def test_nothing_is_there() -> None:
    assert names(facts()) == []
    assert names(facts(paths.STATE, paths.CLUSTERS, f"{paths.UNITS}/docker.service.d/proxy.conf", config="{}")) == []


def test_all_of_a_cluster_and_what_clusters_share() -> None:
    there = facts(paths.folder("c"), paths.main_script("c"), paths.unit_file("c"), paths.AGENT)
    assert names(there) == [
        f"remove taco-launch-c, its unit and {paths.folder('c')}",
        "remove the agent and the leases",
    ]


def test_any_rest_of_a_cluster_is_taken_back() -> None:
    whole = [f"remove taco-launch-c, its unit and {paths.folder('c')}"]
    assert names(facts(paths.unit_file("c"))) == whole
    assert names(facts(paths.folder("c"))) == whole
    assert names(facts(labels=((paths.CLUSTER_LABEL, "c"),))) == whole


def test_a_foreign_container_of_that_name_is_none_of_ours() -> None:
    assert names(facts(labels=())) == []
    assert names(facts(labels=((paths.CLUSTER_LABEL, "d"),))) == []


def test_another_cluster_keeps_what_it_shares() -> None:
    assert names(facts(paths.folder("d"), paths.AGENT, MARKS, paths.ENGINE_PROXY)) == []
    assert names(facts(paths.folder("c"), paths.folder("d"), paths.AGENT)) == [
        f"remove taco-launch-c, its unit and {paths.folder('c')}"
    ]


def test_an_image_only_where_it_is_asked_for() -> None:
    assert names(facts(), IMAGE) == [f"remove {IMAGE}"]
    assert names(facts(), "registry/other:1") == []


def test_what_was_put_into_daemon_json_is_taken_out() -> None:
    config = json.dumps({**MIRRORS, "debug": True})
    (op,) = plan(facts(MARKS, config=config), "c", None, ADDED)
    assert isinstance(op, Op)
    assert json.loads(op.files[0].data) == {"debug": True}
    assert (op.files[0].shown, op.files[0].mode, op.old) == (
        paths.ENGINE_CONFIG,
        0o600,
        ((paths.ENGINE_CONFIG, config),),
    )
    assert op.name == "remove the agent and the leases, what set-up put into daemon.json"


def test_what_somebody_changed_since_stays() -> None:
    (op,) = plan(facts(MARKS, config='{"debug": true}'), "c", None, ADDED)
    assert isinstance(op, Op)
    assert (op.files, op.name) == ((), "remove the agent and the leases")


def test_the_proxy_goes_with_the_next_start_of_docker() -> None:
    (op,) = plan(facts(paths.ENGINE_PROXY), "c", None, "")
    assert isinstance(op, Op)
    assert op.name == "remove the agent and the leases, the proxy of docker.service"
    assert "until it starts anew" in op.why
    assert op.disrupts == "nothing"


def test_a_daemon_json_that_is_none_stays() -> None:
    *_, problem = plan(facts(MARKS, config='{"registry-mirrors": [,]}'), "c", None, ADDED)
    assert isinstance(problem, Problem)
    assert problem.message.startswith("/etc/docker/daemon.json: line 1 column ")


def test_what_is_there_cannot_be_told() -> None:
    unknown = Unknown("find: permission denied")
    there = facts()
    assert isinstance(there.made, Made)
    for found in (replace(there, made=unknown), replace(there, made=replace(there.made, files=unknown))):
        (problem,) = plan(found, "c", None, "")
        assert isinstance(problem, Problem)
        assert problem.message.endswith("find: permission denied")
