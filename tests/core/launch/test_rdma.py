"""What the facts of a job's hosts make of its line: RDMA, GPUDirect RDMA, HCAs; or why it is refused."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.core.errors import UnusableError
from taco_launch.core.launch.missing_facts import needs_probe
from taco_launch.core.model.host.fact_value import Absent, Found, Unknown
from taco_launch.core.model.host.facts import Bond, BondMember, HostFacts
from taco_launch.core.model.host.hardware import Rdma
from taco_launch.core.model.host.hosts import Network
from taco_launch.core.model.jobs import JobSpec, NetworkOverrides, Profile
from taco_launch.core.model.plans import LaunchPlan
from taco_launch.hosts.inventory import profile
from tests.support.fleet import roce, with_hcas
from tests.support.host_facts import host, known
from tests.support.machines import EIGHT, NONE, bond, line, local_only, made, rails, said, why, with_peers
from tests.support.planned import AUTO, FAR, LOCAL, plan, told


def test_the_guides_machines() -> None:
    found = made(bond(1), bond(2), nccl="2.9.9")
    assert line(found) == {
        "NCCL_SOCKET_IFNAME": "=bond0",
        "NCCL_IB_HCA": "=mlx5_bond_0:1",
        "NCCL_IB_GID_INDEX": "3",
        "NCCL_NET_GDR_LEVEL": "PXB",
    }
    assert "gpu1, gpu2: nvidia_peermem is loaded" in why(found, "NCCL_NET_GDR_LEVEL")
    assert said(found) == []
    assert line(made(bond(1), bond(2), nccl="2.21.5")) == {
        name: value for name, value in line(found).items() if name != "NCCL_IB_GID_INDEX"
    }


def test_eight_rails_and_a_bond_for_management() -> None:
    management = roce("mlx5_bond_0", "bond0", "10.0.0.1")
    found = made(rails(1, management), rails(2, management))
    assert line(found)["NCCL_IB_HCA"] == EIGHT
    assert "NCCL_IB_GID_INDEX" not in line(found)
    assert "not used: mlx5_bond_0:1 is Ethernet, but a job uses ports of one link layer only, here InfiniBand" in why(
        found, "NCCL_IB_HCA"
    )


@pytest.mark.parametrize(
    ("rate", "told_why"),
    [
        (25.0, "has 25 Gb/s, but most ports have 100 Gb/s"),
        (100.0, "carries the default route, so it is assumed to be the management port"),
    ],
)
def test_a_port_for_management_is_known_by_its_rate_and_by_the_default_route(rate: float, told_why: str) -> None:
    def one(number: int) -> HostFacts:
        address = f"10.0.0.{number}"
        eth = [roce(f"mlx5_{port}", f"eth{port}", f"10.{port + 1}.0.{number}") for port in range(4)]
        # slot 5 of this one: it has no say in the index
        return with_peers(with_hcas(f"gpu{number}", *eth, roce("mlx5_bond_0", "bond0", address, 4, rate=rate)))

    found = made(one(1), one(2), nccl="2.9.9")
    assert line(found)["NCCL_IB_HCA"] == "=mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1"
    assert line(found)["NCCL_IB_GID_INDEX"] == "3"
    assert line(found)["NCCL_SOCKET_IFNAME"] == "=bond0"
    assert told_why in why(found, "NCCL_IB_HCA") + "".join(said(found))


LACKS = [
    (lambda: bond(2, state="DOWN"), "gpu2: mlx5_bond_0:1 is DOWN"),
    (lambda: local_only(2), "gpu2: mlx5_bond_0:1: it has no GID of RoCE v2 over IPv4 on bond0"),
    (lambda: with_hcas("gpu2"), "gpu2: no HCA"),
    (lambda: replace(host("gpu2"), rdma=Absent("no device")), "gpu2: no HCA"),
    (
        lambda: rails(2, names=range(1), rate=50.0),
        "gpu2: mlx5_0:1 is InfiniBand, but a job uses ports of one link layer only, here Ethernet",
    ),
]


@pytest.mark.parametrize(("second", "reason"), LACKS)
def test_where_one_host_has_no_rdma_all_take_tcp_or_it_is_refused(second: Any, reason: str) -> None:
    hosts = (bond(1), second())
    found = made(*hosts, nccl="2.9.9")
    assert line(found) == {"NCCL_SOCKET_IFNAME": "=bond0", "NCCL_IB_DISABLE": "1"}
    assert reason in why(found, "NCCL_IB_DISABLE")
    assert [text for text in said(found) if reason in text and text.startswith("the job uses TCP")] == said(found)
    for asked, declared, hint in (
        (NetworkOverrides(transport="rdma"), Network(), "--transport tcp"),
        (NetworkOverrides(), Network(rdma="on"), "network: {rdma: auto}"),
        (NetworkOverrides(gdr=True), Network(), "omit --gdr"),
    ):
        with pytest.raises(UnusableError, match=r"not available on every host|no RDMA between the hosts") as caught:
            made(*hosts, asked=asked, network=declared)
        assert reason in caught.value.message
        assert hint in str(caught.value.hint)
    # with that said, it is nobody's surprise
    assert said(made(*hosts, network=Network(rdma="off", gid_index=9))) == []


def test_a_profile_that_does_not_switch_rdma_off_is_told_of() -> None:
    found = made(bond(1), local_only(2), profile=profile.load("ack", "", {}))
    assert [
        "nothing on the line keeps NCCL from trying it" in text
        for text in said(found)
        if "RDMA is not available" in text
    ] == [True]
    other = made(bond(1), with_peers(bond(2), NONE), profile=profile.load("ack", "", {}))
    assert [
        text.startswith("GPUDirect RDMA is not available on every host: gpu2") for text in said(other) if "GPUD" in text
    ] == [True]


def test_faults_that_are_alike_are_told_once() -> None:
    found = made(local_only(1), local_only(2))
    assert len(said(found)) == 1
    assert ": gpu1, gpu2: mlx5_bond_0:1: it has no GID" in said(found)[0]


KINDS = st.sampled_from(["good", "other index", "down", "local", "rails", "bare", "unknown"])
PEERS = st.sampled_from(["nvidia_peermem", NONE, Unknown("both are loaded")])


def of_kind(kind: str, number: int) -> HostFacts:
    return {
        "good": lambda: bond(number),
        "other index": lambda: bond(number, 4),
        "down": lambda: bond(number, state="DOWN"),
        "local": lambda: local_only(number),
        "rails": lambda: rails(number),
        "bare": lambda: replace(host(f"gpu{number}"), rdma=Absent("no device")),
        "unknown": lambda: replace(host(f"gpu{number}"), rdma=Unknown("probe cut")),
    }[kind]()


@given(
    kinds=st.tuples(KINDS, KINDS),
    peers=st.tuples(PEERS, PEERS),
    dmabuf=st.booleans(),
    nccl=st.sampled_from([None, "2.9.9", "2.18.3", "2.21.5"]),
    asked=st.builds(
        NetworkOverrides,
        transport=st.sampled_from([None, "auto", "tcp", "rdma"]),
        gdr=st.sampled_from([None, True, False]),
    ),
    network=st.builds(
        Network,
        rdma=st.sampled_from(["auto", "on", "off"]),
        gdr=st.sampled_from(["auto", "on", "off"]),
        gid_index=st.none() | st.just(3),
    ),
)
def test_whatever_the_hosts_are(
    *,
    kinds: tuple[str, str],
    peers: tuple[Any, Any],
    dmabuf: bool,
    nccl: str | None,
    asked: NetworkOverrides,
    network: Network,
) -> None:
    """A line never asks for RDMA and switches it off; nothing is refused that nobody requested, and all has a reason."""
    hosts = [of_kind(kind, number) for number, kind in enumerate(kinds, 1)]
    hosts = [
        with_peers(one, peer, dmabuf=dmabuf) if isinstance(one.rdma, Rdma) else one
        for one, peer in zip(hosts, peers, strict=True)
    ]
    found: LaunchPlan | None
    try:
        found = made(*hosts, nccl=nccl, asked=asked, network=network)
    except UnusableError as error:
        refused, found = error, None
    if found is None:
        assert asked.transport == "rdma" or asked.gdr or "on" in (network.rdma, network.gdr)
        assert refused.hint
        assert "gpu" in refused.message or "no host has an HCA" in refused.message
        return
    names = line(found)
    own = {name for _host, pairs in found.host_env for name, _value in pairs}
    if "NCCL_IB_DISABLE" in names:
        assert not {"NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "NCCL_IB_ADDR_RANGE", "NCCL_NET"} & (names.keys() | own)
    if kinds in (("good", "good"), ("rails", "rails")) and asked.transport is None and network.rdma == "auto":
        assert "NCCL_IB_HCA" in names
    assert not own & names.keys()
    assert all(token.why for token in found.tokens)
    assert all(found.warnings)


@pytest.mark.parametrize("rdma", [Unknown("probe cut"), Absent("no device")])
def test_what_is_not_known_is_neither_refused_nor_switched_off(rdma: Any) -> None:
    unknown = replace(host("gpu2"), rdma=rdma)
    hosts = (unknown, replace(unknown, host="gpu1")) if isinstance(rdma, Absent) else (bond(1), unknown)
    found = made(*hosts)
    assert not {"NCCL_IB_DISABLE", "NCCL_NET_GDR_LEVEL"} & line(found).keys()
    if isinstance(rdma, Unknown):
        asked = NetworkOverrides(transport="rdma", gdr=True)
        assert line(made(*hosts, asked=asked))["NCCL_NET"] == "IB"
        assert not [text for text in said(found) if "RDMA ports that the job" in text]
    else:  # it is known: there is none anywhere, which is nothing to be warned of, unless it is requested
        assert said(found) == []
        with pytest.raises(UnusableError, match="no host has an HCA"):
            made(*hosts, asked=NetworkOverrides(transport="rdma"))


@pytest.mark.parametrize(
    ("loaded", "dmabuf", "nccl", "level"),
    [
        ("nv_peer_mem", False, "2.9.9", "PXB"),
        ("nvidia_peermem", Unknown("?"), None, "PXB"),
        (NONE, False, "2.9.9", "LOC"),
        (NONE, True, "2.12.12", "LOC"),
        (NONE, True, "2.13.4", "PXB"),
        (NONE, True, None, None),
        (NONE, Unknown("?"), "2.18.3", None),
        (Unknown("both are loaded"), False, "2.18.3", None),
    ],
)
def test_gpudirect_rdma_by_module_or_dmabuf(
    loaded: Found[str], dmabuf: Found[bool], nccl: str | None, level: str | None
) -> None:
    hosts = (rails(1), rails(2, loaded=loaded, dmabuf=dmabuf))
    found = made(*hosts, nccl=nccl)
    assert line(found).get("NCCL_NET_GDR_LEVEL") == level
    off = [text for text in said(found) if text.startswith("the job runs without GPUDirect RDMA")]
    assert len(off) == (level == "LOC")
    assert all(": gpu2: neither nvidia_peermem nor" in text and "setup --only peermem" in text for text in off)
    assert "NCCL_NET_GDR_LEVEL" not in line(made(*hosts, nccl=nccl, gpus=0))
    assert "NCCL_NET_GDR_LEVEL" not in line(made(*hosts, nccl=nccl, asked=NetworkOverrides(transport="tcp")))
    assert line(made(*hosts, nccl=nccl, asked=NetworkOverrides(gdr=False)))["NCCL_NET_GDR_LEVEL"] == "LOC"
    for asked, declared in ((NetworkOverrides(gdr=True), Network()), (NetworkOverrides(), Network(gdr="on"))):
        if level == "LOC":
            with pytest.raises(UnusableError, match="not available on every host: gpu2: neither nvidia_peermem nor"):
                made(*hosts, nccl=nccl, asked=asked, network=declared)
        else:
            assert line(made(*hosts, nccl=nccl, asked=asked, network=declared))["NCCL_NET_GDR_LEVEL"] == "PXB"


def test_what_is_asked_for_and_of_no_use_is_not_refused() -> None:
    hosts = (bond(1), with_peers(bond(2), NONE))
    tcp = made(*hosts, asked=NetworkOverrides(transport="tcp", gdr=True))
    assert any("GPUDirect RDMA requires RDMA" in text for text in said(tcp))
    assert line(made(*hosts, network=Network(gdr="on"), gpus=0))["NCCL_NET_GDR_LEVEL"] == "PXB"
    with pytest.raises(UnusableError, match="no host of the job has a GPU"):
        made(*hosts, asked=NetworkOverrides(gdr=True), gpus=0)


def test_on_one_host_nothing_of_all_that_is_on_the_line_nor_refused() -> None:
    facts = told(local_only(1))
    found = plan(
        facts,
        hosts=FAR[:1],
        head="gpu1",
        asked=NetworkOverrides(transport="rdma", gdr=True),
        network=Network(rdma="on"),
    )
    assert line(found) == {}
    whole = known(host("gpu1").network)
    half = Bond("bond0", "802.3ad", True, (BondMember("eth0", True, 50.0), BondMember("eth1", False, None)))
    one = replace(bond(1, state="DOWN"), network=replace(whole, bonds=(half,)))
    assert any("eth1 is down" in text for text in said(made(one, bond(2))))
    guide = plan(told(one), hosts=FAR[:1], head="gpu1", profile=profile.load("taco-bare-metal", "", {}))
    assert said(guide) == []
    assert "^openib" in guide.argv  # which it leaves out for TCP


def test_hosts_are_looked_at_for_a_line_that_depends_on_them() -> None:
    declared = JobSpec("j", ("true",), FAR, profile=AUTO, versions=(("openmpi", "4.1"),), network=Network("bond0"))
    assert needs_probe(declared)
    assert not needs_probe(replace(declared, network=Network("bond0", "off")))
    assert not needs_probe(replace(declared, profile=Profile()))
    assert needs_probe(replace(declared, hosts=(LOCAL,)))
