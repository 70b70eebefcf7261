"""The agent's stage, planned; and its script on a real folder: the link, and which old agents stay."""

import fcntl
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from taco_launch.model.host.fact_value import NOT_ASKED
from taco_launch.model.host.facts import HostFacts, SetupFile
from taco_launch.setup import paths, scripts
from taco_launch.setup.ops import Op, PlanContext, Problem
from taco_launch.setup.stages import agent
from tests.setup.mesh import World, bare, inventory
from tests.setup.training import made

NEW = "agent-0123456789abcdef.pyz"
THERE = (
    SetupFile(paths.STATE, None, 0o700),
    SetupFile(f"{paths.AGENT}/{NEW}", "ab" * 32, 0o600),
    SetupFile(paths.AGENT_LINK, None, 0o777, NEW),
)


def planned(*files: SetupFile, data: bytes = b"zip") -> tuple[Op | Problem, ...]:
    facts = replace(bare("gpu1"), made=made(files=files))
    cluster = replace(World(inventory()).cluster, agent=(NEW, data))
    return tuple(agent.plan(cluster.host("gpu1"), facts, cluster))


def test_a_bare_host_gets_it() -> None:
    (op,) = planned()
    assert isinstance(op, Op)
    assert [(file.path, file.data, file.mode) for file in op.files] == [(f"{paths.AGENT}/{NEW}", b"zip", 0o600)]
    assert op.args == (paths.STATE, paths.AGENT, NEW)
    after: HostFacts = op.expect(replace(bare("gpu1"), made=made()))
    cluster = replace(World(inventory()).cluster, agent=(NEW, b"zip"))
    assert list(agent.plan(cluster.host("gpu1"), after, cluster)) == []


def test_what_is_there_is_known_by_its_name() -> None:
    assert planned(*THERE) == ()
    assert planned(*THERE, data=b"") == ()


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ((*THERE[:2], replace(THERE[2], link="agent-old.pyz")), "the link names another one"),
        (THERE[:2], "the link names another one"),
        ((replace(THERE[0], mode=0o755), *THERE[1:]), f"others may look into {paths.STATE}"),
    ],
)
def test_what_is_not_right(files: tuple[SetupFile, ...], why: str) -> None:
    (op,) = planned(*files)
    assert isinstance(op, Op)
    assert (op.why, op.files) == (why, ())


def test_nothing_to_do_without_one() -> None:
    world = World(inventory())
    facts = world.facts["gpu1"]
    bare_cluster: PlanContext = world.cluster
    assert list(agent.plan(bare_cluster.host("gpu1"), facts, bare_cluster)) == []
    (problem,) = agent.plan(
        bare_cluster.host("gpu1"), replace(facts, made=NOT_ASKED), replace(bare_cluster, agent=(NEW, b""))
    )
    assert isinstance(problem, Problem)


# --- the script

# Other processes of these tests have theirs at the same time, and each is looked at.
ONE, TWO = (f"agent-{number}-{os.getpid()}.pyz" for number in (1, 2))


def install(state: Path, name: str) -> None:
    argv = (
        "sh",
        "-euc",
        scripts.text("idle.sh") + scripts.text("agent.sh"),
        "agent.sh",
        str(state),
        str(state / "agent"),
        name,
    )
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, timeout=20)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    (folder / "agent").mkdir(parents=True)
    for name in (ONE, TWO, NEW):
        (folder / "agent" / name).touch()
    (folder / "agent" / "current").symlink_to(ONE)
    return folder


def agents(state: Path) -> set[str]:
    return {path.name for path in (state / "agent").glob("*.pyz")}


def test_the_link_is_set_and_old_ones_go(state: Path) -> None:
    install(state, NEW)
    assert (state / "agent" / "current").readlink() == Path(NEW)
    assert agents(state) == {NEW}
    assert state.stat().st_mode & 0o777 == 0o700
    assert not (state / "agent" / ".current").is_symlink()
    install(state, NEW)
    assert agents(state) == {NEW}


def test_one_that_a_process_runs_stays(state: Path) -> None:
    script = "import sys; sys.stdin.read()"
    argv = (sys.executable, "-c", script, str(state / "agent" / ONE), "guard")
    with subprocess.Popen(argv, stdin=subprocess.PIPE) as process:
        install(state, NEW)
        assert agents(state) == {NEW, ONE}
        process.communicate(b"")
    install(state, NEW)
    assert agents(state) == {NEW}


@pytest.mark.parametrize("jobs", ["jobs", "containers/hcc/jobs"])
def test_one_that_a_running_job_names_stays(state: Path, jobs: str) -> None:
    job = state / jobs / "train"
    job.mkdir(parents=True)
    (job / "events.jsonl").write_text(f'{{"agent": "{TWO}"}}\n')
    lock = os.open(job / "lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    install(state, NEW)
    assert agents(state) == {NEW, TWO}
    os.close(lock)
    install(state, NEW)
    assert agents(state) == {NEW}


@pytest.mark.parametrize("queue", ["jobs/.queue", "containers/hcc/jobs/.queue"])
def test_one_that_a_waiting_job_begins_with_stays(state: Path, queue: str) -> None:
    jobs = (state / queue).parent
    for name, file in (("waits", TWO), ("ended", ONE)):
        (jobs / name).mkdir(parents=True)
        (jobs / name / "agent.pyz").symlink_to(state / "agent" / file)
    pending = state / queue / "pending"
    pending.mkdir(parents=True)
    for name in ("waits", "gone"):
        (pending / name).touch()
    install(state, NEW)
    assert agents(state) == {NEW, TWO}
    (pending / "waits").unlink()
    install(state, NEW)
    assert agents(state) == {NEW}


def test_what_a_container_put_among_jobs_is_neither_followed_nor_waited_for(state: Path) -> None:
    job, odd = state / "jobs" / "train", state / "jobs" / "odd"
    job.mkdir(parents=True)
    odd.mkdir()
    os.mkfifo(job / "events.jsonl")
    (job / "spec.json").symlink_to(state / "elsewhere")
    (state / "elsewhere").write_text(TWO)
    (odd / "lock").symlink_to(state / "made")
    lock = os.open(job / "lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    install(state, NEW)
    os.close(lock)
    assert agents(state) == {NEW}
    assert not (state / "made").exists()
