"""The proof: what hosts answer, made into what is wrong; and the program that asks, on this machine."""

import fcntl
import hashlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from taco_launch.core.command import Command, Result
from taco_launch.core.errors import HostError
from taco_launch.core.model.host.fact_value import Absent
from taco_launch.core.model.host.facts import Firewall, HostFacts
from taco_launch.hosts.fanout import Fanout
from taco_launch.hosts.inventory import profile
from taco_launch.setup.model.ops import ProofFailure
from taco_launch.setup.proofs import mpirun_proof
from taco_launch.setup.proofs.container_network import verify
from taco_launch.setup.scripts import peers
from tests.conftest import eventually
from tests.support.host_facts import known
from tests.support.mesh import bare, inventory

ENV = [
    "PATH=/opt/conda/bin:/usr/bin",
    "LD_LIBRARY_PATH=/usr/local/nccl",
    "NCCL_ALGO=Ring",
    "NCCL_DEBUG=INFO",
    "HOME=/root",
]

AUTO = profile.load("auto", "", {})


@dataclass
class Simulated:
    """A host that answers as its container would; tests change what it says."""

    name: str
    image: str = "sha256:" + "a" * 64
    memlock: str = "8388608"
    looks: tuple[int, str] = (0, "")
    ways: dict[str, dict[str, Any]] = field(default_factory=dict)
    mpirun: tuple[int, bytes, bytes] | None = None
    ranks: dict[str, tuple[int, dict[str, str | None]]] = field(default_factory=dict)
    seen: list[Command] = field(default_factory=list)
    error: HostError | None = None

    def run(self, command: Command) -> Result:
        self.seen.append(command)
        if self.error is not None:
            raise self.error
        code, out, err = self._answer(command.argv)
        return Result(self.name, command, code, out, err, 0.0)

    def _answer(self, argv: tuple[str, ...]) -> tuple[int, bytes, bytes]:
        if "look" in argv:
            code, said = self.looks
            port = json.dumps({"port": 40000 + int(self.name.removeprefix("gpu"))})
            lines = (
                f"{self.image} 77",
                json.dumps(ENV),
                f"Max locked memory  {self.memlock}  {self.memlock}  bytes",
                port,
            )
            return code, b"" if code else "\n".join(lines).encode(), said.encode()
        if "ask" in argv:
            fine = {"connected": True, "ssh": None, "port": None}
            peers = argv[argv.index("ask") + 2 :: 3]
            told = [json.dumps({"peer": name, **fine, **self.ways.get(name, {})}) for name in peers]
            return 0, "\n".join(told).encode(), b""
        assert "docker" in argv
        if self.mpirun is not None:
            return self.mpirun
        names = [word.partition(":")[0] for word in argv[argv.index("-H") + 1].split(",")]
        fine_env = told_env()
        ranks = [
            "taco-launch-verify " + json.dumps([rank, *self.ranks.get(name, (8388608, fine_env))])
            for rank, name in enumerate(names)
        ]
        return 0, "\n".join(["[gpu1:1] Warning: noise", *ranks]).encode(), b""

    def put(self, _data: bytes, _path: str, _mode: int = 0o600, *, sudo: bool = False) -> None:
        raise AssertionError(sudo)

    def tail(self, _command: Command) -> Any:
        raise AssertionError

    converse = tail

    def close(self) -> None:
        pass


def told_env(**more: str | None) -> dict[str, str | None]:
    return {
        "PATH": "/usr/lib/openmpi/bin:/opt/conda/bin:/usr/bin",
        "LD_LIBRARY_PATH": "/usr/local/nccl",
        "NCCL_ALGO": hashlib.sha256(b"Ring").hexdigest()[:16],
        "NCCL_DEBUG": "given by the line",
        **more,
    }


class Cluster:
    """Simulated hosts, and what the proof says of them."""

    def __init__(self, count: int = 2, **network: Any) -> None:
        self.inventory = inventory(count, **network)
        self.hosts = {host.name: Simulated(host.name) for host in self.inventory.hosts}
        self.facts: dict[str, HostFacts] = {name: bare(name) for name in self.hosts}

    def flaws(self) -> tuple[ProofFailure, ...]:
        return verify(self.inventory, Fanout(tuple(self.hosts.values())), self.facts, lambda _what: None, AUTO)

    def said(self) -> list[str]:
        return [str(flaw) for flaw in self.flaws()]


def test_nothing_is_wrong() -> None:
    for count in (1, 2, 5):
        assert Cluster(count).flaws() == ()


def test_a_job_that_runs_has_other_ports() -> None:
    """Jobs' mpirun listens on first ports of the range."""
    for given, ports in (
        ((40000, 40999), range(40500, 41000)),
        ((40000, 40001), range(40001, 40002)),
        ((40000, 40000), range(40000, 40001)),
    ):
        cluster = Cluster(port_range=given)
        cluster.inventory = replace(cluster.inventory, versions=(("openmpi", "4.1.4"),))
        assert cluster.flaws() == ()
        argv = cluster.hosts["gpu1"].seen[-1].argv
        assert {int(port) for port in argv[argv.index("oob_tcp_dynamic_ipv4_ports") + 1].split(",")} <= set(ports)


def test_the_line_is_that_of_a_job() -> None:
    cluster = Cluster()
    assert cluster.flaws() == ()
    argv = cluster.hosts["gpu1"].seen[-1].argv
    line = " ".join(argv)
    assert "timeout -k 5 62 mpirun -np 2 -H gpu1:1,gpu2:1 --allow-run-as-root" in line
    assert "--mca btl_tcp_if_include bond0" in line
    assert "-c" in argv
    assert argv[argv.index("-I") - 1] == "python3"


def test_only_hosts_that_are_set_up_are_asked() -> None:
    cluster = Cluster(3)
    del cluster.facts["gpu3"]
    assert cluster.flaws() == ()
    assert cluster.hosts["gpu3"].seen == []
    assert "gpu3" not in str(cluster.hosts["gpu1"].seen)


def test_a_blocked_pair_is_named_with_the_firewall() -> None:
    cluster = Cluster()
    network = known(cluster.facts["gpu1"].network)
    drops = Firewall("nftables", True, "nftables does not let everything in: policy drop (nft table inet filter)")
    cluster.facts["gpu1"] = replace(cluster.facts["gpu1"], network=replace(network, firewalls=(drops,)))
    cluster.hosts["gpu2"].ways["gpu1"] = {"port": "timed out"}
    (flaw,) = cluster.flaws()
    assert str(flaw) == (
        "gpu2 cannot reach gpu1 at 10.0.0.1:40001: timed out; firewall: nftables on gpu1 drops: "
        "policy drop (nft table inet filter)"
    )
    assert "network: {firewall: manage}" in flaw.hint
    assert flaw.hosts == ("gpu2",)
    assert flaw.at == ("gpu1",), "the firewall is there"


def test_a_host_that_nobody_reaches_is_told_once() -> None:
    cluster = Cluster(5)
    for name in ("gpu1", "gpu2", "gpu4", "gpu5"):
        cluster.hosts[name].ways["gpu3"] = {"connected": False, "ssh": "timed out", "port": "timed out"}
    assert cluster.said() == ["gpu[1-2,4-5] cannot reach gpu3 at 10.0.0.3:12222 and :40003: timed out"]


def test_each_reason_is_told() -> None:
    cluster = Cluster()
    cluster.hosts["gpu1"].ways["gpu2"] = {"connected": False, "ssh": "connection refused", "port": "no route to host"}
    cluster.hosts["gpu2"].ways["gpu1"] = {"ssh": "Host key verification failed."}
    flaws = cluster.flaws()
    assert [str(flaw) for flaw in flaws] == [
        "gpu1 cannot reach gpu2 at 10.0.0.2:12222: connection refused",
        "gpu1 cannot reach gpu2 at 10.0.0.2:40002: no route to host",
        "gpu2 cannot log in to the container of gpu1 (10.0.0.1:12222): Host key verification failed.",
    ]
    assert flaws[0].hint == "on gpu2: docker logs taco-launch-hcc shows why no sshd listens there"
    assert flaws[2].hint == "try it there: docker exec taco-launch-hcc ssh -v gpu1 true"
    assert not any("mpirun" in command.argv for command in cluster.hosts["gpu1"].seen)


def test_a_container_that_cannot_be_looked_into() -> None:
    cluster = Cluster(3)
    cluster.hosts["gpu2"].looks = (1, "Error: No such object: taco-launch-hcc\n")
    assert cluster.said() == [
        "gpu2 cannot be queried: cannot inspect container taco-launch-hcc: Error: No such object: taco-launch-hcc"
    ]


def test_a_connection_that_breaks_off() -> None:
    cluster = Cluster()

    cluster.hosts["gpu2"].error = HostError("gpu2: the answer of docker broke off", "is the host up?")
    (flaw,) = cluster.flaws()
    assert (str(flaw), flaw.hint) == ("gpu2 cannot be queried: the answer of docker broke off", "is the host up?")


def test_another_image() -> None:
    cluster = Cluster(4)
    for name in ("gpu2", "gpu3"):
        cluster.hosts[name].image = "sha256:" + "b" * 64
    assert cluster.said() == [
        "gpu[2-3] has a container with a different image than gpu1: bbbbbbbbbbbb, not aaaaaaaaaaaa"
    ]


@pytest.mark.parametrize(
    ("code", "out", "err", "words"),
    [
        (1, b"", b"mpirun: cannot do it\n", "exit code 1, no rank on gpu[1-2]: mpirun: cannot do it"),
        (0, b"taco-launch-verify [0, 8388608, {}]\n", b"", "exit code 0, no rank on gpu2: taco-launch-verify"),
        (124, b"", b"", "exit code 124, no rank on gpu[1-2]: no output"),
        (255, b"", b"ssh: connect to host gpu2 port 12222: Connection refused\n", "no sshd listens on its port 12222"),
    ],
)  # fmt: skip
def test_mpirun_fails(code: int, out: bytes, err: bytes, words: str) -> None:
    cluster = Cluster()
    cluster.hosts["gpu1"].mpirun = (code, out, err)
    (flaw,) = cluster.flaws()
    assert flaw.what == "cannot run mpirun across gpu[1-2]"
    assert words in flaw.evidence
    assert "on gpu1: docker exec taco-launch-hcc mpirun -np 2 -H gpu1:1,gpu2:1" in flaw.hint
    assert flaw.hint.endswith(" hostname")


def test_a_head_that_is_lost_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    head = cluster.hosts["gpu1"]
    answer = head._answer

    def answered(argv: tuple[str, ...]) -> tuple[int, bytes, bytes]:
        if "verify" in argv:
            raise HostError("gpu1: lost", "is it up?")
        return answer(argv)

    monkeypatch.setattr(head, "_answer", answered)
    assert cluster.flaws() == (ProofFailure(("gpu1",), "cannot be queried", "lost", "is it up?"),)


def test_a_second_verification_waits_for_the_first(tmp_path: Path) -> None:
    """The line of more than 64 ranks names a file, which is written and removed under the same lock."""
    cluster = Cluster(65)
    cluster.hosts["gpu1"].mpirun = (0, b"", b"")
    cluster.flaws()
    command = cluster.hosts["gpu1"].seen[-1]
    lock, named = str(tmp_path / "lock"), str(tmp_path / "hostfile")
    place = command.argv.index("docker")
    start = (*command.argv[: place - 3], lock, "0", named)
    assert command.argv[place - 3 : place] == (mpirun_proof._LOCK, "600", "/var/lib/taco-launch/clusters/hcc/hostfile")
    done = subprocess.run((*start, "cat", named), input=command.stdin, capture_output=True, check=True)
    assert done.stdout == command.stdin
    assert b"gpu65 slots=1" in done.stdout
    assert not Path(named).exists()
    with open(lock, "a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        busy = subprocess.run((*start, "true"), input=command.stdin, capture_output=True, check=False)
    cluster.hosts["gpu1"].mpirun = busy.returncode, busy.stdout, busy.stderr
    (flaw,) = cluster.flaws()
    assert flaw.what == "was not verified"
    assert flaw.evidence == "another set-up verifies this cluster for 600 s"


def test_whose_fault_it_is_that_hosts_do_not_reach_each_other() -> None:
    cluster = Cluster(3)
    for name in ("gpu1", "gpu2"):
        cluster.hosts[name].ways["gpu3"] = {"connected": False, "ssh": "timed out"}
    (flaw,) = cluster.flaws()
    assert (flaw.hosts, flaw.at) == (("gpu1", "gpu2"), ("gpu3",)), "no other host reaches it"
    cluster = Cluster(3)
    cluster.hosts["gpu1"].ways = {name: {"connected": False, "ssh": "timed out"} for name in ("gpu2", "gpu3")}
    assert {(flaw.hosts, flaw.at) for flaw in cluster.flaws()} == {(("gpu1",), ())}, "others reach them"


def test_a_network_that_is_asked_for_and_not_there_is_a_finding() -> None:
    cluster = Cluster(rdma="on")
    cluster.facts = {name: replace(each, rdma=Absent("no HCA")) for name, each in cluster.facts.items()}
    (flaw,) = cluster.flaws()
    assert flaw.hosts == ("gpu1", "gpu2")
    assert "cannot run jobs as the inventory describes them: RDMA is requested (network.rdma: on)" in str(flaw)
    assert "network: {rdma: auto}" in flaw.hint


def test_local_to_the_controller_is_not_local_to_the_head() -> None:
    cluster = Cluster()
    first, second = cluster.inventory.hosts
    cluster.inventory = replace(cluster.inventory, hosts=(first, replace(second, connection="local")))
    assert cluster.flaws() == ()
    assert "-H gpu1:1,gpu2:1" in " ".join(cluster.hosts["gpu1"].seen[-1].argv)


def test_ranks_that_are_not_as_their_container() -> None:
    cluster = Cluster()
    cluster.hosts["gpu1"].ranks["gpu2"] = (65536, told_env(NCCL_ALGO=None, PATH="/usr/bin"))
    assert cluster.said() == [
        "gpu2 gives ranks a different limit of locked memory (ulimit -l) than its container has: 64 KiB, not 8192 KiB",
        "gpu2 does not give ranks the environment of its container: different values in the ranks: PATH, NCCL_ALGO",
    ]


def test_unlimited_is_unlimited() -> None:
    cluster = Cluster()
    cluster.hosts["gpu2"].memlock = "unlimited"
    cluster.hosts["gpu1"].ranks["gpu2"] = (-1, told_env())
    assert cluster.flaws() == ()


def test_no_value_of_the_environment_is_shown() -> None:
    cluster = Cluster()
    cluster.hosts["gpu1"].ranks["gpu2"] = (8388608, told_env(NCCL_ALGO=None))
    shown = repr(cluster.flaws()) + str([command.argv for host in cluster.hosts.values() for command in host.seen])
    assert "Ring" not in shown


# --- the program that asks


# As OpenSSH answers; the host stands before the last word.
SSH = """#!/bin/sh
while [ $# -gt 2 ]; do shift; done
case $1 in
  good) exit 0 ;;
  bad) echo 'Permission denied (publickey).' >&2 ;;
  *) printf 'a banner\\nssh: connect to host 10.0.0.1 port 12222: %s\\r\\n' "$1" >&2 ;;
esac
exit 255
"""


@pytest.fixture
def program(tmp_path: Path) -> Any:
    """Run it as a container does, with an ssh of the test's own."""
    ssh = tmp_path / "ssh"
    ssh.write_text(SSH)
    ssh.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    script = Path(peers.__file__).read_bytes()

    def run(*words: str) -> list[dict[str, Any]]:
        argv = (sys.executable, "-I", "-S", "-", *words)
        done = subprocess.run(argv, input=script, env=env, capture_output=True, check=True, timeout=30)
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


@pytest.mark.parametrize(
    ("name", "connected", "said"),
    [
        ("good", True, None),
        ("bad", True, "Permission denied (publickey)."),
        ("Connection timed out", False, "timed out"),
        ("Connection refused", False, "connection refused"),
        ("No route to host", False, "no route to host"),
    ],
)
def test_ways_to_a_peer(program: Any, name: str, connected: bool, said: str | None) -> None:
    (told,) = program("listen", "127.0.0.1", "0", "0", "20", "127.0.0.1")
    found = program("ask", "2", name, "127.0.0.1", str(told["port"]))
    assert found == [{"peer": name, "connected": connected, "ssh": said, "port": None}]
    # whom it waited for has come: nothing listens any more
    gone = ("ask", "2", name, "127.0.0.1", str(told["port"]))
    eventually(lambda: program(*gone)[0]["port"] == "connection refused", 5, "the listener to end")


def test_a_port_of_a_range(program: Any) -> None:
    (told,) = program("listen", "127.0.0.1", "41000", "41099", "0")
    assert 41000 <= told["port"] <= 41099
