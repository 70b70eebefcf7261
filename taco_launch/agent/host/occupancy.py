"""Who has the slots of this host, without taking any: for a gang, for the scheduler that watches, for `top node`.

A lock is looked up in /proc/locks, so that a look never keeps a job from a slot. What cannot be looked at is told as the
reason why a slot is not free.
"""

import contextlib
import os
import select
import socket
import stat
import sys
import time
from collections import Counter
from functools import lru_cache, partial
from pathlib import Path
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from taco_launch.agent.host import drain, facts, file_locks, gpus, processes, slot_cleanup, slot_holders
from taco_launch.agent.host.slot_holders import Holder
from taco_launch.agent.store import records, untrusted
from taco_launch.agent.store.folders import (
    CLUSTER_VARIABLE,
    LEASES_VARIABLE,
    STATE_VARIABLE,
    JobFolder,
    Jobs,
    is_name,
    lease_folder,
    state_folder,
)
from taco_launch.core.errors import OK, HostError, TacoLaunchError
from taco_launch.core.lifecycle import state
from taco_launch.core.model.host.hosts import GATE, WHILE_DRAINED
from taco_launch.core.model.slots import Occupancy, SlotHolder, SlotState, describe_drain, is_gpu, names
from taco_launch.core.protocol.calls.hosts import SlotsReply

AUTO, NO_GPUS = "auto", "none"
_LOOK_SECONDS = 1.0
# A look takes longer where a user has very many locks: of one CPU it has no more than this share.
_SHARE = 0.05
# What costs more than a look at locks: who uses the GPUs (by nvidia-smi), what others have left.
_THOROUGH_SECONDS = 60.0


class Slots:
    """The slots of this host, and what was last found out of them at some cost."""

    def __init__(self, folder: Path, jobs: Path, size: str, gpus_: str = AUTO) -> None:
        """Name them: `size` is how many there are (Host.size), `gpus_` is Host.slot_words; `jobs` are this user's.

        Raises:
            HostError: nobody knows how many there are.
        """
        self._folder = folder
        self._own = slot_cleanup.OwnSlots(jobs, folder)
        self.while_drained = gpus_.endswith(WHILE_DRAINED)
        gpus_ = gpus_[: -len(WHILE_DRAINED)] if self.while_drained else gpus_
        self._gate: Optional[Callable[[str], str]] = None
        if gpus_.endswith(GATE):
            self._gate, gpus_ = partial(drain.kept_back, jobs.parent), gpus_[: -len(GATE)]
        self._size, self._has_gpus = size, gpus_ != NO_GPUS
        self._lacking = ""  # that GPUs of this host do not answer
        self._list()
        self.use: Optional[Mapping[str, gpus.GpuUse]] = None
        self.used_at = -_THOROUGH_SECONDS
        self._users: Tuple[int, ...] = ()
        self._unknown = ""
        self._left: Dict[str, str] = {}
        self._before_taking = False

    def _list(self) -> None:
        """List the GPUs, and name the slots."""
        listed = gpus.found(needed=self._size == AUTO) if self._has_gpus else ()
        self.uuids = None if listed is None else tuple(gpu.uuid for gpu in listed)
        self.models = tuple(gpu.model for gpu in listed or ())
        found = self.uuids
        if found is None:  # those that jobs have or had are known all the same
            found = tuple(sorted(name for name in _listed(self._folder) if is_gpu(name) and "." not in name))
        word, _, least = self._size.partition("+")
        counted = facts.slots(len(found)) if word == AUTO and self.uuids is not None else None
        self.names = names(found, max(counted or 0, int(least or 0)) if word == AUTO else int(word))
        self.gpus = sum(map(is_gpu, self.names))
        if self._gate is not None and self._has_gpus and self.uuids is not None:
            self._lacking = gpus.lacking(len(self.uuids))

    def read_thoroughly(self, *, before_taking: bool = False) -> Occupancy:
        """Look also at who uses the GPUs, and at what the last holders of slots that nobody has have left.

        `before_taking` says that the slots are tried next, which finds out what a lock without a record is: where no
        slot has a record, nobody is looked up in /proc/locks, whose first reader the kernel has wait for a grace period
        of RCU (15 ms on an idle host).
        """
        self._before_taking = before_taking
        if self._lacking:  # it may have been reset meanwhile
            with contextlib.suppress(HostError):
                self._list()
        self.use, self._unknown = {}, ""
        if any(is_gpu(name) for name in self.names):
            try:
                self.use = gpus.used(errors=self._gate is not None)
            except HostError as error:
                self._unknown = f"with unknown users ({error.message})"
        self.used_at = time.monotonic()
        self._users = tuple(filter(_lives, (each.pid for use in self.use.values() for each in use.processes)))
        self._left = {
            slot.name: next(filter(None, map(slot_cleanup.report, self._others(slot.name, past))), "")
            for slot, past in self._states()
            if slot.is_free
        }
        return self.read()

    def read(self) -> Occupancy:
        """Look at the locks, at a drain and at disks, and tell of the rest what was found last."""
        slots = tuple(self._with_foreign(slot) for slot, _past in self._states())
        record = None if self.while_drained else drain.read()
        now = Occupancy(socket.gethostname(), slots, self.gpus, self.models, record)
        why = "" if self._gate is None else self._gate(self._lacking)
        if record is not None:
            why = describe_drain(record, clock(record.since))
        return now.without(dict.fromkeys(self.names, why)) if why else now

    def is_stale(self) -> bool:
        """Return whether it is time for a thorough look, or a process that was on a GPU has ended since."""
        return time.monotonic() - self.used_at > _THOROUGH_SECONDS or not all(map(_lives, self._users))

    def _states(self) -> List[Tuple[SlotState, Tuple[Holder, ...]]]:
        """Return each slot with the records of those who have or had it."""
        if self._before_taking and not slot_holders.read(self._folder, self.names):
            return [(SlotState(name), ()) for name in self.names]
        try:
            held = file_locks.read()
        except OSError as error:
            why = f"with unknown users (/proc/locks: {error.strerror})"
            return [(SlotState(name, foreign=why), ()) for name in self.names]
        recorded = slot_holders.read(self._folder, self.names)
        return [
            (_state(self._folder, name, held, recorded.get(name, ())), recorded.get(name, ())) for name in self.names
        ]

    def _with_foreign(self, slot: SlotState) -> SlotState:
        if not slot.is_free:
            return slot
        foreign = self._left.get(slot.name, "")
        if not foreign and is_gpu(slot.name) and self.use is not None:
            foreign = self._unknown or ("" if self._is_left_by_us(slot.name) else gpus.describe(slot.name, self.use))
        return SlotState(slot.name, None, foreign)

    def _others(self, name: str, past: Sequence[Holder]) -> List[Holder]:
        """Return those of a slot's records that are not of this user's last job there, which is ended when it is taken."""
        had = self._own.read(name)
        return [last for last in past if last.uid != os.geteuid() or had is None or last.id != had.id]

    def _is_left_by_us(self, name: str) -> bool:
        """Return whether all that is on a GPU is left by this user's last job, and is ended when the slot is taken."""
        had = self._own.read(name)
        use = (self.use or {}).get(name)
        if had is None or use is None or not use.processes:
            return False
        found = {entry.pid for entry in self._own.find(had).found}
        return all(process.pid in found for process in use.processes)


def describe(occupancy: Occupancy, jobs: Path, owner: str) -> str:
    """Return who has the slots that are not free: `6 held by job vgg16 since 14:02, 1 used by process 4711 (python3 of a)`.

    `jobs` is the folder of the head's jobs: those that are not in it are another head's, and wait in another queue.
    `owner` is who is told: jobs of others are told with their owners. A drain is told also where no slot shows it.
    """
    told = Counter(
        _held(slot.holder, jobs, owner) if slot.holder is not None else slot.foreign
        for slot in occupancy.slots
        if not slot.is_free
    )
    words = [f"{count} {text}" for text, count in told.items()]
    if occupancy.unshown_drain is not None:
        words.append(f"and {describe_drain(occupancy.unshown_drain, clock(occupancy.unshown_drain.since))}")
    return ", ".join(words)


def arguments(size: Union[str, int, None], gpus_: str) -> Tuple[str, ...]:
    """Return the words after `slots` or `watch` on any host, of Host.size or Host.slots, and Host.gpus.

    Leases and jobs lie there where this process is told that they lie.
    """
    places = [os.environ.get(variable, "") for variable in (LEASES_VARIABLE, STATE_VARIABLE)]
    return (AUTO if size is None else str(size), gpus_, *(places if any(places) else ()))


def watch_slots(size: str = AUTO, gpus: str = AUTO, leases: str = "", state: str = "") -> int:
    """Answer with a SlotsReply, and with another at each change, until stdin ends."""
    return answer(size, gpus, leases, state)


def answer(
    size: str, gpus_: str, leases: str, state: str, completed: Optional[Callable[[SlotsReply], SlotsReply]] = None
) -> int:
    """Answer with a SlotsReply; go on as `watch_slots` does, unless it is given what completes it."""
    place = Path(state) if state else state_folder(os.environ, os.geteuid())
    try:
        host = Slots(Path(leases) if leases else _folder(place), Jobs(place).path, size, gpus_)
    except HostError as error:
        _say(SlotsReply(host="", problem=error.message))
        return error.exit_code
    occupancy = host.read_thoroughly()
    reply = SlotsReply(host=occupancy.host, occupancy=occupancy)
    _say(reply if completed is None else completed(reply))
    if completed is None:
        _watch(host, occupancy)
    return OK


def _watch(host: Slots, shown: Occupancy) -> None:
    """Look once a second, and at once when a line comes, which is answered in any case; `shown` was told last."""
    took = 0.0
    while True:
        ready, _, _ = select.select([0], [], [], max(_LOOK_SECONDS, took / _SHARE))
        if ready and not os.read(0, 4096):
            return
        begun = time.process_time()
        found = host.read()
        took = time.process_time() - begun
        if found != shown or host.is_stale():
            found = host.read_thoroughly()
        if ready or found != shown:
            _say(SlotsReply(host=found.host, occupancy=found))
            shown = found


def _lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _state(folder: Path, name: str, held: file_locks.Locks, recorded: Sequence[Holder]) -> SlotState:
    path = folder / name
    try:
        about = path.lstat()
        if not stat.S_ISREG(about.st_mode):
            return SlotState(
                name, foreign=f"with a lease file that cannot be used ({path} is {untrusted.describe(path)})"
            )
    except FileNotFoundError:
        return SlotState(name)
    except OSError as error:
        return SlotState(name, foreign=f"with a lease file that cannot be read ({error.filename}: {error.strerror})")
    takers = held.takers(about, {holder.pid for holder in recorded})
    if not takers:
        # /proc/locks leaves out those of another PID namespace, and so of another cluster's container
        others = [holder for holder in recorded if holder.cluster != os.environ.get(CLUSTER_VARIABLE, "")]
        if others and untrusted.is_locked(path):
            return SlotState(name, max(others, key=lambda holder: holder.since).shown)
        return SlotState(name)
    owners = {processes.owner(pid) for pid in takers} - {None}
    of_taker = [holder for holder in recorded if holder.uid in owners or not owners]
    if of_taker:
        return SlotState(name, max(of_taker, key=lambda holder: holder.since).shown)
    if owners <= {os.geteuid()}:  # a job that has not written its record yet
        return SlotState(name, SlotHolder("", "", 0.0))
    pids = ", ".join(map(str, takers))
    return SlotState(
        name,
        foreign=f"held by process {pids} of {', '.join(sorted(map(_user, owners)))}, which is not a taco-launch job",
    )


def _user(uid: Optional[int]) -> str:
    return "an unknown user" if uid is None else untrusted.user_name(uid)


def _held(holder: SlotHolder, jobs: Path, owner: str) -> str:
    if not holder.job:
        return "held by another job"
    whose = f" of {holder.owner}" if holder.owner not in ("", owner) else ""
    head = f" of cluster {holder.cluster}" if holder.cluster else ""
    queue = "" if _is_in(jobs, holder.job, holder.id) else f"{head} (another queue)"
    return f"held by job {holder.job}{whose}{queue} since {clock(holder.since)}"


@lru_cache(maxsize=1024)  # for as long as a job has slots it is where it is
def _is_in(jobs: Path, name: str, mark: str) -> bool:
    if not is_name(name):
        return False
    folder = JobFolder(jobs / name)
    if folder.is_guest or not folder.events.exists():
        return False
    try:
        return state.marks_same_job(records.record(folder).id, mark)
    except (TacoLaunchError, OSError):  # it cannot be read, and it is there
        return True


def clock(moment: float, form: str = "%H:%M") -> str:
    """Return a time in seconds since the epoch as this machine's clock shows it, with the date of another day."""
    try:
        then = time.localtime(moment)
    except (ValueError, OverflowError, OSError):  # another host has told it
        return "an unknown time"
    same_day = then[:3] == time.localtime()[:3]
    return time.strftime(form if same_day else f"%Y-%m-%d {form}", then)


def _folder(place: Path) -> Path:
    return lease_folder(os.environ, place, root=os.geteuid() == 0)


def _listed(folder: Path) -> List[str]:
    try:
        return [name for name in os.listdir(folder) if not name.startswith(".")]
    except OSError:
        return []


def _say(answer: SlotsReply) -> None:
    sys.stdout.buffer.write(answer.encode())
    sys.stdout.buffer.flush()
