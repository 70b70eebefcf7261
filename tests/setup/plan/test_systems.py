"""What set-up plans on systems of rpm, stage by stage; one data file a case. The systems are simulated: only facts are."""

import fnmatch
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from taco_launch.core.model.host.fact_value import Absent, Unknown
from taco_launch.core.model.host.facts import Disk, DockerFacts, HostFacts, Os, System
from taco_launch.core.model.host.hardware import Adapters, Board, Gpus, Rdma
from taco_launch.core.model.host.hosts import Container, DockerEngine, Host, Inventory, Network
from taco_launch.hosts.gather_facts import with_declared_values
from taco_launch.setup.model.ops import Op, PlanContext, Problem, StageRules
from taco_launch.setup.plan.host_plan import HostPlan, faults, plan_host
from taco_launch.setup.plan.stage_rules import RULES, STAGES
from tests.support import docker_machine
from tests.support.docker_machine import Machine
from tests.support.host_facts import host, known
from tests.support.raisers import raiser
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


# --- Drivers that are missing, or loaded unlike installed, are told before any stage; what is right, or unknown, is not


NONE = Absent()
BOARD = Board(("0000:1b:00.0", "0000:1c:00.0"), (), NONE, ())
OFED = "MLNX_OFED_LINUX-5.4-1.0.3.0"
LOST = "GPU is lost.  Reboot the system to recover this GPU"
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch"


def of(driver: dict[str, Any] | None = None, **gpu: Any) -> HostFacts:
    facts = host("gpu1")
    return replace(
        facts,
        gpu=replace(
            known(facts.gpu), **{"board": BOARD, "driver": replace(known(facts.gpu).driver, **(driver or {})), **gpu}
        ),
    )


def rdma(loaded: Any, installed: Any, ofed: Any = OFED, *, dmabuf: bool = False, **more: Any) -> HostFacts:
    facts = of()
    memory = replace(known(facts.rdma).peer_memory, dmabuf=dmabuf)
    adapters = Adapters(("0000:1a:00.0",), loaded, installed)
    return replace(facts, rdma=replace(known(facts.rdma), ofed=ofed, adapters=adapters, peer_memory=memory, **more))


def told(facts: HostFacts, gpus: str = "auto", **network: Any) -> list[Problem]:
    one = Host("gpu1", "10.0.0.1", gpus=gpus)
    return list(
        faults(
            with_declared_values(facts, one), Inventory("c", "gpu1", (one,), Container("i"), network=Network(**network))
        )
    )


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (of({"loaded": NONE}), "the NVIDIA driver 535.104.05 is installed but not loaded"),
        (of({"loaded": NONE, "installed": NONE}, gpus=Unknown("x")), "2 NVIDIA GPUs are on PCI, and no driver is inst"),
        (of({"loaded": NONE, "installed": Unknown("odd")}, gpus=NONE), "are on PCI, and no driver is loaded (the driver version installed on the disk is not known: odd)"),
        (of({"installed": "550.54.15"}), "Driver/library version mismatch: the kernel runs NVIDIA driver 535.104.05, and"),
        (of(gpus=Unknown(MISMATCH)), f"{MISMATCH}: the kernel runs NVIDIA driver 535.104.05, but the installed libraries"),
        (of(gpus=Unknown("x"), lost=(f"GPU 0000:1C:00.0: {LOST}",)), f"GPU 0000:1C:00.0: {LOST}"),
        (of(gpus=Absent("nvidia-smi: not found")), "535.104.05 is loaded, but its programs (such as nvidia-smi) are missing: nvidia-smi: not"),
        (rdma("5.4-1.0.3", "5.8-2.0.3"), "mlx5_core on the disk is 5.8-2.0.3: OFED has no modules for the running kernel"),
        (rdma("5.0-0", "5.0-0"), "mlx5_core on the disk is 5.0-0"),
        (rdma("untold", "untold"), "mlx5_core on the disk is the one from the kernel"),
        (rdma("5.1-2.5.8", "5.4-1.0.3"), f"OFED is {OFED}, but the loaded mlx5_core is 5.1-2.5.8"),
        (rdma(NONE, "5.4-1.0.3", hcas=NONE), f"1 RDMA adapter is on PCI, OFED is {OFED}, and there is no RDMA device"),
        (rdma("5.4-1.0", "5.4-1.0.3", ofed="MLNX_OFED_LINUX-5.4-1.0.30.0"), "on the disk is 5.4-1.0.3"),
    ],
)  # fmt: skip
def test_faults(facts: HostFacts, words: str) -> None:
    (problem,) = told(facts)
    assert words in problem.message
    assert problem.stage == "hardware"
    assert problem.hint


def test_what_is_in_the_way_of_the_driver_is_told() -> None:
    bare = of({"loaded": NONE})
    secure = replace(
        bare, rdma=replace(known(bare.rdma), peer_memory=replace(known(bare.rdma).peer_memory, secure_boot=True))
    )
    (plain,), (signed,) = told(bare), told(secure)
    assert "unsigned|rejected" in plain.hint
    assert "Secure Boot" not in plain.message + plain.hint
    assert "not loaded, and Secure Boot is on" in signed.message
    assert "mokutil --import" in signed.hint


def test_peer_memory_is_unloaded_before_ofed_is_restarted() -> None:
    old = rdma("5.1-2.5.8", "5.4-1.0.3")
    assert isinstance(old.rdma, Rdma)
    for loaded, words in ((NONE, "there: /etc/init"), ("nv_peer_mem", "there: rmmod nv_peer_mem; /etc/init")):
        facts = replace(old, rdma=replace(old.rdma, peer_memory=replace(old.rdma.peer_memory, loaded=loaded)))
        assert words in told(facts)[0].hint
    memory = replace(old.rdma.peer_memory, exists=("nvidia_peermem",))
    (problem,) = told(replace(old, rdma=replace(old.rdma, peer_memory=memory)))
    assert (
        "nvidia_peermem was built against the previous OFED and may not load with this one: then install"
        in problem.hint
    )


@pytest.mark.parametrize(
    "facts",
    [
        of(),
        of({"loaded": NONE, "installed": NONE}, board=replace(BOARD, gpus=())),
        of({"installed": Absent("modinfo: not found")}),  # the driver may come from a container
        of({"installed": Unknown("cut off")}, gpus=Unknown("nvidia-smi gave no answer")),
        replace(of(), gpu=Absent("neither nvidia-smi nor a driver is there")),
        rdma("5.4-1.0.3", "5.4-1.0.3"),
        rdma("MLNX_OFED_LINUX-5.4-1.0.3.0", "MLNX_OFED_LINUX-5.4-1.0.3.0"),
        rdma("untold", "untold", dmabuf=True),
        rdma("5.4-1.0.3", Absent("modinfo: not found")),
        rdma("5.0-0", "5.0-0", ofed=NONE),
        rdma(NONE, NONE, ofed=NONE, hcas=NONE),
        rdma(NONE, NONE, ofed=Unknown("cut off"), hcas=Unknown("cut off")),
    ],
)
def test_what_is_right_or_not_known_is_no_fault(facts: HostFacts) -> None:
    assert told(facts) == []


def test_the_inventory_says_what_is_used() -> None:
    assert told(of({"loaded": NONE}), gpus="none") == []
    assert told(rdma("5.0-0", "5.0-0"), rdma="off") == []
    bare = rdma(NONE, NONE, ofed=NONE, hcas=NONE)
    assert "no RDMA device and no OFED, and the inventory has network.rdma: on" in told(bare, rdma="on")[0].message
    own = rdma("untold", "untold", ofed=NONE)
    assert "no OFED is installed, the inventory has network.gdr: on" in told(own, gdr="on")[0].message
    assert told(rdma("untold", "untold", ofed=NONE, dmabuf=True), gdr="on") == []


def test_nothing_is_planned_on_a_host_with_a_fault() -> None:
    one = Host("gpu1", "10.0.0.1")
    cluster = PlanContext(Inventory("c", "gpu1", (one,), Container("i")), {})
    never = raiser(AssertionError())
    made = plan_host(one, of({"loaded": NONE}), cluster, dict.fromkeys(STAGES, StageRules((), never)))
    assert (made.ops, [problem.stage for problem in made.problems], made.empty) == ((), ["hardware"], False)
