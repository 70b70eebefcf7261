"""Verdicts on hardware: each rule at its edge, nothing said of what nobody requested, equal ones folded."""

from dataclasses import replace
from typing import Any

import pytest

from taco_launch.core.facts.reports.health.hardware import judged, verdicts
from taco_launch.core.model.host.fact_value import NOT_ASKED, Absent, Unknown
from taco_launch.core.model.host.facts import ContainerState, HostFacts
from taco_launch.core.model.host.hardware import Adapters, Board, Gpus, PciDevice, Topology
from taco_launch.core.model.host.hosts import Container, Host, Inventory
from taco_launch.setup.plan.host_plan import faults
from tests.support.host_facts import host, known

BOARD = Board(("0000:1b:00.0",), (), Absent("no GPU is behind an IOMMU"), ())
FINE: dict[str, Any] = {
    "ecc": True, "remap_pending": False, "remap_failed": False, "persistence": True, "temperature": 85,
    "width": 16, "max_width": 16, "slowdowns": (),
}  # fmt: skip
ADAPTERS = Adapters(("0000:1a:00.0",), "5.4-1.0.3", "5.4-1.0.3")


def of(name: str = "gpu1", at: int = 3, board: Any = BOARD, driver: Any = None, **gpu: Any) -> HostFacts:
    """Return a host that is right, but for what is given: of GPU number `at`, of its board, of its driver."""
    facts = host(name)
    assert isinstance(facts.gpu, Gpus)
    gpus = tuple(replace(each, **{**FINE, **(gpu if each.index == at else {})}) for each in known(facts.gpu.gpus))
    driver = replace(facts.gpu.driver, **{"fabric_version": "535.104.05", **(driver or {})})
    return replace(
        facts,
        gpu=replace(facts.gpu, gpus=gpus, board=board, driver=driver),
        rdma=replace(known(facts.rdma), adapters=ADAPTERS),
    )


def wrong(facts: HostFacts) -> list[tuple[str, str, str]]:
    return [(each.level, each.name, each.text) for each in verdicts(facts) if each.level != "ok"]


def test_a_host_that_is_right_says_so_of_each_thing() -> None:
    found = verdicts(of(board=replace(BOARD, nvswitches=("0000:c4:00.0",))))
    assert {each.level for each in found} == {"ok"}
    assert {each.name for each in found} == {
        *("driver", "fabric manager", "MIG", "ECC", "row remapping", "persistence", "clocks", "temperature"),
        *("PCIe width", "IOMMU", "ACS", "RDMA ports", "OFED"),
    }
    assert all(each.source and not each.hint for each in found)


def test_how_acs_is_turned_off() -> None:
    facts = of(board=replace(BOARD, acs=("0000:17:00.0",)))
    for where in (Absent("bare metal"), "kvm"):
        found = verdicts(replace(facts, system=replace(known(facts.system), virtualization=where)))
        (hint,) = [each.hint for each in found if each.name == "ACS"]
        assert "turn it off in the BIOS, or run at each boot: for each in $(lspci -D -d ::0604" in hint
        assert ("virtual machine" in hint) == (where == "kvm")


def test_nothing_is_said_of_what_nobody_asked_for_or_what_is_not_there() -> None:
    names = {each.name for each in verdicts(host("gpu1"))}
    assert names == {"driver", "MIG", "ECC", "RDMA ports"}  # of these the simplest of hosts tells
    nothing = replace(host("cpu1"), gpu=Absent("no driver"), rdma=NOT_ASKED)
    assert verdicts(nothing) == ()


SWITCHED = replace(BOARD, nvswitches=("0000:c4:00.0", "0000:c5:00.0"))


@pytest.mark.parametrize(
    ("facts", "level", "name", "words"),
    [
        (of(mig=True), "warning", "MIG", "on for GPU 3"),
        (of(ecc_uncorrected=1), "fault", "ECC", "1 on GPU 3"),
        (of(ecc_uncorrected=513), "fault", "ECC", "513 on GPU 3"),
        (of(ecc=False), "warning", "ECC", "off on GPU 3"),
        (of(ecc_uncorrected=Unknown("[Unknown Error]")), "not possible", "ECC", "[Unknown Error]"),
        (of(remap_pending=True), "fault", "row remapping", "memory rows are waiting to be remapped on GPU 3"),
        (of(remap_pending=True, remap_failed=True), "fault", "row remapping", "could not be remapped on GPU 3"),
        (of(persistence=False), "warning", "persistence", "off on GPU 3"),
        (of(slowdowns=("HwThermalSlowdown", "SwPowerCap")), "fault", "clocks", "on GPU 3: HwThermalSlowdown"),
        (of(slowdowns=("SwThermalSlowdown",)), "warning", "clocks", "SwThermalSlowdown"),
        (of(temperature=86), "warning", "temperature", "GPU 3 86 C"),
        (of(width=8), "warning", "PCIe width", "GPU 3 x8 of x16"),
        (of(board=replace(BOARD, iommu="translates")), "warning", "IOMMU", "translates"),
        (of(board=replace(BOARD, iommu=Unknown("odd"))), "not possible", "IOMMU", "odd"),
        (of(board=replace(BOARD, acs=("0000:17:00.0",))), "warning", "ACS", "on at 1 PCI bridge (0000:17:00.0)"),
        (of(board=replace(BOARD, acs=Unknown("root"))), "not possible", "ACS", "root"),
        (of(board=SWITCHED, driver={"fabric_manager": "failed"}), "fault", "fabric manager", "is failed"),
        (of(board=SWITCHED, driver={"fabric_manager": Absent()}), "fault", "fabric manager", "2 NVSwitches, and"),
        (
            of(board=SWITCHED, driver={"fabric_version": "535.86.10"}),
            *("fault", "fabric manager", "nvidia-fabricmanager 535.86.10 beside driver 535.104.05"),
        ),
    ],
)  # fmt: skip
def test_each_rule(facts: HostFacts, level: str, name: str, words: str) -> None:
    ((one, two, text),) = wrong(facts)
    assert (one, two) == (level, name)
    assert words in text


def test_clocks_that_are_low_by_load_are_right() -> None:
    assert wrong(of(slowdowns=("SwPowerCap", "SyncBoost"))) == []


def test_a_fabric_manager_is_nothing_to_a_machine_without_switches() -> None:
    assert wrong(of(driver={"fabric_manager": "failed"})) == []


def test_what_stops_set_up_is_a_fault_here_in_its_words_and_what_follows_of_it_is_none() -> None:
    cluster = Inventory("c", "gpu1", (Host("gpu1", "10.0.0.1"),), Container("i"))
    idle = {"fabric_manager": "failed"}
    removed = Absent("modinfo: ERROR: Module nvidia not found.")
    unlike = of(board=SWITCHED, driver={"installed": "535.129.03"})
    for facts, name, words in (
        (of(board=SWITCHED, driver={"loaded": Absent("no"), **idle}), "driver", "is installed but not loaded"),
        (unlike, "driver", "the kernel runs NVIDIA driver 535.104.05, and 535.129.03 is installed"),
        (
            without_programs(of(driver={"installed": removed})),
            "driver",
            "is loaded but no longer installed on the disk: after a reboot",
        ),
        (
            without_programs(of()),
            "driver",
            "is loaded, but its programs (such as nvidia-smi) are missing: nvidia-smi: not found",
        ),
        (
            replace(of(), rdma=replace(known(unlike.rdma), ofed="MLNX_OFED_LINUX-5.8-2.0.3.0")),
            "OFED",
            "mlx5_core on the disk is 5.4",
        ),
    ):
        found = [each for each in verdicts(facts) if each.level == "fault"]
        assert [(each.name, words in each.text) for each in found] == [(name, True)]
        ((told, hint),) = [(each.message, each.hint) for each in faults(facts, cluster)]
        assert (told, hint) == (found[0].text, found[0].hint)
        assert [each.name for each in verdicts(facts) if each.level == "ok" and each.name == name] == []
    hint = next(each.hint for each in verdicts(unlike) if each.name == "driver")
    assert hint.startswith(
        "install nvidia-fabricmanager 535.129.03 (version 535.104.05 is installed, which does not match"
    )
    assert (
        next(each.hint for each in verdicts(of(driver={"installed": "535.129.03"})))
        == "reboot the host when no job runs there"
    )


def without_programs(facts: HostFacts) -> HostFacts:
    return replace(facts, gpu=replace(known(facts.gpu), gpus=Absent("nvidia-smi: not found")))


def test_ofed_that_no_job_uses_is_no_fault() -> None:
    facts = of()
    facts = replace(facts, rdma=replace(known(facts.rdma), ofed="MLNX_OFED_LINUX-5.8-2.0.3.0"))
    assert [each.name for each in verdicts(facts) if each.level == "fault"] == ["OFED"]
    assert [each.name for each, _ in judged([facts], rdma="off") if each.level == "fault"] == []


def test_a_gpu_that_is_gone_since_the_container_was_made_is_a_fault() -> None:
    facts = of()
    assert isinstance(facts.gpu, Gpus)
    labels = (("taco-launch.gpus", ",".join(str(each.pci) for each in known(facts.gpu.gpus))),)
    docker = replace(known(facts.docker), containers=(ContainerState("taco-launch-c", "train", "running", labels),))
    facts = replace(facts, docker=docker)
    assert wrong(facts) == []
    less = replace(facts, gpu=replace(known(facts.gpu), gpus=known(known(facts.gpu).gpus)[:-1]))
    text = "taco-launch-c: GPU 0000:07:00.0 is gone since the last setup (the container was created with 8, and 7 are present now)"
    assert wrong(less) == [("fault", "GPUs", text)]


def test_a_gpu_that_is_lost_and_an_hca_with_too_few_lanes() -> None:
    facts = of()
    device = PciDevice("hca", "mlx5_0", ("pci0000:17", "0000:1a:00.0"), width=4, max_width=16)
    facts = replace(facts, gpu=replace(known(facts.gpu), lost=("GPU is lost",)), pci=(device,))
    assert [each[:2] for each in wrong(facts)] == [("fault", "lost GPUs"), ("warning", "PCIe width")]
    assert wrong(facts)[1][2] == "mlx5_0 x4 of x16"


@pytest.mark.parametrize("gpus", [Unknown("Unable to determine the device handle"), Absent("nvidia-smi: not found")])
def test_gpus_that_nobody_can_ask_are_unknown_and_never_right(gpus: Any) -> None:
    facts = of()
    silent = replace(facts, gpu=replace(known(facts.gpu), gpus=gpus))
    names = ("MIG", "ECC", "row remapping", "persistence", "clocks", "temperature", "PCIe width")
    unknown = [each for each in wrong(silent) if each[0] == "not possible"]
    assert unknown == [("not possible", name, gpus.reason) for name in names]
    told = judged([facts, replace(silent, host="gpu2")])
    assert {verdict.name for verdict, hosts in told if hosts == ("gpu2",)} - {"driver"} == set(names)
    whole = replace(facts, gpu=Unknown("no answer"))
    assert [name for _, name, _ in wrong(whole)] == list(names)


@pytest.mark.parametrize(
    ("odd", "others", "text"),
    [
        ((2,), "NV18", "GPU 2 has no NV18 to any other GPU, while the other 7 have it to one another"),
        ((2, 3), "NV18", "GPUs 2-3 have no NV18 to any other GPU, while the other 6 have it to one another"),
        ((), "NV18", ""),
        ((), "SYS", ""),
        ((0, 1, 2, 3), "NV18", ""),  # half of them: which half is right is not known
    ],
)
def test_a_gpu_that_has_not_the_links_of_the_others(odd: tuple[int, ...], others: str, text: str) -> None:
    links = [["X" if a == b else "SYS" if {a, b} & {*odd} else others for b in range(8)] for a in range(8)]
    matrix = Topology(tuple(f"GPU{number}" for number in range(8)), (), tuple(map(tuple, links)))
    assert wrong(replace(of(), topology=matrix)) == ([("fault", "NVLink", text)] if text else [])


def test_bridges_between_pairs_are_no_fault() -> None:
    links = [["X" if a == b else "NV4" if a // 2 == b // 2 < 3 else "SYS" for b in range(8)] for a in range(8)]
    matrix = Topology(tuple(f"GPU{number}" for number in range(8)), (), tuple(map(tuple, links)))
    assert wrong(replace(of(), topology=matrix)) == []


def test_ports_of_hcas_that_are_not_active() -> None:
    facts = of()
    (hca,) = known(known(facts.rdma).hcas)
    down = replace(hca, name="mlx5_1", ports=tuple(replace(port, state="DOWN") for port in hca.ports))
    for hcas, level, text in (
        ((hca, down), "warning", "mlx5_1 port 1 is DOWN"),
        ((down,), "fault", "none is active, so there is no RDMA: mlx5_1 port 1 is DOWN"),
    ):
        ailing = replace(facts, rdma=replace(known(facts.rdma), hcas=hcas))
        assert wrong(ailing) == [(level, "RDMA ports", text)]
        assert next(each.hint for each in verdicts(ailing) if each.name == "RDMA ports")
        for judged_ports in (ailing, facts):  # of ports that jobs are not to use nothing is said
            assert "RDMA ports" not in [each.name for each in verdicts(judged_ports, rdma="off")]


@pytest.mark.parametrize(("dmabuf", "level"), [(True, "ok"), (False, "warning")])
def test_the_kernels_own_rdma_takes_dmabuf(dmabuf: bool, level: str) -> None:
    facts = of()
    memory = replace(known(facts.rdma).peer_memory, dmabuf=dmabuf)
    told = verdicts(replace(facts, rdma=replace(known(facts.rdma), ofed=Absent(), peer_memory=memory)))
    assert [each.level for each in told if each.name == "OFED"] == [level]


def test_equal_verdicts_are_folded_and_faults_come_first() -> None:
    hosts = [of("gpu1"), of("gpu2", persistence=False), of("gpu3", remap_failed=True), of("gpu4", persistence=False)]
    (first, one), (second, two), *right = judged(hosts)
    assert (first.name, one, second.name, two) == ("row remapping", ("gpu3",), "persistence", ("gpu2", "gpu4"))
    assert {each.level for each, _ in right} == {"ok"}
