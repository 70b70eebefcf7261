"""The proof that containers have the GPUs of their hosts: what hosts answer, made into what is wrong."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from taco_launch.core.command import Command, Result
from taco_launch.core.errors import HostError
from taco_launch.core.model.host.fact_value import Absent
from taco_launch.core.model.host.facts import HostFacts
from taco_launch.core.model.host.hosts import Container, Inventory
from taco_launch.hosts.fanout import Fanout
from taco_launch.setup.model.ops import ProofFailure
from taco_launch.setup.proofs.gpu_proof import same_gpus
from tests.support.host_facts import host
from tests.support.mesh import inventory

TWO = ("GPU 0: A100 (UUID: GPU-a)", "GPU 1: A100 (UUID: GPU-b)")
MIG = ("GPU 0: A100 (UUID: GPU-a)", "  MIG 1g.5gb Device 0: (UUID: MIG-c)")
LOST = "Failed to initialize NVML: Unknown Error"


@dataclass
class Simulated:
    """A host that answers what its nvidia-smi and that of its container say: lines, and an exit code."""

    name: str
    outside: tuple[tuple[str, ...], int] = (TWO, 0)
    inside: tuple[tuple[str, ...], int] = (TWO, 0)
    running: str = "true"
    error: HostError | None = None
    seen: list[Command] = field(default_factory=list)

    def run(self, command: Command) -> Result:
        self.seen.append(command)
        if self.error is not None:
            raise self.error
        lines = [self.running]
        for said, code in (self.outside, self.inside):
            lines += [*said, f"exit code {code}"]
        return Result(self.name, command, 0, "".join(f"{line}\n" for line in lines).encode(), b"", 0.0)

    def close(self) -> None:
        pass


def proved(
    of: Inventory | None = None, facts: dict[str, HostFacts] | None = None, **host_1: Any
) -> tuple[ProofFailure, ...]:
    """Prove it for two hosts with GPUs, the first of which is as it is said."""
    of = of or inventory(2)
    hosts: tuple[Any, ...] = (Simulated("gpu1", **host_1), Simulated("gpu2"))
    told = {name: host(name) for name in ("gpu1", "gpu2")} if facts is None else facts
    return same_gpus(of, Fanout(hosts), told, lambda _what: None)


THAN_HOST = "gives its container different GPUs than the host has"
DIFFERENT, NONE = "gives its container different GPUs", "gives its container no GPUs"


@pytest.mark.parametrize(
    ("host_1", "what", "evidence"),
    [
        ({"inside": (TWO[:1], 0)}, THAN_HOST, f"1 in the container, 2 on the host: it lacks {TWO[1]}"),
        ({"outside": (TWO[:1], 0)}, THAN_HOST, f"2 in the container, 1 on the host: it has {TWO[1]}"),
        ({"outside": (TWO, 0), "inside": (MIG, 0)}, DIFFERENT, f"lacks {TWO[1]}, and it has {MIG[1].strip()}"),
        ({"inside": (TWO[::-1], 0)}, DIFFERENT, "in another order"),
        ({"inside": ((LOST,), 255)}, NONE, f"{LOST}. The container on gpu1 has lost its GPUs"),
        ({"inside": ((), 126)}, NONE, "nvidia-smi ended with exit code 126"),
        ({"outside": (("No devices were found",), 6)}, "cannot list its GPUs", "No devices were found"),
        ({"error": HostError("gpu1: cut off", hint="look")}, "cannot list its GPUs", "cut off"),
    ],
)
def test_what_is_wrong(host_1: dict[str, Any], what: str, evidence: str) -> None:
    (flaw,) = proved(**host_1)
    assert flaw.hosts == ("gpu1",)
    assert what in flaw.what
    assert evidence in flaw.evidence
    assert flaw.hint


def test_gpus_that_a_reload_took_will_be_taken_again() -> None:
    (flaw,) = proved(inside=((LOST,), 255))
    again, _, lasting = flaw.hint.partition(". ")
    assert again.startswith("on gpu1, when no job runs: systemctl restart taco-launch-")
    assert lasting.startswith("To keep the GPUs, which each reload removes again, set in the inventory docker: ")
    (other,) = proved(inside=((), 126))
    assert other.hint == again


def test_equal_gpus_are_right_and_a_container_that_does_not_run_is_anothers_business() -> None:
    assert proved() == ()
    assert proved(outside=(MIG, 0), inside=(MIG, 0)) == ()
    for running in ("false", "gone"):
        assert proved(running=running, inside=(("no such container",), 1)) == ()


def test_who_is_not_asked() -> None:
    wrong: dict[str, Any] = {"inside": ((LOST,), 255)}
    none = replace(host("gpu1"), gpu=Absent("no driver"))
    assert proved(facts={"gpu1": none, "gpu2": host("gpu2")}, **wrong) == ()
    of = inventory(2)
    assert proved(replace(of, container=Container("train:1", env=(("NVIDIA_VISIBLE_DEVICES", "0"),))), **wrong) == ()
    assert proved(replace(of, container=None), **wrong) == ()
    assert len(proved(replace(of, hosts=tuple(replace(each, gpus="auto") for each in of.hosts)), **wrong)) == 1
    assert proved(replace(of, hosts=tuple(replace(each, gpus="none") for each in of.hosts)), **wrong) == ()
