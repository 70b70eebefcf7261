"""Every log in `cases/explain` gives the findings beside it: what `taco-launch explain --json` prints for it.

The names with `ompi41` or `ompi50` are what those versions printed in real runs (hosts renamed), the rest short excerpts.
"""

import json
import os
import re
from dataclasses import asdict
from pathlib import Path

import pytest

from taco_launch.core.signatures.known import FailureText
from taco_launch.core.signatures.known.help_topics import HELP_TOPICS
from taco_launch.core.signatures.log_scan import LogScan, explain
from taco_launch.core.signatures.table import TABLE
from tests.support.findings import samples

FOLDER = Path(__file__).parent / "cases"
LOGS = sorted(FOLDER.glob("*.txt"))
CORPUS = os.environ.get("TACO_LAUNCH_CORPUS")
CORPUS_LOGS = sorted(path for path in Path(CORPUS).rglob("*") if path.is_file()) if CORPUS else []


def read(log: Path) -> str:
    return log.read_bytes().decode("utf-8", "replace")


@pytest.mark.parametrize("log", LOGS, ids=lambda path: path.stem)
def test_case(log: Path) -> None:
    """The findings are the same for a log that arrives in pieces, and each quoted text is part of its line."""
    text = read(log)
    found = explain(text.split("\n"))
    assert [asdict(finding) for finding in found] == json.loads(log.with_suffix(".json").read_text("utf-8"))
    for finding in found:  # a value that the log does not have, or a part that was not understood
        for told in (finding.cause, finding.next):
            assert not re.search(r"(?<![\w)])\?|\[\[|\]\]|\|\||\{[a-z]|  ", told), told
    scan = LogScan()
    for begin in range(0, len(text), 7):
        scan.feed(text[begin : begin + 7])
    matches = scan.matches()
    assert tuple(match.finding for match in matches) == found
    lines = text.split("\n")
    for match in matches:
        words = lines[match.finding.line - 1].split()
        assert set(match.text.split()[1:-1]) <= set(words), match
    assert [match.kind for match in matches] == sorted(match.kind for match in matches)


def test_each_case_has_one_expectation_and_no_expectation_is_left_over() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {f"{log.stem}{end}" for log in LOGS for end in (".txt", ".json")}


def test_every_signature_has_a_case() -> None:
    found = {entry["signature"] for log in FOLDER.glob("*.json") for entry in json.loads(log.read_text("utf-8"))}
    found |= {name for path in sorted((FOLDER.parent / "texts").glob("*.txt")) for name, _text in samples(path)}
    assert found | {entry.name for entry in HELP_TOPICS} == {entry.name for entry in TABLE}  # test_help_topics.py


def test_each_signature_is_told_one_way() -> None:
    assert len({entry.name for entry in TABLE}) == len(TABLE)
    names = {entry.name for entry in TABLE}
    for entry in TABLE:
        assert {*entry.unless, *entry.only_with} <= names - {entry.name}
        assert entry.name == entry.name.lower()
        assert entry.cause.endswith((".", ")"))
        assert entry.next
        assert not {entry.kind} & {FailureText.FALLBACK, FailureText.ECHO} or "ssh" not in entry.name


@pytest.mark.skipif(CORPUS is None, reason="cannot: TACO_LAUNCH_CORPUS names no folder of logs")
@pytest.mark.parametrize("log", CORPUS_LOGS, ids=str)
def test_corpus(log: Path) -> None:
    text = read(log)
    for finding in explain(text.splitlines()):
        assert 1 <= finding.line <= text.count("\n") + 1
        assert "?" not in finding.signature
        assert finding.cause
        assert finding.next
