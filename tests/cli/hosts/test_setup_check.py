"""setup --check beyond the plan: what ails hardware, and whether the containers have the GPUs of their hosts."""

import json
from dataclasses import replace
from typing import Any

import pytest

from taco_launch.core.model.host.fact_value import Absent
from taco_launch.core.model.host.facts import DockerFacts, Firewall, HostFacts, NetworkFacts
from taco_launch.core.model.host.hardware import Gpus, Rdma
from taco_launch.hosts.fanout import Fanout
from taco_launch.setup.apply import setup_run as flow
from taco_launch.setup.model.ops import Problem, ProofFailure
from tests.support.host_facts import host as facts_of
from tests.support.simulated_setup import INVENTORY, World, code, setup


def test_the_odd_host_and_remarks_on_hardware_are_named_and_other_software_is_drift(world: World) -> None:
    setup(world, "--yes")

    def ailing(name: str, **more: Any) -> HostFacts:
        facts = facts_of(name, "535.86.10", **more)
        assert isinstance(facts.gpu, Gpus)
        assert isinstance(facts.gpu.gpus, tuple)
        gpus = tuple(replace(each, persistence=False) for each in facts.gpu.gpus)
        return replace(facts, gpu=replace(facts.gpu, gpus=gpus))

    world.like["gpu3"] = ailing
    why = "off on GPUs 0-7: the driver is initialized again for every process, which takes seconds"
    done = setup(world, "--check")
    assert code(done) == 3
    assert done.stderr.splitlines()[-1] == "nothing to do for set-up, but hosts differ in driver, see above"
    assert code(setup(world, "--dry-run")) == code(setup(world, "--yes")) == 0
    assert done.stdout.splitlines() == [
        "Remarks on what set-up does not change:",
        f"  gpu3: warning: persistence: {why} (systemctl enable nvidia-persistenced; systemctl restart nvidia-persistenced)",
        "Hosts that differ:",
        "  gpu3: driver 535.86.10, 2 others 535.104.05",
    ]
    told = json.loads(setup(world, "--check", "--json").stdout)
    assert [(each["hosts"], each["name"]) for each in told["remarks"]] == [(["gpu3"], "persistence")]
    assert told["differences"] == ["gpu3: driver 535.86.10, 2 others 535.104.05"]

    def without(name: str, **more: Any) -> HostFacts:
        return replace(ailing(name, **more), gpu=Absent("no driver"), rdma=Absent("none"))

    def with_toolkit(name: str, **more: Any) -> HostFacts:
        facts = facts_of(name, **more)
        assert isinstance(facts.docker, DockerFacts)
        return replace(facts, docker=replace(facts.docker, toolkit="1.17.0"))

    world.like |= {"gpu1": with_toolkit, "gpu2": with_toolkit, "gpu3": without}
    done = setup(world, "--check")
    assert "gpu3: container toolkit none, 2 others 1.17.0" in done.stdout
    assert code(done) == 0, "a host without GPUs has neither driver nor toolkit"


def test_a_host_that_no_job_reaches_is_drift(world: World) -> None:
    setup(world, "--yes")
    wall = Firewall("nftables", True, "nftables does not let everything in: drop", ((1, 21), (23, 65535)))

    def closed(name: str, **more: Any) -> HostFacts:
        facts = facts_of(name, **more)
        assert isinstance(facts.network, NetworkFacts)
        return replace(facts, network=replace(facts.network, firewalls=(wall,)))

    world.like["gpu3"] = closed
    done = setup(world, "--check")
    assert code(done) == 3
    assert "  gpu3: fault: firewall: no other host can connect to TCP 12222 (the container's sshd) and " in done.stdout
    assert "{firewall: manage} in the inventory, then: taco-launch -i" in done.stdout
    said = "nothing to do for set-up, but a fault was found that set-up does not fix: gpu3, see above"
    assert done.stderr.splitlines()[-1].startswith(said)
    (told,) = json.loads(setup(world, "--check", "--json").stdout)["remarks"]
    assert (told["hosts"], told["name"]) == (["gpu3"], "firewall")
    assert "taco-launch -i" in told["hint"]


def test_a_fault_of_hardware_is_drift_that_set_up_cannot_mend(world: World) -> None:
    setup(world, "--yes")

    def broken(name: str, **more: Any) -> HostFacts:
        facts = facts_of(name, **more)
        assert isinstance(facts.gpu, Gpus)
        return replace(facts, gpu=replace(facts.gpu, lost=("GPU is lost",)))

    def unplugged(name: str, **more: Any) -> HostFacts:
        facts = facts_of(name, **more)
        assert isinstance(facts.rdma, Rdma)
        assert isinstance(facts.rdma.hcas, tuple)
        (hca,) = facts.rdma.hcas
        return replace(
            facts, rdma=replace(facts.rdma, hcas=(replace(hca, ports=(replace(hca.ports[0], state="DOWN"),)),))
        )

    said = "a fault was found that set-up does not fix: gpu2, see above"
    world.like["gpu2"] = broken
    done = setup(world, "--check")
    assert code(done) == 3
    assert "  gpu2: fault: lost GPUs: GPU is lost (" in done.stdout
    assert done.stderr.splitlines()[-1] == f"nothing to do for set-up, but {said}"
    assert code(setup(world, "--dry-run")) == 0
    done = setup(world, "--yes")
    assert code(done) == 3, "its hosts are as the inventory says, and one of them is broken"
    assert done.stdout.splitlines()[-2].split() == ["gpu2", "fault", "0"]
    assert done.stderr.splitlines()[-1].startswith("2 of 3 hosts ready after 0 s; fault that set-up did not")
    (world.of("gpu1") / "agent").unlink()
    assert setup(world, "--check").stderr.splitlines()[-1] == f"in addition, {said}"
    setup(world, "--yes")
    world.like["gpu2"] = unplugged
    assert code(setup(world, "--check")) == 3
    file = world.folder.parent / "cluster.yaml"
    file.write_text(f"{INVENTORY}network: {{rdma: off}}\n")
    done = setup(world, "--check")
    assert code(done) == 0, "ports that no job uses"
    assert "fault:" not in done.stdout


def test_a_check_asks_the_containers_for_their_gpus(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    setup(world, "--yes")
    asked: list[tuple[str, ...]] = []
    flaw = ProofFailure(("gpu2",), "gives its container no GPUs", "Failed to initialize NVML", "restart it")

    def same_gpus(
        _inventory: Any, hosts: Fanout, facts: dict[str, HostFacts], _report: Any
    ) -> tuple[ProofFailure, ...]:
        asked.append(tuple(facts))
        assert [each.name for each in hosts.transports] == list(facts)
        return (flaw,) if "gpu2" in facts else ()

    monkeypatch.setattr(flow, "same_gpus", same_gpus)
    done = setup(world, "--check")
    assert (code(done), done.stdout) == (5, "")
    assert f"error: {flaw}\nhint: restart it" in done.stderr
    assert "nothing to do" not in done.stderr
    assert json.loads(setup(world, "--check", "--json").stdout)["found"][0]["what"] == flaw.what
    assert asked == [("gpu1", "gpu2", "gpu3")] * 2
    for words in (("--dry-run",), ("--check", "--only", "docker"), ("--check", "--host", "gpu1")):
        assert code(setup(world, *words)) == 0
    assert asked[2:] == [("gpu1",)]
    world.refused["gpu2", "image"] = Problem(
        "image", "no room", "make some: taco-launch -i FILE setup --disrupt docker"
    )
    typed = f"make some: taco-launch -i {world.folder.parent}/cluster.yaml setup --disrupt docker"
    assert f"\nhint: {typed}\n" in setup(world, "--check").stderr
    assert json.loads(setup(world, "--check", "--json").stdout)["problems"][0]["hint"] == typed
    del asked[-1:]
    assert asked[3:] == [("gpu1", "gpu3")]
    (world.of("gpu1") / "agent").unlink()
    (world.of("gpu3") / "toolkit").unlink()
    assert code(setup(world, "--check", "--host", "gpu[1,3]")) == 3
    assert asked[4:] == [("gpu1",)], "of what is to be done the plan tells"


def test_hosts_with_other_mtus_differ(world: World) -> None:
    setup(world, "--yes")
    assert code(setup(world, "--check")) == 0

    def small(name: str, **more: Any) -> HostFacts:
        facts = facts_of(name, **more)
        assert isinstance(facts.network, NetworkFacts)
        assert isinstance(facts.network.interfaces, tuple)
        *others, first = facts.network.interfaces
        return replace(facts, network=replace(facts.network, interfaces=(replace(first, mtu=first.mtu - 100), *others)))

    world.like["gpu2"] = small
    done = setup(world, "--check")
    assert code(done) == 3
    assert "nothing to do for set-up, but hosts differ in the MTU of " in done.stderr


def test_what_stops_a_host_is_told_once(world: World) -> None:
    setup(world, "--yes")

    def unlike(name: str, **more: Any) -> HostFacts:
        facts = facts_of(name, **more)
        assert isinstance(facts.gpu, Gpus)
        return replace(facts, gpu=replace(facts.gpu, driver=replace(facts.gpu.driver, installed="550.54.15")))

    world.like["gpu2"] = unlike
    said = "the kernel runs NVIDIA driver 535.104.05, and 550.54.15 is installed"
    for word in ("--check", "--yes"):
        done = setup(world, word)
        assert code(done) == 5
        assert said in done.stderr
        assert said not in done.stdout
    assert next(line.split() for line in done.stdout.splitlines() if line.startswith("gpu2 ")) == [
        "gpu2",
        "failed",
        "0",
    ]
    assert "fault" not in done.stderr
