"""Every log in `cases/` gives the sample, or the reason for none, that stands beside it; so do logs from elsewhere."""

import json
import os
from dataclasses import asdict
from pathlib import Path

import pytest

from taco_launch.bench.logs.parse import NoSample, Sample, parse

FOLDER = Path(__file__).with_name("cases")
LOGS = sorted(FOLDER.glob("*.log"))

# A folder of logs that were seen in the field. What is known of them: the total, None where it is no one number.
CORPUS = os.environ.get("TACO_LAUNCH_CORPUS")
CORPUS_LOGS = [path for form in ("horovod_synth*", "tfcnn*") for path in sorted(Path(CORPUS or FOLDER).glob(form))]
KNOWN = {
    "horovod_synth_ack_guide_0.txt": (4, 820.5),
    "horovod_synth_ack_guide_1.txt": (4, 435.2),
    "horovod_synth_ack_guide_2.txt": (4, 1321.9),
    "horovod_synth_ack_guide_3.txt": (4, 1251.8),
    "horovod_synth_mpirun_tagged_totals.txt": None,
    "tfcnn_horovod_total_images.txt": (1, 204.75),
}


@pytest.mark.parametrize("log", LOGS, ids=lambda path: path.stem)
def test_case(log: Path) -> None:
    expected = json.loads(log.with_suffix(".json").read_text("utf-8"))
    found = parse(log.read_bytes().decode())
    if "sample" in expected:
        assert isinstance(found, Sample), found
        assert asdict(found) == expected["sample"]
    else:
        assert isinstance(found, NoSample), found
        for part in expected["no_sample"]:
            assert part in found.why


def test_each_case_has_one_expectation_and_no_expectation_is_left_over() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {f"{log.stem}{end}" for log in LOGS for end in (".log", ".json")}


@pytest.mark.skipif(CORPUS is None, reason="cannot: TACO_LAUNCH_CORPUS names no folder of logs")
@pytest.mark.parametrize("log", CORPUS_LOGS, ids=lambda path: path.name)
def test_corpus(log: Path) -> None:
    found = parse(log.read_text("utf-8", errors="replace"))
    numbers = (found.ranks, found.img_per_sec) if isinstance(found, Sample) else None
    assert numbers == KNOWN.get(log.name, numbers)
    assert not isinstance(found, NoSample) or "line " in found.why


@pytest.mark.skipif(CORPUS is None, reason="cannot: TACO_LAUNCH_CORPUS names no folder of logs")
def test_the_corpus_is_there() -> None:
    assert {log.name for log in CORPUS_LOGS} >= KNOWN.keys()
