"""What has changed between two looks at a host: all that a reboot should keep, and nothing that it may not."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.core.facts.reports import summary
from taco_launch.core.facts.reports.changes import FactChange, changes, hosts_of
from taco_launch.core.facts.reports.compare import fold
from taco_launch.core.facts.reports.document import document
from taco_launch.core.model.host.fact_value import NOT_ASKED, Absent
from taco_launch.core.model.host.facts import Address, HostFacts, Interface, Listener, NetworkFacts, System
from taco_launch.core.model.host.hardware import Gpus, Rdma
from tests.support.host_facts import host, known


def told(facts: HostFacts) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(document(facts)))
    return found


def differ(before: HostFacts, after: HostFacts) -> list[FactChange]:
    return list(changes(told(before), told(after)))


def parts() -> tuple[HostFacts, System, NetworkFacts, Gpus, Rdma]:
    facts = host("gpu1")
    return facts, known(facts.system), known(facts.network), known(facts.gpu), known(facts.rdma)


def test_a_reboot_is_no_change() -> None:
    facts, system, network, gpu, _ = parts()
    veth = Interface("veth12ab", "veth", "up", 1500, "02:00")
    bridge = Interface("docker0", "bridge", "up", 1500, "02:01")
    before = replace(facts, network=replace(network, interfaces=(*known(network.interfaces), bridge, veth)))
    busy = tuple(replace(each, memory_used=5, temperature=60, slowdowns=("SwPowerCap",)) for each in known(gpu.gpus))
    after = replace(
        facts,
        system=replace(system, booted=5e8, clock_offset=0.9, clock_error=0.5),
        network=replace(
            network,
            interfaces=(replace(bridge, mac="02:99"), *known(network.interfaces), replace(veth, name="veth99")),
            listeners=(Listener("0.0.0.0", 40123, "rpc.statd"),),
        ),
        gpu=replace(gpu, gpus=busy, processes=()),
    )
    assert differ(before, after) == []


def test_the_only_interface_of_a_container_is_compared_and_summarised() -> None:
    """A veth that has an address is no made-up one: its MTU counts."""
    facts, _, network, _, _ = parts()
    eth0 = Interface("eth0", "veth", "up", 1500, "02:00", (Address("10.0.0.9/24", "global"),))
    before, after = (
        replace(facts, network=replace(network, interfaces=(replace(eth0, mtu=mtu),))) for mtu in (1500, 1400)
    )
    assert differ(before, after) == [FactChange("network.interfaces[eth0].mtu", 1500, 1400)]
    rows = fold([("gpu1", summary.rows(before)), ("gpu2", summary.rows(after))])
    assert [(row.differs, row.wide) for row in rows if row.name == "eth0"] == [(True, False)]


def test_what_a_reboot_should_have_kept_is_named() -> None:
    facts, system, network, gpu, rdma = parts()
    off = tuple(replace(each, persistence=each.index != 3) for each in known(gpu.gpus))
    on = tuple(replace(each, persistence=True) for each in known(gpu.gpus))
    before = replace(
        facts,
        gpu=replace(gpu, gpus=on),
        rdma=replace(rdma, peer_memory=replace(rdma.peer_memory, loaded="nvidia_peermem")),
    )
    after = replace(
        facts,
        system=replace(system, kernel="3.10.0-1160.el7.x86_64"),
        network=replace(network, interfaces=known(network.interfaces)[:1]),
        gpu=replace(gpu, gpus=off[:7]),
        rdma=replace(rdma, peer_memory=replace(rdma.peer_memory, loaded=Absent("gone"))),
    )
    found = {each.where: (each.before, each.after) for each in differ(before, after)}
    assert found["system.kernel"] == ("3.10.0-957.el7.x86_64", "3.10.0-1160.el7.x86_64")
    assert found[f"gpu.gpus[{on[3].pci}].persistence"] == (True, False)
    assert found["rdma.peer_memory.loaded"] == ("nvidia_peermem", None)
    assert found[f"gpu.gpus[{on[7].pci}]"][1] is None
    assert found["network.interfaces[bond0]"][1] is None
    assert len(found) == 5


def test_a_gpu_that_is_gone_renumbers_no_other() -> None:
    facts, _, _, gpu, _ = parts()
    assert isinstance(gpu.gpus, tuple)
    left = tuple(replace(each, index=number) for number, each in enumerate(gpu.gpus[1:]))
    (gone,) = differ(facts, replace(facts, gpu=replace(gpu, gpus=left)))
    assert (gone.where, gone.after) == (f"gpu.gpus[{gpu.gpus[0].pci}]", None)


def test_a_topology_of_fewer_gpus_is_told_by_those_alone() -> None:
    def of(links: list[list[str]]) -> dict[str, Any]:
        made = told(host("gpu1"))
        cpus = ["0-7"] * len(links)
        made["topology"] = {"gpus": [f"GPU{n}" for n in range(len(links))], "nics": [], "links": links, "cpus": cpus}
        return {**made, "asked": [*made["asked"], "topology"]}

    two = of([["X", "NV2"], ["NV2", "X"]])
    assert [each.where for each in changes(two, of([["X"]]))] == ["topology.gpus"]
    assert [each.where for each in changes(two, of([["X", "SYS"], ["SYS", "X"]]))] == ["topology.links"]


def test_a_subject_that_was_not_asked_for_has_not_changed_and_one_that_is_gone_has() -> None:
    facts = host("gpu1")
    assert differ(replace(facts, gpu=NOT_ASKED), facts) == []
    (gone,) = differ(facts, replace(facts, gpu=Absent("no driver")))
    assert (gone.where, gone.after) == ("gpu", None)
    old = told(facts)
    del old["asked"]
    assert [each.where for each in changes(old, told(replace(facts, gpu=Absent("no driver"))))] == ["gpu"]


@pytest.mark.parametrize("text", ["[]", "{}", '{"hosts": [{"host": "gpu1"}]}', '{"hosts": 3}', '"x"', '{"host": 1}'])
def test_what_is_no_document(text: str) -> None:
    with pytest.raises(ValueError, match="is not the output of taco-launch facts --json"):
        hosts_of(json.loads(text))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from("ab"),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "index", "x"]), inner, max_size=3)
    ),
)


@given(_JSON, _JSON)
def test_nothing_is_raised_and_both_ways_are_one(before: Any, after: Any) -> None:
    base = told(host("gpu1"))
    first, second = ({**base, "docker": {"config": value}} for value in (before, after))
    assert changes(first, first) == ()
    assert bool(changes(first, second)) == bool(changes(second, first))
