"""Collects what is known of a job, without secrets, and packs it: record, plan, events, ends of logs, stacks, facts, versions."""

import io
import json
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from taco_launch.agent.store.folders import private
from taco_launch.core.errors import TacoLaunchError, UsageError
from taco_launch.core.frozen import dataclass
from taco_launch.core.launch.masking import MASK, Masker
from taco_launch.core.model.codec import to_json
from taco_launch.core.model.instances import instances
from taco_launch.core.model.job_view import JobView
from taco_launch.core.model.jobs import JobState
from taco_launch.hosts.doctor import versions
from taco_launch.jobs.backend import Backend, LogQuery

# Of all files together, before they are compressed.
_MOST_BYTES = 20_000_000 - (1 << 18)
_MOST_OF_ALL_RANKS, _MOST_OF_LOG = 4 << 20, 1 << 20
_MOST_OF_RANKS = 8 << 20
# Lines that are requested of a log, and of how many ranks: each is a call of the head, and the log of all ranks has the others.
_LINES, _MOST_RANKS = 20_000, 32
# More than is kept of a log: a secret at its beginning is masked whole.
_SLACK = 1 << 14

_READ_ME = """\
Job {name} as taco-launch knew it on {when}.

get.txt        state, reason, hosts, conditions and events, as `taco-launch get NAME -o wide` prints them
job.json       the same as data: the request, the record, all events
line.txt       the command line that started the ranks
events.jsonl   one event per line
logs/          the ends of the logs: of all ranks together, and of single ranks
stacks.json    the stacks of the ranks, if the job was running
facts.json     facts about the head: slots, GPUs, CPUs, Open MPI
versions.json  versions on the machine that packed this archive

Values that look like secrets by their name or format are masked as {mask}. Check the files before you send them to others.
"""


@dataclass(frozen=True)
class Support:
    """The files of an archive by their names, in order, and what could not be had."""

    name: str
    files: Mapping[str, bytes]
    missing: tuple[str, ...]


class _Files:
    """The files that are collected, and how much room is left."""

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._left = _MOST_BYTES
        self.found: dict[str, bytes] = {}
        self.missing: list[str] = []

    def text(self, name: str, text: str) -> None:
        self._add(name, self._masker.text(text))

    def data(self, name: str, value: Any) -> None:
        self._add(name, json.dumps(self._masker.data(value), indent=1, ensure_ascii=False) + "\n")

    def lines(self, name: str, values: Any) -> None:
        rows = (json.dumps(self._masker.data(value), ensure_ascii=False) for value in values)
        self._add(name, "".join(f"{row}\n" for row in rows))

    def log(self, name: str, read: Callable[[Callable[[bytes], None]], object], most: int) -> None:
        """Add the end of a log that `read` passes on piece by piece; nothing where it is empty."""
        kept = bytearray()
        dropped = 0

        def take(data: bytes) -> None:
            nonlocal dropped
            kept.extend(data)
            over = len(kept) - most - _SLACK
            if over > most:  # not for every piece
                dropped += over
                del kept[:over]

        if not self._tried(name, lambda: read(take)) or not kept:
            return
        masked = self._masker.text(kept.decode("utf-8", "replace")).encode()
        most = min(most, max(self._left, 0))
        if dropped or len(masked) > most:
            end = masked[-most:] if most else b""
            end = end.partition(b"\n")[2] or end
            masked = b"[taco-launch: the beginning is left out]\n" + end
        self._put(name, masked)

    def tried(self, name: str, read: Callable[[], Any]) -> None:
        """Add what `read` returns as data; where that fails, note why."""
        self._tried(name, lambda: self.data(name, read()))

    def _tried(self, name: str, act: Callable[[], object]) -> bool:
        try:
            act()
        except TacoLaunchError as error:
            self.missing.append(f"{name}: {error.message}")
            return False
        return True

    def _add(self, name: str, text: str) -> None:
        content = text.encode("utf-8", "replace")
        if len(content) > self._left:
            self.missing.append(f"{name}: it is too large")
        else:
            self._put(name, content)

    def _put(self, name: str, content: bytes) -> None:
        self._left -= len(content)
        self.found[name] = content


def collect(backend: Backend, name: str, environ: Mapping[str, str], shown: Callable[[JobView], str]) -> Support:
    """Ask the head for all there is of a job; `shown` is the job as people read it.

    Raises:
        NoJobError: there is no job of that name.
        HostError: the head cannot be reached.
    """
    job = backend.get(name)
    spec, record = job.spec, job.record
    files = _Files(Masker(spec, environ))
    when = time.strftime("%Y-%m-%d %H:%M:%S %z")
    files.text("README.txt", _READ_ME.format(name=name, when=when, mask=MASK))
    files.text("get.txt", f"{shown(job)}\n")
    files.data("job.json", {key: value for key, value in to_json(job).items() if key != "events"})
    if record.line:
        files.text("line.txt", f"{record.line}\n")
    files.lines("events.jsonl", to_json(job.events))
    files.data("versions.json", dict(versions()))
    path = environ.get("PATH", "")
    files.tried(
        "facts.json",
        lambda: to_json(backend.facts(mpirun=spec.mpirun, path=path, count_slots=True, topology=True)),
    )
    if record.state is JobState.RUNNING:
        files.tried("stacks.json", lambda: _stacks(backend, name))
    if record.started is not None:
        for query, most, file in _logs(job):
            files.log(file, lambda take, query=query: backend.follow(query, take), most)  # type: ignore[misc]
    return Support(f"{name}-support", files.found, tuple(files.missing))


def _stacks(backend: Backend, name: str) -> dict[str, Any]:
    ranks, problems = backend.stacks(name)
    return {"ranks": to_json(ranks), "problems": dict(problems)}


def _logs(job: JobView) -> Iterator[tuple[LogQuery, int, str]]:
    """Yield what to read of the logs, how many bytes of it, and the file that it is for."""
    spec, record = job.spec, job.record
    name = spec.name
    yield LogQuery(name, tail=_LINES, follow=False, timestamps=True), _MOST_OF_ALL_RANKS, "logs/all-ranks.log"
    for part in instances(spec, record):
        if not part.ranks and record.attempt:
            yield LogQuery(name, tail=_LINES, follow=False, instance=part.name), _MOST_OF_LOG, "logs/launcher.log"
    if spec.policy.agent_log:
        yield LogQuery(name, tail=_LINES, follow=False, agent=True), _MOST_OF_LOG, "logs/agent.log"
    telling = [record.first_failure.rank] if record.first_failure else []
    telling += [look.rank for look in record.stalled.ranks] if record.stalled else []
    ranks = list(dict.fromkeys((*telling, *range(record.np))))[:_MOST_RANKS]
    for rank in ranks:
        most = min(_MOST_OF_LOG, _MOST_OF_RANKS // len(ranks))
        yield LogQuery(name, rank=rank, tail=_LINES, follow=False), most, f"logs/rank-{rank}.log"


def require_free(path: Path) -> None:
    """Refuse to replace a file.

    Raises:
        UsageError: there is one.
    """
    if path.exists() or path.is_symlink():
        raise UsageError(f"{path}: the file exists already", hint="remove it, or name another: --to FILE.tar.gz")


def pack(found: Support, path: Path) -> int:
    """Write the archive, for its owner only; return its size in bytes.

    Raises:
        UsageError: there is such a file already, or it cannot be written.
    """
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in found.files.items():
            entry = tarfile.TarInfo(f"{found.name}/{name}")
            entry.size, entry.mode, entry.mtime = len(content), 0o600, int(time.time())
            archive.addfile(entry, io.BytesIO(content))
    require_free(path)
    try:
        with open(path, "xb", opener=private) as file:
            file.write(packed.getvalue())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", hint="name a file in another folder: --to FILE.tar.gz") from None
    return packed.tell()
