"""The phase of an attempt in which its launcher runs: when it counts as one that hangs."""

from unittest.mock import MagicMock

import pytest

from taco_launch.agent.supervisor import start
from taco_launch.agent.supervisor.running import Running


def test_a_launcher_has_its_time_also_where_all_ranks_ended_before_the_first_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(start, "failure", lambda _launcher: ("", None))
    now = [1000.0]
    monkeypatch.setattr("taco_launch.agent.supervisor.running.time.monotonic", lambda: now[0])
    attempt = MagicMock(kill_at=None, cut_short=None, usage=None, launcher_hung=False)
    attempt.ranks.all_ended = True
    attempt.limits.exceeded.return_value = ""
    attempt.early.is_over.return_value = attempt.early.is_sent = False
    attempt.gang.remote, attempt.spec.policy.grace = [], 5.0
    running = Running(attempt)
    for later, hangs in ((0.0, False), (4.0, False), (2.0, True)):
        now[0] += later
        running._on_tick(1000.0)
        assert (attempt.launcher_hung, attempt.launcher.kill.called) == (hangs, hangs)
