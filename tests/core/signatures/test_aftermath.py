"""A text is why a rank ended only where the rank did hardly anything after it."""

import pytest

from taco_launch.core.signatures.aftermath import Aftermath
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
