"""The simulated tools against outputs of real ones, where a folder of those is at hand."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab.hardware.hosts import LIBRARY, Host

CORPUS = Path(os.environ.get("TACO_LAUNCH_CORPUS", "/nowhere"))
pytestmark = pytest.mark.skipif(
    "TACO_LAUNCH_CORPUS" not in os.environ, reason="cannot: TACO_LAUNCH_CORPUS names no folder of captured outputs"
)
Untouched = Callable[[str], Host]


def real(name: str) -> str:
    return (CORPUS / name).read_bytes().decode()


def shape(text: str) -> list[str]:
    """Return every line with its numbers, ids and names taken out: what is left is the format."""
    text = re.sub(r"NVIDIA [\w -]+?(?= \(UUID)", "NAME", text)
    text = re.sub(r"GPU-[0-9a-f-]{36}", "UUID", text)
    return sorted(set(re.sub(r"\d+(\.\d+)?", "N", text).splitlines()))


def test_list_and_links(untouched: Untouched) -> None:
    host = untouched("h100x8")
    assert shape(host.ok("nvidia-smi -L")) == shape(real("smi_h100-80gb-hbm3_smi_L.txt"))
    assert shape(host.ok("nvidia-smi nvlink -s")) == shape(real("smi_h100-80gb-hbm3_nvlink_s.txt"))
    assert shape(untouched("pcie4").ok("nvidia-smi nvlink -s")) == shape(real("smi_l40s_nvlink_s.txt"))


def test_topology_of_newer_drivers(untouched: Untouched) -> None:
    mine = untouched("pcie4").ok("nvidia-smi topo -m").splitlines()
    captured = real("smi_l40s_topo_m.txt").splitlines()
    assert mine[0].replace("GPU1\tGPU2\tGPU3\t", "") == captured[0]
    assert mine[1].split("\t")[-3:] == captured[1].split("\t")[-3:]
    assert mine[5:] == captured[2:]


def test_the_mesh_of_eight_v100(untouched: Untouched) -> None:
    def links(text: str) -> list[list[str]]:
        rows = [line.split("\t")[1:9] for line in text.splitlines() if line.startswith("GPU")]
        return [[cell if cell.startswith("NV") else "" for cell in row] for row in rows]

    assert links(untouched("v100x8").ok("nvidia-smi topo -m")) == links(real("topo_8xV100_dgx1_4xmlx5.txt"))


def test_fields_and_their_units(untouched: Untouched) -> None:
    host = untouched("h100x8")
    captured = set(real("smi_h100-80gb-hbm3_query_gpu_csv.txt").splitlines()[0].split(", "))
    table = (host.root / LIBRARY / "smi-fields").read_text("utf-8").splitlines()
    rows = [line.split() for line in table if not line.startswith("#")]
    # what newer drivers have no longer
    gone = {"serial", "display_mode", "power.management"}
    known = [row[0] for row in rows if int(row[3]) <= 535 and not row[0].startswith("clocks_throttle")]
    printed = host.ok(f"nvidia-smi --query-gpu={','.join(known)} --format=csv").splitlines()[0].split(", ")
    assert {name for name in printed if name not in captured} <= gone


def test_tools_of_ofed(untouched: Untouched) -> None:
    host = untouched("a100x8")
    mine = host.ok("show_gids").splitlines()
    captured = real("show_gids_mlx5_bond0_two_devices.txt").splitlines()
    assert mine[0] == captured[0]
    assert [re.sub(r"[\da-f:.]{9,}", "N", line) for line in mine[4:6]] == [
        re.sub(r"[\da-f:.]{9,}", "N", line) for line in captured[2:4]
    ]
    assert mine[-1] == captured[-1]
    assert host.ok("ibdev2netdev") == real("ibdev2netdev_single_bond.txt")
    captured_gids = real("ibv_devinfo_v_gids_bond0.txt").splitlines()
    mine_gids = [line for line in host.ok("ibv_devinfo -v").splitlines() if "GID[" in line or "phys_state" in line]
    assert [re.sub(r"[\da-f:.]{9,}", "N", line) for line in mine_gids] == [
        re.sub(r"[\da-f:.]{9,}", "N", line) for line in captured_gids
    ]


def test_hcas_in_sysfs(untouched: Untouched) -> None:
    host = untouched("h100x8")
    folder = CORPUS / "sysfs_infiniband_h100/sys-class-infiniband-h100.0"
    for name in ("mlx5_0", "mlx5_bond_0"):
        for path in (folder / name).rglob("*"):
            if path.is_file() and path.name != "fw_ver":
                captured = path.read_text("utf-8").strip()
                assert host.read(f"sys/class/infiniband/{path.relative_to(folder)}") == captured, path
