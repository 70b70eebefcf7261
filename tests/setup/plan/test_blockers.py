"""What stands in the way of a plan: the script that looks, and what is made of its answer."""

import fcntl
import os
from dataclasses import replace
from pathlib import Path

import pytest

from taco_launch.setup.model.ops import HostFolder, Op, Problem
from taco_launch.setup.plan import blockers
from taco_launch.setup.plan.host_plan import HostPlan
from tests.support.setup_scripts import SHELLS, Fakes

CREATE = Op("container", "create taco-launch-c", "there is no container")
RECREATE = Op("container", "recreate taco-launch-c", "another image", disrupts="container")
TYPED = "taco-launch -i 'my hosts.yaml'"


def mounted(*folders: str, is_writable: bool = True) -> list[HostFolder]:
    return [HostFolder("container", folder, is_writable) for folder in folders]


def said(fakes: Fakes, plan: HostPlan, *folders: str) -> bytes:
    """Return what the script says on a host whose state folder is beside these programs."""
    command = blockers.look(plan, "taco-launch-c", folders, TYPED)
    assert command is not None
    text, _name, *args = command.argv[2:]
    text = text.replace("/var/lib/taco-launch", f"{fakes.folder.parent}/state")
    done = fakes.run_text(text.replace("/run/taco-launch", f"{fakes.folder.parent}/run"), *args)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.encode()


def test_nothing_is_asked_where_nothing_can_be_in_the_way() -> None:
    assert blockers.look(HostPlan("gpu1", (CREATE,)), "taco-launch-c", (), TYPED) is None
    assert blockers.look(HostPlan("gpu1", (RECREATE,)), "taco-launch-c", (), TYPED) is not None
    assert blockers.look(HostPlan("gpu1"), "taco-launch-c", ("/data",), TYPED) is not None


@pytest.mark.parametrize("shell", SHELLS)
def test_a_job_keeps_all_hosts_as_they_are(tmp_path: Path, shell: str) -> None:
    fakes, plan = Fakes(tmp_path / "bin", shell), HostPlan("gpu1", (CREATE, RECREATE))
    lock = tmp_path / "state/containers/c/jobs/busy/lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    queue = tmp_path / "state/containers/c/jobs/.queue/lock"
    queue.parent.mkdir()
    with queue.open("w") as of_the_queue:
        fcntl.flock(of_the_queue, fcntl.LOCK_EX)
        assert blockers.with_blockers(plan, (), said(fakes, plan)) == plan
    descriptor = os.open(lock, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        blocked = blockers.with_blockers(plan, (), said(fakes, plan))
        assert said(fakes, HostPlan("gpu1", (CREATE,)), str(tmp_path)) == b"", (
            "a container that stays is in no job's way"
        )
    finally:
        os.close(descriptor)
    (problem,) = blocked.problems
    assert (blocked.ops, problem.stage, problem.stops) == (plan.ops, "container", "cluster")
    assert problem.message == "job busy runs in taco-launch-c"
    assert problem.hint == f"wait for it (--wait-for-jobs 2h), or: {TYPED} stop busy"


@pytest.mark.parametrize("shell", SHELLS)
def test_what_all_clusters_share_stays_while_any_job_runs_on_the_host(tmp_path: Path, shell: str) -> None:
    shared = Op("docker", "remove the agent and the leases", "", idle="a container of this host")
    fakes, lock = Fakes(tmp_path / "bin", shell), tmp_path / "state/jobs/without-container/lock"
    lock.parent.mkdir(parents=True)
    with lock.open("w") as job:
        fcntl.flock(job, fcntl.LOCK_EX)
        for plan in (HostPlan("gpu1", (shared,)), HostPlan("gpu1", (RECREATE, shared))):
            (problem,) = blockers.with_blockers(plan, (), said(fakes, plan)).problems
            assert (problem.message, problem.passes) == ("job without-container runs in a container of this host", True)
        plan = HostPlan("gpu1", (RECREATE,))
        assert blockers.with_blockers(plan, (), said(fakes, plan)) == plan, "its container is in no such job's way"


@pytest.mark.parametrize("shell", SHELLS)
def test_a_folder_that_is_missing_keeps_its_host_as_it_is(tmp_path: Path, shell: str) -> None:
    there, gone, other = f"{tmp_path}/a b", f"{tmp_path}/gone", f"{tmp_path}/o\nther"
    Path(there).mkdir()
    fakes, plan = Fakes(tmp_path / "bin", shell), HostPlan("gpu1", (CREATE,))
    found = blockers.with_blockers(plan, mounted(there, gone), said(fakes, plan, there, gone))
    (problem,) = found.problems
    assert (found.ops, problem.stops) == ((), "host")
    assert problem.message == f"{gone}, which container.mounts lists, is not on this host"
    assert problem.hint == f"mkdir -p {gone} there, or take it out of container.mounts in the inventory"
    (problem,) = blockers.with_blockers(plan, mounted(other, gone), said(fakes, plan, other, gone)).problems
    assert problem.message == f"{other}, {gone}, which container.mounts lists, are not on this host"


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("options", "mode", "writable", "remarked"),
    [
        ("rw,relatime", 0o777, True, True),
        ("rw,nosuid,nodev", 0o777, True, False),
        ("rw,relatime", 0o770, True, False),
        ("rw,relatime", 0o777, False, False),
    ],
)
def test_a_writable_folder_where_setuid_programs_run_is_named(
    tmp_path: Path, shell: str, options: str, mode: int, writable: bool, remarked: bool
) -> None:
    """The folder lies below this one, whose ancestors others cannot always enter: stat answers for those."""
    data = tmp_path / "data"
    data.mkdir()
    fakes, plan = Fakes(tmp_path / "bin", shell), HostPlan("gpu1", (CREATE,))
    fakes.make("findmnt", f"echo {options}")
    fakes.make("stat", f'[ "$3" = {data} ] && echo {mode:o} || echo 755')
    (op,) = blockers.with_blockers(plan, mounted(str(data), is_writable=writable), said(fakes, plan, str(data))).ops
    assert (f"leave a setuid-root program in {data}" in op.why) is remarked


def test_what_ranks_can_leave_in_a_folder_is_told_once() -> None:
    plan = HostPlan("gpu1", (replace(CREATE, why=""), CREATE))
    first, second = blockers.with_blockers(plan, mounted("/data"), b"setuid 0\n").ops
    assert first.why.startswith("anyone who runs a rank can leave a setuid-root program in /data")
    assert second == CREATE


def test_all_that_is_in_the_way_is_told_at_once() -> None:
    known = Problem("docker", "no systemd")
    lines = b"missing 0\nerror: job busy runs in taco-launch-c\nhint: wait for it\n"
    found = blockers.with_blockers(HostPlan("gpu1", (RECREATE,), (known,)), mounted("/data"), lines)
    assert [problem.message for problem in found.problems] == [
        "job busy runs in taco-launch-c",
        "/data, which container.mounts lists, is not on this host",
        "no systemd",
    ]
    assert found.ops == ()


@pytest.mark.parametrize("answer", [b"missing x\n", b"missing \n", "missing ²\n".encode()])
def test_an_answer_of_another_kind_is_an_error(answer: bytes) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        blockers.with_blockers(HostPlan("gpu1", (CREATE,)), mounted("/data"), answer)
