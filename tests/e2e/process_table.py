"""What runs on this machine, by /proc alone, and what it says."""

import subprocess
from collections.abc import Iterator
from pathlib import Path


def command_lines() -> Iterator[tuple[int, list[str]]]:
    """Yield each process with the words of its command line, none where it has ended."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            yield int(entry.name), (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:  # it has ended meanwhile
            continue


def running(*words: str) -> list[int]:
    """Return the processes in whose command line these words follow each other; parts of the first and last will do."""
    return [pid for pid, line in command_lines() if "\0".join(words) in "\0".join(line)]


def line(process: "subprocess.Popen[bytes]") -> bytes:
    """Read a line of a process's output."""
    assert process.stdout is not None
    return bytes(process.stdout.readline())
