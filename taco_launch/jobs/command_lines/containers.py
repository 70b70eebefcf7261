"""A program that starts a container, in the place of a job's own -> the image, the mounts and the program in it: pure."""

import itertools
import posixpath
from collections.abc import Sequence
from dataclasses import replace

from taco_launch.core.command import shell
from taco_launch.core.launch.command_line.nested_launcher import inner
from taco_launch.jobs.command_lines import launcher_line
from taco_launch.jobs.command_lines import launcher_options as table
from taco_launch.jobs.command_lines.container_options import KINDS, image
from taco_launch.jobs.command_lines.launcher_line import LauncherLine, Part, UnclearError
from taco_launch.jobs.command_lines.shell_script import of_line, read, shell_at, shown, started
from taco_launch.jobs.command_lines.shell_words import UNKNOWN

_IMAGE = "--image"
_BEFORE = ("sudo", "env", "exec", "time")
_ITS_OWN = (
    "starts a container of its own for each rank, which lacks what the ranks have; --image NAME starts the ranks in one"
)
_WITHOUT = "only what shifter starts runs in it"


def opened(line: LauncherLine) -> LauncherLine:
    """Return a line whose program runs in a container, with the program in it, and the container among its parts."""
    words = line.program
    name, count = starter(words)
    if not name:
        return line
    try:
        program, parts = _read(words, name, count)
    except (UnclearError, ValueError) as error:
        own = Part(line.begin, tuple(words[: count + 1]), table.OMITTED, why=f"{_ITS_OWN} ({error})")
        return replace(line, parts=(*line.parts, own))
    return replace(line, parts=(*line.parts, *parts), program=program)


def outside(words: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[Part, ...]]:
    """Return the launcher that a container is started for, and the parts of that container; other words as they are."""
    name, count = starter(words)
    if not name or inner(words) is not None:
        return words, ()
    try:
        program, parts = _read(words, name, count)
    except (UnclearError, ValueError):
        return words, ()
    program = started(program)
    return (program, parts) if inner(program) is not None else (words, ())


def script(words: Sequence[str]) -> tuple[str, ...]:
    """Return `sh -c SCRIPT` with the launchers that a container is started for, () for any other words."""
    line = tuple(words[shell_at(words, starter(words)[1] or len(words)) :])
    return line if line and any(inner(each.words) for each in read(shown(of_line(line))).commands) else ()


def typed(words: Sequence[str]) -> str:
    """Return the line here that runs what a container is started for, "" where its options cannot be read."""
    name, count = starter(words)
    try:
        program, parts = _read(words, name, count) if name else ((), ())
    except (UnclearError, ValueError):
        return ""
    options = [(part.name, part.value) for part in parts if part.use == table.OPTION]
    variables = [("-x", f"{part.name}={part.value}") for part in parts if part.use == table.ENV]
    words = ("taco-launch", "run", "--np", "N", *itertools.chain(*options, *variables), "--", *program)
    return shell(tuple(map(shown, words))) if program else ""


def without_shifter(parts: Sequence[Part], line: LauncherLine) -> list[Part]:
    """Return directives, of which Shifter's do not count where the line starts no Shifter."""
    is_shifted = any(part.words[0] == "shifter" for part in line.parts)
    return [
        replace(part, use=table.OMITTED, why=_WITHOUT)
        if part.words[0].partition("=")[0] in ("--image", "--volume") and not is_shifted
        else part
        for part in parts
    ]


def starter(words: Sequence[str]) -> tuple[str, int]:
    """Return the program that starts a container, "" for none, and how many words come before its options."""
    at = next((at for at, word in enumerate(words) if word not in _BEFORE), len(words))
    name = posixpath.basename("".join(words[at : at + 1]))
    verbal = " ".join((name, *words[at + 1 : at + 2]))
    return (verbal, at + 2) if verbal in KINDS else (name, at + 1) if name in KINDS else ("", 0)


def _read(words: Sequence[str], name: str, begin: int) -> tuple[tuple[str, ...], tuple[Part, ...]]:
    """Return the program in a container, and the container's parts.

    Raises:
        UnclearError: the options cannot be read, or no program follows the image.
        ValueError: the image is of a kind that a job cannot have.
    """
    if not KINDS[name]:
        raise ValueError(f"the options of {name} are not read")
    parts, at = _options(KINDS[name], words, begin)
    first = Part(0, (name,), table.OMITTED, why="taco-launch starts the container of the ranks")
    if KINDS[name] == "shifter":
        return tuple(words[at:]), (first, *parts)
    called = words[at]
    if not words[at + 1 :]:
        raise UnclearError(at, "the program is the image's own: write it")
    if UNKNOWN in called:
        own = Part(at, (called,), table.REFUSED, why=f"{_IMAGE} NAME: {launcher_line.NOT_KNOWN}")
    else:
        own = Part(at, (called,), table.OPTION, _IMAGE, image(called))
    return tuple(words[at + 1 :]), (first, *parts, own)


def _options(kind: str, words: Sequence[str], at: int) -> tuple[tuple[Part, ...], int]:
    """Return the options of a line from a place on, and the place behind them.

    Raises:
        UnclearError: one lacks its value, or no word comes behind them.
    """
    reader = launcher_line.Reader(kind, words, {})
    end = reader.read(at)
    return tuple(reader.parts), end
