"""What teardown takes back on a host, by what exists."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from taco_launch.cli.hosts.teardown import _ORDER
from taco_launch.core.model.host import paths
from taco_launch.core.model.host.fact_value import Absent, Unknown
from taco_launch.core.model.host.facts import ContainerState, HostFacts, Image, SetupFile, SetupState
from taco_launch.setup.model.ops import Op, Problem, Removal, StageRules
from taco_launch.setup.plan import teardown
from taco_launch.setup.plan.stage_rules import RULES, STAGES
from taco_launch.setup.stage_parts.docker_removal import ADDED as ADDED_FILE
from taco_launch.setup.stage_parts.docker_settings import MARKS
from tests.support.host_facts import host, known
from tests.support.training import having
from tests.support.training import op as the_op
from tests.support.training import problem as the_problem

IMAGE = "registry/train:1"
DIGEST = f"sha256:{'1' * 64}"
MIRRORS = {"registry-mirrors": ["https://mirror"]}
ADDED = json.dumps({"registry-mirrors": {"is": ["https://mirror"]}}) + "\n"


def facts(*made: str, config: str | None = None, labels: tuple[tuple[str, str], ...] | None = None) -> HostFacts:
    """Return a host with these files, a daemon.json of that text, and a container of these labels."""
    empty = hashlib.sha256(b"").hexdigest()
    folders = (paths.CLUSTERS, paths.HOST)
    files = tuple(
        SetupFile(path, None if path.rpartition("/")[0] in folders and "." not in path else empty, 0o600)
        for path in made
    )
    none = Absent()
    daemon_json = none if config is None else config
    made_ = SetupState(files, (), (), None, none, none, none, none, none, none, none, none, daemon_json)
    found = host("gpu1", made=made_)
    containers = () if labels is None else (ContainerState(paths.container("c"), IMAGE, "running", labels),)
    return replace(
        found, docker=replace(known(found.docker), containers=containers, images=(Image(IMAGE, "id", None, 1),))
    )


def plan(found: HostFacts, cluster: str, image: str | None, added: str) -> Iterator[Op | Problem]:
    return teardown.plan(found, cluster, image, added, RULES)


def names(found: HostFacts, image: str | None = None, added: str = "") -> list[str]:
    return [item.name for item in plan(found, "c", image, added) if isinstance(item, Op)]


WHOLE = f"remove taco-launch-c, its unit and {paths.folder('c')}"


@pytest.mark.parametrize(
    ("found", "removed"),
    [
        (facts(), []),
        (facts(paths.STATE, paths.CLUSTERS, f"{paths.UNITS}/docker.service.d/proxy.conf", config="{}"), []),
        (
            facts(paths.folder("c"), paths.main_script("c"), paths.unit_file("c"), paths.AGENT),
            [WHOLE, "remove the agent and the leases"],
        ),
        # any rest of a cluster is all of it
        (facts(paths.unit_file("c")), [WHOLE]),
        (facts(paths.folder("c")), [WHOLE]),
        (facts(paths.HOST, paths.host_folder("c")), [WHOLE]),
        (facts(paths.firewall_unit_file("c")), ["firewall: remove the rules of taco-launch", WHOLE]),
        (facts(labels=((paths.CLUSTER_LABEL, "c"),)), [WHOLE]),
        # a container of that name that set-up did not make, or made for another cluster
        (facts(labels=()), []),
        (facts(labels=((paths.CLUSTER_LABEL, "d"),)), []),
        # what clusters share stays while there is another one, which a file is not
        (facts(paths.folder("d"), paths.AGENT, MARKS, paths.ENGINE_PROXY), []),
        (facts(paths.host_folder("d"), paths.AGENT), []),
        (facts(paths.folder("c"), paths.folder("d"), paths.AGENT), [WHOLE]),
        (facts(paths.PEERMEM, paths.PEERMEM_OPTIONS, paths.NV_PEER_MEM, MARKS, paths.host_folder("d")), []),
        (facts(paths.PEERMEM, f"{paths.HOST}/notes.txt"), [f"remove {paths.PEERMEM}"]),
    ],
)
def test_what_is_removed(found: HostFacts, removed: list[str]) -> None:
    assert names(found) == removed


def test_what_is_loaded_at_boot_for_gpudirect_goes_with_the_last_cluster() -> None:
    op = the_op(plan(facts(paths.PEERMEM), "c", None, ""))
    assert (op.name, op.stage in _ORDER) == (f"remove {paths.PEERMEM}", True), "what is not in that order is not shown"
    both = facts(paths.PEERMEM, paths.PEERMEM_OPTIONS, paths.NV_PEER_MEM, MARKS)
    first, second, last = plan(both, "c", None, "")
    assert isinstance(first, Op)
    assert (first.name, first.args) == (
        f"remove {paths.PEERMEM} and {paths.PEERMEM_OPTIONS}",
        (paths.PEERMEM, paths.PEERMEM_OPTIONS),
    )
    assert isinstance(second, Op)
    assert second.name == "keep nv_peer_mem.service from loading a module at boot"
    assert "set-up installed it" in second.why
    assert "the package stays" in second.why
    assert isinstance(last, Op)
    assert last.name == "remove the agent and the leases", "the mark goes no earlier"


def test_what_the_hosts_root_runs_is_taken_back_too() -> None:
    there = paths.host_folder("c")
    first, _last = plan(facts(there, f"{there}/firewall", f"{there}/firewall.sh"), "c", None, "")
    assert isinstance(first, Op)
    assert (first.name, first.args[:3]) == (
        "firewall: remove the rules of taco-launch",
        ("taco-launch-c", "remove", there),
    )
    assert first.script.index("idle()") < first.script.index('idle "$1"') < first.script.index("action=$1")


@pytest.mark.parametrize("names", [("a", "a-firewall"), ("a_firewall", "a"), ("-a", "a")])
def test_no_two_units_have_one_name(names: tuple[str, str]) -> None:
    units = [name(cluster) for cluster in names for name in (paths.unit, paths.firewall_unit)]
    assert len(set(units)) == 4


def test_a_container_that_was_not_finished_is_taken_back() -> None:
    there = facts()
    half = ContainerState(paths.unfinished("c"), IMAGE, "created", ((paths.CLUSTER_LABEL, "c"),))
    op = the_op(plan(having(there, containers=(half,)), "c", None, ""))
    assert paths.unfinished("c") in op.args


@pytest.mark.parametrize("why", [Unknown("the engine does not answer"), Absent("Cannot connect to the Docker daemon")])
@pytest.mark.parametrize("made", [paths.folder("c"), paths.unit_file("c")])
def test_an_engine_that_does_not_tell(made: str, why: Unknown | Absent) -> None:
    there = facts(made)
    down = having(there, version=why, containers=Unknown("later"), images=Unknown(""))
    for found in (down, having(there, containers=why)):
        problem = the_problem(plan(found, "c", None, ""))
        assert problem.message.endswith(f"so not everything can be removed: {why.reason}")
    assert names(replace(there, docker=Absent("docker: not found")))  # then no container is there
    nothing = replace(facts(), docker=down.docker)
    assert names(nothing) == []
    problem = the_problem(plan(nothing, "c", IMAGE, ""))


@pytest.mark.parametrize(
    ("asked", "listed", "digest", "removed"),
    [
        (IMAGE, IMAGE, None, IMAGE),
        ("docker.io/library/train", "train:latest", None, "train:latest"),
        ("registry.lab/train", "registry.lab/train:latest", None, "registry.lab/train:latest"),
        (f"registry.lab/train:1@{DIGEST}", "registry.lab/train:<none>", DIGEST, f"registry.lab/train@{DIGEST}"),
    ],
)
def test_an_image_by_any_of_its_names(asked: str, listed: str, digest: str | None, removed: str) -> None:
    there = having(facts(), images=(Image(listed, "id", digest, 1),))
    op = the_op(plan(there, "c", asked, ""))
    assert (op.name, op.args) == (f"remove {asked}", (removed,))
    assert names(there, "registry/other:1") == []


def test_what_was_put_into_daemon_json_is_taken_out() -> None:
    config = json.dumps({**MIRRORS, "debug": True})
    op = the_op(plan(facts(MARKS, config=config), "c", None, ADDED))
    assert json.loads(op.files[0].data) == {"debug": True}
    assert (op.files[0].shown, op.files[0].mode, op.old) == (
        paths.ENGINE_CONFIG,
        0o600,
        ((paths.ENGINE_CONFIG, config),),
    )
    assert op.name == "remove the agent and the leases, what set-up put into daemon.json"


def test_it_is_put_only_where_it_is_as_it_was_looked_at() -> None:
    config = json.dumps({**MIRRORS, "debug": True})
    op = the_op(plan(facts(MARKS, config=config), "c", None, ADDED))
    assert op.args[4:] == (op.files[0].path, hashlib.sha256(config.encode()).hexdigest())
    # set-up's own file of that folder may be of a set-up that was interrupted
    assert op.files[0].path != f"{MARKS}/daemon.json"
    op = the_op(plan(facts(MARKS, config='{"debug": true}'), "c", None, ADDED))
    assert len(op.args) == 4


def test_a_daemon_json_that_cannot_be_read_keeps_the_record_of_it() -> None:
    there = facts(MARKS, ADDED_FILE)
    unknown = replace(there, made=replace(known(there.made), daemon_json=Unknown("cat: Input/output error")))
    problem = the_problem(plan(unknown, "c", None, ADDED))
    assert problem.message.endswith("cannot be taken out: cat: Input/output error")
    (gone,) = plan(there, "c", None, ADDED)
    assert isinstance(gone, Op)


def test_half_a_line_of_the_record() -> None:
    config = json.dumps(MIRRORS)
    problem = the_problem(plan(facts(MARKS, config=config), "c", None, ADDED + ADDED[:-9]))
    assert problem.message.startswith(
        f"{ADDED_FILE}, which lists what set-up put into {paths.ENGINE_CONFIG}, has a line"
    )


def test_what_somebody_changed_since_stays() -> None:
    op = the_op(plan(facts(MARKS, config='{"debug": true}'), "c", None, ADDED))
    assert (op.files, op.name) == ((), "remove the agent and the leases")


def test_the_proxy_goes_with_the_next_start_of_docker() -> None:
    op = the_op(plan(facts(paths.ENGINE_PROXY), "c", None, ""))
    assert op.name == "remove the agent and the leases, the proxy of docker.service"
    assert "until it restarts" in op.why
    assert op.disrupts == "nothing"


def test_a_daemon_json_that_is_none_stays() -> None:
    *_, problem = plan(facts(MARKS, config='{"registry-mirrors": [,]}'), "c", None, ADDED)
    assert isinstance(problem, Problem)
    assert problem.message.startswith("/etc/docker/daemon.json: line 1 column ")


def test_what_is_there_cannot_be_told() -> None:
    unknown = Unknown("find: permission denied")
    there = facts()
    for found in (replace(there, made=unknown), replace(there, made=replace(known(there.made), files=unknown))):
        problem = the_problem(plan(found, "c", None, ""))
        assert problem.message.endswith("find: permission denied")


# --- a stage owns its part


def test_every_operation_is_of_the_stage_that_plans_it() -> None:
    there = facts(paths.folder("c"), paths.unit_file("c"), paths.AGENT, paths.PEERMEM, paths.NV_PEER_MEM)
    removal = Removal(there, {file.path: file for file in _files(there)}, "c", True, True, IMAGE, "")
    for stage in STAGES:
        assert {op.stage for op in RULES[stage].take_back(removal)} <= {stage}
    assert [op.stage for op in plan(there, "c", IMAGE, "")] == ["container", "image", "peermem", "peermem", "docker"]


def test_a_stage_needs_no_more_than_its_rules_to_be_taken_back() -> None:
    def take_back(removal: Removal) -> Iterator[Op]:
        assert (removal.cluster, removal.has_cluster, removal.is_last) == ("c", False, True)
        yield Op("toolkit", "remove what a new stage made", "")

    rules = {**RULES, "toolkit": StageRules((), RULES["toolkit"].plan, take_back=take_back)}
    (op,) = teardown.plan(facts(), "c", None, "", rules)
    assert op == Op("toolkit", "remove what a new stage made", "")


def _files(found: HostFacts) -> tuple[SetupFile, ...]:
    return known(known(found.made).files)
