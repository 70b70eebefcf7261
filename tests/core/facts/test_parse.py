"""Every answer in `cases/probe` gives the facts beside it; cut, coloured or mixed up, it gives them or Unknown.

The first line of each answer says whether a real host gave it or it was written after the tools' documentation. In the
expectations `{"unknown": WHY}` and `{"absent": WHY}` stand for what has no value; subjects that were not asked are left out.
"""

import json
import os
import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from taco_launch.core.facts.parse import parse
from taco_launch.core.model.host.fact_value import Absent, Unknown
from taco_launch.core.model.host.facts import HostFacts

FOLDER = Path(__file__).parent / "cases" / "probe"
CASES = sorted(FOLDER.glob("*.txt"))
SUBJECTS = ("system", "network", "docker", "image", "made")
CORPUS = os.environ.get("TACO_LAUNCH_CORPUS")
CORPUS_FILES = sorted(path for path in Path(CORPUS).rglob("*") if path.is_file()) if CORPUS else []
# When the controller sent the probe of each case, and had its answer: 0.1 s around what the case says of the host's clock.
SENT = re.compile(rb"(?m)^\S+ probe 1 ([0-9]+)(\.[0-9]{9})?")


def read(answer: bytes, sent: float = 1790000000.0, received: float = 1790000000.5) -> HostFacts:
    return parse("gpu1", answer, sent, received)


def told(value: Any) -> Any:
    """Return facts as JSON shows them."""
    if isinstance(value, (Unknown, Absent)):
        return {type(value).__name__.lower(): value.reason}
    if is_dataclass(value):
        return {field.name: told(getattr(value, field.name)) for field in fields(value)}
    return [told(item) for item in value] if isinstance(value, tuple) else value


def of_subjects(facts: HostFacts) -> dict[str, Any]:
    """Return the subjects of this test as JSON; what depends on the controller's clock is tested in test_system.py."""
    found = {name: told(getattr(facts, name)) for name in SUBJECTS if getattr(facts, name) != Unknown("not asked")}
    if "clock_offset" in found.get("system", {}):
        del found["system"]["clock_offset"], found["system"]["clock_error"]
    return found


def as_asked(told: Any, expected: Any) -> Any:
    """Leave out facts that came after the capture: unknown in it, and without an expectation."""
    if not isinstance(told, dict) or not isinstance(expected, dict):
        return told
    known = {key: value for key, value in told.items() if key in expected or set(value or ()) != {"unknown"}}
    return {key: as_asked(value, expected.get(key)) for key, value in known.items()}


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_case(case: Path) -> None:
    expected = json.loads(case.with_suffix(".json").read_text("utf-8"))
    assert as_asked(of_subjects(read(case.read_bytes())), expected) == expected


def test_each_case_has_one_expectation_and_says_where_it_is_from() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {
        f"{case.stem}{end}" for case in CASES for end in (".txt", ".json")
    }
    for case in CASES:
        assert case.read_text("utf-8").startswith(("captured: ", "written after documentation: ")), case


# --- whatever happens to an answer on its way ------------------------------------------------------------------------

# What a file says word for word, names that may be any, and rules, which are no columns: a change in these cannot be seen.
FREE = {"config", "detail", "firewalls", "hostname", "image", "kernel", "labels"}
FREE |= {"daemon_json", "engine_command", "mac", "mode", "model", "name", "nccl_conf", "where"}
cases = st.sampled_from(CASES)


def agree(whole: Any, damaged: Any, at: str = "") -> None:
    """A value is told right or not at all."""
    if isinstance(damaged, dict) and set(damaged) == {"unknown"}:
        return
    if isinstance(whole, dict) and isinstance(damaged, dict) and set(whole) == set(damaged) == {"absent"}:
        return
    if (
        isinstance(whole, dict)
        and isinstance(damaged, dict)
        and set(whole) == set(damaged)
        and set(whole) != {"absent"}
    ):
        for key, value in whole.items():
            if key not in FREE:
                agree(value, damaged[key], f"{at}.{key}")
        return
    if isinstance(whole, list) and isinstance(damaged, list) and len(whole) == len(damaged):
        for place, value in enumerate(whole):
            agree(value, damaged[place], f"{at}[{place}]")
        return
    assert damaged == whole, at


def check(case: Path, damaged: bytes) -> None:
    whole = of_subjects(read(case.read_bytes()))
    found = of_subjects(read(damaged))
    for subject, value in whole.items():
        agree(value, found.get(subject, {"unknown": "not asked"}), subject)


@given(cases, st.floats(0, 1))
def test_a_cut_answer_tells_what_is_whole(case: Path, where: float) -> None:
    answer = case.read_bytes()
    check(case, answer[: int(len(answer) * where)])


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_line_ends_and_colours_of_a_terminal_change_nothing(case: Path) -> None:
    answer = case.read_bytes().replace(b"\r\n", b"\n")
    whole = of_subjects(read(answer))
    assert of_subjects(read(answer.replace(b"\n", b"\r\n"))) == whole
    assert of_subjects(read(b"\n".join(b"\x1b[1;32m" + line + b"\x1b[0m" for line in answer.split(b"\n")))) == whole


def lines_within(answer: bytes) -> list[int]:
    """Return the places of the lines that commands said."""
    nonce = SENT.search(answer)
    assert nonce
    lines, marked = answer.split(b"\n"), nonce[0].split()[0]
    begin = next(place for place, line in enumerate(lines) if line.startswith(marked))
    return [place for place, line in enumerate(lines) if place > begin and line.strip() and not line.startswith(marked)]


def with_line(answer: bytes, where: float, change: Callable[[bytes], bytes]) -> bytes:
    lines, places = answer.split(b"\n"), lines_within(answer)
    if not places:
        return answer
    place = places[min(int(len(places) * where), len(places) - 1)]
    lines[place] = change(lines[place])
    return b"\n".join(lines)


@given(cases, st.floats(0, 1))
def test_a_doubled_line_is_seen_or_harmless(case: Path, where: float) -> None:
    check(case, with_line(case.read_bytes(), where, lambda line: line + b"\n" + line))


@given(cases, st.floats(0, 1), st.integers(0, 20))
@example(FOLDER / "debian12_set_up.txt", 0.671875, 1)  # a key with its comment
def test_fused_columns_are_not_shifted(case: Path, where: float, which: int) -> None:
    def fused(line: bytes) -> bytes:
        gaps = list(re.finditer(rb"[ \t]+", line))
        gap = gaps[which % len(gaps)] if gaps else None
        return line[: gap.start()] + line[gap.end() :] if gap else line

    check(case, with_line(case.read_bytes(), where, fused))


@given(cases, st.floats(0, 1))
def test_digits_of_another_script_are_no_numbers(case: Path, where: float) -> None:
    eastern = str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")

    def translated(line: bytes) -> bytes:
        path, colon, rest = line.decode().partition(":") if line.startswith(b"/") else ("", "", line.decode())
        return f"{path}{colon}{rest.translate(eastern)}".encode()

    check(case, with_line(case.read_bytes(), where, translated))


@given(cases, st.floats(0, 1), st.binary(max_size=30))
def test_nothing_is_raised(case: Path, where: float, junk: bytes) -> None:
    answer = case.read_bytes()
    place = int(len(answer) * where)
    read(answer[:place] + junk + answer[place + len(junk) :])


@given(st.binary())
def test_nothing_is_told_by_noise(noise: bytes) -> None:
    assert of_subjects(read(noise)) == {}


@pytest.mark.skipif(CORPUS is None, reason="cannot: TACO_LAUNCH_CORPUS names no folder of captured outputs")
@pytest.mark.parametrize("path", CORPUS_FILES, ids=str)
def test_corpus(path: Path) -> None:
    """Whatever a tool prints as the answer of any section: no parser is thrown off."""
    output = path.read_bytes().replace(b"taco-5eed", b"")
    for case in CASES:
        names = re.findall(rb"(?m)^taco-5eed begin (\S+)\r?$", case.read_bytes())
        sections = b"".join(b"taco-5eed begin %s\n%s\ntaco-5eed end %s 0\n" % (name, output, name) for name in names)
        read(b"taco-5eed probe 1 1790000000.000000000\n" + sections + b"taco-5eed done 1790000000.100000000\n")


def test_what_is_simulated_is_told_whatever_was_asked() -> None:
    assert read((FOLDER / "rhel9_sudo_docker_ce.txt").read_bytes()).simulated == ("gpu", "rdma")
    assert isinstance(read((FOLDER / "debian12_docker.txt").read_bytes()).simulated, Absent)
    assert isinstance(read(b"").simulated, Unknown)
