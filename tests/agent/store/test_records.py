"""A job's files: whole or not there, events that outlive a full disk and a crash, a lock that dies with its holder."""

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder
from taco_launch.agent.store.records import Events, StopRequest
from taco_launch.core.errors import TacoLaunchError
from taco_launch.core.lifecycle import state
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.jobs import JobSpec, JobState
from tests.agent.conftest import Family, scratch

SPEC = JobSpec(name="job", command=("echo", "\udcff"), hosts=(Host("me", "127.0.0.1", connection="local"),), np=2)


def kinds(folder: JobFolder) -> list[str]:
    return [event.kind for event in records.read_events(folder)]


# --- JSON files


def test_a_json_file_is_private_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    records.write_json(path, {"a": ["\udcff", "naïve"]})
    assert records.read_json(path) == {"a": ["\udcff", "naïve"]}
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["spec.json"]
    assert records.read_json(tmp_path / "other.json") is None
    assert records.read_json(path / "deeper.json") is None


def test_a_value_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    records.write_json(path, 1)
    with pytest.raises(TypeError):
        records.write_json(path, {"a": object()})
    assert records.read_json(path) == 1
    assert os.listdir(tmp_path) == ["spec.json"]


def test_two_writers_at_once(tmp_path: Path) -> None:
    """Two stops at the same moment: the file is the one or the other at any time, and both writers are done."""
    path = tmp_path / "stop.json"

    class Interrupted(dict[str, int]):
        def items(self) -> Any:
            records.write_json(path, {"by": 2})
            assert records.read_json(path) == {"by": 2}
            yield "by", 1
            assert records.read_json(path) == {"by": 2}

    records.write_json(path, Interrupted(by=1))
    assert records.read_json(path) == {"by": 1}


# --- the spec


def test_a_spec_comes_back(folder: JobFolder) -> None:
    records.write_spec(folder, SPEC)
    assert records.read_spec(folder) == SPEC
    assert folder.reserve.stat().st_size >= 4096


def test_no_spec(folder: JobFolder) -> None:
    with pytest.raises(TacoLaunchError, match=r"job job: its folder .* has no spec\.json"):
        records.read_spec(folder)


def test_a_spec_of_another_version(folder: JobFolder) -> None:
    records.write_json(folder.spec, {"schema": 99, "spec": {}})
    with pytest.raises(TacoLaunchError, match="schema 99, but this agent can only read schema 1"):
        records.read_spec(folder)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"schema": 1}', '{"schema": 1, "spec": {}}', "\xff"],
    ids=["empty", "cut", "a-list", "no-schema", "no-spec", "no-fields", "no-text"],
)
def test_a_damaged_spec_is_an_error_of_that_job(folder: JobFolder, text: str) -> None:
    folder.spec.write_text(text, encoding="latin-1")
    with pytest.raises(TacoLaunchError, match="job job"):
        records.read_spec(folder)


# --- events


def test_events_come_back_in_order(folder: JobFolder) -> None:
    Events(folder).add(state.SUBMITTED, "waiting", id="a1")
    other = Events(folder)
    other.add(state.PLACED, np=2, hosts=["gpu1"], line="mpirun \udcff")
    other.add(state.STOPPING, "by \udcff")
    assert kinds(folder) == [state.SUBMITTED, state.PLACED, state.STOPPING]
    found = records.record(folder)
    assert (found.id, found.state, found.line) == ("a1", JobState.STOPPING, "mpirun \udcff")
    assert found.submitted is not None
    assert found.started is not None
    assert found.submitted <= found.started
    assert folder.events.stat().st_mode & 0o777 == 0o600


def test_no_events(tmp_path: Path) -> None:
    assert records.read_events(JobFolder(tmp_path / "none")) == []


@settings(max_examples=40)
@given(st.integers(2, 200))
def test_a_line_that_was_cut_short_is_passed_over(missing: int) -> None:
    with scratch() as path:
        folder = JobFolder(path)
        Events(folder).add(state.SUBMITTED, id="a1")
        whole = folder.events.read_bytes()
        Events(folder).add(state.STOPPING, "torn")
        torn = folder.events.read_bytes()
        folder.events.write_bytes(torn[: max(len(torn) - missing, len(whole))])
        assert kinds(folder) == [state.SUBMITTED]
        # Who continues after a crash does not write into the torn line.
        Events(folder).add(state.ENDED, state="LOST", exit_code=1)
        assert kinds(folder) == [state.SUBMITTED, state.ENDED]
        assert records.record(folder).state is JobState.LOST


def test_an_agent_before_wrote_the_hint_behind_the_reason(folder: JobFolder) -> None:
    events = Events(folder)
    events.add("ended", "it does not fit\nhint: ask for less")
    events.add("ended", "it does not fit", hint="ask for less")
    found = [(event.reason, event.hint) for event in records.read_events(folder)]
    assert found == [("it does not fit", "ask for less")] * 2


def test_lines_that_are_no_events_of_ours_are_passed_over(folder: JobFolder) -> None:
    events = Events(folder)
    events.add(state.SUBMITTED, id="a1")
    with open(folder.events, "ab") as file:
        file.write(b'\n[]\n1\n{"schema": 2, "kind": "from the future"}\n\xff\xfe\nnull\n{}\n')
    events.add(state.STOPPING)
    assert kinds(folder) == [state.SUBMITTED, state.STOPPING]


class Full:
    """A disk that is full or not, under the events of a job."""

    def __init__(self, events: Events) -> None:
        self._file = events._file
        self._disk = os.dup(self._file)

    def full(self) -> None:
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, self._file)
        os.close(full)

    def free(self) -> None:
        os.dup2(self._disk, self._file)

    def close(self) -> None:
        os.close(self._disk)


@pytest.fixture
def events(folder: JobFolder) -> Events:
    records.write_spec(folder, SPEC)
    return Events(folder)


@pytest.fixture
def disk(events: Events) -> Iterator[Full]:
    found = Full(events)
    yield found
    found.close()


def test_a_full_disk_takes_the_reserve_and_then_keeps_events_in_memory(
    folder: JobFolder, events: Events, disk: Full
) -> None:
    events.add(state.SUBMITTED, id="a1")
    assert folder.reserve.exists()
    disk.full()
    events.add(state.STOPPING, "one")
    assert not folder.reserve.exists()
    assert not events.flush()
    events.add(state.ENDED, "two", state="FAILED", exit_code=1)
    assert kinds(folder) == [state.SUBMITTED]
    disk.free()
    assert events.flush()
    assert events.flush()
    assert kinds(folder) == [state.SUBMITTED, state.STOPPING, state.ENDED]


def test_the_reserve_makes_room_for_the_last_events(folder: JobFolder, events: Events, disk: Full) -> None:
    disk.full()
    unlink = Path.unlink

    class Reserve:
        """Frees the disk when it is removed, as a real one does."""

        def exists(self) -> bool:
            return folder.reserve.exists()

        def unlink(self, **options: bool) -> None:
            unlink(folder.reserve, **options)
            disk.free()

    events._folder = JobFolder(folder.path)
    events._folder.reserve = Reserve()  # type: ignore[assignment]
    events.add(state.ENDED, state="FAILED", exit_code=1)
    assert kinds(folder) == [state.ENDED]
    assert not folder.reserve.exists()


CUT = """
import resource, sys
from pathlib import Path
from taco_launch.agent.store.folders import JobFolder
from taco_launch.agent.store.records import Events
events = Events(JobFolder(Path(sys.argv[1])))
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
events.add("first", "x" * 200)
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
events.add("second")
"""


def test_a_write_that_is_cut_short_goes_on_where_it_was(folder: JobFolder) -> None:
    subprocess.run([sys.executable, "-c", CUT, str(folder.path)], check=True)
    assert [(event.kind, len(event.reason)) for event in records.read_events(folder)] == [("first", 200), ("second", 0)]


def test_what_is_flushed_is_valid_json(folder: JobFolder) -> None:
    Events(folder).add("odd", 'quote " and \n newline', data={"a": [1, None]})
    (line,) = folder.events.read_text(encoding="ascii").splitlines()
    assert json.loads(line)["reason"] == 'quote " and \n newline'


# --- the lock


def test_a_lock_is_held_by_one(folder: JobFolder) -> None:
    held = records.try_lock(folder)
    assert held is not None
    assert records.try_lock(folder) is None
    os.close(held)
    again = records.try_lock(folder)
    assert again is not None
    os.close(again)


def test_a_lock_dies_with_its_holder(folder: JobFolder, family: Family) -> None:
    lock = records.try_lock(folder)
    assert lock is not None
    holder = family.start(("sleep", "60"), pass_fds=(lock,))
    os.close(lock)
    assert records.try_lock(folder) is None
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    lock = records.try_lock(folder)
    assert lock is not None
    os.close(lock)


@pytest.mark.parametrize("text", [None, "[]", "7", '{"environment": {"A": 1}, "umask": 18}', '{"umask": 18}'])
def test_a_caller_that_cannot_be_read_is_an_error(folder: JobFolder, text: str | None) -> None:
    if text is not None:
        folder.caller.write_text(text, encoding="ascii")
    with pytest.raises(TacoLaunchError, match=r"caller\.json is missing or damaged"):
        records.read_caller(folder)


def test_a_caller_that_an_older_agent_kept_is_read(folder: JobFolder) -> None:
    folder.caller.write_text('{"environment": {"A": "b"}, "umask": 18}', encoding="ascii")
    found = records.read_caller(folder)
    assert (found.environment, found.umask, found.inherit) == ({"A": "b"}, 18, False)
    records.write_caller(folder, found)
    assert records.read_caller(folder) == found
    assert folder.caller.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_job_is_stopped_on_a_full_disk(folder: JobFolder, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr(records, "write_json", Mock(side_effect=OSError(code, os.strerror(code))))
    records.write_request(folder.stop, StopRequest("ada", signal.SIGINT, 5.0))
    request = records.read_request(folder, folder.stop)
    assert request == StopRequest("a command on a full disk", signal.SIGTERM, None)


def test_a_request_that_cannot_be_written_is_told(folder: JobFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "write_json", Mock(side_effect=OSError(errno.EROFS, os.strerror(errno.EROFS))))
    with pytest.raises(OSError, match="Read-only"):
        records.write_request(folder.stop, StopRequest("ada"))
    assert records.read_request(folder, folder.stop) is None
