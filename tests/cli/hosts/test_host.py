"""host resume: a host with a fault stays drained."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import Result

from taco_launch.api.host_checks import HostCheckOptions
from taco_launch.cli.hosts import host
from taco_launch.core.errors import HostError
from taco_launch.core.facts.reports.health.verdict import FAULT, OK, HealthVerdict
from taco_launch.core.model.host.fact_value import NOT_ASKED
from taco_launch.core.model.host.facts import HostFacts
from taco_launch.core.model.host.health import Xid
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.slots import Drain, Override
from taco_launch.hosts import drains
from taco_launch.hosts.fanout import Answer, Fanout
from tests.support.command_line import call
from tests.support.host_facts import checked

INVENTORY = """\
cluster: played
hosts:
  gpu[1-3]: {address: "10.0.0.[1-3]"}
container: {image: "nvcr.io/nvidia/pytorch:25.01-py3"}
"""
HEALTH = "health: {drain: [Xid]}\n"
overrides: dict[str, Override] = {}
drained = Drain("ann@login", 0.0, "cable")
LOST = (Xid(79, "0000:07:00", 1800.0, "GPU has fallen off the bus."),)


@pytest.fixture
def resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Result, list[str]]]:
    """Resume three hosts, of which the second has lost a GPU; return what was said, and the hosts that were opened."""
    monkeypatch.setenv("TACO_LAUNCH_STATE", str(tmp_path / "state"))
    (tmp_path / "cluster.yaml").write_text(INVENTORY)

    def gather(fanout: Fanout, *_more: object, **_others: object) -> tuple[Answer[HostFacts], ...]:
        names = [each.name for each in fanout.transports]
        found = (checked(name, xids=LOST if name == "gpu2" else ()) for name in names)
        # of the container nothing is asked
        return tuple(Answer(each.host, replace(each, docker=NOT_ASKED)) for each in found)

    overrides.clear()

    def run(*args: str) -> tuple[Result, list[str]]:
        opened: list[str] = []

        def open_all(fanout: Fanout, _report: object, forced: Mapping[str, Override]) -> Sequence[Answer[None]]:
            opened.extend(each.name for each in fanout.transports)
            overrides.update(forced)
            return tuple(Answer(each.name) for each in fanout.transports)

        monkeypatch.setattr("taco_launch.hosts.check.gather", gather)
        monkeypatch.setattr(drains, "resume", open_all)
        monkeypatch.setattr(
            drains, "read", lambda fanout: tuple(Answer(each.name, drained) for each in fanout.transports)
        )
        return call("-i", str(tmp_path / "cluster.yaml"), "host", "resume", *args), opened

    return run


def test_a_host_with_a_fault_stays_drained(resume: Callable[..., tuple[Result, list[str]]]) -> None:
    done, opened = resume("gpu[1-3]")
    assert opened == ["gpu1", "gpu3"]
    assert done.exit_code == 3
    assert "gpu2: fault: Xid: Xid 79" in done.stdout
    assert "error: not opened to jobs: gpu2\nhint: to open a host all the same: --force" in done.stderr
    assert "gpu[1,3]: open to jobs\n" in done.stderr


def test_a_host_with_a_fault_that_was_never_drained_is_said_to_be_open(
    resume: Callable[..., tuple[Result, list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "drained", None)
    done, opened = resume("gpu2")
    assert (done.exit_code, opened) == (3, [])
    assert "error: not sound, but open to jobs, as before: gpu2\nhint: to keep jobs off: " in done.stderr
    assert "host drain gpu2 --reason" in done.stderr


@pytest.mark.parametrize(("args", "opened"), [(("gpu1",), ["gpu1"]), (("gpu2", "--force"), ["gpu2"])])
def test_hosts_that_are_opened(
    resume: Callable[..., tuple[Result, list[str]]], args: tuple[str, ...], opened: list[str]
) -> None:
    done, names = resume(*args)
    assert (done.exit_code, names) == (0, opened)


def test_with_a_policy_the_faults_in_spite_of_which_a_host_is_opened_are_remembered(
    resume: Callable[..., tuple[Result, list[str]]], tmp_path: Path
) -> None:
    resume("gpu2", "--force")
    assert overrides == {}, "nothing drains it again"
    (tmp_path / "cluster.yaml").write_text(INVENTORY + HEALTH)
    done, opened = resume("gpu[1-2]", "--force")
    assert (done.exit_code, opened) == (0, ["gpu1", "gpu2"])
    assert "gpu2: fault: Xid: Xid 79" in done.stdout
    assert {host: each.faults for host, each in overrides.items()} == {
        "gpu2": (("Xid", "Xid 79 on GPU 7 (RESTART_BM): GPU has fallen off the bus."),)
    }


def test_a_host_has_to_pass_the_measurement_as_well(
    resume: Callable[..., tuple[Result, list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[object] = []

    def measure(_cluster: object, hosts: Sequence[Host], options: HostCheckOptions, *_more: object) -> object:
        given.extend((options.level, [host.name for host in hosts]))
        slow = HealthVerdict("memory copy", FAULT, "1 GB/s [1, 1]; the median of the hosts is 9 GB/s", "a rule")
        return (("gpu1", (HealthVerdict("memory copy", OK, "9 GB/s [9, 9]", "a rule"),)), ("gpu3", (slow,)))

    monkeypatch.setattr("taco_launch.cli.hosts.check.measure_drained", measure)
    done, opened = resume("gpu[1-3]", "--level", "full")
    assert given == ["full", ["gpu1", "gpu3"]], "a host with a fault is not measured"
    assert (done.exit_code, opened) == (3, ["gpu1"])
    assert "gpu1  9 GB/s [9, 9]" in done.stdout
    assert "gpu3: fault: memory copy: 1 GB/s [1, 1]; the median" in done.stdout
    assert "error: not opened to jobs: gpu[2-3]" in done.stderr


def test_a_measurement_and_force_contradict_each_other(resume: Callable[..., tuple[Result, list[str]]]) -> None:
    done, opened = resume("gpu1", "--level", "full", "--force")
    assert (done.exit_code, opened) == (2, [])
    assert "--level full and --force contradict each other\nhint: " in done.stderr


def test_a_host_is_told_drained_where_nobody_tells_of_its_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cluster.yaml").write_text(INVENTORY)

    def refuse(*_given: object) -> None:
        raise HostError("gpu1: there is no docker")

    monkeypatch.setattr(drains, "drain", lambda *_given: (Answer("gpu2", drained),))
    monkeypatch.setattr(host, "_wait", refuse)
    words = ("-i", str(tmp_path / "cluster.yaml"), "host", "drain", "gpu2", "--reason", "cable")
    done = call(*words)
    assert done.exit_code == 0
    assert "gpu2: replaced the drain by ann@login: cable\n" in done.stderr
    assert "gpu2: drained; whether jobs run there is not known: gpu1: there is no docker" in done.stderr
    assert call(*words, "--wait-for-jobs", "1s").exit_code == 5
