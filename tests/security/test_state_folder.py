"""A state folder that another user has made first, out of which an agent would run as whoever comes next."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from taco_launch.core.errors import UsageError
from taco_launch.core.model.host.hosts import Host
from taco_launch.hosts.inventory import cache
from taco_launch.jobs.backend.agent_location import here, on_host
from tests.support.command_line import call

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("mode", "why"), [(0o775, "written by others"), (0o757, "written by others"), (0o1777, "by others")]
)
def test_a_folder_that_others_can_write(tmp_path: Path, mode: int, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "state"
    state.mkdir()
    state.chmod(mode)
    monkeypatch.setenv("TACO_LAUNCH_STATE", str(state))
    monkeypatch.delenv("TACO_LAUNCH_INVENTORY", raising=False)
    refused = call("list")
    assert refused.exit_code == 2
    assert why in refused.stderr
    cure = "" if mode & stat.S_ISVTX else f"chmod go-w {state}, or "  # /tmp has to stay as it is
    assert f"hint: {cure}set another folder: " in refused.stderr
    assert list(state.iterdir()) == []
    state.chmod(0o700)
    assert call("list").exit_code == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="cannot: only root may give a folder away")
def test_a_folder_of_another_user(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, -1)
    with pytest.raises(UsageError, match="belongs to user 12345"):
        here({"TACO_LAUNCH_STATE": str(tmp_path)}, 0)
    assert here({"TACO_LAUNCH_STATE": str(tmp_path)}, 12345).python == sys.executable
    os.chown(tmp_path, 0, -1)
    assert here({"TACO_LAUNCH_STATE": str(tmp_path / "new")}, 12345).python  # made by root, for its owner only


@pytest.mark.skipif(os.geteuid() != 0, reason="cannot: only root may give a folder away")
@pytest.mark.parametrize("host", [False, True], ids=["here", "on a host"])
def test_what_is_executed_is_ours_as_well_as_the_folder_above(tmp_path: Path, host: bool) -> None:
    """Another user may have filled the folder while others could write it."""
    agents = tmp_path / "agent"
    agents.mkdir(mode=0o755)
    (agents / "a.pyz").write_bytes(b"PK" + bytes(20))
    environ = {"TACO_LAUNCH_STATE": str(tmp_path), "PATH": os.environ["PATH"], "HOME": str(tmp_path)}

    def is_used() -> bool:
        if not host:
            return not here(environ, 0).missing("a.pyz")
        done = subprocess.run(on_host().argv("a.pyz", "list"), env=environ, capture_output=True, text=True, check=False)
        return done.stdout.startswith("ready\n")

    assert is_used()
    os.chown(agents / "a.pyz", 12345, -1)
    assert not is_used()
    os.chown(agents / "a.pyz", 0, -1)
    os.chown(agents, 12345, -1)
    if host:
        assert not is_used()
    else:
        with pytest.raises(UsageError, match=r"the agent's folder .* belongs to user 12345"):
            is_used()


@pytest.mark.skipif(os.geteuid() != 0, reason="cannot: only root may give a file away")
def test_an_inventory_in_the_cache_of_another_user_is_not_read(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path)}
    read = [0]

    def parse(_text: bytes, _source: str) -> Host:
        read[0] += 1
        return Host("gpu1", "10.0.0.1")

    for _time in range(2):
        cache.through(Host, b"text", "c.yaml", environ, parse)
    assert read == [1]
    (file,) = (tmp_path / "taco-launch" / "inventories").glob("*.json")
    os.chown(file, 12345, -1)
    cache.through(Host, b"text", "c.yaml", environ, parse)
    assert read == [2]


def test_no_python_of_ours_looks_for_modules_in_the_current_folder() -> None:
    """`python -m` and `-c` put it first, also where another user can write: -I does not."""
    found = []
    for path in (*ROOT.glob("taco_launch/**/*.py"), *ROOT.glob("taco_launch/**/*.sh"), *ROOT.glob("scripts/*.sh")):
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            ours = 'sys.executable, "-' in line or any(
                f"python{end} -{flag} " in line for end in ('"', '}"', '3}"') for flag in "mc"
            )
            if ours and "-I" not in line:
                found.append(f"{path.name}:{number}: {line.strip()}")
    assert found == []
