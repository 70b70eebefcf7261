"""What ranks and hosts print is searched with many patterns: no text may keep one of them busy for long."""

import importlib
import pkgutil
import re
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import taco_launch
from taco_launch.core.facts.captures.recognise import recognise
from taco_launch.core.facts.system import disks
from taco_launch.core.signatures.lines import LINE, NEAR, around
from taco_launch.core.signatures.qualifiers import QUALIFIERS
from taco_launch.core.signatures.table import TABLE

if sys.version_info >= (3, 11):
    import re._parser as parser
else:
    import sre_parse as parser

# CPU seconds for one line: of the patterns as they are the slowest takes 0.03, of those that were attacked 2 to 176. On a
# busy machine CPU time grows as well, so that one counts which also takes more than three times as long as half of it.
MOST = 0.5
HANGS = 10.0
# What may be a character of a set, the first that is in it.
LETTERS = "a1 x:/[]-.A_\t,="


def text_of(items: Sequence[tuple[Any, Any]]) -> str:
    """Return a text that a part of a pattern matches, as short as can be."""
    return "".join(one_of(str(kind), value) for kind, value in items)


def one_of(kind: str, value: Any) -> str:
    if kind == "LITERAL":
        return chr(int(value))
    if kind == "IN":
        inside = any(str(name) == "NEGATE" for name, _each in value)
        return next((letter for letter in LETTERS if any(is_in(letter, *each) for each in value) != inside), "a")
    if kind in ("MAX_REPEAT", "MIN_REPEAT"):
        least, most, part = value
        return text_of(part) * int(min(max(least, 1 if most else 0), 40))
    if kind == "SUBPATTERN":
        return text_of(list(value[-1]))
    if kind == "BRANCH":
        return text_of(value[1][0])
    return "x" if kind in ("ANY", "NOT_LITERAL") else ""


def is_in(letter: str, kind: Any, value: Any) -> bool:
    """Return whether a letter is in a part of a set."""
    if str(kind) == "RANGE":
        return bool(value[0] <= ord(letter) <= value[1])
    if str(kind) == "CATEGORY":
        name = str(value)
        known = {"WORD": letter.isalnum() or letter == "_", "DIGIT": letter.isdigit(), "SPACE": letter.isspace()}
        return known[name.rpartition("_")[2]] != ("_NOT_" in name)
    return str(kind) == "LITERAL" and value == ord(letter)


def pumped(items: Sequence[tuple[Any, Any]], before: str = "") -> Iterator[tuple[str, str]]:
    """Yield (what stands before, what is repeated) for each part of a pattern that may be long."""
    for place, (kind, value) in enumerate(items):
        head = before + text_of(items[:place])
        if str(kind) in ("MAX_REPEAT", "MIN_REPEAT") and value[1] > 20:
            unit = text_of(value[2])
            yield from (
                (head, unit),
                ("", head),
                ("", head + unit),
                ("", head + unit + text_of(items[place + 1 :])[:-1]),
            )
            yield from pumped(value[2], head)
        elif str(kind) == "SUBPATTERN":
            yield from pumped(value[-1], head)
        elif str(kind) == "BRANCH":
            for branch in value[1]:
                yield from pumped(branch, head)


def seconds(pattern: "re.Pattern[str]", text: str) -> float:
    """Return the CPU time of a search; a short text first, which tells whether the whole one need be tried at all."""
    for shown in (text[:320], text):
        begin = time.process_time()
        pattern.search(shown)
        took = time.process_time() - begin
        if took < 0.0005:
            break
    return took


def is_busy(pattern: str, length: int = 4000) -> bool:
    """Return whether a search takes too long: in what is looked at of a line, or in so many characters."""
    compiled = re.compile(pattern)
    lines = (
        head + (unit or "x") * (4000 // len(unit or "x")) + tail
        for head, unit in set(pumped(parser.parse(pattern).data))
        for tail in ("", "\0!")
    )
    shown = (around(line, 0, 0, len(line)) if length == 4000 else line[:length] for line in lines)
    return any(takes_long(compiled, text) for text in shown)


def takes_long(pattern: "re.Pattern[str]", text: str) -> bool:
    """Return whether a search takes long, and longer than twice that of half the text."""
    took = seconds(pattern, text)
    return took > HANGS or (took > MOST and took > 3 * seconds(pattern, text[: len(text) // 2]))


@pytest.mark.parametrize("entry", [each for each in TABLE if each.pattern], ids=lambda entry: entry.name)
def test_no_line_keeps_a_signature_busy(entry: Any) -> None:
    assert not is_busy(entry.pattern)


@pytest.mark.parametrize("name", QUALIFIERS)
def test_no_lines_near_a_text_keep_its_qualifiers_busy(name: str) -> None:
    for each in QUALIFIERS[name]:
        pattern = re.compile(each.pattern, re.MULTILINE)
        for head, unit in set(pumped(parser.parse(each.pattern, re.MULTILINE).data)):
            line = (head + (unit or "x") * LINE)[:LINE]
            for text in (line, "\n".join([line] * (2 * NEAR + 1)), f"{head}\n" * (2 * NEAR + 1)):
                assert not takes_long(pattern, text), (each.pattern, head, unit)


def test_a_pattern_that_was_attacked_is_found() -> None:
    pattern = r"^(?!.*(?:NCCL INFO |dlerror)).*?(?P<library>[\w.+-]+\.so[\w.]*): cannot open shared object file"
    assert is_busy(pattern, 1500)


@pytest.mark.parametrize("unit", [" port 1 x", "MLNX_OFED-1", "GPU0 ", "a ", "::", "0000:"])
def test_no_capture_keeps_its_readers_busy(unit: str) -> None:
    begin = time.process_time()
    for length in (8_000, 1_000_000):
        recognise(unit * (length // len(unit)) + "\n")
    assert time.process_time() - begin < HANGS


def test_no_row_of_df_keeps_its_reader_busy() -> None:
    begin = time.process_time()
    disks.disk("Filesystem Type 1024-blocks Used Available Capacity Mounted on\nx" + " " * 100_000 + "y\n")
    assert time.process_time() - begin < HANGS


def compiled() -> dict[str, "re.Pattern[str]"]:
    """Return every pattern for text that a module of the package has under a name, by that name."""
    names = (each.name for each in pkgutil.walk_packages(taco_launch.__path__, "taco_launch."))
    modules = [importlib.import_module(name) for name in names if not name.endswith("__main__")]
    return {
        f"{module.__name__}.{name}": found
        for module in modules
        for name, found in vars(module).items()
        if isinstance(found, re.Pattern) and isinstance(found.pattern, str)
    }


def is_endless(pattern: "re.Pattern[str]") -> bool:
    """Return whether a few characters more take many times as long, in a text as short as a line of an inventory."""
    texts = set(pumped(parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE).data))
    for length in (16, 20, 24, 28, 64, 200):
        for head, unit in texts:
            for tail in ("", "\0!"):
                begin = time.process_time()
                pattern.fullmatch(head + (unit or "x") * (length // len(unit or "x")) + tail)
                if time.process_time() - begin > MOST:
                    return True
    return False


def test_no_pattern_is_endless() -> None:
    assert [name for name, pattern in compiled().items() if is_endless(pattern)] == []


def test_a_mount_of_an_inventory_was_endless() -> None:
    assert is_endless(re.compile(r"/(?:[^/:,\s\x00-\x1f\x7f][^/:,\x00-\x1f\x7f]{0,254}/?)*"))
