"""A lab that is set up, for one benchmark or for all that run in one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pairing
import verdicts


@contextmanager
def made(given: str, environ: Mapping[str, str], *, hosts: int, slots: int) -> Iterator[str]:
    """Yield a lab's name: the given one, or that of a lab that is made and set up here, and removed at the end."""
    if given:
        yield given
        return
    name = f"bench-{os.getpid()}"
    verdicts.tell(f"making a lab of {hosts} hosts and setting it up (a minute, with the images another two)")
    try:
        size = ("--hosts", str(hosts), "--slots", str(slots))
        pairing.prepare(("taco-launch", "lab", "up", "--yes", "--name", name, *size), environ)
        pairing.prepare(("taco-launch", "-i", f"lab:{name}", "setup", "--yes"), environ)
        yield name
    finally:
        pairing.prepare(("taco-launch", "lab", "down", "--name", name), environ)
