"""Each row of the table of Open MPI's help topics answers its own text, as mpirun renders it, and no other row does.

help_topics.txt holds one text for each row, from the help files of Open MPI 4.1.4 and 5.0, PRRTE and PMIx, with values.
"""

import re
from pathlib import Path

import pytest

from taco_launch.core.signatures.known import Signature
from taco_launch.core.signatures.known.help_topics import HELP_TOPICS
from taco_launch.core.signatures.log_scan import explain
from tests.support.findings import names, samples

_FRAME = "-" * 74
SAMPLES = dict(samples(Path(__file__).with_name("help_topics.txt")))


@pytest.mark.parametrize("entry", HELP_TOPICS, ids=lambda entry: entry.name)
def test_a_row_matches_its_own_text_and_no_other(entry: Signature) -> None:
    text = SAMPLES[entry.name]
    matching = [
        row.name for row in HELP_TOPICS if any(key in text for key in row.keys) and re.search(row.pattern, text)
    ]
    assert matching == [entry.name]


@pytest.mark.parametrize("name", SAMPLES)
def test_a_topic_is_answered_with_and_without_its_frame(name: str) -> None:
    text = SAMPLES[name].rstrip("\n")
    assert names(text) == names(f"{_FRAME}\n{text}\n{_FRAME}") == [name]
    (finding,) = explain(text.split("\n"))
    assert not re.search(r"(?<![\w)])\?|\[\[|\{[a-z]", finding.cause + finding.next)


def test_a_topic_does_not_take_a_field_from_the_next_one() -> None:
    first = SAMPLES["mpirun-host-not-allocated"].split("\n")[0]
    (finding,) = explain([first, _FRAME, "Something else happened.", "  Host: gpu2"])
    assert finding.host == ""
