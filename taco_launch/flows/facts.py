"""Look at hosts: the probe on all of them side by side, or what was captured of them before."""

import os
import secrets
import stat
import time
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path

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


def captured(paths: Sequence[Path]) -> tuple[tuple[str, bytes], ...]:
    """Give (path below what was named, content) of all files in `paths`: files, or folders with all that is in them.

    Symbolic links inside a folder are followed to files only, so that a copy of sysfs cannot lead round in a circle.

    Raises:
        UsageError: there is no such file, one cannot be read, or there are more or larger ones than captures are.
    """
    found: list[tuple[str, bytes]] = []
    for path in paths:
        if path.is_dir():
            for folder, folders, names in os.walk(path):
                folders.sort()
                for name in sorted(names):
                    file = Path(folder, name)
                    found.append((str(file.relative_to(path)), _content(file)))
                    if len(found) > MAX_FILES:
                        raise UsageError(f"{path}: more than {MAX_FILES} files", hint="name the folder of one capture")
        else:
            found.append((path.name, _content(path)))
    return tuple(found)


def _content(path: Path) -> bytes:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"{path}: is no regular file")
        if status.st_size > MAX_FILE:
            raise UsageError(f"{path}: {status.st_size} bytes, and a capture has at most {MAX_FILE}")
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
