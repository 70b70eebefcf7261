"""The examples: what the README of each runs, exactly as it is written there, in a copy that `init --example` made."""

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from taco_launch.cli.hosts.examples import names
from tests.conftest import Taco, eventually
from tests.docs.pages import Shown, consoles
from tests.support.patience import patience

pytestmark = pytest.mark.e2e

# What differs from run to run: ids, the name of the machine, durations and numbers, but not which rank or GPU, and of how many.
_VARIES = (
    (r"-[0-9a-f]{6}\b", "-ID"),
    (r" \(\S+ without waiting\)", ""),  # of a busy machine
    (r"hello from \S+:", "hello from HOST:"),
    (r"\b(\d+[dhm])*\d+(\.\d+)?s\b", "TIME"),
    (r"(?<!rank )(?<!GPU )(?<! of )(?<![\d.])[-+±]{0,2}\d[\d.]*", "#"),
)


def plain(line: str) -> str:
    """Return a line without what differs from run to run."""
    for pattern, instead in _VARIES:
        line = re.sub(pattern, instead, line)
    return " ".join(line.split())


def missing(expected: str, came: str) -> list[str]:
    """Return the lines of a README that did not come; `...` is any text."""
    lines = [plain(line) for line in came.splitlines()]
    patterns = {line: ".*".join(map(re.escape, plain(line).split("..."))) for line in expected.splitlines()}
    return [line for line, pattern in patterns.items() if not any(re.fullmatch(pattern, one) for one in lines)]


def commands_of(readme: Path) -> list[Shown]:
    """Return the commands of the section Run."""
    (section,) = re.findall(r"^## Run\n(.*?)(?=^## )", readme.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return list(consoles(section))


@pytest.fixture
def user(taco: Taco, tmp_path: Path) -> Taco:
    """A user with an empty home, who has the commands of this environment."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, module in (("taco-launch", "taco_launch"), ("torchrun", "torch.distributed.run")):
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} -m {module} "$@"\n')
        (programs / name).chmod(0o755)
    who = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    paths = f"{programs}:{Path(sys.executable).parent}:{taco.env['PATH']}"
    return Taco(taco.state, {**taco.env, **who, "HOME": str(tmp_path), "PATH": paths})


def copied(user: Taco, name: str, folder: Path) -> Path:
    """Return a copy of an example; skip the test where this machine lacks what the example needs."""
    source = Path(__file__).parents[2] / "examples" / name
    needs = (source / "README.md").read_text("utf-8")
    for word, module in (("PyTorch", "torch"), ("Horovod;", "horovod"), ("SciPy", "scipy")):
        if re.search(rf"^It needs (?!neither).*{word}", needs, re.MULTILINE) and not importlib.util.find_spec(module):
            pytest.skip(f"cannot: there is no {module}")
    if "needs Open MPI" in needs and not shutil.which("mpirun"):
        pytest.skip("cannot: there is no mpirun")
    if (
        "needs a Docker Engine" in needs
        and subprocess.run(["docker", "info"], capture_output=True, check=False).returncode
    ):
        pytest.skip("cannot: there is no Docker Engine that answers")
    made = user("init", "--example", name, str(folder))
    assert made.returncode == 0, made.stderr
    return folder


def with_packages(user: Taco, readme: Path, venv: Path) -> Taco:
    """Return a user who has done the `pip install` of a README, in an environment beside this one's PyTorch."""
    packages = re.findall(r"`pip install ([^`]+)`", readme.read_text("utf-8"))
    if not packages:
        return user
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    (site,) = venv.glob("lib/python*/site-packages")
    (site / "torch.pth").write_text(sysconfig.get_path("purelib"))
    argv = [str(venv / "bin/pip"), "install", "--quiet", *" ".join(packages).split()]
    done = subprocess.run(argv, env=dict(os.environ), capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"cannot: {' '.join(argv[1:])}: {done.stderr.strip()[-300:]}")
    return Taco(user.state, {**user.env, "PATH": f"{venv}/bin:{user.env['PATH']}"})


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", names())
def test_what_a_readme_runs(user: Taco, tmp_path: Path, name: str, request: pytest.FixtureRequest) -> None:
    folder = copied(user, name, tmp_path / "copy")
    user = with_packages(user, folder / "README.md", tmp_path / "venv")
    commands = commands_of(folder / "README.md")
    assert commands
    for lab in re.findall(r"lab up --name (\S+)", "\n".join(shown.command for shown in commands)):
        # Also where a command before its own fails.
        request.addfinalizer(functools.partial(user, "lab", "down", "--name", lab))
    for shown in commands:
        done = subprocess.run(
            ["bash", "-c", shown.command],
            cwd=folder,
            env=user.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=patience(300),
            check=False,
        )
        assert done.returncode == 0, done.stdout
        assert missing(shown.output, done.stdout) == [], done.stdout


def test_a_stop_saves_a_checkpoint_and_the_next_run_continues(user: Taco, tmp_path: Path) -> None:
    folder = copied(user, "03-ddp-checkpoint", tmp_path / "copy")
    job = folder / "job.yaml"
    job.write_text(job.read_text("utf-8").replace("--fail-at 60", "--steps 90 --step-time 0.3"), "utf-8")
    assert user("submit", "-f", str(job)).returncode == 0
    eventually(lambda: "step 20 of 90" in user("logs", "ddp-checkpoint").stdout, 60)
    assert user("stop", "ddp-checkpoint").returncode == 0
    saved = re.findall(r"step (\d+) of 90: .*, saved", user("logs", "ddp-checkpoint").stdout)[-1]
    assert int(saved) % 20
    done = user("run", "-f", str(job))
    assert (done.returncode, f"starting at step {saved}\n" in done.stdout) == (0, True), done.stdout


def test_lines_that_did_not_come_are_found() -> None:
    assert missing("a | 1.5 img\n...\nb 2s ...", "a | -23 img\nb 1m2s c\n") == []
    assert missing("a 1\nb", "a 1 b\n") == ["a 1", "b"]
    assert missing("rank 0 of 12 on 5", "rank 0 of 12 on 6\n") == []
    assert missing("rank 0 of 12 on 5", "rank 0 of 11 on 5\n") == ["rank 0 of 12 on 5"]
