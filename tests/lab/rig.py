"""A lab for tests: its hosts, inventories of them, commands as people type them, and what the hosts say themselves.

What is asked of the engine directly costs a third of what a command of taco-launch costs, so only what a test is about
goes through the command line.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from taco_launch.core.errors import TacoLaunchError
from taco_launch.lab import access, lock, registry
from taco_launch.lab.docker import hosts
from taco_launch.lab.docker.reporter import Reporter
from taco_launch.lab.images import training
from tests.conftest import eventually
from tests.support.patience import patience

Done = subprocess.CompletedProcess[str]

# The first `lab up` of a machine makes images, which takes minutes.
_UP_SECONDS = 600


class Image(Enum):
    """The training image that a lab's registry has."""

    NONE = "none"
    SMALL = "Open MPI, sshd and Python: enough for set-up and jobs, and a fifth of the lab's own"
    TORCH = "the lab's own, with torch and Horovod"


def docker(*args: str) -> str:
    """Return what the engine says, asked beside the lab's own code."""
    return subprocess.run(("docker", *args), capture_output=True, text=True, check=True).stdout.strip()


@dataclass(frozen=True)
class Lab:
    """Run `lab` verbs for one lab, with the tests' own state folder, and look into its hosts past taco-launch."""

    name: str
    state: Path

    @property
    def env(self) -> dict[str, str]:
        """Return the environment without the user's own settings, but with where wheels are kept."""
        wheels = "TACO_LAUNCH_WHEEL_CACHE"
        kept = {name: text for name, text in os.environ.items() if name == wheels or not name.startswith("TACO_LAUNCH")}
        return {**kept, "TACO_LAUNCH_STATE": str(self.state)}

    @property
    def folder(self) -> Path:
        return self.state / "lab" / self.name

    @property
    def key(self) -> Path:
        return self.folder / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    @property
    def password(self) -> str:
        """Return the registry's password."""
        return (self.folder / "registry-password").read_text().strip()

    @property
    def cluster(self) -> "Cluster":
        """Return the lab as its own inventory, `-i lab:NAME`."""
        return Cluster(self, f"lab:{self.name}")

    def argv(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "taco_launch", *args]

    def taco(self, *args: str, seconds: float = 110, env: Mapping[str, str] | None = None, **more: Any) -> Done:
        whole = {**self.env, **(env or {})}
        return subprocess.run(
            self.argv(*args), env=whole, capture_output=True, text=True, timeout=patience(seconds), check=False, **more
        )

    def verb(self, verb: str, *args: str, **more: Any) -> Done:
        """Run `lab VERB` for this lab."""
        return self.taco(
            "lab",
            verb,
            *(["--yes"] if verb == "up" else []),
            "--name",
            self.name,
            *args,
            **{"seconds": _UP_SECONDS if verb == "up" else 110, **more},
        )

    def up(self, *args: str) -> Done:
        """Run `lab up` without a training image."""
        done = self.verb("up", "--no-image", *args)
        assert done.returncode == 0, done.stderr
        return done

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

    # --- past taco-launch ---------------------------------------------------------------------------------------------

    def container(self, host: str) -> str:
        return f"taco-lab-{self.name}-{host}"

    def exec_argv(self, host: str, *command: str) -> list[str]:
        """Return what runs a command in a host as root, by the engine; its stdin is the command's."""
        return ["docker", "exec", "--interactive", self.container(host), *command]

    def inside(self, host: str, *command: str, seconds: float = 110, input: str = "") -> Done:  # noqa: A002 - as in run()
        """Run a command in a host as root."""
        argv = self.exec_argv(host, *command)
        return subprocess.run(argv, input=input, capture_output=True, text=True, timeout=patience(seconds), check=False)

    def sh(self, host: str, script: str, **more: Any) -> str:
        """Return what a script prints in a host, where it has to succeed, without the last line feed."""
        done = self.inside(host, "/bin/sh", "-c", script, **more)
        assert done.returncode == 0, (script, done.stdout, done.stderr)
        return done.stdout.strip()

    def address(self, host: str) -> str:
        """Return the address that a host has for as long as it exists, on or off."""
        path = f'(index .NetworkSettings.Networks "{hosts.network(self.name)}").IPAMConfig.IPv4Address'
        return docker("inspect", "--format", f"{{{{{path}}}}}", self.container(host))

    def ssh(self, host: str, command: str, seconds: int = 10) -> Done:
        """Log in as `lab status` says."""
        options = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=2")
        argv = ("ssh", "-F", str(self.folder / "ssh_config"), *options, host, command)
        return subprocess.run(argv, capture_output=True, text=True, timeout=patience(seconds), check=False)

    def answers(self, host: str) -> bool:
        return self.ssh(host, "true").returncode == 0

    def reboot(self, host: str) -> None:
        """Reboot a host, and wait for its sshd."""
        boot = ("inspect", "--format", "{{.State.StartedAt}}", self.container(host))
        before = docker(*boot)
        self.fault(host, "reboot")
        eventually(lambda: docker(*boot) != before, 30, "another boot")
        eventually(lambda: self.answers(host), 30, f"{host} to boot")

    def left(self) -> list[str]:
        """Return what the engine still has of this lab."""
        wanted = ("--filter", f"label=taco-launch.lab={self.name}", "--quiet")
        kinds = (("ps", "--all"), ("volume", "ls"), ("network", "ls"))
        return [line for kind in kinds for line in docker(*kind, *wanted).splitlines()]

    # --- inventories --------------------------------------------------------------------------------------------------

    def training(self, **more: Any) -> dict[str, Any]:
        """Return an inventory's section `container` for the lab's training image."""
        files = access.access(self.env, os.geteuid(), self.name)
        login = {"user": access.REGISTRY_USER, "password_file": str(files.password)}
        return {"image": files.image.read_text().strip(), "shm_size": "1g", "registry": login, **more}

    def inventory(
        self, file: Path, *names: str, cluster: str = "c", slots: int = 2, ssh: Mapping[str, str] | None = None,
        state: Path | None = None, **sections: Any,
    ) -> "Cluster":  # fmt: skip
        """Write an inventory of the named hosts, as somebody who was told of them would; return it.

        `ssh` is what its section `ssh` has besides root and the lab's keys, or in their place.
        """
        login = {"user": "root", "identity_file": str(self.key), "known_hosts": str(self.known_hosts), **(ssh or {})}
        found = {name: {"address": self.address(name), "slots": slots} for name in names}
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"cluster": cluster, "ssh": login, "hosts": found, **sections}))
        return Cluster(self, str(file), state)


@dataclass(frozen=True)
class Cluster:
    """Run commands as a person with an inventory of a lab's hosts, and a state folder (by default the lab's)."""

    lab: Lab
    inventory: str
    state: Path | None = None

    @property
    def env(self) -> dict[str, str]:
        return {**self.lab.env, "TACO_LAUNCH_STATE": str(self.state or self.lab.state)}

    def argv(self, *args: str) -> list[str]:
        return self.lab.argv("-i", self.inventory, *args)

    def __call__(self, *args: str, env: Mapping[str, str] | None = None, **more: Any) -> Done:
        return self.lab.taco("-i", self.inventory, *args, env={**self.env, **(env or {})}, **more)

    def ok(self, *args: str, **more: Any) -> str:
        """Return what a command prints that has to succeed."""
        done = self(*args, **more)
        assert done.returncode == 0, f"{args}: exit {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout

    def start(self, *args: str) -> "subprocess.Popen[str]":
        """Start a command, to be read from and waited for."""
        argv = self.argv(*args)
        return subprocess.Popen(argv, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def setup(self, *words: str, **more: Any) -> Done:
        return self("setup", *words, **{"seconds": 400, **more})

    def converged(self, *words: str) -> None:
        """Expect that `setup --check` finds nothing to do."""
        check = self.setup("--check", *words)
        assert (check.returncode, check.stdout) == (0, ""), check.stdout + check.stderr

    def job(self, name: str) -> dict[str, Any]:
        """Return a job, empty where there is none or the head does not answer."""
        done = self("get", name, "--json")
        found: dict[str, Any] = {} if done.returncode else json.loads(done.stdout)
        return found

    def jobs(self) -> list[dict[str, Any]]:
        """Return what `list` shows."""
        found: list[dict[str, Any]] = json.loads(self.ok("list", "--json"))["jobs"]
        return found

    def runs(self, name: str, seconds: float = 40) -> dict[str, Any]:
        """Wait until a job runs."""

        def running() -> dict[str, Any]:
            job = self.job(name)
            return job if job.get("state") == "RUNNING" else {}

        found: dict[str, Any] = eventually(running, seconds, f"{name} to run")
        return found


@dataclass(frozen=True)
class GpuHost:
    """Ask and change one host with simulated GPUs, and the training container that its cluster has there."""

    cluster: Cluster
    folder: Path
    name: str = "gpu1"

    @property
    def lab(self) -> Lab:
        return self.cluster.lab

    @property
    def box(self) -> str:
        """Return the name of the training container."""
        return f"taco-launch-{self.lab.name}"

    def sh(self, script: str, **more: Any) -> str:
        return self.lab.sh(self.name, script, **more)

    def set(self, **facts: str) -> None:
        """Change facts of the simulated hardware; underscores stand for the dashes of their names."""
        for name, value in facts.items():
            self.sh(f"simulated-hardware set {name.replace('_', '-')} {value}")

    def by(self, *, cluster: str = "c", **sections: Any) -> Cluster:
        """Return another inventory of this host, with a container that is never started."""
        container = {"image": "registry:5000/train:1"}
        return self.lab.inventory(
            self.folder / "cluster.yaml", self.name, cluster=cluster, container=container, **sections
        )

    def gpus(self) -> list[str]:
        """Return the GPUs that the host lists, which are those that its training container lists."""
        outside = self.sh("nvidia-smi -L").splitlines()
        assert self.sh(f"docker exec {self.box} nvidia-smi -L").splitlines() == outside
        return outside

    def has_gpus(self, count: int = 8) -> bool:
        """Return whether the training container runs and lists so many GPUs."""
        return self.sh(f"docker exec {self.box} nvidia-smi -L 2>&1 || :").count("UUID") == count

    def reboot(self, units: str) -> None:
        """Reboot, and wait for the units of the boot that a test needs."""
        self.lab.reboot(self.name)
        up = f"systemctl is-active --quiet {units} && echo up || :"
        eventually(lambda: self.sh(up) == "up", 30, f"{units} to be up")


def seconds_of(function: Callable[[], Any]) -> float:
    """Return how long a function takes."""
    start = time.monotonic()
    function()
    return time.monotonic() - start


def may_use_an_engine() -> bool:
    if os.geteuid() == 0:
        return True
    try:
        return subprocess.run(("docker", "info"), capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@contextmanager
def made(what: str, state: Path, *words: str, image: Image = Image.NONE) -> Iterator[Lab]:
    """Bring up a lab for as long as the block continues; `words` are options of `lab up`.

    Its name has this process's number in it: workers make labs beside each other.
    """
    if not may_use_an_engine():
        pytest.skip("cannot: a lab takes root, or the right to use a Docker Engine")
    lab = Lab(f"test-{os.getpid()}-{what}", state)
    try:
        if image is Image.TORCH:
            done = lab.verb("up", *words)
            assert done.returncode == 0, done.stderr
        else:
            lab.up(*words)
        if image is Image.SMALL:
            _put_small_image(lab)
        if image is not Image.NONE and lab.status()["training_image"] is None:
            pytest.skip("cannot: this lab has no training image (lab up says why)")
        yield lab
    finally:
        lab.verb("down")


def _put_small_image(lab: Lab) -> None:
    """Have the registry hold the base of the training image, and the lab name that as its training image."""
    talk = Reporter(print, lambda _text: None)
    try:
        recipe = training.recipe()
    except TacoLaunchError as error:
        pytest.skip(f"cannot: {error}")
    name = re.sub(r".*:(train-base)-", r"\1:", recipe.base)
    found = next(each for each in hosts.find(lab.name) if each.host.is_registry)
    with lock.one_at_a_time(talk):  # the images of all registries of a machine are one volume
        if not registry.has(found.container, name):
            training.ensure_base(recipe, talk)
            registry.push(found.host, found.container, recipe.base, name, talk.show)
    files = access.access(lab.env, os.geteuid(), lab.name)
    files.keep(files.image, f"{registry.ADDRESS}/{name}\n")
