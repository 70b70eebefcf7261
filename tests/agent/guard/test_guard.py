"""The guard as a process of its own, its supervisor played over the socket."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from taco_launch.agent.host import facts, leases, processes
from taco_launch.agent.host.slot_holders import Holder
from taco_launch.agent.logs import segments
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core.lifecycle import state
from taco_launch.core.model.jobs import JobSpec, JobState
from taco_launch.core.protocol.connection import JsonConnection
from tests.agent.conftest import PYTHON, Family, Mail, connected, held
from tests.conftest import eventually
from tests.support.guards import Connect, ended, lease, register, supervise
from tests.support.patience import HANG

SLEEP = ("sleep", "60")


NOTHING = {"left": [], "unknown": ""}
ENDED = {"op": "exit", "exit_code": None, "reason": "", "lost": 0, "orphan": False, "size": 0, "killed": ""}
WELCOME = {"environment": {}, "log_max_bytes": 7, "umask": 18}


@pytest.mark.parametrize("look", [True, False])
def test_its_first_message_is_the_hosts_facts(connect: Connect, family: Family, look: bool) -> None:
    found = supervise(connect(), family, look=look).wait("facts")
    assert found["boot"] == facts.boot_id()
    assert found["host"] == json.loads(json.dumps((facts.host(count_slots=True) if look else facts.cpus()).to_wire()))


def test_a_rank_is_welcomed_and_its_life_is_told(supervisor: Mail, connect: Connect) -> None:
    environment = {"MASTER_PORT": "1", "odd": "\udcff\n"}
    supervisor.send("prepare", stall_after=600, welcome={**WELCOME, "environment": environment})
    supervisor.wait("facts")
    here = processes.identify(os.getpid())
    assert here is not None
    lives, gone = (here.pid, here.start), (2**21, 7)
    one, two = register(connect(), 1, (2**21, 5), lives), register(connect(), 0, (2**21, 6), gone)
    for rank in (one, two):
        told = {**WELCOME, "environment": environment, "processes": 1, "attempt": 1, "folder": "", "nccl_file": False}
        assert rank.wait("welcome") == {"op": "welcome", **told}
    assert [supervisor.wait("started")["rank"] for _rank in range(2)] == [1, 0]
    one.send("exit", rank=1, exit_code=3, reason="why")
    assert supervisor.wait("exit") == {**ENDED, "rank": 1, "exit_code": 3, "reason": "why"}
    one.close()
    # The other's wrapper is killed before it could tell, behind what had started it.
    two.close()
    assert supervisor.wait("exit") == {**ENDED, "rank": 0, "orphan": True}
    supervisor.receive(0.2)
    assert supervisor.box == []


def test_slots_that_cannot_be_leased_are_no_busy_slots(supervisor: Mail, folder: JobFolder) -> None:
    (folder.path / "leases").write_bytes(b"")
    lease(supervisor, 1)
    answer = supervisor.wait("leased")
    assert answer["error"].startswith(f"cannot write lease files in {folder.path}/leases: Not a directory (")
    assert answer["slots"] is None


def test_slots_are_leased_by_count_and_let_go(supervisor: Mail, folder: JobFolder, family: Family) -> None:
    facts_ = supervisor.wait("facts")
    assert [slot["name"] for slot in facts_["occupancy"]["slots"]] == ["slot-0", "slot-1"]
    place = folder.path / "leases"
    other = leases.Leases(place, folder.path.parent)
    assert other.take(("slot-0",), 1, Holder("vgg16", "other", 0.0), None)
    lease(supervisor, 2)
    answer = supervisor.wait("leased")
    assert answer["slots"] is None
    held = [slot["holder"] and slot["holder"]["job"] for slot in answer["occupancy"]["slots"]]
    assert held == ["vgg16", None]
    lease(supervisor, 1)
    assert supervisor.wait("leased")["slots"] == ["slot-1"]
    told = json.loads((place / f"slot-1.{os.geteuid()}").read_text(encoding="ascii"))
    wanted = {"job": "job", "id": family.job_id, "cluster": "c", "owner": "ann"}
    assert {name: told[name] for name in wanted} == wanted
    other.release(gone=True)
    supervisor.send("unlease", look=True)
    after = supervisor.wait("unleased")["occupancy"]
    assert [slot["holder"] for slot in after["slots"]] == [None, None]
    assert not (place / f"slot-1.{os.geteuid()}").exists()


def test_what_is_leased_is_told_over_every_connection(supervisor: Mail, connect: Connect, family: Family) -> None:
    lease(supervisor, 1)
    supervisor.wait("leased")
    again = supervise(connect(), family)
    assert again.wait("leased")["slots"] == ["slot-0"]
    lease(again, 1)
    again.send("unlease", look=True)
    again.wait("unleased")
    third = supervise(connect(), family)
    third.wait("facts")
    third.receive(0.2)
    assert third.box == []


def test_what_a_job_leaves_running_is_the_next_ones_business(
    supervisor: Mail, guard: "subprocess.Popen[bytes]", family: Family, folder: JobFolder
) -> None:
    marked = family.start(SLEEP, marked=True)
    folder.sessions.mkdir()
    lease(supervisor, 1)
    supervisor.wait("leased")
    supervisor.send("end", roots=[], leave=True)
    assert supervisor.wait("ended")["left"] == []
    assert guard.wait(HANG) == 0
    assert marked.poll() is None
    assert folder.sessions.exists(), "it may be in use"
    assert family.job_id in (folder.path / "leases" / f"slot-0.{os.geteuid()}").read_text(encoding="ascii")
    following = leases.Leases(folder.path / "leases", folder.path.parent)
    assert following.take(("slot-0",), 1, Holder("next", "next", 0.0), None) == ("slot-0",)
    assert marked.wait(HANG) == -signal.SIGKILL
    following.release(gone=True)


def test_a_visitor_hears_how_a_rank_was_started_and_ends_with_the_job(
    supervisor: Mail, connect: Connect, guard: "subprocess.Popen[bytes]", family: Family
) -> None:
    supervisor.send("prepare", stall_after=600, welcome={**WELCOME, "environment": {"A": "1"}})
    rank = register(connect(), 3, (2**21, 5), (2**21, 6))
    supervisor.wait("started")
    visitor, process = connect(), family.start(SLEEP)
    visitor.send("visit", rank=3, root=family.root(process))
    found = visitor.wait("visited")
    assert (found["roots"], found["environment"]) == ([[2**21, 5], [2**21, 6]], {"A": "1"})
    nobody = connect()
    nobody.send("visit", rank=4, root=family.root(process))
    assert nobody.wait("visited") == {"op": "visited", "roots": [], "environment": {}, "umask": 0, "processes": 1}
    rank.send("exit", rank=3, exit_code=0, reason="")
    supervisor.wait("exit")
    nobody.send("visit", rank=3, root=family.root(process))
    assert nobody.wait("visited")["roots"] == []
    supervisor.send("terminate")
    visitor.wait("terminate")
    assert ended(supervisor, guard) == NOTHING
    assert process.wait(HANG) == -signal.SIGKILL


def test_orders_reach_every_rank(supervisor: Mail, connect: Connect) -> None:
    supervisor.send("prepare", stall_after=600, welcome=WELCOME)
    ranks = [register(connect(), number) for number in range(3)]
    for _rank in ranks:
        supervisor.wait("started")
    ranks[0].send("exit", rank=0, exit_code=0, reason="")
    for order in ("terminate", "release"):
        supervisor.send(order)
        for rank in ranks:  # also one that has told its end, and waits to be released
            assert rank.wait(order) == {"op": order}


def test_a_rank_that_comes_late_hears_of_it(supervisor: Mail, connect: Connect) -> None:
    supervisor.send("prepare", stall_after=600, welcome=WELCOME)
    early = register(connect(), 0)
    early.wait("welcome")
    supervisor.send("terminate")
    early.wait("terminate")
    late = register(connect(), 1)
    late.wait("welcome")
    late.wait("terminate")


@pytest.mark.parametrize("stopped", [False, True])
def test_a_rank_that_was_faster_than_its_welcome_gets_it(supervisor: Mail, connect: Connect, stopped: bool) -> None:
    early = register(connect(), 0)
    supervisor.wait("started")
    if stopped:
        supervisor.send("terminate")
        early.wait("terminate")  # a rank hears nothing before its welcome, so this comes again
    for _connection in range(2):  # orders may come twice
        supervisor.send("prepare", stall_after=600, welcome=WELCOME)
    assert early.wait("welcome") == {
        "op": "welcome",
        **WELCOME,
        "processes": 1,
        "attempt": 1,
        "folder": "",
        "nccl_file": False,
    }
    if stopped:
        early.wait("terminate")
    early.receive(0.2)
    assert early.box == []


def test_the_end_leaves_nothing(
    supervisor: Mail, connect: Connect, guard: "subprocess.Popen[bytes]", family: Family, folder: JobFolder
) -> None:
    (folder.sessions / "ompi.gpu1.0/pid.1").mkdir(parents=True)  # as mpirun leaves it when a signal ends it
    marked = family.start(SLEEP, marked=True)
    registered, launched, named, bystander = (family.start(SLEEP) for _process in range(4))
    supervisor.send("prepare", stall_after=600, welcome=WELCOME)
    register(connect(), 0, family.root(registered))
    supervisor.wait("started")
    supervisor.send("launched", root=family.root(launched))
    assert ended(supervisor, guard, family.root(named)) == NOTHING
    for process in (marked, registered, launched, named):
        assert process.wait(HANG) == -signal.SIGKILL
    assert bystander.poll() is None
    assert not folder.sessions.exists()


def test_what_ranks_have_said_comes_before_the_end(
    supervisor: Mail, connect: Connect, guard: "subprocess.Popen[bytes]"
) -> None:
    supervisor.send("prepare", stall_after=600, welcome=WELCOME)
    told, killed = register(connect(), 0), register(connect(), 1)
    for _rank in range(2):
        supervisor.wait("started")
    with held(guard):
        supervisor.send("end", roots=[])
        told.send("exit", rank=0, exit_code=9, reason="")
        for rank in (told, killed):
            rank.close()
    supervisor.wait("facts")
    supervisor.wait("ended")
    assert {message["rank"]: message["exit_code"] for message in supervisor.box} == {0: 9, 1: None}
    assert guard.wait(HANG) == 0


def test_a_broken_connection_is_made_again(
    supervisor: Mail, connect: Connect, guard: "subprocess.Popen[bytes]", family: Family
) -> None:
    process = family.start(SLEEP, marked=True)
    supervisor.send("prepare", stall_after=600, welcome=WELCOME)
    rank = register(connect(), 0)
    supervisor.wait("started")
    supervisor.close()
    rank.receive(1.2)  # longer than the guard takes to see whether the supervisor is alive
    assert not rank.closed
    again = supervise(connect(), family)
    again.wait("facts")
    rank.send("exit", rank=0, exit_code=0, reason="")
    again.wait("exit")
    assert process.poll() is None
    assert ended(again, guard) == NOTHING


def test_a_dead_supervisors_job_is_ended_and_recorded(
    supervisor: Mail, guard: "subprocess.Popen[bytes]", family: Family, folder: JobFolder, lock: list[int]
) -> None:
    records.write_spec(folder, JobSpec("job", ("true",), ()))
    records.Events(folder).add(state.SUBMITTED, id=family.job_id)
    records.Events(folder).add(state.PLACED, np=1, hosts=["me"], line="")
    marked, launched, bystander = family.start(SLEEP, marked=True), family.start(SLEEP), family.start(SLEEP)
    supervise(supervisor, family, agent_log=True, name="me")
    supervisor.send("launched", root=family.root(launched))
    supervisor.wait("facts")
    supervisor.close()
    os.close(lock.pop())
    assert guard.wait(HANG) == 0
    assert (marked.wait(HANG), launched.wait(HANG), bystander.poll()) == (-9, -9, None)
    assert records.record(folder).state is JobState.LOST
    told = segments.last_words(folder.agent_log)  # nobody but the guard can write what it did then
    assert "guard of me: the supervisor is gone: its guard ends the job\n" in told
    assert "guard of me: ended: " in told


def test_an_attempt_that_another_process_has_followed_by_the_next_is_left(
    supervisor: Mail, guard: "subprocess.Popen[bytes]", family: Family, folder: JobFolder
) -> None:
    records.Events(folder).add(state.SUBMITTED, id=family.job_id)
    supervise(supervisor, family, 600).wait("facts")
    marked = family.start(SLEEP, marked=True)
    events = records.Events(folder)
    events.add(state.PLACED, np=1, hosts=["me"], line="")
    events.add(state.RESTARTING, "its supervisor was killed", delay=0.0, exit_code=1)
    supervisor.close()
    assert marked.poll() is None
    events.add(state.PLACED, np=1, hosts=["me"], line="", mark="another")
    # The lock is held, by the next supervisor: this guard ends long before the supervisor's silence counts as its loss.
    assert guard.wait(HANG) == 0
    assert marked.wait(HANG) == -signal.SIGKILL


def test_the_next_supervisor_does_not_reach_an_earlier_guard(
    supervisor: Mail, guard: "subprocess.Popen[bytes]", folder: JobFolder
) -> None:
    assert not supervisor.closed
    folder.remove_socket()
    with pytest.raises(OSError, match="No such file"):
        folder.connect()
    assert guard.poll() is None


def test_a_silent_supervisor_is_given_up(
    connect: Connect, guard: "subprocess.Popen[bytes]", family: Family, folder: JobFolder
) -> None:
    supervisor = supervise(connect(), family, timeout=0.5)
    marked = family.start(SLEEP, marked=True)
    for _beat in range(6):
        supervisor.send("beat")
        supervisor.receive(0.2)
    assert guard.poll() is None
    assert marked.poll() is None
    # No beat any more. The lock is held: it hangs, so its job is ended and nothing is recorded in its stead.
    assert guard.wait(HANG) == 0
    assert marked.wait(HANG) == -signal.SIGKILL
    assert records.read_events(folder) == []


def test_a_rank_that_leaves_before_it_registers(supervisor: Mail, connect: Connect) -> None:
    connect().close()
    supervisor.wait("facts")
    supervisor.send("beat")
    supervisor.receive(0.2)
    assert not supervisor.closed
    assert supervisor.box == [{"op": "beat"}]


def test_its_socket_is_private(supervisor: Mail, folder: JobFolder) -> None:
    supervisor.wait("facts")
    (socket_,) = [path for path in folder.path.iterdir() if path.is_socket()]
    assert socket_.stat().st_mode & 0o077 == 0


def test_it_is_no_member_of_its_job(supervisor: Mail, guard: "subprocess.Popen[bytes]", family: Family) -> None:
    own = processes.identify(guard.pid)
    assert own is not None
    supervisor.send("launched", root=[own.pid, own.start])
    assert ended(supervisor, guard) == NOTHING
    assert family.job_id


@pytest.mark.parametrize("ranks", [0, 1])
def test_one_that_nobody_asks_for_any_more_keeps_the_folder_for_its_logs_only(
    folder: JobFolder, agent: Path, family: Family, ranks: int
) -> None:
    # The head knows where ranks ran; a host that it let go while the network was away it will never ask.
    with open(folder.debug, "wb") as debug:
        guard = family.start((*PYTHON, str(agent), "guard", str(folder.path), family.job_id), stderr=debug)
    mail = supervise(
        Mail(JsonConnection(eventually(lambda: connected(folder), 10, "the guard to listen"))), family, 0.3
    )
    mail.wait("facts")
    if ranks:
        rank = register(Mail(JsonConnection(folder.connect())), 0)
        mail.wait("started")
        rank.close()
    mail.close()
    assert guard.wait(HANG) == 0
    assert folder.path.exists() == bool(ranks)
