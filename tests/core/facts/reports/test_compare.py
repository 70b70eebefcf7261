"""Equal facts are folded, the odd host out is named, and nothing that differs by nature is called odd."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.core.facts import SUBJECTS
from taco_launch.core.facts.reports import summary
from taco_launch.core.facts.reports.changes import FactChange, changes, hosts_of
from taco_launch.core.facts.reports.compare import fold
from taco_launch.core.facts.reports.compare import outliers as odd_lines
from taco_launch.core.facts.reports.document import document
from taco_launch.core.facts.reports.summary import SummaryRow, duration, rows
from taco_launch.core.model.host.fact_value import NOT_ASKED, Absent, Found, Unknown
from taco_launch.core.model.host.facts import Address, HostFacts, Interface, Listener, NetworkFacts, System
from taco_launch.core.model.host.hardware import Gpus, Rdma
from tests.support.host_facts import host, known


def folded(*hosts: HostFacts) -> dict[tuple[str, str], tuple[tuple[str, tuple[str, ...]], ...]]:
    return {(row.subject, row.name): row.values for row in fold([(facts.host, rows(facts)) for facts in hosts])}


def odd(*hosts: HostFacts) -> list[tuple[str, str]]:
    return [(row.subject, row.name) for row in fold([(facts.host, rows(facts)) for facts in hosts]) if row.differs]


def test_hosts_alike_agree_on_all_that_they_should() -> None:
    hosts = [host(f"gpu{number}") for number in range(1, 9)]
    assert odd(*hosts) == []
    assert folded(*hosts)["gpu", "gpus"] == (("8x NVIDIA A100-SXM4-40GB", tuple(facts.host for facts in hosts)),)


def test_the_odd_driver_is_named_whatever_its_place() -> None:
    for place in range(8):
        hosts = [host(f"gpu{n}", "535.86.10" if n == place else "535.104.05") for n in range(8)]
        others = tuple(facts.host for facts in hosts if facts.host != f"gpu{place}")
        assert folded(*hosts)["gpu", "driver"] == (("535.104.05", others), ("535.86.10", (f"gpu{place}",)))
        assert odd(*hosts) == [("gpu", "driver")]


def test_a_driver_that_was_updated_but_not_loaded_is_told() -> None:
    facts = host("gpu1")
    assert not isinstance(facts.gpu, Unknown | Absent)
    driver = replace(facts.gpu.driver, installed="550.54.15")
    updated = replace(facts, gpu=replace(facts.gpu, driver=driver))
    assert folded(updated, host("gpu2"))["gpu", "driver on disk"] == (
        ("550.54.15", ("gpu1",)),
        ("as loaded", ("gpu2",)),
    )
    assert odd(host("gpu2"), updated) == [("gpu", "driver on disk")]
    assert [row.wide for row in rows(updated) if row.name == "driver on disk"] == [False]


def test_what_differs_by_nature_is_not_odd() -> None:
    assert ("system", "disk /") in folded(host("gpu1"), host("gpu2"))
    assert odd(host("gpu1"), host("gpu2")) == []


def test_a_subject_that_failed_on_one_host_is_one_difference() -> None:
    broken = host("gpu3", gpu=Unknown("nvidia-smi: exit 9"))
    values = folded(host("gpu1"), host("gpu2"), broken)
    assert values["gpu", "gpu"] == (("present", ("gpu1", "gpu2")), ("unknown: nvidia-smi: exit 9", ("gpu3",)))
    assert odd(host("gpu1"), host("gpu2"), broken) == [("gpu", "gpu")]
    assert values["gpu", "driver"] == (("535.104.05", ("gpu1", "gpu2")),)


def test_a_subject_that_nobody_asked_for_is_told_of_nobody() -> None:
    asked = host("gpu1", docker=NOT_ASKED, image=NOT_ASKED)
    assert {subject for subject, _name in folded(asked)} == set(SUBJECTS) - {"docker", "image"}
    both = folded(asked, host("gpu2"))
    assert {hosts for (subject, _name), values in both.items() if subject == "docker" for _, hosts in values} == {
        ("gpu2",)
    }
    lsmod = replace(asked, rdma=replace(known(asked.rdma), hcas=Unknown("not asked: no captured output shows it")))
    assert folded(lsmod, host("gpu2"))["rdma", "HCAs"] == (("mlx5_bond_0", ("gpu2",)),)


def test_clocks_apart_are_told_with_their_offset() -> None:
    facts = host("gpu1")
    assert not isinstance(facts.system, Unknown | Absent)
    skewed = replace(facts, system=replace(facts.system, clock_offset=-93.5))
    assert folded(skewed)["system", "clock"] == (("93.5 s behind the controller", ("gpu1",)),)
    assert folded(facts)["system", "clock"] == (("within 1 s of the controller", ("gpu1",)),)


def test_a_late_answer_is_no_offset_of_the_clock() -> None:
    facts = host("gpu1")
    assert not isinstance(facts.system, Unknown | Absent)
    late = replace(facts, system=replace(facts.system, clock_offset=2.5, clock_error=3.0))
    assert folded(late)["system", "clock"] == (("unknown: the answer took 6 s", ("gpu1",)),)
    both = folded(late, host("gpu2"), host("gpu3"))
    assert both["system", "clock"] == (("within 1 s of the controller", ("gpu2", "gpu3")),)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (1.04, "1 s"),
        (93.5, "93.5 s"),
        (150, "2.5 min"),
        (10800.02, "3 h"),
        (86400 * 3, "3 d"),
        (86400 * 20000, "20000 d"),
    ],
)
def test_durations_are_readable(seconds: float, words: str) -> None:
    assert duration(seconds) == words


_ROWS = st.lists(
    st.builds(SummaryRow, st.sampled_from(SUBJECTS), st.sampled_from("abc"), st.sampled_from("xy"), st.booleans()),
    unique_by=lambda row: (row.subject, row.name),
)


@given(st.lists(_ROWS, min_size=1, max_size=5))
def test_every_row_stands_in_the_fold_once(told: list[list[SummaryRow]]) -> None:
    hosts = [(f"h{number}", found) for number, found in enumerate(told)]
    values = {(row.subject, row.name): row for row in fold(hosts)}
    compared = {(row.subject, row.name) for _name, found in hosts for row in found if row.same}
    for name, found in hosts:
        for row in found:
            texts = [text for text, names in values[row.subject, row.name].values if name in names]
            assert texts == ([row.text] if row.same or (row.subject, row.name) not in compared else [])
    counts = [[len(names) for _text, names in row.values] for row in values.values()]
    assert all(count == sorted(count, reverse=True) for count in counts)


def test_errors_of_memory_are_shown_unasked_and_not_called_none_where_nobody_knows() -> None:
    facts = host("gpu1")

    def row(*counts: Found[int]) -> tuple[str, bool]:
        gpus = tuple(
            replace(known(known(facts.gpu).gpus)[index], ecc_uncorrected=count) for index, count in enumerate(counts)
        )
        told = rows(replace(facts, gpu=replace(known(facts.gpu), gpus=gpus)))
        return next((one.text, one.wide) for one in told if one.name == "ECC errors")

    assert row(0, 3, 0, 1) == ("uncorrected, on GPU 1, 3", False)
    assert row(0, Absent("[N/A]")) == ("none", True)
    assert row(0, Unknown("[Unknown Error]")) == ("unknown: [Unknown Error]", True)


def lines(*drivers: str) -> list[str]:
    hosts = [host(f"gpu{number}", driver) for number, driver in enumerate(drivers, 1)]
    return list(odd_lines(fold([(facts.host, rows(facts)) for facts in hosts]), "+".join))


def test_the_odd_host_is_named_beside_how_many_others() -> None:
    assert lines("1.0", "1.0", "2.0", "1.0") == ["gpu3: driver 2.0, 3 others 1.0"]
    assert lines("1.0", "2.0", "1.0", "3.0") == ["gpu2: driver 2.0, 2 others 1.0", "gpu4: driver 3.0, 2 others 1.0"]
    assert lines("1.0", "2.0") == ["gpu1: driver 1.0, gpu2: 2.0"]
    assert lines("1.0", "1.0") == []


def test_hosts_that_are_all_different_are_not_told_one_by_one() -> None:
    found = lines("1.0", "1.0", *(f"2.{number}" for number in range(50)))
    assert len(found) == 4
    assert found[-1].startswith("gpu6+gpu7+")
    assert found[-1].endswith(": driver has 47 other values")


def test_a_host_whose_gpus_are_not_known_says_so_once() -> None:
    facts = host("gpu3")
    dark = replace(facts, gpu=replace(known(facts.gpu), gpus=Unknown("NVIDIA-SMI has failed")))
    assert odd(host("gpu1"), host("gpu2"), dark) == [("gpu", "gpus")]
    assert not [row for row in folded(dark) if row in (("gpu", "memory"), ("gpu", "persistence"), ("gpu", "MIG"))]


def test_instances_of_gpus_are_told_apart_from_none() -> None:
    facts = host("gpu2")
    gpus = tuple(replace(each, mig=Absent("N/A")) for each in known(known(facts.gpu).gpus))
    older = replace(facts, gpu=replace(known(facts.gpu), gpus=gpus))
    on = tuple(replace(each, mig=True) for each in gpus)
    divided = replace(facts, gpu=replace(known(facts.gpu), gpus=on, mig_instances=()))
    for which, text in ((older, "off"), (divided, "on, no instances")):
        assert [row.text for row in rows(which) if row.name == "MIG"] == [text]


def test_a_long_value_is_cut_where_it_only_names() -> None:
    facts = host("gpu2")
    long = replace(facts, gpu=replace(known(facts.gpu), gpus=Unknown("x" * 500)))
    (line,) = odd_lines(fold([(each.host, rows(each)) for each in (host("gpu1"), long)]), "+".join)
    assert len(line) < 200
    assert line.endswith("xxx...")


def test_a_name_that_two_subjects_have_is_told_with_its_subject() -> None:
    facts = host("gpu1")
    less = replace(facts, host="gpu2", gpu=replace(known(facts.gpu), gpus=known(known(facts.gpu).gpus)[:7]))
    lines = list(odd_lines(fold([(each.host, rows(each)) for each in (facts, less)]), "+".join))
    assert "gpu1: gpu memory 8x 40.0 GiB, gpu2: 7x 40.0 GiB" in lines


# --- What has changed between two looks at a host: all that a reboot should keep, and nothing that it may not


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
