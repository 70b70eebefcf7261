"""The container stage: what a container is made of, when it is made anew, and what keeps it up."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from taco_launch.core.model.host import paths
from taco_launch.core.model.host.fact_value import NOT_ASKED, Absent, Unknown
from taco_launch.core.model.host.facts import ContainerState, HostFacts, ProcessLimits
from taco_launch.setup import scripts
from taco_launch.setup.model.ops import PlanContext, Problem
from taco_launch.setup.stages import container as stage
from tests.support.host_facts import known
from tests.support.training import (
    NAME,
    RDMA,
    TWO,
    after,
    bare,
    cluster,
    defined,
    having,
    image,
    inventory,
    ops,
    plan,
    problem,
    ready,
    with_gpus,
    with_toolkit,
)


def options(facts: HostFacts, **container: Any) -> list[str]:
    return [option for option in defined(facts, **container).options if not option.startswith(("--mount", "--env"))]


# --- what it is made of


def test_the_guides_options_with_the_least_privileges() -> None:
    assert options(with_toolkit(ready(devices=(*RDMA, "/dev/nvidia0")))) == [
        "--entrypoint=/bin/sh",
        "--user=0",
        "--network=host",
        f"--shm-size={32 << 30}",
        "--ulimit=memlock=-1:-1",
        "--ulimit=stack=67108864:67108864",
        "--gpus=all",
        "--cap-drop=MKNOD",
        "--cap-drop=NET_RAW",
        "--cap-add=IPC_LOCK",
        "--device=/dev/infiniband/rdma_cm",
        "--device=/dev/infiniband/uverbs0",
        "--tmpfs=/run/taco-launch:mode=0700,size=16777216",
        "--log-driver=local",
    ]


def test_the_arguments_end_with_the_image_and_our_main_process() -> None:
    made = defined(ready())
    assert made.argv[-2:] == ("train:1", "/var/lib/taco-launch/clusters/hcc/main.sh")
    assert f"--label=taco-launch.definition={made.digest}" in made.argv
    assert "--label=taco-launch.cluster=hcc" in made.argv
    assert "--label=taco-launch.image=train:1" in made.argv


def test_mounts_and_variables() -> None:
    made = defined(
        ready(), mounts=(("/data", "/data", "ro"), ('/a,"b', "/c", "rw")), env=(("HF_HOME", "/data/x y"), ("A", "b=#c"))
    )
    state = "/var/lib/taco-launch"
    assert [option for option in made.options if option.startswith(("--mount", "--env"))] == [
        f"--mount=type=bind,source={state}/containers/hcc,target={state}/containers/hcc",
        f"--mount=type=bind,source={state}/agent,target={state}/agent,readonly",
        f"--mount=type=bind,source={state}/clusters/hcc,target={state}/clusters/hcc,readonly",
        "--mount=type=bind,source=/run/taco-launch/leases,target=/run/taco-launch/leases",
        "--mount=type=bind,source=/var/lib/taco-launch/clusters/hcc/hosts,target=/etc/hosts,readonly",
        "--mount=type=bind,source=/var/lib/taco-launch/clusters/hcc/ssh/ssh_config,target=/etc/ssh/ssh_config,readonly",
        "--mount=type=bind,source=/data,target=/data,readonly",
        '--mount=type=bind,"source=/a,""b",target=/c',
        "--env=TACO_LAUNCH_CLUSTER=hcc",
    ]
    (file,) = made.files
    assert (file.data, file.mode, file.secret) == (b"HF_HOME=/data/x y\nA=b=#c\n", 0o600, True)
    assert f"--env-file={file.path}" in made.argv


def test_privileged_is_there_and_said() -> None:
    made = defined(ready(devices=RDMA), privileged=True)
    assert "--privileged" in made.options
    assert not [option for option in made.options if option.startswith(("--cap-add", "--device"))]
    assert made.devices == ("/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs0")
    assert "privileged: it may do whatever the host's root may" in made.remarks


def test_a_host_that_lacks_what_privileged_means_is_told_so() -> None:
    found = problem(plan(ready(capabilities=("IPC_LOCK", "SYS_ADMIN", "SYS_MODULE", "SYS_RAWIO")), privileged=True))
    assert found.message == f"{NAME}: a privileged container needs SYS_RESOURCE, which this host does not have"
    assert "container.privileged" in found.hint


def test_what_the_host_cannot_give_is_left_out_and_named() -> None:
    facts = ready(capabilities=("SYS_PTRACE",), memlock=8 << 20)
    made = defined(facts, sys_ptrace=True)
    assert "--cap-add=SYS_PTRACE" in made.options
    assert "--cap-add=IPC_LOCK" not in made.options
    assert "--ulimit=stack=67108864:67108864" in made.options
    assert not [option for option in made.options if "memlock" in option]
    first, _second = ops(facts)
    assert "without the capability IPC_LOCK, which this host does not have" in first.why
    assert (
        "memlock stays at 8388608 instead of unlimited: this host does not have the capability SYS_RESOURCE; TCP works"
        in first.why
    )
    assert "start it with --ulimit memlock=-1" in first.why


@pytest.mark.parametrize(
    ("hard", "limit", "given"),
    [(None, -1, True), (100, 100, True), (100, 101, False), (100, -1, False), (100, 0, True)],
)
def test_a_limit_below_the_hosts_own_needs_no_capability(hard: int | None, limit: int, *, given: bool) -> None:
    facts = ready(capabilities=(), memlock=hard)
    assert (f"--ulimit=memlock={limit}:{limit}" in options(facts, ulimits=(("memlock", limit),))) is given


def test_other_limits_are_compared_as_well() -> None:
    facts = ready(capabilities=())
    facts = replace(facts, system=replace(known(facts.system), limits=(ProcessLimits("nofile", 1024, 4096),)))
    assert not [option for option in options(facts, ulimits=(("nofile", 5000),)) if "nofile" in option]
    assert "--ulimit=nofile=4096:4096" in options(facts, ulimits=(("nofile", 4096),))


def test_unknown_capabilities_are_taken_to_be_there() -> None:
    facts = ready(capabilities=Unknown("no"), memlock=8 << 20)
    assert {"--cap-add=IPC_LOCK", "--ulimit=memlock=-1:-1"} <= set(options(facts))
    assert not [each for each in plan(facts, privileged=True) if isinstance(each, Problem)]


def test_selinux_does_not_confine_it_and_that_is_said() -> None:
    facts = ready()
    facts = replace(facts, system=replace(known(facts.system), selinux="enforcing"))
    assert "--security-opt=label=disable" in options(facts)
    assert "SELinux does not confine it (label=disable)" in ops(facts)[0].why


def test_gpus_take_the_toolkit() -> None:
    facts = ready(devices=("/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl"))
    assert "--gpus=all" not in options(facts)
    assert defined(facts).devices == ()
    assert "without its 8 GPUs: docker has no NVIDIA container toolkit" in ops(facts)[0].why
    cdi = {"toolkit": "1.17.0", "toolkit_programs": ("nvidia-ctk",), "cdi_folders": ("/etc/cdi",)}
    for way, wanted in (
        ({"toolkit": "1.17.0"}, ["--gpus=all"]),
        ({"runtimes": ("nvidia", "runc")}, ["--runtime=nvidia", "--env=NVIDIA_VISIBLE_DEVICES=all"]),
        (
            {"toolkit": "1.17.0", "runtimes": ("nvidia", "runc")},
            ["--runtime=nvidia", "--env=NVIDIA_VISIBLE_DEVICES=all"],
        ),
        ({**cdi, "runtimes": ("nvidia", "runc")}, ["--device=nvidia.com/gpu=all"]),
        ({**cdi, "toolkit": "1.11.0"}, ["--gpus=all"]),
        ({**cdi, "cdi_folders": ()}, ["--gpus=all"]),
    ):
        given = having(facts, **way)
        found = [option for option in defined(given).options if re.search("gpu|nvidia|NVIDIA", option)]
        assert found == wanted, way
        assert re.search("its 8 GPUs by (CDI|docker's hook|the runtime nvidia)", ops(given)[0].why)
        assert defined(given).devices == ("/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl")
    none = replace(with_toolkit(facts), gpu=Absent("none"))
    assert "--gpus=all" not in options(none)


# --- devices that cannot be read, or do not exist now


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        (
            with_gpus(Unknown("nvidia-smi: exit code 124")),
            "GPUs of this host cannot be read: nvidia-smi: exit code 124",
        ),
        (replace(ready(), gpu=Unknown("cut off")), "the GPUs of this host cannot be read: cut off"),
        (ready(devices=Unknown("ls: no")), "the devices of this host cannot be read: ls: no"),
    ],
)
def test_what_cannot_be_read_is_not_taken_for_none(facts: HostFacts, message: str) -> None:
    found = problem(plan(facts))
    assert found.message.startswith(f"{NAME}: ")
    assert message in found.message
    assert "is the driver loaded?" in found.hint


def test_a_toolkit_that_cannot_be_read_is_told_once_the_engine_is_there() -> None:
    facts = ready()
    unread = having(facts, toolkit=Unknown("it hangs"))
    assert "container toolkit cannot be read: it hangs" in problem(plan(unread)).message
    assert len(ops(having(unread, version=Absent("installed first")))) == 2
    assert len(ops(with_gpus((), unread))) == 2
    assert "--runtime=nvidia" in options(having(unread, runtimes=("nvidia",)))


def test_what_nobody_asked_for_is_no_problem() -> None:
    assert len(ops(replace(ready(), gpu=NOT_ASKED))) == 2


# --- when it is made, and made anew


def test_a_bare_host_gets_it_and_then_there_is_nothing_to_do() -> None:
    create, start = ops(ready())
    assert (create.name, create.disrupts) == (f"create {NAME} from train:1", "nothing")
    assert create.args[:5] == (NAME, "taco-launch_hcc", f"{NAME}.service", "hcc", paths.folder("hcc"))
    assert create.args[5:7] == (paths.state("hcc"), paths.secrets_file("hcc"))
    assert create.args[7:] == ("train:1", "mpirun", "0", "", *defined(ready()).argv)
    with_data = ops(ready(), mounts=(("/m", "/m", "ro"),), data=(("/a b", "/x", "ro"), ("/c", "/c", "rw")))[0].args
    assert with_data[9:13] == ("2", "", "ro:/a b", "rw:/c")
    assert start.name == f"start {NAME}.service"
    assert [file.path for file in start.files] == [
        "/var/lib/taco-launch/clusters/hcc/main.sh",
        "/etc/taco-launch/hcc/wait.sh",
        "/etc/taco-launch/hcc/unit.new",
    ]
    assert start.args == (NAME, f"{NAME}.service", f"/etc/systemd/system/{NAME}.service", start.files[2].path)
    assert start.files[2].shown == start.args[2]
    assert start.why == (
        "to be written: main.sh, wait.sh, taco-launch-hcc.service; it does not start at boot; "
        "the container is not running under this unit"
    )
    assert plan(after(ready())) == []


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"shm_size": 1 << 30}, f"from now on with --shm-size={1 << 30}, no longer with --shm-size={32 << 30}"),
        ({"env": (("TOKEN", "geheim"),)}, "from now on with --env=TOKEN"),
        ({"mounts": (("/d", "/d", "ro"),)}, "from now on with --mount=type=bind,source=/d,target=/d,readonly"),
        ({"image": "train:2"}, "it was made from train:1"),
    ],
)
def test_another_definition_is_another_container(change: Any, why: str) -> None:
    facts = having(after(ready()), images=(image(), image("train:2", TWO)))
    create, start = ops(facts, **change)
    assert create.why.split("; ")[0] == why
    assert (create.name.split()[0], create.disrupts) == ("recreate", "container")
    assert start.files == ()
    assert "geheim" not in create.why
    assert plan(after(facts, **change), **change) == []


def test_another_image_of_the_same_name_is_another_container() -> None:
    moved = having(after(ready()), images=(image(identity=TWO),))
    assert ops(moved)[0].why.startswith("its image or its main.sh has changed")


def test_the_same_image_by_another_name_is_another_container() -> None:
    """Jobs are refused while the containers were created from another name than the inventory's."""
    facts = having(after(ready()), images=(image(), image("train:2")))
    assert ops(facts, image="train:2")[0].why.startswith("it was made from ")


def test_another_main_process_is_another_container(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = after(ready())
    monkeypatch.setattr(scripts, "text", lambda name: f"another {name}")
    create, start = ops(facts)
    assert create.why.startswith("its image or its main.sh has changed")
    assert [file.path.rpartition("/")[2] for file in start.files] == ["main.sh", "wait.sh"]


def test_another_port_profile_or_host_is_the_same_container() -> None:
    facts = after(ready())
    assert plan(facts, ssh_port=2222, provides=("lightcc",)) == []
    of = PlanContext(inventory(("gpu1", "gpu2", "gpu3")), {"gpu1": facts})
    assert list(stage.plan(of.host("gpu1"), facts, of)) == []


def test_labels_that_cannot_be_read_mean_another_container() -> None:
    for text in ("", "nonsense", "[1, null]", '"text"', "{}", "3"):
        labels = {paths.CLUSTER_LABEL: "hcc", paths.IMAGE_LABEL: "train:1", "taco-launch.options": text}
        there = ContainerState(NAME, "train:1", "running", tuple(labels.items()))
        assert ops(ready(containers=[there]))[0].name.startswith("recreate")


def test_the_options_are_kept_as_text_that_can_be_read() -> None:
    made = defined(ready())
    assert tuple(json.loads(dict(made.labels)["taco-launch.options"])) == made.options


@pytest.mark.parametrize("labels", [(), ((paths.CLUSTER_LABEL, "other"),)])
def test_a_container_of_somebody_else_is_never_touched(labels: Any) -> None:
    found = problem(plan(ready(containers=[ContainerState(NAME, "web:1", "exited", labels)])))
    assert found.message == f"a container {NAME} is there that taco-launch did not make (image web:1, exited)"
    assert f"docker rename {NAME} NEW" in found.hint


# --- what keeps it up


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"enabled": False}, "it does not start at boot"),
        ({"unit": "failed"}, "the container is not running under this unit"),
        ({"files": ()}, "to be written: main.sh, wait.sh, taco-launch-hcc.service"),
    ],
)
def test_what_is_wrong_with_the_unit_is_put_right_without_a_new_container(change: Any, why: str) -> None:
    facts = after(ready())
    broken = replace(facts, made=replace(known(facts.made), **change))
    (start,) = ops(broken)
    assert (start.why, start.disrupts) == (why, "nothing")
    assert plan(start.expect(broken)) == []


def test_a_container_that_does_not_run_is_started() -> None:
    facts = after(ready())
    stopped = tuple(replace(each, state="exited") for each in known(known(facts.docker).containers))
    facts = having(facts, containers=stopped)
    assert [each.name for each in ops(facts)] == [f"start {NAME}.service"]


def test_a_mode_that_was_changed_is_put_right() -> None:
    facts = after(ready())
    loose = tuple(replace(file, mode=0o666) for file in known(known(facts.made).files))
    assert len(ops(replace(facts, made=replace(known(facts.made), files=loose)))[0].files) == 3


# --- what is not known


def test_without_an_image_there_is_nothing_to_make() -> None:
    assert "train:1 is not here" in problem(plan(bare())).message


@pytest.mark.parametrize("subject", ["docker", "made", "containers"])
def test_what_is_not_known_is_told(subject: str) -> None:
    facts, why = ready(), Unknown("no such luck")
    facts = having(facts, containers=why) if subject == "containers" else replace(facts, **{subject: why})  # type: ignore[arg-type]
    assert "no such luck" in problem(plan(facts)).message


def test_without_a_container_in_the_inventory_there_is_nothing_to_do() -> None:
    of = cluster(ready())
    of = replace(of, inventory=replace(of.inventory, container=None))
    assert list(stage.plan(of.host("gpu1"), of.facts["gpu1"], of)) == []
