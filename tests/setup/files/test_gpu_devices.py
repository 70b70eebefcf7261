"""The training container's GPUs: by which way it gets them, when that changes, and when systemd would take them."""

from dataclasses import replace
from typing import Any

import pytest

from taco_launch.core.model.host.fact_value import Absent
from taco_launch.core.model.host.facts import HostFacts
from taco_launch.core.model.host.hardware import Board
from taco_launch.setup.files import gpu_devices
from taco_launch.setup.model.ops import Op
from tests.support.host_facts import known
from tests.support.training import (
    NAME,
    RDMA,
    after,
    defined,
    having,
    ops,
    plan,
    problem,
    ready,
    with_gpus,
    with_toolkit,
)

RUNTIME: dict[str, Any] = {"toolkit": "1.17.8", "toolkit_programs": ("nvidia-ctk",), "runtimes": ("nvidia", "runc")}
CDI: dict[str, Any] = {**RUNTIME, "cdi_folders": ("/etc/cdi", "/var/run/cdi")}
DEVICES = ("/dev/nvidia0", "/dev/nvidiactl")
DESCRIBES = "ExecStartPre=-/bin/sh -c 'exec nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml'"


def unit_of(found: list[Op]) -> str:
    start = found[-1]
    return next(file.data.decode() for file in start.files if file.shown.endswith(".service"))


def test_by_cdi_the_gpus_are_described_before_every_start() -> None:
    by_cdi, by_runtime = ops(having(ready(devices=DEVICES), **CDI)), ops(having(ready(devices=DEVICES), **RUNTIME))
    assert DESCRIBES in unit_of(by_cdi).splitlines()
    assert "nvidia-ctk" not in unit_of(by_runtime)
    for found in (by_cdi, by_runtime):
        assert "/dev/nvidia0 /dev/nvidiactl" in unit_of(found)


def test_another_way_is_another_container_and_said() -> None:
    facts = after(having(ready(devices=DEVICES), **RUNTIME))
    create, _start = ops(having(facts, **CDI))
    assert create.why.startswith(
        f"from now on with {gpu_devices.BY_CDI}, no longer with {gpu_devices.BY_RUNTIME}, no longer with --env={gpu_devices.VISIBLE}"
    )
    assert "its 8 GPUs by CDI" in create.why
    assert create.disrupts == "container"


@pytest.mark.parametrize("way", [RUNTIME, CDI, {"toolkit": "1.17.8"}])
def test_gpus_that_docker_has_no_more_are_no_reason_for_a_container_without(way: dict[str, Any]) -> None:
    facts = after(having(ready(devices=DEVICES), **way))
    none = having(facts, toolkit=Absent("gone"), toolkit_programs=(), runtimes=("runc",), cdi_folders=())
    assert problem(plan(none)).message == f"{NAME} was made with the GPUs, which this host does not show now"


def fewer(facts: HostFacts, *gone: int, moved: bool = False) -> HostFacts:
    left = tuple(gpu for gpu in known(known(facts.gpu).gpus) if gpu.index not in gone)
    left = tuple(replace(gpu, pci=f"0001:{gpu.pci}") for gpu in left) if moved else left
    return replace(facts, gpu=replace(known(facts.gpu), gpus=left))


SINCE = "since the last setup (the container was created with 8, and"


@pytest.mark.parametrize("way", [RUNTIME, CDI, {"toolkit": "1.17.8"}])
def test_a_gpu_that_is_gone_is_a_fault_and_no_reason_to_go_on_without(way: dict[str, Any]) -> None:
    facts = after(having(ready(devices=DEVICES), **way))
    assert plan(facts) == []
    for less, said in (
        (fewer(facts, 3), f"GPU 0000:03:00.0 is gone {SINCE} 7 are present now)"),
        (fewer(facts, 3, 5), f"GPUs 0000:03:00.0, 0000:05:00.0 are gone {SINCE} 6"),
        (fewer(facts, 3, moved=True), "1 of 8 GPUs is gone since the last setup"),
    ):
        found = problem(plan(less))
        assert found.message.startswith(f"{NAME}: {said}")
        assert "dmesg" in found.hint
        assert f"docker rm --force {NAME}" in found.hint
        assert problem(plan(less, image="train:1", shm_size="1g")) == found, "never made anew by the way"
    # a container that names its GPUs is for whoever named them, and one of a version before tells nothing
    assert plan(fewer(after(facts, env=((gpu_devices.VISIBLE, "0,1"),)), 3), env=((gpu_devices.VISIBLE, "0,1"),)) == []
    # gone on without it: the new one has seven, and the eighth returns
    seven = after(having(fewer(ready(devices=DEVICES), 3), **way))
    assert plan(seven) == []
    create, _start = ops(replace(seven, gpu=facts.gpu))
    assert create.why.startswith("it was made with 7 GPUs, and this host has 8; ")
    assert create.disrupts == "container"
    assert plan(fewer(facts, moved=True)) == [], "as many, at other places"


def test_where_the_board_shows_gpus_no_container_is_to_be_removed() -> None:
    facts = after(having(ready(devices=DEVICES), **RUNTIME))
    for board, told in ((Board(("0000:01:00.0",), (), Absent(), ()), False), (Board((), (), Absent(), ()), True)):
        none = replace(facts, gpu=replace(known(facts.gpu), gpus=(), board=board))
        assert ("docker rm --force" in problem(plan(none)).hint) == told


def test_what_the_user_says_of_visible_gpus_is_left_to_him() -> None:
    found = defined(having(ready(), **RUNTIME), env=((gpu_devices.VISIBLE, "0,1"),))
    assert gpu_devices.BY_RUNTIME in found.options
    assert not [option for option in found.options if gpu_devices.VISIBLE in option]


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
    assert ("which any `systemctl daemon-reload` removes; with CDI it keeps them" in said) == stopped
    facts = after(first, **more)
    for name, restarts in ((f"{NAME}.service", stopped), ("wait.sh", False)):
        other = tuple(
            replace(file, sha256="0" * 64) if file.path.endswith(name) else file
            for file in known(known(facts.made).files)
        )
        (start,) = ops(replace(facts, made=replace(known(facts.made), files=other)), **more)
        assert start.disrupts == ("container" if restarts else "nothing")
        assert ("the container restarts, as it would lose its GPUs" in start.why) == restarts


def test_a_container_is_not_made_anew_without_the_devices_it_has() -> None:
    facts = after(with_toolkit(ready(devices=RDMA)))
    gone = replace(facts, made=replace(known(facts.made), devices=("/dev/infiniband/rdma_cm",)))
    found = problem(plan(gone))
    assert found.message == f"{NAME} was made with /dev/infiniband/uverbs0, which this host does not show now"
    assert "is the driver loaded?" in found.hint
    assert f"docker rm --force {NAME}" in found.hint
    for without in (
        with_gpus((), facts),
        replace(facts, gpu=Absent("no driver")),
        replace(facts, docker=replace(known(facts.docker), toolkit=Absent())),
    ):
        assert "was made with the GPUs, which" in problem(plan(without)).message
    (create, _start) = ops(facts, privileged=True)
    assert create.name.startswith("recreate")
