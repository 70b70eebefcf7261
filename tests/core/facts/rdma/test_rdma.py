"""RDMA from the probe's answer: HCAs, ports, GIDs, OFED and peer memory."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.core.facts.rdma.hcas import build
from taco_launch.core.facts.rdma.peermem import dmabuf, read_modules
from taco_launch.core.facts.rdma.rdma import ofed, parse_rdma
from taco_launch.core.facts.rdma.verbs import ibdev2netdev, ibv_devinfo, show_gids
from taco_launch.core.facts.reports.summary import rows
from taco_launch.core.model.host.fact_value import Absent, Unknown
from taco_launch.core.model.host.hardware import Gid, Hca, Rdma
from tests.support.host_facts import host, known
from tests.support.probe_answers import answer

SYS = "/sys/class/infiniband"
LOCAL = "fe80:0000:0000:0000:0e42:a1ff:fe00:0001"
MAPPED = "0000:0000:0000:0000:0000:ffff:0a00:0001"
FILES = {
    "mlx5_bond_0/node_guid": "0c42:a103:0000:0001",
    "mlx5_bond_0/hca_type": "MT4123",
    "mlx5_bond_0/fw_ver": "20.31.1014",
    "mlx5_bond_0/ports/1/state": "4: ACTIVE",
    "mlx5_bond_0/ports/1/phys_state": "5: LinkUp",
    "mlx5_bond_0/ports/1/rate": "100 Gb/sec (4X EDR)",
    "mlx5_bond_0/ports/1/link_layer": "Ethernet",
    "mlx5_bond_0/ports/1/gids/0": LOCAL,
    "mlx5_bond_0/ports/1/gid_attrs/types/0": "IB/RoCE v1",
    "mlx5_bond_0/ports/1/gid_attrs/ndevs/0": "bond0",
    "mlx5_bond_0/ports/1/gids/3": MAPPED,
    "mlx5_bond_0/ports/1/gid_attrs/types/3": "RoCE v2",
    "mlx5_bond_0/ports/1/gid_attrs/ndevs/3": "bond0",
}
PCI = (
    "hca\tmlx5_bond_0\t/sys/devices/pci0000:17/0000:17:00.0/0000:18:00.0\t{}\t16.0 GT/s PCIe\t16.0 GT/s PCIe\t16\t16\n"
)
PEERMEM = "kernel 5.15.0-91-generic\ndriver NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  545.23.08\nclient nv_mem\nloaded nvidia_peermem\nexists nvidia_peermem\nmissing nv_peer_mem modinfo: ERROR: Module nv_peer_mem not found.\n"


def dump(files: dict[str, str]) -> str:
    return "".join(f"{SYS}/{path}:{text}\n" for path, text in files.items())


def rdma(**other: Any) -> Rdma:
    told: dict[str, Any] = {
        "rdma_sysfs": dump(FILES),
        "rdma_netdevs": "mlx5_bond_0 eth0\n",
        "rdma_pci": PCI.format(0),
        "rdma_ofed": "MLNX_OFED_LINUX-5.4-1.0.3.0:\n",
        "rdma_modules": "nvidia_peermem 16384 0 - Live 0x0000000000000000 (OE)\n",
        "rdma_peermem": PEERMEM,
        "rdma_comes_back": "/etc/modules-load.d/nvidia-peermem.conf:nvidia-peermem\nnv_peer_mem.service \n",
        "rdma_devices": "rdma_cm\nuverbs0\n",
        **other,
    }
    return known(parse_rdma(answer(**told)))


def hca(**other: Any) -> Hca:
    found = known(rdma(**other).hcas)
    return found[0]


def test_a_whole_answer() -> None:
    found = rdma()
    one = hca()
    assert (one.name, one.pci, one.numa, one.type) == ("mlx5_bond_0", "0000:18:00.0", 0, "MT4123")
    assert (one.firmware, one.guid, one.interfaces) == ("20.31.1014", "0c42:a103:0000:0001", ("bond0", "eth0"))
    (port,) = one.ports
    assert (port.number, port.state, port.physical, port.link_layer, port.rate) == (
        1,
        "ACTIVE",
        "LinkUp",
        "Ethernet",
        100.0,
    )
    assert port.gids == (Gid(0, LOCAL, "IB/RoCE v1", "bond0"), Gid(3, MAPPED, "RoCE v2", "bond0"))
    assert found.ofed == "MLNX_OFED_LINUX-5.4-1.0.3.0"
    assert found.devices == ("rdma_cm", "uverbs0")
    peer = found.peer_memory
    assert (peer.exists, peer.loaded, peer.clients, peer.dmabuf) == (
        ("nvidia_peermem",),
        "nvidia_peermem",
        ("nv_mem",),
        True,
    )
    assert peer.comes_back == "/etc/modules-load.d/nvidia-peermem.conf"


BOOT = """\
/etc/rc.local:insmod /root/nv_peer_memory/nv_peer_mem.ko
/etc/modules-load.d/a.conf:  nvidia-peermem
/etc/modprobe.d/b.conf:softdep nvidia post: nvidia_uvm nvidia-peermem
/etc/modprobe.d/c.conf:blacklist nvidia_peermem
/etc/modprobe.d/d.conf:install nv_peer_mem /bin/false
/etc/modprobe.d/e.conf:install nv_peer_mem /sbin/modprobe --ignore-install nv_peer_mem
/etc/modprobe.d/f.conf:install nvidia /sbin/modprobe -i nvidia; /sbin/modprobe nvidia-peermem
nv_peer_mem.service enabled
"""


def test_all_that_loads_peer_memory_at_boot_and_what_keeps_it_out() -> None:
    peer = rdma(rdma_comes_back=BOOT).peer_memory
    assert peer.comes_back == "/etc/rc.local"
    assert peer.at_boot == (
        ("/etc/rc.local", "nv_peer_mem"),
        ("/etc/modules-load.d/a.conf", "nvidia_peermem"),
        ("/etc/modprobe.d/b.conf", "nvidia_peermem"),
        ("/etc/modprobe.d/f.conf", "nvidia_peermem"),
        ("nv_peer_mem.service", "nv_peer_mem"),
    )
    assert peer.blocked == (("/etc/modprobe.d/c.conf", "nvidia_peermem"), ("/etc/modprobe.d/d.conf", "nv_peer_mem"))
    none = rdma(rdma_comes_back="nv_peer_mem.service disabled\n").peer_memory
    assert (none.at_boot, none.blocked, none.comes_back) == ((), (), Absent("nothing loads it at boot"))


@pytest.mark.parametrize(
    ("text", "on"),
    [
        ("SecureBoot enabled", True),
        ("SecureBoot disabled", False),
        ("SecureBoot disabled Platform is in Setup Mode", False),
        ("SecureBoot enabled SecureBoot validation is disabled in shim", False),
        ("EFI variables are not supported on this system", False),
        ("no EFI", False),
        ("6 0 0 0 1", True),
        ("6 0 0 0 0", False),
        ("Failed to read", Unknown("Secure Boot: 'Failed to read'")),
        ("", Unknown("the probe did not check it")),
    ],
)
def test_secure_boot_and_headers(text: str, on: bool | Unknown) -> None:
    peer = rdma(rdma_peermem=f"{PEERMEM}secureboot {text}\nheaders yes\n").peer_memory
    assert (peer.secure_boot, peer.headers) == (on, True)
    assert rdma(rdma_peermem=f"{PEERMEM}headers no\n").peer_memory.headers is False
    assert rdma().peer_memory.headers == Unknown("the probe did not check it")


def test_a_host_without_rdma() -> None:
    none = ("", 2, "ls: cannot access '/dev/infiniband': No such file or directory")
    found = rdma(
        rdma_sysfs="", rdma_netdevs="", rdma_pci="", rdma_ofed=("", 127, "ofed_info: not found"), rdma_devices=none
    )
    assert found.hcas == Absent("/sys/class/infiniband holds no device")
    assert found.ofed == Absent("ofed_info: not found")
    assert isinstance(found.devices, Absent)


@pytest.mark.parametrize(
    ("path", "text", "field", "reason"),
    [
        ("ports/1/state", "4: AKTIV", "state", "state '4: AKTIV'"),
        ("ports/1/state", "4: ACT", "state", "state '4: ACT'"),
        ("ports/1/rate", "10", "rate", "rate '10'"),
        ("ports/1/rate", "\uff11\uff10\uff10 Gb/sec (4X EDR)", "rate", "rate '\uff11\uff10\uff10 Gb/sec (4X EDR)'"),
        ("ports/1/link_layer", "Unspecified", "link_layer", "link_layer 'Unspecified'"),
        ("ports/1/gids/3", MAPPED[:-1], "gids", f"slot 3: '{MAPPED[:-1]}' is no GID"),
    ],
)
def test_what_is_not_understood_is_unknown(path: str, text: str, field: str, reason: str) -> None:
    port = hca(rdma_sysfs=dump({**FILES, f"mlx5_bond_0/{path}": text})).ports[0]
    assert getattr(port, field) == Unknown(reason)
    assert port.physical == "LinkUp"


@pytest.mark.parametrize(
    ("text", "rate"), [("2.5 Gb/sec (1X SDR)", 2.5), ("400 Gb/sec (4X NDR)", 400.0), ("200 Gb/sec (2X NDR)", 200.0)]
)
def test_rates(text: str, rate: float) -> None:
    assert hca(rdma_sysfs=dump({**FILES, "mlx5_bond_0/ports/1/rate": text})).ports[0].rate == rate


def test_a_port_without_any_gid_has_an_empty_table() -> None:
    files = {path: text for path, text in FILES.items() if "gid" not in path}
    assert hca(rdma_sysfs=dump(files)).ports[0].gids == ()


def test_a_type_that_cannot_be_read_says_so() -> None:
    path = f"{SYS}/mlx5_bond_0/ports/1/gid_attrs/types/3"
    files = {name: text for name, text in FILES.items() if not name.endswith("types/3")}
    gids = known(
        hca(rdma_sysfs=(dump(files), 0, f"{path}: cannot be read\ngrep: {SYS}/*/hca_type: No such file or directory"))
        .ports[0]
        .gids
    )
    assert gids[1].type == Unknown(f"{path}: cannot be read")


def test_lines_that_have_run_together_are_not_read() -> None:
    found = rdma(rdma_sysfs=dump(FILES).replace("\n", "", 1)).hcas
    assert isinstance(found, Unknown | tuple)
    assert isinstance(found, Unknown) or found[0].guid != "0c42:a103:0000:0001"
    broken = rdma(rdma_sysfs=dump(FILES) + "mlx5_\n").hcas
    assert broken == Unknown("/sys/class/infiniband, line 14: 'mlx5_' is not understood")


def test_infiniband_has_no_interfaces_of_gids() -> None:
    path = f"{SYS}/mlx5_bond_0/ports/1/gid_attrs/ndevs/0"
    files = {name: text for name, text in FILES.items() if "ndevs" not in name and not name.endswith("/3")}
    files["mlx5_bond_0/ports/1/link_layer"] = "InfiniBand"
    one = hca(rdma_sysfs=(dump(files), 0, f"{path}: cannot be read"), rdma_netdevs="")
    assert one.interfaces == ()
    assert known(one.ports[0].gids)[0].netdev == Absent("a GID of InfiniBand belongs to no interface")


def test_hcas_in_natural_order() -> None:
    files = {f"mlx5_{n}/ports/1/state": "4: ACTIVE" for n in (10, 2, 1)}
    found = known(rdma(rdma_sysfs=dump(files), rdma_netdevs="", rdma_pci=("", 0, "")).hcas)
    assert [one.name for one in found] == ["mlx5_1", "mlx5_2", "mlx5_10"]


def test_a_platform_that_names_no_numa_node() -> None:
    assert hca(rdma_pci=PCI.format(-1)).numa == Absent("the platform names no node")


@pytest.mark.parametrize(
    ("told", "loaded", "comes_back"),
    [
        ({"rdma_comes_back": "nv_peer_mem.service enabled\n"}, "nvidia_peermem", "nv_peer_mem.service"),
        ({"rdma_comes_back": "nv_peer_mem.service disabled\n"}, "nvidia_peermem", Absent("nothing loads it at boot")),
        (
            {
                "rdma_peermem": "kernel 3.10.0-957.el7.x86_64\ndriver \n",
                "rdma_modules": "ib_core 442368 0 - Live 0x0\n",
            },
            Absent("neither nvidia_peermem nor nv_peer_mem is loaded"),
            "/etc/modules-load.d/nvidia-peermem.conf",
        ),
        (
            {"rdma_peermem": PEERMEM + "loaded nv_peer_mem\n"},
            Unknown("nvidia_peermem and nv_peer_mem are both loaded, but only one may be"),
            "/etc/modules-load.d/nvidia-peermem.conf",
        ),
    ],
)
def test_peer_memory(told: dict[str, str], loaded: object, comes_back: object) -> None:
    found = rdma(**told).peer_memory
    assert found.loaded == loaded
    assert found.comes_back == comes_back


def test_modules_that_modinfo_cannot_look_for_are_unknown() -> None:
    text = "kernel 5.4.0\ndriver \n"
    found = rdma(rdma_peermem=(text, 0, "modinfo: not found")).peer_memory
    assert found.exists == Unknown("modinfo: not found")
    assert (
        rdma(
            rdma_peermem=f"{text}missing nvidia_peermem modinfo: ERROR: Module nvidia_peermem not found.\n"
        ).peer_memory.exists
        == ()
    )


@pytest.mark.parametrize(
    ("kernel", "driver", "found"),
    [
        ("3.10.0-957.el7.x86_64", "NVRM version: NVIDIA UNIX Open Kernel Module", False),
        ("5.11.22", "NVRM version: NVIDIA UNIX Open Kernel Module", False),
        ("5.12.0", "NVRM version: NVIDIA UNIX Open Kernel Module", True),
        ("6.8.0-45-generic", "NVRM version: NVIDIA UNIX x86_64 Kernel Module", False),
        ("6.8.0-45-generic", "", Unknown("no NVIDIA driver is loaded")),
        ("", "", Unknown("kernel ''")),
    ],
)
def test_dmabuf(kernel: str, driver: str, found: object) -> None:
    assert dmabuf(kernel, driver) == found


@pytest.mark.parametrize("word", ["Up", "Down"])
def test_the_state_of_an_interface_is_told_and_is_not_the_ports(word: str) -> None:
    seen = known(ibdev2netdev(f"mlx5_4 port 1 ==> eth4 ({word})\n"))
    ((port,),) = [one.ports for one in build(seen)]
    assert port.state == Unknown(f"ibdev2netdev shows only that the interface is {word}")
    devinfo = known(ibv_devinfo("hca_id:\tmlx5_4\n\tport:\t1\n\tstate:\tPORT_ACTIVE (4)\n"))
    assert build([*seen, *devinfo])[0].ports[0].state == "ACTIVE"


def test_ofed() -> None:
    assert ofed("OFED-internal-24.10-0.7.0:\n") == "OFED-internal-24.10-0.7.0"
    assert isinstance(ofed("MLNX_OFED_LINUX-5.4-1.0"), Unknown)


@given(st.text(alphabet="mlx5_0 port 1 ==> (Up)\nGID[ 0]:fe80::,RoCE v2hca_id\t\x1b[0m", max_size=200))
def test_no_text_raises(text: str) -> None:
    for read in (show_gids, ibdev2netdev, ibv_devinfo, read_modules):
        read(text)
    parse_rdma(answer(rdma_sysfs=text, rdma_netdevs=text, rdma_pci=text, rdma_peermem=text, rdma_comes_back=text))


def test_a_module_that_did_not_load_at_this_boot_is_not_told_to_come_back() -> None:
    facts = host("gpu1")
    peer = replace(known(facts.rdma).peer_memory, exists=("nvidia_peermem",), comes_back="/etc/modules-load.d/a.conf")
    for loaded, words in (
        (Absent("none"), "not loaded (nvidia_peermem there): not loaded now, though /etc/modules-load.d/a.conf loads it at boot: loading failed, or it was unloaded"),
        ("nvidia_peermem", "nvidia_peermem loaded, returns by /etc/modules-load.d/a.conf"),
    ):  # fmt: skip
        found = rows(replace(facts, rdma=replace(known(facts.rdma), peer_memory=replace(peer, loaded=loaded))))
        assert [row.text for row in found if row.name == "peer memory"] == [words]


COUNT, PORT = "\tphys_port_cnt:\t\t1\n", "\t\tport:\t1\n\t\t\tstate:\t\tPORT_ACTIVE (4)\n\n"
DEVICE = f"hca_id:\tmlx5_{{0}}\n\tfw_ver:\t\t28.42.1000\n{COUNT}{PORT}"


@pytest.mark.parametrize(
    ("begin", "end", "said"),
    [
        (len("hca_id:\tmlx5_0\n"), None, "starts in the middle of a device: its beginning is cut off"),
        (0, -len(PORT), "'mlx5_1' ends in the middle"),
        (0, -len(COUNT + PORT), "'mlx5_1' ends in the middle"),
    ],
)
def test_devices_that_are_cut_off_are_not_a_whole_answer(begin: int, end: int | None, said: str) -> None:
    text = DEVICE.format(0) + DEVICE.format(1)
    assert isinstance(ibv_devinfo(text), tuple)
    found = ibv_devinfo(text[begin:end])
    assert isinstance(found, Unknown)
    assert said in found.reason


def test_names_alone_are_names() -> None:
    found = known(ibv_devinfo("hca_id:\tmlx5_0\n\tfw_ver:\t28.42.1000\nhca_id:\tmlx5_1\n\tfw_ver:\t28.42.1000\n"))
    assert list(dict.fromkeys(seen.hca for seen in found)) == ["mlx5_0", "mlx5_1"]


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("MLNX_OFED_LINUX-5.4-1.0.3.0:\n", "MLNX_OFED_LINUX-5.4-1.0.3.0"),
        ("MLNX_OFED_LINUX-4.4-1.0.0.0 (OFED-4.4-1.0.0):\nar_mgr:\n", "MLNX_OFED_LINUX-4.4-1.0.0.0"),
        ("OFED-internal-24.10-1.1.4:\n", "OFED-internal-24.10-1.1.4"),
    ],
)
def test_ofed_info_in_its_short_and_long_form(text: str, version: str) -> None:
    assert ofed(text) == version


ROWS = "mlx5_0 port 1 ==> ens1f0 (Up)\nmlx5_1 port 1 ==> ens1f1 (Down)\n"


@pytest.mark.parametrize("row", ["mlx5_0  port  1  ==>  ens1f0  (Up)", "mlx5_0 port 1 ==> ens1f0 (Up)   # rail 1"])
def test_rows_of_ibdev2netdev_as_people_keep_them(row: str) -> None:
    assert ibdev2netdev(f"{row}\n") == ibdev2netdev("mlx5_0 port 1 ==> ens1f0 (Up)\n")


def test_one_device_that_is_two_things_is_of_two_hosts() -> None:
    assert isinstance(ibdev2netdev(ROWS + ROWS), tuple)
    found = ibdev2netdev(ROWS + ROWS.replace("ens1f0", "bond0"))
    assert "two different values for that port" in str(found)
    gids = "mlx5_0 1 3 0000:0000:0000:0000:0000:ffff:0a00:000{0} 10.0.0.{0} v2 bond0\n"
    assert "two different values for mlx5_0 port 1" in str(show_gids(gids.format(1) + gids.format(2)))
    assert isinstance(show_gids(gids.format(1) + gids.format(1)), tuple)


def test_an_hca_of_two_ports_has_two_interfaces() -> None:
    assert isinstance(ibdev2netdev("mlx5_0 port 1 ==> ib0 (Up)\nmlx5_0 port 2 ==> ib1 (Up)\n"), tuple)


def test_a_port_of_no_device_is_cut_off() -> None:
    cut = ibv_devinfo("\t\tport:\t1\n\t\t\tstate:\t\tPORT_ACTIVE (4)\n")
    assert "starts in the middle of a device: its beginning is cut off" in str(cut)
    assert isinstance(ibv_devinfo("\t\tGID[  3]:\t\t::ffff:10.0.0.1, RoCE v2\n"), tuple)


def test_text_behind_a_list_of_modules_is_none_of_it() -> None:
    assert read_modules("Module Size Used by\nnvidia 56000000 1 nvidia_uvm\n\n- Docker\n") == ("nvidia",)
    assert isinstance(read_modules("nvidia 56000000 1 nvidia_uvm\nnvidia_uvm 56\n"), Unknown)
