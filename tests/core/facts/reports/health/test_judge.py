"""Each check at its edge, on a host that is right but for one thing; what cannot be read is never right."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from taco_launch.core.facts.reports.health.judge import GROUPS, checked, judged, worst
from taco_launch.core.facts.reports.health.links import RULES
from taco_launch.core.facts.reports.health.system import Expected
from taco_launch.core.facts.reports.health.verdict import with_typed_hints
from taco_launch.core.model.host.fact_value import Absent, Unknown
from taco_launch.core.model.host.facts import NO_ANSWER, ContainerState, Disk, Firewall, HostFacts, Listener, SetupState
from taco_launch.core.model.host.hardware import Gpus, PciDevice
from taco_launch.core.model.host.health import (
    Counters,
    ErrorCounter,
    GpuMemory,
    HealthFacts,
    MemoryErrors,
    Mount,
    NvLinks,
    Provided,
    Xid,
)
from tests.support.host_facts import GIB, host, known

EXPECTED = Expected("taco-launch-c", 12222, hosts=2)
COUNTERS = (
    ("mlx5_bond_0 port 1", "symbol_error"),
    ("mlx5_bond_0 port 1", "link_downed"),
    ("mlx5_bond_0 port 1", "out_of_sequence"),
    ("mlx5_bond_0 port 1", "np_cnp_sent"),
    ("bond0", "carrier_changes"),
    ("bond0", "rx_errors"),
    ("bond0", "rx_dropped"),
)
NO_LOG = Unknown("dmesg: Operation not permitted")


def counters(**changed: tuple[int, int]) -> Counters:
    """Return counters that are all 0 but for those given as name=(total, gained), after 30 days of uptime."""
    each = tuple(ErrorCounter(device, name, *changed.get(name, (0, 0))) for device, name in COUNTERS)
    return Counters((*each, ErrorCounter("veth1", "rx_errors", 900, 900)), 3.0, 30 * 86400.0)


FINE = HealthFacts(
    xids=(),
    counters=counters(),
    memory=(MemoryErrors("mc0", 999, 0),),
    mounts=(Mount("/", False, 94), Mount("/data", False, Absent())),
    nvlinks=tuple(NvLinks(gpu, (), ()) for gpu in range(8)),
    gpus=tuple(GpuMemory(gpu, 0, False, 4, 4) for gpu in range(8)),
    provided=(("DCGM", Absent("dcgmi: not found")), ("NHC", Absent("nhc: not found"))),
)


def right(name: str = "gpu1", **health: Any) -> HostFacts:
    """Return a host with nothing to be said against it, but what is given of its health."""
    facts = host(name)
    running = ContainerState("taco-launch-c", "train", "running", ())
    return replace(
        facts,
        health=replace(FINE, **health),
        docker=replace(known(facts.docker), containers=(running,)),
        image=replace(known(facts.image), where="taco-launch-c", memlock=None),
        network=replace(known(facts.network), listeners=(Listener("*", 12222, None),)),
    )


def of(subject: str, **changed: Any) -> HostFacts:
    facts = right()
    return replace(facts, **{subject: replace(known(getattr(facts, subject)), **changed)})


def wrong(*hosts: HostFacts) -> list[tuple[str, str, str]]:
    found = judged(hosts, EXPECTED)
    assert all(
        verdict.source and (verdict.hint or verdict.level == "not possible")
        for verdict, _ in found
        if verdict.level != "ok"
    )
    return [(verdict.level, verdict.name, verdict.text) for verdict, _ in found if verdict.level != "ok"]


def closing(*ports: tuple[int, int]) -> Firewall:
    return Firewall("nftables", True, "nftables does not let everything in: drop", ports)


def xid(number: int) -> Xid:
    return Xid(number, "0000:03:00", 30 * 86400 - 7200.0, "pid=7, words")


def links(**changed: Any) -> tuple[NvLinks, ...]:
    return tuple(replace(each, **changed) if each.gpu == 2 else each for each in known(FINE.nvlinks))


def gpus(**changed: Any) -> tuple[GpuMemory, ...]:
    return tuple(replace(each, **changed) if each.gpu == 2 else each for each in known(FINE.gpus))


def test_a_host_that_is_right() -> None:
    ((_, verdicts),) = checked((right(),), EXPECTED)
    assert {each.level for each in verdicts} == {"ok"}, [each for each in verdicts if each.level != "ok"]
    assert worst(verdicts) == "ok"
    asked = {rule.check for rule in RULES} | {
        "Xid",
        "retired pages",
        "NVLink links",
        "NVLink errors",
        "PCIe speed",
        "sshd",
    }
    asked |= {
        "memory errors",
        "disk space",
        "file systems",
        "memlock",
        "shared memory",
        "container",
        "clock",
        "firewall",
    }
    assert asked <= {each.name for each in verdicts}
    assert {each.name for each in verdicts} <= {name for _, names in GROUPS for name in names}


def test_what_was_not_asked_for_is_not_judged() -> None:
    names = {each.name for _, verdicts in checked((host("gpu1"),), Expected()) for each in verdicts}
    assert not names & {"Xid", "memory errors", "container", "sshd", "link flaps", "NVLink links", "retired pages"}


@pytest.mark.parametrize(
    ("health", "level", "name", "words"),
    [
        ({"xids": (xid(79),)}, "fault", "Xid", "Xid 79 on GPU 3 2 h ago (RESTART_BM): pid=7, words"),
        ({"xids": (xid(74),)}, "fault", "Xid", "(WORKFLOW_NVLINK_ERR)"),
        ({"xids": (xid(63),)}, "warning", "Xid", "rows were remapped"),
        ({"xids": (xid(999),)}, "warning", "Xid", "not in the catalog"),
        ({"xids": NO_LOG}, "not possible", "Xid", "the kernel log cannot be read: dmesg: Operation not permitted"),
        ({"counters": counters(symbol_error=(9, 4))}, "fault", "port errors", "mlx5_bond_0 port 1 symbol_error +4 in 3 s"),
        ({"counters": counters(link_downed=(700, 0))}, "warning", "port errors", "700 times in 30 d of uptime"),
        ({"counters": counters(out_of_sequence=(9, 1))}, "warning", "lost packets", "out_of_sequence +1"),
        ({"counters": counters(np_cnp_sent=(9, 30_000))}, "warning", "congestion", "np_cnp_sent +30000"),
        ({"counters": counters(carrier_changes=(9, 2))}, "fault", "link flaps", "bond0 carrier_changes +2"),
        ({"counters": counters(rx_errors=(9, 2))}, "warning", "interface errors", "bond0 rx_errors +2"),
        ({"counters": counters(rx_dropped=(9999, 300))}, "warning", "dropped packets", "bond0 rx_dropped +300"),
        ({"memory": (MemoryErrors("mc0", 0, 1),)}, "fault", "memory errors", "mc0 1 uncorrected"),
        ({"memory": (MemoryErrors("mc0", 1000, 0),)}, "warning", "memory errors", "mc0 1000 corrected"),
        ({"memory": Absent("no EDAC")}, "not possible", "memory errors", "no EDAC"),
        ({"mounts": (Mount("/", True, 1),)}, "fault", "file systems", "read-only: /"),
        ({"mounts": (Mount("/mnt", True, 1),)}, "warning", "file systems", "read-only: /mnt"),
        ({"mounts": (Mount("/", False, 95),)}, "warning", "file systems", "inodes in use: / 95 %"),
        ({"nvlinks": links(down=(4, 5))}, "fault", "NVLink links", "GPU 2: links 4-5 down"),
        ({"nvlinks": links(errors=((4, "CRC Errors", 7),))}, "warning", "NVLink errors", "GPU 2 link 4 CRC Errors 7"),
        ({"nvlinks": Unknown("odd")}, "not possible", "NVLink links", "odd"),
        ({"gpus": gpus(pending=True)}, "fault", "retired pages", "pending on GPU 2"),
        ({"gpus": gpus(retired=60)}, "fault", "retired pages", "60 or more on GPU 2"),
        ({"gpus": gpus(generation=3)}, "warning", "PCIe speed", "GPU 2 generation 3 of 4"),
        ({"provided": (("NHC", Provided("NHC", "fault", "no port")),)}, "fault", "NHC", "no port"),
        ({"provided": (("DCGM", Unknown("not enabled")),)}, "not possible", "DCGM", "not enabled"),
    ],
)  # fmt: skip
def test_each_check_of_a_health_check(health: dict[str, Any], level: str, name: str, words: str) -> None:
    ((one, two, text),) = wrong(right(**health))
    assert (one, two) == (level, name)
    assert words in text


@pytest.mark.parametrize(
    ("facts", "level", "name", "words"),
    [
        (of("system", disks=(Disk("/", "ext4", 100 * GIB, 4 * GIB),)), "warning", "disk space", "/ has 4.0 GiB free"),
        (of("system", disks=(Disk("/", "ext4", 100 * GIB, 0),)), "fault", "disk space", "/ has 0 B free"),
        (of("system", clock_offset=200.0), "warning", "clock", "3.3 min ahead of the controller"),
        (of("system", clock_offset=400.0), "fault", "clock", "6.7 min ahead of the controller"),
        (of("system", clock_error=2.0), "not possible", "clock", "the answer took 4 s"),
        (of("image", memlock=65536), "warning", "memlock", "64.0 KiB (container taco-launch-c)"),
        (of("image", shm=64 << 20), "warning", "shared memory", "64.0 MiB"),
        (of("docker", containers=()), "fault", "container", "taco-launch-c is missing"),
        (of("docker", containers=Unknown("no answer")), "not possible", "container", "no answer"),
        (
            of("docker", version=Unknown("permission denied on docker.sock"), containers=NO_ANSWER),
            *("not possible", "container", "permission denied on docker.sock"),
        ),
        (of("docker", version=Absent("no daemon"), containers=NO_ANSWER), "not possible", "container", "no daemon"),
        (of("network", listeners=()), "fault", "sshd", "port 12222"),
        (of("network", firewalls=(closing((1, 21), (23, 65535)),)), "fault", "firewall", "TCP 12222 (the container's sshd)"),
        (of("network", firewalls=(closing((12222, 12222)),)), "fault", "firewall", "(the container's sshd): nftables does"),
        (of("network", firewalls=(closing((40000, 60999)),)), "fault", "firewall", "TCP 40000-60999 (jobs): nftables"),
        (of("network", firewalls=(closing((40000, 41000)),)), "warning", "firewall", "TCP 40000-41000 (jobs): nftables"),
        (of("network", firewalls=Unknown("no right")), "not possible", "firewall", "no right"),
        (
            replace(right(), pci=(PciDevice("hca", "mlx5_0", ("a",), speed=8.0, max_speed=16.0),)),
            *("warning", "PCIe speed", "mlx5_0 8 of 16 GT/s"),
        ),
    ],
)  # fmt: skip
def test_each_check_of_facts(facts: HostFacts, level: str, name: str, words: str) -> None:
    ((one, two, text),) = wrong(facts)
    assert (one, two) == (level, name)
    assert words in text


def test_a_firewall_that_closes_nothing_that_jobs_need() -> None:
    assert wrong(of("network", firewalls=(closing((1, 21), (23, 12221)),))) == []
    closed = of("network", firewalls=(closing((1, 65535)),))
    for expected in (replace(EXPECTED, hosts=1), replace(EXPECTED, container=None)):
        ((_, verdicts),) = checked((closed,), expected)
        assert not [each for each in verdicts if each.name == "firewall"]
    narrow = of("network", firewalls=(closing((32768, 60999)),))
    ((_, verdicts),) = checked((narrow,), replace(EXPECTED, port_range=(20000, 29999)))
    assert worst(verdicts) == "ok"
    ((_, verdicts),) = checked((closed,), replace(EXPECTED, port_range=(20000, 29999)))
    (hint,) = (each.hint for each in verdicts if each.name == "firewall")
    assert "Set-up also opens TCP 32768-60999, from which" in hint


def test_why_locked_memory_is_limited() -> None:
    limited = of("image", memlock=65536)

    def memlock(facts: HostFacts, expected: Expected = EXPECTED) -> tuple[str, str]:
        ((_, verdicts),) = checked((facts,), expected)
        (verdict,) = [each for each in verdicts if each.name == "memlock"]
        return verdict.text, verdict.hint

    text, hint = memlock(limited, replace(EXPECTED, memlock=65536))
    assert text == "64.0 KiB (container taco-launch-c), as the inventory says"
    assert hint.startswith("write container: {ulimits: {memlock: -1}} in the inventory")
    plain = replace(limited, image=replace(known(limited.image), where="host"))
    assert memlock(plain)[1].endswith(
        "printf '%s - memlock unlimited\\n' '*' root >/etc/security/limits.d/90-memlock.conf"
    )
    made = SetupState((), (), ("CHOWN",), None, Absent(), Absent(), *[Absent()] * 7)
    text, hint = memlock(replace(limited, made=made))
    assert text == "64.0 KiB (container taco-launch-c): this host does not have the capability SYS_RESOURCE"
    assert "inventory" not in hint
    assert "LimitMEMLOCK=infinity" in hint
    text, hint = memlock(replace(limited, made=replace(made, capabilities=("SYS_RESOURCE",))))
    assert hint.startswith("on the host: docker inspect -f '{{.HostConfig.Ulimits}}' taco-launch-c shows")


def test_a_user_who_may_not_ask_the_engine_is_told_of_sudo() -> None:
    for reason, hint in (("permission denied: /var/run/docker.sock", "add --ask-sudo-password"), ("it hangs", "")):
        ((_, verdicts),) = checked((of("docker", version=Unknown(reason), containers=NO_ANSWER),), EXPECTED)
        (verdict,) = [each for each in verdicts if each.name == "container"]
        assert verdict.text == reason
        assert verdict.hint.endswith(hint)
        assert bool(verdict.hint) is bool(hint)


def test_hints_name_what_they_are_about() -> None:
    full = of("system", disks=(Disk("/a b", "ext4", 100 * GIB, 4 * GIB), Disk("/data", "xfs", 100 * GIB, 90 * GIB)))
    many = right(mounts=(Mount("/", False, 99),))
    hints = [verdict.hint for facts in (full, many) for verdict, _ in judged((facts,), EXPECTED) if verdict.hint]
    assert [hint.split(" | ")[0] for hint in hints] == [
        "du -xh --max-depth=2 '/a b'",
        "find / -xdev -type f",
    ]


def test_hints_name_the_inventory_as_it_is_typed() -> None:
    full = of("system", disks=(Disk("/", "ext4", 100 * GIB, 0),))
    closed = of("network", firewalls=(closing((1, 65535)),), listeners=())
    odd = of("system", kernel="9.9")
    hosts = (full, replace(closed, host="gpu2"), replace(odd, host="gpu3"))
    typed = "taco-launch -i my.yaml"
    told = [each for _, verdicts in checked(hosts, EXPECTED) for each in with_typed_hints(verdicts, typed)]
    hints = [each.hint for each in told if "taco-launch" in each.hint.replace("taco-launch-c", "")]
    assert {"disk space", "firewall", "sshd", "versions"} <= {each.name for each in told if each.hint in hints}
    for hint in hints:
        assert hint.count("taco-launch ") == hint.count(f"{typed} ") > 0, hint


def test_errors_of_programs_say_nothing_against_a_host() -> None:
    facts = right(
        xids=(xid(13), xid(31), xid(43)), counters=counters(np_cnp_sent=(1 << 40, 29_000), rx_dropped=(1 << 40, 299))
    )
    assert wrong(facts) == []
    (text,) = [each.text for _, verdicts in checked((facts,), EXPECTED) for each in verdicts if each.name == "Xid"]
    assert text == "none since the boot but those of programs (13, 31, 43)"


def fewer(facts: HostFacts) -> HostFacts:
    assert isinstance(facts.gpu, Gpus)
    return replace(facts, gpu=replace(facts.gpu, gpus=known(facts.gpu.gpus)[:7]))


def down(facts: HostFacts) -> HostFacts:
    (hca,) = known(known(facts.rdma).hcas)
    return replace(
        facts, rdma=replace(known(facts.rdma), hcas=(replace(hca, ports=(replace(hca.ports[0], state="DOWN"),)),))
    )


def kernel(facts: HostFacts) -> HostFacts:
    return replace(facts, system=replace(known(facts.system), kernel="5.15"))


def late(facts: HostFacts) -> HostFacts:
    return replace(facts, system=replace(known(facts.system), clock_offset=-9.0))


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize(
    ("change", "level", "name", "words"),
    [
        (fewer, "fault", "GPUs present", "7, and "),
        (down, "fault", "ports in use", "mlx5_bond_0 port 1 is DOWN"),
        (kernel, "warning", "versions", "kernel 5.15 (1 with 3.10.0-957.el7.x86_64)"),
        (late, "warning", "clock", "9 s behind most hosts"),
    ],
)
def test_a_host_beside_others(
    count: int, change: Callable[[HostFacts], HostFacts], level: str, name: str, words: str
) -> None:
    hosts = [right(f"gpu{number}") for number in range(1, count)]
    found = dict(checked((*hosts, change(right("gpu9"))), EXPECTED))
    odd = {(each.level, each.name): each.text for each in found["gpu9"] if each.level != "ok"}
    if count == 4 or change in (fewer, down):
        assert words.replace("(1 with", f"({count - 1} with") in odd[level, name]
        assert worst(found["gpu1"]) == "ok"
    elif change is kernel:  # which of two is right is not known
        assert {each.name for each in found["gpu1"] if each.level == "warning"} == {"versions"}
