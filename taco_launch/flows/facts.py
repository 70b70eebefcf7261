"""Look at hosts: the probe on all of them side by side, or what was captured of them before."""

import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import IO

from taco_launch.command import Command
from taco_launch.errors import HostError, UsageError
from taco_launch.facts.feed import feed
from taco_launch.facts.parse import parse
from taco_launch.model.facts import HostFacts
from taco_launch.model.hosts import Host, Inventory
from taco_launch.remote.access import Access
from taco_launch.remote.fanout import Answer, Fanout, connect
from taco_launch.remote.transport import Transport, last_words

# The slowest subject asks nvidia-smi, which may take 30 s on a host whose driver is not kept loaded.
_PROBE_SECONDS = 120.0
# A folder of captures is text; what is larger than this was named by mistake.
MAX_FILE, MAX_FILES = 16 << 20, 10_000


def gather(
    fanout: Fanout,
    subjects: Sequence[str],
    report: Callable[[Answer[HostFacts]], None] | None = None,
    *,
    sudo: bool = False,
    container: str | None = None,
) -> tuple[Answer[HostFacts], ...]:
    """Give the facts of every host, in inventory order; `report` is called as each has answered.

    The subject `image` looks into `container` of each host's engine, or without one at the host itself. With `sudo` the probe runs as root from the start; without it, what needs root is asked with `sudo -n` where that works.
    """
    script = feed(files("taco_launch.facts").joinpath("probe.sh").read_bytes(), container)

    def probe(host: Transport) -> HostFacts:
        marker = f"taco-{secrets.token_hex(8)}"
        argv = ("/bin/sh", "-s", "--", marker, *subjects)
        result = host.run(Command(argv, script, sudo=sudo, timeout=_PROBE_SECONDS))
        received = time.time()
        if marker.encode() not in result.stdout:
            said = last_words(result.stderr) or last_words(result.stdout) or "nothing"
            raise HostError(
                f"{host.name}: the probe gave no answer (exit code {result.exit_code}): it said {said}",
                hint="is /bin/sh there a POSIX shell?",
            )
        return parse(host.name, result.stdout, received - result.seconds, received)

    return fanout.each(probe, report)


# What a job's line depends on.
_JOB_SUBJECTS = ("system", "network", "gpu", "rdma", "image")


def job_hosts(
    inventory: Inventory, hosts: tuple[Host, ...], access: Access
) -> tuple[tuple[HostFacts, ...], tuple[str, ...]]:
    """Give the facts of a job's hosts, as far as its line depends on them, and what is wrong with those that are silent."""
    with connect(inventory, hosts, access) as fanout:
        answers = gather(fanout, _JOB_SUBJECTS)
    found = tuple(answer.value for answer in answers if answer.value is not None)
    return found, tuple(answer.error.message for answer in answers if answer.error is not None)


STDIN = Path("-")


def captured(
    paths: Sequence[Path], stdin: IO[bytes]
) -> tuple[tuple[tuple[str, bytes], ...], tuple[tuple[str, str], ...]]:
    """Give (path below what was named, content) of all files in `paths`, and (path, why not) of those in folders left out.

    `-` is `stdin`; a pipe is read to its end. Symbolic links inside a folder are followed to files only, so that a copy
    of sysfs cannot lead round in a circle.

    Raises:
        UsageError: a file that was named cannot be read or is larger than captures are, or a folder holds too many.
    """
    found: list[tuple[str, bytes]] = []
    left_out: list[tuple[str, str]] = []
    for path in paths:
        if path == STDIN:
            found.append(("standard input", _limited(stdin, "standard input")))
        elif path.is_dir():
            for file in _files(path):
                try:
                    found.append((str(file.relative_to(path)), _content(file)))
                except UsageError as error:
                    left_out.append((str(file.relative_to(path)), error.message.removeprefix(f"{file}: ")))
        else:
            found.append((path.name, _content(path, pipe=True)))
    return tuple(found), tuple(left_out)


def _files(folder: Path) -> Iterator[Path]:
    count = 0
    for inside, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            count += 1
            if count > MAX_FILES:
                raise UsageError(f"{folder}: more than {MAX_FILES} files", hint="name the folder of one capture")
            yield Path(inside, name)


def _content(path: Path, *, pipe: bool = False) -> bytes:
    try:
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or (pipe and stat.S_ISFIFO(mode))):
            raise UsageError(f"{path}: is no regular file")
        with path.open("rb") as file:
            return _limited(file, str(path))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None


def _limited(file: IO[bytes], name: str) -> bytes:
    data = file.read(MAX_FILE + 1)
    if len(data) > MAX_FILE:
        raise UsageError(f"{name}: more than {MAX_FILE >> 20} MiB, which no capture has")
    return data
