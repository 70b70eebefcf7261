"""facts: captured outputs as a user hands them in, and this machine; what is wrong is said, and nothing is lost."""

import json
import os
from pathlib import Path

import pytest

from tests.conftest import Taco

TOPO = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV2\t0-7\nGPU1\tNV2\t X \t0-7\n"
GIDS = """DEV\tPORT\tINDEX\tGID\t\t\t\t\tIPv4  \t\tVER\tDEV
---\t----\t-----\t---\t\t\t\t\t------------  \t---\t---
mlx5_0\t1\t2\t0000:0000:0000:0000:0000:ffff:0a00:0001\t10.0.0.1  \tv1\tbond0
mlx5_0\t1\t3\t0000:0000:0000:0000:0000:ffff:0a00:0001\t10.0.0.1  \tv2\tbond0
n_gids_found=2
"""


@pytest.fixture
def captures(tmp_path: Path) -> Path:
    folder = tmp_path / "captures"
    folder.mkdir()
    (folder / "topo.txt").write_text(TOPO)
    return folder


def test_a_captured_topology(taco: Taco, captures: Path) -> None:
    done = taco("facts", "--from", str(captures / "topo.txt"), "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["topology"]["links"] == [["X", "NV2"], ["NV2", "X"]]
    assert (told["topology"]["gpus"], told["topology"]["nics"]) == (["GPU0", "GPU1"], [])
    assert "1x NV2" in taco("facts", "--from", str(captures / "topo.txt")).stdout


def test_standard_input(taco: Taco) -> None:
    done = taco("facts", "--from", "-", "--json", input=GIDS)
    assert json.loads(done.stdout)["gid"] | {"why": ""} == {"hca": "mlx5_0", "port": 1, "gid_index": 3, "why": ""}
    assert "GID index: 3 on mlx5_0:1" in taco("facts", "--from", "-", input=GIDS).stdout


def test_nothing_is_understood(taco: Taco, captures: Path) -> None:
    (captures / "hello.txt").write_text("hello\n")
    for more in ((), ("--json",)):
        done = taco("facts", "--from", str(captures / "hello.txt"), *more)
        assert done.returncode == 1
        assert "warning: hello.txt: " in done.stderr
        assert "error: nothing that was captured is understood" in done.stderr
    assert [entry["where"] for entry in json.loads(done.stdout)["unknown"]] == ["hello.txt"]


def test_odd_files_beside_captures_are_named_and_passed_over(taco: Taco, captures: Path) -> None:
    (captures / "gone").symlink_to("no such file")
    os.mkfifo(captures / "pipe")
    done = taco("facts", "--from", str(captures), "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["topology"]["gpus"] == ["GPU0", "GPU1"]
    assert {entry["where"]: entry["reason"] for entry in told["unknown"]} == {
        "gone": "No such file or directory",
        "pipe": "is no regular file",
    }
    assert "warning: pipe: is no regular file" in done.stderr


def test_only_what_is_asked_for_of_captures(taco: Taco, captures: Path) -> None:
    done = taco("facts", "--from", str(captures), "--only", "gpu", "--json")
    assert (done.returncode, json.loads(done.stdout)["topology"]) == (1, None)


@pytest.mark.parametrize("words", [("gpu1",), ("--container", "train")])
def test_captures_or_hosts(taco: Taco, captures: Path, words: tuple[str, ...]) -> None:
    done = taco("facts", "--from", str(captures), *words)
    assert (done.returncode, "--from: captured outputs are read, or hosts are asked" in done.stderr) == (2, True)


def test_a_file_that_is_not_there(taco: Taco) -> None:
    done = taco("facts", "--from", "/no/such/file")
    assert (done.returncode, "/no/such/file" in done.stderr) == (2, True)


def test_a_subject_that_is_none(taco: Taco) -> None:
    done = taco("facts", "--only", "gpus")
    assert (done.returncode, "they are system, network, docker, gpu" in done.stderr) == (2, True)


def test_this_machine_without_a_terminal_or_standard_input(taco: Taco) -> None:
    done = taco("facts", "--only", "system", "--json", stdin=None, preexec_fn=lambda: os.close(0))
    assert done.returncode == 0, done.stderr
    (host,) = json.loads(done.stdout)["hosts"]
    assert host["system"]["kernel"] == os.uname().release
    asked = taco("facts", "--ask-sudo-password", input="")
    assert (asked.returncode, "there is no terminal to ask on" in asked.stderr) == (2, True)
