"""A rank may write into its job's folder: what lies there keeps no command waiting, and no code opens it any other way."""

import ast
import os
import re
from pathlib import Path

import pytest

import taco_launch.agent
from taco_launch.agent.logs import segments, timestamps
from taco_launch.agent.store import records, untrusted
from taco_launch.agent.store.folders import JobFolder
from taco_launch.agent.upkeep import scheduler_wakeup
from taco_launch.core.errors import DamagedRecordError, HostError

AGENT = Path(taco_launch.agent.__file__).parent
# What is opened by name and is not in a folder that others may write: of the kernel, of this process, of the agent itself.
OWN = {
    "notify.py: open(reader, encoding='utf-8')",  # a pipe
    "start.py: open(os.devnull, 'rb')",
    "forked.py: open(2, 'w', buffering=1, encoding='utf-8', errors='backslashreplace', closefd=False)",
    "spawner.py: open(f'{own[_LOGS]}/said', 'a+b')",
    "commands.py: open(agent, 'rb')",
    "py_spy.py: newest.read_bytes()",
    "py_spy.py: open(self._file, 'wb', closefd=False)",
    "py_spy.py: _YAMA.read_text(encoding='ascii')",
    "folders.py: open(path, 'w', encoding='utf-8', opener=private)",
    "folders.py: os.open(path, flags, 384)",  # private, that opener
    "drain.py: open(file, 'rb')",  # which untrusted.py has opened
    "ports.py: (process / 'comm').read_text('utf-8', 'replace')",
}


# What os.open does not wait for: no FIFO (O_NONBLOCK, O_RDWR), or nothing that a rank could have put there.
_NEVER_WAITS = re.compile(r"O_NONBLOCK|O_RDWR|O_DIRECTORY|O_EXCL|os\.devnull|APPEND_FLAGS")


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    found = JobFolder(tmp_path / "job")
    found.path.mkdir()
    return found


def test_a_fifo_keeps_nobody_waiting(folder: JobFolder) -> None:
    for name in (folder.lock, folder.events, folder.debug):
        os.mkfifo(name)
    assert not scheduler_wakeup.is_locked(folder)
    with pytest.raises(DamagedRecordError, match="not a regular file"):
        records.try_lock(folder)
    with pytest.raises(OSError, match="not a regular file"):
        records.Events(folder)
    with pytest.raises(OSError, match="not a regular file"):
        untrusted.last_line(folder.debug)
    log = folder.path / "log"
    os.mkfifo(timestamps.beside(log))
    assert timestamps.first_since([(7, log)], 0) == 7


def test_a_fifo_in_the_place_of_a_log_stops_no_writer(folder: JobFolder) -> None:
    """A rank puts it where the supervisor is to write its next attempt's log."""
    stem = folder.path / "launcher"
    os.mkfifo(segments.segment(stem, 0))
    segments.Writer(stem, 1 << 20).write(b"words\n")  # lost, as on a full disk
    other = folder.path / "rank-0"
    os.mkfifo(timestamps.beside(segments.segment(other, 0)))
    segments.Writer(other, 1 << 20).write(b"words\n")
    assert segments.segment(other, 0).read_bytes() == b"words\n"


def test_a_link_is_not_followed(folder: JobFolder, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("untouched")
    for name in (folder.lock, folder.events):
        name.symlink_to(other)
    for act in (records.try_lock, records.Events):
        with pytest.raises((OSError, DamagedRecordError), match="symbolic"):
            act(folder)
    assert other.read_text() == "untouched"


@pytest.mark.parametrize("offset", ["9" * 200, "9" * 19, "13"])
def test_no_name_of_a_log_stops_who_reads_or_writes_it(folder: JobFolder, offset: str) -> None:
    """A rank gives a file the place of a segment: one that no file has, or a link to nothing."""
    stem = folder.path / "merged"
    segments.segment(stem, 0).write_bytes(b"its words\n")
    (folder.path / f"merged.{offset}.log").symlink_to("nothing")
    segments.Writer(stem, 1 << 20).write(b"more\n")
    if offset == "13":
        assert segments.size(stem) < 100
        with pytest.raises(HostError, match="cannot be read"):
            segments.tail(stem, 1)
    else:
        assert segments.segment(stem, 0).read_bytes() == b"its words\nmore\n"
        assert segments.last_words(stem) == "its words\nmore\n"


def test_the_last_line_of_a_file_of_any_size(tmp_path: Path) -> None:
    file = tmp_path / "debug.log"
    with file.open("wb") as out:
        out.truncate(1 << 40)  # sparse: read whole it would take all memory
        out.seek(0, os.SEEK_END)
        out.write(b"\nits last words\n\n")
    assert untrusted.last_line(file) == "its last words"
    file.write_text("")
    assert untrusted.last_line(file) == ""


def test_the_agent_opens_files_in_one_way() -> None:
    found = set()
    for file in sorted(AGENT.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            text = ast.unparse(node)
            named = isinstance(node.func, ast.Name) and node.func.id == "open"
            read = isinstance(node.func, ast.Attribute) and node.func.attr in ("read_text", "read_bytes")
            kernels = "/proc/" in text or "/sys/" in text
            given = named and ("opener=untrusted.opener" in text or text.startswith("open(descriptor"))
            waits = ast.unparse(node.func) == "os.open" and not _NEVER_WAITS.search(text)
            if ((named or read) and not kernels and not given) or waits:
                found.add(f"{file.name}: {text}")
    assert found <= OWN, found - OWN
