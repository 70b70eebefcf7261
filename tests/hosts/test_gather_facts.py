"""Answers of hosts, whole and cut short: what came is kept, and the rest says why it does not exist. No network."""

import time
from typing import Any

import pytest

from taco_launch.core.command import Command, Result
from taco_launch.core.facts.reports.document import document
from taco_launch.core.model.host.fact_value import NOT_ASKED, Unknown
from taco_launch.core.model.host.facts import HostFacts, System
from taco_launch.hosts import gather_facts as flow
from taco_launch.hosts.fanout import Answer, Fanout
from taco_launch.hosts.remote import session
from tests.support.host_facts import known

LATE = "the host had not answered after 0.1 s"


class Played:
    """A host whose probe says these things, `{m}` for its marker; then it is silent, or its connection broke."""

    put: Any
    tail: Any
    converse: Any

    def __init__(self, name: str, *said: str, broken: bool = False) -> None:
        self.name = name
        self.asked: tuple[str, ...] = ()
        self._said = list(said)
        self._broken = broken
        self._marker = ""

    def run(self, command: Command) -> Result:
        self._marker, *subjects = command.argv[3:]
        self.asked = tuple(subjects)
        what = session.plan(self.name, command)
        self._said = [text.replace("{end}", f"{what.marker}:end 0\n") for text in self._said]
        return session.finish(self, what, session.StartedProgram(0, b"", b""), time.monotonic())

    def receive(self, timeout: float | None) -> tuple[bytes, bytes] | None:
        if self._said:
            text = self._said.pop(0).replace("{m}", self._marker).encode()
            return text, text[text.rfind(b":end") - 32 :] if b":end" in text else b""
        time.sleep(0 if self._broken else timeout or 0)
        return None if self._broken else (b"", b"")

    def send(self, data: bytes, *, last: bool = False) -> None:
        raise NotImplementedError

    def write(self, data: bytes) -> None:
        raise NotImplementedError

    def ending(self) -> str:
        return "the connection was lost"

    def close(self) -> None:
        pass


BEGIN = "{m} probe 1 100.5\n{m} begin host.simulated\n{m} end host.simulated 127\n"
UNAME = "{m} begin system.uname\ngpu1 5.10 x86_64\n{m} end system.uname 0\n"
DOCKER = "{m} begin docker.info\n"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "_PROBE_SECONDS", 0.1)


def gather(*hosts: Played, subjects: tuple[str, ...] = ("system", "docker", "gpu")) -> tuple[Answer[HostFacts], ...]:
    told: list[Answer[HostFacts]] = []
    with Fanout(hosts) as fanout:
        answers = flow.gather(fanout, subjects, told.append)
    assert sorted(answer.host for answer in told) == sorted(host.name for host in hosts)
    assert all(answer in told for answer in answers)
    return answers


def test_what_came_before_the_time_was_up_is_kept() -> None:
    late, whole = Played("gpu1", BEGIN, UNAME + DOCKER), Played("gpu2", BEGIN + UNAME + "{m} done 100.6\n{end}")
    first, second = gather(late, whole)
    facts, other = first.value, second.value
    assert facts is not None
    assert other is not None
    assert (second.error, other.gpu) == (None, NOT_ASKED)
    assert isinstance(facts.system, System)
    assert facts.system.kernel == known(other.system).kernel == "5.10"
    assert isinstance(facts.system.clock_offset, float)
    assert facts.system.limits == Unknown(f"system.files: {LATE}")
    assert facts.docker == Unknown(f"docker.info: the answer was cut off: {LATE}")
    assert facts.gpu == Unknown(LATE)
    assert facts.network == facts.rdma == NOT_ASKED
    assert {"where": "gpu", "reason": LATE} in document(facts)["unknown"]
    assert first.error is not None
    assert first.error.message == "gpu1: incomplete: /bin/sh did not end within 0.1 s"
    assert first.error.hint == "is the host busy? uptime"
    assert first.error.exit_code == 5


def test_what_came_before_the_connection_broke_is_kept() -> None:
    (answer,) = gather(Played("gpu1", BEGIN, UNAME, broken=True))
    assert answer.value is not None
    assert answer.value.gpu == Unknown("the answer broke off (the connection was lost)")
    assert "gpu1: incomplete: the answer of /bin/sh broke off" in str(answer.error)


@pytest.mark.parametrize("said", [(), ("Welcome\n",), ("{m} probe 1 100.5\n{m} begin host.simulated\n",)])
def test_where_nothing_came_there_are_no_facts(said: tuple[str, ...]) -> None:
    (answer,) = gather(Played("gpu1", *said))
    assert answer.value is None
    assert str(answer.error) == "gpu1: /bin/sh did not end within 0.1 s"


def test_of_all_subjects_those_that_may_hang_are_asked_last() -> None:
    every, some = Played("gpu1", BEGIN), Played("gpu2", BEGIN)
    gather(every, subjects=("system", "network", "docker", "gpu", "topology", "rdma", "image"))
    gather(some, subjects=("gpu", "rdma"))
    assert (every.asked, some.asked) == ((), ("gpu", "rdma"))
