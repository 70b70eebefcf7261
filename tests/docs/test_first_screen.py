"""The README's first screen: its commands run in a fresh copy, with an empty home."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, consoles, text_of

pytestmark = pytest.mark.docs

_STEP = re.compile(r"^(\[\d+/\d+\] .+? \.\.\.) ", re.MULTILINE)


def fresh_copy(target: Path) -> None:
    """Copy the files of the working tree that git tracks, or would."""
    if not (ROOT / ".git").exists():
        pytest.skip("cannot: this is no git checkout, so nothing says which files belong to it")
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    ).stdout
    for name in sorted(os.fsdecode(name) for name in names.split(b"\0") if name):
        if (ROOT / name).exists():  # tracked and deleted
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name, follow_symlinks=False)


def new_user(folder: Path) -> dict[str, str]:
    """Return the environment of somebody whose home is empty, and who has this machine's settings and wheel cache."""
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TACO_LAUNCH_", "XDG_", "PYTEST_", "PYTHON", "VIRTUAL_ENV"))
    }
    (folder / "home").mkdir()
    cache = Path.home() / ".cache" / "taco-launch" / "wheels"
    return environ | {
        "HOME": str(folder / "home"),
        "PATH": os.pathsep.join(
            part for part in os.environ["PATH"].split(os.pathsep) if Path(part) != ROOT / ".venv" / "bin"
        ),
        "TACO_LAUNCH_STATE": str(folder / "state"),  # this machine's own jobs stay as they are
        "TACO_LAUNCH_WHEEL_CACHE": os.environ.get("TACO_LAUNCH_WHEEL_CACHE", str(cache)),
    }


@pytest.mark.nightly  # in the gate too, where scripts/test finds its inputs changed since the last full run
@pytest.mark.timeout(1500)  # a Horovod that is not in the cache is built
def test_quickstart_runs_in_a_fresh_copy(tmp_path: Path) -> None:
    shown = tuple(one for one in consoles(text_of("README.md")) if one.command.startswith("scripts/quickstart"))
    assert "scripts/quickstart" in [one.command for one in shown]
    copy = tmp_path / "taco launch"
    fresh_copy(copy)
    script = "scripts/quickstart"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=copy,
        env=new_user(tmp_path),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 0
    assert re.search(r"^RANKS +IMG/SEC", done.stdout, re.MULTILINE)
    assert re.search(r"^ *1 +[\d.]+ +[\d.]+ +-$", done.stdout, re.MULTILINE)
    if shutil.which("nvidia-smi") is None:  # with one GPU there are no two ranks
        assert re.search(r"^ *2 +[\d.]+ +[\d.]+ +[\d.]+%$", done.stdout, re.MULTILINE)
    promised = {step for one in shown for step in _STEP.findall(one.output)}
    assert promised <= set(_STEP.findall(done.stdout))


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_the_first_minute_in_a_fresh_copy(tmp_path: Path) -> None:
    """It needs pip alone: no compiler, no root, no torch."""
    blocks = [
        one for one in consoles(text_of("README.md")) if " venv venv " in one.command or "--launcher env" in one.command
    ]
    install, hello, fails = [one.command for one in blocks][:3]
    copy = tmp_path / "copy"
    fresh_copy(copy)
    done = subprocess.run(
        ["bash", "-c", f"{install} && {hello}; {fails}"],
        cwd=copy,
        env=new_user(tmp_path),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "localhost/1 | hello from rank 1\n" in done.stdout, done.stderr
    assert "\ncause: The Python of a rank on localhost has no module nosuchmodule.\n" in done.stderr
