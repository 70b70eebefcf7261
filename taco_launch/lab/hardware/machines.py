"""The machines that the lab can play: v100x8, a100x8, h100x8, pcie4.

Names, ids, sizes and rates are those of the real parts; the bus numbers are of our own choosing. The NVLink mesh of
v100x8 is DGX-1V's (NVIDIA, "DGX-1 With Tesla V100 System Architecture"); link speeds are what `nvidia-smi nvlink -s`
prints on such machines. No root complex is numbered 0000:00, where small virtual machines keep their own devices.
"""

from taco_launch.lab.hardware.machine import DeviceLocation, GpuModel, HcaModel, SimulatedHca, SimulatedMachine

V100 = GpuModel("Tesla V100-SXM2-32GB", "Tesla", 32510, "0x1DB510DE", "0x124910DE", "7.0", 43, 300, 3)
A100 = GpuModel("NVIDIA A100-SXM4-40GB", "NVIDIA", 40536, "0x20B010DE", "0x144E10DE", "8.0", 55, 400, 4, mig="Disabled")
H100 = GpuModel("NVIDIA H100 80GB HBM3", "NVIDIA", 81559, "0x233010DE", "0x16C110DE", "9.0", 70, 700, 5, mig="Disabled")
A10 = GpuModel("NVIDIA A10", "NVIDIA", 23028, "0x223610DE", "0x148210DE", "8.6", 21, 150, 4)

EDR = HcaModel(
    "MT4115", "0x1013", "MT_2180110032", "MCX455A-ECAT", "CX455A - ConnectX-4 QSFP28", "12.28.2006",
    "100 Gb/sec (4X EDR)", 3,
)  # fmt: skip
NDR = HcaModel(
    "MT4129", "0x1021", "MT_0000000838", "MCX75310AAS-NEAT", "ConnectX-7 OSFP NDR400", "28.41.1000",
    "400 Gb/sec (4X NDR)", 5,
)  # fmt: skip
ROCE_100 = HcaModel(
    "MT4119", "0x1017", "MT_0000000012", "MCX516A-CDAT", "CX516A - ConnectX-5 QSFP28", "16.31.1014",
    "100 Gb/sec (4X EDR)", 4, "Ethernet",
)  # fmt: skip
ROCE_200 = HcaModel(
    "MT41692", "0xa2dc", "MT_0000000884", "900-9D3B6-00CV-AA0", "BlueField-3 P-Series DPU", "32.38.3056",
    "200 Gb/sec (2X NDR)", 5, "Ethernet",
)  # fmt: skip

_CUBE_MESH = (
    (0, 1, 1, 2, 2, 0, 0, 0),
    (1, 0, 2, 1, 0, 2, 0, 0),
    (1, 2, 0, 2, 0, 0, 1, 0),
    (2, 1, 2, 0, 0, 0, 0, 1),
    (2, 0, 0, 0, 0, 1, 1, 2),
    (0, 2, 0, 0, 1, 0, 2, 1),
    (0, 0, 1, 0, 1, 2, 0, 2),
    (0, 0, 0, 1, 2, 1, 2, 0),
)


def _all_to_all(count: int, links: int) -> tuple[tuple[int, ...], ...]:
    """Every GPU joined to every other through NVSwitches."""
    return tuple(tuple(0 if row == column else links for column in range(count)) for row in range(count))


def _switched(root: int, port: int, first: int, slot: int, *, numa: int) -> DeviceLocation:
    """Return the place of the device in `slot` (0..) of the switch below root port `port` of root complex `root`.

    The switch's upstream bus is `first`, its downstream bus the next one, its devices' buses those after.
    """
    return DeviceLocation(
        f"pci0000:{root:02x}/0000:{root:02x}:{port:02x}.0/0000:{first:02x}:00.0/"
        f"0000:{first + 1:02x}:{slot * 4:02x}.0/0000:{first + 2 + slot:02x}:00.0",
        numa,
    )


def _plugged(root: int, port: int, bus: int, *, numa: int) -> DeviceLocation:
    """Return the place of a device that sits in a root port, without a switch."""
    return DeviceLocation(f"pci0000:{root:02x}/0000:{root:02x}:{port:02x}.0/0000:{bus:02x}:00.0", numa)


# One root complex per CPU, two switches below each, two GPUs and an HCA below each: PIX, PHB and SYS.
_V100_SWITCHES = ((0x04, 1, 0x05, 0), (0x04, 2, 0x0B, 0), (0x80, 1, 0x81, 1), (0x80, 2, 0x87, 1))
V100X8 = SimulatedMachine(
    "v100x8",
    V100,
    tuple(_switched(root, port, bus, slot, numa=numa) for root, port, bus, numa in _V100_SWITCHES for slot in (0, 1)),
    driver="470.82.01",
    links=_CUBE_MESH,
    link_count=6,
    link_speed="25.781",
    hcas=tuple(
        SimulatedHca(f"mlx5_{index}", EDR, _switched(root, port, bus, 2, numa=numa))
        for index, (root, port, bus, numa) in enumerate(_V100_SWITCHES)
    ),
    ofed="MLNX_OFED_LINUX-5.4-1.0.3.0",
)

# A root complex per pair of GPUs. The HCA's own switch hangs below the first pair's: PXB to it, NODE and SYS to others.
_A100_SWITCHES = ((0x10, 0x11, 0), (0x30, 0x31, 0), (0x90, 0x91, 1), (0xB0, 0xB1, 1))
A100X8 = SimulatedMachine(
    "a100x8",
    A100,
    tuple(_switched(root, 1, bus, slot, numa=numa) for root, bus, numa in _A100_SWITCHES for slot in (0, 1)),
    driver="470.82.01",
    links=_all_to_all(8, 12),
    link_count=12,
    link_speed="25",
    hcas=(
        SimulatedHca(
            "mlx5_bond_0",
            ROCE_100,
            DeviceLocation(
                "pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:0c.0/0000:18:00.0/0000:19:00.0/0000:1a:00.0", 0
            ),
            "bond0",
        ),
    ),
    ofed="MLNX_OFED_LINUX-5.4-1.0.3.0",
    bond="bond0",
    nvswitches=tuple(_plugged(0xD0, port, 0xD0 + port, numa=1) for port in range(1, 7)),
    nvswitch_id="0x1af1",
)

# Each GPU shares a switch with an HCA of its own: PIX to it, NODE to its neighbours', SYS across the sockets.
_H100_ROOTS = (0x15, 0x26, 0x37, 0x48, 0x97, 0xA7, 0xB7, 0xC7)
H100X8 = SimulatedMachine(
    "h100x8",
    H100,
    tuple(_switched(root, 1, root + 1, 0, numa=index // 4) for index, root in enumerate(_H100_ROOTS)),
    driver="535.104.05",
    open_driver=True,
    links=_all_to_all(8, 18),
    link_count=18,
    link_speed="26.562",
    hcas=(
        *(
            SimulatedHca(f"mlx5_{index}", NDR, _switched(root, 1, root + 1, 1, numa=index // 4))
            for index, root in enumerate(_H100_ROOTS)
        ),
        SimulatedHca("mlx5_bond_0", ROCE_200, _plugged(0x58, 1, 0x59, numa=0), "bond0"),
    ),
    ofed="MLNX_OFED_LINUX-23.10-0.5.5.0",
    bond="bond0",
    nvswitches=tuple(_plugged(0xD0, port, 0xD0 + port, numa=1) for port in range(1, 5)),
    nvswitch_id="0x22a3",
)

# No switch and no NVLink: two GPUs below one root complex (PHB), two below one each (NODE), SYS across.
PCIE4 = SimulatedMachine(
    "pcie4",
    A10,
    (
        _plugged(0x17, 1, 0x18, numa=0),
        _plugged(0x17, 2, 0x19, numa=0),
        _plugged(0xB1, 1, 0xB2, numa=1),
        _plugged(0xCA, 1, 0xCB, numa=1),
    ),
    driver="535.104.05",
)

ALL = (V100X8, A100X8, H100X8, PCIE4)
