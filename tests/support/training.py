"""Hosts for tests of the image and container stages, and set-up applied to them on paper."""

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

from taco_launch.core.model.host.fact_value import Absent
from taco_launch.core.model.host.facts import ContainerState, HostFacts, Image, SetupState
from taco_launch.core.model.host.hosts import Container, Host, Inventory
from taco_launch.setup.files.container_definition import Definition, define
from taco_launch.setup.model.ops import Op, PlanContext, Problem
from taco_launch.setup.stages import container as stage
from tests.support.host_facts import host, known

ALL = ("IPC_LOCK", "SYS_ADMIN", "SYS_MODULE", "SYS_PTRACE", "SYS_RAWIO", "SYS_RESOURCE")
ONE, TWO = "sha256:" + "1" * 64, "sha256:" + "2" * 64


def made(**of: Any) -> SetupState:
    none = Absent()
    given: dict[str, Any] = dict.fromkeys((field.name for field in fields(SetupState)), none)
    return SetupState(**{**given, "files": (), "devices": (), "capabilities": ALL, "memlock": None, **of})


def bare(name: str = "gpu1", *images: Image, containers: Iterable[ContainerState] = (), **of: Any) -> HostFacts:
    """Return a host with an engine, GPUs that it hands to no container, and nothing of ours."""
    facts = host(name, made=made(**of))
    return replace(facts, docker=replace(known(facts.docker), images=images, containers=tuple(containers)))


def having(facts: HostFacts, **docker: Any) -> HostFacts:
    """Return a host of whose engine something else is told."""
    return replace(facts, docker=replace(known(facts.docker), **docker))


def image(reference: str = "train:1", identity: str = ONE, digest: str | None = None, size: int | None = None) -> Image:
    return Image(reference, identity, digest, size)


def inventory(names: Iterable[str] = ("gpu1", "gpu2"), head: str = "gpu1", **container: Any) -> Inventory:
    hosts = tuple(Host(name, f"10.0.0.{number}", user="root") for number, name in enumerate(names, 1))
    return Inventory("hcc", head, hosts, Container(**{"image": "train:1", **container}))


def cluster(*facts: HostFacts, head: str = "gpu1", container: dict[str, Any] | None = None, **of: Any) -> PlanContext:
    names = [each.host for each in facts]
    return PlanContext(inventory(names, head, **(container or {})), {each.host: each for each in facts}, **of)


def op(found: Iterable[Op | Problem]) -> Op:
    (one,) = found
    assert isinstance(one, Op), one
    return one


def problem(found: Iterable[Op | Problem]) -> Problem:
    (one,) = found
    assert isinstance(one, Problem), one
    return one


def ready(*, name: str = "gpu1", containers: Any = (), **of: Any) -> HostFacts:
    """Return a host that has the image."""
    return bare(name, image(), containers=containers, **of)


def defined(facts: HostFacts, **container: Any) -> Definition:
    of = inventory(["gpu1"], **container)
    assert of.container is not None
    found = define(of, of.container, facts)
    assert found is not None
    return found


NAME = "taco-launch-hcc"


RDMA = ("/dev/infiniband/issm0", "/dev/infiniband/rdma_cm", "/dev/infiniband/umad0", "/dev/infiniband/uverbs0")


def with_toolkit(facts: HostFacts) -> HostFacts:
    return having(facts, toolkit="1.17.0")


def plan(facts: HostFacts, **container: Any) -> list[Op | Problem]:
    of = cluster(facts, container=container)
    return list(stage.plan(of.host("gpu1"), facts, of))


def ops(facts: HostFacts, **container: Any) -> list[Op]:
    found = plan(facts, **container)
    assert all(isinstance(each, Op) for each in found), found
    return [each for each in found if isinstance(each, Op)]


def after(facts: HostFacts, **container: Any) -> HostFacts:
    for each in ops(facts, **container):
        facts = each.expect(facts)
    return facts


def with_gpus(gpus: Any, facts: HostFacts | None = None) -> HostFacts:
    facts = facts or with_toolkit(ready())
    return replace(facts, gpu=replace(known(facts.gpu), gpus=gpus))
