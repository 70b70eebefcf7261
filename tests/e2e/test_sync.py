"""Code by the command line, on this machine: copied, sent once, fetched from a private repository, seen in the record."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from taco_launch.agent.snapshots.store import SnapshotStore
from tests.conftest import Taco
from tests.support import packs
from tests.support.git_server import PASSWORD, USER, git, repository, served

pytestmark = [pytest.mark.e2e, pytest.mark.enable_socket]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "src").mkdir(parents=True)
    (root / "train.sh").write_text('#!/bin/sh\necho "$RANK: $(cat src/data), in ${PWD##*/}, given $GIVEN"\n')
    (root / "train.sh").chmod(0o755)
    (root / "src" / "data").write_text("data")
    (root / "left.pyc").write_text("left out")
    (root / ".gitignore").write_text("*.pyc\n")
    return root


def run(taco: Taco, *words: str) -> list[str]:
    done = taco("run", "-q", "-H", "localhost:2", "--np", "2", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(line.partition(" | ")[2] for line in done.stdout.splitlines())


def copied(taco: Taco, name: str) -> dict[str, Any]:
    return next(event["data"] for event in taco.job(name)["events"] if event["kind"] == "copied")


def test_ranks_start_in_a_copy_of_the_folder(taco: Taco, tree: Path, tmp_path: Path) -> None:
    (tmp_path / "job.env").write_text("GIVEN=by a file\n")
    words = ("--sync", str(tree), "--env-file", str(tmp_path / "job.env"))
    told = ["0: data, in code, given by a file", "1: data, in code, given by a file"]
    assert run(taco, "--name", "one", *words, "--", "./train.sh") == told
    (tree / "src" / "data").write_text("changed")
    assert run(taco, "--name", "two", *words, "--", "./train.sh") == [line.replace("data", "changed") for line in told]
    assert run(taco, "--name", "three", *words, "--workdir", "src", "--", "ls") == ["data", "data"]
    ids = [taco.job(name)["spec"]["code"]["id"] for name in ("one", "two", "three")]
    assert ids[0] != ids[1] == ids[2]
    shown = taco("get", "two").stdout
    assert f"CODE: {tree}, 3 files, " in shown
    assert f"snapshot {ids[1][:12]}" in shown
    assert len(list((taco.state / "snapshots" / "packs").glob("[0-9a-f]*"))) == 2
    assert list(taco.folder("two").glob("code/*")) == []


def test_what_ranks_write_stays_until_the_job_is_deleted(taco: Taco, tree: Path) -> None:
    run(taco, "--name", "writes", "--sync", str(tree), "--", "sh", "-c", "mkdir -p out; echo $RANK >out/$RANK")
    left = sorted(path.name for path in taco.folder("writes").glob("code/**/*") if path.is_file())
    assert left == ["0", "1"]
    assert taco("delete", "writes").returncode == 0
    assert not taco.folder("writes").exists()


def test_a_job_file_and_its_paths(taco: Taco, tree: Path) -> None:
    (tree / "job.env").write_text("GIVEN=beside the file\n")
    job = {"command": "./train.sh", "sync": ".", "envFiles": ["job.env"], "configFiles": ["job.env:src/data"], "np": 1}
    (tree / "job.yaml").write_text(json.dumps(job))
    done = taco("run", "-q", "-H", "localhost:2", "-f", str(tree / "job.yaml"), cwd="/")
    assert done.stdout == "localhost/0 | 0: GIVEN=beside the file, in code, given beside the file\n", done.stderr


def test_a_private_repository(taco: Taco, tree: Path, tmp_path: Path) -> None:
    origin = repository(tmp_path / "srv" / "train.git", {"train.sh": (tree / "train.sh").read_text(), "src/data": "v1"})
    (origin / "train.sh").chmod(0o755)
    git(origin, "commit", "-q", "-a", "-m", "run it")
    with served(origin.parent, tmp_path / "tls") as server:
        env = {**taco.env, **server.environment, "GIT_SYNC_USERNAME": USER, "GIT_SYNC_PASSWORD": PASSWORD}
        caller = Taco(taco.state, env)
        url = f"{server.url}/train.git"
        assert run(caller, "--name", "git", "--sync", f"git+{url}@main", "--", "./train.sh")[0].startswith("0: v1")
        arena = ("--sync-mode", "git", "--sync-source", url)
        seen = run(caller, "--name", "arena", *arena, "--", "ls", "code/train")
        assert seen == ["code", "code", "src", "src", "train.sh", "train.sh"]
        # the ranks of no job have it
        told = caller("run", "-q", "-H", "localhost:1", "--np", "1", *arena, "--", "env").stdout
        assert "TACO_LAUNCH_CODE" in told
        assert PASSWORD not in told
    code = taco.job("git")["spec"]["code"]
    assert (code["source"], code["ref"], code["commit"]) == (f"git+{url}", "main", git(origin, "rev-parse", "HEAD"))
    kept = [path for path in taco.state.rglob("*") if path.is_file() and PASSWORD.encode() in path.read_bytes()]
    assert kept == []


def test_a_copy_that_was_tampered_with_is_named_and_sent_again(taco: Taco, tree: Path) -> None:
    run(taco, "--name", "first", "--sync", str(tree), "--", "true")
    for path in (taco.state / "snapshots" / "tree").rglob("data"):
        path.write_text("evil")
    code = taco.job("first")["spec"]["code"]["id"]
    with SnapshotStore(taco.state).open(code) as pack:
        packs.damage(pack, hashlib.sha256(b"data").hexdigest())
    done = taco("run", "-H", "localhost:2", "--np", "1", "--sync", str(tree), "--", "./train.sh")
    assert (done.returncode, done.stdout) == (125, "")  # no rank began
    assert "src/data: " in done.stderr
    assert run(taco, "--sync", str(tree), "--", "./train.sh")[0].startswith("0: data")


def test_what_cannot_be_is_said_before_anything_is_started(taco: Taco, tree: Path) -> None:
    (tree / "data").symlink_to("/mnt/data")
    assert taco("run", "--sync", str(tree), "--", "true").returncode == 2
    (tree / "data").unlink()
    os.mkfifo(tree / "pipe")
    done = taco("run", "-H", "localhost:1", "--np", "1", "--sync", str(tree), "--", "ls")
    assert done.stdout == "localhost/0 | src\nlocalhost/0 | train.sh\n"
    assert taco("run", "--sync", str(tree), "--sync-max", "10", "--", "true").returncode == 2
