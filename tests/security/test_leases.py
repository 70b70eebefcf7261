"""Leases are untrusted: what an ordinary user writes there neither ends, hangs, slows down nor crashes what root runs.

The attacker is a real second user (65534), in the folder as set-up makes it; root is this process.
"""

import errno
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from taco_launch.agent.host import (
    leases,
    occupancy,
    process_registry,
    processes,
    slot_cleanup,
    slot_holders,
)
from taco_launch.agent.host.leases import Leases
from taco_launch.agent.host.slot_holders import Holder
from taco_launch.agent.store import folders, records
from taco_launch.agent.store.folders import JobFolder
from taco_launch.agent.store.untrusted import user_name
from taco_launch.core.errors import HostError, TacoLaunchError
from tests.agent.conftest import Family
from tests.conftest import eventually
from tests.security.attacker import ATTACKER, attacker
from tests.support.slots_here import slots_here

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="cannot: only root can be attacked by a second user"),
    pytest.mark.timeout(60),
]
SLOTS = ("slot-0", "slot-1")


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = Path("/dev/shm") / f"taco-security-{os.getpid()}-{time.monotonic_ns()}"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.setenv("TACO_LAUNCH_LEASES", str(folder))
    yield folder
    subprocess.run(("rm", "-rf", str(folder), str(jobs(folder))), check=True)


def jobs(folder: Path) -> Path:
    """Return the folder of root's jobs, where only root may write."""
    return folder.with_name(f"{folder.name}-jobs")


def attack(folder: Path, script: str, *words: str) -> None:
    """Run a Python script as the attacker, in the folder of the leases."""
    done = subprocess.run(attacker(script, *words), cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def record(**more: object) -> dict[str, object]:
    """Return a record as an agent would write it, with something else in it."""
    told = {"job": "job", "id": "gone", "since": 1.0, "folder": "/nowhere", "cluster": "c", "owner": "ann"}
    return {**told, "uid": -1, "pid": 1, **more}


def take(folder: Path, count: int = 1) -> tuple[Leases, tuple[str, ...]]:
    held = Leases(folder, jobs(folder))
    holder = Holder("mine", "mine", time.time(), "c", "ann", pid=os.getpid())
    return held, held.take(SLOTS, count, holder, None)


_WRITE = "told = json.loads(sys.argv[1])\nfor name in sys.argv[2:]: open(name, 'w').write(json.dumps(told))"
NAMES = ("slot-0", "slot-0.0", f"slot-0.{ATTACKER}", "slot-0.1000")


# A rank, who is root in its container, may give the record to whom it likes, root among them.
@pytest.mark.parametrize("owner", [ATTACKER, 0])
def test_no_running_job_is_ended(shared: Path, family: Family, owner: int) -> None:
    """H1, and H2 of the second attack: the lease names root's running job, by its mark and by its folder."""
    victim, registered = family.start(("sleep", "60"), marked=True), family.start(("sleep", "60"))
    folder = JobFolder(shared / "job")
    folder.path.mkdir()
    process_registry.keep(folder, "evil", [family.root(registered)])
    for name, forged in (
        ("slot-0.0", record(id=family.job_id, job="victim", folder=str(jobs(shared) / "victim"))),
        ("slot-1.0", record(id="evil", job="job", folder=str(folder.path))),
    ):
        attack(shared, _WRITE, json.dumps(forged), name)
        os.chown(shared / name, owner, owner)
    held, taken = take(shared, 2)
    # What root cannot prove to be gone it leaves alone; it is root's own job that the record names.
    assert taken == (SLOTS if owner else ())
    assert (victim.poll(), registered.poll()) == (None, None)
    if not taken:
        assert held.refused["slot-0"].endswith(f"which may still be running: perhaps process {victim.pid}")
    held.release(gone=True)


@pytest.mark.parametrize("what", ["/dev/zero", "fifo", "endless"])
def test_no_path_of_a_lease_is_followed(shared: Path, what: str) -> None:
    """H2: the folder that a record names holds links to devices, FIFOs and endless files."""
    script = """
os.mkdir("job")
for name in ("roots.json", "events.jsonl", "spec.json"):
    if sys.argv[1] == "fifo":
        os.mkfifo("job/" + name)
    elif sys.argv[1] == "endless":
        os.truncate(os.open("job/" + name, os.O_CREAT | os.O_RDWR), 1 << 40)
    else:
        os.symlink(sys.argv[1], "job/" + name)
told = json.loads(sys.argv[2])
for name in ("slot-0", "slot-0.0", f"slot-0.{os.getuid()}"):
    open(name, "w").write(json.dumps(told))
"""
    attack(shared, script, what, json.dumps(record(folder=str(shared / "job"), job="../" + str(shared / "job"))))
    held, taken = take(shared)
    assert taken == ("slot-0",)
    held.release(gone=True)
    assert slots_here(2).free == 2


@pytest.mark.parametrize("file", ["/dev/zero", "fifo", "endless"])
def test_a_jobs_own_files_are_read_up_to_a_limit(tmp_path: Path, file: str) -> None:
    """H2: as a rank, who is root in its container, may leave them."""
    folder = JobFolder(tmp_path / "job")
    folder.path.mkdir()
    for path in (folder.roots, folder.events, folder.spec):
        if file == "fifo":
            os.mkfifo(path)
        elif file == "endless":
            path.touch()
            os.truncate(path, 1 << 40)
        else:
            path.symlink_to(file)
    assert process_registry.read_registry(folder) is None
    for read in (records.read_events, records.read_spec, records.record):
        with pytest.raises(TacoLaunchError, match=r"job job: .* cannot be read: "):
            read(folder)


@pytest.mark.parametrize("since", [1e300, -1e300, float("nan"), float("inf"), "now", [], -1, 1 << 80])
def test_no_time_crashes_what_looks_at_it(shared: Path, since: object) -> None:
    """H2: `since` is used in arithmetic and shown."""
    attack(shared, _WRITE, json.dumps(record(since=since)), *NAMES)
    held, taken = take(shared)
    assert taken == ("slot-0",)
    held.release(gone=True)
    lock = "file = open('slot-0'); fcntl.flock(file, fcntl.LOCK_EX); print(flush=True); time.sleep(60)"
    with subprocess.Popen(attacker(lock), cwd=shared, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            told = occupancy.describe(slots_here(1), Path("/nowhere"), "ann")
            assert told == f"1 held by process {process.pid} of {user_name(ATTACKER)}, which is not a taco-launch job"
        finally:
            process.kill()


@pytest.mark.parametrize("name", ["slot-0", "slot-0.0"])
@pytest.mark.parametrize("kind", ["fifo", "directory", "full directory", "symlink", "huge"])
def test_one_name_costs_one_slot_at_most(shared: Path, tmp_path: Path, name: str, kind: str) -> None:
    """M3: what is in the way is named with its owner, and the other slots are given."""
    script = """
name, kind = sys.argv[1:3]
if kind == "fifo": os.mkfifo(name)
elif "directory" in kind: os.mkdir(name)
elif kind == "symlink": os.symlink(sys.argv[3], name)
else: os.truncate(os.open(name, os.O_CREAT | os.O_RDWR, 0o600), 1 << 42)
if kind == "full directory": os.mkdir(name + "/x")
"""
    precious = tmp_path / "precious"
    precious.write_text("precious")
    attack(shared, script, name, kind, str(precious))
    held, taken = take(shared)
    if taken == ("slot-1",):
        assert f" of {user_name(ATTACKER)}" in held.refused["slot-0"]
    else:
        assert taken == ("slot-0",)
        # A directory stays in the record's place, and the slot is had all the same.
        assert "directory" in kind or slot_holders.read(shared, SLOTS)["slot-0"][0].job == "mine"
    assert (taken == ("slot-1",)) == (name == "slot-0" and kind != "huge")
    held.release(gone=True)
    assert precious.read_text() == "precious"


def test_who_removes_a_lease_has_no_running_job_ended(shared: Path, family: Family) -> None:
    """The third attack: whoever makes a slot's file first may remove it while root's job holds it."""
    attack(shared, "for name in ('slot-0', 'slot-1'): open(name, 'w')")
    runs = family.start(("sleep", "60"), marked=True)
    victim = Leases(shared, jobs(shared))
    assert victim.take(SLOTS, 2, Holder("victim", family.job_id, time.time(), pid=os.getpid()), None) == SLOTS
    assert (shared / "slot-0").stat().st_uid == 0, "root takes the file for its own"
    for name in SLOTS:  # as root of a container does, who is root there as well
        (shared / name).unlink()
    held, taken = take(shared)
    assert (taken, runs.poll()) == ((), None)
    assert "whose lease file was removed" in held.refused["slot-0"]
    for each in (victim, held):
        each.release(gone=True)
    assert take(shared)[1] == ("slot-0",)


def fill(shared: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Have no file made in the folder any more."""
    make = os.open

    def full(path: object, flags: int, mode: int = 0o777) -> int:
        makes = flags & os.O_CREAT or flags & os.O_TMPFILE == os.O_TMPFILE
        if makes and shared in (Path(str(path)), Path(str(path)).parent):
            raise OSError(code, os.strerror(code), str(path))
        return make(str(path), flags, mode)

    monkeypatch.setattr(os, "open", full)


def test_a_folder_without_room_refuses_no_port(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The third attack: every job leases a new port, whose file does not exist before."""
    take(shared, 2)[0].release(gone=True)
    fill(shared, monkeypatch, errno.ENOSPC)
    one, other = Leases(shared, jobs(shared)), Leases(shared, jobs(shared))
    holder = Holder("mine", "mine", time.time())
    assert one.take(SLOTS, 1, holder, None, (41000,)) == ("port-41000", "slot-0")
    assert other.take(SLOTS, 1, replace(holder, id="other"), None, (41000,)) == ()
    one.release(gone=True)
    assert other.take(SLOTS, 1, replace(holder, id="other"), None, (41000,)) == ("port-41000", "slot-0")
    other.release(gone=True)


def test_an_old_time_has_nobody_wait_for_old_processes(shared: Path) -> None:
    """The third attack: `since: 0` in a record of root's is every process of root's."""
    attack(shared, _WRITE, json.dumps(record(since=0.0)), "slot-0.0")
    os.chown(shared / "slot-0.0", 0, 0)
    found = slot_holders.read(shared, SLOTS)["slot-0"][0]
    assert found.written > time.time() - 60
    assert len(slot_cleanup._since(replace(found, uid=0))) < len(processes.of_user(0))


def test_a_full_folder_keeps_nobody_from_the_slots(shared: Path, family: Family) -> None:
    """Root's own leftovers are found and ended all the same."""
    attack(shared, "for number in range(20000): open(f'slot-0.{number + 70000}', 'w')")
    left = family.start(("sleep", "60"), marked=True)
    held = Leases(shared, jobs(shared))
    holder = Holder("gone", family.job_id, time.time(), pid=os.getpid())
    assert held.take(SLOTS, 1, holder, None) == ("slot-0",)
    held.release(gone=False)
    held, taken = take(shared)
    assert taken == ("slot-0",)
    assert left.wait(1) == -signal.SIGKILL
    held.release(gone=True)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_keeps_nobody_from_slots_that_were_had_before(
    shared: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """M3 of the second attack: a user has filled the folder's file system. Who fills it is named where a slot is new."""
    take(shared, 2)[0].release(gone=True)
    attack(shared, "for number in range(300): open(f'x{number}', 'w')")
    fill(shared, monkeypatch, code)
    held, taken = take(shared, 2)
    assert taken == SLOTS
    held.release(gone=True)
    with pytest.raises(HostError, match=rf"^cannot write lease files in {shared}: {os.strerror(code)}") as caught:
        Leases(shared, jobs(shared)).take(("slot-2",), 1, Holder("mine", "mine", 0.0), None)
    assert (caught.value.hint or "").startswith(
        f"free some space there: 300 files of {user_name(ATTACKER)}, 2 files of root"
    )


def test_a_line_break_stays_out_of_messages(shared: Path) -> None:
    """L2: words of a record that hold control characters are not believed."""
    attack(shared, _WRITE, json.dumps(record(job="a\nerror: forged", owner="x\x1b[2J")), *NAMES)
    assert slot_holders.read(shared, SLOTS) == {}
    attack(shared, _WRITE, json.dumps(record(owner="root")), f"slot-0.{ATTACKER}")
    eventually(lambda: slot_holders.read(shared, SLOTS), 5, "the record")
    assert slot_holders.read(shared, SLOTS)["slot-0"][0].owner == user_name(ATTACKER)


def test_a_name_that_is_no_number_is_passed_over(shared: Path) -> None:
    """H2: digits that int() refuses, and numbers that no user has."""
    attack(shared, "for end in ('²', '٣', '', '-1', '9' * 200): open('slot-0.' + end, 'w')")
    held, taken = take(shared)
    assert taken == ("slot-0",)
    assert slots_here(2).free == 1
    held.release(gone=True)


def test_own_leftovers_are_ended_whatever_the_words_of_the_record(shared: Path, family: Family) -> None:
    """An odd name of a cluster takes nothing from what the record is for."""
    left = family.start(("sleep", "60"), marked=True)
    held = Leases(shared, jobs(shared))
    holder = Holder("gone", family.job_id, time.time(), "c\n\x1b", "a" * 999, pid=os.getpid())
    assert held.take(SLOTS, 1, holder, None) == ("slot-0",)
    shown = slot_holders.read(shared, SLOTS)["slot-0"][0]
    assert (shown.cluster, len(shown.owner)) == ("c??", 256)
    held.release(gone=False)
    held, taken = take(shared)
    assert taken == ("slot-0",)
    assert left.wait(1) == -signal.SIGKILL
    held.release(gone=True)


def test_root_removes_the_record_of_another_users_job_that_is_gone(shared: Path) -> None:
    attack(shared, _WRITE, json.dumps(record()), f"slot-0.{ATTACKER}")
    held, taken = take(shared)
    assert taken == ("slot-0",)
    assert not (shared / f"slot-0.{ATTACKER}").exists()
    held.release(gone=True)


def test_the_lease_folder_is_as_set_up_makes_it() -> None:
    assert leases._FOR_ALL == 0o1777  # only the owner of a name may replace it


def test_links_join_no_slots(shared: Path) -> None:
    """A lock of one name would lock all: one job would have the host. Root takes such a name away."""
    attack(shared, "open('slot-0', 'w'); os.link('slot-0', 'slot-1')")
    held, taken = take(shared, 2)
    assert taken == SLOTS
    held.release(gone=True)


def test_a_lease_with_two_names_is_refused_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As who is not root sees it."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    (tmp_path / "slot-0").touch()
    os.link(tmp_path / "slot-0", tmp_path / "slot-1")
    held = Leases(tmp_path, tmp_path / "jobs")
    assert held.take(SLOTS, 1, Holder("mine", "mine", 0.0), None) == ()
    why = f"with a lease file that cannot be used: {tmp_path}/slot-0 is a file of root with 2 names (hard links)"
    assert held.refused["slot-0"] == why


def test_nobody_else_can_link_a_lease(shared: Path) -> None:
    held, taken = take(shared)
    assert taken == ("slot-0",)
    script = """
try:
    os.link("slot-0", "slot-1")
except PermissionError:
    print("refused")
"""
    assert Path("/proc/sys/fs/protected_hardlinks").read_text("ascii").strip() == "1"
    told = subprocess.run(attacker(script), cwd=shared, capture_output=True, text=True, check=True).stdout
    assert told == "refused\n"
    held.release(gone=True)


def test_somebodys_file_under_the_name_of_a_lease_stays_theirs(shared: Path) -> None:
    """Where the kernel lets anybody link any file (fs.protected_hardlinks = 0), root would have made it all's to read."""
    secret = shared / "secret"
    secret.touch(0o600)
    os.chown(secret, 1000, 1000)
    os.link(secret, shared / "slot-0")
    held, taken = take(shared)
    assert taken == ("slot-0",)
    about = secret.stat()
    assert (about.st_uid, about.st_mode & 0o777, about.st_nlink) == (1000, 0o600, 1)
    held.release(gone=True)


def test_root_opens_the_folder_that_somebody_has_closed(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As root of a container may, who is its owner there too."""
    monkeypatch.setattr(folders, "LEASES_FOR_ALL", str(shared))
    shared.chmod(0o700)
    held, taken = take(shared)
    assert (taken, shared.stat().st_mode & 0o7777) == (("slot-0",), 0o1777)
    held.release(gone=True)
