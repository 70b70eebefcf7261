"""A process that is forked shows what it would show after exec, and has nothing of its parent but what is kept."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from taco_launch.agent.processes import forked
from tests.agent.conftest import PYTHON
from tests.conftest import eventually
from tests.support.patience import HANG

SCRIPT = """
import fcntl, json, os, sys, threading
sys.path.insert(0, sys.argv[1])
from taco_launch.agent.processes import forked
folder = sys.argv[2]
os.environ["PARENT"] = "1"
kept = open(folder + "/kept", "w")
fcntl.flock(kept, fcntl.LOCK_EX)
other = open(folder + "/other", "w")
fcntl.flock(other, fcntl.LOCK_EX)

def run():
    links = {number: os.readlink("/proc/self/fd/" + number) for number in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + number)}
    proc = {name: open("/proc/self/" + name, "rb").read().decode().split("\\0")[:-1] for name in ("cmdline", "environ")}
    told = {**proc, "files": sorted(links.values()), "own": dict(os.environ), "leads": os.getsid(0) == os.getpid(), "cwd": os.getcwd()}
    with open(folder + "/told.part", "w") as out:
        json.dump(told, out)
    os.rename(folder + "/told.part", folder + "/told")
    if "fails" in sys.argv:
        raise ValueError("told to")
    return 7

if "refused" in sys.argv:
    forked._show = lambda argv, environment: False
with open(folder + "/debug", "w") as debug:
    argv = [sys.executable, "-c", "import os, sys; print(dict(os.environ), file=sys.stderr); sys.exit(9)", "word"]
    child = forked.start(run, argv, {"MINE": "a b", "SERVICE": "1"}, debug.fileno(), (kept.fileno(),))
assert forked.may(sys.argv[1])
while child.poll() is None:
    pass
print(child.poll())
"""


def forks(agent: Path, folder: Path, *words: str) -> str:
    argv = [*PYTHON, "-c", SCRIPT, str(agent), str(folder), *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=HANG, check=False)
    assert done.stderr == ""
    return done.stdout


def test_it_shows_what_it_would_after_exec(agent: Path, tmp_path: Path) -> None:
    assert forks(agent, tmp_path) == "7\n"
    told = json.loads((tmp_path / "told").read_text())
    assert told["cmdline"][::3] == [sys.executable, "word"]
    assert told["environ"] == ["MINE=a b", "SERVICE=1"]
    assert told["own"] == {"MINE": "a b", "SERVICE": "1"}
    assert (told["leads"], told["cwd"]) == (True, "/")
    assert set(told["files"]) == {os.devnull, f"{tmp_path}/debug", f"{tmp_path}/kept"}


def test_where_the_kernel_refuses_it_is_executed(agent: Path, tmp_path: Path) -> None:
    assert forks(agent, tmp_path, "refused") == "9\n"
    assert "'MINE': 'a b'" in (tmp_path / "debug").read_text()
    assert not (tmp_path / "told").exists()


def test_what_goes_wrong_is_told(agent: Path, tmp_path: Path) -> None:
    assert forks(agent, tmp_path, "fails") == "1\n"
    assert "ValueError: told to" in (tmp_path / "debug").read_text()


def test_only_the_same_file_is_forked(agent: Path) -> None:
    assert not forked.may(str(agent))  # the tests run from the sources


def test_a_child_that_is_killed() -> None:
    pid = os.fork()
    if not pid:
        os.execvp("sleep", ["sleep", "60"])
    child = forked.ForkedChild(pid)
    assert child.poll() is None
    child.kill()
    assert eventually(child.poll) == -9
    child.kill()


@pytest.mark.parametrize("code", [0, 3])
def test_the_code_of_a_child(code: int) -> None:
    pid = os.fork()
    if not pid:
        os._exit(code)
    child = forked.ForkedChild(pid)
    eventually(lambda: child.poll() is not None)
    assert child.poll() == code
