"""A job's spec and its events on disk, and the record that they amount to."""

import contextlib
import errno
import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Iterator, List, NamedTuple, Optional, Tuple

from taco_launch.agent.processes import agent_program
from taco_launch.agent.store import untrusted
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core import trace
from taco_launch.core.errors import DamagedRecordError, TacoLaunchError
from taco_launch.core.lifecycle import state
from taco_launch.core.model import codec
from taco_launch.core.model.codec import from_json, to_json
from taco_launch.core.model.jobs import Event, JobRecord, JobSpec, JobState
from taco_launch.core.protocol.calls.jobs import CallerEnvironment

SCHEMA = 1
# A rank, who is root in its container, can write to its job's folder.
_MOST_BYTES = 1 << 26
_MOST_OF_SPEC, _MOST_OF_EVENTS, _MOST_OF_LINE = 1 << 24, 1 << 25, 1 << 23
_RESERVE_BYTES = 1 << 16
# Of these a job that waits, hangs or fails for long has as many as its hosts cause, with their words. Where one is larger,
# or so many bytes of events are there, they are left out: the rest is for what changes the job's state.
_OF_HOSTS = frozenset((state.WAITING, state.STALLED, state.STIRRED, state.SOME_ENDED, state.RANK_FAILED))
_MOST_OF_HOSTS, _MOST_OF_EVENT = 1 << 24, 1 << 20
_MOST_CHARACTERS = 1 << 14
_OLD_HINT = "\nhint: "
# open(2) of a FIFO or device (EINVAL of `untrusted`), a link, a directory, a socket.
_NO_FILES = (errno.EINVAL, errno.ELOOP, errno.EISDIR, errno.ENXIO)


def write_json(path: Path, value: Any) -> None:
    """Write a file that only its owner reads, whole or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    text = json.dumps(value)
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "w", encoding="ascii") as out:
            out.write(text)
        part.rename(path)
    except OSError:
        part.unlink()
        raise


def read_json(path: Path, most: int = _MOST_BYTES) -> Optional[Any]:
    """Read such a file of at most so many bytes, None where there is none.

    Raises:
        ValueError: it holds no JSON.
        TacoLaunchError: it cannot be read, is not a regular file or too large.
    """
    try:
        return codec.load(_content(path, most))
    except (FileNotFoundError, NotADirectoryError):
        return None


def _content(path: Path, most: int) -> bytes:
    """Read a file of a job's folder.

    Raises:
        FileNotFoundError, NotADirectoryError: there is none.
        TacoLaunchError: it cannot be read, is not a regular file or too large.
    """
    try:
        return untrusted.read(path, most)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise DamagedRecordError(f"job {path.parent.name}: {path} cannot be read: {error.strerror}") from None


@contextlib.contextmanager
def intact(folder: JobFolder, file: Path) -> Iterator[None]:
    """Take what goes wrong in reading a file of a job for a damage of that file.

    Raises:
        DamagedRecordError: something did.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise DamagedRecordError(f"job {folder.name}: {file} is damaged: {error!r:.200}", _hint(folder)) from None


def _hint(folder: JobFolder) -> str:
    return f"to remove the job: taco-launch delete {folder.name}"


class StopRequest(NamedTuple):
    """A request to stop or suspend a job: its user, the signal, and the seconds until KILL."""

    by: str
    signal: int = 0
    grace: Optional[float] = None


_ON_FULL_DISK = StopRequest("a command on a full disk", signal.SIGTERM)


def write_request(file: Path, request: StopRequest) -> None:
    """Ask a job's supervisor to stop or to suspend it: on a full disk by an empty file, which needs no block.

    Raises:
        OSError: there is no room for a file, or it cannot be written for another reason.
    """
    try:
        write_json(file, request._asdict())
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        file.touch(0o600)


def read_request(folder: JobFolder, file: Path) -> Optional[StopRequest]:
    """Read a request to stop or to suspend, None where there is none; an empty file is one of `write_request`.

    Raises:
        DamagedRecordError: it is none.
    """
    with intact(folder, file):
        try:
            content = _content(file, _MOST_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            return None
        found = from_json(StopRequest, codec.load(content), file.name) if content else _ON_FULL_DISK
        if not 0 <= found.signal < signal.NSIG:
            raise ValueError(f"signal {found.signal}")
        return found


class ResizeRequest(NamedTuple):
    """A request to have an elastic job use at most so many hosts: its user, and how many."""

    by: str
    hosts: int


def read_resize(folder: JobFolder) -> Optional[ResizeRequest]:
    """Read how many hosts an elastic job may have at most, None without such a request.

    Raises:
        DamagedRecordError: it cannot be read.
    """
    with intact(folder, folder.resize):
        try:
            found = from_json(ResizeRequest, codec.load(_content(folder.resize, _MOST_BYTES)), folder.resize.name)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if found.hosts < 1:
            raise ValueError(f"{found.hosts} hosts")
        return found


def write_caller(folder: JobFolder, caller: CallerEnvironment) -> None:
    """Keep who submitted the job: its variables may be secrets."""
    write_json(folder.caller, caller.to_wire())


def read_caller(folder: JobFolder) -> CallerEnvironment:
    """Read who submitted the job.

    Raises:
        TacoLaunchError: nothing is kept of that, or it is damaged.
    """
    try:
        return CallerEnvironment.from_wire(read_json(folder.caller) or {})
    except (ValueError, AttributeError) as error:
        raise TacoLaunchError(f"job {folder.name}: {folder.caller} is missing or damaged: {error}") from None


def write_spec(folder: JobFolder, spec: JobSpec) -> None:
    """Keep the spec, and some room on the disk for the job's last events."""
    write_json(folder.spec, {"schema": SCHEMA, "spec": to_json(spec)})
    folder.reserve.write_bytes(bytes(_RESERVE_BYTES))


def read_spec(folder: JobFolder) -> JobSpec:
    """Read the spec.

    Raises:
        DamagedRecordError: it is missing, or written by another version; the message says which side is newer.
    """
    try:
        return spec_of(folder, _content(folder.spec, _MOST_OF_SPEC))
    except (FileNotFoundError, NotADirectoryError):
        missing = f"job {folder.name}: its folder {folder.path} has no spec.json"
        raise DamagedRecordError(missing, _hint(folder)) from None


def spec_of(folder: JobFolder, content: bytes) -> JobSpec:
    """Return the spec that is in the content of its file.

    Raises:
        DamagedRecordError: none is, or it was written by another version; the message says which side is newer.
    """
    with intact(folder, folder.spec):
        data = codec.load(content)
        schema = data["schema"]
        if schema == SCHEMA:
            return from_json(JobSpec, data["spec"])
    raise DamagedRecordError(
        f"job {folder.name}: its record has schema {schema!r:.40}, but this agent can only read schema {SCHEMA}",
        hint="use the taco-launch version that submitted the job",
    )


class Events:
    """The event file of a job; each process that writes has its own instance."""

    def __init__(self, folder: JobFolder) -> None:
        """Open the file for appending."""
        self._folder = folder
        self._file = untrusted.open_regular(folder.events, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        size = os.fstat(self._file).st_size
        # A line that a crash or a full disk cut short is ended first.
        self._pending = b"\n" if size and os.pread(self._file, 1, size - 1) != b"\n" else b""

    def add(self, kind: str, reason: str = "", *, hint: str = "", **data: Any) -> None:
        """Append an event with the present time. On a full disk it is kept in memory for `flush`."""
        event = Event(time.time(), kind, reason[:_MOST_CHARACTERS], data, hint[:_MOST_CHARACTERS])
        trace.decision("%s: %s", kind, reason)
        line = json.dumps({"schema": SCHEMA, **to_json(event)}).encode("ascii") + b"\n"
        if kind in _OF_HOSTS and (len(line) > _MOST_OF_EVENT or os.fstat(self._file).st_size > _MOST_OF_HOSTS):
            return
        self._pending += line
        self.flush()
        is_wrong = kind == state.VERIFIED and data.get("status") == "False"
        if kind in (state.ENDED, state.STALLED) or data.get("lost") or is_wrong:
            self._notify(event)

    def _notify(self, event: Event) -> None:
        """Start sending messages about an event to the addresses of the job; if that fails, the job continues.

        The process that sends them is given open files: a waiting job that is deleted has no folder any more.
        """
        with contextlib.suppress(TacoLaunchError, OSError):
            policy = read_spec(self._folder).policy
            if policy.notify is None and not policy.notices:
                return
            agent = os.path.realpath(self._folder.agent)
            with untrusted.opened(self._folder.spec) as spec, untrusted.opened(self._folder.events) as events:
                words = (str(self._folder.path), repr(event.time), str(spec), str(events))
                agent_program.start(agent, "notify", *words, keep=(spec, events))

    def flush(self) -> bool:
        """Write what is still in memory; False when the disk is full and the reserve is used up."""
        while self._pending:
            try:
                written = os.write(self._file, self._pending)
            except OSError:
                if not self._folder.reserve.exists():
                    return False
                self._folder.reserve.unlink(missing_ok=True)  # another process may have used it this moment
                continue
            self._pending = self._pending[written:]
        return True


def ended(events: Events, end: JobState, exit_code: int, reason: str, *, hint: str = "", **data: Any) -> bool:
    """Append a job's end; False where the disk is too full even for that."""
    events.add(state.ENDED, reason, hint=hint, state=end.value, exit_code=exit_code, **data)
    return events.flush()


def read_events(folder: JobFolder) -> List[Event]:
    """Read the events so far; a line that a full disk or a crash cut short is passed over.

    Raises:
        DamagedRecordError: they cannot be read, are not in a regular file, too many, too long, or not as an agent writes them.
    """
    try:
        return events_of(folder, _content(folder.events, _MOST_OF_EVENTS))
    except (FileNotFoundError, NotADirectoryError):
        return []


def events_of(folder: JobFolder, content: bytes) -> List[Event]:
    """Return the events that are in the content of their file. Raises as `read_events` does."""
    with intact(folder, folder.events):
        return [event for event in map(_parsed, content.split(b"\n")) if event is not None]


def read_open(folder: JobFolder, spec: int, events: int) -> Tuple[JobSpec, List[Event]]:
    """Read the spec and the events from open files, which may be without a name by now.

    Raises:
        DamagedRecordError: they are damaged.
        OSError: they cannot be read, or are too large.
    """
    return (
        spec_of(folder, untrusted.content(spec, _MOST_OF_SPEC)),
        events_of(folder, untrusted.content(events, _MOST_OF_EVENTS)),
    )


def _parsed(line: bytes) -> Optional[Event]:
    if len(line) > _MOST_OF_LINE:
        raise ValueError(f"an event of {len(line)} bytes")
    try:
        data = codec.load(line)
    except (json.JSONDecodeError, UnicodeDecodeError):  # cut short
        return None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        return None
    event = from_json(Event, data)
    reason, begins, hint = event.reason[:_MOST_CHARACTERS].partition(_OLD_HINT)  # as agents before wrote both
    return replace(event, reason=reason, hint=(hint if begins else event.hint)[:_MOST_CHARACTERS])


def record(folder: JobFolder) -> JobRecord:
    """Return the job as its events tell it.

    Raises:
        DamagedRecordError: they cannot be read, or tell something that no agent writes.
    """
    events = read_events(folder)
    try:
        return state.reduce(events)
    except DamagedRecordError as error:
        raise DamagedRecordError(
            f"job {folder.name}: {folder.events} is damaged: {error.message}", _hint(folder)
        ) from None


class RecordReader:
    """Reads a job's record again and again, its events only where there are new ones: their file is only appended to."""

    def __init__(self, folder: JobFolder) -> None:
        """Read nothing yet."""
        self._folder = folder
        self._stamp: Optional[Tuple[int, int]] = None
        self._record: Optional[JobRecord] = None

    def record(self) -> JobRecord:
        """Return the record as of now. Raises as `record` does."""
        try:
            found = self._folder.events.stat()
        except OSError:
            return record(self._folder)
        stamp = found.st_ino, found.st_size
        if self._record is None or stamp != self._stamp:
            self._record, self._stamp = record(self._folder), stamp
        return self._record


def try_lock(folder: JobFolder) -> Optional[int]:
    """Take the job's lock, which its supervisor holds for life; None when it is held. Close the result to let it go.

    Raises:
        DamagedRecordError: it is not a regular file.
        OSError: it cannot be created.
    """
    try:
        return untrusted.try_lock(folder.lock)
    except OSError as error:
        if error.errno not in _NO_FILES:
            raise
        raise DamagedRecordError(f"job {folder.name}: {folder.lock}: {error.strerror}", _hint(folder)) from None


def has_moved_on(folder: JobFolder, mark: str) -> bool:
    """Return whether a later attempt of the job has begun than that with this mark."""
    last = record(folder).mark
    return bool(last) and last != mark
