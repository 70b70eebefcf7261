"""Who has the slots of a host: looked at without taking any, told in words, and watched cheaply."""

import fcntl
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from taco_launch.agent.host import file_locks, occupancy
from taco_launch.agent.host.gpus import GpuUse
from taco_launch.agent.host.leases import Leases
from taco_launch.agent.host.occupancy import Slots
from taco_launch.agent.host.slot_holders import Holder
from taco_launch.agent.store.folders import Jobs
from taco_launch.core.errors import HostError
from taco_launch.core.model.slots import Occupancy, SlotHolder, SlotState, check_occupancy, names
from tests.agent.conftest import PYTHON, Family
from tests.support.agent_calls import submitted
from tests.support.patience import HANG
from tests.support.raisers import raiser
from tests.support.slots_here import slots_here
from tests.support.smi import GPUS, Smi

NOWHERE = Path("/nowhere")
SINCE = time.mktime((2026, 3, 4, 14, 2, 0, 0, 0, -1))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TACO_LAUNCH_LEASES", str(tmp_path / "leases"))
    monkeypatch.setenv("TACO_LAUNCH_STATE", str(tmp_path / "state"))
    return tmp_path / "leases"


@pytest.fixture
def hold(place: Path) -> Iterator[Callable[..., Leases]]:
    held: list[Leases] = []

    def one(job: str, *wanted: str, job_id: str = "") -> Leases:
        holder = Holder(job, job_id or job, SINCE, "hcc", "ann", pid=os.getpid())
        held.append(Leases(place, place.parent / "state" / "jobs"))
        assert held[-1].take(wanted, len(wanted), holder, dict.fromkeys(GPUS, GpuUse())) == wanted
        return held[-1]

    yield one
    for each in held:
        each.release(gone=True)


@pytest.mark.parametrize(
    ("uuids", "slots", "expected"),
    [
        ((), 2, ("slot-0", "slot-1")),
        (("GPU-b", "GPU-a"), 2, ("GPU-b", "GPU-a")),
        (("GPU-b", "GPU-a"), 1, ("GPU-b",)),
        (("GPU-b", "GPU-a"), 4, ("GPU-b", "GPU-a", "slot-2", "slot-3")),
        ((), 0, ()),
    ],
)
def test_names(uuids: tuple[str, ...], slots: int, expected: tuple[str, ...]) -> None:
    assert names(uuids, slots) == expected


@pytest.mark.usefixtures("place")
def test_how_many_slots_there_are(smi: Smi, tmp_path: Path) -> None:
    cores = max(2, len(os.sched_getaffinity(0)))
    sizes = {"3": 3, "auto": 4, "auto+3": 4, "auto+6": 6, "0": 0}
    assert {size: len(Slots(tmp_path, tmp_path, size).names) for size in sizes} == sizes
    assert len(Slots(tmp_path, tmp_path, "auto", "none").names) == cores
    assert len(Slots(tmp_path, tmp_path, "auto+99", "none").names) == 99
    told = {size: Slots(tmp_path, tmp_path, size).read() for size in sizes}
    assert {size: each.gpus for size, each in told.items()} == {size: min(number, 4) for size, number in sizes.items()}
    for each in told.values():
        check_occupancy(each)  # what another machine refuses
    smi.fail()
    assert Slots(tmp_path, tmp_path, "auto+3").names == names((), 3)  # who says how many ranks a host takes says it all
    with pytest.raises(HostError, match="GPU is lost"):
        Slots(tmp_path, tmp_path, "auto")


def test_what_is_refused_besides_is_told() -> None:
    holder = SlotHolder("a", "id", SINCE)
    found = Occupancy("h", (SlotState("slot-0"), SlotState("slot-1", holder), SlotState("slot-2", None, "used by me")))
    after = found.without({"slot-0": "left by job b", "slot-1": "no"})
    assert [(slot.holder, slot.foreign) for slot in after.slots] == [
        (None, "left by job b"),
        (holder, ""),
        (None, "used by me"),
    ]


def test_a_look_takes_and_makes_nothing(place: Path) -> None:
    found = slots_here(3)
    assert found.slots == (SlotState("slot-0"), SlotState("slot-1"), SlotState("slot-2"))
    assert (found.free, found.gpus) == (3, 0)
    assert not place.exists()


def test_who_has_them(hold: Callable[..., Leases], place: Path) -> None:
    vgg = hold("vgg16", "slot-0", "slot-2")
    found = slots_here(4)
    holder = SlotHolder("vgg16", "vgg16", SINCE, "hcc", "ann")
    assert found.slots[0] == SlotState("slot-0", holder)
    assert [slot.holder for slot in found.slots] == [holder, None, holder, None]
    assert found.free == 2
    vgg.release(gone=False)  # a guard that was killed: who takes the slots ends what it left
    assert slots_here(4).free == 4
    with open(place / "slot-1", "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # taken, and the name not written yet
        assert occupancy.describe(slots_here(4), NOWHERE, "") == "1 held by another job"


@pytest.mark.parametrize(("own", "is_free"), [("mine", False), ("hcc", True)])
def test_a_job_of_another_cluster_is_seen_although_its_locks_are_not(
    hold: Callable[..., Leases], place: Path, monkeypatch: pytest.MonkeyPatch, own: str, *, is_free: bool
) -> None:
    """It is in a container with PIDs of its own, whose locks /proc/locks does not show; the record names its cluster."""
    hold("vgg", "slot-0")
    monkeypatch.setattr(file_locks, "read", lambda: file_locks.Locks(frozenset()))
    monkeypatch.setenv("TACO_LAUNCH_CLUSTER", own)
    first, second = Slots(place, NOWHERE, "2", "none").read().slots
    assert second.is_free
    assert first.is_free == is_free
    if not is_free:
        assert first.holder == SlotHolder("vgg", "vgg", SINCE, "hcc", "ann")


def test_where_the_locks_cannot_be_read_nothing_is_free(
    hold: Callable[..., Leases], monkeypatch: pytest.MonkeyPatch
) -> None:
    hold("vgg16", "slot-0")
    monkeypatch.setattr(file_locks, "read", raiser(PermissionError(13, "Permission denied")))
    found = slots_here(2)
    assert found.free == 0
    assert occupancy.describe(found, NOWHERE, "ann") == "2 with unknown users (/proc/locks: Permission denied)"


def test_before_slots_are_taken_locks_are_read_only_where_there_is_a_record(
    hold: Callable[..., Leases], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[object] = []
    read = file_locks.read

    def counted() -> file_locks.Locks:
        reads.append(None)
        return read()

    monkeypatch.setattr(file_locks, "read", counted)
    slots = occupancy.Slots(place, NOWHERE, "2")
    assert slots.read_thoroughly(before_taking=True).free == 2
    assert not reads
    hold("vgg16", "slot-0")
    assert slots.read_thoroughly(before_taking=True).free == 1
    assert reads


def test_a_file_that_cannot_be_looked_at_is_no_free_slot(place: Path) -> None:
    place.mkdir()
    (place / "slot-0").symlink_to("slot-0")
    found = slots_here(1)
    assert found.free == 0
    assert f"that cannot be used ({place}/slot-0 is a symbolic link of " in found.slots[0].foreign


@pytest.mark.parametrize(
    ("slots", "words"),
    [
        (("vgg16",) * 6 + ("",) * 2, "6 held by job vgg16 since 2026-03-04 14:02"),
        (("a", "b", "a", ""), "2 held by job a since 2026-03-04 14:02, 1 held by job b since 2026-03-04 14:02"),
        (("", ""), ""),
    ],
)
def test_words(jobs: Jobs, slots: tuple[str, ...], words: str) -> None:
    for job in filter(None, set(slots)):
        submitted(jobs, job)
    states = tuple(
        SlotState(f"slot-{number}", SlotHolder(job, f"id-{job}", SINCE) if job else None)
        for number, job in enumerate(slots)
    )
    assert occupancy.describe(Occupancy("gpu1", states), jobs.path, "") == words


def test_of_today_the_time_is_enough(jobs: Jobs) -> None:
    now = time.time()
    submitted(jobs, "a")
    assert told(jobs, SlotHolder("a", "id-a.2", now)) == f"a since {time.strftime('%H:%M', time.localtime(now))}"


def told(jobs: Jobs, holder: SlotHolder) -> str:
    words = occupancy.describe(Occupancy("gpu1", (SlotState("slot-0", holder),)), jobs.path, "ann")
    assert words.startswith("1 held by job ")
    return words[len("1 held by job ") :]


def test_a_job_of_another_head_is_in_another_queue(jobs: Jobs) -> None:
    """It is known by its id: two heads may have jobs of one name, and here may be ranks of the other's."""
    since = "since 2026-03-04 14:02"
    submitted(jobs, "a")
    guest = jobs.folder("guest")
    guest.path.mkdir()
    guest.roots.touch()
    assert told(jobs, SlotHolder("a", "id-a", SINCE, "hcc")) == f"a {since}"
    assert told(jobs, SlotHolder("a", "id-a", SINCE, "hcc", "ann")) == f"a {since}"  # who is told
    assert told(jobs, SlotHolder("a", "id-a", SINCE, "hcc", "bob")) == f"a of bob {since}"
    assert told(jobs, SlotHolder("b", "id-b", SINCE, "x", "bob")) == f"b of bob of cluster x (another queue) {since}"
    assert told(jobs, SlotHolder("a", "other", SINCE, "hcc")) == f"a of cluster hcc (another queue) {since}"
    assert told(jobs, SlotHolder("b", "id-b", SINCE)) == f"b (another queue) {since}"
    assert told(jobs, SlotHolder("guest", "id", SINCE, "x")) == f"guest of cluster x (another queue) {since}"
    submitted(jobs, "damaged").events.write_text('{"schema": 1, "time": 1, "kind": "submitted", "data": {}}\n')
    assert told(jobs, SlotHolder("damaged", "id", SINCE)) == f"damaged {since}"


@pytest.mark.usefixtures("place")
def test_a_gpu_that_others_use_is_not_free(smi: Smi, hold: Callable[..., Leases]) -> None:
    hold("vgg16", GPUS[0])
    smi.gpus(GPUS, (4, 4, 2000))
    # The first is the job's own; processes of a job on a GPU that it does not have are as foreign as any.
    smi.processes((GPUS[0], os.getpid(), "python3"), (GPUS[1], os.getpid(), "python3"))
    found = slots_here(5)
    assert [slot.is_free for slot in found.slots] == [False, False, False, True, True]
    assert found.gpus == 4
    assert [slot.name for slot in found.slots] == [*GPUS, "slot-4"]
    one, two, three = occupancy.describe(found, NOWHERE, "ann").split(", ", 2)
    assert one == "1 held by job vgg16 of cluster hcc (another queue) since 2026-03-04 14:02"
    assert two.startswith(f"1 used by process {os.getpid()} (python3 of ")
    assert three == "1 with 2000 MiB of its memory in use by a process that is not visible here"


@pytest.mark.usefixtures("place")
def test_what_the_last_holder_left_on_a_gpu_is_not_foreign(
    smi: Smi, hold: Callable[..., Leases], family: Family
) -> None:
    left, stranger = family.start(("sleep", "60"), marked=True), family.start(("sleep", "60"))
    hold("gone", GPUS[0], GPUS[1], job_id=family.job_id).release(gone=False)
    smi.gpus(GPUS, (9000, 9000))
    smi.processes((GPUS[0], left.pid, "sleep"), (GPUS[1], left.pid, "sleep"), (GPUS[1], stranger.pid, "sleep"))
    assert [slot.is_free for slot in slots_here(2).slots] == [True, False]


@pytest.mark.usefixtures("place")
def test_without_nvidia_smis_answer_no_gpu_is_free(smi: Smi, hold: Callable[..., Leases]) -> None:
    slots = Slots(Path(os.environ["TACO_LAUNCH_LEASES"]), NOWHERE, "4")
    assert slots.read_thoroughly().free == 4
    hold("vgg16", GPUS[2])
    smi.fail()
    assert slots.read_thoroughly().free == 0
    assert "with unknown users" in occupancy.describe(slots.read(), NOWHERE, "")
    assert [slot.is_unknown for slot in slots.read().slots] == [True, True, False, True]
    # From the beginning: slots that are declared can be had, but not those of GPUs that jobs had before.
    found = slots_here(4)
    assert [slot.name for slot in found.slots] == [GPUS[2], "slot-1", "slot-2", "slot-3"]
    assert found.free == 3
    # And where there are none to be used, nothing of it matters.
    assert slots_here(4, "none").free == 4


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sees all marks")
def test_what_another_user_left_is_told(place: Path, hold: Callable[..., Leases], family: Family) -> None:
    hold("theirs", "slot-0", job_id=family.job_id).release(gone=False)
    (place / "slot-0.0").rename(place / "slot-0.65534")
    os.chown(place / "slot-0.65534", 65534, 65534)
    family.start(("sleep", "60"), marked=True)  # root's, which the record of another user says nothing of
    assert slots_here(1).free == 1
    process = family.start(("sleep", "60"), marked=True, user=65534)
    found = slots_here(1)
    assert found.slots[0].foreign.endswith(f"may still be running: perhaps process {process.pid}")


# -- as a process


class Watch:
    """`agent watch`, as the scheduler has it run."""

    def __init__(self, agent: Path, family: Family, place: Path, *words: str) -> None:
        env = {"TACO_LAUNCH_LEASES": str(place), "TACO_LAUNCH_STATE": str(place.parent), "PATH": os.environ["PATH"]}
        self.process = family.start((*PYTHON, str(agent), "watch", *words), stdin=subprocess.PIPE, env=env)

    def line(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def free(self) -> int:
        return sum(slot["holder"] is None and not slot["foreign"] for slot in self.line()["occupancy"]["slots"])

    def poke(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()


def test_a_watch_tells_what_changes(agent: Path, family: Family, place: Path, hold: Callable[..., Leases]) -> None:
    watch = Watch(agent, family, place, "3")
    assert watch.free() == 3
    vgg = hold("vgg16", "slot-0")
    assert watch.free() == 2
    watch.poke()  # answered though nothing has changed
    assert watch.free() == 2
    vgg.release(gone=True)
    assert watch.free() == 3
    assert watch.process.stdin is not None
    watch.process.stdin.close()
    assert watch.process.wait(HANG) == 0
    assert watch.process.stdout is not None
    assert watch.process.stdout.read() == b""


def test_a_watch_sees_a_foreign_process_end(agent: Path, family: Family, place: Path, smi: Smi) -> None:
    stranger = family.start(("sleep", "60"))
    smi.processes((GPUS[1], stranger.pid, "sleep"))
    watch = Watch(agent, family, place)
    assert watch.free() == 3
    asked = len(smi.calls)
    watch.poke()
    assert watch.free() == 3
    assert len(smi.calls) == asked  # which takes the driver's time
    smi.processes()
    stranger.kill()
    stranger.wait()
    assert watch.free() == 4


@pytest.mark.usefixtures("place")
def test_slots_is_one_line(agent: Path, family: Family, hold: Callable[..., Leases]) -> None:
    hold("vgg16", "slot-0")
    for argv in (occupancy.arguments(2, "none"), ("2", "none")):  # the latter as another host without the variable
        process = family.start((*PYTHON, str(agent), "slots", *argv), env={"HOME": "/nowhere"})
        out, _ = process.communicate(timeout=HANG)
        held = {
            slot["name"]: slot["holder"] and slot["holder"]["job"] for slot in json.loads(out)["occupancy"]["slots"]
        }
        assert list(held) == ["slot-0", "slot-1"]
        assert (held["slot-0"] == "vgg16") == (len(argv) == 4)  # this machine's own may be had by jobs that run here
