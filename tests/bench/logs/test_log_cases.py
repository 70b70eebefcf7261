"""Every log gives what the JSON file beside it expects: readings, a sample, or the reason for none; so do logs from elsewhere."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from taco_launch.bench.logs import nccl_tests, perftest
from taco_launch.bench.logs.parse import NoSample, Sample, parse

HERE = Path(__file__).parent
LOGS = {name: sorted((HERE / name).glob("*.log")) for name in ("cases", "nccl_tests", "perftest")}

# A folder of logs that were seen in the field. What is known of them: the total, None where it is no one number.
CORPUS = os.environ.get("TACO_LAUNCH_CORPUS")
CORPUS_LOGS = [path for form in ("horovod_synth*", "tfcnn*") for path in sorted(Path(CORPUS or HERE).glob(form))]
KNOWN = {
    "horovod_synth_ack_guide_0.txt": (4, 820.5),
    "horovod_synth_ack_guide_1.txt": (4, 435.2),
    "horovod_synth_ack_guide_2.txt": (4, 1321.9),
    "horovod_synth_ack_guide_3.txt": (4, 1251.8),
    "horovod_synth_mpirun_tagged_totals.txt": None,
    "tfcnn_horovod_total_images.txt": (1, 204.75),
}


def read(folder: str, text: str, expected: dict[str, Any]) -> Any:
    if folder == "cases":
        return parse(text)
    if folder == "nccl_tests":
        return nccl_tests.read(text, expected["ranks"])
    assert perftest.speaks(text)
    return perftest.read(text)


@pytest.mark.parametrize(
    "log", [log for logs in LOGS.values() for log in logs], ids=lambda path: f"{path.parent.name}/{path.stem}"
)
def test_case(log: Path) -> None:
    expected = json.loads(log.with_suffix(".json").read_text("utf-8"))
    found = read(log.parent.name, log.read_bytes().decode(), expected)
    if "sample" in expected:
        assert isinstance(found, Sample), found
        assert asdict(found) == expected["sample"]
    elif "readings" in expected:
        assert not isinstance(found, NoSample), found
        assert [[reading.metric.name, reading.value] for reading in found] == expected["readings"]
        of_nccl_tests = log.parent.name == "nccl_tests"
        kind = ("GB/s", True) if of_nccl_tests else (expected["unit"], expected["higher_is_better"])
        assert {(reading.metric.unit, reading.metric.higher_is_better) for reading in found} == {kind}
    else:
        assert isinstance(found, NoSample), found
        assert [part for part in expected["no_sample"] if part not in found.why] == []


@pytest.mark.parametrize("folder", LOGS)
def test_each_case_has_one_expectation_and_no_expectation_is_left_over(folder: str) -> None:
    expected = {f"{log.stem}{end}" for log in LOGS[folder] for end in (".log", ".json")}
    assert {path.name for path in (HERE / folder).iterdir()} == expected


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
