"""A state folder that another user has made first, out of which an agent would run as whoever comes next."""

import os
import stat
import sys
from pathlib import Path

import pytest

from taco_launch.core.errors import UsageError
from taco_launch.jobs.backend.agent_location import here
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
