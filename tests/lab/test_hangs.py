"""A job that hangs across training containers, which may not trace each other's processes but their own: who waits for whom."""

from pathlib import Path

import pytest

from tests.conftest import eventually
from tests.lab.rig import Cluster
from tests.support.patience import patience

# The first test waits for the hosts to be set up.
pytestmark = [pytest.mark.lab, pytest.mark.nightly, pytest.mark.timeout(600)]

PROGRAM = """
import os
import time

print("rank", os.environ["RANK"], flush=True)


def load_batch():
    time.sleep(1000)


def barrier():
    time.sleep(1000)


load_batch() if os.environ["RANK"] == "1" else barrier()
"""


def test_stacks_of_all_hosts_and_a_hang_in_words(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM, encoding="ascii")
    stall = f"{patience(20):.0f}s"
    words = ("--name", "hangs", "--np", "4", "--sync", str(tmp_path), "--stall-timeout", stall, "--grace", "1")
    assert cluster("submit", *words, "--", "python3", "train.py").returncode == 0
    try:
        eventually(lambda: "are in barrier at train.py:" in cluster("stacks", "hangs").stdout, patience(60))
        odd, others = cluster("stacks", "hangs").stdout.split("\n\n")
        assert odd.startswith("rank 1 on gpu1 is in load_batch at train.py:")
        assert others.startswith("ranks 0 on gpu1, 2 on gpu2, 3 on gpu2 are in barrier at train.py:")
        # The hosts of the lab have no Python outside the container, which other launchers' jobs are read with.
        unread = cluster("stacks", "--match", "train.py")
        assert unread.returncode == 5
        assert "gpu[1-2]: the ranks there cannot be read: python3 is required there, and was not found" in unread.stderr
        ended = cluster("wait", "hangs")
        assert ended.returncode == 124
        assert "no rank has made progress since " in ended.stderr
        assert "rank 1 on gpu1 is in load_batch at train.py:" in ended.stderr
    finally:
        cluster("delete", "--yes", "hangs")
