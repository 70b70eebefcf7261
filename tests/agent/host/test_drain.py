"""A drained host: none of its slots is free, who looks is told why, and who tries all the same gets none."""

import json
import os
import time
from pathlib import Path

import pytest

from taco_launch.agent.host import drain, occupancy
from taco_launch.agent.host.leases import Leases
from taco_launch.agent.host.slot_holders import Holder
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.slots import Drain, SlotState
from tests.support.slots_here import slots_here

SINCE = time.mktime((2026, 3, 4, 14, 2, 0, 0, 0, -1))
RECORD = {"by": "ann@desk", "since": SINCE, "reason": "new cable"}


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TACO_LAUNCH_LEASES", str(tmp_path / "leases"))
    monkeypatch.setenv("TACO_LAUNCH_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(drain, "DRAIN", str(tmp_path / "drain.json"))
    return tmp_path / "drain.json"


def take(place: Path, job: str, count: int, ports: tuple[int, ...] = ()) -> tuple[str, ...]:
    holder = Holder(job, job, SINCE, "hcc", "ann", pid=os.getpid())
    return Leases(place, place.parent / "jobs").take(("slot-0", "slot-1"), count, holder, None, ports)


def test_nothing_is_free_and_who_looks_is_told_why(record: Path) -> None:
    assert slots_here(2).drain is None
    record.write_text(json.dumps(RECORD))
    found = slots_here(2)
    assert found.drain == Drain("ann@desk", SINCE, "new cable")
    assert found.free == 0
    told = occupancy.describe(found, Path("/nowhere"), "bob")
    assert told == "2 drained by ann@desk since 2026-03-04 14:02 (new cable)"
    record.unlink()
    assert slots_here(2).free == 2


@pytest.mark.parametrize(("kind", "end"), [("node", "until `host resume`"), ("user", "until its cause is gone")])
def test_a_drain_by_the_policy_names_what_ends_it(record: Path, kind: str, end: str) -> None:
    record.write_text(json.dumps({**RECORD, "kind": kind, "policy": True, "checks": ["disk space"]}))
    told = occupancy.describe(slots_here(2), Path("/nowhere"), "bob")
    assert told == f"2 drained by policy of ann@desk since 2026-03-04 14:02 (new cable; {end})"


def test_a_job_that_runs_keeps_its_slots_and_no_other_gets_any(record: Path, tmp_path: Path) -> None:
    running = Leases(tmp_path / "leases", tmp_path / "jobs")
    holder = Holder("vgg", "vgg", SINCE, "hcc", "ann", pid=os.getpid())
    assert running.take(("slot-0",), 1, holder, None) == ("slot-0",)
    record.write_text(json.dumps(RECORD))
    first, second = slots_here(2).slots
    assert first.holder is not None
    assert second == SlotState("slot-1", None, "drained by ann@desk since 2026-03-04 14:02 (new cable)")
    assert take(tmp_path / "leases", "late", 1) == ()
    measured = slots_here(2, Host("h", "h", gate=True, while_drained=True).slot_words)
    assert occupancy.describe(measured, Path("/nowhere"), "bob").startswith("1 held by job vgg")
    assert "drained" not in occupancy.describe(measured, Path("/nowhere"), "bob")
    assert measured.slots[1].is_free, "a job that measures the host may have it"
    measurement = Leases(tmp_path / "leases", tmp_path / "jobs")
    assert measurement.take(("slot-1",), 1, holder, None, while_drained=True) == ("slot-1",)
    measurement.release(gone=True)
    # mpirun of a job on other hosts may run here: it takes a port, and no slot
    assert take(tmp_path / "leases", "head", 0, (40123,)) == ("port-40123",)
    running.release(gone=True)


def test_a_drain_is_told_beside_the_job_that_has_all_slots(record: Path, tmp_path: Path) -> None:
    running = Leases(tmp_path / "leases", tmp_path / "jobs")
    holder = Holder("vgg", "vgg", SINCE, "hcc", "ann", pid=os.getpid())
    assert running.take(("slot-0", "slot-1"), 2, holder, None) == ("slot-0", "slot-1")
    record.write_text(json.dumps(RECORD))
    told = occupancy.describe(slots_here(2), Path("/nowhere"), "bob")
    running.release(gone=True)
    assert told.startswith("2 held by job vgg of ann of cluster hcc")
    assert told.endswith(", and drained by ann@desk since 2026-03-04 14:02 (new cable)")


@pytest.mark.parametrize("text", ["", "{", '{"by": 1}', "[]", '{"by": "a", "since": 1e400, "reason": "b"}'])
def test_a_record_that_cannot_be_read_drains_the_host_all_the_same(record: Path, text: str) -> None:
    record.write_text(text)
    found = drain.read()
    assert found is not None
    assert found.reason.startswith(f"{record} cannot be read (")


def test_a_record_of_another_kind(record: Path) -> None:
    record.symlink_to("/etc/passwd")
    found = drain.read()
    assert found is not None
    assert "cannot be read" in found.reason
