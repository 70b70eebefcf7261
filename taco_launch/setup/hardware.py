"""What is wrong with a host's drivers before any stage: set-up checks them, and never installs them."""

import re
from collections.abc import Iterator

from taco_launch.model.facts import HostFacts
from taco_launch.model.found import Absent, Found, Unknown
from taco_launch.model.hardware import Adapters, Board, Gpus, Rdma
from taco_launch.model.hosts import Host, Inventory
from taco_launch.setup.ops import Problem
from taco_launch.signatures.system import words

_NUMBERS = re.compile(r"[0-9]+\.[0-9]+-[0-9]+(?:\.[0-9]+)*")
_NONE_TO_USE = "if none of its GPUs is to be used, say so in the inventory: gpus: none"


def faults(host: Host, facts: HostFacts, inventory: Inventory) -> Iterator[Problem]:
    """Say what of the NVIDIA driver and of OFED is missing, or loaded unlike it is installed.

    Nothing is said of what cannot be read, of a host without GPUs and adapters, and of OFED where `network.rdma` is off.
    """
    if host.gpus != "none" and isinstance(facts.gpu, Gpus):
        yield from _driver(host.name, facts.gpu, facts.rdma)
    if inventory.network.rdma != "off" and isinstance(facts.rdma, Rdma):
        yield from _ofed(facts.rdma, inventory)


def _driver(host: str, gpu: Gpus, rdma: Found[Rdma]) -> Iterator[Problem]:
    loaded, installed = gpu.driver.loaded, gpu.driver.installed
    there = len(gpu.board.gpus) if isinstance(gpu.board, Board) else 0
    told = next((each.reason for each in (gpu.gpus, gpu.driver.cuda) if isinstance(each, Unknown)), "")
    if isinstance(loaded, Absent) and isinstance(installed, str):
        secure = isinstance(rdma, Rdma) and rdma.peer_memory.secure_boot is True
        look = "dmesg | grep -iE 'nvrm|nvidia|nouveau|unsigned|rejected' says what is in its way"
        _, enrol = words("module-key", module="nvidia", host=host)
        yield _problem(
            f"the NVIDIA driver {installed} is installed and not loaded"
            + (", and Secure Boot is on: it refuses modules without a key that the machine knows" if secure else ""),
            f"on the host: modprobe nvidia; {look}" + (f". If it is the key: {enrol}" if secure else ""),
        )
    elif isinstance(loaded, Absent) and there and not isinstance(gpu.gpus, tuple):
        # what modinfo says of a missing module differs, and what it does not say well is no driver either
        untold = "" if isinstance(installed, Absent) else f" (what is on the disk cannot be told: {_told(installed)})"
        yield _problem(
            f"{there} NVIDIA GPU{'s are' if there > 1 else ' is'} on PCI, and no driver is {'loaded' if untold else 'installed'}{untold}",
            f"install the NVIDIA driver, which belongs to the host's image; {_NONE_TO_USE}",
        )
    elif isinstance(loaded, str) and isinstance(installed, str) and loaded != installed:
        yield _problem(
            f"Driver/library version mismatch: the kernel runs NVIDIA driver {loaded}, and {installed} is installed",
            "reboot the host when no job runs there",
        )
    elif "version mismatch" in told:
        yield _problem(
            f"{told}: the kernel runs NVIDIA driver {_told(loaded)}, and its libraries are of another",
            "reboot the host when no job runs there",
        )
    elif isinstance(loaded, str) and isinstance(gpu.gpus, Absent):
        yield _problem(
            f"the NVIDIA driver {loaded} is loaded, and its programs are missing: {gpu.gpus.reason}",
            "install the driver's programs of that very version (nvidia-utils, or the .run file in full)",
        )


def _ofed(rdma: Rdma, inventory: Inventory) -> Iterator[Problem]:
    of = rdma.adapters
    if not isinstance(of, Adapters):
        return
    if isinstance(rdma.ofed, str):
        no_hca = isinstance(rdma.hcas, Absent) or rdma.hcas == ()
        # OFED's programs may run on the kernel's own driver, and DMA-BUF takes no more than that.
        if no_hca or rdma.peer_memory.dmabuf is not True or of.loaded != "untold":
            yield from _unlike(rdma.ofed, of, rdma, no_hca=no_hca)
    elif isinstance(rdma.ofed, Absent) and isinstance(rdma.hcas, Absent) and inventory.network.rdma == "on":
        yield _problem(
            f"{_adapters(of)}, no RDMA device and no OFED, and the inventory says network.rdma: on",
            "install MLNX_OFED, which belongs to the host's image, or load the kernel's own driver: modprobe mlx5_ib",
        )
    elif isinstance(rdma.ofed, Absent) and inventory.network.gdr == "on" and rdma.peer_memory.dmabuf is False:
        yield _problem(
            "no OFED is installed, and the inventory says network.gdr: on, for which DMA-BUF is not possible here",
            "install MLNX_OFED, then the NVIDIA driver again; or network.gdr: auto",
        )


def _unlike(ofed: str, of: Adapters, rdma: Rdma, *, no_hca: bool) -> Iterator[Problem]:
    loaded, installed = of.loaded, of.installed
    if _differ(ofed, installed):
        yield _problem(
            f"OFED's programs are {ofed}, and mlx5_core on the disk is {_named(installed)}: OFED has no modules for the "
            "kernel that runs",
            "build them for it (mlnxofedinstall --add-kernel-support, or dkms autoinstall), then reboot",
        )
    elif _differ(ofed, loaded):
        peer = rdma.peer_memory.loaded
        unload = f"rmmod {peer}; " if isinstance(peer, str) else ""
        yield _problem(
            f"OFED is {ofed}, and the kernel runs mlx5_core {_named(loaded)}",
            f"when no job runs there: {unload}/etc/init.d/openibd restart; or reboot",
        )
    elif no_hca:
        state = loaded.reason if isinstance(loaded, Absent) else "mlx5_ib made none"
        yield _problem(
            f"{_adapters(of)}, OFED is {ofed}, and there is no RDMA device: {state}",
            "on the host: /etc/init.d/openibd start, or modprobe mlx5_ib; dmesg | grep -i mlx5 says what is in its way",
        )


def _differ(ofed: str, module: Found[str]) -> bool:
    """Say whether a module is surely of another release: ofed_info has the build's number behind the module's version."""
    if not isinstance(module, str):
        return False
    ours, its = _NUMBERS.search(ofed), _NUMBERS.search(module)
    if ours is None:
        return False
    return its is None or not f"{ours[0]}.".startswith(f"{its[0]}.")


def _named(module: Found[str]) -> str:
    return "the kernel's own" if module == "untold" else _told(module)


def _told(value: Found[str]) -> str:
    return value if isinstance(value, str) else value.reason


def _adapters(of: Adapters) -> str:
    count = len(of.pci)
    return f"{count} RDMA adapter{'s are' if count > 1 else ' is'} on PCI"


def _problem(message: str, hint: str) -> Problem:
    return Problem("hardware", message, hint)
