"""teardown.sh and teardown_host.sh on a host in a folder, with programs that change nothing here."""

import fcntl
import os
import subprocess
import time
from hashlib import sha256
from pathlib import Path

import pytest

from taco_launch.core.model.host import paths
from taco_launch.setup import scripts
from tests.support.setup_scripts import SHELLS, Fakes


@pytest.fixture(params=SHELLS)
def fakes(tmp_path: Path, request: pytest.FixtureRequest) -> Fakes:
    made = Fakes(tmp_path / "bin", request.param)
    made.make("systemctl")
    made.make("docker", '[ "$1" != container ] || echo c')
    for folder in ("state/agent", "state/docker", "state/clusters", "run/leases", "etc"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "etc/daemon.json").write_text("old\n")
    return made


def run(fakes: Fakes, script: str, *args: str) -> "subprocess.CompletedProcess[str]":
    root = fakes.folder.parent
    text = (scripts.text("idle.sh") + scripts.text(script)).replace(paths.STATE, f"{root}/state")
    argv = (*fakes.sh, "-euc", text.replace(paths.RUN, f"{root}/run"), "setup", *args)
    return subprocess.run(argv, env=fakes.env(), capture_output=True, text=True, timeout=30, check=False)


def take_back(fakes: Fakes, *config: str) -> "subprocess.CompletedProcess[str]":
    root = fakes.folder.parent
    there = ("state", "run/leases", "etc/proxy.conf", "etc/daemon.json")
    return run(fakes, "teardown_host.sh", *(f"{root}/{each}" for each in there), *config)


def without(root: Path, text: str, looked_at: str = "old\n") -> tuple[str, str]:
    """Put what daemon.json is without us; give the arguments that say so."""
    file = root / "state/docker/daemon.json.without"
    file.write_text(text)
    return str(file), sha256(looked_at.encode()).hexdigest()


def test_what_an_interrupted_setup_left_is_not_put(fakes: Fakes, tmp_path: Path) -> None:
    (tmp_path / "state/docker/daemon.json").write_text("candidate\n")
    (tmp_path / "state/jobs/.agents").mkdir(parents=True)
    (tmp_path / "state/jobs/.agents/agent-1.pyz").touch()
    assert take_back(fakes).returncode == 0
    assert (tmp_path / "etc/daemon.json").read_text() == "old\n"
    assert not (tmp_path / "state").exists()
    assert not (tmp_path / "run/leases").exists()


def test_daemon_json_appears_whole(fakes: Fakes, tmp_path: Path) -> None:
    config = tmp_path / "etc/daemon.json"
    config.chmod(0o640)
    with config.open() as before:
        assert take_back(fakes, *without(tmp_path, "new\n")).returncode == 0
        assert before.read() == "old\n"
    assert (config.read_text(), config.stat().st_mode & 0o777) == ("new\n", 0o640)
    assert [each.name for each in (tmp_path / "etc").iterdir()] == ["daemon.json"]
    assert "systemctl reload docker" in fakes.calls


def test_a_link_stays_one(fakes: Fakes, tmp_path: Path) -> None:
    config, real = tmp_path / "etc/daemon.json", tmp_path / "real.json"
    config.rename(real)
    config.symlink_to(real)
    assert take_back(fakes, *without(tmp_path, "new\n")).returncode == 0
    assert (config.is_symlink(), real.read_text()) == (True, "new\n")


def test_a_daemon_json_of_which_nothing_is_left_goes(fakes: Fakes, tmp_path: Path) -> None:
    assert take_back(fakes, *without(tmp_path, "{}\n")).returncode == 0
    assert not (tmp_path / "etc/daemon.json").exists()


def test_a_daemon_json_that_changed_meanwhile_stays(fakes: Fakes, tmp_path: Path) -> None:
    done = take_back(fakes, *without(tmp_path, "new\n", looked_at="older\n"))
    assert done.returncode == 1
    assert "daemon.json is not as it was looked at, and stays as it is" in done.stderr
    assert (tmp_path / "etc/daemon.json").read_text() == "old\n"
    assert (tmp_path / "state/agent").is_dir()
    assert list((tmp_path / "state/docker").iterdir()) == []


def test_a_cluster_that_came_meanwhile_keeps_what_it_shares(fakes: Fakes, tmp_path: Path) -> None:
    (tmp_path / "state/clusters/other").mkdir()
    done = take_back(fakes, *without(tmp_path, "new\n"))
    assert (done.returncode, fakes.calls) == (1, [])
    assert done.stderr.startswith("error: cluster other has been set up on this host meanwhile")
    assert (tmp_path / "run/leases").is_dir()
    assert (tmp_path / "state/agent").is_dir()
    assert (tmp_path / "etc/daemon.json").read_text() == "old\n"


@pytest.mark.parametrize("lock", ["run/leases/slot-0", "state/jobs/night/lock", "state/containers/c/jobs/night/lock"])
def test_a_job_keeps_agent_and_leases(fakes: Fakes, tmp_path: Path, lock: str) -> None:
    file = tmp_path / lock
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("")
    file.with_name("slot-0.0").write_text('{"job": "night"}\n')  # as the agent in a container writes it
    with file.open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = take_back(fakes)
    assert done.returncode == 1
    assert done.stderr.startswith("error: job night runs in a container of this host")
    assert done.stderr.count("error: ") == 1
    assert (tmp_path / "state/agent").is_dir()


@pytest.mark.parametrize(("holder", "stays"), [("other", False), ("c", True), ("", True)])
def test_only_jobs_of_its_own_cluster_keep_a_container(
    fakes: Fakes, tmp_path: Path, holder: str, *, stays: bool
) -> None:
    """A second cluster on the host has jobs and slots of its own; a job of an unknown cluster may be of this one."""
    lock, lease = tmp_path / "state/containers/other/jobs/night/lock", tmp_path / "run/leases/slot-0"
    lock.parent.mkdir(parents=True)
    named = f', "cluster": "{holder}"' if holder else ""
    lease.with_name("slot-0.0").write_text(f'{{"job": "night"{named}}}\n')
    names = (paths.container("c"), paths.unfinished("c"))
    where = (str(tmp_path / each) for each in ("state/clusters/c", "etc/ours/c", "run/c.env", "state/containers/c"))
    with lock.open("w") as job, lease.open("w") as slot:
        for file in (job, slot):
            fcntl.flock(file, fcntl.LOCK_EX)
        done = run(fakes, "teardown.sh", "c", *names, "c.service", f"{tmp_path}/c.service", *where)
    assert done.returncode == stays, done.stderr
    assert ("error: job night runs in taco-launch-c, it holds slot-0" in done.stderr) == stays


@pytest.mark.parametrize("kept", [False, True])
def test_a_container_that_was_not_finished_goes_too(fakes: Fakes, tmp_path: Path, *, kept: bool) -> None:
    names = (paths.container("c"), paths.unfinished("c"))
    gone = [tmp_path / each for each in ("state/clusters/c", "etc/ours/c", "run/c.env")]
    for folder in gone[:2]:
        folder.mkdir(parents=True)
    gone[2].write_text("TOKEN=geheim\n")
    where = map(str, gone)
    jobs = tmp_path / "state/containers/c/jobs"
    for each in (".agents", ".slots", *(("train",) if kept else ())):
        (jobs / each).mkdir(parents=True)
    done = run(fakes, "teardown.sh", "c", *names, "c.service", f"{tmp_path}/c.service", *where, str(jobs.parent))
    assert (done.returncode, done.stderr) == (0, "")
    assert not [each for each in (*gone, tmp_path / "etc/ours") if each.exists()]
    assert [*(tmp_path / "state").glob("containers/c/jobs/*")] == ([jobs / "train"] if kept else [])
    assert (tmp_path / "state/containers").exists() == kept
    assert [call for call in fakes.calls if " rm " in call] == [f"docker rm --force --volumes {name}" for name in names]


def test_a_link_in_the_place_of_the_jobs_is_not_followed(fakes: Fakes, tmp_path: Path) -> None:
    """A rank may write there: what it leads to is another cluster's."""
    for each in (".agents", ".slots"):
        (tmp_path / "state/containers/other/jobs" / each).mkdir(parents=True)
    (tmp_path / "state/containers/c").mkdir()
    (tmp_path / "state/containers/c/jobs").symlink_to(tmp_path / "state/containers/other/jobs")
    where = (str(tmp_path / each) for each in ("state/clusters/c", "etc/ours/c", "run/c.env", "state/containers/c"))
    names = (paths.container("c"), paths.unfinished("c"))
    assert run(fakes, "teardown.sh", "c", *names, "c.service", f"{tmp_path}/c.service", *where).returncode == 0
    there = sorted(each.name for each in (tmp_path / "state/containers/other/jobs").iterdir())
    assert there == [".agents", ".slots"]


def test_thousands_of_files_do_not_keep_it_from_its_end(fakes: Fakes, tmp_path: Path) -> None:
    for number in range(3000):
        (tmp_path / f"run/leases/slot-{number}").touch()
        (tmp_path / f"run/leases/port-{number}").touch()
        (tmp_path / f"state/jobs/{number}").mkdir(parents=True)
        (tmp_path / f"state/jobs/{number}/lock").touch()
    begin = time.process_time() + sum(os.times()[2:4])
    assert take_back(fakes).returncode == 0
    assert time.process_time() + sum(os.times()[2:4]) - begin < 5


def test_what_a_container_put_among_jobs_is_neither_followed_nor_waited_for(fakes: Fakes, tmp_path: Path) -> None:
    held = tmp_path / "elsewhere"
    held.write_text('{"job": "night"}\n')
    for name in ("link", "pipe", "nothing", "odd\x1b[1m"):
        (tmp_path / "state/jobs" / name).mkdir(parents=True)
    for link in ("state/jobs/link/lock", "run/leases/slot-0"):
        (tmp_path / link).symlink_to(held)
    os.mkfifo(tmp_path / "state/jobs/pipe/lock")
    (tmp_path / "state/jobs/nothing/lock").symlink_to(tmp_path / "made")
    with held.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert take_back(fakes).returncode == 0
    assert not (tmp_path / "made").exists()
    assert held.read_text() == '{"job": "night"}\n'
    lock = tmp_path / "state/jobs/odd\x1b[1m/lock"
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert "error: job odd1m runs in" in take_back(fakes).stderr
