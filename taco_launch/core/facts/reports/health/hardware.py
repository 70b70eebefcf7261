"""Judges hardware by its facts: what is right, what to look at, what is broken. Nothing of it is ever changed by set-up."""

from collections import Counter
from typing import Iterator, List, Optional, Sequence, Tuple

from taco_launch.core.facts.gpus import blocking_faults
from taco_launch.core.facts.reports.health.verdict import (
    FAULT,
    NOT_POSSIBLE,
    OK,
    WARNING,
    HealthVerdict,
    Judged,
    folded,
    plain,
    which,
)
from taco_launch.core.model.host.fact_value import Absent, Found, Unknown, known_value, was_requested
from taco_launch.core.model.host.facts import HostFacts, System
from taco_launch.core.model.host.hardware import Adapters, Board, Gpu, Gpus, Rdma, Topology

# Where each rule is from. Nothing else of a rule is taken from there.
_DRIVER = "NVIDIA driver installation guide: kernel module and libraries must have the same version"
_SETUP = "taco-launch setup: a training container is never recreated with fewer GPUs"
_FABRIC = "NVIDIA Fabric Manager user guide: CUDA fails with error 802 without it; its version must match the driver's"
_MIG = "NVIDIA MIG user guide: no peer-to-peer between instances, and a process sees only one"
_AZURE = "Azure node health checks"
_ECC = "NVIDIA Xid catalog, Xid 48: an uncorrectable error requires a reset"
_REMAP = "NVIDIA GPU memory error management: a pending remapping requires a reset, a failed one a new GPU"
_PERSISTENCE = "NVIDIA driver persistence"
_CLOCKS = "NVML, nvmlClocksEventReasons; Azure node health checks"
_PCIE = "Azure node health checks: width below the maximum"
_ACS = "NCCL user guide, troubleshooting: PCI Access Control Services"
_IOMMU = "NVIDIA GPUDirect RDMA guide: IOMMU"
_OFED = "NVIDIA GPUDirect RDMA guide: peer memory requires MLNX_OFED, or DMA-BUF"
_PORTS = "NCCL: its InfiniBand transport skips ports that are not active"
_NVLINK = "NVIDIA: the GPUs of a host with NVSwitches all have the same links to one another"
# What is judged of GPUs one by one, and whose rule it is.
_OF_GPUS = (
    ("MIG", _MIG),
    ("ECC", _AZURE),
    ("row remapping", _REMAP),
    ("persistence", _PERSISTENCE),
    ("clocks", _CLOCKS),
    ("temperature", _AZURE),
)
PORTS = "RDMA ports"
# Where it runs already, it looks at the GPUs when it starts.
_PERSISTENCED = "systemctl enable nvidia-persistenced; systemctl restart nvidia-persistenced"
# More than so many uncorrectable errors make a GPU one to be replaced; hotter than so many degrees is too hot.
_MOST_ERRORS, _HOTTEST = 512, 85
_BROKEN_CLOCKS = ("HwSlowdown", "HwThermalSlowdown", "HwPowerBrakeSlowdown")
_HELD_CLOCKS = ("SwThermalSlowdown", "ApplicationsClocksSetting")


def verdicts(facts: HostFacts, rdma: str = "auto", gdr: str = "auto") -> Tuple[HealthVerdict, ...]:
    """Judge a host, without what was not requested and what does not exist.

    What stops set-up is a fault here, in the same words; `rdma` and `gdr` are what the inventory says of them.
    """
    found = list(_stops(facts, rdma, gdr))
    stopped = {each.name for each in found}
    if isinstance(facts.gpu, Gpus):
        found += () if blocking_faults.LOST in stopped else _lost(facts.gpu)
        if blocking_faults.DRIVER not in stopped:
            found += (*_driver(facts.gpu), *_fabric_manager(facts.gpu))
        if gpus := known_value(facts.gpus):
            for each in (_mig, _memory, _remapping, _persistence, _clocks, _temperature):
                found += each(gpus)
    if (why := _silent(facts)) is not None:
        found += [HealthVerdict(name, NOT_POSSIBLE, why.reason, source) for name, source in _OF_GPUS]
    found += _nvlink(facts.topology) if isinstance(facts.topology, Topology) else ()
    found += _pcie(facts)
    if isinstance(facts.gpu, Gpus) and isinstance(facts.gpu.board, Board):
        found += _iommu(facts.gpu.board)
        found += _acs(facts.gpu.board, facts.system)
    if isinstance(facts.rdma, Rdma):
        found += () if rdma == "off" else _ports(facts.rdma)
        found += () if blocking_faults.OFED in stopped else _ofed(facts.rdma)
    return tuple(found)


def judged(hosts: Sequence[HostFacts], rdma: str = "auto", gdr: str = "auto") -> Judged:
    """Return each different verdict once with the hosts that it is of: faults first, then in the order of `verdicts`."""
    return folded((facts.host, verdicts(facts, rdma, gdr)) for facts in hosts)


def _stops(facts: HostFacts, rdma: str, gdr: str) -> Iterator[HealthVerdict]:
    sources = {
        blocking_faults.DRIVER: _DRIVER,
        blocking_faults.LOST: _AZURE,
        blocking_faults.OFED: _OFED,
        blocking_faults.GONE: _SETUP,
    }
    for stop in (*blocking_faults.stops(facts, rdma, gdr), *blocking_faults.containers(facts)):
        yield HealthVerdict(stop.name, FAULT, stop.text, sources[stop.name], stop.hint)


def _driver(of: Gpus) -> Iterator[HealthVerdict]:
    if isinstance(of.driver.loaded, str):
        yield HealthVerdict(blocking_faults.DRIVER, OK, f"{of.driver.loaded} is loaded", _DRIVER)


def _silent(facts: HostFacts) -> Optional[Unknown]:
    """Return why nothing is known of GPUs that a host has or may have; None if they answered or were not asked."""
    of = facts.gpus
    if isinstance(of, Unknown):
        return of if was_requested(of) else None
    seen = isinstance(facts.gpu, Gpus) and isinstance(facts.gpu.board, Board) and facts.gpu.board.gpus
    return Unknown(of.reason or "nvidia-smi does not report them") if isinstance(of, Absent) and seen else None


def _lost(of: Gpus) -> Iterator[HealthVerdict]:
    if of.lost:
        hint = "dmesg -T | grep -i xid shows why; a reboot may bring it back, otherwise replace it"
        yield HealthVerdict("lost GPUs", FAULT, "; ".join(of.lost), _AZURE, hint)


def _fabric_manager(of: Gpus) -> Iterator[HealthVerdict]:
    if not isinstance(of.board, Board) or not of.board.nvswitches:
        return
    state, version, driver = of.driver.fabric_manager, of.driver.fabric_version, of.driver.loaded
    if isinstance(state, Unknown):
        yield HealthVerdict("fabric manager", NOT_POSSIBLE, state.reason, _FABRIC)
    elif isinstance(state, Absent):
        hint = "install nvidia-fabricmanager in exactly the driver's version, then: systemctl enable --now nvidia-fabricmanager"
        count = len(of.board.nvswitches)
        switches = f"{count} NVSwitch{'es' if count > 1 else ''}"
        yield HealthVerdict(
            "fabric manager", FAULT, f"{switches}, and nvidia-fabricmanager is not installed", _FABRIC, hint
        )
    elif isinstance(version, str) and isinstance(driver, str) and version != driver:
        text = f"nvidia-fabricmanager {version} beside driver {driver}"
        yield HealthVerdict(
            "fabric manager", FAULT, text, _FABRIC, f"install nvidia-fabricmanager {driver} and restart it"
        )
    elif state != "active":
        hint = "journalctl -u nvidia-fabricmanager shows why; then: systemctl enable --now nvidia-fabricmanager"
        yield HealthVerdict("fabric manager", FAULT, f"nvidia-fabricmanager is {state}", _FABRIC, hint)
    else:
        yield HealthVerdict("fabric manager", OK, "active", _FABRIC)


def _mig(gpus: Sequence[Gpu]) -> Iterator[HealthVerdict]:
    on = [gpu.index for gpu in gpus if gpu.mig is True]
    if on:
        text = f"on for {which(on)}: no NVLink or peer-to-peer there, and NCCL uses one instance per process"
        yield HealthVerdict("MIG", WARNING, text, _MIG, "to give jobs whole GPUs: nvidia-smi -mig 0")
    else:
        yield from plain("MIG", [gpu.mig for gpu in gpus], "off", _MIG)


def _memory(gpus: Sequence[Gpu]) -> Iterator[HealthVerdict]:
    counts = [(gpu.index, gpu.ecc_uncorrected) for gpu in gpus]
    wrong = [(index, count) for index, count in counts if isinstance(count, int) and count]
    if wrong:
        text = "uncorrectable errors since the driver was loaded: " + ", ".join(f"{n} on GPU {i}" for i, n in wrong)
        many = any(count > _MOST_ERRORS for _, count in wrong)
        hint = (
            "have it replaced"
            if many
            else "drain the host, reset the GPU or reboot, and check whether the errors come back"
        )
        yield HealthVerdict("ECC", FAULT, text, f"{_ECC}; {_AZURE}: replace it above {_MOST_ERRORS}", hint)
        return
    off = [gpu.index for gpu in gpus if gpu.ecc is False]
    if off:
        text = f"off on {which(off)}: memory errors are not detected"
        yield HealthVerdict("ECC", WARNING, text, _REMAP, "nvidia-smi -e 1, then reboot")
        return
    yield from plain("ECC", [count for _, count in counts], "no uncorrectable error", _AZURE)


def _remapping(gpus: Sequence[Gpu]) -> Iterator[HealthVerdict]:
    failed = [gpu.index for gpu in gpus if gpu.remap_failed is True]
    pending = [gpu.index for gpu in gpus if gpu.remap_pending is True]
    if failed:
        text = f"memory rows could not be remapped on {which(failed)}"
        yield HealthVerdict("row remapping", FAULT, text, _REMAP, "have it replaced")
    elif pending:
        text = f"memory rows are waiting to be remapped on {which(pending)}"
        yield HealthVerdict(
            "row remapping", FAULT, text, _REMAP, "when no job runs on it: nvidia-smi --gpu-reset -i N, or reboot"
        )
    else:
        yield from plain("row remapping", [gpu.remap_pending for gpu in gpus], "none pending, none failed", _REMAP)


def _persistence(gpus: Sequence[Gpu]) -> Iterator[HealthVerdict]:
    off = [gpu.index for gpu in gpus if gpu.persistence is False]
    if off:
        text = f"off on {which(off)}: the driver is initialized again for every process, which takes seconds"
        yield HealthVerdict("persistence", WARNING, text, _PERSISTENCE, _PERSISTENCED)
    else:
        yield from plain("persistence", [gpu.persistence for gpu in gpus], "on", _PERSISTENCE)


def _clocks(gpus: Sequence[Gpu]) -> Iterator[HealthVerdict]:
    told = [(gpu.index, gpu.slowdowns) for gpu in gpus]
    for level, names, hint in (
        (FAULT, _BROKEN_CLOCKS, "look at cooling and power supply: nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER"),
        (WARNING, _HELD_CLOCKS, "nvidia-smi -q -d PERFORMANCE,TEMPERATURE; clocks set by hand: nvidia-smi -rac"),
    ):
        held = [(index, [name for name in names if name in found]) for index, found in told if isinstance(found, tuple)]
        held = [(index, reasons) for index, reasons in held if reasons]
        if held:
            reasons = ", ".join(dict.fromkeys(reason for _, each in held for reason in each))
            text = f"throttled on {which([index for index, _ in held])}: {reasons}"
            yield HealthVerdict("clocks", level, text, _CLOCKS, hint)
            return
    yield from plain("clocks", [found for _, found in told], "not throttled", _CLOCKS)


def _temperature(gpus: Sequence[Gpu]) -> Iterator[HealthVerdict]:
    hot = [gpu for gpu in gpus if isinstance(gpu.temperature, int) and gpu.temperature > _HOTTEST]
    if hot:
        text = f"above {_HOTTEST} C: " + ", ".join(f"GPU {gpu.index} {gpu.temperature} C" for gpu in hot)
        yield HealthVerdict("temperature", WARNING, text, _AZURE, "check the fans and the airflow")
    else:
        yield from plain("temperature", [gpu.temperature for gpu in gpus], f"{_HOTTEST} C or less", _AZURE)


def _pcie(facts: HostFacts) -> Iterator[HealthVerdict]:
    """Judge widths only: a link that idles is slow by design (its generation), and never narrow."""
    narrow: List[str] = []
    told: List[Found[int]] = []
    if isinstance(facts.gpu, Gpus) and isinstance(facts.gpu.gpus, tuple):
        for gpu in facts.gpu.gpus:
            told.append(gpu.width)
            if isinstance(gpu.width, int) and isinstance(gpu.max_width, int) and gpu.width < gpu.max_width:
                narrow.append(f"GPU {gpu.index} x{gpu.width} of x{gpu.max_width}")
    elif (why := _silent(facts)) is not None:
        told.append(why)
    for device in known_value(facts.pci) or ():
        if device.kind == "hca" and device.width is not None and device.max_width is not None:
            told.append(device.width)
            if device.width < device.max_width:
                narrow.append(f"{device.name} x{device.width} of x{device.max_width}")
    if narrow:
        hint = "reseat the card or its riser, and check how many lanes the slot has"
        yield HealthVerdict("PCIe width", WARNING, ", ".join(narrow), _PCIE, hint)
    elif told:
        yield from plain("PCIe width", told, "all lanes", _PCIE)


def _nvlink(matrix: Topology) -> Iterator[HealthVerdict]:
    """Judge a host whose GPUs are all linked alike by NVLink, but for a few that are not."""
    count = len(matrix.gpus)
    links = [row[:count] for row in matrix.links[:count]]
    counted = Counter(link for row in links for link in row if link.startswith("NV")).most_common(1)
    usual = counted[0][0] if counted else ""
    odd = [index for index, row in enumerate(links) if usual and usual not in row]
    alike = [index for index in range(count) if index not in odd]
    if not odd or len(alike) < max(3, len(odd) + 1):
        return
    if all(links[one][other] in (usual, "X") for one in alike for other in alike):
        text = f"{which(odd)} {'have' if len(odd) > 1 else 'has'} no {usual} to any other GPU, while the other {len(alike)} have it to one another"
        hint = "nvidia-smi nvlink --status -i N and dmesg -T | grep -i -e xid -e nvlink show why; reset the GPU or reboot, and if that does not help, have it replaced"
        yield HealthVerdict("NVLink", FAULT, text, _NVLINK, hint)


def _iommu(board: Board) -> Iterator[HealthVerdict]:
    if board.iommu == "translates":
        text = "on, and translates the GPUs' addresses: peer-to-peer goes through the root complex, or not at all"
        hint = "add iommu=pt to the kernel command line, or turn VT-d off in the BIOS; for a virtual machine, do this on its host"
        yield HealthVerdict("IOMMU", WARNING, text, _IOMMU, hint)
    elif isinstance(board.iommu, Unknown):
        yield HealthVerdict("IOMMU", NOT_POSSIBLE, board.iommu.reason, _IOMMU)
    elif board.gpus:
        yield HealthVerdict(
            "IOMMU", OK, "on, but does not translate addresses" if board.iommu == "passes" else "off", _IOMMU
        )


def _acs(board: Board, system: Found[System]) -> Iterator[HealthVerdict]:
    if not isinstance(board.acs, tuple):
        if isinstance(board.acs, Unknown):
            yield HealthVerdict("ACS", NOT_POSSIBLE, board.acs.reason, _ACS)
        return
    if not board.acs:
        yield HealthVerdict("ACS", OK, "off", _ACS)
        return
    few = ", ".join(board.acs[:3]) + (", ..." if len(board.acs) > 3 else "")
    count = f"{len(board.acs)} PCI bridge{'s' if len(board.acs) > 1 else ''}"
    text = f"on at {count} ({few}): traffic between a GPU and an HCA below them goes up to the root complex"
    virtual = isinstance(system, System) and isinstance(system.virtualization, str)
    bridges = "for each in $(lspci -D -d ::0604 | cut -d' ' -f1)"
    hint = f"turn it off in the BIOS, or run at each boot: {bridges}; do setpci -s $each ECAP_ACS+0x6.w=0000; done"
    yield HealthVerdict(
        "ACS",
        WARNING,
        text,
        _ACS,
        f"leave it on if GPUs are passed to virtual machines; otherwise {hint}" if virtual else hint,
    )


def _ports(rdma: Rdma) -> Iterator[HealthVerdict]:
    """Judge the ports of HCAs: some may have no cable on purpose; where none is active, jobs go by TCP."""
    ports = [(f"{hca.name} port {port.number}", port) for hca in known_value(rdma.hcas) or () for port in hca.ports]
    idle = [(name, port.state) for name, port in ports if isinstance(port.state, str) and port.state != "ACTIVE"]
    if idle:
        told = ", ".join(f"{name} is {state}" for name, state in idle)
        none = len(idle) == len(ports)
        hint = "ibstat; ip -br link: is the cable plugged in, is the switch port up, and, for InfiniBand, is a subnet manager running?"
        text = f"none is active, so there is no RDMA: {told}" if none else told
        yield HealthVerdict(PORTS, FAULT if none else WARNING, text, _PORTS, hint)
    else:
        yield from plain(PORTS, [port.state for _, port in ports], "active", _PORTS)


def _ofed(rdma: Rdma) -> Iterator[HealthVerdict]:
    if not isinstance(rdma.adapters, Adapters):
        return
    if isinstance(rdma.ofed, Absent):
        if rdma.peer_memory.dmabuf is True:
            yield HealthVerdict("OFED", OK, "not installed; DMA-BUF works without it", _OFED)
        else:
            text = "not installed: without it HCAs can reach GPU memory only by DMA-BUF, which is not possible here"
            yield HealthVerdict("OFED", WARNING, text, _OFED, "install MLNX_OFED, then reinstall the NVIDIA driver")
    else:
        yield from plain("OFED", [rdma.ofed], known_value(rdma.ofed) or "", _OFED)
