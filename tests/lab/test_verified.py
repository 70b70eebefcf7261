"""VERIFIED names what does not run as planned: a host on TCP, ranks that each run alone, the wrong GPU or interface.

GPUs, HCAs and NCCL's lines are simulated: ranks write into NCCL_DEBUG_FILE what NCCL writes there.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import eventually
from tests.lab.rig import Cluster, Image, made
from tests.support.patience import patience
from tests.support.whole_logs import lines_of

# The first test waits for the lab and its set-up, each for what is seen after a minute.
pytestmark = [pytest.mark.lab, pytest.mark.nightly, pytest.mark.timeout(900)]

WHERE = ("--np", "2", "-H", "gpu1:1,gpu2:1", "--transport", "rdma")
REPLAY = """
import os, sys, time

print("NCCL's lines are simulated", flush=True)
path = os.environ["NCCL_DEBUG_FILE"].replace("%p", str(os.getpid()))
with open(path, "w") as file, open(f"rank-{os.environ['RANK']}.txt") as lines:
    file.write(lines.read())
    file.flush()
    time.sleep(1000)
"""
# Addresses of docker0, which only the route to them tells from those of the interface that is planned.
TALK = """
import os, socket, time

rank = int(os.environ["RANK"])
mine, other = ("10.99.0.1", "10.99.0.2")[:: 1 - 2 * rank]
if rank:
    server = socket.create_server((mine, 7777))
    line, _ = server.accept()
else:
    while True:
        try:
            line = socket.create_connection((other, 7777), source_address=(mine, 0))
            break
        except OSError:
            time.sleep(0.2)
while True:
    line.sendall(bytes(1 << 16)) if rank == 0 else line.recv(1 << 16)
    time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two hosts with simulated GPUs and HCAs, ready for jobs."""
    words = ("--hosts", "2", "--gpus", "h100x8", "--docker")
    with made("verified", tmp_path_factory.mktemp("verified"), *words, image=Image.SMALL) as lab:
        lab.cluster.ok("setup", "--yes", seconds=400)
        yield lab.cluster


def told(hosts: Cluster, name: str) -> tuple[str, str, str]:
    """Return what is found of a job: the status, why, and what to do next."""

    def verified() -> tuple[str, str, str] | None:
        found = hosts.job(name).get("verified")
        return (found["status"], found["why"], found["next"]) if found else None

    eventually(verified, patience(120))
    found = verified()
    assert found is not None
    hosts("delete", "--yes", name)
    return found


def replayed(hosts: Cluster, folder: Path, name: str, *networks: str, world: int) -> tuple[str, str, str]:
    """Run two ranks that write NCCL's lines, the first on gpu1."""
    for rank, network in enumerate(networks):
        lines = lines_of("2.21.5", rank if world > 1 else 0, network, world=world, host=f"gpu{rank + 1}")
        (folder / f"rank-{rank}.txt").write_text("\n".join([*lines, ""]).replace("eth0", "bond0"))
    (folder / "replay.py").write_text(REPLAY)
    hosts.ok("submit", "--name", name, *WHERE, "--sync", str(folder), "--", "python3", "replay.py")
    return told(hosts, name)


def test_a_host_that_falls_back_to_tcp(hosts: Cluster, tmp_path: Path) -> None:
    status, why, to_do = replayed(hosts, tmp_path, "tcp", "IB", "Socket", world=2)
    assert (status, why) == ("False", "rank 1 on gpu2: transport: planned NET/IB, is NET/Socket")
    assert "taco-launch facts gpu2 --only rdma" in to_do


def test_ranks_that_are_worlds_of_their_own(hosts: Cluster, tmp_path: Path) -> None:
    status, why, to_do = replayed(hosts, tmp_path, "alone", "IB", "IB", world=1)
    seen = "planned 2 ranks in one world, is 2 separate runs of 1 rank (NCCL's nranks)"
    assert (status, why) == ("False", f"gpu1: world size: {seen}")
    assert "the program must call init_process_group" in to_do


def test_a_script_that_names_other_gpus_than_the_job_has(hosts: Cluster) -> None:
    uuids = hosts.lab.sh("gpu1", "nvidia-smi --query-gpu=uuid --format=csv,noheader").splitlines()
    script = f"export CUDA_VISIBLE_DEVICES={uuids[5]}; exec sleep 1000"
    hosts.ok("submit", "--name", "gpus", "--np", "1", "-H", "gpu1:1", "--gpu-ids", "2", "--", "sh", "-c", script)
    status, why, to_do = told(hosts, "gpus")
    assert (status, why) == ("False", f"rank 0 on gpu1: GPUs: planned {uuids[2]}, is {uuids[5]}")
    assert "choose the GPU by the local rank" in to_do


def test_traffic_on_docker0(hosts: Cluster, tmp_path: Path) -> None:
    for host, mine, other in (("gpu1", "10.99.0.1", "10.99.0.2"), ("gpu2", "10.99.0.2", "10.99.0.1")):
        via = hosts.lab.address("gpu2" if host == "gpu1" else "gpu1")
        route = f"ip route replace {other} via {via} src {mine}"
        hosts.lab.sh(host, f"ip address replace {mine}/32 dev docker0; {route}")
    (tmp_path / "talk.py").write_text(TALK)
    hosts.ok("submit", "--name", "docker0", *WHERE, "--sync", str(tmp_path), "--", "python3", "talk.py")
    status, why, to_do = told(hosts, "docker0")
    assert (status, why.partition(" (")[0]) == ("False", "rank 0 on gpu1: interface: planned bond0, is docker0")
    assert "NCCL_SOCKET_IFNAME==bond0" in to_do
