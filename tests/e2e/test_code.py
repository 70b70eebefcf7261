"""Code on several hosts: brought to the head once, from there from host to host, checked on each before a rank starts."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from taco_launch.agent.snapshots.store import SnapshotStore
from taco_launch.core.model.jobs import CodeSnapshot, Policy, Restart
from taco_launch.jobs.code import config_files, snapshot
from taco_launch.jobs.code.snapshot import Snapshot
from taco_launch.jobs.code.tree_walk import walk
from tests.conftest import eventually
from tests.e2e.cluster import NAMES, STATE, Cluster
from tests.support import packs
from tests.support.patience import patience

pytestmark = pytest.mark.e2e


class Sender:
    """Brings trees to the head."""

    def __init__(self, cluster: Cluster, cache: Path) -> None:
        self._store = SnapshotStore(cluster.path(STATE))
        self._cache = cache

    def code(self, tree: Path | None, config: Sequence[str] = (), at: str = "") -> tuple[Snapshot, CodeSnapshot]:
        files = config_files.read(config, "--config-file", has_tree=tree is not None)
        taken = snapshot.take(None if tree is None else walk(str(tree), print), files, self._cache)
        found = CodeSnapshot(taken.id, "" if tree is None else str(tree), bytes=taken.manifest.bytes, at=at)
        return taken, found

    def send(self, tree: Path | None, config: Sequence[str] = (), at: str = "") -> CodeSnapshot:
        taken, found = self.code(tree, config, at)
        self.bring(taken)
        return found

    def bring(self, taken: Snapshot) -> None:
        """Have the head keep what it lacks of a snapshot."""
        packs.keep_taken(self._store, taken)


@pytest.fixture(scope="module", autouse=True)
def _mesh(cluster: Cluster) -> None:
    """Have every host reach the others by ssh, as set-up has it."""
    for on in range(len(NAMES)):
        cluster.sh(f"mkdir -p ~root/.ssh && cp {cluster.made.ssh_config} ~root/.ssh/config", on=on)


@pytest.fixture
def sender(cluster: Cluster, tmp_path: Path) -> Sender:
    return Sender(cluster, tmp_path / "cache")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "src").mkdir(parents=True)
    (root / "train.sh").write_text('#!/bin/sh\necho "$RANK $(pwd) $(cat src/data) $(cat link)"\n')
    (root / "train.sh").chmod(0o755)
    (root / "src" / "data").write_text("some data")
    (root / "link").symlink_to("src/data")
    (root / "large").write_bytes(os.urandom(9 << 20))
    return root


def test_ranks_start_in_their_code(cluster: Cluster, name: str, sender: Sender, tree: Path) -> None:
    job = cluster.run(cluster.spec(name, "./train.sh", code=sender.send(tree)))
    assert (job["state"], job["exit_code"]) == ("SUCCEEDED", 0), job
    folder = f"{STATE}/jobs/{name}/code"
    assert sorted(cluster.log(name)) == [
        f"n{rank // 2 + 1}/{rank} | {rank} {folder} some data some data" for rank in range(6)
    ]


def test_an_unchanged_tree_costs_nothing_and_one_changed_file_little(
    cluster: Cluster, name: str, sender: Sender, tmp_path: Path
) -> None:
    root = tmp_path / "tree"
    for number in range(200):
        path = root / f"part{number % 20}" / f"file{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(1 << 20))
    first = f"{name[:40]}-first"
    assert cluster.run(cluster.spec(first, "true", code=sender.send(root)))["state"] == "SUCCEEDED"
    (root / "part3" / "file3").write_bytes(os.urandom(700_000))
    code = sender.send(root)
    job = cluster.run(cluster.spec(name, "sha256sum", "part3/file3", code=code))
    assert job["state"] == "SUCCEEDED", job
    assert len({line.split(" | ")[1] for line in cluster.log(name)}) == 1
    assert copied_bytes(cluster, name) == [2 * 700_000]
    before = [len(kept_packs(cluster, on)) for on in range(len(NAMES))]
    again = f"{name[:40]}-again"
    assert cluster.run(cluster.spec(again, "true", code=code))["state"] == "SUCCEEDED"
    assert copied_bytes(cluster, again) == [0]
    assert before == [len(kept_packs(cluster, on)) for on in range(len(NAMES))]
    for each in (first, again):
        cluster.call("delete", names=[each])


def kept_packs(cluster: Cluster, on: int) -> list[Path]:
    return [path for path in cluster.path(f"{STATE}/snapshots/packs", on).iterdir() if len(path.name) == 64]


def damage(cluster: Cluster, taken: Snapshot, on: int, *contents: str) -> None:
    """Damage contents of a snapshot, by default all, where a host keeps it."""
    with SnapshotStore(cluster.path(STATE, on)).open(taken.id) as pack:
        packs.damage(pack, *contents)


def copied_bytes(cluster: Cluster, name: str) -> list[int]:
    """The bytes that hosts took from one another for each attempt of a job."""
    events = cluster.call("get", name=name)[0]["job"]["events"]
    return [event["data"]["bytes"] for event in events if event["kind"] == "copied"]


@pytest.mark.parametrize("on", [1, 2])
def test_a_damaged_copy_of_a_host_is_fetched_again(
    cluster: Cluster, name: str, sender: Sender, tree: Path, on: int
) -> None:
    taken, code = sender.code(tree)
    sender.bring(taken)
    assert cluster.run(cluster.spec(name, "true", code=code))["state"] == "SUCCEEDED"
    cluster.call("delete", names=[name])
    cluster.sh(f"rm -rf {STATE}/snapshots/tree", on=on)  # else its files are right, and nothing is copied
    damage(cluster, taken, on, *(file.content for file in taken.manifest.files if file.path == "large"))
    job = cluster.run(cluster.spec(name, "sha256sum", "large", code=code))
    assert job["state"] == "SUCCEEDED", job
    assert (
        f"{NAMES[on]}: large: the copy on this host was damaged, so a new copy was fetched from n1" in job["warnings"]
    )
    assert len({line.split(" | ")[1] for line in cluster.log(name)}) == 1


def test_a_damaged_copy_of_the_head_is_named_and_sent_again(
    cluster: Cluster, name: str, sender: Sender, tree: Path
) -> None:
    taken, code = sender.code(tree)
    sender.bring(taken)
    cluster.sh(f"rm -rf {STATE}/snapshots/tree")
    damage(cluster, taken, 0, *(file.content for file in taken.manifest.files if file.path == "src/data"))
    job = cluster.run(cluster.spec(name, "true", code=code))
    assert (job["state"], job["exit_code"]) == ("FAILED", 5), job
    assert "src/data" in job["reason"]
    assert "damaged" in job["reason"]
    cluster.call("delete", names=[name])
    assert not cluster.path(f"{STATE}/snapshots/packs/{code.id}").exists()
    sender.bring(taken)
    assert cluster.run(cluster.spec(name, "true", code=code))["state"] == "SUCCEEDED"


def test_a_host_whose_copies_are_all_damaged_passes_none_on(
    cluster: Cluster, name: str, sender: Sender, tree: Path
) -> None:
    taken, code = sender.code(tree)
    sender.bring(taken)
    two = [host for host in cluster.spec(name, "true").hosts if host.name != "n3"]
    assert cluster.run(cluster.spec(name, "true", code=code, hosts=tuple(two)))["state"] == "SUCCEEDED"
    cluster.call("delete", names=[name])
    cluster.sh(f"rm -rf {STATE}/snapshots", on=2)
    cluster.sh(f"rm -rf {STATE}/snapshots/tree", on=1)
    damage(cluster, taken, 1)
    job = cluster.run(cluster.spec(name, "./train.sh", code=code))
    assert job["state"] == "SUCCEEDED", job
    assert any(
        words.startswith("n2: ") and words.endswith("so a new copy was fetched from n1") for words in job["warnings"]
    )
    assert len(cluster.log(name)) == 6
    assert {line.split(" | ")[1].split()[2] for line in cluster.log(name)} == {"some"}


def test_each_attempt_starts_in_a_clean_copy(cluster: Cluster, name: str, sender: Sender, tree: Path) -> None:
    script = 'test ! -e left-$RANK || exit 9; touch left-$RANK; [ "$TACO_LAUNCH_ATTEMPT" = 2 ]'
    policy = Policy(grace=1.0, restart=Restart.ON_FAILURE, backoff_limit=1, backoff=0.1)
    job = cluster.run(
        cluster.spec(name, "sh", "-c", script, code=sender.send(tree), policy=policy, np=3, slots_per_host=None)
    )
    assert (job["state"], job["attempt"]) == ("SUCCEEDED", 2), job
    # what ranks wrote stays until the job is deleted; the code itself has gone to the next job
    left = {path.name for on in range(len(NAMES)) for path in cluster.path(f"{STATE}/jobs/{name}/code", on).glob("*")}
    assert left == {"left-0", "left-1", "left-2"}


def test_config_files_and_a_place_for_the_code(
    cluster: Cluster, name: str, sender: Sender, tree: Path, tmp_path: Path
) -> None:
    config = tmp_path / "nccl.conf"
    config.write_text("NCCL_DEBUG=WARN\n")
    words = [f"{config}:/run/config/{name}.conf", f"{config}:src/own.conf"]
    code = sender.send(tree, words, at=f"/run/work/code/{name}")
    script = f"pwd; cat /run/config/{name}.conf /run/work/code/{name}/src/own.conf"
    for on in range(len(NAMES)):
        cluster.sh("mkdir -p /run/work", on=on)
    job = cluster.run(cluster.spec(name, "sh", "-c", script, code=code, workdir="/run/work"))
    assert job["state"] == "SUCCEEDED", job
    assert {line.split(" | ")[1] for line in cluster.log(name)} == {"/run/work", "NCCL_DEBUG=WARN"}
    for on in range(len(NAMES)):
        assert not cluster.path("/run/config", on).exists() or not os.listdir(cluster.path("/run/config", on))
    cluster.call("delete", names=[name])
    # what is there stays what it is
    cluster.sh(f"mkdir -p /run/config && echo ours >/run/config/{name}.conf", on=1)
    job = cluster.run(cluster.spec(name, "true", code=code, workdir="/run/work"))
    assert (job["state"], job["exit_code"]) == ("FAILED", 5)
    assert job["reason"].startswith(f"n2: /run/config/{name}.conf: this path already exists")
    assert cluster.path(f"/run/config/{name}.conf", 1).read_text() == "ours\n"


def test_a_folder_that_is_not_there(cluster: Cluster, name: str) -> None:
    job = cluster.run(cluster.spec(name, "pwd", workdir="/run/nowhere"))
    assert (job["state"], job["exit_code"]) == ("FAILED", 5)
    assert "--workdir /run/nowhere: " in job["reason"]


@contextmanager
def copying(cluster: Cluster, sender: Sender, root: Path, name: str, rate: str) -> Iterator[None]:
    """Start a job whose code is on its way for the length of a block; then nothing is left of that."""
    root.mkdir()
    (root / "large").write_bytes(os.urandom(64 << 20))
    policy = Policy(grace=1.0, host_loss_timeout=patience(4))
    spec = cluster.spec(name, "true", code=sender.send(root), policy=policy)
    cluster.sh(f"tc qdisc add dev eth0 root tbf rate {rate} burst 64k latency 50ms")
    try:
        cluster.submit(spec)
        eventually(lambda: cluster.alive("snapshot-serve"), 20)
        yield
    finally:
        cluster.sh("tc qdisc del dev eth0 root")
        cluster.link(1, "up")
    eventually(lambda: not cluster.alive("pyz code /") and not cluster.alive("snapshot-serve"), 30)


def test_a_host_that_fails_while_it_copies(cluster: Cluster, name: str, sender: Sender, tmp_path: Path) -> None:
    """The host is lost, which is an attempt's end like any other; nothing is left of what was on its way."""
    with copying(cluster, sender, tmp_path / "tree", name, "40mbit"):
        cluster.link(1, "down")
        job = cluster.ended(name, 60)
    assert (job["state"], job["reason"].split(":")[0]) == ("LOST", "host n2 lost"), job


def test_a_job_is_stopped_while_it_copies(cluster: Cluster, name: str, sender: Sender, tmp_path: Path) -> None:
    with copying(cluster, sender, tmp_path / "tree", name, "20mbit"):
        cluster.call("stop", names=[name], by="the test", signal=15, grace=None)
        job = cluster.ended(name, 15)
    assert (job["state"], job["reason"]) == ("CANCELLED", "stopped by the test"), job
