"""The training container's GPUs: by which way it gets them, when that changes, and when systemd would take them."""

from dataclasses import replace
from typing import Any

import pytest

from taco_launch.model.facts import Docker, HostFacts, Made
from taco_launch.model.found import Absent
from taco_launch.setup import gpus
from taco_launch.setup.ops import Op
from tests.setup.test_container import NAME, after, defined, ops, plan, ready
from tests.setup.training import problem

RUNTIME: dict[str, Any] = {"toolkit": "1.17.8", "toolkit_programs": ("nvidia-ctk",), "runtimes": ("nvidia", "runc")}
CDI: dict[str, Any] = {**RUNTIME, "cdi_folders": ("/etc/cdi", "/var/run/cdi")}
DEVICES = ("/dev/nvidia0", "/dev/nvidiactl")
DESCRIBES = "ExecStartPre=-/bin/sh -c 'exec nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml'"


def having(facts: HostFacts, **docker: Any) -> HostFacts:
    assert isinstance(facts.docker, Docker)
    return replace(facts, docker=replace(facts.docker, **docker))


def unit_of(found: list[Op]) -> str:
    start = found[-1]
    return next(file.data.decode() for file in start.files if file.path.endswith(".service"))


def test_by_cdi_the_gpus_are_described_before_every_start() -> None:
    by_cdi, by_runtime = ops(having(ready(devices=DEVICES), **CDI)), ops(having(ready(devices=DEVICES), **RUNTIME))
    assert DESCRIBES in unit_of(by_cdi).splitlines()
    assert "nvidia-ctk" not in unit_of(by_runtime)
    for found in (by_cdi, by_runtime):
        assert "/dev/nvidia0 /dev/nvidiactl" in unit_of(found)


def test_another_way_is_another_container_and_said() -> None:
    facts = after(having(ready(devices=DEVICES), **RUNTIME))
    create, _start = ops(having(facts, **CDI))
    assert create.why.startswith(f"now with {gpus.BY_CDI}, without {gpus.BY_RUNTIME}, without --env={gpus.VISIBLE}")
    assert "its 8 GPUs by CDI" in create.why
    assert create.disrupts == "container"


@pytest.mark.parametrize("way", [RUNTIME, CDI, {"toolkit": "1.17.8"}])
def test_gpus_that_docker_has_no_more_are_no_reason_for_a_container_without(way: dict[str, Any]) -> None:
    facts = after(having(ready(devices=DEVICES), **way))
    none = having(facts, toolkit=Absent("gone"), toolkit_programs=(), runtimes=("runc",), cdi_folders=())
    assert problem(plan(none)).message == f"{NAME} was made with the GPUs, which this host does not show now"


def test_what_the_user_says_of_visible_gpus_is_left_to_him() -> None:
    found = defined(having(ready(), **RUNTIME), env=((gpus.VISIBLE, "0,1"),))
    assert gpus.BY_RUNTIME in found.options
    assert not [option for option in found.options if gpus.VISIBLE in option]


@pytest.mark.parametrize(
    ("way", "driver", "more", "stopped"),
    [
        (RUNTIME, "systemd", {}, True),
        ({"toolkit": "1.17.8"}, "systemd", {}, True),
        (CDI, "systemd", {}, False),
        (RUNTIME, "cgroupfs", {}, False),
        (RUNTIME, "systemd", {"privileged": True}, False),
    ],
)
def test_a_unit_that_is_read_anew_would_take_the_gpus(
    way: dict[str, Any], driver: str, more: dict[str, Any], *, stopped: bool
) -> None:
    first = having(ready(devices=DEVICES), cgroup_driver=driver, **way)
    said = ops(first, **more)[0].why
    assert ("which any `systemctl daemon-reload` takes from it; by CDI it keeps them" in said) == stopped
    facts = after(first, **more)
    assert isinstance(facts.made, Made)
    assert isinstance(facts.made.files, tuple)
    for name, restarts in ((f"{NAME}.service", stopped), ("wait.sh", False)):
        other = tuple(replace(file, sha256="0" * 64) if file.path.endswith(name) else file for file in facts.made.files)
        (start,) = ops(replace(facts, made=replace(facts.made, files=other)), **more)
        assert start.disrupts == ("container" if restarts else "nothing")
        assert ("the container starts anew, as it would lose its GPUs" in start.why) == restarts
