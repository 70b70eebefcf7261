"""A head that answers every call with what a test says."""

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from click.testing import CliRunner, Result

from taco_launch.api.cluster import Cluster
from taco_launch.cli.main import cli
from taco_launch.cli.options.common import Settings
from taco_launch.core.model.codec import to_json
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.jobs import HostRanks, JobRecord, JobSpec, JobState
from taco_launch.core.protocol import framing as protocol
from taco_launch.hosts.remote.transport import Conversation, NoInput
from taco_launch.jobs.backend.agent import AgentBackend
from taco_launch.jobs.backend.agent_client import AgentClient
from taco_launch.jobs.backend.agent_location import on_host

SPEC = JobSpec("vgg16", ("python3", "train.py"), (Host("n1", "10.0.0.1", slots=2),), np=2)


RECORD = JobRecord(
    "id", JobState.SUCCEEDED, submitted=1.0, started=2.0, ended=3.0, exit_code=0, np=2,
    hosts=("n1",), shares=(HostRanks("n1", 2),), warnings=("no RDMA",), reason="every rank exited with 0",
)  # fmt: skip


JOB = {"spec": to_json(SPEC), "record": to_json(RECORD), "folder": "/x/jobs/vgg16"}


class Spoken:
    """A host that answers every call with the same bytes."""

    name = "n1"

    def __init__(self, frames: list[Any]) -> None:
        lines = (
            json.dumps(frame).encode() + b"\n" for frame in [{"protocol": protocol.VERSION}, *frames, {"op": "end"}]
        )
        self.said = b"".join(lines)

    @contextmanager
    def tail(self, _command: object) -> Iterator[io.BytesIO]:
        yield io.BytesIO(self.said)

    @contextmanager
    def converse(self, _command: object) -> Iterator[Conversation]:
        yield Conversation(io.BytesIO(self.said), NoInput())


def answered(words: tuple[str, ...], frames: list[Any]) -> Result:
    # as on this machine: a head elsewhere that breaks off while a job is followed is asked again, for ever
    seat = replace(on_host(), inherit=False, turn=None)
    head = AgentClient(Spoken(frames), seat)  # type: ignore[arg-type]

    class Evil(Settings):
        def cluster(self, _access: object = None) -> Cluster:
            return Cluster(backend=AgentBackend(head))

    return CliRunner().invoke(cli, words, standalone_mode=False, obj=Evil())


def changed(value: Any, path: tuple[Any, ...], to: Any) -> Any:
    """Return a JSON value with another value in one place; `...` takes it out."""
    if not path:
        return to
    copy = dict(value) if isinstance(value, dict) else list(value)
    inner = changed(value[path[0]], path[1:], to)
    if inner is ...:
        del copy[path[0]]
    else:
        copy[path[0]] = inner
    return copy
