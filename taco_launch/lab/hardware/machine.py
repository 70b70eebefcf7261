"""What a simulated machine is: GPUs and HCAs at their places on the PCI buses, a driver, an OFED, a bond."""

from taco_launch.core.frozen import dataclass


@dataclass(frozen=True)
class GpuModel:
    """One kind of GPU: what every one of that kind answers.

    `memory` is in MiB, as nvidia-smi's memory.total; `power` (idle) and `power_limit` are in watts; `link_gen` and
    `link_width` are PCIe's. `device_id` and `subsystem` are PCI ids, device before vendor, as nvidia-smi prints them.
    `mig` is "N/A" where the GPU has no MIG.
    """

    name: str
    product: str
    memory: int
    device_id: str
    subsystem: str
    compute_cap: str
    power: int
    power_limit: int
    link_gen: int
    link_width: int = 16
    mig: str = "N/A"


@dataclass(frozen=True)
class HcaModel:
    """One kind of HCA: `rate` is the text of sysfs (`100 Gb/sec (4X EDR)`), `part` and `title` are those of its VPD."""

    hca_type: str
    device_id: str
    board: str
    part: str
    title: str
    firmware: str
    rate: str
    link_gen: int
    layer: str = "InfiniBand"
    link_width: int = 16


@dataclass(frozen=True)
class DeviceLocation:
    """Where a device sits: `path` under /sys/devices from the root complex to the device, and its NUMA node.

    The distance of two devices is read from their paths, as NCCL does (pciDistance in its 2.4 source).
    """

    path: str
    numa: int


@dataclass(frozen=True)
class SimulatedHca:
    """One HCA of a machine. `netdev` is the interface of a RoCE port; None for InfiniBand."""

    name: str
    model: HcaModel
    place: DeviceLocation
    netdev: str | None = None


@dataclass(frozen=True)
class SimulatedMachine:
    """One machine: `links[i][j]` is the number of NVLinks between GPU i and GPU j, `link_speed` GB/s of each one.

    `nvswitch_id` is the PCI device id of its NVSwitches, where it has any.
    """

    name: str
    gpu: GpuModel
    gpus: tuple[DeviceLocation, ...]
    driver: str
    open_driver: bool = False
    links: tuple[tuple[int, ...], ...] = ()
    link_count: int = 0
    link_speed: str = "0"
    hcas: tuple[SimulatedHca, ...] = ()
    ofed: str | None = None
    bond: str | None = None
    nvswitches: tuple[DeviceLocation, ...] = ()
    nvswitch_id: str = ""
