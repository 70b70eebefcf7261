"""A text is why a rank ended only where the rank did hardly anything after it."""

import pytest

from taco_launch.core.signatures.aftermath import Aftermath, without_handled
from taco_launch.core.signatures.known import FailureText
from taco_launch.core.signatures.log_scan import LogScan

STEPS = [f"step {number} loss 0.{number}" for number in range(400)]
HALVED = "INFO caught CUDA out of memory. Tried to allocate 20 MiB - halving batch"
OUT = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20 MiB"
MISSING = "ModuleNotFoundError: No module named 'apex'"
ASSERT = ["Traceback (most recent call last):", '  File "t.py", line 1, in <module>', "AssertionError"]
CAUGHT = ["Traceback (most recent call last):", '  File "t.py", line 1, in <module>', "ValueError: mine"]
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."


@pytest.mark.parametrize(
    ("lines", "exit_code", "explains"),
    [
        ([OUT], 1, True),
        ([OUT, *STEPS[:20]], 1, True),  # the rest of its message, what handlers say
        ([OUT, *STEPS[:21]], 1, False),
        ([OUT, "wandb: synced", "  frame #0", *["[E ProcessGroup] error"] * 50], 1, True),
        ([OUT, *STEPS[:5]], 137, True),
        ([OUT, *STEPS[:6]], 137, False),
        ([MISSING], 3, True),
        ([MISSING, "bye"], 3, False),
        ([MISSING, *STEPS[:2], *ASSERT], 1, True),
        ([MISSING, *STEPS[:3], *ASSERT], 1, False),
        ([HALVED], 137, False),
        (["WARNING: CUDA out of memory"], 1, True),
        (["WARNING: CUDA out of memory", "bye"], 1, False),
        ([*STEPS, *CAUGHT], 1, True),
        ([*CAUGHT, "final: too low"], 4, False),
        ([XID, *STEPS[:200]], 137, True),
        ([XID, *STEPS[:201]], 137, False),
        ([OUT, "  3%|#  | 1/30", *["100%|###| 30/30"] * 21], 1, False),
    ],
)
def test_what_explains_an_end(lines: list[str], exit_code: int, explains: bool) -> None:
    scan = LogScan(failed=True)
    scan.feed("\n".join(lines))
    assert Aftermath("\n".join(lines), 1, exit_code).explains(scan.matches()[0]) is explains


GOOD = "training finished successfully, exit 0"
EXITED = ["  Process name: [[17350,1],3]", "  Exit code:    1"]


@pytest.mark.parametrize(
    ("lines", "is_failure"),
    [
        ([*CAUGHT, "falling back to mirror 2", *STEPS[:9], GOOD], False),
        ([*CAUGHT, "falling back to mirror 2", OUT, *STEPS[:1], GOOD], False),
        ([OUT, *STEPS, "Training complete."], False),
        ([OUT, *STEPS[:20], "job 3 exited with code 0"], False),
        (["Error: mirror 1 does not answer", "using mirror 2", GOOD], False),
        ([OUT, *STEPS[:9], GOOD, "WARNING: destroy_process_group() was not called", *STEPS[:4]], False),
        ([OUT, *STEPS[:9]], True),  # no good end
        ([OUT, *STEPS[:9], "training finished unsuccessfully"], True),
        ([OUT, *STEPS[:9], "error: not all ranks finished successfully"], True),
        ([OUT, *STEPS[:9], GOOD, *STEPS[:6]], True),  # something else begins after it
        ([*STEPS, GOOD, OUT], True),
        ([*STEPS, *CAUGHT, "Training complete."], True),  # a batch script's words, whatever its program did
        ([f"[rank3]: {line}" for line in CAUGHT] + ["copying results", GOOD], True),
        ([OUT, *STEPS[:9], *EXITED, "copying results", GOOD], True),
        ([XID, *STEPS, GOOD], True),  # no error of the program
    ],
)
@pytest.mark.parametrize("newline", ["", "\n"])
def test_an_error_before_a_good_end_is_no_failure(lines: list[str], newline: str, *, is_failure: bool) -> None:
    scan = LogScan()
    scan.feed("\n".join(lines) + newline)
    matches = scan.matches()
    assert matches
    told = without_handled(matches, "\n".join(lines[-50:]) + newline, scan.lines)
    assert any(match.kind < FailureText.NOTE for match in told) is is_failure
    assert is_failure == all("may have handled it" not in match.finding.cause for match in told)
