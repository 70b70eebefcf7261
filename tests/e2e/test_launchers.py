"""Jobs over several hosts under each launcher: the same script, logs, ends, and nothing left behind."""

import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from taco_launch.core.model.jobs import Policy, Restart
from tests.e2e.cluster import STATE, Cluster
from tests.e2e.ends import nothing_left
from tests.support.torch_hosts import kept, path

__all__ = ["kept", "path"]  # fixtures
pytestmark = pytest.mark.e2e

DDP = Path(__file__).parent / "ddp.py"
# As cube-studio has people write it, for a container on each host.
CUBE_STUDIO = (
    "exec {python} -m torch.distributed.launch --nproc_per_node=2 --nnodes=$WORLD_SIZE --node_rank=$RANK "
    "--master_addr=$MASTER_ADDR --master_port=$MASTER_PORT {script}"
)


def log(cluster: Cluster, name: str) -> list[str]:
    """Return what ranks wrote, sorted."""
    return sorted(line for line in cluster.log(name) if re.match(r"n\d/\d", line))


@pytest.mark.parametrize(("launcher", "np"), [("mpirun", 4), ("torchrun", 4), ("torchrun", 3), ("env", 4)])
def test_a_script_of_torch_runs_unchanged(
    cluster: Cluster, name: str, path: dict[str, str], launcher: str, np: int
) -> None:
    job = cluster.run(cluster.spec(name, sys.executable, str(DDP), np=np, launcher=launcher), **path)
    assert job["state"] == "SUCCEEDED", (job, cluster.sh(f"cat {STATE}/jobs/{name}/logs/merged*.log"))
    assert [line for line in log(cluster, name) if "| rank" in line] == [
        f"n{rank // 2 + 1}/{rank} | rank {rank} of {np}, here {rank % 2} of {min(2, np - rank // 2 * 2)}: {(np - 1) / 2:g}"
        for rank in range(np)
    ]
    nothing_left(cluster)


def test_torchrun_hands_arguments_on_unchanged(cluster: Cluster, name: str, path: dict[str, str]) -> None:
    words = ("$$", "${local_rank}", "$HOME", "a b")
    script = "import sys; print('told', sys.argv[1:])"
    job = cluster.run(cluster.spec(name, sys.executable, "-c", script, *words, np=2, launcher="torchrun"), **path)
    assert job["state"] == "SUCCEEDED", cluster.log(name)
    assert [line.partition("| ")[2] for line in log(cluster, name)] == [f"told {list(words)}"] * 2


def test_the_line_of_cube_studio(cluster: Cluster, name: str, path: dict[str, str]) -> None:
    line = CUBE_STUDIO.format(python=sys.executable, script=DDP)
    spec = cluster.spec(name, "bash", "-c", line, host_count=2, slots_per_host=2, launcher="env", per_host=True)
    job = cluster.run(spec, **path)
    assert (job["state"], job["reason"]) == ("SUCCEEDED", "every rank exited with 0"), "\n".join(cluster.log(name))
    shares = [(share["host"], share["ranks"], len(share["slots"])) for share in job["shares"]]
    assert shares == [("n1", 1, 2), ("n2", 1, 2)]
    assert [line for line in log(cluster, name) if "| rank" in line] == [
        f"n{rank // 2 + 1}/{rank // 2} | rank {rank} of 4, here {rank % 2} of 2 ({rank % 2}): 1.5" for rank in range(4)
    ]


def test_three_processes_share_a_gpu_as_in_cube_studio(cluster: Cluster, name: str) -> None:
    """mytask.py --lr 0.1, with --process_index and --process_num behind its own arguments, on one slot."""
    script = (
        "import os, sys; print('told', *sys.argv[1:], '| rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])"
    )
    spec = cluster.spec(name, sys.executable, "-c", script, "--lr", "0.1", np=1, launcher="env", procs_per_gpu=3)
    job = cluster.run(spec)
    assert (job["state"], job["reason"]) == ("SUCCEEDED", "every rank exited with 0"), (job, cluster.log(name))
    assert [(share["host"], share["ranks"], len(share["slots"])) for share in job["shares"]] == [("n1", 3, 1)]
    assert log(cluster, name) == [
        f"n1/{index} | told --lr 0.1 --process_index {index} --process_num 3 | rank 0 of 1" for index in range(3)
    ]
    nothing_left(cluster)


def test_workers_as_arena_counts_them(cluster: Cluster, name: str) -> None:
    """--workers 3 --gpus 1: the master is one of three, and RANK is that of the instance's name plus one."""
    script = "echo WORLD_SIZE: $WORLD_SIZE, CURRENT_RANK: $RANK"
    job = cluster.run(cluster.spec(name, "sh", "-c", script, np=3, slots_per_worker=1, launcher="env"))
    assert (job["state"], job["reason"]) == ("SUCCEEDED", "every rank exited with 0"), (job, cluster.log(name))
    for rank, instance in enumerate(("master-0", "worker-0", "worker-1")):
        (told,) = (line for line in cluster.log(name, instance=f"{name}-{instance}") if "CURRENT_RANK" in line)
        assert told.endswith(f"WORLD_SIZE: 3, CURRENT_RANK: {rank}")


def test_no_worker_is_split(cluster: Cluster, name: str) -> None:
    cluster.submit(cluster.spec(f"{name}-a", "sleep", "600", np=1, launcher="env"))
    job = cluster.run(cluster.spec(f"{name}-b", "true", np=4, slots_per_worker=2, launcher="env"))
    assert [(share["host"], share["ranks"]) for share in job["shares"]] == [("n2", 2), ("n3", 2)], job
    cluster.call("stop", names=[f"{name}-a"], by="the test", signal=15, grace=0)
    cluster.ended(f"{name}-a")


def test_as_many_hosts_as_are_free(cluster: Cluster, name: str) -> None:
    asked: dict[str, Any] = {"host_count": 3, "least_hosts": 2, "slots_per_host": 2, "launcher": "env"}
    cluster.submit(cluster.spec("holder", "sleep", "600", np=1, launcher="env"))
    cluster.submit(cluster.spec("first", "sleep", "600", **asked))
    waits = cluster.submit(cluster.spec("waits", "sh", "-c", "echo of $WORLD_SIZE", **asked))
    assert waits["state"] == "QUEUED", waits
    for gone in ("first", "waits", "holder"):
        if gone != "waits":
            cluster.call("stop", names=[gone], by="the test", signal=signal.SIGTERM, grace=0)
        job = cluster.ended(gone)
        assert [share["host"] for share in job["shares"]] == (["n1"] if gone == "holder" else ["n2", "n3"])
        assert job["state"] == ("SUCCEEDED" if gone == "waits" else "CANCELLED"), job
        cluster.call("delete", names=[gone])
    # one that loses a host continues with those that are left
    script = "echo of $WORLD_SIZE; [ $WORLD_SIZE = 6 ] || exit 0; [ $RANK = 2 ] && exit 3; sleep 600"
    again = Policy(grace=1.0, restart=Restart.ON_FAILURE, backoff_limit=1, backoff=0.1)
    job = cluster.run(cluster.spec(name, "sh", "-c", script, policy=again, **asked))
    assert (job["state"], job["attempt"]) == ("SUCCEEDED", 2), job
    assert sorted(cluster.log(name)[-4:]) == [f"n{(1, 1, 3, 3)[rank]}/{rank} | of 4" for rank in range(4)]
    nothing_left(cluster)
