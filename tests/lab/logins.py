"""People who log in to the lab's hosts: users there, and here a home with an ~/.ssh of their own."""

import json
import os
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from taco_launch.hosts.fanout import Fanout, connect
from taco_launch.hosts.inventory.load import load
from taco_launch.hosts.remote.credentials import Credentials
from tests.lab.rig import Lab
from tests.support.patience import patience
from tests.support.sshd import keygen

BOTH = {"gpu1": "plain@gpu1", "gpu2": "plain@gpu2"}
SYSTEM = ("--only", "system")
# by name: uid, and text of the .bashrc
USERS = {"plain": (7001, ""), "stuck": (7011, "echo looking for the licence server; sleep 15\n")}


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the key `login`, by which all users are let in."""
    folder = tmp_path_factory.mktemp("keys")
    keygen(folder / "login")
    return folder


def prepare(lab: Lab, host: str, keys: Path) -> None:
    """Make the users on a host."""
    lines = ["set -eu", "umask 077"]
    for name, (uid, rc) in USERS.items():
        home = f"/home/{name}"
        lines.append(f"useradd --create-home --uid {uid} --shell /bin/bash --password '*' {name} 2>/dev/null")
        lines.append(f"mkdir {home}/.ssh")
        lines.append(_written(f"{home}/.ssh/authorized_keys", (keys / "login.pub").read_text()))
        if rc:
            lines.append(_written(f"{home}/.bashrc", rc))
        lines.append(f"chown -R {name}: {home}")
    lab.sh(host, "\n".join(lines))


def take_back(lab: Lab, host: str) -> None:
    """Remove what `prepare` made."""
    lines = [f"systemctl stop user-{uid}.slice; userdel --force --remove {name}" for name, (uid, _rc) in USERS.items()]
    lab.sh(host, "{\n" + "\n".join(lines) + "\n} 2>/dev/null || true\n")


@contextmanager
def users(lab: Lab, keys: Path) -> Iterator[dict[str, str]]:
    """Make the users on both hosts while the block continues; give the addresses of the lab's hosts by name."""
    addresses = {host: lab.address(host) for host in BOTH}
    try:
        for host in BOTH:
            prepare(lab, host, keys)
        yield addresses
    finally:
        for host in BOTH:
            take_back(lab, host)


def _written(path: str, text: str) -> str:
    return f"printf %s {shlex.quote(text)} >{path}"


@dataclass(frozen=True)
class Person:
    """Somebody with a home below `folder`, the keys in `keys`, and an inventory; `addresses` are those of the hosts."""

    lab: Lab
    folder: Path
    keys: Path
    addresses: Mapping[str, str]

    @property
    def ssh(self) -> Path:
        return self.folder / "home" / ".ssh"

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def file(self) -> Path:
        return self.folder / "cluster.yaml"

    @property
    def env(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TACO_LAUNCH", "SSH_AUTH"))}
        return {**kept, "HOME": str(self.ssh.parent), "TACO_LAUNCH_STATE": str(self.state)}

    def knows(self, hosts: Mapping[str, str], *, config: str = "") -> None:
        """Write ~/.ssh/config and the inventory: hosts by name, each as `user@gpu1`; `config` goes before the rest."""
        self.ssh.mkdir(parents=True, exist_ok=True, mode=0o700)
        lines = [config]
        for name, login in hosts.items():
            user, _, host = login.partition("@")
            lines.append(f"Host {name}\n  HostName {self.addresses[host]}\n  User {user}\n")
        (self.ssh / "config").write_text("".join(lines))
        names = ", ".join(f"{name}: {{}}" for name in hosts)
        self.file.write_text(
            f"cluster: c\nssh: {{known_hosts: {self.lab.known_hosts}, identity_file: {self.keys / 'login'}}}\n"
            f"hosts: {{{names}}}\n"
        )

    def facts(self, *args: str) -> tuple[int, dict[str, Any], str]:
        """Return exit code, facts by host (of `failed` ones the word on it) and stderr."""
        done = subprocess.run(
            self.lab.argv("-i", str(self.file), "facts", "--json", *args),
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=patience(100),
            check=False,
        )
        assert done.stdout, done.stderr
        document = json.loads(done.stdout)
        found = {host["host"]: host for host in document["hosts"]}
        failed = {host["host"]: host["error"] for host in document["failed"]}
        return done.returncode, {**found, **failed}, done.stderr

    @contextmanager
    def connected(self) -> Iterator[Fanout]:
        """Connect to all hosts of the inventory, in this process."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.env.items():
                patch.setenv(name, value)
            patch.delenv("SSH_AUTH_SOCK", raising=False)
            inventory = load(str(self.file), self.env, frozenset)
            with connect(inventory, inventory.hosts, Credentials()) as fanout:
                yield fanout


@pytest.fixture
def person(lab: Lab, keys: Path, addresses: dict[str, str], tmp_path: Path) -> Person:
    """Return somebody who knows no host yet."""
    return Person(lab, tmp_path, keys, addresses)
