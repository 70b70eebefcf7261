"""setup --rolling on simulated hosts: drains are a table of this test, and the check has no fault but where it is told."""

import itertools
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import Result

from taco_launch.core.errors import HostError
from taco_launch.core.facts.reports.health.verdict import FAULT, HealthVerdict
from taco_launch.core.model.slots import Drain
from taco_launch.hosts import check, drains
from taco_launch.hosts.fanout import Answer, Fanout
from taco_launch.setup.apply import setup_run, wait_for_jobs
from taco_launch.setup.apply.rolling import REASON
from taco_launch.setup.model.ops import Problem
from tests.support.simulated_setup import World, code, setup

ORDER = ["drain gpu2", "check gpu2", "resume gpu2", "drain gpu3", "check gpu3", "resume gpu3"]
ALL = [*ORDER, "drain gpu1", "check gpu1", "resume gpu1"]
PERSON = Drain("ann@desk", 1.0, "new cable")


@dataclass
class Site:
    """The drains of hosts, what happened in which order, and the hosts that a check finds faulty."""

    world: World
    records: dict[str, Drain] = field(default_factory=dict)
    did: list[str] = field(default_factory=list)
    faulty: set[str] = field(default_factory=set)
    on_drain: Callable[[str], object] = lambda _host: None

    def read(self, fanout: Fanout) -> tuple[Answer[Drain | None], ...]:
        return tuple(Answer(each.name, self.records.get(each.name)) for each in fanout.transports)

    def drain(self, fanout: Fanout, new: Drain, _report: object) -> tuple[Answer[None], ...]:
        return tuple(self._note("drain", each.name, new) for each in fanout.transports)

    def resume(self, fanout: Fanout, _report: object) -> tuple[Answer[None], ...]:
        return tuple(self._note("resume", each.name, None) for each in fanout.transports)

    def look(self, fanout: Fanout, *_more: object, **_others: object) -> Any:
        names = [each.name for each in fanout.transports]
        self.did += [f"check {name}" for name in names]
        lost = HealthVerdict("Xid", FAULT, "Xid 79", "NVIDIA", "replace it")
        return [(name, (lost,) if name in self.faulty else ()) for name in names], ()

    def _note(self, what: str, host: str, record: Drain | None) -> Answer[None]:
        self.did.append(f"{what} {host}")
        self.records.pop(host, None)
        if record:
            self.records[host] = record
            self.on_drain(host)
        return Answer(host)

    def done(self) -> list[str]:
        return [name for name in ("gpu1", "gpu2", "gpu3") if len(list(self.world.of(name).iterdir())) == 2]


def rolling(world: World, *words: str, size: str = "1") -> Result:
    return setup(world, "--rolling", size, "--only", "docker,image", *words)


@pytest.fixture
def site(world: World, monkeypatch: pytest.MonkeyPatch) -> Site:
    made = Site(world)
    for name in ("read", "drain", "resume"):
        monkeypatch.setattr(drains, name, getattr(made, name))
    monkeypatch.setattr(check, "look", made.look)
    return made


def test_hosts_are_changed_one_after_another(site: Site, world: World) -> None:
    done = setup(world, "--rolling", "--dry-run")
    assert (code(done), site.did, site.done()) == (0, [], [])
    assert done.stdout.splitlines()[-1] == "one after another: gpu2; gpu3; gpu1"
    assert "one after another: gpu[2-3]; gpu1" in rolling(world, "--dry-run", size="2").stdout
    told = json.loads(rolling(world, "--dry-run", "-o", "json", size="2").stdout)
    assert told["groups"] == [["gpu2", "gpu3"], ["gpu1"]]
    at_drain: list[tuple[str, list[str]]] = []
    site.on_drain = lambda host: at_drain.append((host, site.done()))
    done = rolling(world, "--yes")
    assert (code(done), site.did, site.records) == (0, ALL, {}), done.output
    assert at_drain == [("gpu2", []), ("gpu3", ["gpu2"]), ("gpu1", ["gpu2", "gpu3"])]
    assert "done: gpu[1-3]\n" in done.stderr
    site.did.clear()
    assert (code(rolling(world, "--yes")), site.did) == (0, []), "there is nothing to do"


def test_it_stops_at_the_first_fault_and_continues_there(site: Site, world: World) -> None:
    site.faulty = {"gpu3"}
    done = rolling(world, "--yes")
    assert (code(done), site.done()) == (5, ["gpu2", "gpu3"])
    assert "error: gpu3: fault: Xid: Xid 79\nhint: replace it" in done.stderr
    typed = f"taco-launch -i {world.folder.parent}/cluster.yaml setup --only docker,image --rolling 1"
    told = "done: gpu2; stays drained: gpu3; not touched: gpu1; once the error is fixed, continue: "
    assert done.stderr.endswith(f"{told}{typed}\n")
    assert {host: record.reason for host, record in site.records.items()} == {"gpu3": REASON}
    site.faulty, site.did = set(), []
    assert code(rolling(world, "--yes")) == 0
    assert (site.did, site.records) == (["check gpu3", "resume gpu3", *ALL[6:]], {})


@pytest.mark.parametrize("meanwhile", [False, True])
def test_a_host_that_a_person_has_drained_is_changed_and_stays_drained(
    site: Site, world: World, *, meanwhile: bool
) -> None:
    if meanwhile:
        site.on_drain = lambda host: site.records.update(gpu2=PERSON) if host == "gpu2" else None
    else:
        site.records["gpu2"] = PERSON
    done = rolling(world, "--yes")
    assert (code(done), site.records, site.done()) == (0, {"gpu2": PERSON}, ["gpu1", "gpu2", "gpu3"])
    assert "gpu2: changed, and stays drained: by ann@desk: new cable" in done.stderr
    assert ("check gpu2" in site.did) == meanwhile


def test_a_drain_that_its_person_has_ended_meanwhile_is_none(site: Site, world: World) -> None:
    site.records["gpu3"] = PERSON
    site.on_drain = lambda host: site.records.pop("gpu3" if host == "gpu2" else "", None)
    done = rolling(world, "--yes")
    assert (code(done), site.did, "stays drained" in done.stderr) == (0, ALL, False)


def test_a_host_that_does_not_answer_in_its_turn_is_not_changed(site: Site, world: World) -> None:
    def die(host: str) -> None:
        if host == "gpu3":
            world.broken["gpu3"] = HostError("gpu3: no route to host")

    site.on_drain = die
    done = rolling(world, "--yes")
    assert (code(done), list(site.records), list(world.of("gpu3").iterdir())) == (5, ["gpu3"], [])
    assert "stays drained: gpu3; not touched: gpu1; once" in done.stderr


def test_a_job_is_waited_for_when_its_host_is_drained(
    site: Site, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Problem("image", "job busy runs there", "wait", stops="cluster", passes=True)
    world.refused["gpu3", "image"] = job
    slept: list[str] = []

    def sleep(_seconds: float) -> None:
        slept.append(site.did[-1])
        if len(slept) == 3:
            del world.refused["gpu3", "image"]

    monkeypatch.setattr(wait_for_jobs, "time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))
    done = rolling(world, "--yes")
    assert (code(done), slept, site.did) == (0, ["drain gpu3"] * 3, ALL), done.output
    assert "waiting: gpu3: job busy runs there" in done.stderr
    (world.of("gpu3") / "image").unlink()
    world.refused["gpu3", "image"] = job
    clock = SimpleNamespace(sleep=lambda _seconds: None, monotonic=map(float, itertools.count()).__next__)
    monkeypatch.setattr(wait_for_jobs, "time", clock)
    done = rolling(world, "--yes", "--wait-for-jobs", "5s")
    assert code(done) == 5
    assert "(--wait-for-jobs): the jobs are still running" in done.stderr
    assert "stays drained: gpu3; once" in done.stderr


def test_ctrl_c_leaves_the_host_drained(site: Site, world: World) -> None:
    def stop(host: str) -> None:
        if host == "gpu3":
            raise KeyboardInterrupt

    site.on_drain = stop
    done = rolling(world, "--yes")
    assert (code(done), list(site.records), site.done()) == (130, ["gpu3"], ["gpu2"])
    assert "interrupted; done: gpu2; stays drained: gpu3; not touched: gpu1; to continue: " in done.stderr


def test_what_is_known_to_fail_is_not_begun(site: Site, world: World) -> None:
    world.refused["gpu3", "image"] = Problem("image", "no room", "make some")
    for word in ("--yes", "--dry-run"):
        done = rolling(world, word)
        assert (code(done), site.did) == (5, [])
    world.refused.clear()
    world.broken["gpu3"] = HostError("gpu3: no route to host")
    done = rolling(world, "--yes")
    assert (code(done), site.did) == (5, [])
    assert "to continue without gpu3: --exclude gpu3" in done.stderr
    assert code(rolling(world, "--exclude", "gpu3", "--yes")) == 0
    assert code(rolling(world, "--check")) == 2


def test_what_later_hosts_leave_to_do_on_earlier_ones_is_told(
    site: Site, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.on_drain = lambda host: (world.of("gpu2") / "docker").unlink() if host == "gpu1" else None
    monkeypatch.setattr(setup_run.Setup, "_know", _rereads(setup_run.Setup._know))
    done = rolling(world, "--yes", "-o", "json")
    assert code(done) == 5
    assert json.loads(done.stdout)["hosts"] == [{"host": f"gpu{each}", "state": "done"} for each in (2, 3, 1)]
    assert (
        "error: gpu2: later changes on other hosts require these steps here: put docker\nhint: taco-launch"
        in done.stderr
    )


def _rereads(know: Callable[[setup_run.Setup], None]) -> Callable[[setup_run.Setup], None]:
    """Have a set-up see the files of all hosts as they are."""

    def reads(work: setup_run.Setup) -> None:
        work._take(work._gather(work._fanout, setup_run.SUBJECTS))
        know(work)

    return reads
