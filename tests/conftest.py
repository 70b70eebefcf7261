"""What every test shares: limits that grow with a busy machine, and the command line in a state folder of its own."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_timeout

from tests.support.agents import build
from tests.support.patience import patience

pytest_plugins = ["tests.budget_plugin"]

# Images of Python often switch it off: then each worker rewrites the asserts of every test file anew, which takes as long
# as the rest of collecting them, and each command line that a test starts compiles the package first.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# What the shell that starts the tests has set for taco-launch is not for the tests.
for _name in ("TACO_LAUNCH_STATE", "TACO_LAUNCH_LEASES", "TACO_LAUNCH_INVENTORY"):
    os.environ.pop(_name, None)

# A shell has what it starts in the background ignore INT and QUIT, and nohup HUP, and what the tests start would inherit
# that. A signal with a handler goes back to its default there, and one that does nothing keeps nohup's promise here.
for _number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else lambda _number, _frame: None)


@dataclass(frozen=True)
class Taco:
    """Runs taco-launch as a user does, with its state in a folder of the test's own."""

    state: Path
    env: dict[str, str]

    def argv(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "taco_launch", *args]

    def __call__(self, *args: str, timeout: float = 60, **more: Any) -> "subprocess.CompletedProcess[str]":
        """Run it to its end, which has so long on an idle machine."""
        return subprocess.run(
            self.argv(*args),
            env=self.env,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=patience(timeout),
            check=False,
            **more,
        )

    def ok(self, *args: str, **more: Any) -> "subprocess.CompletedProcess[str]":
        """Run what has to succeed."""
        done = self(*args, **more)
        assert done.returncode == 0, done.stderr
        return done

    def start(self, *args: str, **more: Any) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(self.argv(*args), env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)

    def job(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.ok("get", name, "--json").stdout)
        return found

    def ended(self, name: str, seconds: float = 30) -> dict[str, Any]:
        """Return the job once it has ended."""
        events = self.folder(name) / "events.jsonl"
        eventually(ended_by(events, lambda: self.job(name)["ended"]), seconds, f"{name} to end")
        return self.job(name)

    def folder(self, name: str) -> Path:
        return self.state / "jobs" / name


def has_ended(events: Path) -> bool:
    """Return whether a job has ended, by the file of its events."""
    try:
        return b'"kind": "ended"' in events.read_bytes()
    except FileNotFoundError:
        return False


def ended_by(events: Path, ask: Callable[[], Any]) -> Callable[[], bool]:
    """Return a check whether a job has ended: by its events, for to ask costs more CPU time than many a job.

    Once a second `ask` is called all the same: a job that nobody looks after any more ends when somebody asks.
    """
    asked = time.monotonic()

    def check() -> bool:
        nonlocal asked
        if has_ended(events):
            return True
        if time.monotonic() - asked < 1:
            return False
        answer = bool(ask())
        asked = time.monotonic()
        return answer

    return check


_SLOW_SECONDS = 0.4  # what a check takes that asks a host by the command line


def eventually(check: Callable[[], Any], seconds: float = 20, what: str = "") -> Any:
    """Return the first true answer of `check`, which is given that long on an idle machine, and longer on a busy one."""
    begin = time.monotonic()
    while (waited := time.monotonic() - begin) < seconds or waited < patience(seconds):
        began = time.monotonic()
        answer = check()
        if answer:
            return answer
        took = time.monotonic() - began
        time.sleep(max(0.05, took if took < _SLOW_SECONDS else 2 * took))  # others want the cores as well
    raise AssertionError(f"waited {waited:.1f} s in vain for {what or check}")


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: pytest_timeout.Settings) -> object:
    """Let a test run longer on a busy machine."""
    return pytest_timeout.pytest_timeout_set_timer(item, settings._replace(timeout=patience(settings.timeout)))


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what tests cache out of the user's own cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The agent's zipapp, built once: compiling it takes longer than most tests."""
    return build(tmp_path_factory.mktemp("agent"))


@pytest.fixture
def taco(tmp_path: Path, agent: Path) -> Iterator[Taco]:
    """The command line, its agent installed; at the end every job of the test that has not ended is stopped."""
    # A short folder of one length: the path of a socket in it has its limit, and pytest's folders grow with their number.
    held = tempfile.TemporaryDirectory(prefix="taco-", ignore_cleanup_errors=True)
    state = Path(held.name, "state")
    (state / "agent").mkdir(mode=0o700, parents=True)
    state.chmod(0o700)
    for file in agent.parent.iterdir():
        (state / "agent" / file.name).hardlink_to(file)
    env = {name: value for name, value in os.environ.items() if not name.startswith("TACO_LAUNCH")}
    own = {"TACO_LAUNCH_STATE": str(state), "TACO_LAUNCH_LEASES": str(tmp_path / "leases")}
    runner = Taco(state, {**env, **own})
    yield runner
    folders: Sequence[Path] = list((state / "jobs").glob("[!.]*")) if state.exists() else []
    left = [folder.name for folder in folders if not has_ended(folder / "events.jsonl")]
    if left:
        runner("stop", "--grace", "0", *left)
    held.cleanup()
