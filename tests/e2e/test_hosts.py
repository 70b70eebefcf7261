"""Jobs over several hosts with the real mpirun and a real sshd: the agent on the head, guards on the others."""

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from taco_launch.inventory import profile
from taco_launch.model.codec import to_json
from taco_launch.model.hosts import Host, Network
from taco_launch.model.jobs import JobSpec, Policy
from tests.conftest import eventually
from tests.e2e.hosts import Hosts, hosts, why_not

pytestmark = pytest.mark.e2e

NAMES = ("n1", "n2", "n3")
STATE = "/run/taco-state"  # each host has its own /run
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
VICTIM = Path(__file__).parent / "victim.py"
SSH = '#!/bin/sh\nexec {ssh} -F {config} "$@"\n'


class Cluster:
    """Three hosts of two slots each, and what a controller asks of the agent on the first."""

    def __init__(self, made: Hosts, agent: Path, python: str) -> None:
        self.made, self.python = made, python
        self.agent = f"{STATE}/agent/{agent.name}"
        shutil.copy(agent, made.folder)
        programs = made.folder / "bin"
        programs.mkdir()
        (programs / "ssh").write_text(SSH.format(ssh=shutil.which("ssh"), config=made.ssh_config))
        (programs / "ssh").chmod(0o755)
        self.env = {"PATH": f"{programs}:{os.environ['PATH']}", "TACO_LAUNCH_STATE": STATE}
        self.sh(f"mkdir -p {STATE}/agent && cp {made.folder}/{agent.name} {STATE}/agent")

    def sh(self, script: str, *words: str, on: int = 0) -> str:
        done = self.made.run("sh", "-c", script, "sh", *words, on=on, env=self.env)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def call(self, op: str, head: int = 0, **request: Any) -> list[Any]:
        """Ask the agent as the controller does; give the frames, the bytes of logs as text."""
        stdin = f"{json.dumps({'protocol': 1})}\n{json.dumps(request)}\n"
        argv = [self.python, "-I", "-S", self.agent, op]
        done = self.made.run(*argv, on=head, env=self.env, stdin=stdin, timeout=100)
        _header, newline, rest = done.stdout.partition("\n")
        assert newline, done.stderr
        frames: list[Any] = []
        while rest:
            line, _newline, rest = rest.partition("\n")
            frames.append(json.loads(line))
            count = frames[-1].get("bytes", 0)
            frames += [rest[:count]] if count else []
            rest = rest[count:]
        return frames

    def spec(self, name: str, *command: str, **more: Any) -> JobSpec:
        """Describe a job on all hosts, as an inventory over SSH does."""
        addresses = [f"10.77.0.{number + 1}" for number in range(len(NAMES))]
        all_hosts = tuple(Host(name, at, slots=2) for name, at in zip(NAMES, addresses, strict=True))
        auto = profile.load("auto", "", {})
        policy = Policy(grace=1.0, host_loss_timeout=8.0)
        spec = JobSpec(name, command, all_hosts, head="n1", profile=auto, network=Network(), policy=policy)
        return replace(spec, **more)

    def submit(self, spec: JobSpec, /, head: int = 0, **environment: str) -> dict[str, Any]:
        caller = {"environment": environment, "umask": 0o022, "inherit": True}
        frames = self.call("submit", head, follow=False, spec=to_json(spec), caller=caller)
        assert "job" in frames[0], frames
        job: dict[str, Any] = frames[0]["job"]["record"]
        return job

    def job(self, name: str, head: int = 0) -> dict[str, Any]:
        record: dict[str, Any] = self.call("get", head, name=name)[0]["job"]["record"]
        return record

    def ended(self, name: str, seconds: float = 40, head: int = 0) -> dict[str, Any]:
        eventually(lambda: self.job(name, head)["ended"], seconds, f"{name} to end")
        return self.job(name, head)

    def run(self, spec: JobSpec, **environment: str) -> dict[str, Any]:
        self.submit(spec, 0, **environment)
        return self.ended(spec.name)

    def log(self, name: str, rank: int | None = None) -> list[str]:
        frames = self.call("logs", name=name, rank=rank, offset=0, tail=None, follow=False)
        text = "".join(frame for frame in frames if isinstance(frame, str))
        return [line for line in text.splitlines() if "setpgid" not in line]  # a race in mpirun's own start of ssh

    def alive(self, word: str) -> list[tuple[int, int]]:
        """Give (host, process) of all processes with this word in their command line, but for zombies."""
        found = []
        for on in range(len(NAMES)):
            script = (
                'for p in /proc/[0-9]*; do tr "\\0" " " <$p/cmdline 2>/dev/null | grep -q -- "$1" && echo $p; done; :'
            )
            found += [(on, int(line.rpartition("/")[2])) for line in self.sh(script, word, on=on).split()]
        return found

    def victims(self) -> list[tuple[int, int]]:
        return self.alive("[v]ictim.py")

    def pid(self, role: str, on: int = 0) -> int:
        """Find a process of the agent on a host (run, guard, attach), mpirun or orted."""
        word = role if role.startswith("^") else f"[{role[0]}]{role[1:]}"  # not the search itself
        pids = [pid for host, pid in self.alive(word) if host == on]
        assert pids, f"no {role} on {NAMES[on]}"
        return min(pids)

    def kill(self, pid: int, on: int, number: int = signal.SIGKILL) -> None:
        self.sh(f"kill -{int(number)} {pid}", on=on)

    def link(self, on: int, state: str) -> None:
        self.sh(f"ip link set eth0 {state}", on=on)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, agent: Path) -> Iterator[Cluster]:
    reason = why_not()
    python = shutil.which("python3", path=SYSTEM_PATH)
    if reason or not python or not shutil.which("mpirun"):
        pytest.skip(reason or "cannot: there is no python3 or no mpirun in the system's folders")
    folder = tmp_path_factory.mktemp("hosts")
    with hosts(NAMES, folder, keep=[Path(__file__).parent]) as made:
        yield Cluster(made, agent, python)


@pytest.fixture
def name(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[str]:
    """A name for a job; whatever is left of it is ended."""
    job = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[:50]
    yield job
    for on in range(len(NAMES)):
        cluster.link(on, "up")
    if any("job" in frame for frame in cluster.call("stop", name=job, by="the test", signal=15, grace=0)):
        eventually(lambda: cluster.job(job)["ended"], 60)
        cluster.call("delete", name=job)
    for on, pid in cluster.victims():  # one test's failure is no other's
        cluster.kill(pid, on)


def test_ranks_on_every_host(cluster: Cluster, name: str) -> None:
    script = "echo $RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR $TACO_LAUNCH_JOB $GIVEN $(hostname) $(umask)"
    spec = cluster.spec(name, "sh", "-c", script, env=(("GIVEN", None),))
    # n2 has no agent yet, n3 a part of one.
    cluster.sh(f"mkdir -p {STATE}/agent && head -c 9999 {cluster.made.folder}/agent*.pyz >{cluster.agent}", on=2)
    job = cluster.run(spec, GIVEN="by the caller")
    assert (job["state"], job["exit_code"], job["reason"]) == ("SUCCEEDED", 0, "every rank exited with 0"), job
    assert job["hosts"] == list(NAMES)
    assert sorted(cluster.log(name)) == [
        f"n{rank // 2 + 1}/{rank} | {rank} {rank % 2} 6 10.77.0.1 {name} by the caller n{rank // 2 + 1} 0022"
        for rank in range(6)
    ]


@pytest.mark.parametrize(("rank", "script", "code"), [(4, "exit 3", 3), (2, "kill -9 $$", 137), (0, "exit 255", 255)])
def test_the_exit_code_of_a_rank_anywhere(cluster: Cluster, name: str, rank: int, script: str, code: int) -> None:
    job = cluster.run(
        cluster.spec(name, "sh", "-c", f"[ $RANK = {rank} ] && {{ echo last words; {script}; }}; sleep 60")
    )
    assert (job["state"], job["exit_code"]) == ("FAILED", code)
    assert job["reason"].startswith(f"rank {rank} on n{rank // 2 + 1} ")
    assert f"n{rank // 2 + 1}/{rank} | last words" in cluster.log(name)


def test_a_program_that_is_not_there(cluster: Cluster, name: str) -> None:
    job = cluster.run(cluster.spec(name, "no-such-program"))
    assert (job["state"], job["exit_code"]) == ("FAILED", 127)


def test_all_output_comes_over_once_and_in_order(cluster: Cluster, name: str) -> None:
    script = 'i=0; while [ $i -lt 20000 ]; do echo "line $i of rank $RANK"; i=$((i+1)); done; printf "no end"'
    job = cluster.run(cluster.spec(name, "sh", "-c", script))
    assert job["state"] == "SUCCEEDED", job
    merged = cluster.log(name)
    for rank in range(6):
        expected = [f"line {number} of rank {rank}" for number in range(20000)] + ["no end"]
        assert cluster.log(name, rank) == expected
        label = f"n{rank // 2 + 1}/{rank} | "
        assert [line[len(label) :] for line in merged if line.startswith(label)] == expected


def test_output_is_followed_while_it_comes(cluster: Cluster, name: str) -> None:
    cluster.submit(cluster.spec(name, "sh", "-c", "echo first; sleep 600"))
    eventually(lambda: len([line for line in cluster.log(name) if line.endswith("| first")]) == 6)


def running(cluster: Cluster, name: str, *shape: str, **more: Any) -> None:
    """Have two victims a host run."""
    folder = "/run/victims"
    for on in range(len(NAMES)):
        cluster.sh(f"rm -rf {folder}; mkdir {folder}", on=on)
    cluster.submit(cluster.spec(name, cluster.python, str(VICTIM), folder, *shape, **more))
    eventually(lambda: cluster.job(name)["state"] == "RUNNING", 20, f"{name} to run: {cluster.job(name)}")

    def has_two(on: int) -> bool:
        return len(cluster.sh(f"ls {folder}", on=on).split()) >= 2

    count = len(cluster.job(name)["hosts"])
    for on in range(count):
        eventually(partial(has_two, on))
    time.sleep(0.3)  # the last shapes are taken after the first witness is written
    assert len(cluster.victims()) >= 2 * count


def nothing_left(cluster: Cluster, seconds: float = 10) -> None:
    eventually(lambda: not cluster.victims(), seconds, f"all victims to end: {cluster.victims()}")
    eventually(lambda: not cluster.alive("[g]uard /run/taco") and not cluster.alive("[o]rted"), seconds)


@pytest.mark.parametrize("shape", [(), ("deaf",), ("wipe", "daemon", "deaf")], ids="+".join)
def test_stop_leaves_nothing_anywhere(cluster: Cluster, name: str, shape: Sequence[str]) -> None:
    running(cluster, name, *shape)
    cluster.call("stop", name=name, by="the test", signal=15, grace=None)
    job = cluster.ended(name)
    assert (job["state"], job["exit_code"], job["reason"]) == ("CANCELLED", 143, "stopped by the test")
    assert not cluster.victims()
    nothing_left(cluster, 3)


@pytest.mark.parametrize("shape", [("deaf",), ("wipe", "daemon", "deaf")], ids="+".join)
@pytest.mark.parametrize(
    ("role", "on", "state", "code", "reason"),
    [
        ("pyz run", 0, "LOST", 1, "its supervisor was killed"),
        ("pyz guard /", 0, "FAILED", 1, "its guard was killed"),
        ("pyz guard /", 1, "FAILED", 1, "its guard on n2 was killed"),
        ("mpirun", 0, "FAILED", 137, "the launcher was ended by signal 9 (SIGKILL) while its ranks ran"),
        ("pyz rank", 2, "FAILED", 137, "rank 4 on n3 was killed, and its wrapper with it"),
        ("^orted", 1, "FAILED", None, None),
    ],
)
def test_kill_9_of_any_part_leaves_nothing_anywhere(
    cluster: Cluster, name: str, shape: Sequence[str], role: str, on: int, state: str, code: int, reason: str
) -> None:
    running(cluster, name, *shape)
    cluster.kill(cluster.pid(role, on), on)
    job = cluster.ended(name)
    assert job["state"] == state, job
    if reason:
        assert (job["exit_code"], job["reason"].replace("rank 5", "rank 4")) == (code, reason)
    nothing_left(cluster)


def test_a_head_that_is_gone_leaves_nothing_anywhere(cluster: Cluster, name: str) -> None:
    running(cluster, name, "wipe", "daemon", "deaf")
    cluster.link(0, "down")
    parts = cluster.alive("[t]aco-state") + cluster.alive("^mpirun")
    cluster.sh('kill -9 "$@" 2>/dev/null || :', *(str(pid) for on, pid in [*parts, *cluster.victims()] if on == 0))
    eventually(lambda: not cluster.victims(), 25, "the guards to notice")
    cluster.link(0, "up")
    job = cluster.ended(name)
    assert job["state"] == "LOST"
    nothing_left(cluster)


WRITES = 'i=0; while [ $i -lt 150 ]; do echo "line $i of rank $RANK"; i=$((i+1)); sleep 0.1; done'


@pytest.mark.parametrize("how", ["packets", "connections"])
def test_a_cut_of_5_seconds_ends_nothing(cluster: Cluster, name: str, how: str) -> None:
    # TCP tries again after 6.2 s where its packets were lost for longer than 3; then comes the next heartbeat.
    cluster.submit(cluster.spec(name, "sh", "-c", WRITES, policy=Policy(host_loss_timeout=15)))
    eventually(lambda: cluster.job(name)["state"] == "RUNNING")
    time.sleep(2)
    if how == "packets":
        cluster.link(1, "down")
        time.sleep(5)
        cluster.link(1, "up")
    else:
        for _cut in range(3):
            cluster.kill(cluster.pid("pyz guard-start" if not _cut else "pyz attach", 1), 1)
            time.sleep(2)
    job = cluster.ended(name, 60)
    assert (job["state"], job["reason"]) == ("SUCCEEDED", "every rank exited with 0")
    for rank in range(6):
        assert cluster.log(name, rank) == [f"line {number} of rank {rank}" for number in range(150)]


def test_a_host_that_is_lost_ends_the_job(cluster: Cluster, name: str) -> None:
    running(cluster, name, "wipe", "daemon", "deaf")
    cluster.link(1, "down")
    job = cluster.ended(name, 60)
    assert (job["state"], job["exit_code"]) == ("LOST", 1)
    assert re.match(r"host n2 lost: no heartbeat for 8 s( \(ssh: .*\))?; not proven gone on n2: ", job["reason"])
    nothing_left(cluster)


def test_a_time_in_which_nobody_could_listen_is_nobodys_silence(cluster: Cluster, name: str) -> None:
    """As when a virtual machine is suspended, or a disk hangs, for longer than a host may be silent."""
    script = 'i=0; while [ $i -lt 100 ]; do echo "line $i"; i=$((i+1)); sleep 0.1; done'
    cluster.submit(cluster.spec(name, "sh", "-c", script, policy=Policy(host_loss_timeout=3)))
    eventually(lambda: cluster.job(name)["state"] == "RUNNING")
    agents = [
        (on, pid)
        for role in ("pyz run", "pyz guard /", "pyz guard-start")
        for on, pid in cluster.alive(f"[p]{role[1:]}")
    ]
    assert len(agents) == 1 + 3 + 2 * 2  # the supervisor, guards, and both ends of a connection
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for on, pid in agents:
            cluster.kill(pid, on, number)
        time.sleep(5)
    job = cluster.ended(name, 60)
    assert (job["state"], job["reason"]) == ("SUCCEEDED", "every rank exited with 0")


def test_a_guard_that_hangs_is_a_lost_host(cluster: Cluster, name: str) -> None:
    running(cluster, name, "wipe", "daemon", "deaf")
    cluster.kill(cluster.pid("pyz guard /", 1), 1, signal.SIGSTOP)
    job = cluster.ended(name, 60)
    assert (job["state"], job["reason"]) == ("LOST", "host n2 lost: no heartbeat for 8 s")
    nothing_left(cluster, 3)


def test_slots_that_are_taken(cluster: Cluster, name: str) -> None:
    running(cluster, name, np=4)
    since = time.strftime("%H:%M", time.localtime(cluster.job(name)["submitted"]))
    other = cluster.submit(cluster.spec("other", "true", np=4))
    assert (other["state"], other["exit_code"]) == ("FAILED", 4)
    lines = other["reason"].splitlines()
    assert lines[0] == "4 ranks do not fit: 2 slots free"
    for line, host in zip(lines[1:3], NAMES, strict=False):
        assert line.strip().startswith(f"{host}: 2 of 2 slots held by job {name} (since {since[:3]}"), lines
    assert "other" not in [frame["job"]["spec"]["name"] for frame in cluster.call("list") if "job" in frame]
    # What is free is given.
    small = cluster.submit(cluster.spec("small", "hostname", np=2))
    assert small["hosts"] == ["n3"]
    assert cluster.ended("small")["state"] == "SUCCEEDED"
    cluster.call("delete", name="small")
    cluster.call("stop", name=name, by="the test", signal=15, grace=0)
    cluster.ended(name)
    assert cluster.run(cluster.spec("after", "true"))["state"] == "SUCCEEDED"
    cluster.call("delete", name="after")


def test_every_host_is_asked_before_its_slots_are_called_free(cluster: Cluster, name: str) -> None:
    running(cluster, name, np=6)
    other = cluster.submit(cluster.spec("other", "true", np=4))
    lines = other["reason"].splitlines()
    assert (other["exit_code"], lines[0]) == (4, "4 ranks do not fit: 0 slots free")
    assert [line.split(" slots held by")[0].strip() for line in lines[1:4]] == [f"{host}: 2 of 2" for host in NAMES]
    cluster.call("stop", name=name, by="the test", signal=15, grace=0)
    cluster.ended(name)


def test_delete_removes_what_other_hosts_keep(cluster: Cluster, name: str) -> None:
    cluster.run(cluster.spec(name, "true"))
    assert cluster.sh(f"ls {STATE}/jobs", on=2).split() == [name]
    cluster.call("delete", name=name)
    for on in range(len(NAMES)):
        assert cluster.sh(f"ls {STATE}/jobs", on=on) == ""


def test_a_host_that_cannot_be_reached(cluster: Cluster, name: str) -> None:
    cluster.link(1, "down")
    refused = cluster.submit(cluster.spec("refused", "true", np=6))
    assert (refused["state"], refused["exit_code"]) == ("FAILED", 5)
    told, hint = refused["reason"].splitlines()
    assert told.startswith("n2 cannot be used: ssh: connect to host 10.77.0.2 port 22: ")
    assert hint == "hint: taco-launch setup --check tells what is wrong there; or leave it out with -H"
    assert cluster.sh(f"ls {STATE}/jobs") == ""
    # The others do where they are enough.
    job = cluster.run(cluster.spec(name, "true", np=4))
    assert (job["state"], job["hosts"]) == ("SUCCEEDED", ["n1", "n3"])


def test_a_stop_is_heard_while_hosts_are_waited_for(cluster: Cluster, name: str) -> None:
    """A host without an answer is waited for longer than anybody who has pressed Ctrl-C."""
    cluster.sh("ip neigh replace 10.77.0.3 lladdr 02:00:00:00:00:99 dev eth0 nud permanent")
    try:
        with ThreadPoolExecutor(1) as pool:
            submitted = pool.submit(cluster.submit, cluster.spec(name, "true", np=6))
            eventually(lambda: cluster.alive("[p]yz guard /run/taco"))
            begin = time.monotonic()
            cluster.call("stop", name=name, by="the test", signal=2, grace=None)
            job = submitted.result()
    finally:
        cluster.sh("ip neigh del 10.77.0.3 dev eth0")
    assert (job["state"], job["exit_code"], job["reason"]) == ("CANCELLED", 130, "stopped by the test")
    assert job["started"] is None
    assert time.monotonic() - begin < 6
    nothing_left(cluster, 3)
    assert cluster.sh(f"ls {STATE}/jobs", on=1) == ""
