"""Work in a child with a limit: its answer, its failures, and what never ends."""

import time

import pytest

from taco_launch.agent.processes.cpu_limit import bounded


def test_the_answer() -> None:
    assert bounded(lambda: ["reason", {"a": 1}, None], 5) == ["reason", {"a": 1}, None]
    assert bounded(lambda: "x" * (1 << 20), 5) == "x" * (1 << 20)


def test_a_failure_is_none_and_said(capfd: pytest.CaptureFixture[str]) -> None:
    assert bounded(lambda: 1 // 0, 5) is None
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_what_never_ends_is_ended() -> None:
    def spins() -> None:
        while True:
            pass

    assert bounded(spins, 1) is None


def test_what_waits_for_ever_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taco_launch.agent.processes.cpu_limit._WALL", 0.2)
    assert bounded(lambda: time.sleep(600), 1) is None
