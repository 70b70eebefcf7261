"""setup and teardown where something is in the way: it is told with the plan, before the first change."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from taco_launch.core.errors import HostError
from taco_launch.core.model.host.hosts import Host
from taco_launch.hosts.remote.transport import Transport
from taco_launch.setup.apply import setup_run as flow
from taco_launch.setup.apply import teardown_run as back
from taco_launch.setup.apply import wait_for_jobs
from taco_launch.setup.model.ops import Op, Problem
from taco_launch.setup.plan.stage_rules import RULES, STAGES
from tests.support.simulated_setup import INVENTORY, Simulated, World, code, rows, setup

JOB = b"error: job busy runs in taco-launch-c\nhint: wait for it (--wait-for-jobs 2h), or: taco-launch stop busy\n"


def answering(monkeypatch: pytest.MonkeyPatch, answers: Mapping[str, bytes]) -> None:
    """Have hosts answer so where they are asked what is in the way."""
    really = Simulated.run

    def run(self: Simulated, command: Any) -> Any:
        done = really(self, replace(command, argv=("true",)) if "look" in command.argv else command)
        return replace(done, stdout=answers.get(self.name, b"")) if "look" in command.argv else done

    monkeypatch.setattr(Simulated, "run", run)


def recreating(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the container stage make containers anew that are there."""
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
