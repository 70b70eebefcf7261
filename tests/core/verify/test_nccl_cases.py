"""Captured logs of NCCL, each held against a plan: `cases/NAME.txt`, with its source, the plan and the verdict in `NAME.json`.

The logs are short excerpts of public ones, so none of them is enough for True: `test_compare.py` has whole ones.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from taco_launch.core.model.run.observed import SeenRun
from taco_launch.core.model.run.planned import NcclPlan, PlannedHost, PlannedTransport, RunPlan
from taco_launch.core.verify.compare import verify
from taco_launch.core.verify.nccl_log import parse

FOLDER = Path(__file__).parent / "cases"
CASES = sorted(FOLDER.glob("*.json"))


def planned(told: Any) -> RunPlan:
    """Return the plan of a case; each host has the next ranks."""
    hosts, begin = [], 0
    for host in told["hosts"]:
        ranks = tuple(range(begin, begin + host["ranks"]))
        begin += host["ranks"]
        hcas = tuple(host["hcas"]) if "hcas" in host else None
        hosts.append(PlannedHost(host["name"], ranks, hcas=hcas, interface=host.get("interface")))
    nccl = NcclPlan(PlannedTransport(told["transport"]), told["gdr"], told["one_world"])
    return RunPlan(tuple(hosts), nccl)


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_case(case: Path) -> None:
    expected = json.loads(case.read_text("utf-8"))
    found = verify(planned(expected["plan"]), SeenRun(nccl=parse(case.with_suffix(".txt").read_text("utf-8"))))
    assert found.status.value == expected["status"], found.why
    if "mismatch" in expected:
        assert found.mismatch is not None
        told = expected["mismatch"]
        assert (found.mismatch.kind, found.mismatch.host, found.mismatch.rank, found.mismatch.seen) == (
            told["kind"],
            told["host"],
            told["rank"],
            told["seen"],
        )
        assert found.mismatch.cause
        assert found.mismatch.next_step


def test_each_case_has_a_log_a_source_and_nothing_is_left_over() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {case.stem + end for case in CASES for end in (".json", ".txt")}
    assert all(json.loads(case.read_text("utf-8"))["source"] for case in CASES)
    assert len(CASES) > 12 + 15
