"""Read whether this host takes new jobs: not while it is drained, nor, with a policy, while a disk is full or GPUs are lost."""

import os
from pathlib import Path
from typing import Dict, List, Optional

from taco_launch.agent.store import untrusted
from taco_launch.core.model.host.paths import DRAIN, MOST_DRAIN_BYTES
from taco_launch.core.model.slots import Drain, read_drain, unreadable_drain

# What programs write to besides the folders of jobs.
SCRATCH = ("/tmp", "/dev/shm")  # noqa: S108 - nothing is written here


def read() -> Optional[Drain]:
    """Return the drain of this host, None where it is open to jobs. A record that cannot be read drains it all the same."""
    try:
        file = untrusted.open_regular(Path(DRAIN))
    except FileNotFoundError:
        return None
    except PermissionError:  # of a user whom set-up gave no container: jobs of theirs run on their own machine
        return None
    except OSError as error:
        return unreadable_drain(DRAIN, error.strerror or str(error), 0.0)
    with open(file, "rb") as opened:
        since = os.fstat(file).st_mtime
        try:
            return read_drain(opened.read(MOST_DRAIN_BYTES), DRAIN, since)
        except OSError as error:
            return unreadable_drain(DRAIN, str(error), since)


def kept_back(state: Path, lacking: str) -> str:
    """Return why no job is to start here, "" where nothing is wrong; jobs have their folders in `state`.

    `lacking` is what is wrong with the number of its GPUs, "" for nothing.

    A disk whose size is not known, as of some network file systems, is not judged.
    """
    # Only where the inventory has a policy: it brings the rules of all checks.
    from taco_launch.core.facts.reports.health import system, verdict  # noqa: PLC0415
    from taco_launch.core.model.host.facts import Disk  # noqa: PLC0415

    disks: Dict[int, Disk] = {}
    closed: List[str] = []
    for path in (str(state), *SCRATCH):
        try:
            about, device = os.statvfs(path), Path(path).stat().st_dev
        except OSError:  # a system without it, or a folder that the first job makes
            continue
        if about.f_flag & os.ST_RDONLY:
            closed.append(path)
        elif about.f_blocks:
            disks.setdefault(device, Disk(path, "", about.f_blocks * about.f_frsize, about.f_bavail * about.f_frsize))
    faults = [
        f"{each.name}: {each.text}" for each in system.space(tuple(disks.values())) if each.level == verdict.FAULT
    ]
    faults += [f"lost GPUs: {lacking}"] if lacking else []
    words = [f"{'; '.join(faults)} (taco-launch check shows what to do)"] if faults else []
    if closed:  # not a fault of `check`, which does not look at all of these
        steps = f"there, findmnt -T {closed[0]} shows its mount and dmesg -T why; then: mount -o remount,rw MOUNT"
        words.append(f"file systems: read-only: {', '.join(closed)} ({steps})")
    return f"kept back by a check: {'; '.join(words)}" if words else ""
