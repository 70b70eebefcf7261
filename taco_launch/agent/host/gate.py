"""Keep jobs from a host with a full disk or lost GPUs, where the inventory has a policy for that."""

import os
from pathlib import Path
from typing import Dict, List

from taco_launch.core.facts.reports.health.system import space
from taco_launch.core.facts.reports.health.verdict import FAULT
from taco_launch.core.model.host.facts import Disk

# What programs write to besides the folders of jobs.
SCRATCH = ("/tmp", "/dev/shm")  # noqa: S108 - nothing is written here


def kept_back(state: Path, lacking: str) -> str:
    """Return why no job is to start here, "" where nothing is wrong; jobs have their folders in `state`.

    `lacking` is what is wrong with the number of its GPUs, "" for nothing.

    A disk whose size is not known, as of some network file systems, is not judged.
    """
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
    faults = [f"{each.name}: {each.text}" for each in space(tuple(disks.values())) if each.level == FAULT]
    faults += [f"lost GPUs: {lacking}"] if lacking else []
    words = [f"{'; '.join(faults)} (taco-launch check shows what to do)"] if faults else []
    if closed:  # not a fault of `check`, which does not look at all of these
        steps = f"there, findmnt -T {closed[0]} shows its mount and dmesg -T why; then: mount -o remount,rw MOUNT"
        words.append(f"file systems: read-only: {', '.join(closed)} ({steps})")
    return f"kept back by a check: {'; '.join(words)}" if words else ""
