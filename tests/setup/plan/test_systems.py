"""What set-up plans on systems of rpm, stage by stage; one data file a case. The systems are simulated: only facts are."""

import fnmatch
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from taco_launch.core.model.host.fact_value import Absent
from taco_launch.core.model.host.facts import Disk, DockerFacts, HostFacts, Os, System
from taco_launch.core.model.host.hardware import Gpus
from taco_launch.core.model.host.hosts import DockerEngine, Host
from taco_launch.setup.model.ops import Op, PlanContext
from taco_launch.setup.plan.host_plan import HostPlan, plan_host
from taco_launch.setup.plan.stage_rules import RULES
from tests.support import docker_machine
from tests.support.docker_machine import Machine
from tests.support.training import bare, image, inventory

machine = docker_machine.machine  # a fixture is found by its name here
FOLDER = Path(__file__).parent / "cases" / "systems"
CASES = sorted(FOLDER.glob("*.yaml"))
GIB = 1 << 30


def facts(case: dict[str, Any]) -> HostFacts:
    """Return the host that a case describes; without `engine` it has none."""
    none = Absent("no unit")
    engine = case.get("engine")
    running = {"engine_unit": "enabled", "engine_active": "active", "engine_command": "/usr/bin/dockerd -H fd://"}
    found = bare("gpu1", **(running if engine is not None else dict.fromkeys(running, none)))
    system, gpu, docker = found.system, found.gpu, found.docker
    assert isinstance(system, System)
    assert isinstance(gpu, Gpus)
    assert isinstance(docker, DockerFacts)
    told = dict(case["system"])
    disks = {"/": case["disk"], **case.get("disks", {})}
    driver = {name: Absent("not loaded") if value is None else value for name, value in case.get("driver", {}).items()}
    system = replace(
        system,
        os=Os(*told.pop("os")),
        disks=tuple(Disk(path, size=100 * GIB, free=90 * GIB, **each) for path, each in disks.items()),
        **told,
    )
    if engine is None:
        return replace(found, system=system, docker=Absent("docker: not found"), gpu=_with(gpu, driver))
    images = (image(),) if engine.get("image") else ()
    docker = replace(docker, images=images, flavour=engine.get("flavour", "docker"))
    return replace(found, system=system, docker=docker, gpu=_with(gpu, driver))


def _with(gpu: Gpus, driver: dict[str, Any]) -> Gpus:
    return replace(gpu, driver=replace(gpu.driver, **driver))


def planned(case: dict[str, Any]) -> HostPlan:
    host = Host("gpu1", "10.0.0.1", user="root")
    wanted = replace(inventory(("gpu1",)), docker=DockerEngine(**case["inventory"].get("docker", {})))
    found = facts(case)
    packages = tuple((name, b"package") for name in case.get("packages", ()))
    cluster = PlanContext(wanted, {"gpu1": found}, packages=packages)
    return plan_host(host, found, cluster, RULES, tuple(case["stages"]))


def name(op: Op) -> str:
    return f"{op.stage}: {op.name.removeprefix(f'{op.stage}: ')}"


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case(path: Path) -> None:
    case = yaml.safe_load(path.read_text("utf-8"))
    made = planned(case)
    if "problem" in case:
        ((problem,), ops) = made.problems, made.ops
        assert (problem.message, bool(problem.hint), ops) == (case["problem"], True, ())
        return
    assert made.problems == ()
    names = [name(op) for op in made.ops]
    assert len(names) == len(case["plan"]), names
    assert all(fnmatch.fnmatchcase(each, wanted) for each, wanted in zip(names, case["plan"], strict=True)), names
    first = made.ops[0]
    if "args" in case:
        assert [first.args[0], first.args[-1]] == case["args"]
    assert {file.shown for file in first.files if file.shown} >= set(case.get("shown", ()))
    assert case.get("holds", "") in "".join(file.data.decode() for file in first.files)
    words = " ".join(f"{op.why} {op.name}" for op in made.ops)
    assert all(each in words for each in case.get("says", ()))
    assert not any(each in words for each in case.get("says_not", ()))


def test_every_system_and_stage_has_a_case() -> None:
    told = [yaml.safe_load(path.read_text("utf-8")) for path in CASES]
    assert {case["system"]["os"][0] for case in told} == {"centos", "rhel"}
    assert {case["system"]["package_manager"] for case in told} == {"yum", "dnf"}
    assert {stage for case in told for stage in case["stages"]} >= {
        "docker",
        "toolkit",
        "peermem",
        "image",
        "container",
    }
    assert all(case["about"] for case in told)


def test_a_release_that_is_no_longer_cared_for_is_told_where_its_packages_went(machine: Machine) -> None:
    machine.tool("yum", """echo 'Could not retrieve mirrorlist http://mirrorlist.centos.org/?release=7 error was'
    echo 'Cannot find a valid baseurl for repo: base/7/x86_64'; exit 1""")  # fmt: skip
    code, last = machine.run("docker_install.sh", "rpm", "yum", "docker")
    assert code == 1
    assert last == (
        "error: yum install: Cannot find a valid baseurl for repo: base/7/x86_64 (exit code 1); if this is CentOS: its "
        f"old releases are at vault.centos.org, which {machine.root}/etc/yum.repos.d has to name"
    )
