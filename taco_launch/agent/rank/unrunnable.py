"""Suggests what was meant by a command that cannot be run. The rank's log shows it, and the job's next step repeats it."""

import contextlib
import difflib
import os
from typing import List, Optional

from taco_launch.core.errors import quoted
from taco_launch.core.protocol.rank_messages import IS_FOLDER

# How alike a misspelled name and a program are (difflib's ratio), and how many names of a folder are compared.
_ALIKE, _MOST_NAMES = 0.8, 5000


def advice(program: str, path: Optional[str]) -> str:
    """Return what is wrong with a program that cannot be run, or which one was meant, in parentheses; "" if that is not known."""
    if os.path.isdir(program):  # noqa: PTH112 - as below
        return IS_FOLDER
    if len(program.split()) > 1:
        return f" ({quoted(program)})"
    names = _programs(path) if "/" not in program else []
    if program == "python" and "python3" in names:
        return " (python3 is installed: use it instead)"
    if "/" not in program and os.path.isfile(program):  # noqa: PTH113 - Path.is_file raises for a name that is too long
        interpreter = "python3" if program.endswith(".py") else "bash" if program.endswith(".sh") else ""
        ways = [f"{interpreter} {program}"] if interpreter else []
        if not ways or os.access(program, os.X_OK):
            ways.append(f"./{program}")
        return f" (this file is in the current folder: write {', or '.join(ways)})"
    near = difflib.get_close_matches(program, names, n=1, cutoff=_ALIKE)
    if near:
        return f" (check the name: {near[0]} is on the PATH)"
    interpreter = _interpreter(program)
    return f" (its first line names {interpreter!r})" if interpreter else ""


def _programs(path: Optional[str]) -> List[str]:
    """Return the names in the folders of a PATH, at most the first 5,000 of each."""
    names: List[str] = []
    for folder in (path or os.defpath).split(os.pathsep):
        with contextlib.suppress(OSError), os.scandir(folder or ".") as entries:
            names += [entry.name for entry, _number in zip(entries, range(_MOST_NAMES))]
    return names


# The kernel reads no more of it (BINPRM_BUF_SIZE).
_MOST_OF_FIRST_LINE = 256


def _interpreter(script: str) -> str:
    """Return the interpreter that the first line of a script names, where no such file exists; "" otherwise."""
    try:
        file = os.open(script, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return ""
    try:
        first = os.read(file, _MOST_OF_FIRST_LINE).partition(b"\n")[0]
    except OSError:
        return ""
    finally:
        os.close(file)
    words = first[2:].strip(b" \t").replace(b"\t", b" ").split(b" ")
    name = words[0].decode("utf-8", "replace")
    return name if first.startswith(b"#!") and not os.path.exists(name) else ""  # noqa: PTH110 - as above
