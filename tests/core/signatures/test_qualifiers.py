"""What stands near a known text replaces its words: each qualifier is reached by a case, and only what its own rank or host says counts."""

import re
from pathlib import Path

import pytest

from taco_launch.core.signatures.known import Qualifier
from taco_launch.core.signatures.lines import NEAR
from taco_launch.core.signatures.log_scan import LogScan, explain
from taco_launch.core.signatures.match import ENTRIES
from taco_launch.core.signatures.qualifiers import QUALIFIERS

CASES = Path(__file__).parent / "cases"
EVERY = [
    pytest.param(name, one, id=f"{name}-{number}")
    for name, rows in QUALIFIERS.items()
    for number, one in enumerate(rows)
]
TIMED_OUT = "[rank{rank}]:[E ProcessGroupNCCL.cpp:1] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLGATHER) ran."
SAVING = "INFO: Saving FSDP model"
SAVED = "while the program saved a checkpoint"


def parts(text: str) -> list[str]:
    """Return what a text of the table says before, between and after its values."""
    return [part for part in re.split(r"\[\[.*?\]\]|\{\w+\}", text) if part.strip(" .():")]


@pytest.mark.parametrize(("name", "one"), EVERY)
def test_a_qualifier_is_of_a_signature(name: str, one: Qualifier) -> None:
    assert name in ENTRIES
    assert one.cause.endswith((".", ")"))


@pytest.mark.parametrize(("name", "one"), EVERY)
def test_a_qualifier_has_a_case(name: str, one: Qualifier) -> None:
    answers = [path.read_text("utf-8").replace('\\"', '"') for path in CASES.glob("*.json")]
    assert any(f'"{name}"' in answer and all(part in answer for part in parts(one.cause)) for answer in answers)


@pytest.mark.parametrize(
    ("lines", "saved"),
    [
        ([SAVING, TIMED_OUT.format(rank=2)], True),
        ([f"[rank2]: {SAVING}", TIMED_OUT.format(rank=2)], True),
        ([f"[rank1]: {SAVING}", TIMED_OUT.format(rank=2)], False),
        ([SAVING, *["step"] * (NEAR - 1), TIMED_OUT.format(rank=2)], True),
        ([SAVING, *["step"] * NEAR, TIMED_OUT.format(rank=2)], False),
    ],
)
def test_only_what_is_near_and_of_the_same_rank_counts(lines: list[str], saved: bool) -> None:
    (finding,) = explain(lines)
    assert (SAVED in finding.cause) is saved


def test_lines_above_the_block_that_is_read_count() -> None:
    """The lines above a text may have been read, and let go of, before it."""
    scan = LogScan()
    scan.feed("step\n" * 60_000)
    scan.feed(f"{SAVING}\n" + "step\n" * 3)
    scan.begin()
    scan.feed(f"{TIMED_OUT.format(rank=2)}\n")
    assert [SAVED in finding.cause for finding in scan.findings()] == [False]  # those of another log do not
    scan = LogScan()
    scan.feed(f"{SAVING}\n" + "step\n" * 3)
    assert scan.findings() == ()
    scan.feed(f"{TIMED_OUT.format(rank=2)}\n")
    assert [SAVED in finding.cause for finding in scan.findings()] == [True]


def test_the_advice_on_communication_needs_a_line_of_torch_or_nccl() -> None:
    error = "ConfigError: no such group"
    assert ["NCCL_DEBUG" in finding.next for finding in explain([error])] == [False]
    assert ["NCCL_DEBUG" in finding.next for finding in explain(["gpu1:1:1 [0] NCCL INFO Bootstrap", error])] == [True]
