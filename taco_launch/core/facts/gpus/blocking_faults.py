"""What of a host's drivers and GPUs keeps it from being used: the one rule, for set-up that stops there and for `facts`."""

import re
from typing import Iterator, Sequence, Tuple

from taco_launch.core.frozen import dataclass
from taco_launch.core.model.host.fact_value import Absent, Found, Unknown, known_value
from taco_launch.core.model.host.facts import ContainerState, HostFacts
from taco_launch.core.model.host.hardware import Adapters, Board, Gpus, Rdma
from taco_launch.core.signatures.known.system import words

DRIVER, LOST, OFED, GONE = "driver", "lost GPUs", "OFED", "GPUs"
# Where a container of set-up's keeps the GPUs that its host had then, by PCI address.
GPUS_LABEL = "taco-launch.gpus"
GONE_HINT = "dmesg -T | grep -iE 'xid|nvrm' shows why; a reset (nvidia-smi --gpu-reset) or a reboot may bring it back"
_NUMBERS = re.compile(r"[0-9]+\.[0-9]+-[0-9]+(?:\.[0-9]+)*")
_NONE_TO_USE = "if its GPUs are not to be used, write gpus: none in the inventory"


@dataclass(frozen=True)
class BlockingFault:
    """One such thing: what it is of (`driver`, `OFED`, ...), what is wrong, and what to do."""

    name: str
    text: str
    hint: str


def stops(facts: HostFacts, rdma: str = "auto", gdr: str = "auto") -> Iterator[BlockingFault]:
    """Yield what of the NVIDIA driver and of OFED is missing, or loaded unlike it is installed; or which lost GPU hides all.

    `rdma` and `gdr` are what the inventory says of them. Nothing is said of what cannot be read, of a host without GPUs and
    adapters, and of OFED where `rdma` is off.
    """
    if isinstance(facts.gpu, Gpus):
        yield from _driver(facts.gpu, facts.rdma)
    if rdma != "off" and isinstance(facts.rdma, Rdma):
        yield from _ofed(facts.rdma, rdma, gdr)


def containers(facts: HostFacts) -> Iterator[BlockingFault]:
    """Yield which GPUs have gone since a training container was made: it is not made anew with fewer."""
    for each in facts.containers:
        if told := fewer(gpus_of(each), addresses(facts)):
            yield BlockingFault(GONE, f"{each.name}: {told}", GONE_HINT)


def gpus_of(there: ContainerState) -> Tuple[str, ...]:
    """Return the GPUs that a container of set-up's was made with; none where it does not tell."""
    return tuple(filter(None, dict(there.labels).get(GPUS_LABEL, "").split(",")))


def addresses(facts: HostFacts) -> Tuple[str, ...]:
    """Return the PCI addresses of a host's GPUs; none where they are not known."""
    return tuple(known_value(gpu.pci) or f"number {gpu.index}" for gpu in known_value(facts.gpus) or ())


def fewer(before: Sequence[str], now: Sequence[str]) -> str:
    """Return which GPUs have gone since set-up counted them; empty where there are as many, or none is known now."""
    lacking = len(before) - len(now)
    if not now or lacking <= 0:
        return ""
    gone = [address for address in before if address not in now]
    verb = "is" if lacking == 1 else "are"
    # a host whose PCI addresses are others now tells no more than how many
    who = f"GPU{'s' * (lacking > 1)} {', '.join(gone)}" if len(gone) == lacking else f"{lacking} of {len(before)} GPUs"
    return f"{who} {verb} gone since the last setup (the container was created with {len(before)}, and {len(now)} are present now)"


def _driver(gpu: Gpus, rdma: Found[Rdma]) -> Iterator[BlockingFault]:
    loaded, installed = gpu.driver.loaded, gpu.driver.installed
    there = len(gpu.board.gpus) if isinstance(gpu.board, Board) else 0
    told = next((each.reason for each in (gpu.gpus, gpu.driver.cuda) if isinstance(each, Unknown)), "")
    if isinstance(loaded, Absent) and isinstance(installed, str):
        secure = isinstance(rdma, Rdma) and rdma.peer_memory.secure_boot is True
        look = "dmesg | grep -iE 'nvrm|nvidia|nouveau|unsigned|rejected' shows what prevents it"
        _, enrol = words("module-key", module="nvidia", host="the host")
        yield BlockingFault(
            DRIVER,
            f"the NVIDIA driver {installed} is installed but not loaded"
            + (
                ", and Secure Boot is on: it refuses kernel modules that are not signed with a trusted key"
                if secure
                else ""
            ),
            f"on the host: modprobe nvidia; {look}" + (f". If the signing key is the cause: {enrol}" if secure else ""),
        )
    elif isinstance(loaded, Absent) and there and not isinstance(gpu.gpus, tuple):
        # what modinfo says of a missing module differs, and what it does not say well is no driver either
        untold = (
            ""
            if isinstance(installed, Absent)
            else f" (the driver version installed on the disk is not known: {_value_or_reason(installed)})"
        )
        yield BlockingFault(
            DRIVER,
            f"{there} NVIDIA GPU{'s are' if there > 1 else ' is'} on PCI, and no driver is {'loaded' if untold else 'installed'}{untold}",
            f"install the NVIDIA driver, which set-up does not do; {_NONE_TO_USE}",
        )
    elif isinstance(loaded, str) and isinstance(installed, str) and loaded != installed:
        yield BlockingFault(
            DRIVER,
            f"Driver/library version mismatch: the kernel runs NVIDIA driver {loaded}, and {installed} is installed",
            f"{_fabric_too(gpu, installed)}reboot the host when no job runs there",
        )
    elif "version mismatch" in told:
        yield BlockingFault(
            DRIVER,
            f"{told}: the kernel runs NVIDIA driver {_value_or_reason(loaded)}, but the installed libraries belong to another driver version",
            "reboot the host when no job runs there",
        )
    elif gpu.lost and not isinstance(gpu.gpus, tuple):
        yield BlockingFault(
            LOST,
            "; ".join(gpu.lost),
            "on the host: dmesg -T | grep -i xid shows why; a reboot when no job runs there may bring it back, otherwise "
            "replace it",
        )
    elif isinstance(loaded, str) and isinstance(gpu.gpus, Absent) and _taken_away(installed):
        yield BlockingFault(
            DRIVER,
            f"the NVIDIA driver {loaded} is loaded but no longer installed on the disk: after a reboot the host will have no driver",
            f"reinstall the complete NVIDIA driver {loaded} (another version also requires a reboot)",
        )
    elif isinstance(loaded, str) and isinstance(gpu.gpus, Absent):
        yield BlockingFault(
            DRIVER,
            f"the NVIDIA driver {loaded} is loaded, but its programs (such as nvidia-smi) are missing: {gpu.gpus.reason}",
            "install the driver's programs of exactly that version (nvidia-utils, or the complete .run file)",
        )


def _fabric_too(gpu: Gpus, installed: str) -> str:
    """Return what else the driver on the disk takes: a fabric manager of its very version."""
    version = gpu.driver.fabric_version
    switches = isinstance(gpu.board, Board) and gpu.board.nvswitches
    if not switches or not isinstance(version, str) or version == installed:
        return ""
    return f"install nvidia-fabricmanager {installed} (version {version} is installed, which does not match that driver), then "


def _ofed(rdma: Rdma, use: str, gdr: str) -> Iterator[BlockingFault]:
    of = rdma.adapters
    if not isinstance(of, Adapters):
        return
    if isinstance(rdma.ofed, str):
        no_hca = isinstance(rdma.hcas, Absent) or rdma.hcas == ()
        # OFED's programs may run on the kernel's own driver, and DMA-BUF takes no more than that.
        if no_hca or rdma.peer_memory.dmabuf is not True or of.loaded != "untold":
            yield from _unlike(rdma.ofed, of, rdma, no_hca=no_hca)
    elif isinstance(rdma.ofed, Absent) and isinstance(rdma.hcas, Absent) and use == "on":
        yield BlockingFault(
            OFED,
            f"{_adapters(of)}, no RDMA device and no OFED, and the inventory has network.rdma: on",
            "install MLNX_OFED, which set-up does not do, or load the kernel's own driver: modprobe mlx5_ib",
        )
    elif isinstance(rdma.ofed, Absent) and gdr == "on" and rdma.peer_memory.dmabuf is False:
        yield BlockingFault(
            OFED,
            "no OFED is installed, the inventory has network.gdr: on, and DMA-BUF is not possible here",
            "install MLNX_OFED, then the NVIDIA driver again; or network.gdr: auto",
        )


def _unlike(ofed: str, of: Adapters, rdma: Rdma, *, no_hca: bool) -> Iterator[BlockingFault]:
    loaded, installed = of.loaded, of.installed
    if _differ(ofed, installed):
        yield BlockingFault(
            OFED,
            f"OFED's programs are version {ofed}, but mlx5_core on the disk is {_named(installed)}: OFED has no modules for the "
            "running kernel",
            "build them for it (mlnxofedinstall --add-kernel-support, or dkms autoinstall), then reboot",
        )
    elif _differ(ofed, loaded):
        peer = rdma.peer_memory.loaded
        unload = f"rmmod {peer}; " if isinstance(peer, str) else ""
        yield BlockingFault(
            OFED,
            f"OFED is {ofed}, but the loaded mlx5_core is {_named(loaded)}",
            f"when no job runs there: {unload}/etc/init.d/openibd restart; or reboot{_built_anew(rdma)}",
        )
    elif no_hca:
        state = loaded.reason if isinstance(loaded, Absent) else "mlx5_ib created no device"
        yield BlockingFault(
            OFED,
            f"{_adapters(of)}, OFED is {ofed}, and there is no RDMA device: {state}",
            "on the host: /etc/init.d/openibd start, or modprobe mlx5_ib; dmesg | grep -i mlx5 shows what prevents it",
        )


def _built_anew(rdma: Rdma) -> str:
    """Return what else a newer OFED takes: modules of peer memory are built against its symbols."""
    there = known_value(rdma.peer_memory.exists) or ()
    if not there:
        return ""
    source = "the NVIDIA driver" if "nvidia_peermem" in there else there[0]
    return (
        f". {' and '.join(there)} {'were' if len(there) > 1 else 'was'} built against the previous OFED and may not load with "
        f"this one: then install {source} again, so that it is rebuilt"
    )


def _differ(ofed: str, module: Found[str]) -> bool:
    """Return whether a module is surely of another release: ofed_info has the build's number behind the module's version."""
    if not isinstance(module, str):
        return False
    ours, its = _NUMBERS.search(ofed), _NUMBERS.search(module)
    if ours is None:
        return False
    return its is None or not f"{ours[0]}.".startswith(f"{its[0]}.")


def _named(module: Found[str]) -> str:
    return "the one from the kernel" if module == "untold" else _value_or_reason(module)


def _taken_away(installed: Found[str]) -> bool:
    """Return whether modinfo finds no module; where there is no modinfo, nobody knows."""
    return isinstance(installed, Absent) and re.search("(?i)module .*not found", installed.reason) is not None


def _value_or_reason(value: Found[str]) -> str:
    return value if isinstance(value, str) else value.reason


def _adapters(of: Adapters) -> str:
    count = len(of.pci)
    return f"{count} RDMA adapter{'s are' if count > 1 else ' is'} on PCI"
