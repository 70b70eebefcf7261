"""A home and a state folder of the test's own, and one sshd for all tests that need a real one."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from taco_launch.core.command import Command
from taco_launch.core.model.host.hosts import Host, Inventory
from taco_launch.hosts.fanout import connect
from taco_launch.hosts.remote.credentials import Credentials
from tests.support import sshd as server

NOBODY = Credentials()
NOISE = "echo noise; echo 'more noise' >&2; printf 'no newline'\n"
USERS = (
    server.User("plain", 5001),
    server.User("noisy", 5002, rc=((".bashrc", NOISE),)),
    server.User("dashy", 5003, "/bin/dash"),
    server.User("cshy", 5004, "/bin/tcsh", rc=((".tcshrc", "echo noise\n"),)),
    server.User("fishy", 5005, "/usr/bin/fish", rc=((".config/fish/config.fish", "echo noise\n"),)),
    server.User("zshy", 5006, "/usr/bin/zsh", rc=((".zshenv", "echo noise\n"),)),
    server.User("free", 5010, sudo=("USER ALL=(ALL) NOPASSWD: ALL",)),
    server.User("asked", 5011, password="pässword", sudo=("USER ALL=(ALL) ALL",)),
    server.User("terminal", 5012, password="pässword", sudo=("Defaults:USER requiretty", "USER ALL=(ALL) ALL")),
    server.User("stranger", 5013, password="pässword"),
    server.User("broken", 5014, "/bin/false"),
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home whose ~/.ssh is empty; what taco-launch keeps goes elsewhere."""
    path = tmp_path / "own-home"
    (path / ".ssh").mkdir(parents=True, mode=0o700)
    monkeypatch.setenv("HOME", str(path))
    monkeypatch.setenv("TACO_LAUNCH_STATE", str(tmp_path / "own-state"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return path


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.Sshd]:
    """Run one sshd with all users and three kinds of host keys."""
    if reason := server.why_not():
        pytest.skip(reason)
    kinds = ("ed25519", "ecdsa", "rsa")
    with server.sshd(tmp_path_factory.mktemp("sshd"), users=USERS, kinds=kinds, options="MaxStartups 1000") as made:
        yield made


def inventory(*hosts: Host, host_keys: str = "accept-new", known_hosts: str | None = None) -> Inventory:
    """Return an inventory of hosts, whose keys are taken as they come."""
    return Inventory(
        "test", hosts[0].name, hosts, host_keys=host_keys, source="my cluster.yaml", known_hosts=known_hosts
    )


def host(sshd: server.Sshd, name: str, *, address: str = "127.0.0.1", user: str | None = None) -> Host:
    """Return a host that is the sshd, with the user of its name."""
    return Host(name, address, port=sshd.port, user=name if user is None else user, identity_file=str(sshd.login))


def many(sshd: server.Sshd, count: int, identity_file: str | None) -> tuple[Host, ...]:
    """Make so many hosts of one sshd, each under an address of its own."""
    hosts = ((f"h{number}", host(sshd, "plain", address=f"127.0.0.{number}")) for number in range(1, count + 1))
    return tuple(replace(each, name=name, identity_file=identity_file) for name, each in hosts)


WHOAMI = Command(("id", "-un"))


def login(*hosts: Host, access: Credentials = NOBODY, host_keys: str = "accept-new") -> list[str]:
    with connect(inventory(*hosts, host_keys=host_keys), hosts, access) as fanout:
        answers = fanout.each(lambda transport: transport.run(WHOAMI).stdout.decode().strip())
    for answer in answers:
        if answer.error:
            raise answer.error
    return [answer.value or "" for answer in answers]
