"""stop, delete, suspend, resume and exec: whose jobs they are, who is asked, and what the head is told."""

import getpass
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from click.testing import Result

from taco_launch.core.errors import DamagedRecordError, OwnerError, TacoLaunchError, UsageError
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.job_rows import encoded, row_of
from taco_launch.core.model.job_view import JobView
from taco_launch.core.model.jobs import JobRecord, JobSpec, JobState, RankEnd
from taco_launch.core.model.slots import Occupancy, SlotHolder, SlotState
from taco_launch.core.protocol.calls import Failure, Notice, Reply, Request
from taco_launch.core.protocol.calls.exec_command import Exec
from taco_launch.core.protocol.calls.hosts import SlotsReply, Top
from taco_launch.core.protocol.calls.job_list import List, Rows
from taco_launch.core.protocol.calls.jobs import Delete, Deleted, Get, JobReply, NotDone, Resume, Stop, Suspend
from taco_launch.jobs.backend import LogQuery
from taco_launch.jobs.backend.agent import AgentBackend
from taco_launch.jobs.backend.agent_client import AgentClient, AgentError
from taco_launch.jobs.request.caller import person
from tests.support.command_line import call

OWNERS = {"mine": getpass.getuser(), "old": "", "bobs": "bob", "alices": "alice"}
CALLS: list[tuple[str, list[str]]] = []
Verb = Callable[..., tuple[Result, list[tuple[str, str]]]]


@pytest.fixture
def verb(monkeypatch: pytest.MonkeyPatch) -> Verb:
    """Call a verb with a head that has a job of each owner; gives its result, and what was done to which job."""
    stands: dict[str, JobState] = {}
    done: list[tuple[str, str]] = []
    CALLS.clear()
    reasons: list[tuple[str, float]] = []

    def answer(_head: AgentClient, request: Request) -> list[Reply]:
        if isinstance(request, List):
            return [Rows(rows=[row(name, stands[name]) for name in reversed(OWNERS)])]
        assert isinstance(request, (Get, Stop, Suspend, Resume, Delete))
        if isinstance(request, Get):
            return [current(request.name)]
        CALLS.append((request.op, request.names))
        assert not isinstance(request, Suspend) or request.by == getpass.getuser()
        return [outcome(request, name) for name in request.names]

    def current(name: str) -> Reply:
        if name not in OWNERS:
            raise AgentError(f"job {name!r} not found", None, 1)
        if ("suspend", name) in done:  # it takes a while
            stands[name] = JobState.SUSPENDED
        return view(name)

    def outcome(request: Stop | Suspend | Resume | Delete, name: str) -> Reply:
        if error := refusal(request.op, request.owner, name, stands.get(name)):
            return NotDone(name=name, failure=Failure.of(error))
        after = {"stop": JobState.CANCELLED, "delete": JobState.CANCELLED, "resume": JobState.QUEUED}
        done.append((request.op, name))
        stands[name] = after.get(request.op, stands[name])
        return Deleted(name=name) if request.op == "delete" else view(name)

    def view(name: str) -> Reply:
        return JobReply(job=JobView(spec_of(name), record(stands[name]), "/f"))

    def record(state: JobState) -> JobRecord:
        reason, ago = reasons[-1]
        return replace(JobRecord("id", state), reason=reason, ended=time.time() - ago)

    def called(
        *words: str,
        stdin: str | None = None,
        states: Mapping[str, JobState] = MappingProxyType({}),
        reason: str = "because",
        ago: float = 0.0,
    ) -> tuple[Result, list[tuple[str, str]]]:
        reasons.append((reason, ago))
        first = JobState.SUSPENDED if words[0] == "resume" else JobState.RUNNING
        stands.update({**dict.fromkeys(OWNERS, first), **states})
        return call(*words, stdin=stdin), done

    monkeypatch.delenv("SUDO_USER", raising=False)
    monkeypatch.setattr(AgentClient, "call", answer)
    monkeypatch.setattr("taco_launch.jobs.backend.agent._POLL_SECONDS", (0.0, 0.0))
    return called


def spec_of(name: str) -> JobSpec:
    return JobSpec(name, ("true",), (Host("gpu1", "10.0.0.1"),), owner=OWNERS[name])


def row(name: str, state: JobState) -> Sequence[Any]:
    return encoded(row_of(spec_of(name), JobRecord("id", state)))


def refusal(op: str, owner: str | None, name: str, stands: JobState | None) -> TacoLaunchError | None:
    if stands is None:
        return TacoLaunchError(f"job {name!r} not found")
    if op == "resume" and stands is not JobState.SUSPENDED:
        return UsageError(f"job {name}: it is {stands.value}")
    another = owner is not None and OWNERS[name] not in ("", owner)
    return OwnerError(f"job {name} is {OWNERS[name]}'s") if another else None


DONE = {"stop": "stopped", "delete": "deleted", "suspend": "suspended", "resume": "resumed"}
ASKING = pytest.mark.parametrize("what", list(DONE))


@pytest.mark.parametrize("name", ["mine", "old"])
@ASKING
def test_ones_own_job_is_taken_without_a_word(what: str, name: str, verb: Verb) -> None:
    result, done = verb(what, name)
    assert result.exit_code == 0, result.output
    assert done[-1] == (what, name)
    assert result.stderr.startswith(f"{name}: ")


@ASKING
def test_anothers_job_is_left_where_nobody_can_be_asked(what: str, verb: Verb) -> None:
    result, done = verb(what, "bobs", "mine", "alices")
    assert result.exit_code == 2
    assert "job bobs is bob's, and stdin is not a terminal" in result.stderr
    assert f"hint: ask its owner, or add --yes to {what} it anyway" in result.stderr
    assert "job alices is alice's, and stdin is not a terminal" in result.stderr
    assert {name for _op, name in done} == {"mine"}


@ASKING
def test_yes_is_an_answer(what: str, verb: Verb) -> None:
    result, done = verb(what, "--yes", "bobs")
    assert result.exit_code == 0, result.output
    assert done[-1] == (what, "bobs")


@ASKING
@pytest.mark.parametrize(("answer", "taken"), [("y", True), ("n", False), ("", False)])
def test_the_question(what: str, answer: str, taken: bool, verb: Verb, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _self: True)
    result, done = verb(what, "bobs", "mine", stdin=f"{answer}\n")
    assert result.exit_code == (0 if taken else 1), result.output
    assert {name for _op, name in done} == ({"bobs", "mine"} if taken else {"mine"})
    assert f"job bobs is bob's: {what} it?" in result.stderr
    assert (f"error: job bobs is bob's: bobs was not {DONE[what]}\n" in result.stderr) is not taken


@ASKING
def test_several_jobs_are_one_call(what: str, verb: Verb) -> None:
    result, _done = verb(what, "mine", "old", "mine")
    assert result.exit_code == 0, result.output
    assert [(what, ["mine", "old"])] == CALLS


@ASKING
def test_a_pattern_names_the_jobs_of_who_types(what: str, verb: Verb) -> None:
    result, _done = verb(what, "bobs", "*l*", "mine", "--yes")
    assert result.exit_code == 0, result.output
    assert [(what, ["bobs", "old", "mine"])] == CALLS


@ASKING
def test_a_pattern_that_matches_nothing_changes_nothing(what: str, verb: Verb) -> None:
    result, done = verb(what, "mine", "alice*")
    assert (result.exit_code, done) == (1, [])
    assert "error: none of your jobs matches 'alice*'\n" in result.stderr


def test_list_shows_the_jobs_of_names_and_patterns_whoever_has_them(verb: Verb) -> None:
    result, _done = verb("list", "*b*", "old", "--json", states={"bobs": JobState.FAILED})
    assert [job["name"] for job in json.loads(result.stdout)["jobs"]] == ["bobs", "old"]
    result, _done = verb("list", "old", "--state", "FAILED", "--json")
    assert (result.exit_code, json.loads(result.stdout)) == (0, {"jobs": []})
    result, _done = verb("list", "old", "x*")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "error: no job matches 'x*'\nhint: list all jobs: taco-launch list\n" in result.stderr


def test_stop_of_a_job_that_has_ended_and_of_one_that_ends_at_once(verb: Verb) -> None:
    stopped = f"stopped by {person()} (taco-launch stop)"
    for name, reason, told in (
        ("mine", "because", "CANCELLED: it had already ended"),
        ("old", stopped, f"CANCELLED: {stopped}"),
    ):
        result, _done = verb("stop", name, reason=reason)
        assert (result.exit_code, result.stderr) == (0, f"{name}: {told}\n")
    result, _done = verb("stop", "mine", reason=stopped, ago=60)
    assert result.stderr == "mine: CANCELLED: it had already ended\n"


def test_suspend_waits_until_it_is(verb: Verb) -> None:
    result, _done = verb("suspend", "mine")
    assert result.stderr == "mine: SUSPENDED: because\n"


def test_resume_of_several(verb: Verb) -> None:
    result, done = verb("resume", "mine", "old", "nosuch", states={"mine": JobState.RUNNING})
    assert result.exit_code == 2
    assert done == [("resume", "old")]
    assert result.stderr == ("error: job mine: it is RUNNING\nold: QUEUED: because\nerror: job 'nosuch' not found\n")


def test_exec_asks_as_well(verb: Verb, monkeypatch: pytest.MonkeyPatch) -> None:
    beside: list[str] = []

    def at_rank(_backend: AgentBackend, request: Exec, *_more: Any) -> int:
        beside.append(request.name)
        return 3

    monkeypatch.setattr(AgentBackend, "at_rank", at_rank)
    refused, _done = verb("exec", "bobs", "--", "true")
    assert refused.exit_code == 2
    assert "job bobs is bob's, and stdin is not a terminal" in refused.stderr
    assert beside == []
    assert verb("exec", "bobs", "true", states={"bobs": JobState.RESTARTING})[0].exit_code == 3  # the head refuses that
    assert beside.pop() == "bobs"
    assert verb("exec", "mine", "true")[0].exit_code == 3
    assert verb("exec", "--yes", "bobs", "true")[0].exit_code == 3
    assert beside == ["mine", "bobs"]


@pytest.mark.parametrize(
    ("uid", "sudo", "name"), [(0, "alice", "alice"), (0, "", "lara"), (0, None, "lara"), (7, "alice", "lara")]
)
def test_who_types(uid: int, sudo: str | None, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "lara")
    monkeypatch.setattr("os.geteuid", lambda: uid)
    monkeypatch.delenv("SUDO_USER", raising=False)
    if sudo is not None:
        monkeypatch.setenv("SUDO_USER", sudo)
    assert person() == name


@pytest.mark.parametrize("words", [("ls", "-l"), ("ls", "-t"), ("python3", "--rank", "3")])
def test_an_option_after_the_command_of_exec_needs_the_separator(verb: Verb, words: tuple[str, ...]) -> None:
    result, done = verb("exec", "mine", "--rank", "1", *words)
    assert (result.exit_code, done) == (2, [])
    assert (
        f"if {words[1]} belongs to the program: taco-launch exec mine --rank 1 -- {' '.join(words)}\n" in result.output
    )
    assert "is missing" not in verb("exec", "mine", "--", *words)[0].output


def test_wait_of_several_jobs_ends_with_the_first_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = {"a": 0, "b": 3, "c": 4}

    def follow(_backend: AgentBackend, query: LogQuery, _output: object, _watch: object) -> JobView:
        ran = JobRecord("id", JobState.FAILED, exit_code=codes[query.name], started=1.0, ended=2.0, np=1)
        ran = replace(ran, first_failure=RankEnd(0, "gpu1", codes[query.name]))
        return JobView(JobSpec(query.name, ("true",), ()), ran, "/f")

    monkeypatch.setattr(AgentBackend, "follow", follow)
    found = call("wait", "a", "b", "c", "b", "--json")
    assert found.exit_code == 3
    assert [job["name"] for job in json.loads(found.stdout)["jobs"]] == ["a", "b", "c"]
    assert json.loads(call("wait", "c", "--json").stdout)["name"] == "c"


# --- A job whose record cannot be read: what `list`, `get` and `delete` say


WHY = "job bad: /jobs/bad/events.jsonl is damaged"


@pytest.fixture
def deleted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The jobs that are deleted of a head that has a damaged one."""
    found: list[str] = []

    def answer(head: AgentClient, request: Request) -> list[Reply]:
        if isinstance(request, List):
            return [Rows(rows=[]), Notice(text=WHY)]
        if isinstance(request, Delete):
            found.extend(request.names)
            return [Notice(text="files may be left"), *(Deleted(name=name) for name in request.names)]
        raise head.error(Failure(message=WHY, hint="", exit_code=1, kind=DamagedRecordError.kind))

    monkeypatch.setattr(AgentClient, "call", answer)
    return found


@pytest.mark.usefixtures("deleted")
def test_it_is_named() -> None:
    assert WHY in call("list").stderr
    assert json.loads(call("list", "--json").stdout) == {"jobs": [], "warnings": [WHY]}
    assert json.loads(call("get", "bad", "--json").stdout)["error"]["kind"] == "record-damaged"


def test_delete_needs_its_name_alone(deleted: list[str]) -> None:
    done = call("delete", "bad")
    assert (done.exit_code, deleted) == (0, ["bad"])
    assert "files may be left" in done.stderr


# --- An empty `list`: a warning where the hosts run jobs of another head


INVENTORY = """\
cluster: c
head: gpu2
hosts: {gpu1: {address: 192.0.2.1}, gpu2: {address: 192.0.2.2}}
container: {image: "nvcr.io/nvidia/pytorch:25.01-py3"}
"""
BUSY = SlotState("slot-0", SlotHolder("vgg16", "id", 0.0, "c", "bob"))


@pytest.mark.parametrize(
    ("slot", "told"),
    [
        (BUSY, "warning: gpu2 has no jobs, but its hosts run those of another head: gpu1: job vgg16 (bob): 1 slot"),
        (SlotState("slot-0"), ""),
    ],
)
def test_jobs_of_another_head_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slot: SlotState, told: str
) -> None:
    def answer(_head: AgentClient, request: Request) -> list[Reply]:
        if isinstance(request, List):
            return [Rows(rows=[])]
        assert isinstance(request, Top)
        return [SlotsReply(host="gpu1", occupancy=Occupancy("a", (slot,)))]

    monkeypatch.setattr(AgentClient, "call", answer)
    (tmp_path / "hosts.yaml").write_text(INVENTORY)
    done = call("-i", str(tmp_path / "hosts.yaml"), "list")
    assert done.exit_code == 0
    assert done.stderr.strip() == told
