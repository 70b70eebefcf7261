"""Stages in their order, each on the facts that those before it should leave; a problem is the end of a host's."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from taco_launch.core.model.host import paths
from taco_launch.core.model.host.fact_value import NOT_ASKED
from taco_launch.core.model.host.facts import ContainerState, DockerFacts, HostFacts
from taco_launch.core.model.host.hosts import Container, Host, Inventory
from taco_launch.setup.model.ops import FileTarget, Op, PlanContext, Problem, Stage, StagePlanner, StageRules
from taco_launch.setup.plan.diff import diffs, wanted
from taco_launch.setup.plan.host_plan import HostPlan, plan_host
from taco_launch.setup.plan.stage_rules import STAGES
from taco_launch.setup.stages import image, ssh_mesh
from tests.support.training import bare, cluster

HOST = Host("gpu1", "10.0.0.1")
CLUSTER = PlanContext(Inventory("c", "gpu1", (HOST,), Container("image")), {})
BARE = HostFacts("gpu1", NOT_ASKED, NOT_ASKED, NOT_ASKED, NOT_ASKED, NOT_ASKED, NOT_ASKED, NOT_ASKED)


def simulated(stage: Stage) -> StagePlanner:
    """A stage that counts the operations before it: each leaves one more mark in the facts."""

    def plan(_host: Host, facts: HostFacts, _cluster: PlanContext) -> Iterator[Op | Problem]:
        before = facts.host.count("+")
        if before <= STAGES.index(stage):
            yield Op(stage, f"{stage} after {before}", "", expect=lambda facts: replace(facts, host=f"{facts.host}+"))

    return plan


def rules(plans: Mapping[Stage, StagePlanner]) -> dict[Stage, StageRules]:
    return {stage: StageRules((), plan, of_container=stage in ("image", "container")) for stage, plan in plans.items()}


PLANS: dict[Stage, StagePlanner] = {stage: simulated(stage) for stage in STAGES}
RULES = rules(PLANS)


def test_facts_are_handed_on() -> None:
    made = plan_host(HOST, BARE, CLUSTER, RULES)
    assert [op.name for op in made.ops] == [f"{stage} after {number}" for number, stage in enumerate(STAGES)]
    assert not made.empty
    after = BARE
    for op in made.ops:
        after = op.expect(after)
    assert plan_host(HOST, after, CLUSTER, RULES) == HostPlan("gpu1")
    assert plan_host(HOST, after, CLUSTER, RULES).empty


def test_only_some_stages_in_their_own_order() -> None:
    made = plan_host(HOST, BARE, CLUSTER, RULES, ("agent", "image"))
    assert [op.name for op in made.ops] == ["image after 0", "agent after 1"]


@pytest.mark.parametrize("number", range(len(STAGES)))
def test_a_problem_ends_the_chain(number: int) -> None:
    problem = Problem(STAGES[number], "the disk is full", "make room")

    def refuses(host: Host, facts: HostFacts, cluster: PlanContext) -> Iterator[Op | Problem]:
        yield from simulated(STAGES[number])(host, facts, cluster)
        yield problem

    made = plan_host(HOST, BARE, CLUSTER, rules({**PLANS, STAGES[number]: refuses}))
    assert made.problems == (problem,)
    assert [op.stage for op in made.ops] == list(STAGES[: number + 1])
    assert not made.empty


def test_all_that_keeps_a_host_from_being_set_up_is_told_at_once() -> None:
    def refusing(*problems: Problem) -> StagePlanner:
        return lambda *_args: iter(problems)

    init, port = Problem("docker", "no systemd"), Problem("ssh_mesh", "port 12222 is taken", stops="host")
    follows = Problem("container", "the image is not here", "set up the stage image before this one")
    same = replace(port, stage="container")
    refused: dict[Stage, StagePlanner] = {
        "docker": refusing(init),
        "container": refusing(same, follows),
        "ssh_mesh": refusing(port),
    }
    made = plan_host(HOST, BARE, CLUSTER, rules({**PLANS, **refused}))
    assert made == HostPlan("gpu1", (), (init, same)), "what only follows from the first is not told"


def test_nothing_is_guessed_of_stages_that_an_operation_reveals() -> None:
    def starts(_host: Host, _facts: HostFacts, _cluster: PlanContext) -> Iterator[Op | Problem]:
        yield Op("docker", "start docker", "", reveals=True)

    def guesses(_host: Host, _facts: HostFacts, _cluster: PlanContext) -> Iterator[Op | Problem]:
        yield Problem("image", "nobody knows")

    plans: dict[Stage, StagePlanner] = {**PLANS, "docker": starts, "image": guesses, "container": guesses}
    made = plan_host(HOST, BARE, CLUSTER, rules(plans), ("docker", "image", "container", "agent"))
    later = ("unknown until Docker runs", "")
    assert [(op.stage, op.name, op.why, op.script) for op in made.ops[1:3]] == [
        ("image", *later, ""),
        ("container", *later, ""),
    ]
    assert [op.stage for op in made.ops] == ["docker", "image", "container", "agent"]
    alone: tuple[Stage, ...] = ("image",)
    assert plan_host(HOST, BARE, CLUSTER, rules(plans), alone).problems


def test_what_is_the_same_for_all_hosts_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = [bare(name) for name in ("gpu1", "gpu2", "gpu3")]
    of = cluster(*facts)
    asked: list[str] = []

    def note(module: ModuleType, name: str) -> None:
        whole = getattr(module, name)

        def noted(*args: object) -> Any:
            asked.append(name)
            return whole(*args)

        monkeypatch.setattr(module, name, noted)

    note(image, "_standard")
    note(ssh_mesh, "members")
    for host, each in zip(of.inventory.hosts, facts, strict=True):
        assert isinstance(each.docker, DockerFacts)
        own = ContainerState(paths.container(of.inventory.cluster), "image", "running", ())
        running = replace(each, docker=replace(each.docker, containers=(own,)))
        assert list(image.plan(host, each, of)) + list(ssh_mesh.plan(host, running, of))
    assert asked == ["_standard", "members"]
    assert list(image.plan(HOST, facts[0], replace(of, latest="sha256:new")))
    assert asked == ["_standard", "members", "_standard"]


def test_a_problem_alone_is_not_nothing() -> None:
    def refuses(_host: Host, _facts: HostFacts, _cluster: PlanContext) -> Iterator[Op | Problem]:
        yield Problem("docker", "podman answers as docker")

    assert not plan_host(HOST, BARE, CLUSTER, rules({**PLANS, "docker": refuses})).empty


# --- What --diff shows, and what it does not


def op(*files: FileTarget, old: tuple[tuple[str, str], ...] = ()) -> Op:
    return Op("docker", "name", "why", files=files, old=old)


def test_a_change() -> None:
    (found,) = diffs([op(FileTarget("/a", b"one\ntwo\n"), old=(("/a", "one\nthree\n"),))], {})
    assert found == "--- /a\n+++ /a\n@@ -1,2 +1,2 @@\n one\n-three\n+two\n"


def test_a_new_file_and_one_without_a_newline() -> None:
    assert diffs([op(FileTarget("/a", b"one"))], {}) == (
        "--- /dev/null\n+++ /a\n@@ -0,0 +1 @@\n+one\n\\ No newline at end of file\n",
    )


def test_what_the_host_has_now() -> None:
    (found,) = diffs([op(FileTarget("/a", b"new\n"))], {"/a": b"old\xff\n"})
    assert "-old\ufffd\n+new\n" in found
    assert diffs([op(FileTarget("/a", b"same\n"))], {"/a": b"same\n"}) == ()


def test_what_a_script_moves_on() -> None:
    candidate = FileTarget("/var/lib/taco-launch/docker/daemon.json", b"{}\n", shown="/etc/docker/daemon.json")
    assert wanted([op(candidate)]) == ("/etc/docker/daemon.json",)
    (found,) = diffs([op(candidate)], {"/etc/docker/daemon.json": b'{"a": 1}\n'})
    assert found.startswith("--- /etc/docker/daemon.json\n+++ /etc/docker/daemon.json\n")


def test_secrets_are_neither_shown_nor_read() -> None:
    secret = FileTarget("/key", b"PRIVATE", secret=True)
    assert wanted([op(secret)]) == ()
    (found,) = diffs([op(secret, old=(("/key", "OLD PRIVATE"),))], {"/key": b"OLD PRIVATE"})
    assert found == "--- /key\n+++ /key\n(secret, not shown)\n"


def test_what_is_no_text() -> None:
    for data in (b"\xff\xfe", b"a\0b"):
        assert wanted([op(FileTarget("/agent", data))]) == ()
        assert diffs([op(FileTarget("/agent", data))], {}) == (
            f"--- /agent\n+++ /agent\n({len(data)} bytes, not shown)\n",
        )


def test_only_what_is_not_known_is_wanted() -> None:
    assert wanted([op(FileTarget("/a", b""), FileTarget("/b", b""), old=(("/a", ""),)), op(FileTarget("/b", b""))]) == (
        "/b",
    )
