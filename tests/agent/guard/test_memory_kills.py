"""Who killed a rank: what its cgroup counts, in both versions, and where nothing can be read."""

from pathlib import Path

import pytest

from taco_launch.agent.guard import memory_kills
from taco_launch.agent.guard.memory_kills import MemoryKills

V1 = "5:cpu:/x\n4:memory:/docker/abc\n0::/\n"


@pytest.mark.parametrize(
    ("cgroup", "folder", "files", "has"),
    [
        ("0::/\n", "", ("memory.events", "memory.max"), "may use 2 GiB"),
        ("0::/job.slice/a\n", "job.slice/a", ("memory.events", "memory.max"), "may use 2 GiB"),
        (V1, "memory/docker/abc", ("memory.oom_control", "memory.limit_in_bytes"), "may use 2 GiB"),
        (
            V1,
            "memory",
            ("memory.oom_control", "memory.limit_in_bytes"),
            "has no limit of its own: a parent cgroup reached its limit, or the host ran out of memory",
        ),
    ],
)
def test_kills_are_counted(
    cgroup: str, folder: str, files: tuple[str, str], has: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_kills, "_PROC", tmp_path / "proc")
    monkeypatch.setattr(memory_kills, "_ROOT", tmp_path / "cgroup")
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/cgroup").write_text(cgroup)
    place = tmp_path / "cgroup" / folder
    place.mkdir(parents=True)
    events = place / files[0]
    events.write_text("oom 3\noom_kill 3\n")
    (place / files[1]).write_text(f"{2 << 30}\n" if "2 GiB" in has else "9223372036854771712\n")
    (tmp_path / "proc/vmstat").write_text("nr_free_pages 9\noom_kill 5\n")
    kills = MemoryKills()
    kills.begin(1, 7)
    assert kills.killed(1).startswith("by a process or a user, not because memory ran out")
    (tmp_path / "proc/vmstat").write_text("nr_free_pages 9\noom_kill 6\n")
    assert kills.killed(1) == ""  # in another cgroup: the rank may have moved there
    events.write_text("oom 4\noom_kill 4\n")
    assert kills.killed(1) == f"by the kernel, because memory ran out: its cgroup {has}"
    events.unlink()
    assert kills.killed(1) == ""


def test_a_limit_above_the_cgroup_of_the_rank_is_the_one_that_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_kills, "_PROC", tmp_path / "proc")
    monkeypatch.setattr(memory_kills, "_ROOT", tmp_path / "cgroup")
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/cgroup").write_text("0::/job.slice/a/b\n")
    rank = tmp_path / "cgroup/job.slice/a/b"
    rank.mkdir(parents=True)
    for folder, limit in ((rank, "max"), (rank.parent, f"{8 << 30}"), (rank.parent.parent, f"{3 << 30}")):
        (folder / "memory.max").write_text(f"{limit}\n")
    (rank / "memory.events").write_text("oom_kill 0\n")
    kills = MemoryKills()
    kills.begin(1, 7)
    (rank / "memory.events").write_text("oom_kill 1\n")
    assert kills.killed(1) == "by the kernel, because memory ran out: its cgroup may use 3 GiB"


@pytest.mark.parametrize("cgroup", ["", "0::/../../other\n", "nonsense\n", "0::/\n"])
def test_what_cannot_be_read_is_not_known(cgroup: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_kills, "_PROC", tmp_path)
    monkeypatch.setattr(memory_kills, "_ROOT", tmp_path / "cgroup")
    (tmp_path / "7").mkdir()
    (tmp_path / "7/cgroup").write_text(cgroup)
    kills = MemoryKills()
    kills.begin(1, 7)
    assert (kills.killed(1), kills.killed(2)) == ("", "")
