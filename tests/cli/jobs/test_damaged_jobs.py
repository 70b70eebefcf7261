"""A job whose record cannot be read: what `list`, `get` and `delete` say."""

import json

import pytest

from taco_launch.core.errors import DamagedRecordError
from taco_launch.core.protocol.calls import Failure, Notice, Reply, Request
from taco_launch.core.protocol.calls.job_list import List, Rows
from taco_launch.core.protocol.calls.jobs import Delete, Deleted
from taco_launch.jobs.backend.agent_client import AgentClient
from tests.support.command_line import call

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
