"""An empty `list`: a warning where the hosts run jobs of another head."""

from pathlib import Path

import pytest

from taco_launch.core.model.slots import Occupancy, SlotHolder, SlotState
from taco_launch.core.protocol.calls import Reply, Request
from taco_launch.core.protocol.calls.hosts import SlotsReply, Top
from taco_launch.core.protocol.calls.job_list import List, Rows
from taco_launch.jobs.backend.agent_client import AgentClient
from tests.support.command_line import call

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
        (BUSY, "warning: gpu2 has no jobs, but its hosts run those of another head: gpu1: 1 job vgg16 (bob)"),
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
