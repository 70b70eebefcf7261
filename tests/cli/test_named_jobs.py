"""stop, delete, suspend and resume: whose jobs they are, who is asked, and what the head is told."""

import getpass
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from click.testing import Result

from taco_launch.errors import UsageError
from taco_launch.model.codec import to_json
from taco_launch.model.jobs import JobRecord, JobSpec, JobState
from taco_launch.remote.head import AgentError, Head
from tests.cli.test_cli import call

OWNERS = {"mine": getpass.getuser(), "old": "", "bobs": "bob", "alices": "alice"}
Verb = Callable[..., tuple[Result, list[tuple[str, str]]]]


@pytest.fixture
def verb(monkeypatch: pytest.MonkeyPatch) -> Verb:
    """Call a verb with a head that has a job of each owner; gives its result, and what was done to which job."""
    states = dict.fromkeys(OWNERS, JobState.RUNNING)
    done: list[tuple[str, str]] = []

    def answer(_head: Head, op: str, name: str, **request: Any) -> list[dict[str, Any]]:
        if name not in OWNERS:
            raise AgentError(f"job {name}: there is none of that name", None, 1)
        if op == "suspend":
            assert request == {"by": getpass.getuser()}
        if op == "get" and ("suspend", name) in done:  # it takes a while
            states[name] = JobState.SUSPENDED
        if op == "resume" and states[name] is not JobState.SUSPENDED:
            raise AgentError(f"job {name}: it is {states[name].value}", None, UsageError.exit_code)
        after = {"stop": JobState.CANCELLED, "delete": JobState.CANCELLED, "resume": JobState.QUEUED}
        if op != "get":
            done.append((op, name))
            states[name] = after.get(op, states[name])
        spec = JobSpec(name, ("true",), (), owner=OWNERS[name])
        return [{"job": {"spec": to_json(spec), "record": to_json(record(states[name])), "folder": "/f"}}]

    def record(state: JobState) -> JobRecord:
        return replace(JobRecord("id", state), reason="because")

    def called(*words: str, stdin: str | None = None) -> tuple[Result, list[tuple[str, str]]]:
        return call(*words, stdin=stdin), done

    monkeypatch.setattr(Head, "call", answer)
    monkeypatch.setattr("taco_launch.flows.suspend._POLL_SECONDS", (0.0, 0.0))
    return called


@pytest.mark.parametrize("name", ["mine", "old"])
@pytest.mark.parametrize("what", ["stop", "delete", "suspend"])
def test_ones_own_job_is_taken_without_a_word(what: str, name: str, verb: Verb) -> None:
    result, done = verb(what, name)
    assert result.exit_code == 0, result.output
    assert done[-1] == (what, name)
    assert result.stderr.startswith(f"{name}: ")


@pytest.mark.parametrize("what", ["stop", "delete", "suspend"])
def test_anothers_job_is_left_where_nobody_can_be_asked(what: str, verb: Verb) -> None:
    result, done = verb(what, "bobs", "mine", "alices")
    assert result.exit_code == 2
    assert "job bobs is bob's, and nobody to ask" in result.stderr
    assert f"hint: ask bob, or add --yes to {what} it all the same" in result.stderr
    assert "job alices is alice's, and nobody to ask" in result.stderr
    assert {name for _op, name in done} == {"mine"}


@pytest.mark.parametrize("what", ["stop", "delete", "suspend"])
def test_yes_is_an_answer(what: str, verb: Verb) -> None:
    result, done = verb(what, "--yes", "bobs")
    assert result.exit_code == 0, result.output
    assert done[-1] == (what, "bobs")


@pytest.mark.parametrize("what", ["stop", "delete", "suspend"])
@pytest.mark.parametrize(("answer", "taken"), [("y", True), ("n", False), ("", False)])
def test_the_question(what: str, answer: str, taken: bool, verb: Verb, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _self: True)
    result, done = verb(what, "bobs", "mine", stdin=f"{answer}\n")
    assert result.exit_code == 0, result.output
    assert {name for _op, name in done} == ({"bobs", "mine"} if taken else {"mine"})
    assert f"job bobs is bob's: {what} it?" in result.stderr
    assert ("bobs: left as it is" in result.stderr) is not taken


def test_suspend_waits_until_it_is(verb: Verb) -> None:
    result, _done = verb("suspend", "mine")
    assert result.stderr == "mine: SUSPENDED: because\n"


def test_resume_asks_nobody(verb: Verb) -> None:
    assert verb("suspend", "--yes", "bobs")[0].exit_code == 0
    result, done = verb("resume", "bobs", "mine", "nosuch")
    assert result.exit_code == 2
    assert done[-1] == ("resume", "bobs")
    assert result.stderr == (
        "bobs: QUEUED: because\nerror: job mine: it is RUNNING\nerror: job nosuch: there is none of that name\n"
    )
