"""One lab for all tests of a session, used as a person does: by the command line, and by the system's ssh."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import eventually


def docker(*args: str) -> str:
    """Ask the engine beside the lab's own code."""
    return subprocess.run(("docker", *args), capture_output=True, text=True, check=True).stdout.strip()


@dataclass(frozen=True)
class LabUser:
    """Somebody with a lab of a name, and a state folder of the tests' own; `up` makes it without a training image."""

    name: str
    state: Path

    @property
    def env(self) -> dict[str, str]:
        ours = "TACO_LAUNCH"
        wheels = "TACO_LAUNCH_WHEEL_CACHE"  # where the training image's are kept
        kept = {name: value for name, value in os.environ.items() if name == wheels or not name.startswith(ours)}
        return {**kept, "TACO_LAUNCH_STATE": str(self.state)}

    @property
    def folder(self) -> Path:
        return self.state / "lab" / self.name

    def argv(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "taco_launch", *args]

    def taco(self, *args: str, seconds: float = 110, **more: Any) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self.argv(*args), env=self.env, capture_output=True, text=True, timeout=seconds, check=False, **more
        )

    def verb(self, verb: str, *args: str, **more: Any) -> "subprocess.CompletedProcess[str]":
        """Run `lab VERB` for this lab; the first `lab up` of a machine makes images, which takes minutes."""
        return self.taco("lab", verb, "--name", self.name, *args, **{"seconds": 600 if verb == "up" else 110, **more})

    def up(self, *args: str) -> "subprocess.CompletedProcess[str]":
        done = self.verb("up", "--no-image", *args)
        assert done.returncode == 0, done.stderr
        return done

    def inside(self, host: str, *command: str, **more: Any) -> "subprocess.CompletedProcess[str]":
        return self.verb("exec", host, "--", *command, **more)

    def fault(self, host: str, *words: str) -> str:
        done = self.verb("fault", host, *words)
        assert done.returncode == 0, done.stderr
        return done.stderr

    def status(self) -> dict[str, Any]:
        done = self.verb("status", "--json")
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)["labs"][0]
        return found

    def host(self, name: str) -> dict[str, Any]:
        return next(host for host in self.status()["hosts"] if host["name"] == name)

    def ssh(self, host: str, command: str, seconds: int = 10) -> "subprocess.CompletedProcess[str]":
        """Log in as `lab status` says."""
        options = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=2")
        argv = ("ssh", "-F", str(self.folder / "ssh_config"), *options, host, command)
        return subprocess.run(argv, capture_output=True, text=True, timeout=seconds, check=False)

    def answers(self, host: str) -> bool:
        return self.ssh(host, "true").returncode == 0

    def reboot(self, host: str) -> None:
        """Reboot a host, and wait for its sshd."""
        boot = ("inspect", "--format", "{{.State.StartedAt}}", self.container(host))
        before = docker(*boot)
        self.fault(host, "reboot")
        eventually(lambda: docker(*boot) != before, 30, "another boot")
        eventually(lambda: self.answers(host), 30, f"{host} to boot")

    def container(self, host: str) -> str:
        return f"taco-lab-{self.name}-{host}"

    def left(self) -> list[str]:
        """What the engine still has of this lab."""
        wanted = ("--filter", f"label=taco-launch.lab={self.name}", "--quiet")
        kinds = (("ps", "--all"), ("volume", "ls"), ("network", "ls"))
        return [line for kind in kinds for line in docker(*kind, *wanted).splitlines()]


def may_use_an_engine() -> bool:
    if os.geteuid() == 0:
        return True
    try:
        return subprocess.run(("docker", "info"), capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@contextmanager
def lab_with_image(factory: pytest.TempPathFactory, what: str, *up: str) -> Iterator[LabUser]:
    """A lab of a module's own, bare at first, its training image in the registry."""
    if not may_use_an_engine():
        pytest.skip("cannot: a lab takes root, or the right to use a Docker Engine")
    user = LabUser(f"test-{os.getpid()}-{what}", factory.mktemp(f"{what}-state"))
    try:
        done = user.verb("up", *up)
        assert done.returncode == 0, done.stderr
        if json.loads(user.taco("-i", f"lab:{user.name}", "inventory", "--json").stdout)["container"] is None:
            pytest.skip("cannot: this lab has no training image (lab up says why)")
        yield user
    finally:
        user.verb("down")


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabUser]:
    """A lab of two hosts; the first one of a machine takes a minute, in which its image is made."""
    if not may_use_an_engine():
        pytest.skip("cannot: a lab takes root, or the right to use a Docker Engine")
    user = LabUser(f"test-{os.getpid()}", tmp_path_factory.mktemp("lab-state"))
    try:
        user.up("--hosts", "2", "--slots", "3")
        yield user
    finally:
        done = user.verb("down")
    assert done.returncode == 0, done.stderr
    if "stopped the Docker Engine" not in done.stderr:  # the last lab takes an engine of its own with it
        assert user.left() == []


@pytest.fixture
def other(lab: LabUser) -> Iterator[LabUser]:
    """A second lab beside the first, not yet up."""
    user = LabUser(f"{lab.name}-other", lab.state)
    yield user
    user.verb("down")


@pytest.fixture
def healthy(lab: LabUser) -> LabUser:
    """The lab with both hosts entered and no fault in force, whatever the test before left."""
    eventually(lambda: lab.answers("gpu1") and lab.answers("gpu2"), 20, "both hosts to answer")
    assert [host["faults"] for host in lab.status()["hosts"]] == [[], [], []]
    return lab


def seconds(function: Any) -> float:
    start = time.monotonic()
    function()
    return time.monotonic() - start
