"""The call for stacks: each host is asked for its own ranks, and is believed of no others."""

from dataclasses import replace
from typing import Any

import pytest

from taco_launch.agent import __main__ as agent
from taco_launch.agent.api import stacks
from taco_launch.agent.api.rank_access import NotRunningError
from taco_launch.core.model.jobs import HostRanks, JobRecord, JobState
from taco_launch.core.model.run.rank_samples import RankStack
from taco_launch.core.model.stalls import RankLook
from taco_launch.core.protocol.calls.stacks import Stacks, StacksReply
from taco_launch.core.protocol.stack_messages import HostStacks

SHARES = (HostRanks("gpu1", 2), HostRanks("gpu2", 1), HostRanks("gpu3", 1))
RECORD = JobRecord(id="a", state=JobState.RUNNING, shares=SHARES)


class Folder:
    name = path = "vgg16"


class Jobs:
    def get(self, _name: str) -> Folder:
        return Folder()


def told(*ranks: int) -> HostStacks:
    return HostStacks(ranks=[RankStack(RankLook(rank, 7)) for rank in ranks])


def asked(monkeypatch: pytest.MonkeyPatch, record: JobRecord, *answers: Any) -> list[StacksReply]:
    monkeypatch.setattr("taco_launch.agent.api.stacks.recovery.current_record", lambda _folder: record)
    monkeypatch.setattr("taco_launch.agent.api.stacks.records.read_spec", lambda _folder: None)
    monkeypatch.setattr(stacks, "argv_on_host", lambda _folder, _spec, _record, host, line: (host, *line))

    def ask_by(lines: Any, _kind: Any, _seconds: float) -> Any:
        assert [line for _host, line in lines] == [(share.host, "rank-stacks", "vgg16") for share in SHARES]
        assert all(line[1] in agent.OPERATIONS for _host, line in lines)
        return [(host, answer) for (host, _line), answer in zip(lines, answers, strict=True)]

    monkeypatch.setattr("taco_launch.agent.api.stacks.ssh.ask_by", ask_by)
    found = list(stacks.OPERATIONS[Stacks](Jobs(), "", Stacks(name="vgg16")))
    assert all(isinstance(reply, StacksReply) for reply in found)
    return found  # type: ignore[return-value]


def test_each_host_tells_of_its_own_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    found = asked(monkeypatch, RECORD, told(1, 0, 2), told(2, 0), "no answer within 120 s")
    assert [
        (reply.host, [(one.look.rank, one.look.host) for one in reply.ranks], reply.problem) for reply in found
    ] == [
        ("gpu1", [(0, "gpu1"), (1, "gpu1")], ""),
        ("gpu2", [(2, "gpu2")], ""),
        ("gpu3", [], "no answer within 120 s"),
    ]


def test_a_job_that_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotRunningError, match="job vgg16 is FAILED: stacks are available only while its ranks run"):
        asked(monkeypatch, replace(RECORD, state=JobState.FAILED))
