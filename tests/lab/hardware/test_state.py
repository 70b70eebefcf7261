"""What set-up, a reboot or a fault changes shows in every tool and every file, and nowhere else."""

import errno
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab.hardware.hosts import ADDRESS, LIBRARY, STATE, Host

Own = Callable[[str], Host]
INFINIBAND = "sys/class/infiniband"
NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running."
)


def loaded(host: Host) -> set[str]:
    return {line.split()[0] for line in host.ok("lsmod").splitlines()[1:]}


def test_without_its_module_there_is_no_driver_anywhere(own: Own) -> None:
    host = own("pcie4")
    assert host.read("sys/module/nvidia/version") == "535.104.05"
    assert host.read("sys/module/nvidia/refcnt") == "2"
    host.ok("rmmod nvidia_uvm")
    assert not host.has("dev/nvidia-uvm")
    assert host.read("sys/module/nvidia/refcnt") == "1"
    host.ok("modprobe -r nvidia_modeset")
    assert loaded(host) == set()
    assert host.read("run/simulated-hardware/modules") == ""
    for path in ("sys/module/nvidia", "proc/driver/nvidia", "dev/nvidia0", "dev/nvidiactl"):
        assert not host.has(path), path
    answer = host("nvidia-smi --query-gpu=name --format=csv")
    assert (answer.returncode, answer.stdout.strip()) == (9, NO_DRIVER)
    host.ok("modprobe nvidia-uvm")
    assert loaded(host) == {"nvidia", "nvidia_uvm"}
    assert host.ok("nvidia-smi -L").count("GPU ") == 4
    assert "535.104.05" in host.read("proc/driver/nvidia/version")
    assert host.read("proc/driver/nvidia/gpus/0000:18:00.0/information").count("NVIDIA A10") == 1


def test_what_modprobe_says_of_what_it_does(own: Own) -> None:
    host = own("pcie4")
    assert host.ok("modprobe -rv nvidia_uvm") == "rmmod nvidia_uvm\n"
    file = host.ok("modinfo -n nvidia_uvm").strip()
    assert host.ok("modprobe -nv nvidia_uvm") == f"insmod {file} \n"
    assert "nvidia_uvm" not in loaded(host)
    assert host.ok("modprobe -v nvidia_uvm") == f"insmod {file} \n"
    assert host.ok("modprobe -v nvidia_uvm") == ""
    again = host(f"insmod {host.root}{file}")
    assert again.returncode == 1


def test_insmod_needs_what_the_module_needs(own: Own) -> None:
    host = own("pcie4")
    for name in ("nvidia_uvm", "nvidia_modeset"):
        host("rmmod " + name)
    host("rmmod nvidia")
    file = host.ok("modinfo -n nvidia_uvm").strip()
    refused = host(f"insmod {file}")
    assert (refused.returncode, refused.stderr) == (
        1,
        f"insmod: ERROR: could not insert module {file}: Unknown symbol in module\n",
    )
    host.ok(f"insmod {host.ok('modinfo -n nvidia').strip()}")
    host.ok(f"insmod {file}")
    assert host(f"insmod {file}").stderr.endswith("File exists\n")


def test_hcas_are_there_while_their_module_is(own: Own) -> None:
    host = own("v100x8")
    assert host("rmmod mlx5_core").stderr == "rmmod: ERROR: Module mlx5_core is in use by: mlx5_ib\n"
    host.ok("modprobe -r mlx5_ib")
    assert not {"mlx5_ib", "mlx5_core"} & loaded(host)
    assert not host.has(INFINIBAND)
    assert not host.has("dev/infiniband")
    assert host("ibv_devinfo").stderr == "No IB devices found\n"
    assert "mlx5_0" not in host.ok("nvidia-smi topo -m")
    assert host.has("sys/bus/pci/devices/0000:09:00.0")
    host.ok("modprobe mlx5_ib")
    assert host.ok("ibstat -l").split() == ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"]
    assert "mlx5_0" in host.ok("nvidia-smi topo -m")


def test_a_port_that_is_down_is_down_everywhere(own: Own) -> None:
    host = own("v100x8")
    port = f"{INFINIBAND}/mlx5_1/ports/1"
    assert [host.read(f"{port}/{name}") for name in ("state", "phys_state", "rate")] == [
        "4: ACTIVE",
        "5: LinkUp",
        "100 Gb/sec (4X EDR)",
    ]
    host.set("hca/mlx5_1/state", "DOWN")
    assert [host.read(f"{port}/{name}") for name in ("state", "phys_state", "rate", "lid")] == [
        "1: DOWN",
        "2: Polling",
        "10 Gb/sec (4X SDR)",
        "0x0",
    ]
    assert "PORT_DOWN (1)" in host.ok("ibv_devinfo -d mlx5_1")
    assert "State: Down" in host.ok("ibstat mlx5_1")
    assert "PORT_ACTIVE (4)" in host.ok("ibv_devinfo -d mlx5_0")


def test_a_gpu_that_is_gone_is_gone_everywhere(own: Own) -> None:
    host = own("h100x8")
    uuid = host.ok("nvidia-smi --query-gpu=uuid --format=csv,noheader -i 5").strip()
    assert uuid in host.read("proc/driver/nvidia/gpus/0000:aa:00.0/information")
    host.set("gpu/5/state", "gone")
    assert uuid not in host.ok("nvidia-smi -L")
    assert host.ok("nvidia-smi --query-gpu=index --format=csv,noheader").split() == [*"0123456"]
    for path in (
        "sys/bus/pci/devices/0000:aa:00.0",
        "proc/driver/nvidia/gpus/0000:aa:00.0",
        "dev/nvidia7",
    ):
        assert not host.has(path), path
    assert host.has("sys/bus/pci/devices/0000:ab:00.0")  # the HCA of the same switch
    host.set("gpu/5/state", "present")
    assert uuid in host.ok("nvidia-smi -L")


def test_a_new_driver_runs_after_a_reboot(own: Own) -> None:
    host = own("pcie4")
    host.set("driver", "535.86.10")
    assert host("nvidia-smi").returncode == 18
    assert host.ok("modinfo -F version nvidia") == "535.86.10\n"
    assert host.read("sys/module/nvidia/version") == "535.104.05"
    host.boot()
    assert set(host.ok("nvidia-smi --query-gpu=driver_version --format=csv,noheader").split()) == {"535.86.10"}
    assert "535.86.10" in host.read("proc/driver/nvidia/version")


def test_without_a_driver_package_there_is_no_module_after_a_reboot(own: Own) -> None:
    host = own("pcie4")
    host.set("driver", "none")
    assert host("nvidia-smi -L").returncode == 127
    assert "nvidia" in loaded(host)
    host.boot()
    assert loaded(host) == set()
    missing = host("modprobe nvidia")
    assert missing.returncode == 1
    assert missing.stderr.startswith("modprobe: FATAL: Module nvidia not found in directory /lib/modules/")
    host.set("driver", "470.82.01")
    host.ok("modprobe nvidia")
    assert "| NVIDIA-SMI 470.82.01    Driver Version: 470.82.01    CUDA Version: 11.4     |" in host.ok("nvidia-smi")


def test_a_reboot_unloads_what_nothing_loads_again(own: Own) -> None:
    host = own("pcie4")
    (host.root / "etc/modprobe.d").mkdir(parents=True)
    (host.root / "etc/modprobe.d/local.conf").write_text("blacklist nvidia-uvm\nblacklist nvidia_modeset\n", "utf-8")
    host.boot()
    assert loaded(host) == {"nvidia"}
    host.ok("modprobe nvidia_modeset")
    host.boot()
    assert loaded(host) == {"nvidia"}
    (host.root / "etc/modules-load.d").mkdir(parents=True)
    (host.root / "etc/modules-load.d/ours.conf").write_text("# ours\nnvidia-modeset\nno_such\n", "utf-8")
    assert host.boot() == "Failed to find module 'no_such'\n"
    assert loaded(host) == {"nvidia", "nvidia_modeset"}


def test_a_module_of_the_table_may_fail_and_may_bring_files(own: Own) -> None:
    host = own("v100x8")
    table = host.root / LIBRARY / "modules/late"
    table.write_text(
        "size 16384\nfolder extra\npackage driver\nversion 1.1\nlicense GPL\ndescription comes late\n"
        "depends nvidia ib_core\nboot no\nfails late-build broken Invalid argument\n"
        "sys /sys/kernel/mm/memory_peers/late/version 1.1\n",
        "utf-8",
    )
    (host.root / STATE / "late-build").write_text("broken\n", "utf-8")
    host.boot()
    assert "late" not in loaded(host)
    refused = host("modprobe late")
    assert (refused.returncode, refused.stderr) == (1, "modprobe: ERROR: could not insert 'late': Invalid argument\n")
    host.set("late-build", "good")
    host.ok("modprobe late")
    assert host.read("sys/kernel/mm/memory_peers/late/version") == "1.1"
    assert host.read("sys/module/late/version") == "1.1"
    assert "late" in host.ok("lsmod").split("nvidia  ")[1]
    host.ok("rmmod late")
    assert not host.has("sys/kernel/mm/memory_peers/late")


def test_no_gpu_no_driver(own: Own) -> None:
    host = own("pcie4")
    for index in range(4):
        host.set(f"gpu/{index}/state", "gone")
    host.boot()
    assert host("nvidia-smi").returncode == 9
    assert host("modprobe nvidia").stderr == "modprobe: ERROR: could not insert 'nvidia': No such device\n"


def test_a_process_is_on_its_gpu_while_it_lives(own: Own) -> None:
    host = own("pcie4")
    asked = "nvidia-smi --query-compute-apps=gpu_bus_id,pid,process_name,used_memory --format=csv,noheader"
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        host.set(f"process/{process.pid}", "2 700 python train.py")
        assert host.ok(asked) == f"00000000:B2:00.0, {process.pid}, python train.py, 700 MiB\n"
        assert host.ok("nvidia-smi --query-gpu=memory.used --format=csv,noheader -i 2") == "700 MiB\n"
        assert f"{process.pid}      C   python train.py" in host.ok("nvidia-smi")
        assert f"<pid>{process.pid}</pid>" in host.ok("nvidia-smi -q -x")
    assert host.ok(asked) == ""
    assert host.ok("nvidia-smi --query-gpu=memory.used --format=csv,noheader -i 2") == "0 MiB\n"


def test_a_gpu_is_as_busy_as_the_programs_that_see_it(own: Own) -> None:
    host = own("pcie4")
    uuid = host.read("var/lib/simulated-hardware/gpu/2/uuid")
    asked = ["--query-gpu=index,utilization.gpu", "--format=csv,noheader,nounits", "--loop=1"]
    busy = [sys.executable, "-S", "-c", "while True: pass"]
    with subprocess.Popen(busy, env={"CUDA_VISIBLE_DEVICES": uuid}) as program:
        smi = host.start(["nvidia-smi", *asked])
        assert smi.stdout is not None
        rows = [smi.stdout.readline().split(", ") for _row in range(8)]
        smi.kill()
        program.kill()
        smi.communicate()
    uses = [(index, int(use)) for index, use in rows]
    assert [use for _index, use in uses[:4]] == [0, 0, 0, 0], "nothing is known before the first second is over"
    assert [index for index, use in uses[4:] if use > 10] == ["2"]
    assert max(use for _index, use in uses) <= 100


def test_persistence_mode_is_set(own: Own) -> None:
    host = own("pcie4")
    assert host.ok("nvidia-smi -i 1 -pm 0") == "Disabled persistence mode for GPU 00000000:19:00.0.\nAll done.\n"
    modes = host.ok("nvidia-smi --query-gpu=persistence_mode --format=csv,noheader").split()
    assert modes == ["Enabled", "Disabled", "Enabled", "Enabled"]


def test_slots_of_the_gid_table(untouched: Own) -> None:
    host = untouched("a100x8")
    port = host.root / INFINIBAND / "mlx5_bond_0/ports/1"
    table = [
        tuple((port / folder / str(slot)).read_text("utf-8").strip() for folder in ("gids", "gid_attrs/types"))
        for slot in range(4)
    ]
    link = "fe80:0000:0000:0000:0042:0aff:fe00:000b"
    mapped = f"0000:0000:0000:0000:0000:ffff:{bytes(map(int, ADDRESS.split('.'))).hex(':', 2)}"
    assert table == [(gid, version) for gid in (link, mapped) for version in ("IB/RoCE v1", "RoCE v2")]
    assert len(list((port / "gids").iterdir())) == 256
    assert (port / "gids/4").read_text("utf-8").strip() == "0000:0000:0000:0000:0000:0000:0000:0000"
    for folder in ("types", "ndevs"):
        with pytest.raises(OSError, match="Invalid argument") as unused:
            (port / "gid_attrs" / folder / "4").read_text("utf-8")
        assert unused.value.errno == errno.EINVAL


def test_devices_are_never_those_of_a_real_driver(untouched: Own) -> None:
    host = untouched("h100x8")
    nodes = [*(host.root / "dev").glob("nvidia*"), *(host.root / "dev/infiniband").iterdir()]
    assert {node.name for node in nodes} >= {"nvidia7", "nvidiactl", "nvidia-uvm", "uverbs8", "umad0", "rdma_cm"}
    for node in nodes:
        found = node.stat()
        null = stat.S_ISCHR(found.st_mode) and found.st_rdev == Path("/dev/null").stat().st_rdev
        assert null or (stat.S_ISREG(found.st_mode) and found.st_size == 0), node


def test_the_cpus_are_shared_out_over_the_nodes(own: Own) -> None:
    host = own("pcie4")
    node = "sys/devices/system/node"
    for online, first, second, mask in (
        ("0-3", "0-1", "2-3", "0000000c"),
        ("0", "0", "", "00000000"),
        ("0-2", "0-1", "2", "00000004"),
        ("0,2-4,40", "0,2-3", "4,40", "00000100,00000010"),
    ):
        (host.root / "sys/devices/system/cpu/online").write_text(f"{online}\n", "utf-8")
        host.boot()
        assert (host.read(f"{node}/node0/cpulist"), host.read(f"{node}/node1/cpulist")) == (first, second)
        assert host.read(f"{node}/node1/cpumap") == mask
        assert host.read("sys/bus/pci/devices/0000:b2:00.0/local_cpulist") == second


def test_what_is_no_fact_is_refused(own: Own) -> None:
    host = own("pcie4")
    for line in ("set gpus/3/state gone", "set ../../../etc/passwd x", "get nothing", "set driver", "frobnicate"):
        answer = host(f"simulated-hardware {line}")
        assert (answer.returncode, answer.stdout) == (2, ""), line
    assert host.ok("simulated-hardware get gpu/0/state") == "present\n"
    assert "gpu/3/numa 1\n" in host.ok("simulated-hardware get")
