"""support: what is in the archive, what is not, and when there is none."""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from taco_launch.core.errors import HostError
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.job_facts import JobHost
from taco_launch.core.model.job_view import JobView
from taco_launch.core.model.jobs import Event, HostRanks, JobRecord, JobSpec, JobState, RankEnd
from taco_launch.core.model.run.rank_samples import RankStack
from taco_launch.core.model.stalls import RankLook
from taco_launch.jobs import support_archive
from taco_launch.jobs.backend import HeadFacts, LogQuery, Output
from taco_launch.jobs.backend.agent import AgentBackend
from tests.support.command_line import call, failing, succeeding
from tests.support.raisers import raiser

HOSTS = (Host("gpu1", "10.0.0.1"),)
ENDED = JobRecord(
    "id",
    JobState.FAILED,
    np=2,
    hosts=("gpu1",),
    started=1.0,
    ended=2.0,
    exit_code=1,
    attempt=1,
    line="mpirun -np 2 -x MY_TOKEN=my-own-secret train",
    shares=(HostRanks("gpu1", 2, ("slot-0", "slot-1")),),
    first_failure=RankEnd(1, "gpu1", 1),
)
ALL = [
    "README.txt",
    "get.txt",
    "job.json",
    "line.txt",
    "events.jsonl",
    "versions.json",
    "facts.json",
    "logs/all-ranks.log",
    "logs/launcher.log",
    "logs/rank-1.log",
    "logs/rank-0.log",
]


class HeadOfOneJob:
    """The answers of the head."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.record = ENDED
        self.log = b"first line\nlogged in with my-own-secret\n"
        self.asked: list[LogQuery] = []
        monkeypatch.setattr(AgentBackend, "get", lambda _backend, name: self.job(name))
        monkeypatch.setattr(AgentBackend, "follow", lambda _backend, query, output: self.follow(query, output))
        monkeypatch.setattr(AgentBackend, "facts", lambda _backend, **_more: HeadFacts(JobHost("gpu1"), "4.1.4"))
        monkeypatch.setattr(AgentBackend, "stacks", lambda _backend, _name: self.stacks())

    def job(self, name: str) -> JobView:
        spec = JobSpec(name, ("train",), HOSTS, head="gpu1", env=(("MY_TOKEN", "my-own-secret"), ("PLAIN", "as-it-is")))
        events = (Event(1.0, "submitted", "with my-own-secret", {"id": "id"}),)
        return JobView(spec, self.record, "/f", events)

    def follow(self, query: LogQuery, output: Output) -> JobView:
        self.asked.append(query)
        for at in range(0, len(self.log), 1 << 16):
            output(self.log[at : at + (1 << 16)])
        return self.job(query.name)

    def stacks(self) -> Any:
        return (RankStack(RankLook(0, 7, "python3", host="gpu1"), None, "not traced"),), {}


@pytest.fixture
def head(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> HeadOfOneJob:
    monkeypatch.chdir(tmp_path)
    return HeadOfOneJob(monkeypatch)


def files(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        found = {}
        for entry in archive:
            stream = archive.extractfile(entry)
            assert stream is not None
            found[entry.name.partition("/")[2]] = stream.read().decode()
            assert entry.name.startswith("vgg16-support/")
    return found


def test_a_job_that_has_ended(head: HeadOfOneJob, tmp_path: Path) -> None:
    result = succeeding("support", "vgg16")
    path = tmp_path / "vgg16-support.tar.gz"
    found = files(path)
    assert list(found) == ALL
    assert not [name for name, text in found.items() if "my-own-secret" in text]
    assert found["line.txt"] == "mpirun -np 2 -x MY_TOKEN=*** train\n"
    assert found["logs/rank-1.log"] == "first line\nlogged in with ***\n"
    spec = json.loads(found["job.json"])["spec"]
    assert spec["env"] == [["MY_TOKEN", "***"], ["PLAIN", "as-it-is"]]
    assert json.loads(found["events.jsonl"])["reason"] == "with ***"
    assert json.loads(found["versions.json"])["python"]
    assert json.loads(found["facts.json"])["openmpi"] == "4.1.4"
    assert "STATUS" in found["get.txt"]
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:-2]] == ALL
    assert lines[-1].startswith("vgg16-support.tar.gz: ")
    assert path.stat().st_mode & 0o077 == 0
    assert all(not query.follow for query in head.asked)


def test_a_job_that_runs_has_stacks(head: HeadOfOneJob) -> None:
    head.record = JobRecord("id", JobState.RUNNING, np=1, hosts=("gpu1",), started=1.0, attempt=1)
    result = succeeding("support", "vgg16", "--to", "x.tgz", "--json")
    told = json.loads(result.stdout)
    assert (told["file"], told["bytes"], told["missing"]) == ("x.tgz", Path("x.tgz").stat().st_size, [])
    assert "stacks.json" in [file["name"] for file in told["files"]]
    assert json.loads(files(Path("x.tgz"))["stacks.json"])["ranks"][0]["why"] == "not traced"


def test_a_job_that_waits_has_no_logs(head: HeadOfOneJob) -> None:
    head.record = JobRecord("id", JobState.QUEUED)
    assert call("support", "vgg16").exit_code == 0
    assert head.asked == []


@pytest.mark.usefixtures("head")
def test_no_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "vgg16-support.tar.gz").write_text("mine")
    assert "error: vgg16-support.tar.gz: the file exists already" in failing("support", "vgg16")
    assert (tmp_path / "vgg16-support.tar.gz").read_text() == "mine"


@pytest.mark.usefixtures("head")
def test_what_the_head_cannot_tell_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AgentBackend, "facts", raiser(HostError("gpu1: it does not answer")))
    result = succeeding("support", "vgg16")
    assert "left out: facts.json: gpu1: it does not answer" in result.stderr


def test_of_long_logs_the_end_is_kept(head: HeadOfOneJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support_archive, "_MOST_OF_LOG", 1000)
    head.log = b"".join(b"line %d my-own-secret\n" % number for number in range(20_000))
    assert call("support", "vgg16").exit_code == 0
    log = files(Path("vgg16-support.tar.gz"))["logs/rank-0.log"].splitlines()
    assert log[0] == "[taco-launch: the beginning is left out]"
    assert all(line.startswith("line ") and line.endswith("***") for line in log[1:])
    assert log[-1] == "line 19999 ***"
    assert 900 < sum(map(len, log[1:])) < 1000


def test_all_together_have_a_limit(head: HeadOfOneJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support_archive, "_MOST_BYTES", 20_000)
    head.log = b"x" * 99 + b"\n"
    head.log *= 1000
    assert call("support", "vgg16").exit_code == 0
    found = files(Path("vgg16-support.tar.gz"))
    assert sum(map(len, found.values())) < 20_500
    assert "job.json" in found
