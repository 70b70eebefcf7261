"""Jobs put together from the answers of several hosts, and hosts that cannot answer."""

import json
from dataclasses import replace

import pytest

from taco_launch.core.command import Command, Result
from taco_launch.core.errors import HostError
from taco_launch.core.model.run.host_jobs import MOST_RANKS, HostJob
from taco_launch.core.model.run.rank_samples import Life, RankStack
from taco_launch.core.model.stalls import RankLook
from taco_launch.core.protocol.stack_messages import HostJobs
from taco_launch.hosts.fanout import Answer
from taco_launch.jobs.any_ranks import AnyJob, jobs_of, payload, watch


def part(
    *ranks: int,
    waits: bool = True,
    sign: str = "",
    launcher: str = "Open MPI",
    name: str = "7",
    size: int = 4,
    where: str = "",
) -> HostJob:
    does = "in hvd.allreduce at train.py:9" if waits else "in load at data.py:3"
    looks = tuple(RankStack(RankLook(rank, 100 + rank, "python", "S", where, does=does, waits=waits)) for rank in ranks)
    return HostJob(launcher, name, size, "python train.py", 10.0, 10.0, sign, looks)


def merged(**hosts: HostJob) -> tuple[AnyJob, ...]:
    return jobs_of([Answer(host, HostJobs(jobs=[job])) for host, job in hosts.items()])


def test_one_job_over_hosts() -> None:
    (job,) = merged(gpu1=part(0, 1, 2), gpu2=part(3, waits=False))
    assert [(told.look.rank, told.look.host) for told in job.ranks] == [
        (0, "gpu1"),
        (1, "gpu1"),
        (2, "gpu1"),
        (3, "gpu2"),
    ]
    assert job.absent == ()
    assert job.verdict.life is Life.HUNG
    assert job.verdict.why.startswith("no rank has made progress for 10 s: rank 3 on gpu2 is in load at data.py:3; ")


def test_where_ranks_were_not_seen_it_is_not_known_whether_the_job_hangs() -> None:
    """The others may wait for one that works on a host that was not asked; a rank that is stopped tells all the same."""
    (job,) = merged(gpu1=part(0, 1, 2))
    assert (job.verdict.life, job.absent) == (Life.UNKNOWN, (3,))
    assert job.verdict.why.startswith("of the ranks that were seen, no rank has made progress for 10 s: ")
    assert job.verdict.why.endswith("; 1 of 4 was not seen: ended, or on other hosts")
    assert "no rank is missing" not in job.verdict.why
    stopped = part(0, 1)
    stopped = replace(stopped, ranks=tuple(replace(one, look=replace(one.look, state="T")) for one in stopped.ranks))
    assert merged(gpu1=stopped)[0].verdict.life is Life.HUNG


def test_sleep_for_which_no_rank_waits_is_no_hang_yet() -> None:
    """On a busy host all looks of a short watch may fall into the pause between two steps."""
    asleep = part(0, 1, 2, 3, waits=False, where="hrtimer_nanosleep")
    (job,) = merged(gpu1=asleep)
    assert job.verdict.life is Life.UNKNOWN
    assert job.verdict.why.startswith("rank 0 on gpu1 sleeps, in load at data.py:3, and no rank waits for it")
    first, *others = asleep.ranks
    unread = (first, *(replace(one, look=replace(one.look, does="", idle=True)) for one in others))
    assert "; watch it longer" in merged(gpu1=replace(asleep, ranks=unread))[0].verdict.why
    assert "and the stacks of other ranks cannot be read" in merged(gpu1=replace(asleep, ranks=unread))[0].verdict.why
    assert merged(gpu1=replace(asleep, silent=60.0))[0].verdict.is_hung
    assert merged(gpu1=part(0, 1, 2, 3, waits=False, where="futex_wait_queue"))[0].verdict.is_hung
    awaited = part(0, 1, 2), part(3, waits=False, where="hrtimer_nanosleep")
    assert merged(gpu1=awaited[0], gpu2=awaited[1])[0].verdict.is_hung


def test_the_size_of_a_job_decides_no_amount_of_memory() -> None:
    """Any user of a host sets it: of a million ranks that were not seen, the first are listed."""
    (job,) = merged(gpu1=part(0, size=MOST_RANKS))
    assert (job.absent_count, len(job.absent), job.absent[0]) == (MOST_RANKS - 1, 1024, 1)


def test_progress_on_one_host_is_progress() -> None:
    (job,) = merged(gpu1=part(0, 1), gpu2=part(2, 3, sign="rank 2 writes output"))
    assert (job.verdict.life, job.verdict.why) == (Life.WORKING, "on gpu2, rank 2 writes output")
    (plain,) = merged(gpu1=part(0, sign="rank 0 computes", launcher="", name="train.py", size=0))
    assert plain.verdict.why == "on gpu1, a process computes"


def test_jobs_that_are_not_the_same() -> None:
    """By their name; where a launcher has none, the same line with the same rank twice is two runs."""
    assert len(merged(gpu1=part(0), gpu2=part(1, name="8"))) == 2
    first = part(0, 1, launcher="MPICH or Intel MPI", name="")
    assert len(merged(gpu1=first, gpu2=part(2, 3, launcher=first.launcher, name=""))) == 1
    assert len(merged(gpu1=first, gpu2=first)) == 2


def test_programs_without_a_rank_are_numbered_by_host() -> None:
    one, two = (part(*ranks, launcher="", name="train.py", size=0) for ranks in ((0, 1), (0,)))
    (job,) = merged(gpu1=one, gpu2=two)
    assert [(told.look.rank, told.look.host) for told in job.ranks] == [(0, "gpu1"), (1, "gpu1"), (2, "gpu2")]
    assert job.absent == ()


def test_a_launcher_without_ranks_neither_works_nor_has_ended() -> None:
    """Even if its own processes compute; what ended while it was watched has no ranks where no launcher gave them numbers."""
    starting = replace(part(0, sign="rank 0 computes", launcher="", name="train.py", size=0), starting="torchrun")
    (job,) = merged(gpu1=starting, gpu2=starting)
    assert (job.launcher, job.is_starting, job.verdict.life) == ("torchrun", True, Life.UNKNOWN)
    assert job.verdict.why.startswith("torchrun runs and has no ranks yet: ")
    assert len(merged(gpu1=starting, gpu2=replace(starting, starting=""))) == 2
    assert merged(gpu1=part())[0].verdict.why == "its ranks have ended"
    assert merged(gpu1=part(launcher="", size=0))[0].verdict.why == "its processes have ended"


class Host:
    """A host whose shell answers with this."""

    name = "gpu1"

    def __init__(self, stdout: bytes, stderr: bytes = b"", code: int = 0) -> None:
        self.result = (code, stdout, stderr)

    def run(self, command: Command) -> Result:
        code, stdout, stderr = self.result
        return Result(self.name, command, code, stdout, stderr, 0.1)


@pytest.mark.parametrize(
    ("host", "why"),
    [
        (
            Host(b"", b"python3 is required there, and was not found\n", 1),
            "python3 is required there, and was not found",
        ),
        (Host(b"Welcome!\n"), "not a taco-launch message: b'Welcome!'"),
        (Host(json.dumps({"op": "host-jobs", "jobs": [{"launcher": 3}]}).encode() + b"\n"), ""),
        (Host(HostJobs(jobs=[part(0)], left_out=-1).encode()), "hidden, left_out or ras is out of bounds"),
        (Host(HostJobs(jobs=[replace(part(0), seconds=-1.0)]).encode()), "job '7': its times or its number of ranks"),
        (Host(b"", b"", 137), "exit code 137"),
    ],
)
def test_a_host_that_cannot_tell(host: Host, why: str) -> None:
    with pytest.raises(HostError) as caught:
        watch(host, b"", 1.0, sudo=False)  # type: ignore[arg-type]  # of a transport it is asked for these alone
    assert caught.value.message.startswith(f"gpu1: the ranks there cannot be read: {why}")


def test_what_is_sent_has_its_lengths() -> None:
    length, _, rest = payload("träin.py").partition(b"\n")
    assert rest[: int(length)].decode() == "träin.py"
