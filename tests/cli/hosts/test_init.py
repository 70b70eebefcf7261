"""init: an inventory from names, and nothing overwritten; tests/lab/test_facts.py has it look at real hosts."""

import shlex
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from taco_launch.cli.hosts import init as cli_init
from taco_launch.cli.hosts import trust as cli_trust
from taco_launch.core.errors import HostError
from taco_launch.core.model.host.facts import HostFacts
from taco_launch.core.model.host.hosts import Host
from taco_launch.hosts import trust
from taco_launch.hosts.fanout import Answer, Fanout
from taco_launch.hosts.inventory.load import parse
from taco_launch.hosts.remote.local import LocalTransport
from taco_launch.hosts.trust import CHANGED, KNOWN, NEW, REVOKED, ShownKey, TrustReport
from tests.support.command_line import call, failing, succeeding
from tests.support.host_facts import host as facts_of
from tests.support.raisers import raiser


def test_names_and_ranges_become_an_inventory(tmp_path: Path) -> None:
    target = tmp_path / "hosts.yaml"
    result = succeeding("init", "gpu[1-3]", "login1", "gpu2", "--no-facts", "--to", str(target), "--user", "ops")
    assert result.stdout == f"{target}: cluster demo, hosts: 4\n"
    assert f"taco-launch -i {target} setup --dry-run" in result.stderr
    assert [host.name for host in parse(target.read_bytes(), "x").hosts] == ["gpu1", "gpu2", "gpu3", "login1"]


@pytest.mark.parametrize("typed", ["gpu1:8", "gpu[1-2]:8"])
def test_slots_are_no_part_of_a_name(tmp_path: Path, typed: str) -> None:
    result = call("init", typed, "--no-facts", "--to", str(tmp_path / "hosts.yaml"))
    assert "HOST: 'gpu1:8' is a host with a number of slots, which init finds by itself" in result.stderr
    assert "hint: taco-launch init gpu1; for another number, write slots: N below gpu1 in the file" in result.stderr
    assert (result.exit_code, list(tmp_path.iterdir())) == (2, [])


def test_a_file_is_not_overwritten(tmp_path: Path) -> None:
    target = tmp_path / "hosts.yaml"
    target.write_text("mine")
    result = call("init", "gpu1", "--no-facts", "--to", str(target))
    assert (result.exit_code, target.read_text()) == (2, "mine")
    assert f"{target} exists" in result.stderr


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "hosts.yaml"
    target.symlink_to(tmp_path / "elsewhere")
    assert call("init", "gpu1", "--no-facts", "--to", str(target)).exit_code != 0
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("words", [["gpu[1-"], ["a b"], ["gpu1", "--cluster", "a/b"]])
def test_wrong_names_are_refused(words: list[str], tmp_path: Path) -> None:
    target = tmp_path / "hosts.yaml"
    assert failing("init", *words, "--no-facts", "--to", str(target)).startswith("error: ")
    assert not target.exists()


def test_it_says_how_to_go_on(tmp_path: Path) -> None:
    target = tmp_path / "hosts.yaml"
    typed = f"taco-launch -i {target}"
    made = call("init", "gpu1", "--no-facts", "--to", str(target))
    image = f"name the training image in {target} (container: {{image: NAME:TAG}})"
    assert made.stderr == f"next: {image}; then {typed} trust; then {typed} setup --dry-run; then {typed} setup\n"
    again = call("init", "gpu1", "--to", str(target))
    assert (
        f"hint: continue with this file: {typed} trust, then {typed} setup --dry-run; or name another file"
        in again.stderr
    )


def test_a_private_key_is_written(tmp_path: Path) -> None:
    target, key = tmp_path / "hosts.yaml", tmp_path / "key"
    words = ("init", "gpu1", "--no-facts", "--to", str(target), "--user", "root", "--identity-file")
    assert "there is no file" in call(*words, str(key)).stderr
    key.touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        assert call(*words, "key").exit_code == 0
    assert parse(target.read_bytes(), "x").hosts[0].identity_file == str(key)


@dataclass
class Hosts:
    """Hosts that show keys and answer; gpu3 shows none, and gpu4 does not tell its facts."""

    state: str = NEW
    kept: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def show(self, ways: Any) -> TrustReport:
        names = [host.name for host in ways]
        shown = [ShownKey(name, name, "ssh-ed25519", f"SHA256:{name}", b"", self.state) for name in names]
        failed = (Answer[ShownKey]("gpu3", error=HostError("gpu3: no TCP connection")),) if "gpu3" in names else ()
        return TrustReport(tuple(key for key in shown if key.host != "gpu3"), failed, "known_hosts")

    def connect(self, _inventory: Any, hosts: tuple[Host, ...], _access: Any) -> Fanout:
        self.asked = [host.name for host in hosts]
        return Fanout(tuple(LocalTransport(host.name) for host in hosts))

    def gather(self, fanout: Fanout, _subjects: Any) -> list[Answer[HostFacts]]:
        names = [host.name for host in fanout.transports]
        broken = Answer[HostFacts]("gpu4", error=HostError("gpu4: permission denied"))
        return [broken if name == "gpu4" else Answer(name, facts_of(name)) for name in names]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Hosts:
    made = Hosts()
    monkeypatch.setattr(trust, "prepare", lambda _inventory, hosts, _access: hosts)
    monkeypatch.setattr(trust, "read_host_keys", made.show)
    monkeypatch.setattr(trust, "write", lambda keys: made.kept.extend(key.host for key in keys))
    monkeypatch.setattr(cli_init, "connect", made.connect)
    monkeypatch.setattr(cli_init, "gather", made.gather)
    return made


def test_unknown_keys_are_shown_and_kept_before_hosts_are_contacted(world: Hosts, tmp_path: Path) -> None:
    words = ("init", "gpu[1-2]", "--image", "train:1", "--to", str(tmp_path / "hosts.yaml"))
    refused = call(*words)
    assert (refused.exit_code, world.asked, world.kept) == (2, [], [])
    assert "gpu2  ssh-ed25519  SHA256:gpu2  new" in refused.stdout
    assert "2 host keys to accept, but stdin is not a terminal\nhint: compare the fingerprints" in refused.stderr
    made = call(*words, "--yes")
    assert (made.exit_code, world.asked, world.kept) == (0, ["gpu1", "gpu2"], ["gpu1", "gpu2"])
    typed = f"taco-launch -i {tmp_path}/hosts.yaml"
    assert made.stderr.splitlines()[-1] == f"next: {typed} setup --dry-run; then {typed} setup"
    assert [host.slots for host in parse((tmp_path / "hosts.yaml").read_bytes(), "x").hosts] == [8, 8]
    world.state = KNOWN
    assert call(*words[:-1], str(tmp_path / "other.yaml")).exit_code == 0, "then nobody is asked"


def test_who_does_not_agree_gets_no_file(world: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_trust, "_agreed", lambda _count, *, yes: yes)
    done = call("init", "gpu1", "--to", str(tmp_path / "hosts.yaml"))
    assert (done.exit_code, world.kept, world.asked) == (1, [], [])
    assert done.stderr == f"kept none\n{tmp_path}/hosts.yaml is not written\n"


def test_a_changed_key_leads_to_the_one_command_that_takes_it(world: Hosts, tmp_path: Path) -> None:
    target = tmp_path / "its hosts.yaml"
    world.state = CHANGED
    done = call("init", "gpu[1-2]", "gpu5", "--user", "ops", "--to", str(target), "--yes")
    assert (done.exit_code, target.exists(), world.asked, world.kept) == (1, False, [], [])
    assert "gpu5  ssh-ed25519  SHA256:gpu5  CHANGED" in done.stdout, "the keys of all hosts are shown at once"
    hinted = {line for line in done.stderr.splitlines() if line.startswith("hint: ")}
    assert len(hinted) == 1
    words = shlex.split(hinted.pop().removeprefix("hint: if the host was reinstalled: "))
    assert words[0] == "taco-launch"
    made = call(*words[1:])
    assert (made.exit_code, world.kept) == (0, ["gpu1", "gpu2", "gpu5"]), made.stderr
    assert parse(target.read_bytes(), "x").hosts[0].user == "ops"
    world.state = REVOKED
    assert "hint: ask the person who revoked the key" in call(*words[1:], "--to", str(tmp_path / "third")).stderr


def test_all_hosts_that_cannot_be_asked_are_told(world: Hosts, tmp_path: Path) -> None:
    target = tmp_path / "hosts.yaml"
    done = call("init", "gpu[1-4]", "--yes", "--to", str(target))
    assert (done.exit_code, target.exists(), world.asked) == (5, False, ["gpu1", "gpu2", "gpu4"])
    assert done.stderr.splitlines()[1:] == [
        "error: gpu3: no TCP connection",
        "error: gpu4: permission denied",
        f"error: {target} was not written, because the facts of gpu[3-4] could not be read",
        "hint: fix that, or run init without gpu[3-4], or write the inventory without contacting hosts: --no-facts",
    ]
    hint = call("init", "gpu[3-4]", "--yes", "--to", str(target)).stderr.splitlines()[-1]
    assert hint == "hint: fix that, or write the inventory without contacting hosts: --no-facts"


def test_names_without_an_address_are_told_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        socket, "create_connection", raiser(socket.gaierror(socket.EAI_NONAME, "Name or service not known"))
    )
    told = failing("init", "gpu[1-2].invalid", "--yes", "--to", str(tmp_path / "hosts.yaml"), code=5).splitlines()
    assert told[0].startswith("error: gpu[1-2].invalid: no address for gpu[1-2].invalid: ")
    assert told[1] == (
        "hint: type its IP address instead of the name, or add a line to /etc/hosts of this machine: ADDRESS gpu1.invalid"
    )
