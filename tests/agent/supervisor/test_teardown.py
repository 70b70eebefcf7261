"""The end of a job over several hosts: logs are waited for as long as they come, and no longer."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from taco_launch.agent.gang.guard_connection import GuardConnection, RemoteGuardConnection
from taco_launch.agent.host import processes
from taco_launch.agent.store.folders import JobFolder
from taco_launch.agent.supervisor import teardown
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.protocol.guard_messages import Ended
from tests.support.patience import HANG

TIMEOUT = 0.2


def end(
    folder: JobFolder, come: int, *, tells_end: bool = True, told: list[str] | None = None
) -> tuple[list[str], RemoteGuardConnection, float]:
    """Disband a job whose other host sends `come` of 10 bytes of log, one in 0.05 s, and never falls silent."""
    here = GuardConnection(Host("n1", "10.0.0.1"), folder)
    here.answers.ended = Ended()
    remote = RemoteGuardConnection(Host("n2", "10.0.0.2"), folder, "agent.pyz", [], 1.0)
    if tells_end:
        remote.answers.ended = Ended()
    begin = time.monotonic()

    def pump(_note: object) -> None:
        time.sleep(0.01)
        gang.looked = remote.heard = time.monotonic()
        assert remote.heard < begin + 10
        remote.offsets[0] = min(come, int((remote.heard - begin) / 0.05))

    gang: Any = SimpleNamespace(links=[here, remote], remote=[remote], here=here, pump=pump, looked=begin)
    whole: Callable[[str], bool] = lambda name: name == "n1" or remote.offsets.get(0) == 10  # noqa: E731
    stuck = teardown.end_all(
        gang,
        lambda _link, _message: None,
        [],
        whole=whole,
        meanwhile=([] if told is None else told).append,
        here=10.0,
        timeout=TIMEOUT,
        how={"leave": False},
    )
    return stuck, remote, time.monotonic() - begin


@pytest.mark.parametrize(
    ("left", "told"),
    [
        (2, "2 ranks did not end within 2.5 s and had to be killed"),
        (1, "1 rank did not end within 2.5 s and had to be killed"),
        (0, ""),
    ],
)
def test_ranks_that_had_to_be_killed_are_told(left: int, told: str) -> None:
    assert teardown.forced(left, 2.5) == told
    at_once = f"{'was' if left == 1 else 'were'} killed without time to end"
    assert teardown.forced(left, 0.0) == (
        told and told.replace("did not end within 2.5 s and had to be killed", at_once)
    )


def test_logs_that_come_are_waited_for(folder: JobFolder) -> None:
    stuck, _remote, took = end(folder, 10)
    assert stuck == []
    assert took > 2 * TIMEOUT


@pytest.mark.parametrize("come", [0, 8])
def test_logs_that_come_no_further_are_given_up(folder: JobFolder, come: int) -> None:
    assert end(folder, come)[0] == ["n2"]


def test_a_guard_that_never_tells_the_end_is_given_up(folder: JobFolder) -> None:
    # Its job is ended without it then, which tells more than its logs.
    stuck, remote, _took = end(folder, 10, tells_end=False)
    assert (stuck, remote.gone) == ([], "")


@pytest.mark.parametrize(
    ("tells_end", "expected"),
    [
        (False, "waiting for n2 to end its ranks; a silent host counts as lost after 0.2 s"),
        (True, "waiting for the logs of n2"),
    ],
)
def test_a_long_end_tells_what_it_waits_for(
    folder: JobFolder, monkeypatch: pytest.MonkeyPatch, tells_end: bool, expected: str
) -> None:
    monkeypatch.setattr(teardown, "_TOLD_AFTER_SECONDS", 0.1)
    told: list[str] = []
    end(folder, 0, tells_end=tells_end, told=told)
    assert [text for text in told if text] == [expected]


def test_what_comes_to_us_while_the_rest_is_ended_is_ended_as_well() -> None:
    """Its parent ended between our look at our children and the scan of the parent's descendants: neither has found it."""
    late = subprocess.Popen(["sleep", "60"], env={}, start_new_session=True)
    start = processes.identify(late.pid)
    assert start is not None
    looks = iter([[], [[late.pid, start.start]], [[late.pid, start.start]]])
    assert teardown.end_here("no such job", None, lambda: next(looks), []) == Ended(left=[])
    assert late.wait(HANG) == -signal.SIGKILL


def test_what_a_guard_could_not_end_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    start = processes.identify(os.getpid())
    assert start is not None
    monkeypatch.setattr(processes, "end", lambda *_: pytest.fail("it was tried"))
    told = Ended(left=[os.getpid()])
    assert teardown.end_here("job", told, lambda: [[os.getpid(), start.start]], []) == told


@pytest.mark.parametrize(
    ("failure", "after"),
    [
        (None, False),
        ((80.0, "n1"), True),
        ((80.0, "n2"), False),
        ((95.0, "n1"), False),
        ((103.0, "n1"), False),
    ],
    ids=["none", "long before", "of that host", "as while it shuts down", "after"],
)
def test_a_rank_that_failed_while_its_host_answered_came_first(
    folder: JobFolder, failure: tuple[float, str] | None, after: bool
) -> None:
    link = GuardConnection(Host("n2", "10.0.0.2"), folder)
    link.heard = 100.0
    assert teardown.answered_after(link, failure) is after
