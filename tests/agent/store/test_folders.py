"""Where things lie: the state folder, a job's folder under its name or not at all, a socket under any path."""

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from taco_launch.agent.store.folders import CLUSTER_VARIABLE, JobFolder, Jobs, require_local_disk, state_folder
from taco_launch.core.errors import NoJobError, TacoLaunchError, UsageError
from taco_launch.core.launch.command_line.env import SESSIONS
from taco_launch.core.model.host import paths
from tests.support.patience import HANG
from tests.support.threads import side_by_side

LEAVING = ["../x", "a/b", "/proc/x", "..", ".", "", ".hidden", "-x", "a\0b", "a\n", "a b", "é", "a" * 300, "a/../../x"]


@pytest.mark.parametrize(
    ("environ", "uid", "expected"),
    [
        ({"TACO_LAUNCH_STATE": "/srv/state", "XDG_STATE_HOME": "/x", "HOME": "/h"}, 1000, "/srv/state"),
        ({"TACO_LAUNCH_STATE": "/srv/state"}, 0, "/srv/state"),
        ({"XDG_STATE_HOME": "/x", "HOME": "/root"}, 0, "/var/lib/taco-launch"),
        ({CLUSTER_VARIABLE: "hcc"}, 0, paths.state("hcc")),  # in a container
        ({CLUSTER_VARIABLE: "../agent"}, 0, "/var/lib/taco-launch"),
        ({CLUSTER_VARIABLE: "hcc", "HOME": "/h"}, 1000, "/h/.local/state/taco-launch"),
        ({"XDG_STATE_HOME": "/x", "HOME": "/h"}, 1000, "/x/taco-launch"),
        ({"XDG_STATE_HOME": "", "HOME": "/h"}, 1000, "/h/.local/state/taco-launch"),
        ({"TACO_LAUNCH_STATE": "", "HOME": "/h"}, 1000, "/h/.local/state/taco-launch"),
        # XDG Base Directory Specification: a path that is not absolute is invalid and to be ignored.
        ({"XDG_STATE_HOME": "state", "HOME": "/h"}, 1000, "/h/.local/state/taco-launch"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_state_folder(environ: dict[str, str], uid: int, expected: str) -> None:
    assert state_folder(environ, uid) == Path(expected)


def test_a_relative_state_folder_is_where_the_caller_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert state_folder({"TACO_LAUNCH_STATE": "here"}, 1000) == tmp_path / "here"


def test_local_disks_are_taken(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "not" / "there", Path("/dev/shm"), Path("/")):
        require_local_disk(folder)


def test_every_path_lies_in_the_folder(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path / "vgg")
    assert folder.name == "vgg"
    paths = [value for value in vars(folder).values() if isinstance(value, Path)]
    assert all(path.is_relative_to(folder.path) for path in (*paths, folder.rank(3)))
    names = [path.name for path in (*paths, folder.rank(0), folder.rank(1), folder.rank(10))]
    assert len(set(names)) == len(names)
    assert not folder.path.exists()


def test_each_attempt_has_logs_of_its_own(tmp_path: Path) -> None:
    first = JobFolder(tmp_path / "vgg")
    second = first.of_attempt(2)
    assert (first.of_attempt(1).rank(3), first.of_attempt(1).launcher) == (first.rank(3), first.launcher)
    assert (second.rank(3), second.launcher) == (first.logs / "attempt-2/rank-3", first.logs / "attempt-2/launcher")
    assert second.merged == first.merged
    assert second.events == first.events


# --- marks


def test_what_is_pending_is_marked(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path)
    assert jobs.pending() == []
    jobs.unmark("a")
    for name in ("b", "a", "b"):
        jobs.mark(name)
    assert jobs.pending() == ["a", "b"]
    assert jobs.all() == []  # a mark is not a job
    jobs.unmark("a")
    assert jobs.pending() == ["b"]


def test_set_up_and_the_agent_name_the_variable_alike() -> None:
    assert CLUSTER_VARIABLE == paths.CLUSTER_VARIABLE


def test_the_mark_of_a_job_that_is_being_made_is_kept(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path)
    jobs.mark("a")
    made = (jobs.queue / "pending" / "a").stat().st_mtime
    jobs.forget("a", made + 30)
    assert jobs.pending() == ["a"]
    jobs.forget("a", made + 90)
    assert jobs.pending() == []


def test_a_job_that_is_removed_has_no_mark(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path)
    jobs.mark("a")
    with jobs.create("a") as draft:
        folder = jobs.publish(draft, "a")
    jobs.remove(folder)
    assert jobs.pending() == []


# --- the socket


@pytest.fixture
def deep(tmp_path: Path) -> JobFolder:
    folder = JobFolder(tmp_path / ("x" * 120) / ("y" * 120))
    folder.path.mkdir(parents=True)
    return folder


@contextlib.contextmanager
def no_descriptor_left() -> Iterator[None]:
    before = sorted(os.listdir("/proc/self/fd"))
    yield
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_a_socket_under_a_long_path(deep: JobFolder) -> None:
    with no_descriptor_left(), deep.listen() as server, deep.connect() as client:
        accepted, _address = server.accept()
        with accepted:
            client.sendall(b"hello")
            assert accepted.recv(10) == b"hello"


def test_nobody_listens(deep: JobFolder) -> None:
    with no_descriptor_left():
        with pytest.raises(OSError, match="No such file"):
            deep.connect()
        deep.listen().close()
        with pytest.raises(ConnectionRefusedError):
            deep.connect()


def test_a_new_guard_takes_the_place_of_an_old_one(deep: JobFolder) -> None:
    with deep.listen() as old, deep.listen() as new, deep.connect():
        new.settimeout(HANG)
        new.accept()[0].close()
        old.setblocking(False)
        with pytest.raises(BlockingIOError):
            old.accept()


# --- job folders


@pytest.fixture
def jobs(tmp_path: Path) -> Jobs:
    return Jobs(tmp_path / "state")


def publish(jobs: Jobs, name: str) -> JobFolder:
    with jobs.create(name) as draft:
        draft.spec.write_text(name, encoding="utf-8")
        return jobs.publish(draft, name)


def names(jobs: Jobs) -> list[str]:
    return [folder.name for folder in jobs.all()]


def test_there_are_none() -> None:
    jobs = Jobs(Path("/no/such/folder"))
    assert jobs.all() == []
    with pytest.raises(NoJobError):
        jobs.get("a")


def test_a_job_shows_when_it_is_published(jobs: Jobs) -> None:
    with jobs.create("vgg") as draft:
        assert draft.logs.is_dir()
        assert names(jobs) == []
        with pytest.raises(NoJobError):
            jobs.get("vgg")
        with pytest.raises(NoJobError):
            jobs.get(draft.name)
        published = jobs.publish(draft, "vgg")
    assert names(jobs) == ["vgg"]
    assert jobs.get("vgg").path == published.path
    assert published.logs.is_dir()
    assert os.listdir(jobs.path) == ["vgg"]


def test_a_draft_that_is_given_up_leaves_nothing(jobs: Jobs) -> None:
    with pytest.raises(ZeroDivisionError), jobs.create("vgg"):
        raise ZeroDivisionError
    assert os.listdir(jobs.path) == []


def test_a_taken_name(jobs: Jobs) -> None:
    publish(jobs, "vgg")
    with pytest.raises(UsageError, match="job vgg: the name is taken") as caught:
        publish(jobs, "vgg")
    assert caught.value.hint == "choose another --name"
    assert os.listdir(jobs.path) == ["vgg"]
    assert sorted(os.listdir(jobs.get("vgg").path)) == ["logs", "spec.json"]


def test_one_of_many_gets_the_name(jobs: Jobs) -> None:
    start, won = threading.Barrier(8), []

    def take(number: int) -> None:
        with contextlib.suppress(UsageError), jobs.create("vgg") as draft:
            draft.spec.write_text(str(number), encoding="ascii")
            start.wait()
            jobs.publish(draft, "vgg")
            won.append(str(number))

    side_by_side(take, ((number,) for number in range(8)))
    assert won == [jobs.get("vgg").spec.read_text(encoding="ascii")]
    assert os.listdir(jobs.path) == ["vgg"]


def test_folders_are_private(jobs: Jobs) -> None:
    folder = publish(jobs, "vgg")
    assert {path.stat().st_mode & 0o777 for path in (jobs.path, folder.path, folder.logs)} == {0o700}


def test_the_hint_names_numbered_jobs_of_an_array(jobs: Jobs) -> None:
    for name in ("sweep-2", "sweep-1", "sweeper"):
        publish(jobs, name)
    with pytest.raises(NoJobError) as raised:
        jobs.get("sweep")
    assert str(raised.value.hint).startswith(
        "jobs with this name and a number: sweep-1, ...; list, wait, stop, suspend, resume and delete accept "
    )


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("vgg", "did you mean vgg16? all jobs: taco-launch list"),
        ("other", "list all jobs: taco-launch list"),
        ("vg*", "only list, wait, stop, suspend, resume and delete accept a pattern"),
    ],
)
def test_the_hint_of_a_name_without_a_job(jobs: Jobs, name: str, hint: str) -> None:
    publish(jobs, "vgg16")
    publish(jobs, "o")  # a part of `other`, by chance
    with pytest.raises(NoJobError) as raised:
        jobs.get(name)
    assert raised.value.hint == hint


@pytest.mark.parametrize("name", LEAVING, ids=lambda name: repr(name[:12]))
def test_no_job_has_such_a_name(jobs: Jobs, name: str) -> None:
    publish(jobs, "x")
    for path in ("state/x", "x", "state/jobs/a/b", "state/jobs/.hidden"):
        (jobs.path.parent.parent / path).mkdir(parents=True, exist_ok=True)
    with pytest.raises(NoJobError, match="not found"):
        jobs.get(name)


@pytest.mark.parametrize("name", LEAVING, ids=lambda name: repr(name[:12]))
def test_no_job_gets_such_a_name(jobs: Jobs, name: str) -> None:
    # The controller checks names too, but what makes the path makes sure.
    with pytest.raises(TacoLaunchError):
        publish(jobs, name)
    assert not jobs.path.exists() or os.listdir(jobs.path) == []
    assert sorted(os.listdir(jobs.path.parent.parent)) in ([], ["state"])


def test_jobs_are_in_the_order_of_their_names(jobs: Jobs) -> None:
    for name in ("b", "a", "c.2", "C"):
        publish(jobs, name)
    assert names(jobs) == ["C", "a", "b", "c.2"]


def test_remove(jobs: Jobs) -> None:
    folder = publish(jobs, "vgg")
    (folder.logs / "rank-0.0.log").write_bytes(b"x")
    jobs.remove(folder)
    assert os.listdir(jobs.path) == []


def test_a_state_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError) as caught, Jobs(tmp_path / "file").create("vgg"):
        raise AssertionError
    assert caught.value.filename == str(tmp_path / "file" / "jobs")


def test_what_a_killed_agent_has_left_is_swept_after_an_hour(jobs: Jobs) -> None:
    publish(jobs, "vgg")
    for left in (".new-vgg-0123abcd", ".gone-vgg-0123abcd"):
        (jobs.path / left / "logs").mkdir(parents=True)
    now = time.time()
    jobs.sweep(now + 3500)
    assert len(os.listdir(jobs.path)) == 3
    jobs.sweep(now + 3700)
    assert os.listdir(jobs.path) == ["vgg"]
    Jobs(Path("/no/such/folder")).sweep(now)


def test_jobs_of_another_head_are_not_ours(jobs: Jobs) -> None:
    publish(jobs, "ours")
    with jobs.create("theirs") as draft:
        jobs.publish(draft, "theirs").roots.write_text("{}")
    assert names(jobs) == ["ours"]
    with pytest.raises(NoJobError, match="ran some of its ranks, but another host is its head"):
        jobs.get("theirs")
    with pytest.raises(UsageError, match="the name is taken") as caught:
        publish(jobs, "theirs")
    assert (
        caught.value.hint
        == "choose another --name, or delete that job through the head that ran its ranks on this host"
    )


def test_the_folder_of_sessions_is_the_one_that_mpirun_is_given(tmp_path: Path) -> None:
    assert JobFolder(tmp_path).sessions == tmp_path / SESSIONS
