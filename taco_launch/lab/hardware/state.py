"""The state folder of one host: one file per fact, rendered from its machine."""

import hashlib
import uuid
from collections.abc import Iterator

from taco_launch.lab.hardware.machine import SimulatedHca, SimulatedMachine

# Every UUID and GUID is derived from this, the machine's name and the host's number: the same lab is the same twice.
_NAMESPACE = uuid.UUID("6f2f9b62-6a6e-5c29-9d53-1a1e0a3f6f77")

_REMAPS = 8.0  # the compute capability of Ampere, the first that remaps rows


def facts(machine: SimulatedMachine, host: int) -> Iterator[tuple[str, str]]:
    """Yield (path in the state folder, value) of every fact of host number `host`, 1.."""
    yield "machine", machine.name
    yield "host", str(host)
    yield "driver", machine.driver
    yield "driver-license", "Dual MIT/GPL" if machine.open_driver else "NVIDIA"
    yield "driver-ofed", machine.ofed or "none"
    yield "driver-signed", "yes"
    yield "persistenced", machine.driver
    yield "fabricmanager", machine.driver if machine.nvswitches else "none"
    yield "ofed", machine.ofed or "none"
    yield "nv-peer-mem", "none"
    yield "nv-peer-mem-ofed", "none"
    yield "peermem-users", "0"
    yield "iommu", "none"
    yield "acs", "off"
    yield "reload-loses-gpus", "no"
    yield "secure-boot", "off"
    yield "mok", "none"
    yield "bond", machine.bond or "none"
    for index in range(len(machine.gpus)):
        for name, value in _gpu(machine, host, index):
            yield f"gpu/{index}/{name}", value
    for index, place in enumerate(machine.nvswitches):
        yield f"nvswitch/{index}/path", place.path
        yield f"nvswitch/{index}/numa", str(place.numa)
        yield f"nvswitch/{index}/device-id", machine.nvswitch_id
    for index, hca in enumerate(machine.hcas):
        for name, value in _hca(machine, host, index, hca):
            yield f"hca/{hca.name}/{name}", value


def _gpu(machine: SimulatedMachine, host: int, index: int) -> Iterator[tuple[str, str]]:
    model, place = machine.gpu, machine.gpus[index]
    yield "state", "present"
    yield "name", model.name
    yield "product", model.product
    yield "uuid", f"GPU-{uuid.uuid5(_NAMESPACE, f'{machine.name}/{host}/gpu/{index}')}"
    yield "path", place.path
    yield "numa", str(place.numa)
    yield "device-id", model.device_id
    yield "subsystem", model.subsystem
    yield "compute-cap", model.compute_cap
    yield "vbios", "00.00.00.00.00"  # the form of a VBIOS version, and that of no real card
    yield "memory", str(model.memory)
    yield "memory-used", "0"
    yield "utilization", "0"
    yield "temperature", str(30 + index)
    yield "power", str(model.power)
    yield "power-limit", str(model.power_limit)
    yield "persistence", "Enabled"
    yield "compute-mode", "Default"
    yield "mig", model.mig
    yield "ecc-corrected", "0"
    yield "ecc-uncorrected", "0"
    remaps = float(model.compute_cap) >= _REMAPS
    yield "remapped-rows", "0" if remaps else "N/A"
    yield "remapped-pending", "No" if remaps else "N/A"
    yield "remapped-failure", "No" if remaps else "N/A"
    yield "link-gen", str(model.link_gen)
    yield "link-gen-max", str(model.link_gen)
    yield "link-width", str(model.link_width)
    yield "link-width-max", str(model.link_width)
    yield "event-reasons", "0x0000000000000001"
    yield "nvlinks", " ".join(str(count) for count in machine.links[index]) if machine.links else "none"
    yield "nvlink-count", str(machine.link_count)
    yield "nvlink-speed", machine.link_speed
    yield "nvlink-down", "0"
    yield "nvlink-errors", "0"


def _hca(machine: SimulatedMachine, host: int, index: int, hca: SimulatedHca) -> Iterator[tuple[str, str]]:
    model = hca.model
    yield "state", "ACTIVE"
    yield "type", model.hca_type
    yield "device-id", model.device_id
    yield "board", model.board
    yield "part", model.part
    yield "title", model.title
    yield "firmware", model.firmware
    yield "layer", model.layer
    yield "rate", model.rate
    yield "guid", _guid(machine, host, index)
    yield "lid", str(host * 16 + index + 1) if model.layer == "InfiniBand" else "0"
    yield "netdev", hca.netdev or "none"
    yield "path", hca.place.path
    yield "numa", str(hca.place.numa)
    yield "link-gen", str(model.link_gen)
    yield "link-width", str(model.link_width)


def _guid(machine: SimulatedMachine, host: int, index: int) -> str:
    """Return a GUID in sysfs's form, with the locally administered bit set: it is nobody's."""
    digest = hashlib.sha256(f"{machine.name}/{host}/hca/{index}".encode()).hexdigest()
    digits = f"02{digest[:4]}03{digest[4:12]}"
    return ":".join(digits[start : start + 4] for start in range(0, 16, 4))
