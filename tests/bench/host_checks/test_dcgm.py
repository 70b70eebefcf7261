"""Verdicts of DCGM: `dcgmi diag -j` on PATH prints answers of DCGM 3 and 4 (simulated; where each is from, its first line says)."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from taco_launch.bench.host_checks import judge
from taco_launch.bench.host_checks.program import dcgm, gpu_programs
from taco_launch.bench.host_checks.results import MARK, read
from taco_launch.core.facts.reports.health.verdict import FAULT, NOT_POSSIBLE, OK, WARNING, HealthVerdict
from tests.support.shells import tool

ANSWERS = Path(__file__).parent / "dcgm_answers"
PERSISTENCE = (
    "software: GPU 0: Persistence Mode: Persistence mode for GPU 0 is disabled. Enable persistence mode by running"
)
REMAP = "had uncorrectable memory errors and row remapping failed. Run a field diagnostic on the GPU."


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder for programs of a host with two GPUs (simulated), first on PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    return tmp_path


def verdicts(programs: dict[str, Any]) -> list[HealthVerdict]:
    """Return what the controller makes of a host's answer, by way of the job's log."""
    lines = ({"key": ["programs", 0], "values": [], "programs": programs}, {"end": 1})
    measured = read("".join(f"{MARK}{json.dumps(line)}\n" for line in lines), ["gpu1"])
    ((_host, found),) = judge.verdicts(measured, ["gpu1"], {})
    return [each for each in found if each.name == "DCGM diag"]


@pytest.mark.parametrize(
    ("answer", "code", "expected"),
    [
        (
            "dcgm4_persistence",
            226,
            [(WARNING, PERSISTENCE)],
        ),
        (
            "dcgm4_memory",
            226,
            [
                (
                    FAULT,
                    "memory: GPU 1: Detected 7 volatile double-bit ECC error(s) in GPU 1. Drain the GPU and reset it or reboot the node.",
                ),
                (NOT_POSSIBLE, "pcie: GPU 0, GPU 1: Skip; Test PCIe was skipped."),
                (OK, "software passed"),
            ],
        ),
        (
            "dcgm4_allocation",
            0,
            [(WARNING, "memory: GPU 0: Couldn't allocate at least 75.0% of GPU memory on GPU 0")],
        ),
        (
            "dcgm3_pass",
            0,
            [
                (
                    OK,
                    "Denylist, NVML Library, CUDA Main Library, Permissions and OS-related Blocks, Persistence Mode, software passed",
                )
            ],
        ),
        (
            "dcgm3_row_remap",
            226,
            [
                (FAULT, f"Page Retirement/Row Remap: GPU 3 {REMAP}"),
                (FAULT, f"GPU Memory: GPU 2, GPU 3: GPU 2 {REMAP}"),
                (OK, "Denylist, PCIe passed"),
            ],
        ),
        (
            "dcgm_not_supported",
            250,
            [
                (
                    NOT_POSSIBLE,
                    "all tests: Error: Diagnostic could not be run because the Tesla recommended driver is not being used.",
                )
            ],
        ),
        # an answer that contradicts its exit code
        ("dcgm3_pass", 226, [(FAULT, "exit code 226, although Denylist")]),
    ],
)
def test_verdicts_of_dcgm(path: Path, answer: str, code: int, expected: list[tuple[str, str]]) -> None:
    tool(path, "dcgmi", f'echo "$*" >{path}/asked; cat {ANSWERS}/{answer}.txt; exit {code}')
    found = verdicts(gpu_programs.programs())
    assert (path / "asked").read_text() == "diag -r 2 -j\n"
    assert [each.level for each in found] == [level for level, _text in expected]
    assert [each.text[: len(text)] for each, (_level, text) in zip(found, expected, strict=True)] == [
        text for _level, text in expected
    ]
    assert [bool(each.hint) for each in found] == [each.level in (FAULT, WARNING) for each in found]


@pytest.mark.parametrize(
    ("prints", "text"),
    [
        ("echo 'Error: unable to establish a connection to the specified host: localhost'; exit 255", "exit code 255"),
        ('echo \'{"DCGM Diagnostic": {"test_cat\'; exit 226', "exit code 226"),
        ("exit 0", "exit code 0: no results"),
        (
            'echo \'{"DCGM Diagnostic": {"test_categories": [7]}}\'',
            "all tests: the answer of dcgmi has an unknown form",
        ),
        ("echo '{\"Something\": {}}'", "all tests: the answer of dcgmi has an unknown form"),
    ],
)
def test_no_answer_or_half_of_one_is_never_ok(path: Path, prints: str, text: str) -> None:
    tool(path, "dcgmi", prints)
    (verdict,) = verdicts(gpu_programs.programs())
    assert (verdict.level, verdict.text[: len(text)]) == (NOT_POSSIBLE, text)


def test_one_that_hangs_is_asked_to_stop(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dcgmi that is killed leaves the test of nv-hostengine running."""
    monkeypatch.setattr(gpu_programs, "PROGRAM_SECONDS", 0.5)
    tool(path, "dcgmi", f"trap 'echo stopped >{path}/stopped; exit 1' TERM; while :; do sleep 0.05; done")
    (verdict,) = verdicts(gpu_programs.programs())
    assert (verdict.level, verdict.text) == (NOT_POSSIBLE, "exit code 124: it had not ended after 0.5 s")
    assert (path / "stopped").exists()


def test_a_status_that_is_not_known_is_not_ok() -> None:
    tests = [{"name": "memory", "results": [{"entity_id": 0, "status": "Pass"}, {"entity_id": 1, "status": "Aborted"}]}]
    text = json.dumps({"DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": tests}]}})
    assert dcgm.rows(text) == [("memory", NOT_POSSIBLE, "GPU 1: Aborted")]
    tests[0]["results"] = []
    text = json.dumps({"DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": tests}]}})
    assert dcgm.rows(text) == [("memory", NOT_POSSIBLE, "it has no results")]
