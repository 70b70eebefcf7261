"""Hosts with GPUs and RDMA of one kind or another, and the lines that are made for two of them."""

from dataclasses import replace
from typing import Any

from taco_launch.core.model.host.fact_value import Absent, Found
from taco_launch.core.model.host.facts import HostFacts
from taco_launch.core.model.host.hardware import Gid, PeerMemory, Rdma
from taco_launch.core.model.plans import LaunchPlan
from tests.support.fleet import hca, mapped, roce, with_hcas
from tests.support.host_facts import known
from tests.support.planned import FAR, plan, settings, told

NONE = Absent("neither nvidia_peermem nor nv_peer_mem is loaded")
PEERMEM = PeerMemory(("nvidia_peermem",), "nvidia_peermem", Absent(), ("nv_mem",), False)
ASKED = ("NCCL_IB", "NCCL_NET", "NCCL_SOCKET")


def with_peers(facts: HostFacts, loaded: Found[str] = "nvidia_peermem", *, dmabuf: Found[bool] = False) -> HostFacts:
    return replace(facts, rdma=replace(known(facts.rdma), peer_memory=replace(PEERMEM, loaded=loaded, dmabuf=dmabuf)))


def bond(number: int, first: int = 2, **of: Any) -> HostFacts:
    """Return a host like the guide's: one RoCE port on the bond that carries its address."""
    return with_peers(with_hcas(f"gpu{number}", roce("mlx5_bond_0", "bond0", f"10.0.0.{number}", first, **of)))


def rails(number: int, *more: Any, names: Any = range(8), rate: float = 400.0, **of: Any) -> HostFacts:
    """Return a host of eight InfiniBand ports."""
    return with_peers(with_hcas(f"gpu{number}", *(hca(f"mlx5_{name}", rate=rate) for name in names), *more), **of)


def local_only(number: int) -> HostFacts:
    whole = bond(number)
    assert isinstance(whole.rdma, Rdma)
    port = known(whole.rdma.hcas)[0].ports[0]
    one = replace(known(whole.rdma.hcas)[0], ports=(replace(port, gids=known(port.gids)[:2]),))
    return replace(whole, rdma=replace(whole.rdma, hcas=(one,)))


def made(*hosts: HostFacts, nccl: str | None = "2.18.3", gpus: int = 8, **fields: Any) -> LaunchPlan:
    return plan(told(*hosts, nccl=nccl, gpus=gpus), hosts=FAR, **fields)


def line(found: LaunchPlan) -> dict[str, str]:
    """Return what the line says of the network."""
    return {name: value for name, value in settings(found).items() if name.startswith(ASKED)}


def why(found: LaunchPlan, word: str) -> str:
    return next(token.why for token in found.tokens if token.text.startswith(word))


def said(found: LaunchPlan) -> list[str]:
    return list(found.warnings)


EIGHT = "=" + ",".join(f"mlx5_{number}:1" for number in range(8))


def unread(number: int, **of: Any) -> HostFacts:
    return with_peers(
        with_hcas(f"gpu{number}", hca("mlx5_bond_0", ("bond0",), link_layer="Ethernet", rate=100.0, **of))
    )


def with_slots(number: int, *slots: tuple[int, str, str]) -> HostFacts:
    """Return a host whose port has RoCE v2 at these slots: (index, address, interface)."""
    table = tuple(Gid(index, mapped(address), "RoCE v2", netdev) for index, address, netdev in slots)
    return with_peers(with_hcas(f"gpu{number}", roce("mlx5_bond_0", "bond0", f"10.0.0.{number}", gids=table)))
