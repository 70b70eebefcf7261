"""The peermem stage's decisions: every host in `cases/peermem` gets the plan beside it; and what holds for all hosts."""

import json
from collections.abc import Iterable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.core.facts.rdma.peermem import MODULES, SERVICE, dmabuf
from taco_launch.core.model.host import paths
from taco_launch.core.model.host.fact_value import Absent, Unknown
from taco_launch.core.model.host.facts import ContainerState, HostFacts, SetupFile
from taco_launch.core.model.host.hardware import GpuProcess, PeerMemory
from taco_launch.core.model.host.hosts import Host, Network, Peermem
from taco_launch.hosts.gather_facts import with_declared_values
from taco_launch.setup.model.ops import Op, PlanContext, Problem
from taco_launch.setup.stages.peermem import plan
from tests.support.training import bare, inventory

FOLDER = Path(__file__).parent / "cases" / "peermem"
CASES = sorted(FOLDER.glob("*.json"))
KEYS = {
    "driver", "kernel", "open", "manager", "ofed", "exists", "loaded", "at_boot", "blocked", "ours", "headers",
    "secure_boot", "hcas", "gpus", "host_gpus", "fabric", "gdr", "rdma", "use", "package", "packages", "nccl", "running", "processes",
    "disrupt", "marked", "options", "plan",
}  # fmt: skip


def facts_of(**of: Any) -> HostFacts:
    """Return a host as a case describes it."""
    kernel, driver, loaded = of["kernel"], of["driver"], tuple(of.get("loaded", ()))
    at_boot = tuple((place, module) for place, module in of.get("at_boot", ()))
    files: tuple[SetupFile, ...] = ()
    if of.get("ours"):
        at_boot = ((paths.PEERMEM, of["ours"]), *at_boot)
        text = f"# by taco-launch setup\n{of['ours']}\n"
        files = (SetupFile(paths.PEERMEM, sha256(text.encode()).hexdigest(), 0o644),)
    if of.get("marked"):
        files = (*files, SetupFile(paths.NV_PEER_MEM, sha256(b"").hexdigest(), 0o600))
    if of.get("options"):
        text = "# by taco-launch setup\noptions nvidia_peermem peerdirect_support=1\n"
        files = (*files, SetupFile(paths.PEERMEM_OPTIONS, sha256(text.encode()).hexdigest(), 0o644))
    one: dict[Any, Any] = {(): Absent("none is loaded"), MODULES: Unknown("both are loaded")}
    peer = PeerMemory(
        Unknown("modinfo: not found") if of.get("exists", ()) is None else tuple(of.get("exists", ())),
        one.get(loaded) or loaded[0],
        at_boot[0][0] if at_boot else Absent(),
        (),
        dmabuf(kernel, "NVIDIA UNIX Open Kernel Module" if of.get("open") else "NVIDIA UNIX x86_64 Kernel Module"),
        at_boot,
        tuple((place, module) for place, module in of.get("blocked", ())),
        of.get("headers", True),
        of.get("secure_boot", False),
    )
    running = tuple(ContainerState(name, "image", "running", ()) for name in of.get("running", ()))
    processes = tuple(GpuProcess("GPU-1", pid, "python", None) for pid in range(of.get("processes", 0)))
    facts = bare(containers=running, files=files)
    system: Any = facts.system
    gpu: Any = facts.gpu
    rdma: Any = facts.rdma
    port = replace(rdma.hcas[0].ports[0], link_layer=of.get("fabric", "Ethernet"))
    return replace(
        facts,
        system=replace(system, kernel=kernel, package_manager=of["manager"]),
        gpu=replace(
            gpu,
            driver=replace(gpu.driver, loaded=driver, installed=driver),
            gpus=gpu.gpus[: of.get("gpus", 8)],
            processes=processes,
        ),
        rdma=replace(
            rdma,
            hcas=(replace(rdma.hcas[0], ports=(port,)),)[: of.get("hcas", 1)],
            ofed=of["ofed"] or Absent("ofed_info: not found"),
            peer_memory=peer,
            modules=loaded,
        ),
    )


def cluster_of(facts: HostFacts, **of: Any) -> PlanContext:
    hosts = replace(
        inventory(),
        source="hosts.yaml",
        network=Network(gdr=of.get("gdr", "auto"), rdma=of.get("rdma", "auto")),
        peermem=Peermem(of.get("use", "auto"), of.get("package"), "/debs" if "packages" in of else None),
        versions=(("nccl", of["nccl"]),) if of.get("nccl") else (),
    )
    packages = tuple((name, b"") for name in of.get("packages", ()))
    return PlanContext(hosts, {facts.host: facts}, of.get("disrupt", "nothing"), peermem_packages=packages)


def planned(**of: Any) -> list[Op | Problem]:
    host = Host("gpu1", "10.0.0.1", gpus=of.get("host_gpus", "auto"))
    facts = with_declared_values(facts_of(**of), host)
    return list(plan(host, facts, cluster_of(facts, **of)))


def told(found: Iterable[Op | Problem]) -> list[str]:
    return [
        f"{each.name} ({each.why})" if isinstance(each, Op) else f"PROBLEM {each.message} -> {each.hint}"
        for each in found
    ]


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_case(case: Path) -> None:
    of = json.loads(case.read_text("utf-8"))
    assert set(of) <= KEYS
    found = told(planned(**of))
    assert found == of["plan"]


def test_whatever_keeps_the_module_out_one_may_go_on_without() -> None:
    of = {"kernel": "5.15.0-91-generic", "driver": "535.104.05", "ofed": "MLNX_OFED_LINUX-5.4-1.0.3.0"}
    found = planned(**of, manager="apt-get", exists=["nvidia_peermem"])
    (load,) = (each for each in found if isinstance(each, Op) and each.name == "load nvidia_peermem")
    hints = [word.partition("\nhint: ")[2] for word in load.args[2:]]
    assert len(hints) == 4
    assert all(hint.endswith("; or turn GPUDirect RDMA off in the inventory: network: {gdr: off}") for hint in hints)


def test_after_a_module_in_use_a_reboot_alone_changes_nothing() -> None:
    of = {"kernel": "5.15.0-91-generic", "driver": "535.104.05", "ofed": "MLNX_OFED_LINUX-5.4-1.0.3.0"}
    found = planned(**of, manager="apt-get", exists=MODULES, loaded=["nv_peer_mem"], use="nvidia_peermem")
    (load,) = (each for each in found if isinstance(each, Op) and "in place of nv_peer_mem" in each.name)
    assert (
        "or reboot gpu1, then run this command again, because only that changes what is loaded at boot" in load.args[-1]
    )


# --- what holds for all hosts -----------------------------------------------------------------------------------------

MODULE = st.sampled_from(MODULES)
SOMEWHERE = st.tuples(st.sampled_from(["/etc/rc.local", "/etc/modules-load.d/a.conf"]), MODULE)
PLACES = st.lists(SOMEWHERE | st.just((SERVICE, "nv_peer_mem")), max_size=2, unique=True)
HOSTS = st.fixed_dictionaries(
    {
        "driver": st.sampled_from(["418.226.00", "450.80.02", "470.82.01", "535.104.05", "580.65.06"]),
        "kernel": st.sampled_from(["3.10.0-957.el7.x86_64", "5.11.0-1-generic", "5.12.0", "6.8.0-31-generic"]),
        "open": st.booleans(),
        "manager": st.sampled_from(["apt-get", "yum", "dnf", "zypper", "none"]),
        "ofed": st.sampled_from([None, "MLNX_OFED_LINUX-4.9-2.2.4.0", "MLNX_OFED_LINUX-5.4-1.0.3.0"]),
        "exists": st.sampled_from([(), *((each,) for each in MODULES), MODULES]),
        "loaded": st.sampled_from([(), *((each,) for each in MODULES), MODULES]),
        "at_boot": PLACES,
        "blocked": PLACES,
        "ours": st.sampled_from(["", *MODULES]),
        "marked": st.booleans(),
        "options": st.booleans(),
        "headers": st.booleans(),
        "secure_boot": st.booleans(),
        "hcas": st.integers(0, 1),
        "gpus": st.sampled_from([0, 8]),
        "gdr": st.sampled_from(["auto", "on", "off"]),
        "rdma": st.sampled_from(["auto", "on", "off"]),
        "use": st.sampled_from(["auto", "off", "dmabuf", *MODULES]),
        "nccl": st.sampled_from([None, "2.9.9", "2.13", "2.21.5"]),
        "running": st.lists(st.just("a"), max_size=1),
        "processes": st.integers(0, 2),
        "disrupt": st.sampled_from(["nothing", "docker", "host"]),
    }
)


def after(facts: HostFacts, found: Iterable[Op | Problem]) -> HostFacts:
    for each in found:
        if isinstance(each, Op):
            facts = each.expect(facts)
    return facts


@given(HOSTS)
def test_what_holds_for_every_host(of: dict[str, Any]) -> None:
    found = planned(**of)
    ops = [each for each in found if isinstance(each, Op)]
    problems = [each for each in found if isinstance(each, Problem)]
    if "off" in (of["gdr"], of["rdma"], of["use"]) or not of["hcas"] or not of["gpus"]:
        assert found == []
        return
    assert all(each.stage == "peermem" for each in found)
    assert all(op.why for op in ops), "nothing is done without a reason"
    assert all(each.message and each.hint for each in problems), "nor refused without what to do"
    if problems:
        assert len(found) == 1, "what is refused is not started"
        return
    facts = facts_of(**of)
    left = after(facts, found)
    rdma: Any = left.rdma
    peer = rdma.peer_memory
    swapped = [op for op in ops if "in place of" in op.name or op.name.startswith("unload")]
    if swapped and (of["running"] or of["processes"]):
        assert of["disrupt"] == "host", "nothing is unloaded under jobs"
    if ops:
        assert [name for name in MODULES if name in rdma.modules] == [peer.loaded], "one, and never both"
        assert {name for _, name in peer.at_boot} == {peer.loaded}, "the same one after a boot"
        assert paths.PEERMEM not in (places := [place for place, _ in peer.at_boot]) or places == [paths.PEERMEM]
    again = plan(Host("gpu1", "10.0.0.1"), left, cluster_of(left, **of))
    assert list(again) == [], "the second plan is empty"


@given(HOSTS, st.sampled_from(["gpu", "gpus", "rdma", "hcas", "loaded", "exists", "at_boot", "driver"]))
def test_what_is_not_known_is_never_changed(of: dict[str, Any], unknown: str) -> None:
    no = Unknown("the tool hangs")
    facts = facts_of(**of)
    gpu: Any = facts.gpu
    rdma: Any = facts.rdma
    changed: dict[str, Any] = {
        "gpu": {"gpu": no},
        "rdma": {"rdma": no},
        "gpus": {"gpu": replace(gpu, gpus=no)},
        "hcas": {"rdma": replace(rdma, hcas=no)},
        "driver": {"gpu": replace(gpu, driver=replace(gpu.driver, loaded=no))},
    }
    if unknown not in changed:
        changed[unknown] = {"rdma": replace(rdma, peer_memory=replace(rdma.peer_memory, **{unknown: no}), modules=())}
    facts = replace(facts, **changed[unknown])
    found = list(plan(Host("gpu1", "10.0.0.1"), facts, cluster_of(facts, **of)))
    needs_none = unknown == "driver" or (unknown == "exists" and of["loaded"])
    assert needs_none or not [each for each in found if isinstance(each, Op)]
