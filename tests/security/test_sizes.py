"""What names, counts and rows in answers of hosts may cost: a fourth attack, M1 to M4, M6, L2, L3, L7, L8."""

import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from taco_launch.agent.host import processes, slot_holders
from taco_launch.agent.rank import wrapper
from taco_launch.agent.supervisor import teardown
from taco_launch.cli.output.render import columns
from taco_launch.core.facts.rdma.peermem import dmabuf
from taco_launch.core.facts.system.disks import disk
from taco_launch.core.model.codec import to_json
from taco_launch.core.model.host.fact_value import Unknown
from taco_launch.core.model.job_counts import JobCounts, WaitTimes
from taco_launch.core.protocol.calls import reply_of
from taco_launch.core.protocol.calls.job_list import Counted
from taco_launch.hosts.inventory.ranges import fold

assert Counted.op == "counted"  # imported, so that its replies are known
SCRIPTS = Path(__file__).parents[2] / "taco_launch" / "setup" / "scripts"


@pytest.mark.parametrize("name", ["gpu[1-999999999]", "gpu[1-", "a,b", "@all", "a!b", "gpu" + "9" * 5000, ""])
def test_a_host_of_any_name_is_folded(name: str) -> None:
    assert fold(["n1", name, "n2"]) == f"n[1-2],{name}"


def test_one_long_cell_is_not_every_rows() -> None:
    text = columns(("NAME", "STATE"), [["x" * 100_000, "a"], *[["y", "b"]] * 100])
    assert len(text) < 150_000


def test_a_row_of_many_words() -> None:
    row = " ".join(["1"] * 300_000)
    assert isinstance(disk(f"Filesystem Type 1024-blocks Used Available Capacity Mounted on\n{row}\n"), Unknown)


def test_a_kernel_of_many_digits() -> None:
    assert isinstance(dmabuf("9" * 5000 + ".1", "NVIDIA"), Unknown)


@pytest.mark.parametrize(
    "removed",
    [
        {"created": -5},
        {"created": 10**400},
        {"waits": [to_json(WaitTimes("q", 1.0, (1, 2)))]},
        {"waits": [{**to_json(WaitTimes("q")), "seconds": -1.0}]},
    ],
)
def test_counts_that_no_jobs_have(removed: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"counts that no jobs have|a wait that no job has had"):
        reply_of({"op": "counted", "rows": [], "removed": {**to_json(JobCounts()), **removed}, "last": ""})


def test_records_of_many_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root in a container may give its files to any user: of many, few are read, and root's with them."""
    looked: list[int] = []
    monkeypatch.setattr(slot_holders, "_read", lambda _path, uid: looked.append(uid))
    for uid in (0, 0x7FFF, *range(100_000, 101_000)):
        (tmp_path / f"slot-0.{uid}").touch()
    monkeypatch.setattr(os, "geteuid", lambda: 0x7FFF)
    assert slot_holders.read(tmp_path, ["slot-0"]) == {}
    assert looked[:2] == [0x7FFF, 0]
    assert len(looked) == slot_holders._MOST_USERS + 1


def test_files_with_the_inodes_of_locked_ones_do_not_hide_a_job(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.touch()
    holder = subprocess.Popen(["flock", "--close", lock, "sleep", "60"])
    try:
        script = (
            f". {SCRIPTS}/idle.sh\n"
            'until grep -q ":$(stat -c %i "$1") " /proc/locks; do sleep 0.05; done\n'
            'for number in $(seq 1001); do echo "$(stat -c "%d %i" "$1") $2/$number"; done | idle_locked 1000 "$2" | tail -n 1\n'
        )
        done = subprocess.run(["sh", "-c", script, "sh", lock, tmp_path], capture_output=True, text=True, check=True)
        assert done.stdout == "more\n"
    finally:
        holder.kill()
        holder.wait()


def test_a_job_that_leaves_more_and_more_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teardown, "GUARD_SECONDS", 0.0)
    monkeypatch.setattr(processes, "lives", lambda *_: True)
    monkeypatch.setattr(processes, "end", lambda *_: processes.ProcessScan(()))
    numbers = iter(range(1000, 2000))
    left = teardown.end_here("job", None, lambda: [[next(numbers), 1]], [])
    assert left.left, "what came last"


def test_a_descriptor_that_is_none_is_not_handed_on() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert wrapper._inherited({"PMI_FD": str(ours.fileno())}) == (ours.fileno(),)
        number = ours.fileno()
    assert wrapper._inherited({"PMI_FD": str(number)}) == ()
    assert wrapper._inherited({"PMI_FD": "0" * 5000}) == wrapper._inherited({}) == ()
