"""Parts of the logs of real jobs: with the time of each line, since a time, by instance, host and attempt."""

import datetime as dt
import re
import subprocess
import sys
import time
import urllib.request
from functools import partial
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import Taco, eventually
from tests.e2e.process_table import line
from tests.support.patience import patience

pytestmark = pytest.mark.e2e

STAMP = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) ", re.MULTILINE)
# Each rank says its own clock's time three times, each time after a file is there.
TELLS = """
import os, sys, time
for number in range(3):
    while not os.path.exists(f"{sys.argv[1]}/{number}"):
        time.sleep(0.01)
    print(time.time(), flush=True)
"""


def seconds(stamp: str) -> float:
    return dt.datetime.strptime(stamp, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=dt.timezone.utc).timestamp()


def told(text: str) -> list[tuple[float, float]]:
    """Return of each line the time before it, and the time that it tells."""
    return [(seconds(STAMP.match(line)[1]), float(line.split()[-1])) for line in text.splitlines()]  # type: ignore[index]


def test_times_are_those_of_the_ranks(taco: Taco, tmp_path: Path) -> None:
    argv = ("--name", "t", "--np", "2", "--", sys.executable, "-c", TELLS, str(tmp_path))
    assert taco("submit", *argv).returncode == 0
    seen = []

    def has_lines(count: int) -> bool:
        return taco("logs", "t").stdout.count("\n") == count

    for number in range(3):
        (tmp_path / str(number)).touch()
        eventually(partial(has_lines, 2 * (number + 1)), what="the line of each rank")
        seen.append(time.time())
        time.sleep(0.3)
    assert taco.ended("t")["state"] == "SUCCEEDED"
    merged = told(taco("logs", "--timestamps", "t").stdout)
    single = told(taco("logs", "--timestamps", "--rank", "1", "t").stdout)
    assert (len(merged), len(single)) == (6, 3)
    for at, printed in merged + single:
        # not that at which the log was read, and not that of a later line
        assert printed - 0.025 < at < min(when for when in seen if when > printed), (at, printed, seen)
    assert {printed for _at, printed in single} <= {printed for _at, printed in merged}
    second = sorted(printed for _at, printed in single)[1]
    since = dt.datetime.fromtimestamp(second - 0.1, tz=dt.timezone.utc).isoformat()
    assert told(taco("logs", "--rank", "1", "--since", since, "--timestamps", "t").stdout) == single[1:]
    assert len(taco("logs", "--since", "1h", "-t", "2", "t").stdout.splitlines()) == 2
    assert taco("logs", "--since", "0s", "t").stdout == ""


def test_a_job_that_is_tried_again(taco: Taco, tmp_path: Path) -> None:
    # The third attempt is the one that lives.
    script = (
        f"n=$(cat {tmp_path}/n$RANK 2>/dev/null || echo 1); echo $((n+1)) >{tmp_path}/n$RANK; echo try $n; [ $n = 3 ]"
    )
    argv = ["--name", "r", "--np", "2", "--backoff-limit", "5", "--backoff", "0.1", "--", "sh", "-c", script]
    assert taco("submit", *argv).returncode == 0
    follower = taco.start("logs", "-f", "--rank", "0", "r")
    fixed = taco.start("logs", "-f", "--attempt", "2", "--rank", "1", "r")
    job = taco.ended("r")
    assert (job["state"], job["attempt"]) == ("SUCCEEDED", 3), job
    out, _err = follower.communicate(timeout=patience(30))
    tries = [b"try 1\n", b"[taco-launch: attempt 2]\n", b"try 2\n", b"[taco-launch: attempt 3]\n", b"try 3\n"]
    # It may have started to look when the second attempt ran.
    assert out.endswith(tries[-1])
    assert b"".join(tries).endswith(out)
    out, err = fixed.communicate(timeout=patience(30))
    assert out == b"try 2\n" or b"it has no attempt 2" in err
    whole = taco("logs", "r").stdout
    parts = re.split(r"\[taco-launch: attempt \d\]\n", whole)
    own = [sorted(line for line in part.splitlines() if "/mpirun | " not in line) for part in parts]
    assert own == [[f"localhost/{rank} | try {number}" for rank in range(2)] for number in (1, 2, 3)]
    for number in (1, 2, 3):
        assert taco("logs", "--attempt", str(number), "--rank", "1", "r").stdout == f"try {number}\n"
        assert taco("logs", "--attempt", str(number), "r").stdout == parts[number - 1]
    assert taco("logs", "--rank", "0", "r").stdout == "try 3\n"
    assert taco("logs", "--attempt", "4", "r").returncode == 2


def test_following_with_times_and_since(taco: Taco, tmp_path: Path) -> None:
    script = (
        f"waits() {{ until [ -e {tmp_path}/$1 ]; do sleep 0.05; done; }}; "
        "echo old; waits old; sleep 0.2; echo new; waits new; echo last"
    )
    assert taco("submit", "--name", "f", "--np", "1", "--", "sh", "-c", script).returncode == 0
    eventually(lambda: taco("logs", "f").stdout.endswith("| old\n"))
    (tmp_path / "old").touch()
    eventually(lambda: taco("logs", "f").stdout.endswith("| new\n"))
    old, new = taco("logs", "--timestamps", "f").stdout.splitlines()
    follower = taco.start("logs", "-f", "--since", new.split()[0], "--timestamps", "f")
    assert line(follower).decode() == new + "\n"
    (tmp_path / "new").touch()
    out, _err = follower.communicate(timeout=patience(30))
    assert STAMP.sub("", out.decode()) == "localhost/0 | last\n"
    assert taco("logs", "--since", old.split()[0], "f").stdout.count("\n") == 3


def test_who_follows_a_job_that_waits_is_told_why(taco: Taco) -> None:
    assert taco("submit", "--name", "first", "--", "sleep", "600").returncode == 0
    assert taco("submit", "--name", "second", "--np", "1", "--", "echo", "mine").returncode == 0
    followers = [taco.start(*verb, "second") for verb in (["logs", "-f"], ["wait"])]
    assert taco("submit", "--name", "held", "--np", "1", "--suspend", "--", "true").returncode == 0
    held = taco.start("logs", "-f", "held")
    why = []
    for each in (*followers, held):
        assert each.stderr is not None
        why.append(each.stderr.readline())
    for told in why[:2]:
        assert told.startswith(b"job second: waiting: localhost: ")
        assert b"held by job first since" in told
    assert why[2].startswith(
        b"job held: waiting: submitted with --suspend; it waits until it is resumed; taco-launch resume held starts it"
    )
    taco("stop", "--grace", "0", "first", "held")
    for follower, printed in zip(followers, (b"localhost/0 | mine\n", b""), strict=True):
        assert follower.communicate(timeout=patience(30))[0] == printed
    held.communicate(timeout=patience(30))


def test_a_killed_rank_and_its_supervisor_leave_a_log_that_can_be_read(taco: Taco) -> None:
    script = (
        "import os, signal\nfor n in range(2000): print('line', n, flush=True)\nos.kill(os.getppid(), signal.SIGKILL)"
    )
    assert taco("run", "--name", "k", "--np", "1", "--", sys.executable, "-c", script).returncode == 137
    lines = taco("logs", "--timestamps", "--rank", "0", "k").stdout.splitlines()
    texts = [STAMP.sub("", line) for line in lines]
    expected = [f"line {number}" for number in range(len(lines))]
    assert texts[:-1] == expected[:-1]
    assert expected[-1].startswith(texts[-1])  # the pipe was cut in the middle of what it held
    assert all(STAMP.match(line) for line in lines)


def test_metrics_of_jobs_that_come_and_go(taco: Taco, tmp_path: Path) -> None:
    def counted() -> dict[str, float]:
        answer = taco.ok("metrics")
        found = {}
        for family in text_string_to_metric_families(answer.stdout):
            for sample in family.samples:
                found[sample.name + "".join(f" {value}" for _name, value in sorted(sample.labels.items()))] = (
                    sample.value
                )
        return found

    assert taco("run", "--name", "good", "--np", "1", "--queue", "day", "--", "true").returncode == 0
    assert taco("run", "--name", "bad", "--np", "1", "--", "false").returncode == 1
    assert taco("submit", "--name", "held", "--np", "1", "--suspend", "--", "true").returncode == 0
    assert taco("submit", "--name", "now", "--np", "1", "--", "sleep", "600").returncode == 0
    before = counted()
    expected = {
        "taco_launch_jobs_created_total": 4,
        "taco_launch_jobs_successful_total": 1,
        "taco_launch_jobs_failed_total": 1,
        "taco_launch_job_info good-launcher local": 1,
        "taco_launch_jobs SUSPENDED": 1,
        "taco_launch_queue_length default": 0,
        "taco_launch_queue_wait_seconds_count day": 1,
        "taco_launch_queue_wait_seconds_count default": 2,
        "taco_launch_slots localhost allocated": 1,
        "taco_launch_slots localhost foreign": 0,
    }
    assert {name: before.get(name) for name in expected} == expected
    assert 0 < before["taco_launch_queue_wait_seconds_sum day"] < patience(10)
    assert taco("stop", "--grace", "0", "now").returncode == 0
    assert taco("delete", "good", "bad", "now", "held").returncode == 0
    after = counted()
    for name, value in before.items():
        if name.endswith("_total") or "queue_wait" in name:
            assert after[name] >= value, name
    assert after["taco_launch_jobs_cancelled_total"] == 2
    assert not [name for name in after if "job_info" in name]
    path = f"{tmp_path}/taco.prom"
    assert taco("metrics", "--textfile", path).returncode == 0
    assert subprocess.run(["grep", "-c", "^taco_launch_jobs_created_total 4.0$", path], check=False).returncode == 0


@pytest.mark.enable_socket
def test_metrics_over_http(taco: Taco) -> None:
    server = taco.start("metrics", "--listen", "0")
    try:
        assert server.stderr is not None
        url = server.stderr.readline().decode().split()[-1]
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/metrics", url)
        for created in (0, 1):
            with urllib.request.urlopen(url, timeout=patience(30)) as answer:
                assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
                assert f"\ntaco_launch_jobs_created_total {created}.0\n" in answer.read().decode()
            assert taco("run", "--name", f"j{created}", "--np", "1", "--", "true").returncode == 0
        server.send_signal(2)
        assert server.wait(patience(10)) == 130
    finally:
        server.kill()
        server.communicate()
