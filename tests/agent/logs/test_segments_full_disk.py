"""A disk that takes no more stops the log and never the writer; what was lost is told once there is room again."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from taco_launch.agent.logs import segments
from taco_launch.agent.logs.segments import SegmentReader, Writer
from tests.support.log_segments import drain
from tests.support.patience import HANG

LOST = "\n[taco-launch: {} bytes of output lost here: {}]\n"


def content(stem: Path) -> str:
    return drain(SegmentReader(stem)).decode()


def in_a_process(script: str, stem: Path) -> None:
    """Run a script with its own limits; it has `logs`, `limit(name, soft)` and a Writer of segments of 1000 bytes."""
    head = (
        "import resource, sys\nfrom pathlib import Path\nfrom taco_launch.agent.logs import segments\n"
        "def limit(name, soft):\n"
        "    number = getattr(resource, 'RLIMIT_' + name)\n"
        "    hard = resource.getrlimit(number)[1]\n"
        "    resource.setrlimit(number, (hard if soft is None else soft, hard))\n"
        "segments._RETRY_SECONDS = 0\nwriter = segments.Writer(Path(sys.argv[1]), 2000)\n"
    )
    subprocess.run([sys.executable, "-c", head + script, str(stem)], check=True, timeout=HANG)


def test_a_write_that_is_cut_short(tmp_path: Path) -> None:
    in_a_process(
        """
limit("FSIZE", 300)  # Python ignores SIGXFSZ: a write beyond is EFBIG
writer.write(b"a" * 500)
writer.write(b"b" * 100)
limit("FSIZE", None)
writer.write(b"c")
writer.write(b"d")
""",
        tmp_path / "rank-0",
    )
    assert content(tmp_path / "rank-0") == "a" * 300 + LOST.format(300, os.strerror(27)) + "cd"


def test_a_segment_that_cannot_be_begun(tmp_path: Path) -> None:
    in_a_process(
        """
limit("FSIZE", 990)
writer.write(b"a" * 995)
limit("FSIZE", None)
limit("NOFILE", 3)  # the note would continue in a new segment: nothing can be opened, so it comes later and whole
writer.write(b"b")
limit("NOFILE", 50)
writer.write(b"c")
""",
        tmp_path / "rank-0",
    )
    note = r"\n\[taco-launch: (\d+) bytes of output lost here: [A-Z][a-z ]+\]\n"
    text = content(tmp_path / "rank-0")
    found = re.fullmatch(f"a{{990}}(?P<notes>(?:{note})+)(?P<kept>b?c)", text)
    assert found, text
    lost = [int(number) for number in re.findall(note, found["notes"])]
    assert sum(lost) + len(found["kept"]) == 5 + len("bc")


def test_a_log_that_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "_RETRY_SECONDS", 0.0)
    stem = tmp_path / "logs" / "rank-0"
    writer = Writer(stem, 1000)
    for _line in range(3):
        writer.write(b"lost\n")
    stem.parent.mkdir()
    writer.write(b"kept\n")
    assert content(stem) == LOST.format(15, os.strerror(2)) + "kept\n"


def test_a_full_disk_is_not_asked_at_every_write(tmp_path: Path) -> None:
    stem = tmp_path / "logs" / "rank-0"
    writer = Writer(stem, 1000)
    writer.write(b"lost")
    stem.parent.mkdir()
    writer.write(b"lost too")  # within a second of the failure
    assert content(stem) == ""
    writer._retry_at = 0.0
    writer.write(b"kept")
    assert content(stem) == LOST.format(len("lostlost too"), os.strerror(2)) + "kept"
