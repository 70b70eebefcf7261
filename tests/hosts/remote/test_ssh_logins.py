"""Ways to a real sshd: ~/.ssh/config, kinds of keys, agent, certificates, jump hosts, ProxyCommand; what cannot be is told."""

import contextlib
import re
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from taco_launch.core.errors import HostError
from taco_launch.core.model.host.hosts import Host
from taco_launch.hosts.remote.credentials import Credentials
from tests.hosts.conftest import host, login, many
from tests.support.patience import HANG
from tests.support.sshd import Sshd, agent, keygen, why_not
from tests.support.sshd import sshd as started

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("home")]


def authorize(sshd: Sshd, public: Path, options: str = "") -> None:
    with (sshd.folder / "authorized").open("a") as file:
        file.write(f"{options}{' ' if options else ''}{public.read_text()}")


# --- keys


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("ed25519", ()),
        ("ecdsa", ("-b", "256")),
        ("ecdsa", ("-b", "521")),
        ("rsa", ("-b", "2048")),
        ("rsa", ("-b", "2048", "-m", "PEM")),
        ("rsa", ("-b", "2048", "-m", "PKCS8")),
        ("ecdsa", ("-b", "384", "-m", "PEM")),
    ],
)
@pytest.mark.parametrize("passphrase", ["", "sésame"])
def test_kinds_of_keys(sshd: Sshd, tmp_path: Path, kind: str, options: tuple[str, ...], passphrase: str) -> None:
    key = keygen(tmp_path / "key", kind, *options, passphrase=passphrase)
    authorize(sshd, key.with_suffix(".pub"))
    asked: list[str] = []

    def ask(prompt: str) -> str:
        asked.append(prompt)
        return passphrase if len(asked) > 1 else "wrong"

    hosts = many(sshd, 8, str(key))
    assert login(*hosts, access=Credentials(None, ask)) == ["plain"] * 8
    wanted = [f"passphrase of {key}: ", f"once more, passphrase of {key}: "] if passphrase else []
    assert asked == wanted  # once for all hosts


def test_an_encrypted_key_without_a_terminal(sshd: Sshd, tmp_path: Path) -> None:
    key = keygen(tmp_path / "key", passphrase="secret")
    with pytest.raises(HostError, match="no terminal to ask for its passphrase") as caught:
        login(replace(host(sshd, "plain"), identity_file=str(key)))
    assert f"ssh-add {key}" in caught.value.message
    assert caught.value.hint == f"load the key into ssh-agent, which asks for its passphrase: ssh-add {key}"


def test_default_keys_are_found(sshd: Sshd, home: Path) -> None:
    (home / ".ssh/id_ed25519").write_bytes(sshd.login.read_bytes())
    keygen(home / ".ssh/id_rsa", "rsa", passphrase="never requested")
    assert login(replace(host(sshd, "plain"), identity_file=None)) == ["plain"]


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_agent(sshd: Sshd, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    key, other = keygen(tmp_path / "key", kind), keygen(tmp_path / "other")
    authorize(sshd, key.with_suffix(".pub"))
    with agent(other, key) as path:
        key.unlink()
        monkeypatch.setenv("SSH_AUTH_SOCK", path)
        hosts = many(sshd, 32, None)
        assert login(*hosts) == ["plain"] * 32  # at once: their signatures do not mix
        monkeypatch.delenv("SSH_AUTH_SOCK")
        (home / ".ssh/config").write_text(f"IdentityAgent {path}\n")
        assert login(hosts[0]) == ["plain"]
        (home / ".ssh/config").write_text(f"IdentityAgent {path}\nIdentityFile {key}.pub\nIdentitiesOnly yes\n")
        assert login(hosts[0]) == ["plain"]
        (home / ".ssh/config").write_text(f"IdentityAgent {path}\nIdentityFile {other}\nIdentitiesOnly yes\n")
        with pytest.raises(HostError, match="does not accept a key of plain"):
            login(hosts[0])


def test_an_encrypted_key_that_the_agent_holds_is_not_asked_for(
    sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = keygen(tmp_path / "plain")
    authorize(sshd, plain.with_suffix(".pub"))
    with agent(plain) as path:
        subprocess.run(["ssh-keygen", "-q", "-p", "-f", str(plain), "-N", "secret"], check=True)
        monkeypatch.setenv("SSH_AUTH_SOCK", path)
        assert login(replace(host(sshd, "plain"), identity_file=str(plain))) == ["plain"]


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_certificates(sshd: Sshd, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    authority, key = keygen(tmp_path / "authority"), keygen(tmp_path / "key", kind)
    authorize(sshd, authority.with_suffix(".pub"), "cert-authority")
    sign = ["ssh-keygen", "-q", "-s", str(authority), "-I", "me", "-n", "plain", f"{key}.pub"]
    subprocess.run(sign, check=True)
    entry = replace(host(sshd, "plain"), identity_file=str(key))
    assert login(entry) == ["plain"]  # key-cert.pub
    with agent(key) as path:
        monkeypatch.setenv("SSH_AUTH_SOCK", path)
        assert login(entry) == ["plain"]
        monkeypatch.delenv("SSH_AUTH_SOCK")
    moved = (tmp_path / "key-cert.pub").rename(tmp_path / "elsewhere")
    with pytest.raises(HostError, match="does not accept a key of plain"):
        login(entry)
    (home / ".ssh/config").write_text(f"CertificateFile {moved}\n")
    assert login(entry) == ["plain"]


# --- what cannot be


def test_what_was_offered_and_what_the_host_takes(sshd: Sshd, tmp_path: Path) -> None:
    key = keygen(tmp_path / "key")
    with pytest.raises(HostError) as caught:
        login(replace(host(sshd, "plain"), identity_file=str(key)))
    assert caught.value.message == (
        f"plain: 127.0.0.1:{sshd.port}: it does not accept a key of plain\n"
        f"  offered: {key}\n  the host accepts: publickey"
    )
    assert caught.value.hint == (
        "check user and identity_file of plain in the inventory (User and IdentityFile in ~/.ssh/config); if they are "
        f"correct, put a public key there: ssh-copy-id -i {key} -p {sshd.port} plain@127.0.0.1"
    )
    with pytest.raises(HostError, match="there was no key to offer") as caught:
        login(replace(host(sshd, "plain"), identity_file=None))
    assert "ssh-keygen" in (caught.value.hint or "")
    with pytest.raises(HostError, match=r"not offered: .*/gone: no such file") as caught:
        login(replace(host(sshd, "plain"), identity_file=f"{tmp_path}/gone"))
    assert caught.value.hint
    assert "name it" not in caught.value.hint
    assert caught.value.hint.endswith(f"ls -l {tmp_path}/gone")


def test_more_keys_than_the_host_hears(sshd: Sshd, home: Path, tmp_path: Path) -> None:
    keys = [keygen(tmp_path / f"key{number}") for number in range(9)]
    (home / ".ssh/config").write_text("".join(f"IdentityFile {key}\n" for key in keys))
    with pytest.raises(HostError) as caught:
        login(replace(host(sshd, "plain"), identity_file=None))
    assert caught.value.message.splitlines()[1:] == [
        f"  offered: {', '.join(map(str, keys[:6]))}",
        "  then it hung up: too many keys were offered (MaxAuthTries)",
    ]
    assert (
        caught.value.hint == "offer fewer keys: set IdentitiesOnly in ~/.ssh/config, or identity_file in the inventory"
    )


def test_a_host_that_wants_passwords(tmp_path: Path) -> None:
    if reason := why_not():
        pytest.skip(reason)
    options = "PubkeyAuthentication no\nPasswordAuthentication yes"
    with started(tmp_path / "sshd", options=options) as sshd:
        with pytest.raises(HostError, match="the host accepts: password") as caught:
            login(host(sshd, "root"))
        assert "only logins by key" in (caught.value.hint or "")
    options = "AuthenticationMethods publickey,password\nPasswordAuthentication yes"
    second = pytest.raises(HostError, match="the host requires a second factor")
    with started(tmp_path / "sshd", options=options) as sshd, second:
        login(host(sshd, "root"))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("-----BEGIN DSA PRIVATE KEY-----\nabcd\n-----END DSA PRIVATE KEY-----\n", "is a DSA key"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nabcd\n-----END OPENSSH PRIVATE KEY-----\n", "is it truncated, damaged"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEA\n-----END", "is it truncated, damaged"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nabcd\n-----END RSA PRIVATE KEY-----\n",
            "is it truncated.* ssh-keygen -y -f ",
        ),
        ("-----BEGIN PUBLIC KEY-----\nabcd\n-----END PUBLIC KEY-----\n", "it has no line BEGIN ... PRIVATE KEY$"),
        (
            "PuTTY-User-Key-File-3: ssh-ed25519\n",
            "is in PuTTY's format; convert it: puttygen .*/key -O private-openssh -o ",
        ),
        ("hello\n", "is not a private key: it has no line BEGIN ... PRIVATE KEY$"),
        ("", "is empty$"),
        (None, "no such file"),
    ],
)
def test_key_files_that_are_none(sshd: Sshd, tmp_path: Path, content: str | None, problem: str) -> None:
    key = tmp_path / "key"
    if content is not None:
        key.write_text(content)
    with pytest.raises(HostError, match=f"(?m)not offered: {key}.*{problem}"):
        login(replace(host(sshd, "plain"), identity_file=str(key)))


def test_nothing_listens() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        with pytest.raises(HostError, match=f"gpu1: no TCP connection to 127.0.0.1:{port}: Connection refused"):
            login(Host("gpu1", "127.0.0.1", port=port))
    with pytest.raises(HostError, match=r"gpu1: no address for no-such-host\.invalid"):
        login(Host("gpu1", "no-such-host.invalid"))


@contextmanager
def dropping() -> Iterator[int]:
    """Return a port whose queue is full: further packets that would connect are dropped."""
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.socket())
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _filler in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        yield full.getsockname()[1]


def test_a_firewall_that_drops(home: Path) -> None:
    (home / ".ssh/config").write_text("ConnectTimeout 1\n")
    said = "gpu1: waited 1 s for a TCP connection to 127.0.0.1:"
    with dropping() as port, pytest.raises(HostError, match=f"{said}{port}"):
        login(Host("gpu1", "127.0.0.1", port=port))


def test_a_firewall_that_drops_behind_a_jump_host(sshd: Sshd, home: Path) -> None:
    (home / ".ssh/config").write_text(
        f"Host gpu1\n  HostName 127.0.0.1\n  ProxyJump middle\n  ConnectTimeout 1\n"
        f"Host middle\n  HostName 127.0.0.2\n  Port {sshd.port}\n  User plain\n  IdentityFile {sshd.login}\n"
    )
    with dropping() as port:
        begun = time.monotonic()
        with pytest.raises(HostError, match=f"gpu1: waited 1 s for middle to connect to 127.0.0.1:{port}"):
            login(Host("gpu1", "gpu1", port=port))
        assert time.monotonic() - begun < HANG


def test_a_flooded_sshd_is_tried_again(sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taco_launch.hosts.ssh.connection.random.uniform", lambda _low, _high: 0.1)
    port, refusals = 0, 3
    with socket.socket() as front:
        front.bind(("127.0.0.1", 0))
        front.listen()
        port = front.getsockname()[1]

        def serve() -> None:
            for _refusal in range(refusals):
                front.accept()[0].close()  # as MaxStartups does it
            if refusals == 7:
                return
            client, _ = front.accept()
            server = socket.create_connection(("127.0.0.1", sshd.port))
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=_copy, args=(one, other), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        assert login(replace(host(sshd, "plain"), port=port)) == ["plain"]
        refusals = 7
        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(HostError, match=r"sshd does not answer \(7 tries\)") as caught:
            login(replace(host(sshd, "plain"), port=port))
        assert "MaxStartups" in (caught.value.hint or "")


def _copy(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(65536):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)


# --- the way there


def test_the_users_configuration(sshd: Sshd, home: Path) -> None:
    (home / ".ssh/config").write_text("Include conf.d/*\n")
    (home / ".ssh/conf.d").mkdir()
    (home / ".ssh/conf.d/a").write_text(
        f"Host gpu*\n  HostName 127.0.0.1\n  Port {sshd.port}\n  User plain\n  IdentityFile {sshd.login}\n"
    )
    assert login(Host("gpu1", "gpu1")) == ["plain"]
    assert login(Host("gpu1", "gpu1", user="free")) == ["free"]  # the inventory's word goes before


def test_jump_hosts(home: Path, tmp_path: Path) -> None:
    if reason := why_not():
        pytest.skip(reason)
    with started(tmp_path / "one") as outer, started(tmp_path / "two") as inner:
        for each in (outer, inner):
            (each.folder / "authorized").write_text((outer.folder / "login.pub").read_text())
        (home / ".ssh/config").write_text(
            f"Host gpu*\n  HostName 127.0.0.1\n  Port {inner.port}\n  User root\n  ProxyJump middle\n"
            f"Host middle\n  HostName 127.0.0.2\n  Port {inner.port}\n  User root\n  ProxyJump root@127.0.0.3:{outer.port}\n"
            f"Host *\n  IdentityFile {outer.login}\n"
        )
        hosts = tuple(Host(f"gpu{number}", f"gpu{number}") for number in range(1, 6))
        assert login(*hosts) == ["root"] * 5
        assert outer.log().count("Accepted publickey") == 1  # one connection for all hosts, and one hop behind it
        assert inner.log().count("Accepted publickey") == 6
        direct = Host("gpu9", "gpu9")
        text = (home / ".ssh/config").read_text()
        (home / ".ssh/config").write_text("Host gpu9\n  HostName 127.0.0.1\n  Port 1\n" + text)
        with pytest.raises(HostError, match=r"gpu9: 127.0.0.1:1: the jump host cannot connect to it: "):
            login(direct)
        (home / ".ssh/config").write_text(text.replace(f"127.0.0.3:{outer.port}", "127.0.0.3:1"))
        far = r"gpu1: through the jump host middle: through the jump host 127\.0\.0\.3: no TCP connection"
        with pytest.raises(HostError, match=far):
            login(*hosts)
        (home / ".ssh/config").write_text("Host a\n  ProxyJump b\nHost b\n  ProxyJump a\n")
        with pytest.raises(HostError, match="jump to itself"):
            login(Host("a", "a"))


def test_proxy_command(sshd: Sshd, home: Path, tmp_path: Path) -> None:
    script = tmp_path / "proxy.py"
    script.write_text(
        "import socket, sys, threading\n"
        "s = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
        "def up():\n"
        "    while data := sys.stdin.buffer.raw.read(65536): s.sendall(data)\n"
        "threading.Thread(target=up, daemon=True).start()\n"
        "while data := s.recv(65536):\n"
        "    sys.stdout.buffer.write(data)\n    sys.stdout.flush()\n"
    )
    (home / ".ssh/config").write_text(f"ProxyCommand exec python3 {script} %h %p\n")
    assert login(host(sshd, "plain")) == ["plain"]
    (home / ".ssh/config").write_text("ProxyCommand sh -c 'echo no way to %h >&2; exit 1'\n")
    with pytest.raises(HostError, match=re.escape("plain: its ProxyCommand printed: no way to 127.0.0.1")):
        login(host(sshd, "plain"))
    (home / ".ssh/config").write_text("ProxyCommand nc %h %p 2>/dev/null\n")
    with pytest.raises(HostError, match="it needs a shell, but taco-launch runs it without one"):
        login(host(sshd, "plain"))
    (home / ".ssh/config").write_text("ProxyCommand /no/such/proxy\n")
    with pytest.raises(HostError, match="cannot run its ProxyCommand /no/such/proxy"):
        login(host(sshd, "plain"))
