"""setup --check beyond the plan: what ails hardware, and whether the containers have the GPUs of their hosts."""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from taco_launch.core.errors import HostError
from taco_launch.core.model.host.fact_value import Absent
from taco_launch.core.model.host.facts import DockerFacts, Firewall, HostFacts, NetworkFacts
from taco_launch.core.model.host.hardware import Gpus, Rdma
from taco_launch.core.model.host.hosts import Host
from taco_launch.hosts.fanout import Fanout
from taco_launch.hosts.remote.transport import Transport
from taco_launch.setup.apply import setup_run as flow
from taco_launch.setup.apply import teardown_run as back
from taco_launch.setup.apply import wait_for_jobs
from taco_launch.setup.model.ops import Op, Problem, ProofFailure
from taco_launch.setup.plan.stage_rules import RULES, STAGES
from tests.support.host_facts import host as facts_of
from tests.support.simulated_setup import INVENTORY, Simulated, World, code, rows, setup


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


# --- setup and teardown that are blocked: the plan shows what blocks them, before the first change


JOB = b"error: job busy runs in taco-launch-c\nhint: wait for it (--wait-for-jobs 2h), or: taco-launch stop busy\n"


def answering(monkeypatch: pytest.MonkeyPatch, answers: Mapping[str, bytes]) -> None:
    """Have hosts answer so where they are asked what is in the way."""
    really = Simulated.run

    def run(self: Simulated, command: Any) -> Any:
        done = really(self, replace(command, argv=("true",)) if "look" in command.argv else command)
        return replace(done, stdout=answers.get(self.name, b"")) if "look" in command.argv else done

    monkeypatch.setattr(Simulated, "run", run)


def recreating(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the container stage recreate existing containers."""
    as_it_is = world.plan("container")

    def plan(host: Host, *more: Any) -> Iterator[Op | Problem]:
        for each in as_it_is(host, *more):
            yield replace(each, disrupts="container") if isinstance(each, Op) else each

    rules = {stage: replace(RULES[stage], plan=world.plan(stage)) for stage in STAGES}
    monkeypatch.setattr(flow, "RULES", rules | {"container": replace(RULES["container"], plan=plan)})


def test_a_job_on_one_host_keeps_all_hosts_as_they_are(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    recreating(world, monkeypatch)
    answering(monkeypatch, {"gpu2": JOB})
    for words in (("--dry-run",), ("--check",), ("--yes",), ("--yes", "--json")):
        done = setup(world, *words)
        assert code(done) == (3 if words == ("--check",) else 5)
        assert (
            "error: gpu2: container: job busy runs in taco-launch-c\nhint: wait for it (--wait-for-jobs 2h), or: "
            in done.stderr
        )
        assert (
            "gpu2: see above; set-up changes the containers of all hosts or of none, so it changes none now"
            in done.stderr
        )
        assert not [file for name in ("gpu1", "gpu2", "gpu3") for file in world.of(name).iterdir()]
    assert "gpu[1-3]: ~ container: put container (it does not exist); the training" in setup(world, "--yes").stdout
    assert code(setup(world, "--yes", "--host", "gpu[1,3]")) == 0, "it is in the way of no other host"
    answering(monkeypatch, {})
    assert code(setup(world, "--yes")) == 0


@pytest.mark.parametrize("command", ["setup", "teardown"])
def test_jobs_that_are_in_the_way_are_waited_for(world: World, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    recreating(world, monkeypatch)
    monkeypatch.setattr(back, "gather", world.gather)
    gone: set[str] = set()
    remove = Op("container", "remove it", "", "", disrupts="container")

    def removed(host: Transport, *_more: Any) -> bool:
        gone.add(host.name)
        return True

    monkeypatch.setattr(back, "plan", lambda facts, *_more: iter(() if facts.host in gone else (remove,)))
    monkeypatch.setattr(back, "apply", removed)
    clock = [0.0]
    pauses: list[float] = []
    answers = {"gpu1": JOB, "gpu2": JOB}

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        clock[0] += seconds
        if len(pauses) == 2:
            del answers["gpu1"]
        if len(pauses) == 3:
            answers.clear()

    monkeypatch.setattr(wait_for_jobs, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=pause))
    answering(monkeypatch, answers)
    late = setup(world, "--yes", "--wait-for-jobs", "5s", command=command)
    assert (code(late), pauses) == (5, [5.0])
    assert "error: gpu[1-2]: container: job busy runs in taco-launch-c" in late.stderr
    assert "waited 5 s (--wait-for-jobs): the jobs are still running\n" in late.stderr
    pauses.clear()
    assert code(setup(world, "--dry-run", "--wait-for-jobs", command=command)) == 5
    assert not pauses, "a dry run waits for nothing"
    right = setup(world, "--yes", "--wait-for-jobs", command=command)
    assert (code(right), pauses) == (0, [10.0, 10.0, 10.0]), right.stderr
    both, one = (f"{name}: job busy runs in taco-launch-c" for name in ("gpu1", "gpu2"))
    assert [line for line in right.stderr.splitlines() if "waiting" in line] == [
        f"waiting: {both}; {one}",
        f"waiting: {one}",
    ]


def test_what_does_not_pass_is_not_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    recreating(world, monkeypatch)
    answering(monkeypatch, {"gpu2": b"error: whether a job runs cannot be found out\n"})
    monkeypatch.setattr(wait_for_jobs, "time", SimpleNamespace(monotonic=time.monotonic))
    assert code(setup(world, "--yes", "--wait-for-jobs")) == 5


def test_a_missing_mount_is_told_before_anything_is_done(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    text = INVENTORY.replace('{image: "registry', '{mounts: ["/:/host", "/no/data:/data"], image: "registry')
    (world.folder.parent / "cluster.yaml").write_text(text)
    answering(monkeypatch, {"gpu1": b"missing 1\n"})
    told = "error: gpu1: container: /no/data, which container.mounts lists, is not on this host\nhint: mkdir -p"
    for word in ("--dry-run", "--check", "--yes"):
        done = setup(world, word)
        assert (code(done), told in done.stderr) == (5, True)
    assert "gpu[2-3]: + docker: put docker (it does not exist)" in done.stdout
    assert (rows(done)["gpu1"], rows(done)["gpu2"]) == (["failed", "0"], ["ready", str(len(STAGES))])
    assert not list(world.of("gpu1").iterdir())
    assert code(setup(world, "--check", "--only", "image")) == 3, "only a container mounts it"


def test_what_stops_a_host_leaves_it_as_it_is(world: World) -> None:
    world.refused["gpu1", "ssh_mesh"] = Problem("ssh_mesh", "port 12222 is taken", "end it", stops="host")
    done = setup(world, "--yes")
    assert (code(done), rows(done)["gpu1"], rows(done)["gpu2"]) == (5, ["failed", "0"], ["ready", str(len(STAGES))])


def test_teardown_names_jobs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(back, "gather", world.gather)
    remove = Op("container", "remove it", "", "exit 1", disrupts="container")
    monkeypatch.setattr(back, "plan", lambda *_args: iter((remove,)))
    answering(monkeypatch, {"gpu2": JOB})
    done = setup(world, "--dry-run", command="teardown")
    assert code(done) == 5
    assert "error: gpu2: container: job busy runs in taco-launch-c\nhint: wait for it" in done.stderr
    assert "gpu[1-3]: - container: remove it" in done.stdout


def test_a_dead_host_hides_nothing_of_the_others(world: World) -> None:
    setup(world, "--yes")
    world.broken["gpu3"] = HostError("gpu3: no TCP connection to 10.0.0.3:22: Connection refused", "is it up?")
    done = setup(world, "--check")
    assert code(done) == 5
    assert done.stderr.splitlines() == [
        "error: gpu3: no TCP connection to 10.0.0.3:22: Connection refused",
        "hint: is it up?",
        f"nothing to do: gpu[1-2] already set up as in {world.folder.parent}/cluster.yaml",
        "to continue without gpu3: --exclude gpu3",
    ]
    (world.of("gpu1") / "agent").unlink()
    done = setup(world, "--check", "--exclude", "gpu3")
    assert (code(done), done.stdout) == (3, "gpu1: + agent: put agent (it does not exist)\n")
    assert done.stderr == "", "it is not even asked"
    done = setup(world, "--yes", "--exclude", "gpu3", "--exclude", "gpu2")
    assert (code(done), rows(done)) == (0, {"gpu1": ["ready", "1"]})
    assert code(setup(world, "--check", "--exclude", "gpu[1-3]")) == 2
