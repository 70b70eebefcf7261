"""The agent's stage, planned; and its script on a real folder."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from taco_launch.core.model.host import paths
from taco_launch.core.model.host.fact_value import NOT_ASKED
from taco_launch.core.model.host.facts import HostFacts, SetupFile, System
from taco_launch.setup import scripts
from taco_launch.setup.model.ops import Op, PlanContext, Problem
from taco_launch.setup.stages import agent
from tests.support.mesh import World, bare, inventory
from tests.support.training import made

NEW = "agent-1.9.0.dev1-0123456789abcdef.pyz"
THERE = (
    SetupFile(paths.STATE, None, 0o700),
    SetupFile(f"{paths.AGENT}/{NEW}", "ab" * 32, 0o600),
    SetupFile(paths.AGENT_LINK, None, 0o777, NEW),
)


def planned(*files: SetupFile, data: bytes = b"zip") -> tuple[Op | Problem, ...]:
    facts = replace(bare("gpu1"), made=made(files=files))
    cluster = replace(World(inventory()).cluster, agent=(NEW, data))
    return tuple(agent.plan(cluster.host("gpu1"), facts, cluster))


def test_a_bare_host_gets_it() -> None:
    (op,) = planned()
    assert isinstance(op, Op)
    assert [(file.path, file.data, file.mode) for file in op.files] == [(f"{paths.AGENT}/{NEW}", b"zip", 0o600)]
    assert op.args == (paths.STATE, paths.AGENT, NEW)
    after: HostFacts = op.expect(replace(bare("gpu1"), made=made()))
    cluster = replace(World(inventory()).cluster, agent=(NEW, b"zip"))
    assert list(agent.plan(cluster.host("gpu1"), after, cluster)) == []


def test_what_is_there_is_known_by_its_name() -> None:
    assert planned(*THERE) == ()
    assert planned(*THERE, data=b"") == ()


@pytest.mark.parametrize(("machine", "comes"), [("x86_64", True), ("aarch64", False)])
def test_py_spy_lies_beside_it_where_the_processor_is_of_the_same_kind(machine: str, comes: bool) -> None:
    facts = bare("gpu1")
    assert isinstance(facts.system, System)
    facts = replace(facts, made=made(files=THERE), system=replace(facts.system, architecture=machine))
    name = "py-spy-0.4.3-x86_64"
    cluster = replace(World(inventory()).cluster, agent=(NEW, b"zip"), py_spy=(name, b"ELF"))
    found = list(agent.plan(cluster.host("gpu1"), facts, cluster))
    if not comes:
        assert found == []
        return
    (op,) = found
    assert isinstance(op, Op)
    assert [(file.path, file.data) for file in op.files] == [(f"{paths.AGENT}/{name}", b"ELF")]
    assert op.why == f"{paths.AGENT}/{name} does not exist"
    assert list(agent.plan(cluster.host("gpu1"), op.expect(facts), cluster)) == []


NEWER = "this replaces a newer agent, 1.10.0, which another controller installed: upgrade this controller instead"


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ((*THERE[:2], replace(THERE[2], link="agent-old.pyz")), "the link points to another agent"),
        ((*THERE[:2], replace(THERE[2], link=NEW.replace("9", "8", 1))), "the link points to another agent"),
        ((*THERE[:2], replace(THERE[2], link=NEW.replace("9", "10", 1))), NEWER),
        (THERE[:2], "the link points to another agent"),
        ((replace(THERE[0], mode=0o755), *THERE[1:]), f"other users can read {paths.STATE}"),
    ],
)
def test_what_is_not_right(files: tuple[SetupFile, ...], why: str) -> None:
    (op,) = planned(*files)
    assert isinstance(op, Op)
    assert (op.why, op.files) == (why, ())


def test_a_newer_agent_is_named_by_a_controller_that_was_never_there_too() -> None:
    (op,) = planned(THERE[0], replace(THERE[2], link=NEW.replace("9", "10", 1)))
    assert isinstance(op, Op)
    assert (op.why, len(op.files)) == (NEWER, 1)


def test_nothing_to_do_without_one() -> None:
    world = World(inventory())
    facts = world.facts["gpu1"]
    bare_cluster: PlanContext = world.cluster
    assert list(agent.plan(bare_cluster.host("gpu1"), facts, bare_cluster)) == []
    (problem,) = agent.plan(
        bare_cluster.host("gpu1"), replace(facts, made=NOT_ASKED), replace(bare_cluster, agent=(NEW, b""))
    )
    assert isinstance(problem, Problem)


# --- the script

SPIES = [f"py-spy-0.4.{number}-x86_64" for number in range(3)]
OLD = [f"agent-{number:016x}.pyz" for number in range(12)]


def test_the_link_is_set_and_the_oldest_go(tmp_path: Path) -> None:
    state = tmp_path / "state"
    (state / "agent").mkdir(parents=True)
    for age, name in enumerate((NEW, *OLD, *SPIES, "agent-x y.pyz")):
        (state / "agent" / name).touch()
        os.utime(state / "agent" / name, (age, age))
    (state / "agent" / "current").symlink_to(OLD[-1])
    argv = ("sh", "-euc", scripts.text("agent.sh"), "agent.sh", str(state), str(state / "agent"), NEW)
    for _again in range(2):
        subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, timeout=20)
        assert (state / "agent" / "current").readlink() == Path(NEW)
        assert {path.name for path in (state / "agent").iterdir()} == {
            *("current", NEW, "agent-x y.pyz"),
            *OLD[4:],
            *SPIES[1:],
        }
        assert state.stat().st_mode & 0o777 == 0o700
