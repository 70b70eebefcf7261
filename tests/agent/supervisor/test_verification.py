"""Whether a job runs as planned: when guards are asked, and what their answers amount to."""

from typing import Any

import pytest

from taco_launch.agent.logs import segments
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder
from taco_launch.agent.supervisor.ranks import Ranks
from taco_launch.agent.supervisor.verification import Verification
from taco_launch.core.lifecycle import state
from taco_launch.core.lifecycle.state import JobOutcome
from taco_launch.core.model.jobs import JobSpec, JobState, NetworkOverrides, Policy
from taco_launch.core.model.plans import Placement, Share
from taco_launch.core.model.run.observed import InterfaceTraffic, SeenRank
from taco_launch.core.protocol.message import Message
from taco_launch.core.protocol.stall_messages import LookAtRanks
from taco_launch.core.protocol.verify_messages import RanksSeen
from taco_launch.core.verify.nccl_log import parse
from tests.support.fleet import roce, with_hcas
from tests.support.planned import FAR, RDMA, plan, told
from tests.support.whole_logs import lines_of

FACTS = told(*(with_hcas(host.name, roce("mlx5_bond_0", "bond0", host.address)) for host in FAR), nccl="2.9.9")


class Job:
    """A job of one rank on each of two hosts, planned by the planner itself, at a time that the test sets."""

    def __init__(self, folder: JobFolder, monkeypatch: pytest.MonkeyPatch, *, strict: bool = False) -> None:
        self.now = 1000.0
        self.end: JobOutcome | None = None
        monkeypatch.setattr("taco_launch.agent.supervisor.verification.time.monotonic", lambda: self.now)
        self.folder, events = folder, records.Events(folder)
        self.ranks = Ranks(folder, events, 1 << 20)
        self.ranks._placed = self.ranks.started = {0: "gpu1", 1: "gpu2"}
        self.orders: list[Message] = []
        launch = plan(FACTS, hosts=FAR, np=16, head="gpu1", network=RDMA, asked=NetworkOverrides(transport="tcp"))
        spec = JobSpec("vgg16", ("true",), FAR, policy=Policy(strict=strict))
        self.verification = Verification(spec, folder, self.ranks, events, self.orders.append)
        self.verification.begin(Placement((Share("gpu1", 1), Share("gpu2", 1)), ""), launch, FACTS)
        self.verification.step()

    def after(self, seconds: float) -> None:
        self.now += seconds
        self.end = self.verification.step()

    def variables(self) -> tuple[tuple[str, str], ...]:
        assert self.verification._comparison is not None
        return self.verification._comparison._planned().env

    def answer(self, host: str, rank: int, interface: str = "bond0", nccl: str = "", **changes: str) -> None:
        env = tuple({**dict(self.variables()), **changes}.items())
        traffic = (InterfaceTraffic(interface, 3, 1 << 20, ("10.0.0.9",)),)
        seen = RanksSeen(ranks=[SeenRank(rank, "", env=env, sockets=traffic)], nccl=parse(nccl))
        self.verification.note(host, RanksSeen.from_wire(seen.to_wire()))

    def told(self) -> list[dict[str, Any]]:
        return [dict(event.data) for event in records.read_events(self.folder) if event.kind == state.VERIFIED]


@pytest.fixture
def job(folder: JobFolder, monkeypatch: pytest.MonkeyPatch) -> Job:
    return Job(folder, monkeypatch)


def test_it_runs_as_planned(job: Job) -> None:
    job.after(59)
    assert job.orders == []
    job.after(1)
    (order,) = job.orders
    assert isinstance(order, LookAtRanks)
    assert set(order.variables) == {*dict(job.variables()), "CUDA_VISIBLE_DEVICES"}
    job.answer("gpu1", 0)
    job.after(0)
    assert job.told() == []
    job.answer("gpu2", 1)
    job.after(0)
    assert job.told() == [{"status": "True", "why": "ranks and hosts, libraries, environment, interface", "next": ""}]
    job.after(10_000)
    assert len(job.orders) == 1


def test_the_traffic_goes_another_way(job: Job) -> None:
    job.after(60)
    job.answer("gpu1", 0)
    job.answer("gpu2", 1, "docker0")
    job.after(0)
    (told,) = job.told()
    assert (told["status"], told["why"]) == (
        "False",
        "rank 1 on gpu2: interface: planned bond0, is docker0 (1048576 bytes, 0 on bond0)",
    )
    assert "NCCL_SOCKET_IFNAME==bond0" in told["next"]


def test_what_a_host_says_of_other_hosts_ranks_is_not_believed(job: Job) -> None:
    job.after(60)
    job.answer("gpu2", 0, "docker0")
    job.answer("gpu1", 0)
    job.after(0)
    (told,) = job.told()
    assert told["status"] == "Unknown"


def test_of_long_logs_only_the_beginning_is_read(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    log = segments.Writer(job.folder.rank(0), 1 << 26)
    for _piece in range(64):
        log.write(b"x" * (1 << 16))
    read: list[int] = []
    whole = segments.SegmentReader.read

    def counted(reader: segments.SegmentReader, size: int = segments.CHUNK) -> bytes:
        data = whole(reader, size)
        read.append(len(data))
        return data

    monkeypatch.setattr(segments.SegmentReader, "read", counted)
    job.after(60)
    job.answer("gpu1", 0)
    job.answer("gpu2", 1)
    job.after(0)
    assert len(job.told()) == 1
    assert 0 < sum(read) <= 1 << 17


def test_a_variable_that_is_set_again(job: Job) -> None:
    job.after(60)
    name = job.variables()[0][0]
    job.answer("gpu1", 0, **{name: "other"})
    job.answer("gpu2", 1)
    job.after(0)
    (told,) = job.told()
    assert told["why"].startswith(f"rank 0 on gpu1: environment: planned {name}=")
    assert "taco-launch exec vgg16 --rank 0 -- env" in told["next"]
    assert job.end is None


def test_a_strict_job_ends_that_does_not_run_as_planned(folder: JobFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(folder, monkeypatch, strict=True)
    job.after(60)
    name = job.variables()[0][0]
    job.answer("gpu1", 0, **{name: "other"})
    job.answer("gpu2", 1)
    job.after(0)
    assert job.end is not None
    assert (job.end.state, job.end.exit_code) == (JobState.FAILED, 125)
    told = f"it does not run as planned (--strict): rank 0 on gpu1: environment: planned {name}="
    assert job.end.reason.startswith(told)
    assert "taco-launch exec vgg16 --rank 0 -- env" in job.end.hint


def test_a_strict_job_of_which_not_all_is_known_continues(folder: JobFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(folder, monkeypatch, strict=True)
    job.after(60)
    job.answer("gpu1", 0)
    job.after(11)
    assert [each["status"] for each in job.told()] == ["Unknown"]
    assert job.end is None
    job.after(240)
    job.answer("gpu1", 0)
    job.answer("gpu2", 1)
    job.after(0)
    assert [each["status"] for each in job.told()] == ["Unknown", "True"]
    assert job.end is None


@pytest.mark.parametrize("is_file", [False, True], ids=["into the ranks' logs", "into files of its own"])
@pytest.mark.parametrize(
    ("network", "why"),
    [
        ("Socket", "NCCL has not logged a connection from another host on gpu2"),
        ("IB", "rank 0 on gpu1: transport: planned NET/Socket, is NET/IB"),
    ],
)
def test_what_nccl_wrote_is_compared(job: Job, network: str, why: str, is_file: bool) -> None:
    """The job was to use TCP. The lines are NCCL's own format strings, filled in; simulated, as no GPU is here."""
    job.after(60)
    for rank, host in job.ranks.started.items():
        lines = "\n".join(lines_of("2.21.5", rank, network, world=2, host=host))
        text = f"{lines}\n".replace("eth0", "bond0")
        if not is_file:
            segments.Writer(job.folder.rank(rank), 1 << 20).write(text.encode())
        job.answer(host, rank, nccl=text.replace(host, f"{host}.example") if is_file else "")
    job.after(0)
    (told,) = job.told()
    assert told["why"] == why


def test_a_guard_that_does_not_answer_is_asked_again_later(job: Job) -> None:
    job.after(60)
    job.answer("gpu1", 0)
    job.after(9)
    assert job.told() == []
    job.after(2)
    (told,) = job.told()
    assert (told["status"], told["why"]) == (
        "Unknown",
        "rank 1 not seen; interface that the ranks use on gpu2 not known",
    )
    job.after(240)
    assert len(job.orders) == 2
    job.answer("gpu1", 0)
    job.answer("gpu2", 1)
    job.after(0)
    assert [each["status"] for each in job.told()] == ["Unknown", "True"]


@pytest.mark.parametrize("change", ["starting", "ended"])
def test_only_ranks_that_all_run_are_looked_at(job: Job, change: str) -> None:
    if change == "starting":
        job.ranks._placed = dict.fromkeys(range(3), "gpu1")
    else:
        job.ranks.ended = {0: 0}
    job.after(100)
    assert job.orders == []
