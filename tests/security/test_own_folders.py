"""Folders that are read back, out of which programs run: nothing of a folder that another user can decide on is used."""

import ast
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from taco_launch.agent.store import folders
from taco_launch.bench.history.history import open_history
from taco_launch.cli.options import user_config
from taco_launch.core.errors import HostError, SpecError, TacoLaunchError, UsageError
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.protocol.calls.job_list import List
from taco_launch.hosts.inventory import cache, profile
from taco_launch.hosts.remote.local import LocalTransport
from taco_launch.jobs.backend import agent_location
from taco_launch.jobs.backend.agent_client import AgentClient
from taco_launch.jobs.code import git_repository
from taco_launch.lab.images import training
from tests.house.rooms import PACKAGE
from tests.support.git_server import ENVIRONMENT, repository

OTHER = 12345
ROOT = Path(__file__).parents[2]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="cannot: only root may give a folder away")
# Variables of folders, and what stands for one of them below HOME; here alone they become paths.
NAMES = {
    *("XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "TACO_LAUNCH_STATE", "TACO_LAUNCH_WHEEL_CACHE"),
    *("/.cache", ".cache", "/.config", ".config", ".local/state"),
}
DOOR = "agent/store/folders.py"
# Those that name a variable and make no path of it, or ask the door.
ELSEWHERE = {
    "cli/main.py": "tells whether a file that cannot be used is below that folder",
    "lab/images/training.py": "calls require_own",
    "bench/nightly/install.py": "gives a timer the variables that it is installed with",
    "jobs/code/git_repository.py": "calls require_own",
    "hosts/inventory/cache.py": "calls require_own",
}


def test_no_module_makes_such_a_path_by_itself() -> None:
    found = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and node.value in NAMES
    }
    assert found == {DOOR, *ELSEWHERE}


def _state(root: Path) -> object:
    return folders.state_folder({"TACO_LAUNCH_STATE": str(root / "taco-launch")}, os.geteuid())


def _cache(root: Path) -> object:
    return folders.cache_folder({"XDG_CACHE_HOME": str(root)}, os.geteuid())


def _wheels(root: Path) -> object:
    return training.cache({"TACO_LAUNCH_WHEEL_CACHE": str(root / "taco-launch")}, root)


def _profile(root: Path) -> object:
    return profile.load("mine", "", {"XDG_CONFIG_HOME": str(root)})


def _config(root: Path) -> object:
    return user_config.read(root / "taco-launch" / "config.yaml", os.geteuid())


@pytest.mark.parametrize("read", [_state, _cache, _wheels, _profile, _config])
def test_what_another_user_can_decide_on_is_refused(tmp_path: Path, read: Callable[[Path], object]) -> None:
    own = tmp_path / "taco-launch"
    (own / "profiles").mkdir(parents=True)
    (own / "profiles" / "mine.yaml").write_text("open_mpi: {}\n")
    (own / "config.yaml").write_text("output: json\n")

    def refused() -> str:
        try:
            read(tmp_path)
        except SpecError:  # the file was read
            return ""
        except UsageError as error:
            return f"{error.message}; {error.hint}"
        return ""

    assert refused() == ""
    for mode in (0o777, 0o1777, 0o770):
        own.chmod(mode)
        assert f"{own} can be written by others: files there would run with your permissions" in refused()
        assert (f"chmod go-w {own}" in refused()) is (mode != 0o1777)
    own.chmod(0o755)
    tmp_path.chmod(0o777)
    assert f"{own}: {tmp_path} can be written by others" in refused()
    tmp_path.chmod(0o1777)
    assert refused() == ""
    if os.geteuid() == 0:
        os.chown(own, OTHER, -1)
        assert f"{own} belongs to user {OTHER}" in refused()
        assert f"remove {own} if it is not yours" in refused()
        os.chown(own, 0, -1)
        os.chown(tmp_path, OTHER, -1)  # who owns a sticky folder may rename what is in it
        assert f"{own}: {tmp_path} belongs to user {OTHER}" in refused()


def test_a_link_to_a_folder_is_looked_at_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "scratch" / "cache").mkdir(parents=True)
    (tmp_path / "scratch").chmod(0o777)
    (tmp_path / "taco-launch").symlink_to(tmp_path / "scratch" / "cache")
    with pytest.raises(UsageError, match="scratch can be written by others"):
        _cache(tmp_path)


@as_root
def test_a_planted_inventory_is_not_taken(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}

    def read() -> str:
        return cache.through(Host, b"text", "inv.yaml", environ, lambda _text, _source: Host("read", "10.0.0.1")).name

    assert read() == "read"
    (kept,) = (tmp_path / "taco-launch" / "inventories").iterdir()
    kept.write_text(kept.read_text().replace("read", "planted"))
    assert read() == "planted"  # it is what would be taken
    os.chown(tmp_path / "taco-launch", OTHER, -1)
    assert read() == "read"


@as_root
@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed (apt-get install git)")
@pytest.mark.parametrize("planted", ["trees", "git"])
def test_a_planted_tree_of_a_commit_is_not_taken(tmp_path: Path, planted: str) -> None:
    origin = repository(tmp_path / "origin", {"train.py": "1"})
    url, kept = f"file://{origin}", tmp_path / "cache"

    def check_out() -> str:
        return git_repository.checked_out(url, "", kept, ENVIRONMENT, print).folder

    folder = check_out()
    assert check_out() == folder
    (found,) = (path for path in (kept / planted).iterdir() if path.is_dir())
    os.chown(found, OTHER, -1)
    with pytest.raises(UsageError, match=f"the cache {found} belongs to user {OTHER}"):
        check_out()


def _open_history(path: Path, *, create: bool) -> str:
    try:
        with open_history(path, create=create):
            return ""
    except TacoLaunchError as error:
        return error.message


@pytest.mark.parametrize("create", [True, False])
def test_a_history_that_another_user_can_decide_on_is_not_opened(tmp_path: Path, *, create: bool) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    path, wal = shared / "history.db", shared / "history.db-wal"
    shared.chmod(0o1777)
    assert _open_history(path, create=True) == ""
    for mode, why in (
        (0o600, ""),
        (0o644, ""),
        (0o664, "can be written by others"),
        (0o602, "can be written by others"),
    ):
        path.chmod(mode)
        assert why in _open_history(path, create=create)
        assert bool(_open_history(path, create=create)) == bool(why)
    path.chmod(0o600)
    shared.chmod(0o777)
    assert f"the history {path}: {shared} can be written by others" in _open_history(path, create=create)
    shared.chmod(0o1777)
    if os.geteuid() == 0:
        os.chown(path, OTHER, -1)
        assert f"the history {path} belongs to user {OTHER}" in _open_history(path, create=create)
        os.chown(path, 0, -1)
        wal.touch()
        os.chown(wal, OTHER, -1)  # SQLite would take its changes over
        assert f"the history {wal} belongs to user {OTHER}" in _open_history(path, create=create)
        wal.unlink()
    path.unlink()
    os.mkfifo(path, 0o600)
    assert "is not a regular file" in _open_history(path, create=create)


@as_root
@pytest.mark.parametrize(
    ("path", "owner", "group", "mode", "told"),
    [
        ("scratch/own/state", OTHER, 0, 0o755, f"belongs to user {OTHER}, mode drwxr-xr-x"),
        ("scratch/own/state", 0, 0, 0o777, "belongs to user 0, mode drwxrwxrwx"),
        ("scratch/own/state", 0, 0, 0o1777, "belongs to user 0, mode drwxrwxrwt"),
        ("scratch/own/state", 0, 0, 0o775, "belongs to user 0, mode drwxrwxr-x"),
        ("scratch/own/state/agent", 0, 0, 0o775, "belongs to user 0, mode drwxrwxr-x"),
        ("scratch/own", 0, 0, 0o777, "belongs to user 0, mode drwxrwxrwx"),
        ("scratch/own", OTHER, 0, 0o1777, f"belongs to user {OTHER}, mode drwxrwxrwt"),
        ("scratch/own", 0, OTHER, 0o775, "belongs to user 0, mode drwxrwxr-x"),
        ("scratch", 0, 0, 0o777, "belongs to user 0, mode drwxrwxrwx"),
        ("scratch", OTHER, 0, 0o755, f"belongs to user {OTHER}, mode drwxr-xr-x"),
        ("scratch", 0, OTHER, 0o2775, "belongs to user 0, mode drwxrwsr-x"),
        ("scratch", 0, 0, 0o775, ""),  # of root's own group
        ("scratch", 0, OTHER, 0o1777, ""),
        ("scratch/own", 0, 0, 0o1777, ""),
        ("scratch/own", 0, 0, 0o775, ""),
        ("scratch/own/state", 0, 0, 0o700, ""),
    ],
)
def test_on_a_host_nothing_of_another_users_folder_is_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, owner: int, group: int, mode: int, told: str
) -> None:
    """The shell has the rule of `require_own`, before anything of the folder runs."""
    state = tmp_path / "scratch" / "own" / "state"
    _agent_in(state)
    folder = tmp_path / path
    os.chown(folder, owner, group)
    folder.chmod(mode)
    said, message = _answers(state, monkeypatch)
    assert said.startswith("unready folder " if told else "ready\n"), said
    if told:
        with pytest.raises(HostError) as error:
            AgentClient(LocalTransport("gpu1"), agent_location.on_host()).call(List())
        assert error.value.message == f"gpu1: another user can decide what is in the state folder: {folder} {told}"
        assert f"chmod go-w {folder}" in str(error.value.hint)
    # one rule in two languages
    assert (f"{folder} {'belongs to' if owner else 'can be written by others'}" in message) is bool(told)
    assert bool(message) is bool(told)


def _agent_in(state: Path) -> None:
    (state / "agent").mkdir(parents=True)
    (state / "agent" / "a.pyz").write_bytes(b"PK" + bytes(20))


def _answers(state: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Return what a host's shell says of its state folder, and what this machine says of it."""
    monkeypatch.setenv("TACO_LAUNCH_STATE", str(state))
    argv = agent_location.on_host().argv("a.pyz", "list")
    shell = subprocess.run(argv, capture_output=True, text=True, check=False).stdout
    try:
        agent_location.here({"TACO_LAUNCH_STATE": str(state)}, os.geteuid())
    except UsageError as error:
        return shell, error.message
    return shell, ""


@as_root
@pytest.mark.parametrize("bad", ["link", "folder of the link", "where it leads", "above where it leads", ""])
def test_links_on_the_way_are_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: str) -> None:
    _agent_in(tmp_path / "disk" / "real" / "state")
    (tmp_path / "home").mkdir()
    link = tmp_path / "home" / "link"
    link.symlink_to("../disk/real")
    places = {
        "link": link,
        "folder of the link": link.parent,
        "where it leads": tmp_path / "disk" / "real",
        "above where it leads": tmp_path / "disk",
    }
    if bad:
        os.chown(places[bad], OTHER, 0, follow_symlinks=False)
    shell, message = _answers(link / "state", monkeypatch)
    assert shell.startswith("unready folder " if bad else "ready\n"), shell
    assert (f"belongs to user {OTHER}" in message) is bool(bad), message


def test_a_circle_of_links_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    shell, message = _answers(tmp_path / "a" / "state", monkeypatch)
    assert shell.startswith("unready agent ")
    assert message == ""


@as_root
def test_what_another_user_could_rename_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel lets another user replace an own folder two levels below one that all may write."""
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are closed to other users
        scratch = Path(name)
        state = scratch / "own" / "closed" / "state"
        _agent_in(state)
        scratch.chmod(0o777)
        shell, message = _answers(state, monkeypatch)
        theft = "mv own stolen && mkdir -p own/closed/state/agent && echo PK >own/closed/state/agent/a.pyz"
        argv = ["/bin/sh", "-c", theft]
        subprocess.run(argv, cwd=scratch, user=OTHER, group=OTHER, extra_groups=(), check=True)
        assert (state / "agent" / "a.pyz").stat().st_uid == OTHER
        assert shell.startswith("unready folder ")
        assert f"{scratch} can be written by others" in message


@pytest.mark.skipif(shutil.which("unshare") is None, reason="unshare is not installed (apt-get install util-linux)")
def test_in_a_user_namespace_strangers_may_own_what_is_above(tmp_path: Path) -> None:
    """As in Apptainer: root of the host and all others look alike there, and / is theirs."""
    state = tmp_path / "state"
    _agent_in(state)
    tmp_path.chmod(0o755)
    if os.geteuid() == 0:
        os.chown(tmp_path, OTHER, OTHER)
        tmp_path.parent.chmod(0o755)
    code = f"from taco_launch.jobs.backend.agent_location import here; here({{'TACO_LAUNCH_STATE': {str(state)!r}}}, 0)"
    inside = subprocess.run(
        ["unshare", "-Ur", sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT
    )
    if "unshare" in inside.stderr and "failed" in inside.stderr:
        pytest.skip("cannot: user namespaces are forbidden here")
    assert (inside.returncode, inside.stderr) == (0, "")
    argv = agent_location.on_host().argv("a.pyz", "list")
    environ = {**os.environ, "TACO_LAUNCH_STATE": str(state)}
    shell = subprocess.run(["unshare", "-Ur", *argv], capture_output=True, text=True, check=False, env=environ)
    assert shell.stdout.startswith("ready\n"), shell.stdout
