"""The commands of Arena's guide on PyTorch jobs, as they are typed there, with a repository that asks for a password."""

import time
from pathlib import Path

import pytest

from tests.conftest import Taco
from tests.support.git_server import PASSWORD, USER, repository, served

pytestmark = pytest.mark.e2e
PROGRAM = """
import os
print("WORLD_SIZE: %s, CURRENT_RANK: %s" % (os.environ["WORLD_SIZE"], os.environ["RANK"]), flush=True)
print(open("data.txt").read(), [name for name in os.environ if name.startswith("GIT_SYNC")], flush=True)
"""


def ok(taco: Taco, *words: str) -> str:
    done = taco.ok("arena", *words)
    return done.stdout


def test_the_guide(taco: Taco, tmp_path: Path) -> None:
    origin = repository(tmp_path / "srv" / "mnist-pytorch.git", {"mnist.py": PROGRAM, "data.txt": "beside it"})
    with served(origin.parent, tmp_path / "tls") as server:
        submitted = Taco(taco.state, {**taco.env, **server.environment})(
            *("arena", "submit", "pytorch", "--name=pytorch-dist", "--gpus=0", "--workers=2"),
            *(
                "--image=registry.example/pytorch:1.5.1",
                "--sync-mode=git",
                f"--sync-source={server.url}/mnist-pytorch.git",
            ),
            *(f"--env=GIT_SYNC_USERNAME={USER}", f"--env=GIT_SYNC_PASSWORD={PASSWORD}"),
            *("--data=training-data:/mnist_data", "python3 code/mnist-pytorch/mnist.py --epochs 10 --backend gloo"),
        )
    assert (submitted.returncode, submitted.stdout) == (0, "pytorch-dist\n"), submitted.stderr
    assert "note: --image registry.example/pytorch:1.5.1 is ignored: the inventory has no container" in submitted.stderr
    while taco.job("pytorch-dist")["state"] not in ("SUCCEEDED", "FAILED"):
        time.sleep(0.1)
    (listed,) = ok(taco, "list").splitlines()[1:]
    assert listed.split()[:3] == ["pytorch-dist", "SUCCEEDED", "PYTORCHJOB"]
    shown = ok(taco, "get", "pytorch-dist", "--type", "pytorchjob")
    assert [line.split()[:1] + line.split()[3:5] for line in shown.splitlines()[9:11]] == [
        ["pytorch-dist-master-0", "true", "1"],
        ["pytorch-dist-worker-0", "false", "1"],
    ]
    assert ok(taco, "logs", "pytorch-dist").splitlines() == ["WORLD_SIZE: 2, CURRENT_RANK: 0", "beside it []"]
    assert ok(taco, "logs", "pytorch-dist", "-i", "pytorch-dist-worker-0", "-t", "2").splitlines() == [
        *("WORLD_SIZE: 2, CURRENT_RANK: 1", "beside it []")
    ]
    assert "In Cluster:" in ok(taco, "top", "node")
    assert "PYTORCHJOB" in ok(taco, "top", "job")
    ok(taco, "delete", "pytorch-dist", "--type", "pytorchjob")
    assert len(ok(taco, "list").splitlines()) == 1


def test_a_line_of_mpirun(taco: Taco) -> None:
    line = "mpirun --allow-run-as-root -np 2 -bind-to none -map-by slot -x A=1 --mca btl ^openib sh -c 'echo $A'"
    ok(taco, "submit", "mpi", "--name=m", "--workers=2", line)
    taco.ended("m")
    assert sorted(ok(taco, "logs", "m").splitlines()) == ["localhost/0 | 1", "localhost/1 | 1"]
    refused = taco("arena", "submit", "mpi", "--name=n", "--workers=2", "mpirun -np 3 true")
    assert (refused.returncode, refused.stderr.splitlines()[0]) == (2, "error: mpirun -np 3: the workers have 2 slots")


def test_hosts_of_an_elastic_job(taco: Taco) -> None:
    size = ("--launcher=torchrun", "--elastic", "--hosts=1:3", "--slots-per-host=1")
    taco.ok("submit", "--name=e", *size, "--", "python3", "-c", "import time; time.sleep(60)")
    while taco.job("e")["state"] != "RUNNING":
        time.sleep(0.1)
    changed = taco.ok("arena", "scaleout", "etjob", "--name=e", "--count=2")
    assert "it will use at most 3 hosts" in changed.stderr
    refused = taco("arena", "scaleout", "etjob", "--name=e", "--count=3")
    assert (refused.returncode, refused.stderr.splitlines()[0]) == (
        *(2, "error: job e: 4 is not between 1 and 3, its --hosts MIN:MAX"),
    )
    refused = taco("arena", "scalein", "etjob", "--name=e")
    assert (refused.returncode, refused.stderr.splitlines()[0]) == (
        *(2, "error: job e: has 1 host, so it cannot give up 1"),
    )
    taco.ok("stop", "e")
