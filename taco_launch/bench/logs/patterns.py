"""A user's regular expression over a log: looked for by a process of its own, which the kernel ends when it takes too long.

A pattern such as `(a+)+$` can take years on one line, and cannot be interrupted within this process. This file is that
other program as well, and so imports the standard library only.
"""

import json
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple

MOST_CHARACTERS = 1000
# CPU time; a simple pattern passes over hundreds of megabytes in that time.
MOST_SECONDS = 20


class PatternMatch(NamedTuple):
    """The first match in a line: which line, from 0, and what the pattern's group holds, None where it took no part."""

    line: int
    text: str | None


class FailedError(Exception):
    """A pattern could not be looked for; the text says why."""


def compiled(pattern: str) -> re.Pattern[str]:
    """Return a pattern ready for use.

    Raises:
        ValueError: it is too long, no regular expression, or has not one group; says which.
    """
    if len(pattern) > MOST_CHARACTERS:
        raise ValueError(f"is longer than {MOST_CHARACTERS} characters")
    try:
        found = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    if found.groups != 1:
        raise ValueError(f"must have exactly one group, which matches the number, but has {found.groups}")
    return found


def matches(pattern: str, lines: Sequence[str], seconds: int = MOST_SECONDS) -> tuple[PatternMatch, ...]:
    """Return the first match in each line that has one, in at most so many seconds of CPU time.

    Raises:
        FailedError: it takes longer, or this machine cannot run the program.
    """
    asked = json.dumps({"pattern": pattern, "lines": lines, "seconds": seconds})
    program = (sys.executable, "-I", __file__)
    try:
        done = subprocess.run(
            program, input=asked, capture_output=True, encoding="ascii", errors="replace", check=False
        )
    except OSError as error:
        raise FailedError(f"cannot start {sys.executable}: {error.strerror}") from None
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        raise FailedError(f"needs more than {seconds} s of CPU time: avoid nested repeats, such as (a+)+")
    if done.returncode:
        raise FailedError(f"exit code {done.returncode}: {done.stderr.strip()[-200:]}")
    return tuple(PatternMatch(*found) for found in json.loads(done.stdout))


def _main() -> None:
    asked = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_CPU, (asked["seconds"], asked["seconds"] + 1))
    pattern = re.compile(asked["pattern"])
    found = ((index, pattern.search(line)) for index, line in enumerate(asked["lines"]))
    json.dump([(index, match[1]) for index, match in found if match], sys.stdout)


if __name__ == "__main__":
    _main()
