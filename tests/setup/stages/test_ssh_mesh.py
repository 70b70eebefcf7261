"""SSH between containers, planned: what is done when, for whom, and that it comes to an end."""

from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest

from taco_launch.core.command import as_typed
from taco_launch.core.model.host import paths
from taco_launch.core.model.host.fact_value import NOT_ASKED, Absent, Found, Unknown
from taco_launch.core.model.host.facts import Address as Carried
from taco_launch.core.model.host.facts import (
    ContainerState,
    DockerFacts,
    Firewall,
    HostFacts,
    Image,
    Interface,
    Listener,
    SetupState,
)
from taco_launch.core.model.host.hosts import Host
from taco_launch.setup.files import ssh_files
from taco_launch.setup.model.host_files import files_of, without
from taco_launch.setup.model.ops import Op, Problem
from taco_launch.setup.plan import blockers
from taco_launch.setup.plan.host_plan import HostPlan
from taco_launch.setup.stage_parts import firewall
from taco_launch.setup.stages import container, ssh_mesh
from tests.support.host_facts import known
from tests.support.mesh import NAME, NOTHING, World, bare, inventory, with_listener
from tests.support.training import problem as the_problem


def files(world: World, name: str) -> dict[str, str]:
    """The texts that the next round would write on a host, by their last name."""
    ops = [item for item in world.plan(name) if isinstance(item, Op)]
    return {file.path.rpartition("/")[2]: file.data.decode() for op in ops for file in op.files}


def meshed(*of: Any) -> World:
    """Return a world in which nothing is left to do."""
    world = World(*of)
    world.converge()
    return world


def test_a_host_without_a_container_is_named_before_anything_changes() -> None:
    world = World(inventory())
    docker = world.facts["gpu2"].docker
    assert isinstance(docker, DockerFacts)
    world.facts["gpu2"] = replace(world.facts["gpu2"], docker=replace(docker, containers=()))
    problem = the_problem(world.plan("gpu2"))
    assert (problem.message, problem.hint) == (
        "there is no training container on this host",
        "create it: taco-launch setup, without --only",
    )


def test_two_hosts_become_a_mesh() -> None:
    world = World(inventory())
    assert world.converge() == [
        {
            "gpu1": (
                "container's sshd: make its host key",
                "cluster's key: make it",
                "ssh files: write hosts, ssh_config",
                "container's sshd: write session.sh",
                "container's sshd: write its settings",
            ),
            "gpu2": (
                "container's sshd: make its host key",
                "ssh files: write hosts, ssh_config",
                "container's sshd: write session.sh",
                "container's sshd: write its settings",
            ),
        },
        {
            "gpu1": ("ssh files: write known_hosts, authorized_keys",),
            "gpu2": ("ssh files: write known_hosts, authorized_keys", "cluster's key: copy it"),
        },
    ]


def test_a_key_that_is_retired_is_replaced_on_all_hosts() -> None:
    world = meshed(inventory(3))
    old = world.retired = str(known(world.facts["gpu1"].made).cluster_key)
    check, copies = (
        "cluster's key: check that no job runs",
        ("ssh files: write authorized_keys", "cluster's key: copy it"),
    )
    assert world.converge() == [
        {"gpu1": (check, "cluster's key: make a new one"), "gpu2": (check,), "gpu3": (check,)},
        {"gpu1": copies[:1], "gpu2": copies, "gpu3": copies},
    ]
    for facts in world.facts.values():
        new = ssh_files.public_key(known(facts.made).cluster_key)
        assert new
        assert new != old
        accepted = sha256(ssh_files.authorized_keys(new).encode()).hexdigest()
        assert (files_of(facts) or {})[paths.authorized_keys(NAME)].sha256 == accepted


def test_a_job_keeps_its_key() -> None:
    world = meshed(inventory())
    world.retired = str(known(world.facts["gpu1"].made).cluster_key)
    plan = HostPlan("gpu2", tuple(op for op in world.plan("gpu2") if isinstance(op, Op)))
    look = blockers.look(plan, "taco-launch-hcc", (), "taco-launch")
    assert look
    assert look.argv[-1] == "taco-launch-hcc", "it is asked whether a job of this cluster runs"
    (problem,) = blockers.with_blockers(plan, (), b"error: job busy runs in taco-launch-hcc\n").problems
    assert (problem.stops, problem.passes) == ("cluster", True)


@pytest.mark.parametrize("count", [1, 3, 40])
def test_any_number_of_hosts_takes_two_rounds(count: int) -> None:
    assert len(World(inventory(count)).converge()) == 2


def test_the_key_is_secret_and_private() -> None:
    world = World(inventory())
    world.round()
    (op,) = [op for op in world.plan("gpu2") if isinstance(op, Op) and op.name == "cluster's key: copy it"]
    assert op.why == "it does not exist there"
    private, public = op.files
    assert (private.path, private.mode, private.secret) == (paths.key(NAME), 0o600, True)
    assert private.data == b"private\n"
    assert not public.secret
    assert b"private" not in op.script.encode() + "".join(op.args).encode()


def test_what_is_mounted_is_written_in_place_and_nothing_else() -> None:
    world = World(inventory())
    found = {}
    for _ in range(2):
        for name in world.facts:
            for op in world.plan(name):
                assert isinstance(op, Op)
                found.update({file.path.rpartition("/")[2]: file.in_place for file in op.files})
        world.round()
    assert {name for name, in_place in found.items() if in_place} == {"hosts", "ssh_config"}
    assert set(found) == {"hosts", "ssh_config", "known_hosts", "authorized_keys", "key", "key.pub", "session.sh", "sshd_config"}  # fmt: skip


def test_a_new_host_disturbs_nobody() -> None:
    world = meshed(inventory(2))
    world.inventory = inventory(3)
    world.facts["gpu3"] = bare("gpu3")
    rounds = world.converge()
    for name in ("gpu1", "gpu2"):
        done = [op for each in rounds for op in each[name]]
        assert done == ["ssh files: write hosts, ssh_config", "ssh files: write known_hosts"]
    assert all(op.disrupts == "nothing" for name in world.facts for op in world.plan(name) if isinstance(op, Op))


def test_a_host_that_leaves_is_forgotten() -> None:
    world = meshed(inventory(3))
    world.inventory = inventory(2)
    del world.facts["gpu3"]
    told = files(world, "gpu1")
    assert set(told) == {"hosts", "ssh_config", "known_hosts"}
    assert not any("gpu3" in text or "10.0.0.3" in text for text in told.values())


def test_a_host_that_is_off_stays_a_member() -> None:
    world = meshed(inventory(3))
    silent = world.facts.pop("gpu3")
    assert [world.plan(name) for name in ("gpu1", "gpu2")] == [(), ()]
    world.facts["gpu3"] = silent
    assert world.plan("gpu3") == ()


def test_one_broken_host_keeps_no_other_from_the_mesh() -> None:
    world = meshed(inventory(3), [bare("gpu1"), bare("gpu2")])
    told = world.known_hosts
    assert ("gpu1" in told, "gpu2" in told, "gpu3" in told) == (True, True, False)
    world.facts["gpu3"] = bare("gpu3")
    rounds = world.converge()
    assert [each["gpu1"] for each in rounds if each["gpu1"]] == [("ssh files: write known_hosts",)]


def test_the_head_did_not_answer() -> None:
    world = World(inventory(2), [bare("gpu2")])
    (problem,) = [item for item in world.plan("gpu2") if isinstance(item, Problem)]
    assert (
        problem.message
        == "the cluster's key is made on the head, gpu1, which did not answer or was left out of this run"
    )
    assert "head: gpu2" in problem.hint


def without_head(world: World, name: str) -> list[Problem]:
    cluster = replace(world.cluster, with_head=False)
    plan = ssh_mesh.plan(cluster.host(name), world.facts[name], cluster)
    return [item for item in plan if isinstance(item, Problem)]


def test_the_head_is_not_set_up() -> None:
    world = World(inventory(2))
    (problem,) = without_head(world, "gpu2")
    assert problem.message == "the cluster's key is made on the head, gpu1, which is not set up"
    assert problem.hint.startswith("set the head up first: taco-launch -i ")
    assert problem.hint.endswith(" setup -H gpu1")
    world.converge()
    assert without_head(world, "gpu2") == []


def test_a_head_that_lost_its_key_is_set_up_first() -> None:
    world = meshed(inventory(2))
    world.facts["gpu1"] = bare("gpu1")
    (problem,) = without_head(world, "gpu2")
    assert "which is not set up" in problem.message


def test_a_private_key_that_was_removed_is_made_again() -> None:
    world = meshed(inventory(2))
    world.facts["gpu1"] = without(world.facts["gpu1"], [paths.key(NAME)])
    assert [op.name for op in world.plan("gpu1") if isinstance(op, Op)] == ["cluster's key: make it"]
    world.facts["gpu2"] = without(world.facts["gpu2"], [paths.host_key(NAME)])
    assert next(op.name for op in world.plan("gpu2") if isinstance(op, Op)) == "container's sshd: make its host key"


def test_members_that_have_not_heard_of_a_new_host() -> None:
    world = meshed(inventory(2))
    assert ssh_mesh.unaware(world.cluster) == ()
    world.inventory = inventory(3)
    world.facts["gpu3"] = bare("gpu3")
    assert ssh_mesh.unaware(world.cluster) == ("gpu1", "gpu2"), "gpu3 is no member yet"
    while world.plan("gpu3"):
        for op in world.plan("gpu3"):
            assert isinstance(op, Op)
            world.apply("gpu3", op)
    assert ssh_mesh.unaware(world.cluster) == ("gpu1", "gpu2")
    world.converge()
    assert ssh_mesh.unaware(world.cluster) == ()


def test_a_member_goes_on_without_its_head() -> None:
    world = meshed(inventory(2))
    del world.facts["gpu1"]
    assert world.plan("gpu2") == ()


def test_without_a_container_there_is_nothing_to_do() -> None:
    world = World(replace(inventory(), container=None))
    assert world.plan("gpu1") == ()


@pytest.mark.parametrize("made", [NOT_ASKED, Unknown("sudo: a password is required"), replace(NOTHING, files=Absent())])
def test_what_is_there_cannot_be_read(made: Found[SetupState]) -> None:
    world = World(inventory())
    world.facts["gpu1"] = replace(world.facts["gpu1"], made=made)
    problem = the_problem(world.plan("gpu1"))
    assert "cannot be read" in problem.message


# --- the address


def carried(*addresses: tuple[str, str], name: str = "bond0") -> HostFacts:
    facts = bare("gpu1")
    one = Interface(name, "bond", "up", 1500, "aa", tuple(Carried(*each) for each in addresses))
    return replace(facts, network=replace(known(facts.network), interfaces=(one,)))


HOST = Host("gpu1", "10.0.0.1")


@pytest.mark.parametrize(
    ("address", "facts", "wanted", "expected"),
    [
        ("10.0.0.1", carried(("10.0.0.1/24", "global")), "auto", "10.0.0.1"),
        ("login.example.com", carried(("10.0.0.1/24", "global")), "bond0", "10.0.0.1"),
        ("10.0.0.9", carried(("10.0.0.1/24", "global"), ("10.0.0.9/24", "global")), "auto", "10.0.0.9"),
        ("192.0.2.7", carried(("10.0.0.1/24", "global")), "bond0", "10.0.0.1"),
        ("fd00::1", carried(("fe80::1/64", "link"), ("fd00::1/64", "global")), "auto", "fd00::1"),
        ("gpu1", carried(("fe80::1/64", "link"), ("fd00::1/64", "global")), "auto", "fd00::1"),
        ("10.0.0.1", carried(("fe80::1/64", "link")), "auto", None),
        ("10.0.0.1", carried(("10.0.0.1/24", "global")), "eth9", None),
    ],
)
def test_address(address: str, facts: HostFacts, wanted: str, expected: str | None) -> None:
    found = ssh_mesh.address(replace(HOST, address=address), facts, wanted)
    assert found == expected if expected else isinstance(found, Unknown)


def test_a_host_without_the_interface_is_told() -> None:
    world = World(inventory(interface="ib0"))
    problem = the_problem(world.plan("gpu1"))
    assert "there is no interface ib0: there are lo, bond0" in problem.message
    assert "network: {interface" in problem.hint


def test_a_new_address_is_taken_everywhere_and_only_its_own_sshd_begins_anew() -> None:
    world = meshed(inventory())
    facts = world.facts["gpu2"]
    moved = known(carried(("10.0.9.2/24", "global")).network)
    world.facts["gpu2"] = replace(facts, network=replace(moved, listeners=known(facts.network).listeners))
    (first, *_) = world.converge()
    assert first["gpu1"] == ("ssh files: write hosts, ssh_config, known_hosts",)
    assert first["gpu2"][-1] == "container's sshd: write its settings"


# --- the port


@pytest.mark.parametrize(
    "listener",
    [
        Listener("0.0.0.0", 12222, "sshd"),
        Listener("*", 12222, None),
        Listener("::", 12222, "nginx"),
        Listener("10.0.0.1", 12222, "nginx"),
    ],
)
def test_a_port_that_is_taken(listener: Listener) -> None:
    world = World(inventory())
    world.facts["gpu1"] = with_listener(bare("gpu1"), Listener("0.0.0.0", 22, "sshd"), listener)
    problem = the_problem(world.plan("gpu1"))
    assert f"is taken: {listener.process or 'a process'} listens on {listener.address}:12222" in problem.message
    assert "ssh_port: 12223" in problem.hint
    assert problem.stops == "host", "the others are set up"


def test_a_port_that_another_cluster_has() -> None:
    world = World(inventory())
    other = ContainerState("taco-launch-mine", "image", "running", ((paths.CLUSTER_LABEL, "mine"),))
    taken = with_listener(bare("gpu1"), Listener("10.0.0.1", 12222, "sshd"))
    assert isinstance(taken.docker, DockerFacts)
    world.facts["gpu1"] = replace(taken, docker=replace(taken.docker, containers=(other,)))
    problem = the_problem(world.plan("gpu1"))
    assert "is taken: the training container of cluster mine (taco-launch-mine) listens on 10.0.0.1" in problem.message
    assert "container: {ssh_port: 12223}" in problem.hint
    assert problem.hint.endswith("with its own inventory: taco-launch -i INVENTORY teardown -H gpu1")
    assert as_typed(problem.hint, "taco-launch -i ours.yaml") == problem.hint, "not this cluster's"
    of = world.cluster
    image = replace(taken.docker, containers=(other,), images=(Image("image:latest", "sha256:1", None, None),))
    (early,) = container.plan(of.host("gpu1"), replace(taken, docker=image), of)
    assert early == replace(problem, stage="container"), "no second container is made"
    stopped = replace(taken.docker, containers=(replace(other, state="exited"),))
    world.facts["gpu1"] = replace(taken, docker=stopped)
    problem = the_problem(world.plan("gpu1"))
    assert "is taken: sshd listens" in problem.message


@pytest.mark.parametrize("listener", [Listener("127.0.0.1", 12222, "nginx"), Listener("0.0.0.0", 12223, "nginx")])
def test_others_listen_elsewhere(listener: Listener) -> None:
    world = World(inventory())
    world.facts["gpu1"] = with_listener(bare("gpu1"), listener)
    assert not any(isinstance(item, Problem) for item in world.plan("gpu1"))


@pytest.mark.parametrize("process", ["nginx", "sshd"])
def test_a_stranger_takes_the_port_later(process: str) -> None:
    world = meshed(inventory())
    world.facts["gpu1"] = with_listener(world.facts["gpu1"], Listener("0.0.0.0", 12222, process))
    problem = the_problem(world.plan("gpu1"))
    assert problem.hint
    assert problem.stops == "cluster", "hosts with different ports do not reach each other"


def test_an_sshd_that_is_gone_is_waited_for() -> None:
    world = meshed(inventory())
    world.facts["gpu1"] = with_listener(world.facts["gpu1"])
    assert [op.name for op in world.plan("gpu1") if isinstance(op, Op)] == ["container's sshd: start it"]


def test_a_host_key_that_is_gone_is_made_anew_and_taken() -> None:
    world = meshed(inventory())
    made = known(world.facts["gpu2"].made)
    world.facts["gpu2"] = replace(world.facts["gpu2"], made=replace(made, host_key=Absent()))
    assert [op.name for op in world.plan("gpu2") if isinstance(op, Op)] == [
        "container's sshd: make its host key",
        "container's sshd: load the new host key",
    ]


# --- the firewall

DROPS = (Firewall("nftables", True, "nftables does not let everything in: policy drop"),)


def behind(world: World, name: str, firewalls: tuple[Firewall, ...] = DROPS) -> None:
    facts = world.facts[name]
    world.facts[name] = replace(facts, network=replace(known(facts.network), firewalls=firewalls))


def test_a_firewall_is_left_alone_unless_managed() -> None:
    world = World(inventory())
    behind(world, "gpu1")
    assert not any("firewall" in op.name for op in world.plan("gpu1") if isinstance(op, Op))
    world.converge()


def test_a_firewall_is_opened_for_the_other_hosts() -> None:
    world = World(inventory(3, firewall="manage", port_range=(40000, 61500)))
    behind(world, "gpu1")
    text = files(world, "gpu1")["firewall.new"]
    assert text == "port 12222\nport 32768-61500\nhost 10.0.0.2\nhost 10.0.0.3\n"
    (op,) = (op for op in world.plan("gpu1") if isinstance(op, Op) and op.name == firewall.OPEN)
    assert "; opened is TCP 12222, 32768-61500 (32768-60999: NCCL and Gloo listen on ports that" in op.why
    assert "firewall.new" not in files(world, "gpu2")
    world.converge()
    world.inventory = inventory(2, firewall="manage", port_range=(40000, 61500))
    assert files(world, "gpu1")["firewall.new"].endswith("61500\nhost 10.0.0.2\n")


def test_what_was_opened_is_closed_again() -> None:
    world = World(inventory(firewall="manage"))
    behind(world, "gpu1")
    world.converge()
    world.inventory = inventory()
    assert world.converge() == [{"gpu1": ("firewall: remove the rules of taco-launch",), "gpu2": ()}]


def test_a_host_alone_opens_nothing() -> None:
    world = World(inventory(1, firewall="manage"))
    behind(world, "gpu1")
    world.converge()
    assert not any("firewall" in op.name for op in world.plan("gpu1") if isinstance(op, Op))
