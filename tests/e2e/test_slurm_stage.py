"""The settings that set-up writes, as a real Slurm of this machine reads them; and the proof, asked of that Slurm."""

import os
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from taco_launch.core.facts.parse import parse
from taco_launch.core.model.host import paths
from taco_launch.core.model.host.hosts import Host
from taco_launch.setup import scripts
from taco_launch.setup.files.slurm_conf import SlurmNode, files, node
from tests.e2e.slurm import NODES, slurm, why_not
from tests.support.shells import SCRIPT, run

pytestmark = pytest.mark.e2e

# What is another's on a machine that runs two nodes beside its own services.
_OWN = {
    "SlurmctldHost": "{host}(127.0.0.1)\nSlurmctldPort={ports[0]}",
    "SlurmUser": "root\nSlurmdUser=root",
    "AuthType": "auth/munge\nAuthInfo=socket={folder}/munge.socket",
    "StateSaveLocation": "{folder}/state",
    "SlurmdSpoolDir": "{folder}/spool.%n",
    "SlurmctldLogFile": "{folder}/slurmctld.log",
    "SlurmdLogFile": "{folder}/slurmd.%n.log",
    "SlurmctldPidFile": "{folder}/slurmctld.pid",
    "SlurmdPidFile": "{folder}/slurmd.%n.pid",
}


@pytest.fixture(scope="module")
def this() -> SlurmNode:
    """Return this machine by its facts, without GPUs, and without control groups, which services of systemd get."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    answer = run(("sh",), "system", "gpu", "made", script=SCRIPT).stdout
    found = node(Host("n1", "x", gpus="none"), parse("x", answer, time.time(), time.time()), "127.0.0.1")
    assert isinstance(found, SlurmNode), found
    return replace(found, cgroup=False)


@pytest.fixture(scope="module")
def cluster(this: SlurmNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The variables of a Slurm with the settings of set-up; two device files are the GPUs of each node (simulated)."""
    hardware, devices = f"{this.hardware} Gres=gpu:2", ("/dev/null", "/dev/zero")
    nodes = [replace(this, name=name, hardware=hardware, devices=devices) for name in NODES]
    texts = {file.path: file.data.decode() for file in files("test", "n1", nodes)}
    settings = texts[f"{paths.SLURM}/slurm.conf"]
    for key, value in _OWN.items():
        settings, count = re.subn(f"(?m)^{key}=.*$", f"{key}={value}", settings)
        assert count == 1, key
    for number, name in enumerate(NODES, 1):
        settings = re.sub(f"(?m)^(NodeName={name} .*)$", rf"\1 Port={{ports[{number}]}}", settings)
    with slurm(tmp_path_factory.mktemp("slurm"), settings, texts[f"{paths.SLURM}/gres.conf"]) as environ:
        yield environ


def test_the_facts_of_a_host_are_what_slurmd_says_of_it(this: SlurmNode) -> None:
    said = subprocess.run(
        ("slurmd", "-C"),
        env={**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    real = dict(word.split("=", 1) for word in said.split() if "=" in word)
    ours = dict(word.split("=", 1) for word in this.hardware.split())
    assert real["NodeName"] == this.hostname
    shape = ("CPUs", "CoresPerSocket", "ThreadsPerCore")
    assert [ours[key] for key in shape] == [real[key] for key in shape]
    assert ours["Sockets"] == str(int(real["Boards"]) * int(real["SocketsPerBoard"]))
    assert 0.9 * int(real["RealMemory"]) < int(ours["RealMemory"]) <= int(real["RealMemory"])


def test_slurm_runs_with_these_settings_and_the_proof_sees_it(cluster: dict[str, str]) -> None:
    argv = ("sh", "-c", scripts.text("slurm_proof.sh"), "prove", "30", *NODES)
    done = subprocess.run(argv, env={**os.environ, **cluster}, capture_output=True, text=True, check=False)
    assert sorted(done.stdout.splitlines()) == ["n1 idle", "n2 idle", "ran n1", "ran n2"], done.stderr
    shown = subprocess.run(
        ("scontrol", "show", "node", "n2"), env={**os.environ, **cluster}, capture_output=True, text=True, check=True
    ).stdout
    assert "Gres=gpu:2" in shown
    given = subprocess.run(
        ("srun", "-N2", "--gres=gpu:1", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"),
        env={**os.environ, **cluster},
        capture_output=True,
        text=True,
        check=True,
    )
    assert given.stdout.split() == ["0", "0"]


def test_the_proof_tells_of_a_node_that_slurm_does_not_use(cluster: dict[str, str]) -> None:
    argv = ("sh", "-c", scripts.text("slurm_proof.sh"), "prove", "0", *NODES)
    env = {**os.environ, **cluster}
    subprocess.run(("scontrol", "update", "NodeName=n2", "State=drain", "Reason=test"), env=env, check=True)
    try:
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    finally:
        subprocess.run(("scontrol", "update", "NodeName=n2", "State=resume"), env=env, check=True)
    assert sorted(done.stdout.splitlines()) == ["n1 idle", "n2 drained", "ran n1"], done.stderr
