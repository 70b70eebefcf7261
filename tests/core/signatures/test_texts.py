"""Each text in `texts` is answered with the row whose name stands above it, and no such row fires on a healthy log.

There is a file for each source; its texts are what that source prints, with values.
"""

import json
import re
from pathlib import Path

import pytest

from taco_launch.core.signatures.log_scan import LogScan, explain
from taco_launch.core.signatures.match import ENTRIES
from tests.support.findings import names, samples

FOLDER = Path(__file__).parent
SAMPLES = [
    pytest.param(name, text, id=f"{path.stem}-{name}")
    for path in sorted((FOLDER / "texts").glob("*.txt"))
    for name, text in samples(path)
]
HEALTHY = [
    log.with_suffix(".txt")
    for log in sorted((FOLDER / "cases").glob("*.json"))
    if not json.loads(log.read_text("utf-8"))
]


@pytest.mark.parametrize(("name", "text"), SAMPLES)
def test_a_text_is_answered_by_its_row(name: str, text: str) -> None:
    assert names(text) == [name]
    (finding,) = explain(text.split("\n"))
    assert not re.search(r"(?<![\w)])\?|\[\[|\]\]|\|\||\{[a-z]|  ", finding.cause + finding.next)


def test_no_row_fires_on_a_healthy_log() -> None:
    """Also where the job is known to have failed, of which only a warning may be the reason."""
    rows = {sample.values[0] for sample in SAMPLES if not ENTRIES[str(sample.values[0])].at_end}
    assert len(HEALTHY) > 5
    for log in HEALTHY:
        scan = LogScan(failed=True)
        scan.feed(log.read_text("utf-8", "replace"))
        assert not rows & {finding.signature for finding in scan.findings()}, log


def test_a_warning_alone_is_no_failure() -> None:
    """Of the texts that a run may survive, none is told where the run goes on."""
    for sample in SAMPLES:
        name, text = sample.values
        if ENTRIES[str(name)].at_end:
            assert names(f"{text}\n" + "step\n" * 30) == [], name
