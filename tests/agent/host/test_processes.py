"""What belongs to a job is found by mark, descent and session, ended whole, and nothing else is touched."""

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from taco_launch.agent.host import processes
from taco_launch.agent.host.processes import ProcessScan
from taco_launch.core.launch.command_line.env import JOB_ID, SERVICE
from tests.agent.conftest import Family, number
from tests.conftest import eventually
from tests.support.patience import HANG

SLEEP = ("sleep", "60")
# A shell that prints the number of its child and waits for it.
PARENT = ("sh", "-c", "sleep 60 & echo $!; wait")
# Leaves a child behind in its session, and is gone.
LEAVER = "import os\nif os.fork() == 0:\n    print(os.getpid(), flush=True)\n    os.execve('/bin/sleep', ['sleep', '60'], {})"
# A descendant that left session and parent behind, kept by a subreaper.
DAEMON = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
from taco_launch.agent.host import processes
processes.become_subreaper()
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    print(os.getpid(), flush=True)
    os.execve("/bin/sleep", ["sleep", "60"], {})
os.wait()
time.sleep(60)
"""
CROWD = """
import os, time
for _zombie in range(800):
    if os.fork() == 0:
        os._exit(0)
print(os.getpid(), flush=True)
time.sleep(60)
"""
CHAIN = """
import os, time
print(os.getpid(), flush=True)
while True:
    if os.fork():
        os._exit(0)
    time.sleep(0.002)
"""


def pids(scan: ProcessScan) -> set[int]:
    return {entry.pid for entry in scan.found}


def alive(pid: int) -> bool:
    entry = processes.identify(pid)
    return entry is not None and entry.state not in "ZX"


def test_by_its_mark(family: Family) -> None:
    ours = family.start(SLEEP, marked=True)
    others = [
        family.start(SLEEP),
        family.start(SLEEP, env={JOB_ID: family.job_id + "x"}),
        family.start(SLEEP, env={"X" + JOB_ID: family.job_id, "OTHER": f"{JOB_ID}={family.job_id}"}),
    ]
    assert pids(processes.scan(family.job_id)) == {ours.pid}
    assert all(other.poll() is None for other in others)


def test_by_descent_when_the_environment_is_wiped(family: Family) -> None:
    parent = family.start(PARENT, start_new_session=False)
    child = number(parent)
    assert pids(processes.scan(family.job_id)) == set()
    assert pids(processes.scan(family.job_id, [family.root(parent)])) == {parent.pid, child}


def test_by_descent_from_what_carries_the_mark(family: Family) -> None:
    parent = family.start(("sh", "-c", "env -i sleep 60 & echo $!; wait"), marked=True)
    child = number(parent)
    eventually(lambda: Path(f"/proc/{child}/environ").read_bytes() == b"", what="the environment to be wiped")
    assert pids(processes.scan(family.job_id)) == {parent.pid, child}


@pytest.mark.parametrize("op", ["keep-queue", "schedule", "run", "guard"])
def test_what_looks_after_jobs_belongs_to_none(family: Family, tmp_path: Path, op: str) -> None:
    # A rank has submitted another job: the scheduler below it, and all that this has started, is no part of its own job.
    agent = tmp_path / "agent.pyz"
    agent.write_text(
        "import subprocess\nit = subprocess.Popen(['sleep', '60'])\nprint(it.pid, flush=True)\nit.wait()\n"
    )
    service = f"env -i {SERVICE}=1 setsid {sys.executable} -I -S {agent} {op} & echo $!; wait"
    above = family.start(("sh", "-c", service), marked=True)
    below = {number(above), number(above)}
    eventually(lambda: pids(processes.scan(family.job_id)) == {above.pid})
    roots = [(entry.pid, entry.start) for entry in map(processes.identify, below) if entry is not None]
    # One that has only just been started has no environment yet.
    eventually(lambda: pids(processes.scan(family.job_id, roots)) == {above.pid})
    processes.end(family.job_id, roots)
    assert above.wait(HANG) == -9
    assert all(processes.identify(pid) is not None for pid in below)


def test_what_only_says_that_it_looks_after_jobs_ends_with_its_own(family: Family) -> None:
    claim = f"{SERVICE}=1 setsid sh -c 'sleep 60 & echo $!; wait' & echo $!; wait"
    above = family.start(("sh", "-c", claim), marked=True)
    below = {number(above), number(above)}
    eventually(lambda: pids(processes.scan(family.job_id)) == {above.pid, *below})
    assert processes.end(family.job_id, ()) == ProcessScan(())
    assert not any(map(alive, below))


def test_what_was_killed_is_waited_for_after_no_scan_finds_it(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that exits loses its environment first: on a busy machine that may be long before its files are closed."""
    process = family.start(SLEEP, marked=True)
    entry = processes.identify(process.pid)
    assert entry is not None
    scans = [ProcessScan((entry,)), ProcessScan((entry,))]
    monkeypatch.setattr(processes, "scan", lambda *_words: scans.pop(0) if scans else ProcessScan(()))
    kills: list[threading.Timer] = []
    signal_it = processes._signal

    def late(those: Iterable[tuple[int, int]], number: int) -> None:
        if number == signal.SIGKILL:
            kills.append(threading.Timer(0.3, signal_it, (those, number)))
            kills[-1].start()

    monkeypatch.setattr(processes, "_signal", late)
    monkeypatch.setattr(processes, "_signal_groups", lambda *_words: None)
    assert processes.end(family.job_id, ()) == ProcessScan(())
    assert not alive(process.pid)
    kills[0].join()


def test_by_the_session_of_a_root_that_is_a_zombie(family: Family) -> None:
    leader = family.python(LEAVER)
    root = family.root(leader)
    orphan = number(leader)
    eventually(lambda: not alive(leader.pid))
    assert pids(processes.scan(family.job_id, [root])) == {orphan}


def test_a_dead_roots_session_counts_where_it_holds_another_process_of_the_job(family: Family) -> None:
    # The number alone may be that of a stranger's session by now.
    leader = family.start(
        ("sh", "-c", f"env {JOB_ID}={family.job_id} sleep 60 & echo $!; sleep 60 & echo $!; read x"),
        stdin=subprocess.PIPE,
    )
    root = family.root(leader)
    marked, other = number(leader), number(leader)
    assert leader.stdin is not None
    leader.stdin.close()
    leader.wait(HANG)
    eventually(lambda: pids(processes.scan(family.job_id)) == {marked})
    assert pids(processes.scan(family.job_id, [root])) == {marked, other}
    assert pids(processes.scan("another-job", [root])) == set()


def test_a_daemon_stays_with_its_subreaper(family: Family, agent: Path) -> None:
    root = family.python(DAEMON, str(agent))
    daemon = number(root)
    eventually(lambda: [entry.pid for entry in processes.children(root.pid)] == [daemon])
    assert pids(processes.scan(family.job_id, [family.root(root)])) == {root.pid, daemon}


def test_a_process_number_that_was_given_to_another(family: Family) -> None:
    bystander = family.start(PARENT)
    child = number(bystander)
    pid, start = family.root(bystander)
    for wrong in (start - 1, start + 1, 0):
        assert pids(processes.end(family.job_id, [(pid, wrong)], 1.0)) == set()
    assert alive(bystander.pid)
    assert alive(child)


def test_zombies_are_gone(family: Family) -> None:
    zombie = family.start(("true",), marked=True)
    eventually(lambda: (entry := processes.identify(zombie.pid)) is not None and entry.state == "Z")
    assert processes.scan(family.job_id, [family.root(zombie)]).found == ()


def test_a_zombie_with_a_thread_is_not(family: Family) -> None:
    script = "import ctypes, threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\n"
    threaded = family.python(script + "ctypes.CDLL(None).pthread_exit(None)", marked=True)
    root = family.root(threaded)
    eventually(lambda: (entry := processes.identify(threaded.pid)) is not None and entry.state == "Z")
    assert pids(processes.scan(family.job_id, [root])) == {threaded.pid}
    assert processes.end(family.job_id, [root], 5.0).found == ()
    assert threaded.wait(HANG) == -signal.SIGKILL


def test_the_caller_and_those_above_it_are_never_found(family: Family) -> None:
    child = family.start(SLEEP, marked=True)
    line = [os.getpid(), os.getppid()]
    roots = [(entry.pid, entry.start) for entry in map(processes.identify, line) if entry is not None]
    assert len(roots) == 2
    found = pids(processes.scan(family.job_id, roots))
    assert not found & {*line, 1}
    assert child.pid in found


def test_no_id_is_no_mark(family: Family) -> None:
    # A job whose events are lost has no id: it must not be taken for everybody's.
    bystander = family.start(SLEEP, env={JOB_ID: ""})
    assert processes.scan("").found == ()
    assert bystander.poll() is None


def test_identify_reads_any_name(tmp_path: Path, family: Family) -> None:
    program = tmp_path / "a) R 1 (\n"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", program)
    process = family.start((str(program), "60"))
    eventually(lambda: b"a) R 1 (" in Path(f"/proc/{process.pid}/stat").read_bytes())
    entry = processes.identify(process.pid)
    assert entry is not None
    assert (entry.pid, entry.parent, entry.session) == (process.pid, os.getpid(), process.pid)
    assert 0 < entry.start <= time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK")
    assert entry.state in "SR"


def test_identify_of_what_is_gone(family: Family) -> None:
    process = family.start(("true",))
    process.wait()
    assert processes.identify(process.pid) is None
    assert processes.identify(0) is None


def test_children(family: Family) -> None:
    parent = family.start(PARENT)
    child = number(parent)
    assert [entry.pid for entry in processes.children(parent.pid)] == [child]
    assert processes.children(child) == []


def test_end_leaves_nothing_and_touches_nobody_else(family: Family, agent: Path) -> None:
    deaf = family.start(("sh", "-c", "trap '' TERM INT HUP; sleep 60; sleep 60"), marked=True)
    stopped = family.start(SLEEP, marked=True)
    stopped.send_signal(signal.SIGSTOP)
    root = family.python(DAEMON, str(agent))
    daemon = number(root)
    bystander = family.start(PARENT)
    child = number(bystander)
    assert processes.end(family.job_id, [family.root(root)]) == ProcessScan(())
    assert not any(map(alive, (deaf.pid, stopped.pid, root.pid, daemon)))
    assert alive(bystander.pid)
    assert alive(child)
    assert [process.wait(HANG) for process in (deaf, stopped, root)] == [-signal.SIGKILL] * 3


def test_end_of_nothing_is_at_once(family: Family) -> None:
    begin = time.monotonic()
    assert processes.end(family.job_id, (), 2 * HANG) == ProcessScan(())
    assert time.monotonic() - begin < HANG


def test_end_spares_others_in_the_group_of_a_member(family: Family) -> None:
    script = f"env {JOB_ID}={family.job_id} sleep 60 & echo $!; sleep 60 & echo $!; wait"
    bystander = family.start(("sh", "-c", script))
    member, child = number(bystander), number(bystander)
    eventually(lambda: pids(processes.scan(family.job_id)) == {member})
    assert processes.end(family.job_id, ()) == ProcessScan(())
    assert not alive(member)
    assert alive(bystander.pid)
    assert alive(child)


@pytest.mark.parametrize("marked", [True, False], ids=["mark", "session"])
def test_end_catches_a_chain_of_forks(family: Family, marked: bool) -> None:
    # Each link lives for less than a look at all of /proc takes on a host with many processes.
    number(family.python(CROWD))
    chain = family.python(CHAIN, marked=marked)
    roots = [] if marked else [family.root(chain)]
    number(chain)
    assert processes.end(family.job_id, roots) == ProcessScan(())
    # Every link holds the pipe that it writes to, so its end is the end of the last one.
    assert chain.stdout is not None
    assert select.select([chain.stdout], [], [], 0)[0], "a link of the chain is still alive"


def test_end_gives_what_it_may_not_end(family: Family) -> None:
    """Another user's process: found by its parent, and still there when the time is over."""
    if os.geteuid() != 0:
        pytest.skip("cannot: only root has processes of another user")
    victim = family.start(SLEEP)
    root = family.root(victim)
    answer = _as_nobody(lambda: repr(sorted(pids(processes.end(family.job_id, [root], 0.3)))))
    assert answer == repr([victim.pid])
    assert alive(victim.pid)


def test_an_environment_that_cannot_be_read_is_told(family: Family) -> None:
    def hide() -> str:
        _set_dumpable(0)
        os.write(1, b"hidden")
        time.sleep(60)
        return ""

    hidden, output = _fork_as_nobody(hide)
    try:
        assert os.read(output, 10) == b"hidden"
        entry = processes.identify(hidden)
        assert entry is not None
        told = _as_nobody(lambda: processes.scan(family.job_id, [(1, entry.start)]).unknown)
        assert told.startswith("processes of this user whose environment cannot be read: ")
        # What is older than the job is none of its.
        assert _as_nobody(lambda: processes.scan(family.job_id, [(1, entry.start + 1)]).unknown) == ""
        # Nor is what sshd keeps of its own for each that logs in.
        own = Path("/proc/self/comm")
        before = own.read_text()
        own.write_text("sshd-session")
        try:
            told = _as_nobody(lambda: processes.scan(family.job_id, [(1, entry.start)]).unknown)
        finally:
            own.write_text(before.strip())
        assert (told == "") == (os.geteuid() == 0)
    finally:
        os.kill(hidden, signal.SIGKILL)
        os.waitpid(hidden, 0)
        os.close(output)


def _as_nobody(work: Callable[[], str]) -> str:
    """Do some work in a process without root's rights, and give its answer."""
    pid, output = _fork_as_nobody(work)
    with open(output, encoding="utf-8") as text:
        answer = text.read()
    os.waitpid(pid, 0)
    return answer


def _fork_as_nobody(work: Callable[[], str]) -> tuple[int, int]:
    """Return (process, its stdout): a copy of this process, since a new program may lie where nobody can read it."""
    output, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            os.dup2(write_end, 1)
            if os.geteuid() == 0:
                os.setgroups([])
                os.setresgid(65534, 65534, 65534)
                os.setresuid(65534, 65534, 65534)
                _set_dumpable(1)  # lost with the user, and with it the right to read one's own /proc/self
            os.write(1, work().encode())
        os._exit(0)
    os.close(write_end)
    return pid, output


def _set_dumpable(value: int) -> None:
    ctypes.CDLL(None).prctl(4, value, 0, 0, 0)  # PR_SET_DUMPABLE, prctl(2): who is not, hides its environment
