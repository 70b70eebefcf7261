"""What the probe says of places and file systems, under every shell: PCI, the IOMMU, XFS; and queries that are refused."""

import os
from pathlib import Path

import pytest

from taco_launch.core.facts.parse import parse
from taco_launch.core.facts.text.sections import read
from tests.support.host_facts import known
from tests.support.shells import SCRIPT, each_shell, run, tool


@each_shell
@pytest.mark.parametrize(("refused", "asked"), [("mig", 3), ("clocks_throttle", 2), ("nothing", 1)])
def test_a_query_that_is_refused_is_asked_again_for_less(
    shell: tuple[str, ...], tmp_path: Path, refused: str, asked: int
) -> None:
    body = f'case $* in *{refused}*) echo "Field is not a valid field to query."; exit 2 ;; esac; echo "$*"'
    tool(tmp_path, "nvidia-smi", f'case $* in *query-gpu*) echo >>"${{0%/*}}/asked" ;; esac; {body}')
    told = read(run(shell, "gpu", path=f"{tmp_path}:{os.environ['PATH']}").stdout)["gpu.query"]
    assert (told.exit_code, len((tmp_path / "asked").read_text())) == (0, asked)
    assert "index,uuid," in told.stdout


@each_shell
def test_the_places_of_gpus_and_adapters(shell: tuple[str, ...], tmp_path: Path) -> None:
    devices = {"1b": ("0x10de", "0x030200"), "c4": ("0x10de", "0x068000"), "1a": ("0x15b3", "0x020700"), "00": ("0x8086", "0x060400")}  # fmt: skip
    for bus, (vendor, kind) in devices.items():
        folder = tmp_path / f"pci/devices/0000:{bus}:00.0"
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(f"{vendor}\n")
        (folder / "class").write_text(f"{kind}\n")
    group = tmp_path / "pci/devices/0000:1b:00.0/iommu_group"
    group.mkdir()
    (tmp_path / "cmdline").write_text("ro quiet * iommu=pt intel_iommu=on\n")
    (tmp_path / "module/mlx5_core").mkdir(parents=True)
    script = SCRIPT.replace(b"/sys/bus/pci", f"{tmp_path}/pci".encode())
    script = script.replace(b"/proc/cmdline", f"{tmp_path}/cmdline".encode())
    script = script.replace(b"/sys/module/mlx5_core", f"{tmp_path}/module/mlx5_core".encode())
    tool(tmp_path, "lspci", 'echo "0000:00:00.0 0604: $*"; echo "  noise"; echo "  ACSCtl: SrcValid+"; echo bad >&2')
    tool(tmp_path, "modinfo", "echo 5.4-1.0.3")
    path = f"{tmp_path}:{os.environ['PATH']}"
    told = read(run(shell, "gpu", "rdma", script=script, path=path).stdout)
    board, adapters = told["gpu.board"], told["rdma.adapters"]
    assert set(board.stdout.split("\n")) - {""} == {
        "gpu 0000:1b:00.0 untold",
        "nvswitch 0000:c4:00.0",
        "option iommu=pt",
    }
    assert (board.exit_code, board.stderr, adapters.exit_code) == (0, "", 0)
    assert told["gpu.acs"].stdout.rstrip() == "0000:00:00.0 0604: -Dnvvv -d ::0604\n  ACSCtl: SrcValid+"
    assert adapters.stdout.split("\n")[:2] == ["adapter 0000:1a:00.0", "loaded "]
    assert told["rdma.mlx5_core"].stdout.strip() == "5.4-1.0.3"
    (group / "type").write_text("DMA-FQ\n")
    again = read(run(shell, "gpu", script=script, path=path).stdout)
    assert "gpu 0000:1b:00.0 DMA-FQ" in again["gpu.board"].stdout


@each_shell
def test_an_xfs_that_tells_no_types_of_files(shell: tuple[str, ...], tmp_path: Path) -> None:
    mounts = (
        "/dev/sda1 / xfs rw 0 0",
        "/dev/sda1 /again xfs rw 0 0",
        "/dev/sdb1 /dev/shm xfs rw 0 0",
        "x /tmp ext4 rw 0 0",
    )
    (tmp_path / "mounts").write_text("".join(f"{line}\n" for line in mounts))
    script = SCRIPT.replace(b"/proc/mounts", f"{tmp_path}/mounts".encode())
    said = 'case $1 in /) f=0 ;; *) f=1 ;; esac; echo "naming   =version 2   bsize=4096   ascii-ci=0, ftype=$f"'
    tool(tmp_path, "xfs_info", f'echo "$1" >>"${{0%/*}}/asked"; {said}')
    answer = run(shell, "system", script=script, path=f"{tmp_path}:{os.environ['PATH']}").stdout
    assert read(answer)["system.xfs"].stdout.split("\n")[:2] == ["/ ftype=0", "/dev/shm ftype=1"]
    assert (tmp_path / "asked").read_text() == "/\n/dev/shm\n"
    system = known(parse("here", answer, 0, 1).system)
    typed = {disk.path: disk.typed for disk in known(system.disks)}
    assert (typed["/"], typed.get("/dev/shm", True)) == (False, True)
    (tmp_path / "mounts").write_text("x / ext4 rw 0 0\n")
    assert read(run(shell, "system", script=script).stdout)["system.xfs"].exit_code == 127
