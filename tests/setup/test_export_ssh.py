"""An ssh configuration of the containers: what stands in it, what ssh itself makes of it, and where the keys go."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from taco_launch.core.command import Command, Result
from taco_launch.core.errors import HostError, UsageError
from taco_launch.core.model.host.hosts import Container, Host, Inventory
from taco_launch.core.model.job_view import JobView
from taco_launch.core.model.jobs import JobRecord, JobSpec, JobState
from taco_launch.hosts.remote.credentials import Credentials
from taco_launch.hosts.ssh.exported import HEADING
from taco_launch.setup import export_ssh
from taco_launch.setup.files import ssh_files
from taco_launch.setup.files.ssh_files import Member

KEY = b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n"
HOSTS = (
    Host("gpu1", "10.0.0.1", port=2222, user="me", identity_file="/keys/with blank"),
    Host("gpu2", "10.0.0.2"),
    Host("gpu3", "gpu3.lan"),
)
INVENTORY = Inventory("hcc", "gpu1", HOSTS, container=Container("train:1"), source="c.yaml")
KNOWN = ssh_files.known_hosts(
    (Member("gpu1", "10.0.0.1", "ssh-ed25519 AAA1"), Member("gpu2", "10.9.0.2", "ssh-ed25519 AAA2")), 12222
).encode()


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """What the head answers: exit code, stdout; and a home without ssh's own files."""
    answer: list[Any] = [0, KEY + b"\0" + KNOWN]

    @contextmanager
    def connect(_inventory: Inventory, hosts: tuple[Host, ...], _access: Credentials) -> Iterator[SimpleNamespace]:
        def run(command: Command) -> Result:
            assert command.sudo
            return Result(hosts[0].name, command, answer[0], answer[1], b"", 0.0)

        yield SimpleNamespace(transports=(SimpleNamespace(run=run),))

    monkeypatch.setattr(export_ssh, "connect", connect)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home/.ssh").mkdir(parents=True)
    return answer


def exported(tmp_path: Path, inventory: Inventory = INVENTORY, called: str = "hcc") -> tuple[str, tuple[str, ...]]:
    return export_ssh.ssh_config(inventory, Credentials(), {"TACO_LAUNCH_STATE": str(tmp_path / "state")}, called)


def reads(tmp_path: Path, config: str, host: str) -> dict[str, str]:
    """Return what ssh reads of a configuration for a host."""
    if not shutil.which("ssh"):
        pytest.skip("ssh is not installed (apt-get install openssh-client)")
    (tmp_path / "config").write_text(config)
    done = subprocess.run(
        ["ssh", "-F", str(tmp_path / "config"), "-G", host], capture_output=True, text=True, check=True
    )
    return dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)


@pytest.mark.usefixtures("said")
def test_what_ssh_makes_of_it(tmp_path: Path) -> None:
    config, left_out = exported(tmp_path)
    assert left_out == ("gpu3: the head does not know its container: set this host up first",)
    keys = tmp_path / "state/ssh/hcc"
    second = reads(tmp_path, config, "hcc-gpu2")
    wanted = {
        "hostname": "10.9.0.2",
        "port": "12222",
        "user": "root",
        "proxyjump": "hcc-head",
        "identityfile": str(keys / "key"),
        "hostkeyalias": "hcc-gpu2",
        "userknownhostsfile": str(keys / "known_hosts"),
        "stricthostkeychecking": "true",
    }
    assert {name: second[name] for name in wanted} == wanted
    head = reads(tmp_path, config, "hcc-head")
    assert (head["hostname"], head["port"], head["user"]) == ("10.0.0.1", "2222", "me")
    assert head["userknownhostsfile"].split()[-1] == str(tmp_path / "state/known_hosts")
    assert "Host hcc-gpu3" not in config


@pytest.mark.usefixtures("said")
def test_keys_are_for_their_owner_alone(tmp_path: Path) -> None:
    exported(tmp_path)
    keys = tmp_path / "state/ssh/hcc"
    assert (keys / "key").read_bytes() == KEY
    assert (keys / "known_hosts").read_text() == "hcc-gpu1 ssh-ed25519 AAA1\nhcc-gpu2 ssh-ed25519 AAA2\n"
    assert {path.stat().st_mode & 0o777 for path in keys.iterdir()} == {0o600}
    assert keys.stat().st_mode & 0o777 == 0o700
    assert sorted(path.name for path in keys.iterdir()) == ["key", "known_hosts"]


@pytest.mark.usefixtures("said")
def test_jump_hosts_on_the_way_to_the_head(tmp_path: Path) -> None:
    (tmp_path / "home/.ssh/config").write_text(
        "Host 10.0.0.1\n  ProxyJump first,you@second:2200\nHost second\n  HostName 192.0.2.2\nHost first\n  ProxyCommand nc -X 5 %h 100%%\n"
    )
    config, _left_out = exported(tmp_path)
    ways = {name: reads(tmp_path, config, name) for name in ("hcc-head", "hcc-head-jump", "hcc-head-jump-jump")}
    assert ways["hcc-head"]["proxyjump"] == "hcc-head-jump"
    second = ways["hcc-head-jump"]
    assert (second["hostname"], second["port"], second["user"]) == ("192.0.2.2", "2200", "you")
    assert second["proxyjump"] == "hcc-head-jump-jump"
    assert ways["hcc-head-jump-jump"]["proxycommand"].startswith("nc -X 5 ")


@pytest.mark.usefixtures("said")
def test_a_head_that_is_this_machine(tmp_path: Path) -> None:
    hosts = (replace(HOSTS[0], connection="local"), *HOSTS[1:])
    config, _left_out = exported(tmp_path, replace(INVENTORY, hosts=hosts))
    assert "ProxyJump" not in config
    assert "hcc-head" not in config


@pytest.mark.usefixtures("said")
def test_the_container_of_a_job(tmp_path: Path) -> None:
    key = "0123456789"
    spec = JobSpec("vgg", ("true",), HOSTS, container=Container("other:1", ssh_port=12325, variant=key))
    view = JobView(spec, JobRecord("1", JobState.RUNNING, hosts=("gpu2",)), "")
    config, left_out = exported(tmp_path, export_ssh.of_job(INVENTORY, view), "vgg")
    assert left_out == ()
    assert [line for line in config.splitlines() if line.startswith("Host ")] == [
        "Host vgg-head",
        "Host vgg-gpu1",
        "Host vgg-gpu2",
    ]
    shown = reads(tmp_path, config, "vgg-gpu2")
    assert (shown["hostname"], shown["port"], shown["proxyjump"]) == ("10.9.0.2", "12325", "vgg-head")
    assert (tmp_path / "state" / "ssh" / f"hcc@{key}" / "key").exists()
    bare = replace(view, spec=replace(spec, container=None))
    with pytest.raises(UsageError, match="job vgg does not run in a container"):
        export_ssh.of_job(INVENTORY, bare)


def test_what_is_refused(said: list[Any], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no container"):
        exported(tmp_path, replace(INVENTORY, container=None))
    said[:] = [1, b""]
    with pytest.raises(HostError, match="cannot be read: is the host set up") as caught:
        exported(tmp_path)
    assert caught.value.hint == "taco-launch -i c.yaml setup prepares the hosts"
    for bad in (b"", b"root:x:0\n", KEY + KEY, KEY.replace(b"AAAA", b"A A"), KEY.replace(b"AAAA", b"A" * 20000)):
        said[:] = [0, bad + b"\0" + KNOWN]
        with pytest.raises(HostError, match="is not an OpenSSH private key"):
            exported(tmp_path)
    assert not (tmp_path / "state/ssh").exists()


def test_a_head_that_names_what_it_likes(said: list[Any], tmp_path: Path) -> None:
    """Its words are addresses and keys, or left out; names are the inventory's."""
    said[1] = KEY + b"\0" + b"[-oProxyCommand=x]:12222 ssh-ed25519 AAA gpu1\n[evil]:1 ssh-ed25519 AAA other\nx y\n"
    config, left_out = exported(tmp_path)
    assert "evil" not in config
    assert "ProxyCommand" not in config
    assert len(left_out) == 2


def test_where_it_is_written(tmp_path: Path) -> None:
    text = HEADING + "Host a\n"
    export_ssh.write(text, tmp_path / "mine")
    export_ssh.write(text, tmp_path / "mine")
    assert (tmp_path / "mine").stat().st_mode & 0o777 == 0o600
    (tmp_path / "other").write_text("Host *\n")
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    for name in ("other", "link"):
        with pytest.raises(UsageError, match="was not written by `export ssh-config`"):
            export_ssh.write(text, tmp_path / name)
    assert (tmp_path / "other").read_text() == "Host *\n"
