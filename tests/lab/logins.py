"""People who log in to the lab's hosts: users of every kind there, and here a home with an ~/.ssh of their own."""

import json
import os
import pty
import select
import shlex
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from taco_launch.inventory.load import load
from taco_launch.remote.credentials import Credentials
from taco_launch.remote.fanout import Fanout, connect
from tests.conftest import eventually
from tests.lab.rig import Lab
from tests.patience import patience
from tests.remote.sshd import keygen

BOTH = {"gpu1": "plain@gpu1", "gpu2": "plain@gpu2"}
SYSTEM = ("--only", "system")
PASSWORD = "pässword 'x'"
PASSPHRASE = "sésame"
SECURE_PATH = "/opt/secure:/usr/sbin:/usr/bin:/sbin:/bin"
NOISE = "echo noise; echo 'more noise' >&2; printf '\\033[31mno newline'\n"


@dataclass(frozen=True)
class User:
    """A user of the hosts; `rc` is (file below the home, text), `sudo` are lines of sudo's rules."""

    name: str
    uid: int
    shell: str = "/bin/bash"
    rc: tuple[str, str] | None = None
    sudo: tuple[str, ...] = ()


USERS = (
    User("plain", 7001),
    User("noisy", 7002, rc=(".bashrc", NOISE)),
    User("cshy", 7003, "/bin/bsd-csh", rc=(".cshrc", "echo noise\n")),
    User("tcshy", 7004, "/bin/tcsh", rc=(".tcshrc", "echo noise\n")),
    User("fishy", 7005, "/usr/bin/fish", rc=(".config/fish/config.fish", "echo noise\n")),
    User("free", 7006, sudo=("free ALL=(ALL) NOPASSWD: ALL",)),
    User("asked", 7007, sudo=("asked ALL=(ALL) ALL",)),
    User("terminal", 7008, rc=(".bashrc", NOISE), sudo=("Defaults:terminal requiretty", "terminal ALL=(ALL) ALL")),
    User("stranger", 7009),
    User("jumper", 7010),
    User("stuck", 7011, rc=(".bashrc", "echo looking for the licence server; sleep 15\n")),
)
_SHELLS = """cd "$(mktemp -d)"
apt-get --quiet --quiet update
apt-get --quiet --quiet download tcsh csh fish fish-common libpcre2-32-0
dpkg --force-depends --install ./*.deb
"""
_NO_SHELLS = """dpkg --purge --force-depends csh tcsh fish fish-common libpcre2-32-0
rm -rf /var/lib/apt/lists/*_*
"""


def make_keys(folder: Path) -> None:
    """Make the keys that all users may log in with, and `stranger`, which none of them may."""
    for name, kind in (("login", "ed25519"), ("ecdsa", "ecdsa"), ("certified", "ed25519"), ("authority", "ed25519")):
        keygen(folder / name, kind)
    keygen(folder / "rsa", "rsa", "-b", "2048")
    keygen(folder / "encrypted", passphrase=PASSPHRASE)
    sign = ("ssh-keygen", "-q", "-s", str(folder / "authority"), "-I", "me", "-n", "plain", f"{folder}/certified.pub")
    subprocess.run(sign, check=True)
    lines = [(folder / f"{name}.pub").read_text() for name in ("login", "ecdsa", "rsa", "encrypted")]
    (folder / "authorized").write_text("".join([*lines, "cert-authority " + (folder / "authority.pub").read_text()]))


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that `make_keys` made keys in."""
    folder = tmp_path_factory.mktemp("keys")
    make_keys(folder)
    return folder


def prepare(lab: Lab, host: str, keys: Path) -> None:
    """Make the users on a host."""
    rules = [f'Defaults secure_path="{SECURE_PATH}"', *(line for user in USERS for line in user.sudo)]
    lines = ["set -eu", _written("/etc/sudoers.d/zz-test", "\n".join([*rules, ""])), "umask 077"]
    for user in USERS:
        home = f"/home/{user.name}"
        lines.append(f"useradd --create-home --uid {user.uid} --shell {user.shell} {user.name} 2>/dev/null")
        lines.append(f"mkdir {home}/.ssh")
        lines.append(_written(f"{home}/.ssh/authorized_keys", (keys / "authorized").read_text()))
        if user.rc:
            lines.append(f"mkdir -p {os.path.dirname(f'{home}/{user.rc[0]}')}")  # noqa: PTH120 - a path of the host
            lines.append(_written(f"{home}/{user.rc[0]}", user.rc[1]))
        lines.append(f"chown -R {user.name}: {home}")
    passwords = "".join(f"{user.name}:{PASSWORD}\n" for user in USERS)
    lines.append(f"printf %s {shlex.quote(passwords)} | chpasswd")
    lab.sh(host, "\n".join(lines))


def take_back(lab: Lab, host: str) -> None:
    """Remove what `prepare` made."""
    lines = ["rm -f /etc/sudoers.d/zz-test"]
    lines += [f"systemctl stop user-{user.uid}.slice; userdel --force --remove {user.name}" for user in USERS]
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


@contextmanager
def shells(lab: Lab, host: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Install csh, tcsh and fish (without the rest that fish brings) in a host while the block continues; then purge them."""
    argv = lab.exec_argv(host, "sh", "-euc", _SHELLS)
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.wait()
            lab.sh(host, _NO_SHELLS)


def _written(path: str, text: str) -> str:
    return f"printf %s {shlex.quote(text)} >{path}"


def journal(lab: Lab, host: str) -> list[str]:
    """Return what the host's sshd has said.

    Its unit does not tell: whoever logs in is moved to a session's own, maybe before the journal looks.
    """
    names = "--identifier sshd --identifier sshd-session"
    return lab.sh(host, f"journalctl --sync; journalctl {names} --output cat --no-pager").splitlines()


@contextmanager
def sshd_setting(lab: Lab, host: str, text: str) -> Iterator[None]:
    """Change the settings of a host's sshd for a while."""
    file = "/etc/ssh/sshd_config.d/50-test.conf"
    _reload(lab, host, _written(file, text))
    try:
        yield
    finally:
        _reload(lab, host, f"rm {file}")


def _reload(lab: Lab, host: str, change: str) -> None:
    """Have sshd read its settings after `change`: while it does, it listens nowhere, and systemctl waits for no end."""

    def listening() -> int:
        return sum("Server listening on" in line for line in journal(lab, host))

    before = listening()
    lab.sh(host, f"{change}; systemctl reload ssh")
    eventually(lambda: listening() > before, 20, "the sshd to listen again")


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

    def knows(
        self, hosts: Mapping[str, str], *, config: str = "", key: str | None = "login", host_keys: str = "strict",
        known_hosts: Path | None = None,
    ) -> None:  # fmt: skip
        """Write ~/.ssh/config and the inventory: hosts by name, each as `user@gpu1`.

        `config` goes before the rest; with `key` None the inventory names no key; `known_hosts` is by default the lab's.
        """
        self.ssh.mkdir(parents=True, exist_ok=True, mode=0o700)
        lines = [config]
        for name, login in hosts.items():
            user, _, host = login.partition("@")
            lines.append(f"Host {name}\n  HostName {self.addresses[host]}\n  User {user}\n")
        (self.ssh / "config").write_text("".join(lines))
        known = known_hosts or self.lab.known_hosts
        named = f", identity_file: {self.keys / key}" if key else ""
        names = ", ".join(f"{name}: {{}}" for name in hosts)
        self.file.write_text(
            f"cluster: c\nssh: {{host_keys: {host_keys}, known_hosts: {known}{named}}}\nhosts: {{{names}}}\n"
        )

    def taco(self, *args: str, env: Mapping[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
        argv, whole = self.lab.argv("-i", str(self.file), *args), {**self.env, **(env or {})}
        return subprocess.run(
            argv,
            env=whole,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=patience(100),
            check=False,
        )

    def facts(self, *args: str, **env: str) -> tuple[int, dict[str, Any], str]:
        """Return exit code, facts by host (of `failed` ones the word on it) and stderr."""
        done = self.taco("facts", "--json", *args, env=env)
        assert done.stdout, done.stderr
        return done.returncode, by_host(done.stdout), done.stderr

    def on_terminal(self, *args: str, prompt: str, answer: str) -> tuple[int, str, str]:
        """Type `answer` whenever `prompt` is shown; give exit code, stdout and what the terminal showed."""
        master, slave = pty.openpty()
        # a terminal of its own: passwords are requested on the controlling one
        argv = ("setsid", "--ctty", *self.lab.argv("-i", str(self.file), *args))
        with (self.folder / "stdout").open("wb") as out:
            process = subprocess.Popen(argv, env=self.env, stdin=slave, stdout=out, stderr=slave)
        os.close(slave)
        screen, answered, deadline = "", 0, time.monotonic() + patience(60)
        while time.monotonic() < deadline:
            if select.select([master], [], [], 0.1)[0]:
                try:
                    screen += os.read(master, 4096).decode()
                except OSError:  # EIO: nobody has it open any more
                    break
            if screen.count(prompt) > answered:
                answered += 1
                os.write(master, f"{answer}\n".encode())
        os.close(master)
        return process.wait(10), (self.folder / "stdout").read_text(), screen

    @contextmanager
    def connected(self, password: str | None = None) -> Iterator[Fanout]:
        """Connect to all hosts of the inventory, in this process."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.env.items():
                patch.setenv(name, value)
            patch.delenv("SSH_AUTH_SOCK", raising=False)
            inventory = load(str(self.file), self.env, frozenset)
            with connect(inventory, inventory.hosts, Credentials(password)) as fanout:
                yield fanout


@pytest.fixture
def person(lab: Lab, keys: Path, addresses: dict[str, str], tmp_path: Path) -> Person:
    """Return somebody who knows no host yet."""
    return Person(lab, tmp_path, keys, addresses)


def by_host(text: str) -> dict[str, Any]:
    """Read the document of `facts --json`."""
    document = json.loads(text)
    return {host["host"]: host for host in document["hosts"]} | {
        failed["host"]: failed["error"] for failed in document["failed"]
    }
