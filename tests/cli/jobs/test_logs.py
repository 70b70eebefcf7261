"""logs: what is requested on the command line, and what a terminal shows."""

import io
import sys
import time
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import click
import pytest
from click.testing import CliRunner

from taco_launch.cli.jobs.logs import logs
from taco_launch.cli.options.common import Settings
from taco_launch.cli.output import job_output, render
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.job_view import JobView
from taco_launch.core.model.jobs import JobRecord, JobSpec, JobState
from taco_launch.core.model.stalls import HANGS, RankLook, Stall, reason
from taco_launch.jobs.backend import LogQuery
from taco_launch.jobs.backend.agent import AgentBackend

JOB = JobView(JobSpec("j", ("true",), (Host("n1", "10.0.0.1"),)), JobRecord("1", JobState.SUCCEEDED, started=1.0), "/f")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[LogQuery]:
    """What the head is requested."""
    found: list[LogQuery] = []

    def follow(_backend: object, what: LogQuery, *_more: Any, **_named: Any) -> JobView:
        found.append(what)
        return JOB

    monkeypatch.setattr(AgentBackend, "follow", follow)
    monkeypatch.delenv("TACO_LAUNCH_INVENTORY", raising=False)
    return found


def call(*args: str) -> Any:
    return CliRunner().invoke(logs, list(args), standalone_mode=False)


@pytest.mark.parametrize(
    ("args", "what"),
    [
        ((), LogQuery("j", follow=False)),
        (("-f", "-t", "5"), LogQuery("j", tail=5)),
        (
            ("--instance", "j-worker-0", "--timestamps"),
            LogQuery("j", follow=False, instance="j-worker-0", timestamps=True),
        ),
        (("--host", "n1", "--attempt", "2"), LogQuery("j", follow=False, host="n1", attempt=2)),
        (("--grep", "a|b", "-t", "3", "-f"), LogQuery("j", tail=3, grep="a|b")),
        (("--since", "10m"), LogQuery("j", follow=False, ago=600.0)),
        (("--since", "1.5h"), LogQuery("j", follow=False, ago=5400.0)),
        (("--since", "2026-11-21T14:02:00Z"), LogQuery("j", follow=False, since=1795269720.0)),
        (("--since", "2026-11-21T16:02:00.250+02:00"), LogQuery("j", follow=False, since=1795269720.25)),
        (("--since", "2026-11-21T14:02:00.123Z"), LogQuery("j", follow=False, since=1795269720.123)),
    ],
)
def test_what_is_asked_for(asked: list[LogQuery], args: tuple[str, ...], what: LogQuery) -> None:
    result = call(*args, "j")
    assert result.exception is None, result.output
    assert asked == [what]


def test_a_time_without_a_zone_is_the_users_own(asked: list[LogQuery], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC-3")  # POSIX: three hours east
    time.tzset()
    try:
        call("--since", "2026-11-21T14:02:00", "j")
        call("--since", "2026-11-21", "j")
        assert [what.since for what in asked] == [1795269720.0 - 3 * 3600, 1795219200.0 - 3 * 3600]
        east = timezone(timedelta(hours=3))
        for clock in ("00:00", "23:59:59"):  # one of them is still to come today: it is yesterday's
            call("--since", clock, "j")
            told = asked[-1].since
            assert told is not None
            assert time.time() - 86400 <= told <= time.time()
            assert datetime.fromtimestamp(told, east).strftime("%H:%M:%S").startswith(clock)
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("text", ["yesterday", "25:00", "2026-13-01", "10m ago", "-5m", "nan", "9999999999d"])
def test_what_is_no_time(asked: list[LogQuery], text: str) -> None:
    result = call("--since", text, "j")
    assert isinstance(result.exception, click.BadParameter)
    assert "14:02" in result.exception.message
    assert asked == []


def test_that_no_line_matches_is_told_and_the_exit_code_is_that_of_grep(
    asked: list[LogQuery], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert asked == []
    result = call("--grep", "a|b", "j")
    assert (result.return_value, result.stdout, result.stderr) == (1, "", "no line matches 'a|b'\n")
    monkeypatch.setattr(AgentBackend, "follow", lambda _backend, _what, output, *_more: output(b"n1/0 | a\n") or JOB)
    result = call("--grep", "a|b", "j")
    assert (result.return_value, result.stderr) == (0, "")


def test_a_job_that_never_started_has_no_output(asked: list[LogQuery], monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked == []
    stopped = replace(JOB, record=JobRecord("1", JobState.CANCELLED))
    monkeypatch.setattr(AgentBackend, "follow", lambda *_asked: stopped)
    assert call("j").stderr == "job j never started: it has no output\n"


def test_what_is_no_pattern(asked: list[LogQuery]) -> None:
    result = call("--grep", "(", "j")
    assert "'(' is not a regular expression" in str(result.exception)
    assert asked == []


def test_whose_output_is_said_once(asked: list[LogQuery]) -> None:
    result = call("--rank", "0", "--host", "n1", "j")
    assert str(result.exception) == "--rank and --host cannot be combined"
    assert asked == []


@pytest.mark.parametrize(
    ("record", "told"),
    [
        ({"state": JobState.QUEUED}, "its hosts have not reported their slots yet"),
        ({"state": JobState.QUEUED, "waiting": (("n1", "0 of 2 free"),)}, "n1: 0 of 2 free"),
        (
            {"state": JobState.SUSPENDED, "reason": "suspended by bob", "started": None},
            "suspended by bob; taco-launch resume j starts it",
        ),
    ],
)
def test_a_job_that_waits_says_why_it_has_no_more(
    record: dict[str, Any], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = replace(JOB, record=replace(JOB.record, **record))
    monkeypatch.setattr(AgentBackend, "follow", lambda *_args, **_named: waits)
    assert call("j").stderr == f"job j: waiting: {told}\n"


@pytest.mark.parametrize(("hosts", "more"), [(4, ""), (5, "; and 1 more host"), (6, "; and 2 more hosts")])
def test_of_many_hosts_the_first_are_told(hosts: int, more: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = tuple((f"n{number}", "full") for number in range(hosts))
    render.waits(Settings(), "j", words)
    assert capsys.readouterr().err == f"job j: waiting: n0: full; n1: full; n2: full; n3: full{more}\n"


def test_what_is_to_be_typed_has_the_inventory(capsys: pytest.CaptureFixture[str]) -> None:
    render.waits(Settings(inventory="c.yaml"), "j", (("", "suspended by bob; taco-launch resume j lets it continue"),))
    assert "; taco-launch -i c.yaml resume j lets" in capsys.readouterr().err


def test_how_a_drained_host_takes_jobs_again(capsys: pytest.CaptureFixture[str]) -> None:
    words = (("n1", "full"), ("n2", "drained by ann since 14:02 (cable)"), ("n3", "drained by ann since 14:03 (cable)"))
    render.waits(Settings(inventory="c.yaml"), "j", words)
    assert capsys.readouterr().err.endswith(
        "\n  a drained host takes no job before taco-launch -i c.yaml host resume n2 n3\n"
    )


@pytest.mark.parametrize("attempt", [0, 1])
def test_how_a_job_ended_is_one_line_and_its_log_named_where_it_has_one(
    attempt: int, capsys: pytest.CaptureFixture[str]
) -> None:
    record = replace(JOB.record, state=JobState.FAILED, reason="no place\n  n1: full", attempt=attempt)
    job_output.ending(Settings(), replace(JOB, record=record))
    told = "job j: FAILED: no place; n1: full\n" + ("its log: taco-launch logs j\n" if attempt else "")
    assert click.unstyle(capsys.readouterr().err) == told


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.CANCELLED])
def test_that_it_hung_to_its_end_is_said_once(state: JobState, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where something else ended it: its time, a stop."""
    stall = Stall(1e6, (RankLook(1, 31, "python3", "T", "", 700.0, "step 7", "gpu2"),))
    record = replace(JOB.record, state=state, reason="its end", stalled=stall)
    job_output.ending(Settings(), replace(JOB, record=record))
    said = capsys.readouterr().err.splitlines()[1:]
    assert len(said) == 1
    assert said[0].startswith("it hung: no rank has made progress since 1970-01-1")
    assert said[0].endswith("; rank 1 on gpu2 is stopped (T)")
    job_output.ending(
        Settings(), replace(JOB, record=replace(record, reason=f"{HANGS} for 700 s; {reason(1, stall.ranks)}"))
    )
    assert "it hung" not in capsys.readouterr().err


BANNER = b"n1/torchrun | E1 1 torch/distributed/elastic/multiprocessing/api.py:9] failed (exitcode: 1) local_rank: 0\n"


@pytest.mark.parametrize(
    ("args", "shown"), [((), ""), (("-v",), BANNER.decode()), (("--grep", "fail"), BANNER.decode())]
)
def test_what_a_launcher_says_of_a_failed_rank_is_shown_where_it_is_asked_for(
    args: tuple[str, ...], shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def follow(_backend: object, _what: LogQuery, output: Any, *_more: Any) -> JobView:
        output(b"n1/0 | a\n" + BANNER)
        return JOB

    monkeypatch.setattr(AgentBackend, "follow", follow)
    assert call(*args, "j").stdout == "n1/0 | a\n" + shown


def test_labels_are_coloured_with_their_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    out = io.BytesIO()
    job_output.LogOutput(out).write(
        b"n1/0 | a\n2026-11-21T14:02:00.123Z n1/1  | b\n-                        n1/mpirun | c | d\nno label | e\n"
        b"n1/hydra | f\n"
    )
    assert out.getvalue() == (
        b"\x1b[36mn1/0 |\x1b[0m a\n"
        b"\x1b[33m2026-11-21T14:02:00.123Z n1/1  |\x1b[0m b\n"
        b"\x1b[2m-                        n1/mpirun |\x1b[0m c | d\n"
        b"no label | e\n"
        b"\x1b[2mn1/hydra |\x1b[0m f\n"
    )
