"""SSH to the lab's hosts as a person meets it: sudo, keys, host keys, the way there, login shells."""

import base64
import hashlib
import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from taco_launch.command import Command
from tests.conftest import eventually
from tests.lab import logins
from tests.lab.logins import BOTH, PASSPHRASE, PASSWORD, SYSTEM, Person, journal, sshd_setting
from tests.lab.rig import Lab
from tests.patience import patience
from tests.remote.test_ssh_commands import ENV, EVERYTHING, ODD, encoded
from tests.remote.test_ssh_logins import agent

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

# fixtures are found by their names here
keys, person = logins.keys, logins.person


@pytest.fixture(scope="module")
def installing(lab: Lab) -> "Iterator[subprocess.Popen[bytes]]":
    """csh, tcsh and fish on gpu2, on their way in while other tests run."""
    with logins.shells(lab, "gpu2") as process:
        yield process


@pytest.fixture(scope="module")
def addresses(lab: Lab, keys: Path, installing: Any) -> Iterator[dict[str, str]]:  # noqa: ARG001 - it has started
    with logins.users(lab, keys) as found:
        yield found


def accepted(lab: Lab, host: str, user: str) -> list[str]:
    """Return the logins of a user that the host's sshd let in."""
    return [line for line in journal(lab, host) if line.startswith(f"Accepted publickey for {user} ")]


def fingerprint(public: str) -> str:
    digest = hashlib.sha256(base64.b64decode(public.split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def shown_by(lab: Lab, host: str) -> str:
    """Return the fingerprint of a host's key as its console shows it."""
    return lab.sh(host, "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub").split()[1]


# --- sudo


def test_sudo_without_and_with_a_password(person: Person) -> None:
    person.knows({name: f"{name}@gpu2" for name in ("plain", "free", "asked", "terminal")})
    code, found, said = person.facts("--only", "system,network")
    assert (code, said) == (0, "")
    assert {name: host["system"]["access"] for name, host in found.items()} == {
        "plain": "user", "free": "sudo", "asked": "user", "terminal": "user",
    }  # fmt: skip
    reasons = {host: {each["where"]: each["reason"] for each in found[host]["unknown"]} for host in found}
    assert "the rules cannot be read" in reasons["plain"]["network.firewalls"]
    assert "network.firewalls" not in reasons["free"]
    person.knows({name: f"{name}@gpu2" for name in ("free", "asked", "terminal")})
    code, found, said = person.facts(*SYSTEM, TACO_LAUNCH_SUDO_PASSWORD=PASSWORD)
    assert (code, said) == (0, "")
    assert {host["system"]["access"] for host in found.values()} == {"root"}


def test_sudo_asks_once_on_a_terminal(person: Person) -> None:
    person.knows({"asked1": "asked@gpu1", "asked2": "asked@gpu2", "terminal": "terminal@gpu1"})
    code, out, screen = person.on_terminal(
        "facts", "--json", *SYSTEM, "--ask-sudo-password", prompt="sudo password: ", answer=PASSWORD
    )
    assert code == 0, screen
    assert screen.count("sudo password: ") == 1
    assert PASSWORD not in screen
    assert [host["system"]["access"] for host in logins.by_host(out).values()] == ["root"] * 3


def test_sudo_that_refuses(person: Person) -> None:
    person.knows({name: f"{name}@gpu2" for name in ("free", "asked", "terminal", "stranger")})
    code, found, said = person.facts(*SYSTEM, TACO_LAUNCH_SUDO_PASSWORD="wrong")
    assert code == 5
    assert found["free"]["system"]["access"] == "root"  # the others are shown
    assert found["asked"] == "asked: sudo refuses the password that was given"
    assert found["terminal"] == "terminal: sudo refuses the password that was given"
    assert f"hint: try it there: ssh -t -i {person.keys / 'login'} asked sudo -k true" in said
    assert "wrong" not in said
    _code, found, said = person.facts("stranger", *SYSTEM, TACO_LAUNCH_SUDO_PASSWORD=PASSWORD)
    assert found["stranger"].startswith("stranger: sudo refuses: stranger is not in the sudoers file")


def test_no_sudo_there(person: Person) -> None:
    person.knows({"gpu1": "free@gpu1", "gpu2": "free@gpu2"})
    person.lab.sh("gpu1", "mv /usr/bin/sudo /usr/bin/sudo.away")
    try:
        code, found, said = person.facts(*SYSTEM, TACO_LAUNCH_SUDO_PASSWORD=PASSWORD)
        without = person.facts(*SYSTEM)[1]
    finally:
        person.lab.sh("gpu1", "mv /usr/bin/sudo.away /usr/bin/sudo")
    assert code == 5
    assert found["gpu1"].startswith("gpu1: there is no sudo: ")
    assert "hint: install sudo there, or log in as root" in said
    assert found["gpu2"]["system"]["access"] == "root"
    assert [without[host]["system"]["access"] for host in ("gpu1", "gpu2")] == ["user", "sudo"]


def test_sudo_has_its_own_path_and_the_bytes_arrive(person: Person) -> None:
    person.knows({name: f"{name}@gpu2" for name in ("free", "asked", "terminal")})
    script = 'id -un; echo "$PATH"; printf %s "$ODD"; cat; echo aside >&2; exit 3'
    command = Command(("sh", "-c", script), stdin=EVERYTHING * 100, env=(("ODD", "a\nb\udcff"),), sudo=True)
    with person.connected(PASSWORD) as fanout:
        answers = fanout.each(lambda transport: transport.run(command))
    for answer in answers:
        assert answer.value, answer.error
        assert answer.value.stdout == f"root\n{logins.SECURE_PATH}\na\nb".encode() + b"\xff" + EVERYTHING * 100
        assert (answer.value.exit_code, answer.value.stderr) == (3, b"aside\n")


# --- keys


def test_kinds_of_keys_and_certificates(person: Person) -> None:
    wanted = {"login": "ED25519", "ecdsa": "ECDSA", "rsa": "RSA", "certified": "ED25519-CERT"}
    config = "".join(f"Host {name}\n  IdentityFile {person.keys / name}\n" for name in wanted)
    person.knows(dict.fromkeys(wanted, "plain@gpu2"), key=None, config=config)
    before = len(accepted(person.lab, "gpu2", "plain"))
    code, found, said = person.facts(*SYSTEM)
    assert (code, said, set(found)) == (0, "", set(wanted))
    let_in = accepted(person.lab, "gpu2", "plain")[before:]
    assert len(let_in) == len(wanted)
    for name, kind in wanted.items():
        expected = f": {kind} {fingerprint((person.keys / f'{name}.pub').read_text())}"
        assert any(f"{expected}" in line for line in let_in), let_in
    (person.keys / "certified-cert.pub").rename(person.keys / "away")
    try:
        code, found, _said = person.facts("certified", *SYSTEM)
    finally:
        (person.keys / "away").rename(person.keys / "certified-cert.pub")
    assert code == 5
    assert f"offered: {person.keys / 'certified'}\n  the host takes: publickey, password" in found["certified"]


def test_an_encrypted_key_is_asked_for_once(person: Person) -> None:
    person.knows(BOTH, key="encrypted")
    prompt = f"passphrase of {person.keys / 'encrypted'}: "
    code, out, screen = person.on_terminal("facts", "--json", *SYSTEM, prompt=prompt, answer=PASSPHRASE)
    assert code == 0, screen
    assert screen.count(prompt) == 1
    assert PASSPHRASE not in screen
    assert {name: host["system"]["hostname"] for name, host in logins.by_host(out).items()} == {
        "gpu1": "gpu1", "gpu2": "gpu2",
    }  # fmt: skip
    code, found, said = person.facts(*SYSTEM)  # without a terminal
    assert code == 5
    assert "no terminal to ask for its passphrase" in found["gpu1"]
    assert f"ssh-add {person.keys / 'encrypted'}" in said


def test_an_agent(person: Person) -> None:
    person.knows(BOTH, key=None)
    with agent(person.keys / "authority", person.keys / "rsa") as path:  # the first is let in nowhere
        code, found, _said = person.facts(*SYSTEM, SSH_AUTH_SOCK=path)
        assert (code, found["gpu2"]["system"]["hostname"]) == (0, "gpu2")
    code, found, _said = person.facts(*SYSTEM)
    assert code == 5
    assert "there was no key to offer" in found["gpu1"]


# --- host keys


def test_host_keys_unknown_then_taken(person: Person, tmp_path: Path) -> None:
    nothing = tmp_path / "nothing"
    nothing.touch()
    person.knows(BOTH, known_hosts=nothing)
    code, found, said = person.facts(*SYSTEM)
    assert code == 5
    for host, address in person.addresses.items():
        if host in BOTH:
            shown = shown_by(person.lab, host)
            assert found[host] == f"{host}: unknown host key of {address}: ssh-ed25519 {shown}"
            assert f"then: taco-launch -i {person.file} trust {host}" in said
    assert not (person.state / "known_hosts").exists()
    person.knows(BOTH, known_hosts=nothing, host_keys="accept-new")
    assert person.facts("gpu1", *SYSTEM)[0] == 0
    assert (person.state / "known_hosts").read_text().startswith(f"{person.addresses['gpu1']} ssh-ed25519 ")
    person.knows(BOTH, known_hosts=nothing)
    code, found, _said = person.facts(*SYSTEM)
    assert code == 5
    assert found["gpu1"]["system"]["hostname"] == "gpu1"
    assert "unknown host key" in found["gpu2"]


def test_a_changed_host_key(person: Person, tmp_path: Path) -> None:
    text = person.lab.sh("gpu1", "cat /etc/ssh/ssh_host_ed25519_key.pub")
    wrong = tmp_path / "wrong"
    wrong.write_text(f"# before gpu2 was installed anew\n{person.addresses['gpu2']} {text}")
    for mode in ("strict", "accept-new"):
        person.knows(BOTH, known_hosts=wrong, host_keys=mode)
        code, found, said = person.facts("gpu2", *SYSTEM)
        assert code == 5
        now, known = shown_by(person.lab, "gpu2"), shown_by(person.lab, "gpu1")
        assert f"has CHANGED: now ssh-ed25519 {now}, known is\n  {wrong}:2: ssh-ed25519 {known}" in found["gpu2"]
        assert f"hint: if it was installed anew: taco-launch -i {person.file} trust --replace gpu2" in said
    assert not (person.state / "known_hosts").exists()


def test_trust(person: Person, tmp_path: Path) -> None:
    nothing, own = tmp_path / "nothing", person.state / "known_hosts"
    nothing.touch()
    person.knows(BOTH, known_hosts=nothing)
    code, out, screen = person.on_terminal("trust", "gpu1", prompt="take 1 host key? [y/N]: ", answer="n")
    assert (code, own.exists()) == (1, False), screen
    assert out.splitlines()[1].split() == ["gpu1", "ssh-ed25519", shown_by(person.lab, "gpu1"), "new"]
    assert person.on_terminal("trust", "gpu1", prompt="take 1 host key? [y/N]: ", answer="y")[0] == 0
    done = person.taco("trust", "--yes", "--json")
    assert done.returncode == 0, done.stderr
    assert [(row["host"], row["state"]) for row in json.loads(done.stdout)] == [("gpu1", "known"), ("gpu2", "new")]
    assert [line.split()[0] for line in own.read_text().splitlines()] == [
        person.addresses[host] for host in ("gpu1", "gpu2")
    ]
    assert person.facts(*SYSTEM)[0] == 0
    swapped = own.read_text().splitlines()
    keys = [line.split(" ", 1)[1] for line in swapped]
    own.write_text("".join(f"{line.split()[0]} {key}\n" for line, key in zip(swapped, reversed(keys), strict=True)))
    refused = person.taco("trust", "--yes")
    assert refused.returncode == 1
    assert "gpu1: its host key is CHANGED" in refused.stderr
    assert person.facts(*SYSTEM)[0] == 5
    assert person.taco("trust", "--yes", "--replace").returncode == 0
    assert person.facts(*SYSTEM)[0] == 0


def test_hashed_known_hosts(person: Person, tmp_path: Path) -> None:
    hashed = tmp_path / "hashed"
    hashed.write_text((person.lab.folder / "known_hosts").read_text())
    subprocess.run(("ssh-keygen", "-q", "-H", "-f", str(hashed)), check=True, capture_output=True)
    assert person.addresses["gpu1"] not in hashed.read_text()
    person.knows(BOTH, known_hosts=hashed)
    assert person.facts(*SYSTEM)[0] == 0


# --- the way there


def listens(address: str, port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex((address, port)) == 0


def test_a_port_of_the_configuration(person: Person) -> None:
    person.knows(BOTH, config="Host gpu2\n  Port 2222\n")
    assert person.facts("gpu2", *SYSTEM)[1]["gpu2"] == (
        f"gpu2: no TCP connection to {person.addresses['gpu2']}:2222: Connection refused"
    )
    person.lab.sh("gpu2", "systemd-run --quiet --unit=test-sshd /usr/sbin/sshd -D -p 2222")
    try:
        eventually(lambda: listens(person.addresses["gpu2"], 2222), 30, "the second sshd")
        code, _found, said = person.facts("gpu2", *SYSTEM)
        assert code == 0, said
        listeners = person.facts("gpu2", "--only", "network")[1]["gpu2"]["network"]["listeners"]
        assert {22, 2222} <= {each["port"] for each in listeners}
    finally:
        person.lab.sh("gpu2", "systemctl stop test-sshd")


def test_a_jump_host_is_one_shared_connection(person: Person) -> None:
    names = tuple(f"inner{number}" for number in range(1, 6))
    middle = (
        f"Host middle\n  HostName {person.addresses['gpu1']}\n  User jumper\n  IdentityFile {person.keys / 'login'}\n"
    )
    person.knows(dict.fromkeys(names, "jumper@gpu2"), config=f"Host inner*\n  ProxyJump middle\n{middle}")
    before = len(accepted(person.lab, "gpu1", "jumper")), len(accepted(person.lab, "gpu2", "jumper"))
    code, found, said = person.facts(*SYSTEM)
    assert (code, said) == (0, "")
    assert {host["system"]["hostname"] for host in found.values()} == {"gpu2"}
    through = accepted(person.lab, "gpu2", "jumper")[before[1] :]
    assert [line.split()[5] for line in through] == [person.addresses["gpu1"]] * 5
    assert len(accepted(person.lab, "gpu1", "jumper")) - before[0] == 1
    with sshd_setting(person.lab, "gpu1", "AllowTcpForwarding no\n"):
        code, found, said = person.facts("inner1", *SYSTEM)
    assert code == 5
    assert "the jump host cannot connect to it" in found["inner1"]
    assert "does its sshd allow forwarding?" in said


def test_a_flooded_sshd_is_tried_again(person: Person) -> None:
    names = tuple(f"host{number}" for number in range(1, 5))
    person.knows(dict.fromkeys(names, "plain@gpu1"))
    with sshd_setting(person.lab, "gpu1", "MaxStartups 1:100:1\n"):
        before = len(journal(person.lab, "gpu1"))
        with socket.create_connection((person.addresses["gpu1"], 22)) as waiting:
            assert waiting.recv(4) == b"SSH-"  # it takes the only place
            argv = person.lab.argv("-i", str(person.file), "facts", "--json", *SYSTEM)
            process = subprocess.Popen(argv, env=person.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            eventually(
                lambda: any("MaxStartups" in line for line in journal(person.lab, "gpu1")[before:]), 20, "a refusal"
            )
        out, err = process.communicate(timeout=patience(60))
    assert process.returncode == 0, err
    assert set(logins.by_host(out)) == set(names)


# --- bytes, and what login shells do to them


def test_bytes_arrive_whatever_the_login_shell(person: Person, installing: "subprocess.Popen[bytes]") -> None:
    assert installing.wait(100) == 0
    names = ("plain", "noisy", "cshy", "tcshy", "fishy")
    person.knows({name: f"{name}@gpu2" for name in names})
    assert person.lab.sh("gpu2", "su fishy -c 'echo $version'").endswith("3.6.0")  # it is fish, and makes noise
    with sshd_setting(person.lab, "gpu2", "Banner /etc/motd\n"):
        code, found, said = person.facts()
        assert (code, said) == (0, "")
        assert {host["system"]["access"] for host in found.values()} == {"user"}
        data = EVERYTHING * 20_000  # larger than a channel's window

        def ask(transport: Any) -> None:
            words = transport.run(Command(("printf", r"%s\0", *ODD)))
            assert (words.exit_code, words.stdout, words.stderr) == (0, encoded(ODD), b"")
            shown = transport.run(Command(("env", "-0"), env=ENV)).stdout.split(b"\0")
            assert set(encoded(tuple(f"{key}={value}" for key, value in ENV)).split(b"\0")) <= set(shown)
            echoed = transport.run(Command(("sh", "-c", "cat; echo aside >&2; exit 3"), stdin=data))
            assert (echoed.exit_code, echoed.stdout == data, echoed.stderr) == (3, True, b"aside\n")

        with person.connected() as fanout:
            assert [answer.error for answer in fanout.each(ask)] == [None] * len(names)
