"""Peer memory modules, and what keeps them out: drivers, OFED, headers, keys, users; in the words of the real tools."""

import os
from collections.abc import Callable
from functools import cache

import pytest

from tests.lab.hardware.hosts import LIBRARY, Host, make

Own = Callable[[str], Host]
PEERS = "sys/kernel/mm/memory_peers"
OTHER_OFED = "MLNX_OFED_LINUX-5.8-2.0.3.0"


def refused(host: Host, module: str) -> str:
    """What modprobe says after its own prefix; nothing where it loads."""
    return host(f"modprobe {module}").stderr.partition(f"could not insert '{module}': ")[2].strip()


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Host]:
    """Return a host of a machine that has one GPU and one HCA left, which makes it quick."""

    @cache
    def made(machine: str) -> Host:
        return make(tmp_path_factory.mktemp(machine), machine, most=1)

    return made


def with_nv_peer_mem(host: Host, version: str = "1.1-0") -> Host:
    """A host whose dkms has built nv_peer_mem."""
    add_source(host, version)
    (host.root / "lib/modules" / os.uname().release / "build").mkdir()
    assert "Installing to /lib/modules/" in host.ok(f"dkms install nvidia-peer-memory/{version}")
    return host


def add_source(host: Host, version: str) -> None:
    source = host.root / f"usr/src/nvidia-peer-memory-{version}"
    source.mkdir(parents=True)
    (source / "dkms.conf").touch()


def test_the_driver_brings_its_own_module(own: Own) -> None:
    host = own("a100x8")
    assert not host.has(PEERS)
    host.ok("modprobe nvidia-peermem")
    assert [host.read(f"{PEERS}/{client}/version") for client in ("nv_mem", "nv_mem_nc")] == ["470.82.01"] * 2
    assert host.read("sys/module/nvidia_peermem/version") == "470.82.01"
    users = {line.split()[0]: line.split()[-1] for line in host.ok("lsmod").splitlines()[1:]}
    assert "nvidia_peermem" in users["ib_core"]
    assert "nvidia_peermem" in users["nvidia"]
    assert "ib_core is in use by: nvidia_peermem" in host("openibd stop").stderr.replace(" ib_cm", "")
    host.ok("modprobe -r nvidia_peermem")
    assert not host.has(f"{PEERS}/nv_mem")
    host.set("driver", "460.91.03")
    assert host("modprobe nvidia-peermem").stderr.startswith("modprobe: FATAL: Module nvidia-peermem not found")


def test_why_it_is_not_loaded(own: Own) -> None:
    host = own("a100x8")
    host.set("driver-ofed", "none")
    assert refused(host, "nvidia_peermem") == "Invalid argument"
    file = host.ok("modinfo -n nvidia_peermem").strip()
    told = host.run([str(host.root / "usr/local/sbin/insmod"), file])
    assert told.stderr == f"insmod: ERROR: could not insert module {file}: Invalid parameters\n"
    host.set("driver-ofed", OTHER_OFED)
    assert refused(host, "nvidia_peermem") == "Unknown symbol in module, or unknown parameter (see dmesg)"
    assert "nvidia_peermem: Unknown symbol ib_register_peer_memory_client (err -22)" in host.ok("dmesg")
    host.set("driver-ofed", host.ok("simulated-hardware get ofed").strip())
    assert refused(host, "nvidia_peermem") == ""
    host.set("ofed", OTHER_OFED)
    host.ok("modprobe -r nvidia_peermem")
    assert refused(host, "nvidia_peermem") == ""  # the ib_core that runs is the one it was built against
    host.boot()
    assert host.ok("dmesg") == ""
    assert refused(host, "nvidia_peermem").startswith("Unknown symbol")
    (host.root / "lib/modules" / os.uname().release / "build").mkdir()
    host.ok("dkms install --force nvidia/470.82.01")
    assert refused(host, "nvidia_peermem") == ""


def test_both_modules_would_be_the_same_client(own: Own) -> None:
    host = with_nv_peer_mem(own("v100x8"))
    host.ok("modprobe nv_peer_mem")
    assert host.read(f"{PEERS}/nv_mem/version") == "1.1-0"
    assert not host.has(f"{PEERS}/nv_mem_nc")
    assert refused(host, "nvidia_peermem") == "Invalid argument"
    assert "cannot create duplicate filename '/kernel/mm/memory_peers/nv_mem'" in host.ok("dmesg")
    host.ok("rmmod nv_peer_mem")
    assert refused(host, "nvidia_peermem") == ""


def test_nothing_takes_it_out_while_memory_is_registered(own: Own) -> None:
    host = own("v100x8")
    host.ok("modprobe nvidia-peermem")
    host.set("peermem-users", "3")
    assert host("rmmod nvidia_peermem").stderr == "rmmod: ERROR: Module nvidia_peermem is in use\n"
    assert host("modprobe -r nvidia_peermem").stderr == "modprobe: FATAL: Module nvidia_peermem is in use.\n"
    assert "nvidia_peermem         16384  3 \n" in host.ok("lsmod")
    assert host.read("sys/module/nvidia_peermem/refcnt") == "3"
    host.boot()
    host.ok("modprobe nvidia-peermem")
    host.ok("rmmod nvidia_peermem")


def test_dkms_needs_headers_a_driver_and_an_ofed(own: Own) -> None:
    host = own("v100x8")
    add_source(host, "1.3-0")
    told = host("dkms install nvidia-peer-memory/1.3-0")
    assert told.returncode == 21
    assert told.stderr.startswith("Error! Your kernel headers for kernel ")
    assert "Please install the linux-headers-" in told.stderr
    assert host.ok("dkms status").splitlines()[1] == "nvidia-peer-memory/1.3-0: added"
    host.set("ofed", "MLNX_OFED_LINUX-4.9-4.1.7.0")
    with_nv_peer_mem(host, "1.0-9")  # the headers are there from here on
    host.ok("dkms remove nvidia-peer-memory/1.0-9")
    assert host("modprobe nv_peer_mem").stderr.startswith("modprobe: FATAL: Module nv_peer_mem not found")
    told = host("dkms install -m nvidia-peer-memory -v 1.3-0")
    assert told.returncode == 10
    assert "Bad return status for module build on kernel" in told.stderr
    assert "error:" in host.read("var/lib/dkms/nvidia-peer-memory/1.3-0/build/make.log")
    host.set("ofed", OTHER_OFED)
    host.ok("dkms autoinstall")
    assert ": installed" in host.ok("dkms status").splitlines()[1]
    assert refused(host, "nv_peer_mem").startswith("Unknown symbol")  # the ib_core that runs is still the first one
    host.boot()
    assert refused(host, "nv_peer_mem") == ""


def test_secure_boot_wants_signatures(own: Own) -> None:
    host = with_nv_peer_mem(own("v100x8"))
    assert host.ok("mokutil --sb-state") == "SecureBoot disabled\n"
    host.set("secure-boot", "on")
    assert host.ok("mokutil --sb-state") == "SecureBoot enabled\n"
    assert refused(host, "nv_peer_mem") == "Required key not available"
    assert "Loading of unsigned module is rejected" in host.ok("dmesg")
    host.set("mok", "enrolled")
    host.ok("modprobe nv_peer_mem")
    host.set("driver-signed", "no")
    assert host.boot() == "".join(
        f"Failed to insert module '{name}': Required key not available\n"
        for name in ("nvidia", "nvidia_modeset", "nvidia_uvm")
    )
    host.set("secure-boot", "none")
    assert host("mokutil --sb-state").returncode == 255


def test_modules_load_d_brings_it_back(own: Own) -> None:
    host = own("a100x8")
    (host.root / "etc/modules-load.d").mkdir(parents=True)
    (host.root / "etc/modules-load.d/ours.conf").write_text("nvidia-peermem\n", "utf-8")
    assert host.boot() == ""
    assert host.has(f"{PEERS}/nv_mem")
    host.set("driver-ofed", "none")
    assert host.boot() == "Failed to insert module 'nvidia_peermem': Invalid argument\n"


def test_openibd_takes_out_what_nothing_holds(own: Own) -> None:
    host = own("a100x8")
    host.ok("modprobe nvidia-peermem")
    held = host("openibd restart")
    assert (held.returncode, held.stdout.split()) == (1, ["Unloading", "ib_core", "[FAILED]"])
    assert held.stderr == "rmmod: ERROR: Module ib_core is in use by: nvidia_peermem\n"
    assert not host.has("sys/class/infiniband")
    host.ok("modprobe -r nvidia_peermem")
    assert host.ok("openibd restart").count("[  OK  ]") == 2
    assert host.has("sys/class/infiniband/mlx5_bond_0")


def test_daemons_of_the_driver(own: Own) -> None:
    host = own("a100x8")
    unit = "systemd/system/nvidia-fabricmanager.service"
    assert host.ok("nv-fabricmanager --version") == "Fabric Manager version is : 470.82.01\n"
    host.ok("nv-fabricmanager -c x")
    host.set("fabricmanager", "470.57.02")
    assert "don't match with driver version 470.82.01" in host("nv-fabricmanager -c x").stderr
    assert host.has(f"usr/lib/{unit}")
    host.set("fabricmanager", "none")
    assert host("nv-fabricmanager --version").returncode == 127
    assert not host.has(f"usr/lib/{unit}")
    host.ok("nvidia-persistenced stop")
    assert host.ok("nvidia-smi --query-gpu=persistence_mode --format=csv,noheader").split() == ["Disabled"]
    host.ok("nvidia-persistenced --verbose")
    assert host.ok("nvidia-smi --query-gpu=persistence_mode --format=csv,noheader").split() == ["Enabled"]
    assert not own("pcie4").has(f"usr/lib/{unit}")


def test_iommu_and_access_control_of_bridges(own: Own) -> None:
    host = own("pcie4")
    bridge, device = (host.root / f"sys/bus/pci/devices/0000:{each}" for each in ("17:01.0", "18:00.0"))
    plain = (bridge / "config").read_bytes()
    assert (len(plain), (device / "iommu_group").exists()) == (64, False)
    host.set("acs", "on")
    host.set("iommu", "DMA-FQ")
    config = (bridge / "config").read_bytes()
    assert (len(config), config[:52], config[0x34]) == (4096, plain[:52], 0x40)
    assert config[0x100:0x108] == bytes((0x0D, 0, 1, 0, 0x1F, 0, 0x1D, 0))  # ACS; its control word has SrcValid
    assert len((device / "config").read_bytes()) == 64
    assert (device / "iommu_group/type").read_text("utf-8") == "DMA-FQ\n"


def test_a_hook_is_added_once_and_nothing_else_changes(own: Own) -> None:
    host = own("pcie4")
    config = host.root / "config.json"
    hook = '{"path":"/x","args":["view"]}'
    there = '{"path":"/proc/1/exe"}'
    for before, after in (
        ('{"a":18446744073709551615}', f'{{"a":18446744073709551615,"hooks":{{"prestart":[{hook}]}}}}'),
        ('{"hooks":{},"b":1}', f'{{"hooks":{{"prestart":[{hook}]}},"b":1}}'),
        ('{"hooks":{"prestart":[]}}', f'{{"hooks":{{"prestart":[{hook}]}}}}'),
        (f'{{"hooks":{{"prestart":[{there}]}}}}', f'{{"hooks":{{"prestart":[{hook},{there}]}}}}'),
        (f'{{"hooks":{{"poststop":[{there}]}}}}', f'{{"hooks":{{"prestart":[{hook}],"poststop":[{there}]}}}}'),
        ('{"e":["\\"hooks\\":{"]}', f'{{"e":["\\"hooks\\":{{"],"hooks":{{"prestart":[{hook}]}}}}'),
    ):
        config.write_text(before, "utf-8")
        for _ in range(2):
            done = host.run(["perl", str(host.root / LIBRARY / "oci-hook.pl"), str(config), "/x", "view"])
            assert done.returncode == 0, done.stderr
            assert config.read_text("utf-8") == after
