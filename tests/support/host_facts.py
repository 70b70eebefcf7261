"""Hosts whose facts tests compare: one like the guide's machine, and ways to differ from it."""

from dataclasses import replace
from typing import Any, TypeVar

from taco_launch.core.model.host.fact_value import Absent, Found, Unknown
from taco_launch.core.model.host.facts import (
    Address,
    Bond,
    BondMember,
    Cpu,
    Disk,
    DockerFacts,
    Firewall,
    HostFacts,
    Interface,
    Listener,
    Memory,
    NetworkFacts,
    NumaNode,
    Os,
    ProcessLimits,
    Software,
    System,
)
from taco_launch.core.model.host.hardware import Driver, Gpu, Gpus, Hca, PeerMemory, Port, Rdma, Topology
from taco_launch.core.model.host.health import Counters, HealthFacts, MemoryErrors

GIB = 1 << 30
T = TypeVar("T")


def known(value: Found[T]) -> T:
    """Return a fact that has to have been found."""
    assert not isinstance(value, (Absent, Unknown)), value
    return value


def host(name: str, driver: str = "535.104.05", **subjects: Any) -> HostFacts:
    """Return a host of eight A100 on a bond."""
    number = int("".join(filter(str.isdigit, name)) or "1")
    gpus = tuple(
        Gpu(index, f"GPU-{number}-{index}", "NVIDIA A100-SXM4-40GB", f"0000:{index:02x}:00.0", 40 * GIB, 0, False, 0, 0)
        for index in range(8)
    )
    link = tuple(tuple("X" if one == other else "NV12" for other in range(8)) for one in range(8))
    facts = HostFacts(
        name,
        system=System(
            name,
            Os("centos", "7.6.1810", "CentOS Linux 7.6.1810"),
            "3.10.0-957.el7.x86_64",
            "x86_64",
            Cpu("Intel(R) Xeon(R) Platinum 8361HC", 2, 48, 96),
            (NumaNode(0, "0-23,48-71", 512 * GIB), NumaNode(1, "24-47,72-95", 512 * GIB)),
            Memory(1024 * GIB, (900 + number) * GIB, 0),
            (Disk("/", "ext4", 100 * GIB, (40 + number) * GIB),),
            (ProcessLimits("memlock", None, None), ProcessLimits("nofile", 1024, 524288)),
            0.01 * number,
            0.02,
            True,
            "disabled",
            False,
            False,
            "root",
            "systemd",
            Absent(),
            "yum",
            1.0,
        ),
        network=NetworkFacts(
            (
                Interface("lo", "loopback", "unknown", 65536, "00:00:00:00:00:00", (Address("127.0.0.1/8", "host"),)),
                Interface("bond0", "bond", "up", 1500, "aa:bb", (Address(f"10.0.0.{number}/24", "global"),), 100.0),
            ),
            (Bond("bond0", "IEEE 802.3ad", True, (BondMember("eth0", True, 50.0), BondMember("eth1", True, 50.0))),),
            "bond0",
            "bond0",
            (Firewall("firewalld", False, "inactive"),),
            (32768, 60999),
            (Listener("0.0.0.0", 22, "sshd"),),
        ),
        docker=DockerFacts(
            "26.1.4", "docker", False, "/var/lib/docker", "overlay2", "cgroupfs", 1, ("runc",), "runc", False,
            (), (), (), (), Absent(),
        ),
        gpu=Gpus(Driver(driver, driver, "12.2", False, "active"), gpus, (), ()),
        topology=Topology(tuple(f"GPU{index}" for index in range(8)), (), link),
        rdma=Rdma(
            (Hca("mlx5_bond_0", (Port(1, "ACTIVE", "LinkUp", "Ethernet", 100.0, ()),), "0000:1b:00.0", 0, "22.31", "MT", "g", ("bond0",)),),
            "MLNX_OFED_LINUX-5.4-1.0.3.0",
            PeerMemory(("nvidia_peermem",), Absent(), Absent(), (), False, (), (), True, False),
            (),
            (),
        ),
        image=Software(
            "host", "4.1.4", "/usr/bin/mpirun", Absent(), "2.9.9", "11.3", "3.8.10", "1.11.0", "0.22.1", (), Absent(),
            (), "/usr/sbin/sshd", Absent(), 65536, 32 * GIB,
        ),
    )  # fmt: skip
    return replace(facts, **subjects)


FINE = HealthFacts((), Counters((), 3.0, 9000.0), (MemoryErrors("mc0", 0, 0),), (), Absent(), Absent(), ())


def checked(name: str, **health: Any) -> HostFacts:
    """A host as `check` sees it: without a fault, but for what is given."""
    found = host(name)
    image = replace(known(found.image), memlock=None)
    return replace(found, health=replace(FINE, **health), image=image)
