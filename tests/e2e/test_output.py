"""Every rank's output is whole and in order, whatever it is, and a log never stops a job."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Taco, eventually
from tests.e2e.process_table import line
from tests.support.patience import patience

pytestmark = pytest.mark.e2e

WRITER = """
import os, sys, time
rank = int(os.environ["RANK"])
for piece in {pieces!r}:
    os.write(1, piece.replace(b"@", b"%d" % rank))
    time.sleep({pause})
"""


def rank_logs(taco: Taco, name: str, ranks: int) -> list[bytes]:
    """Return each rank's log as `logs --rank` prints it."""
    found = []
    for rank in range(ranks):
        argv = taco.argv("logs", "--rank", str(rank), name)
        found.append(subprocess.run(argv, env=taco.env, stdout=subprocess.PIPE, check=True).stdout)
    return found


def unmerged(merged: bytes, rank: int) -> bytes:
    """Take one rank's bytes out of a merged log of two ranks."""
    label = b"localhost/%d | " % rank
    other = b"localhost/%d | " % (1 - rank)
    pieces = re.split(b"(" + re.escape(label) + b"|" + re.escape(other) + b")", merged)
    return b"".join(text for mark, text in zip(pieces[1::2], pieces[2::2], strict=True) if mark == label)


@pytest.mark.parametrize(
    ("pieces", "pause"),
    [
        pytest.param([b"one\ntwo@\n", b"three\n"], 0, id="lines"),
        pytest.param([b"10%\r", b"20%\r", b"done\n"], 0.05, id="carriage-returns"),
        pytest.param([b"dos\r\nline", b"s\r", b"\nend\r\n"], 0.05, id="crlf-split"),
        pytest.param(["naïve ".encode()[:3], "naïve ".encode()[3:], b"\xe4\xbd", b"\xa0@\n"], 0.05, id="utf8-split"),
        pytest.param([b"x" * 1_000_000 + b"@\n", b"y" * 1_000_000 + b"\n"], 0, id="1MB-lines"),
        pytest.param([bytes(range(256)) * 64, b"\n\x00\xff\n"], 0, id="binary"),
    ],
)
def test_output_is_whole_and_in_order(taco: Taco, tmp_path: Path, pieces: list[bytes], pause: float) -> None:
    script = tmp_path / "writer.py"
    script.write_text(WRITER.format(pieces=pieces, pause=pause), encoding="utf-8")
    argv = taco.argv("run", "--name", "out", "--np", "2", "--", sys.executable, str(script))
    run = subprocess.run(argv, env=taco.env, capture_output=True, timeout=patience(60), check=False)
    assert run.returncode == 0, run.stderr
    for rank, log in enumerate(rank_logs(taco, "out", 2)):
        expected = b"".join(pieces).replace(b"@", b"%d" % rank)
        assert log == expected
        # Of what is overwritten the first state is shown as it comes, unless more has come by then.
        last = b"".join(line for line in re.findall(rb"[^\r\n]*(?:\r\n|\n|\r)", expected) if not line.endswith(b"\r"))
        assert unmerged(run.stdout, rank).removeprefix(b"10%\n") == last


def test_a_last_line_without_an_end_is_a_line(taco: Taco) -> None:
    run = taco("run", "--np", "2", "--", "sh", "-c", "printf $RANK")
    assert sorted(run.stdout.splitlines()) == ["localhost/0 | 0", "localhost/1 | 1"]


def test_nothing_written_is_nothing_printed(taco: Taco) -> None:
    run = taco("run", "--np", "2", "--", "true")
    assert (run.returncode, run.stdout) == (0, "")


def test_stdout_and_stderr_keep_their_order(taco: Taco) -> None:
    run = taco("run", "--np", "1", "--", "sh", "-c", "for i in 1 2 3; do echo out$i; echo err$i >&2; done")
    assert [line.partition(" | ")[2] for line in run.stdout.splitlines()] == [
        "out1",
        "err1",
        "out2",
        "err2",
        "out3",
        "err3",
    ]


def test_output_after_the_command_closed_its_own(taco: Taco) -> None:
    run = taco("run", "--np", "1", "--", "sh", "-c", "echo before; exec >&- 2>&-; sleep 0.3; exit 3")
    assert run.returncode == 3
    assert run.stdout.startswith("localhost/0 | before\n")


@pytest.mark.parametrize("count", [200_000, pytest.param(1_500_000, marks=pytest.mark.nightly)])
def test_50_mb_a_second_is_whole(taco: Taco, count: int) -> None:
    # Numbered lines, as fast as they can be written: a lost, doubled or moved piece shows.
    script = f"import sys\nfor i in range({count}): sys.stdout.write('%d %s\\n' % (i, 'x' * 60))"
    argv = taco.argv("run", "-q", "--name", "fast", "--np", "2", "--", sys.executable, "-c", script)
    expected = iter(range(count)), iter(range(count))
    with subprocess.Popen(argv, env=taco.env, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for line in process.stdout:
            head, _bar, rest = line.partition(b" | ")
            assert rest == b"%d %s\n" % (next(expected[int(head[-1:])]), b"x" * 60)
    assert process.returncode == 0
    assert [next(left, None) for left in expected] == [None, None]


def test_rotation_keeps_the_newest(taco: Taco) -> None:
    script = "for i in $(seq 20000); do echo line $i; done"
    capped = taco("run", "--name", "small", "--np", "1", "--log-max-bytes", "65536", "--", "bash", "-c", script)
    assert capped.returncode == 0
    kept = sum(path.stat().st_size for path in taco.folder("small").glob("logs/rank-0.*.log"))
    assert 32768 <= kept <= 65536
    log = rank_logs(taco, "small", 1)[0]
    first, _, rest = log.partition(b"\n")
    assert re.fullmatch(rb"\[taco-launch: \d+ bytes dropped by log rotation\]", first)
    numbers = [int(line.split()[1]) for line in rest.splitlines()]
    assert numbers == list(range(numbers[0], 20001))  # no line is cut
    assert taco("logs", "-t", "2", "--rank", "0", "small").stdout == "line 19999\nline 20000\n"


def test_logs_f_resumes_and_tails(taco: Taco, tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = f"echo a; echo b; while ! [ -e {go} ]; do sleep 0.05; done; echo c"
    assert taco("submit", "--name", "t", "--np", "1", "--", "sh", "-c", script).returncode == 0
    eventually(lambda: taco("logs", "t").stdout == "localhost/0 | a\nlocalhost/0 | b\n")
    follower = taco.start("logs", "-f", "-t", "1", "t")
    assert line(follower) == b"localhost/0 | b\n"
    go.touch()
    out, _err = follower.communicate(timeout=patience(30))
    assert out == b"localhost/0 | c\n"
    assert taco("logs", "-t", "0", "t").stdout == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="cannot: a small file system is mounted by root only")
def test_a_full_disk_stops_the_log_not_the_job(taco: Taco, tmp_path: Path) -> None:
    filler = taco.state / "filler"
    room = sum(path.stat().st_size for path in (taco.state / "agent").iterdir()) + (8 << 20)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={room},mode=700", "tmpfs", str(taco.state)], check=True)
    try:
        filler.write_bytes(bytes(4 << 20))
        hold, go = tmp_path / "filled", tmp_path / "go"
        script = (
            f"import os,time\nfor i in range(8): os.write(1, b'x' * 999999 + b'\\n')\nopen({str(hold)!r}, 'w')\n"
            f"while not os.path.exists({str(go)!r}): time.sleep(0.05)\ntime.sleep(1.2)\nprint('still here', flush=True)"
        )
        taco.ok("submit", "--name", "full", "--np", "1", "--", sys.executable, "-c", script)
        eventually(hold.exists, what="the job to continue though the disk is full")
        filler.unlink()
        go.touch()
        job = taco.ended("full")
        assert (job["state"], job["exit_code"]) == ("SUCCEEDED", 0)
        log = rank_logs(taco, "full", 1)[0]
        assert b"bytes of output lost here: No space left on device]" in log
        assert log.endswith(b"still here\n")
    finally:
        taco("stop", "--grace", "0", "full")
        subprocess.run(["umount", "-l", str(taco.state)], check=True)
