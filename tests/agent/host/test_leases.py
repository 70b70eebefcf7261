"""Slots are taken all or none, the first that are free; what the last holder left is ended first, or told."""

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from taco_launch.agent.host import gpus, leases, process_registry
from taco_launch.agent.host.leases import Leases
from taco_launch.agent.host.slot_holders import Holder
from taco_launch.agent.store import folders
from taco_launch.agent.store.folders import JobFolder, lease_folder
from taco_launch.core.errors import HostError
from tests.agent.conftest import Family
from tests.conftest import eventually
from tests.support.patience import HANG
from tests.support.smi import GPUS, Smi

FOUR = ("slot-0", "slot-1", "slot-2", "slot-3")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can play two users")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "run" / "leases"


@pytest.fixture
def jobs(folder: JobFolder) -> Path:
    return folder.path.parent


@pytest.fixture
def make(place: Path, jobs: Path) -> Iterator[Callable[[], Leases]]:
    made: list[Leases] = []

    def one() -> Leases:
        made.append(Leases(place, jobs))
        return made[-1]

    yield one
    for each in made:
        each.release(gone=True)


@pytest.fixture
def first(make: Callable[[], Leases]) -> Leases:
    return make()


@pytest.fixture
def second(make: Callable[[], Leases]) -> Leases:
    return make()


def holder(job_id: str, since: float | None = None) -> Holder:
    then = time.time() if since is None else since
    return Holder("job", job_id, then, "c", "ann", pid=os.getpid())


def take(who: Leases, count: int = 2, job_id: str = "one", names: tuple[str, ...] = FOUR) -> tuple[str, ...]:
    return who.take(names, count, holder(job_id), None)


def test_the_first_that_are_free(first: Leases, second: Leases, make: Callable[[], Leases]) -> None:
    third = make()
    assert take(first, 1) == ("slot-0",)
    assert take(second, 2, "two") == ("slot-1", "slot-2")
    first.release(gone=True)
    assert take(third, 2, "three") == ("slot-0", "slot-3")


def test_all_or_none(first: Leases, second: Leases, make: Callable[[], Leases]) -> None:
    assert take(first, 2) == FOUR[:2]
    assert take(second, 3, "two") == ()
    assert second.refused == {}
    # The refusal left nothing locked.
    assert take(make(), 2, "three") == FOUR[2:]


def test_it_may_be_asked_twice(first: Leases) -> None:
    assert take(first) == take(first) == FOUR[:2]


def test_ports_are_no_other_jobs(first: Leases, second: Leases, make: Callable[[], Leases]) -> None:
    for _time in range(2):
        assert first.take(FOUR, 1, holder("one"), None, (40000, 40001)) == ("port-40000", "port-40001", FOUR[0])
    assert second.take(FOUR, 1, holder("two"), None, (40002, 40000, 40001)) == ()
    assert second.refused == {"port-40000": "held by another job", "port-40001": "held by another job"}
    # The refusal left nothing locked.
    assert second.take(FOUR, 1, holder("two"), None, (40002, 40003))[2:] == FOUR[1:2]
    assert make().take(FOUR, 3, holder("three"), None, (40004,)) == ()
    first.release(gone=True)
    assert make().take(FOUR, 3, holder("three"), None, (40000, 40004))[2:] == (FOUR[0], *FOUR[2:])
    assert make().take((), 0, holder("four"), None, (40005,)) == ("port-40005",)


def test_what_the_last_holder_left_is_ended(first: Leases, second: Leases, folder: JobFolder, family: Family) -> None:
    assert first.take(FOUR, 1, holder(family.job_id), None) == ("slot-0",)
    marked, registered = family.start(("sleep", "60"), marked=True), family.start(("sleep", "60"))
    bystander = family.start(("sleep", "60"))
    process_registry.keep(folder, family.job_id, [family.root(registered)])
    first.release(gone=False)  # as the kernel does when the guard is killed
    assert take(second, 1, "two") == ("slot-0",)
    assert (marked.wait(HANG), registered.wait(HANG), bystander.poll()) == (-9, -9, None)


@needs_root
def test_nobody_has_us_end_what_is_not_the_jobs(
    first: Leases, second: Leases, folder: JobFolder, family: Family
) -> None:
    """The files are everybody's to write, and may name a folder in which another user says what belongs to the job."""
    assert first.take(FOUR, 1, holder("lie"), None)
    bystander = family.start(("sleep", "60"))
    process_registry.keep(folder, "lie", [family.root(bystander)])
    os.chown(folder.roots, 65534, 65534)
    first.release(gone=False)
    assert take(second, 1, "two") == ("slot-0",)
    assert bystander.poll() is None


def test_who_ended_in_order_is_forgotten(first: Leases, place: Path) -> None:
    take(first)
    told = (place / f"slot-0.{os.geteuid()}").read_text(encoding="ascii")
    assert told.startswith('{"job":"job","id":"one","since":')  # as scripts read it
    assert '"cluster":"c","owner":"ann"' in told
    first.release(gone=True)
    assert sorted(path.name for path in place.iterdir()) == ["slot-0", "slot-1"]
    assert (place / "slot-0").read_bytes() == b""


def test_what_is_no_regular_file_is_no_slot(first: Leases, place: Path, tmp_path: Path) -> None:
    place.mkdir(parents=True)
    (tmp_path / "precious").write_text("precious", encoding="ascii")
    (place / "slot-0").symlink_to(tmp_path / "precious")
    os.mkfifo(place / "slot-1")
    (place / "slot-2").mkdir()
    assert take(first, 1) == ("slot-3",)
    user = _user()
    assert first.refused == {
        "slot-0": f"with a lease file that cannot be used: {place}/slot-0 is a symbolic link of {user}",
        "slot-1": f"with a lease file that cannot be used: {place}/slot-1 is a FIFO of {user}",
        "slot-2": f"with a lease file that cannot be used: {place}/slot-2 is a directory of {user}",
    }
    assert (tmp_path / "precious").read_text(encoding="ascii") == "precious"


def test_a_file_that_was_removed_is_no_lease(first: Leases, second: Leases, place: Path) -> None:
    """Who waits with an open file while set-up takes the folder away would hold a lock that nobody sees."""
    opened = leases._opened

    def late(path: Path) -> int:
        file = opened(path)
        path.unlink()
        return file

    place.mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leases, "_opened", late)
        assert take(first, 1, names=("slot-0",)) == ()
    assert take(second, 1, names=("slot-0",)) == ("slot-0",)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="ascii")
    with pytest.raises(
        HostError,
        match=r"cannot write lease files in .*file/leases: Not a directory",
    ) as caught:
        take(Leases(tmp_path / "file" / "leases", tmp_path))
    assert caught.value.hint == "set another folder with TACO_LAUNCH_LEASES, or run as root"


def test_the_folder_for_all_is_everybodys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "LEASES_FOR_ALL", str(tmp_path / "run" / "leases"))
    former = os.umask(0o077)
    try:
        who = Leases(tmp_path / "run" / "leases", tmp_path)
        take(who, 1)
    finally:
        os.umask(former)
    who.release(gone=True)
    modes = [path.stat().st_mode & 0o7777 for path in (tmp_path / "run", tmp_path / "run/leases")]
    assert modes == [0o711, 0o1777]
    assert (tmp_path / "run/leases/slot-0").stat().st_mode & 0o777 == 0o644


def test_where_they_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = Path("/state")
    assert str(lease_folder({"TACO_LAUNCH_LEASES": "/x"}, state, root=False)) == "/x"
    monkeypatch.setattr(folders, "LEASES_FOR_ALL", str(tmp_path / "all"))
    assert lease_folder({}, state, root=True) == tmp_path / "all"
    assert lease_folder({}, state, root=False) == Path("/state/leases")
    (tmp_path / "all").mkdir()
    assert lease_folder({}, state, root=False) == tmp_path / "all"


@needs_root
def test_a_folder_that_may_not_be_entered_is_not_for_all(tmp_path: Path) -> None:
    """As set-up of an earlier version left it."""
    (tmp_path / "run" / "leases").mkdir(parents=True)
    (tmp_path / "run").chmod(0o700)
    script = (
        "import os, sys; from pathlib import Path; from taco_launch.agent.store import folders; folders.LEASES_FOR_ALL = sys.argv[1];"
        "os.setuid(65534); print(folders.lease_folder({}, Path('/state'), root=False))"
    )
    argv = (sys.executable, "-c", script, str(tmp_path / "run" / "leases"))
    env = {"PYTHONPATH": str(Path(leases.__file__).parents[3])}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert done.stdout == "/state/leases\n"


def test_a_gpu_that_others_use_is_not_given(first: Leases, second: Leases, smi: Smi) -> None:
    smi.gpus(GPUS, (4, 1023, 1024, 20000))
    smi.processes((GPUS[0], os.getpid(), "/usr/bin/python3"))
    assert take(first, 1, names=GPUS) == (GPUS[1],)
    assert first.refused == {GPUS[0]: f"used by process {os.getpid()} (python3 of {_user()})"}
    assert take(second, 1, "two", GPUS) == ()
    by_nobody = "with {} MiB of its memory in use by a process that is not visible here"
    assert second.refused == {
        GPUS[0]: first.refused[GPUS[0]],
        GPUS[2]: by_nobody.format(1024),
        GPUS[3]: by_nobody.format(20000),
    }


def test_what_is_known_of_the_gpus_is_not_asked_again(first: Leases, smi: Smi) -> None:
    known = {uuid: gpus.GpuUse() for uuid in GPUS}
    assert first.take(GPUS, 4, holder("one"), known) == GPUS
    assert smi.calls == []


def test_when_nvidia_smi_fails_no_gpu_is_free(first: Leases, smi: Smi) -> None:
    smi.fail()
    assert take(first, 1, names=GPUS[:1]) == ()
    assert first.refused[GPUS[0]].startswith("with unknown users (nvidia-smi --query-compute-apps")
    assert "exit 15: GPU is lost" in first.refused[GPUS[0]]


def test_memory_of_what_was_just_ended_is_waited_for(
    first: Leases, second: Leases, family: Family, smi: Smi, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = family.start(("sleep", "60"), marked=True)
    known = {uuid: gpus.GpuUse() for uuid in GPUS}
    assert first.take(GPUS, 1, holder(family.job_id), known)
    first.release(gone=False)
    smi.gpus(GPUS, (30000,))
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        if seconds == leases._PAUSE_SECONDS:
            pauses.append(seconds)
            if len(pauses) == 2:
                smi.gpus(GPUS)

    monkeypatch.setattr("taco_launch.agent.host.leases.time.sleep", pause)
    assert second.take(GPUS, 1, holder("two"), known) == GPUS[:1]
    assert len(pauses) == 2
    assert process.wait(HANG) == -9


def test_memory_that_stays_in_use_is_told(
    first: Leases, second: Leases, smi: Smi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "_SETTLE_SECONDS", 2.0)  # in which a busy machine calls nvidia-smi more than twice
    monkeypatch.setattr(leases, "_PAUSE_SECONDS", 0.01)
    known = {uuid: gpus.GpuUse() for uuid in GPUS}
    assert first.take(GPUS, 1, holder("gone"), known)
    first.release(gone=False)
    smi.gpus(GPUS, (30000,))
    assert second.take(GPUS, 1, holder("two"), known) == GPUS[1:2]
    assert second.refused[GPUS[0]].startswith("with 30000 MiB of its memory in use")
    assert len(smi.calls) > 2


def _user() -> str:
    return subprocess.run(("id", "-un"), capture_output=True, text=True, check=True).stdout.strip()


# -- two users

_AS_NOBODY = """
import encodings.ascii, os, sys, time
from pathlib import Path
from taco_launch.agent.host.slot_holders import Holder
from taco_launch.agent.host.leases import Leases
os.setgid(65534); os.setuid(65534)  # who may not read root's Python
folder, count, job_id, then = sys.argv[1:5]
holder = Holder("theirs", job_id, time.time(), "c", "bob", os.geteuid(), os.getpid())
leases = Leases(Path(folder), Path(folder, "jobs"))
print(*leases.take(("slot-0", "slot-1"), int(count), holder, None), flush=True)
print(*leases.refused.values(), flush=True)
if then == "leave":
    os.environ["TACO_LAUNCH_JOB_ID"] = job_id
    if os.fork() == 0:
        os.execv("/bin/sleep", ["sleep", "60"])
    os._exit(0)
sys.stdin.read()
"""


@pytest.fixture
def shared() -> Iterator[Path]:
    """The folder as set-up makes it, where another user gets to."""
    folder = Path("/dev/shm") / f"taco-test-{os.getpid()}-{time.monotonic_ns()}"
    folder.mkdir()
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


def nobody(family: Family, folder: Path, count: int, then: str = "hold") -> "tuple[str, str, subprocess.Popen[bytes]]":
    """Take slots as another user, and hold them, or leave a process."""
    root = str(Path(leases.__file__).parents[3])
    arguments = (str(folder), str(count), family.job_id, then)
    env = {"PYTHONPATH": root}
    process = family.start((sys.executable, "-c", _AS_NOBODY, *arguments), stdin=subprocess.PIPE, env=env)
    assert process.stdout is not None
    return process.stdout.readline().decode().strip(), process.stdout.readline().decode().strip(), process


@needs_root
def test_two_users_share_the_slots(family: Family, shared: Path, jobs: Path) -> None:
    ours = Leases(shared, jobs)
    assert take(ours, 1, names=FOUR[:2]) == ("slot-0",)
    theirs, refused, process = nobody(family, shared, 1)
    assert (theirs, refused) == ("slot-1", "")
    assert nobody(family, shared, 1)[0] == ""
    other = Leases(shared, jobs)
    assert take(other, 1, "three", FOUR[:2]) == ()
    process.kill()
    process.wait()
    assert take(other, 1, "three", FOUR[:2]) == ("slot-1",)  # of a job that left nothing behind
    for each in (ours, other):
        each.release(gone=True)


@needs_root
def test_what_another_user_left_is_told_and_the_slot_not_given(family: Family, shared: Path, jobs: Path) -> None:
    theirs, _refused, process = nobody(family, shared, 1, "leave")
    assert theirs == "slot-0"
    assert process.wait(HANG) == 0
    ours = Leases(shared, jobs)

    def refused() -> str:  # until it executes another program the fork has the lock
        assert take(ours, 1, names=FOUR[:1]) == ()
        return "".join(ours.refused.values())

    why = eventually(refused, 5, "the lock to be free")
    assert why.startswith("left by job theirs of nobody, which may still be running: perhaps process ")
    number = int(why.rpartition(" ")[2])
    assert Path(f"/proc/{number}/comm").read_text(encoding="ascii") == "sleep\n"  # nothing of theirs was ended


@needs_root
def test_who_cannot_see_marks_takes_later_processes_for_them(family: Family, shared: Path, jobs: Path) -> None:
    """As another user; root's own leftovers cannot be looked into there."""
    ours = Leases(shared, jobs)
    gone = holder("gone", since=time.time() + 3600)
    assert ours.take(FOUR[:1], 1, gone, None)
    ours.release(gone=False)
    first, _refused, process = nobody(family, shared, 1)
    assert first == "slot-0"
    process.kill()
    process.wait()
    for name in ("slot-0", "slot-0.65534"):
        (shared / name).unlink()
    assert ours.take(FOUR[:1], 1, holder("ours", since=time.time() - 1), None)
    ours.release(gone=False)
    family.start(("sleep", "60"))  # root's, and started later
    theirs, refused, _process = nobody(family, shared, 1)
    assert theirs == "slot-1"
    assert refused.startswith("left by job job of root, which may still be running: ")


def test_a_lock_is_a_flock(first: Leases, place: Path) -> None:
    take(first, 1)
    with open(place / "slot-0", "rb") as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # as set-up asks whether a job runs
