"""Jobs over several hosts with the real mpirun and a real sshd: the agent on the head, guards on the others."""

import signal
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from taco_launch.agent.gang.guard_pool import GUARD_SECONDS
from taco_launch.core.model.jobs import Policy, Restart
from tests.conftest import eventually
from tests.e2e.cluster import NAMES, STATE, Cluster
from tests.e2e.ends import (
    NO_WAIT,
    Kill,
    kill_leaves_nothing,
    kills,
    losing,
    loss_leaves_nothing,
    nothing_left,
    running,
    stop_leaves_nothing,
)
from tests.e2e.shapes import WORST, shapes
from tests.support.patience import patience

pytestmark = pytest.mark.e2e


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


@pytest.mark.nightly
def test_a_head_that_is_not_the_first_host(cluster: Cluster, name: str) -> None:
    """mpirun has the ranks of its own host first; so does the plan, and no rank is labelled with another's host."""
    spec = cluster.spec(name, "sh", "-c", "echo $RANK $(hostname) $MASTER_ADDR")
    job = cluster.run(replace(spec, hosts=tuple(reversed(spec.hosts))))
    assert job["state"] == "SUCCEEDED", job
    assert job["hosts"] == ["n1", "n3", "n2"]
    expected = [
        f"{host}/{rank} | {rank} {host} 10.77.0.1" for rank, host in enumerate(["n1", "n1", "n3", "n3", "n2", "n2"])
    ]
    assert sorted(cluster.log(name)) == sorted(expected)


@pytest.mark.nightly
@pytest.mark.parametrize(("retry_on", "count"), [("any", 2), ("same-host", 1)])
def test_where_a_retry_runs(cluster: Cluster, name: str, retry_on: str, count: int) -> None:
    policy = Policy(restart=Restart.ON_FAILURE, backoff_limit=1, backoff=0.1, retry_on=retry_on)
    spec = cluster.spec(name, "sh", "-c", "echo runs on $(hostname); exit 9")
    job = cluster.run(replace(spec, np=1, launcher="env", policy=policy))
    assert (job["state"], job["exit_code"], job["attempt"]) == ("FAILED", 9, 2), job
    ran = [line.split()[-1] for line in cluster.log(name) if "runs on" in line]
    assert len(ran) == 2
    assert len(set(ran)) == count
    moved = [text for text in job["warnings"] if text.startswith("attempt 2 runs on ")]
    assert len(moved) == count - 1


def test_one_connection_to_each_host_is_enough(cluster: Cluster, name: str) -> None:
    """mpirun starts its daemons over the guards' connections; where a user says by what, it makes its own."""
    log = cluster.made.folder / "log"
    cluster.run(cluster.spec(name, "true"))  # from here on the agent is on every host
    names = [name]
    for settings, connections in (({}, 2), ({"OMPI_MCA_plm_rsh_agent": "ssh"}, 4)):
        names.append(f"{name}-{connections}")
        before = log.read_text().count("Accepted publickey")
        job = cluster.run(cluster.spec(names[-1], "true"), **settings)
        assert job["state"] == "SUCCEEDED", job
        assert log.read_text().count("Accepted publickey") - before == connections
    for each in names:
        cluster.call("delete", names=[each])


@pytest.mark.parametrize(("rank", "script", "code"), [(4, "exit 3", 3), (2, "kill -9 $$", 137), (0, "exit 255", 255)])
def test_the_exit_code_of_a_rank_anywhere(cluster: Cluster, name: str, rank: int, script: str, code: int) -> None:
    job = cluster.run(
        cluster.spec(name, "sh", "-c", f"[ $RANK = {rank} ] && {{ echo last words; {script}; }}; sleep 600")
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


@pytest.mark.parametrize("shape", shapes(gate=[(), WORST], nightly=[("deaf",)]))
def test_stop_leaves_nothing_anywhere(cluster: Cluster, name: str, shape: Sequence[str]) -> None:
    stop_leaves_nothing(cluster, name, *shape)


@pytest.mark.parametrize("shape", shapes(gate=[WORST], nightly=[("deaf",)]))
@pytest.mark.parametrize("kill", kills("mpirun"))
def test_kill_9_of_any_part_leaves_nothing_anywhere(
    cluster: Cluster, name: str, shape: Sequence[str], kill: Kill
) -> None:
    kill_leaves_nothing(cluster, name, kill, *shape)


def test_a_head_that_is_gone_leaves_nothing_anywhere(cluster: Cluster, name: str) -> None:
    policy = losing()
    running(cluster, name, *WORST, policy=policy)
    cluster.link(0, "down")
    parts = cluster.alive("taco-state") + cluster.alive("^mpirun")
    cluster.sh('kill -9 "$@" 2>/dev/null || :', *(str(pid) for on, pid in [*parts, *cluster.victims()] if on == 0))
    eventually(lambda: not cluster.victims(), policy.host_loss_timeout + 20, "the guards to notice")
    cluster.link(0, "up")
    job = cluster.ended(name)
    assert job["state"] == "LOST"
    nothing_left(cluster)


# It writes until a file is there, and then how many lines that were.
WRITES = 'i=0; until [ -e "$GO" ]; do echo "line $i of rank $RANK"; i=$((i+1)); sleep 0.1; done; echo "all $i"'


def writes(cluster: Cluster, name: str, host_loss_timeout: float) -> Path:
    """Start a job whose ranks write until the file is made that is given."""
    go = cluster.made.folder / f"{name}.go"
    policy = Policy(host_loss_timeout=host_loss_timeout)
    cluster.submit(cluster.spec(name, "sh", "-c", WRITES, env=(("GO", str(go)),), policy=policy))
    eventually(lambda: cluster.job(name)["state"] == "RUNNING", what=f"{name} to run")
    return go


def succeeds_with_all_lines(cluster: Cluster, name: str) -> None:
    job = cluster.ended(name, 60)
    assert (job["state"], job["reason"]) == ("SUCCEEDED", "every rank exited with 0")
    for rank in range(6):
        *lines, last = cluster.log(name, rank)
        assert lines == [f"line {number} of rank {rank}" for number in range(len(lines))]
        assert last == f"all {len(lines)}"


def on_n2(cluster: Cluster, role: str) -> int:
    """Return a process of this role on the second host, 0 where there is none."""
    return min((pid for on, pid in cluster.alive(role) if on == 1), default=0)


def is_gone(cluster: Cluster, pid: int) -> bool:
    return not cluster.path(f"/proc/{pid}/cmdline", 1).exists()


@pytest.mark.parametrize("how", ["packets", "connections"])
def test_a_cut_of_5_seconds_ends_nothing(cluster: Cluster, name: str, how: str) -> None:
    # TCP tries again after 6.2 s where its packets were lost for longer than 3; then comes the next heartbeat.
    go = writes(cluster, name, patience(15))
    eventually(lambda: len(cluster.log(name)) > 60, what="lines of it")
    if how == "packets":
        cluster.link(1, "down")
        time.sleep(5)
        cluster.link(1, "up")
    else:
        for cut in range(3):
            role = "pyz attach" if cut else "pyz guard-start"
            connection = eventually(partial(on_n2, cluster, role), what=f"a connection by {role}")
            cluster.kill(connection, 1)
            eventually(partial(is_gone, cluster, connection), what="the connection to end")
    go.touch()
    succeeds_with_all_lines(cluster, name)


def test_a_host_that_is_lost_ends_the_job(cluster: Cluster, name: str) -> None:
    loss_leaves_nothing(cluster, name, *WORST)


def test_a_rank_that_failed_before_a_host_was_lost_is_why_the_job_failed(cluster: Cluster, name: str) -> None:
    policy = replace(losing(), grace=patience(90))
    script = 'test "$RANK" = 0 && exit 3; trap "" TERM; while :; do sleep 1; done'
    cluster.submit(cluster.spec(name, "sh", "-c", script, launcher="env", policy=policy))
    eventually(lambda: cluster.job(name)["state"] == "STOPPING", 30, "rank 0 to fail")
    time.sleep(policy.host_loss_timeout / 2 + 15)  # so long that it was no host that was shut down
    cluster.link(1, "down")
    job = cluster.ended(name, policy.host_loss_timeout + 90)
    assert (job["state"], job["exit_code"]) == ("FAILED", 3)
    assert job["reason"].startswith("rank 0 on n1 exited with code 3; host n2 lost: no heartbeat")
    nothing_left(cluster)


def test_of_ranks_on_a_lost_host_no_kill_is_told(cluster: Cluster, name: str) -> None:
    running(cluster, name, policy=losing())
    cluster.link(1, "down")
    cluster.call("stop", names=[name], by="the test", signal=15, grace=None)
    job = cluster.ended(name, losing().host_loss_timeout + 60)
    assert (job["state"], job["exit_code"]) == ("CANCELLED", 143)
    assert job["reason"].startswith("stopped by the test; its processes on n2 may still be running: "), job
    assert "had to be killed" not in job["reason"]
    nothing_left(cluster)


def test_a_time_in_which_nobody_could_listen_is_nobodys_silence(cluster: Cluster, name: str) -> None:
    """As when a virtual machine is suspended, or a disk hangs, for longer than a host may be silent."""
    silence = patience(6)
    go = writes(cluster, name, silence)
    roles = ("pyz run", "pyz guard /", " guard-start /")
    agents = [each for role in roles for each in cluster.alive(role)]
    assert len(agents) == 1 + 3 + 2 * 2  # the supervisor, guards, and both ends of a connection
    for number in (signal.SIGSTOP, signal.SIGCONT):
        cluster.signal(agents, number)
        time.sleep(1.5 * silence)  # so long nobody listens; and then so long all of them do
    go.touch()
    succeeds_with_all_lines(cluster, name)


def test_a_guard_that_hangs_is_a_lost_host(cluster: Cluster, name: str) -> None:
    policy = losing()
    running(cluster, name, *WORST, policy=policy)
    cluster.kill(cluster.pid("pyz guard /", 1), 1, signal.SIGSTOP)
    job = cluster.ended(name, policy.host_loss_timeout + 60)
    assert job["state"] == "LOST"
    assert job["reason"].startswith("host n2 lost: no heartbeat"), job
    nothing_left(cluster)


def test_slots_that_are_taken(cluster: Cluster, name: str) -> None:
    running(cluster, name, np=4)
    other = cluster.submit(cluster.spec("other", "true", np=4, policy=NO_WAIT))
    assert (other["state"], other["exit_code"]) == ("FAILED", 4)
    lines = [line.strip().partition(" held by")[0] for line in other["reason"].splitlines()]
    assert lines[1:4] == ["n1: 0 of 2 free, 2", "n2: 0 of 2 free, 2", "n3: 2 of 2 free"]
    assert "other" not in [row[0] for row in cluster.call("list")[0]["rows"]]
    # What is free is given.
    small = cluster.submit(cluster.spec("small", "hostname", np=2))
    (share,) = small["shares"]
    assert (share["host"], share["ranks"], share["slots"]) == ("n3", 2, ["slot-0", "slot-1"])
    assert cluster.ended("small")["state"] == "SUCCEEDED"
    cluster.call("delete", names=["small"])
    # Who waits is told the same, and has its turn.
    waits = cluster.submit(cluster.spec("waits", "true", np=4))
    assert (waits["state"], [host for host, _why in waits["waiting"]]) == ("QUEUED", list(NAMES))
    assert f"held by job {name} " in waits["waiting"][0][1]
    cluster.call("stop", names=[name], by="the test", signal=15, grace=0)
    cluster.ended(name)
    assert cluster.ended("waits")["state"] == "SUCCEEDED"
    assert cluster.run(cluster.spec("after", "true"))["state"] == "SUCCEEDED"
    for gone in ("waits", "after"):
        cluster.call("delete", names=[gone])


def test_delete_removes_what_other_hosts_keep(cluster: Cluster, name: str) -> None:
    cluster.run(cluster.spec(name, "true"))
    assert name in cluster.sh(f"ls {STATE}/jobs", on=2).split()
    cluster.call("delete", names=[name])
    for on in range(len(NAMES)):
        assert name not in cluster.sh(f"ls {STATE}/jobs", on=on).split()


def test_a_host_that_cannot_be_reached(cluster: Cluster, name: str) -> None:
    cluster.link(1, "down")
    refused = cluster.submit(cluster.spec("refused", "true", np=6))
    assert (refused["state"], refused["exit_code"]) == ("FAILED", 5)
    assert refused["reason"].startswith("n2 cannot be used: ssh: ")
    assert cluster.sh(f"ls {STATE}/jobs") == ""
    # The others do where they are enough.
    job = cluster.run(cluster.spec(name, "true", np=4))
    assert (job["state"], job["hosts"]) == ("SUCCEEDED", ["n1", "n3"])


def test_a_stop_is_heard_while_hosts_are_waited_for(cluster: Cluster, name: str) -> None:
    """A host without an answer is waited for longer than anybody who has pressed Ctrl-C."""
    cluster.sh("ip neigh replace 10.77.0.3 lladdr 02:00:00:00:00:99 dev eth0 nud permanent")
    ssh = cluster.made.folder / "bin" / "ssh"
    before = ssh.read_text()
    try:
        ssh.write_text(
            before.replace(" -F ", " -o ConnectTimeout=600 -F ")
        )  # then only the guard's time ends the waiting
        with ThreadPoolExecutor(1) as pool:
            submitted = pool.submit(cluster.submit, cluster.spec(name, "true", np=6))
            eventually(lambda: cluster.alive("pyz guard /run/taco"))
            begin = time.monotonic()
            cluster.call("stop", names=[name], by="the test", signal=2, grace=None)
            job = submitted.result()
            waited = time.monotonic() - begin
    finally:
        ssh.write_text(before)
        cluster.sh("ip neigh del 10.77.0.3 dev eth0")
    assert (job["state"], job["exit_code"], job["reason"]) == ("CANCELLED", 130, "stopped by the test")
    assert job["started"] is None
    assert waited < GUARD_SECONDS
    nothing_left(cluster)
    assert name not in cluster.sh(f"ls {STATE}/jobs", on=1).split()
