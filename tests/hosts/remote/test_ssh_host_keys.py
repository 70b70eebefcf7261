"""Host keys of a real sshd: known ones pass, others are refused with fingerprints, `trust` keeps what a person agrees to."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from taco_launch.core.errors import HostError
from taco_launch.core.model.host.hosts import Host
from taco_launch.hosts import trust as flow
from taco_launch.hosts.fanout import connect
from taco_launch.hosts.remote.credentials import Credentials
from tests.hosts.conftest import WHOAMI, host, inventory, login, many
from tests.support.patience import patience
from tests.support.sshd import Sshd, keygen, why_not
from tests.support.sshd import sshd as started

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("home")]


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return tmp_path / "own-state" / "known_hosts"


def fingerprint(key: str, path: Path) -> str:
    path.write_text(f"{key}\n")
    shown = subprocess.run(["ssh-keygen", "-lf", str(path)], capture_output=True, text=True, check=True).stdout
    return shown.split()[1]


def test_an_unknown_key_is_refused_with_its_fingerprint(sshd: Sshd, own: Path, tmp_path: Path) -> None:
    with pytest.raises(HostError) as caught:
        login(host(sshd, "plain"), host_keys="strict")
    shown = fingerprint(sshd.host_key(), tmp_path / "key")
    assert caught.value.message == f"plain: unknown host key of [127.0.0.1]:{sshd.port}: ssh-ed25519 {shown}"
    assert (caught.value.hint or "").endswith(", then: taco-launch -i 'my cluster.yaml' trust plain")
    assert not own.exists()


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
@pytest.mark.parametrize("form", ["plain", "hashed", "pattern", "no port", "alias", "inventory"])
def test_a_known_key_of_any_kind_and_form(sshd: Sshd, home: Path, kind: str, form: str) -> None:
    file, name = home / ".ssh/known_hosts", f"[127.0.0.1]:{sshd.port}"
    if form == "inventory":
        file = home / "shipped"
    if form == "alias":
        (home / ".ssh/config").write_text("HostKeyAlias cluster\n")
    written = {"pattern": f"!10.*,[127.0.0.*]:{sshd.port}", "no port": "127.0.0.1", "alias": "cluster"}.get(form, name)
    file.write_text(f"# mine\n\n{written} {sshd.host_key(kind)} a comment\n")
    if form == "hashed":
        subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(file)], check=True, capture_output=True)
        assert name not in file.read_text()
    known = "~/shipped" if form == "inventory" else None
    entry = host(sshd, "plain")
    with connect(inventory(entry, host_keys="strict", known_hosts=known), (entry,), Credentials()) as fanout:
        assert fanout.transports[0].run(WHOAMI).stdout == b"plain\n"


@pytest.mark.parametrize("host_keys", ["strict", "accept-new"])
@pytest.mark.parametrize("kind", ["ed25519", "rsa"])
def test_a_changed_key_is_refused_with_both_fingerprints(
    sshd: Sshd, home: Path, own: Path, tmp_path: Path, host_keys: str, kind: str
) -> None:
    other = keygen(tmp_path / "other", kind).with_suffix(".pub").read_text().strip()
    file = home / ".ssh/known_hosts"
    file.write_text(f"# first\n[127.0.0.1]:{sshd.port} {other}\n")
    with pytest.raises(HostError, match="has CHANGED") as caught:
        login(host(sshd, "plain"), host_keys=host_keys)
    for key in (sshd.host_key(kind), other):
        assert fingerprint(key, tmp_path / "key") in caught.value.message
    assert f"{file}:2: " in caught.value.message
    assert caught.value.hint == "if the host was reinstalled: taco-launch -i 'my cluster.yaml' trust --replace plain"
    assert not own.exists()


def test_the_key_of_a_jump_host_is_left_to_ssh(sshd: Sshd, home: Path, tmp_path: Path) -> None:
    way = f"Host middle\n  HostName 127.0.0.2\n  Port {sshd.port}\n  User plain\n  IdentityFile {sshd.login}\n"
    (home / ".ssh/config").write_text(f"Host gpu1\n  ProxyJump other@middle:{sshd.port}\n{way}")
    with pytest.raises(HostError, match="gpu1: through the jump host middle: unknown host key") as caught:
        login(Host("gpu1", "gpu1"), host_keys="strict")
    assert (caught.value.hint or "").endswith(f", then: ssh -p {sshd.port} other@middle true")
    other = keygen(tmp_path / "other").with_suffix(".pub").read_text().strip()
    (home / ".ssh/known_hosts").write_text(f"[127.0.0.2]:{sshd.port} {other}\n")
    with pytest.raises(HostError, match="has CHANGED") as caught:
        login(Host("gpu1", "gpu1"))
    forget = f"ssh-keygen -R '[127.0.0.2]:{sshd.port}'"
    assert caught.value.hint == f"if the host was reinstalled: {forget}; ssh -p {sshd.port} other@middle true"


def test_revoked_and_certified_keys(sshd: Sshd, home: Path) -> None:
    file, name = home / ".ssh/known_hosts", f"[127.0.0.1]:{sshd.port}"
    file.write_text(f"{name} {sshd.host_key()}\n@revoked * {sshd.host_key()}\n")
    with pytest.raises(HostError, match="is revoked"):
        login(host(sshd, "plain"))
    file.write_text(f"@cert-authority * {sshd.host_key('rsa')}\n")
    with pytest.raises(HostError, match="trusts its certificate, but host certificates are not supported"):
        login(host(sshd, "plain"), host_keys="strict")


def test_accept_new_keeps_what_is_new(sshd: Sshd, home: Path, own: Path) -> None:
    hosts = many(sshd, 32, str(sshd.login))
    assert login(*hosts) == ["plain"] * 32
    assert sorted(own.read_text().splitlines()) == sorted(f"[{h.address}]:{sshd.port} {sshd.host_key()}" for h in hosts)
    assert own.stat().st_mode & 0o777 == 0o600
    assert login(*hosts, host_keys="strict") == ["plain"] * 32
    assert os.listdir(home / ".ssh") == []


def test_it_goes_on_as_the_known_hosts_of_ssh_itself(sshd: Sshd, own: Path) -> None:
    login(host(sshd, "plain"))
    argv = ["ssh", "-F", "none", "-i", str(sshd.login), "-p", str(sshd.port), "-o", f"UserKnownHostsFile={own}"]
    argv += ["-o", "StrictHostKeyChecking=yes", "-o", "BatchMode=yes", "plain@127.0.0.1", "true"]
    assert subprocess.run(argv, check=False).returncode == 0


# --- trust


@pytest.fixture
def changing(tmp_path: Path) -> Iterator[tuple[Sshd, Path]]:
    if reason := why_not():
        pytest.skip(reason)
    with started(tmp_path / "sshd") as made:
        file = tmp_path / "cluster.yaml"
        file.write_text(
            f"cluster: c\nssh: {{user: root, identity_file: {made.login}}}\ndefaults: {{port: {made.port}}}\n"
            'hosts:\n  gpu[1-2]: {address: "127.0.0.[1-2]"}\n  gpu3: {address: 127.0.0.3, port: 1}\n'
        )
        yield made, file


def trust(file: Path, *args: str) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-m", "taco_launch", "-i", str(file), "trust", *args]
    return subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=patience(60), check=False
    )


def test_trust(changing: tuple[Sshd, Path], own: Path, tmp_path: Path) -> None:
    sshd, file = changing
    mine = fingerprint(sshd.host_key(), tmp_path / "key")
    asked = trust(file, "gpu1", "gpu2")
    assert asked.returncode == 2
    assert "stdin is not a terminal" in asked.stderr
    assert asked.stdout.splitlines()[1].split() == ["gpu1", "ssh-ed25519", mine, "new"]
    assert not own.exists()
    done = trust(file, "--yes")
    assert done.returncode == 5  # gpu3 does not exist, and keeps nobody from trusting the others
    assert "gpu3: no TCP connection" in done.stderr
    assert f"stored 2 host keys in {own}" in done.stderr
    data = json.loads(trust(file, "gpu1", "--json").stdout)
    assert [(row["host"], row["state"], row["fingerprint"]) for row in data] == [("gpu1", "known", mine)]
    assert trust(file, "gpu1", "--yes").returncode == 0


def test_trust_after_a_host_was_installed_anew(changing: tuple[Sshd, Path], own: Path, tmp_path: Path) -> None:
    sshd, file = changing
    other = keygen(tmp_path / "other").with_suffix(".pub").read_text().strip()
    own.parent.mkdir()
    own.write_text(f"[127.0.0.1]:{sshd.port} {other}\n[127.0.0.9]:22 {other}\n")
    refused = trust(file, "gpu1", "--yes")
    assert refused.returncode == 1
    assert "its host key is CHANGED" in refused.stderr
    assert f"if the host was reinstalled: taco-launch -i {file} trust --replace gpu1" in refused.stderr
    assert trust(file, "gpu1", "--yes", "--replace").returncode == 0
    assert own.read_text() == f"[127.0.0.9]:22 {other}\n[127.0.0.1]:{sshd.port} {sshd.host_key()}\n"


def test_a_key_that_was_replaced_is_not_known_by_another_file(
    changing: tuple[Sshd, Path], home: Path, tmp_path: Path
) -> None:
    sshd, file = changing
    other = keygen(tmp_path / "other").with_suffix(".pub").read_text().strip()
    theirs, name = home / ".ssh/known_hosts", f"[127.0.0.1]:{sshd.port}"
    theirs.write_text(f"{name} {other}\n")
    done = trust(file, "gpu1", "--yes", "--replace")
    assert done.returncode == 0
    assert f"gpu1: its old key is still in {theirs}; " in done.stderr
    assert f"ssh-keygen -R '{name}' -f {theirs}" in done.stderr
    entry = replace(host(sshd, "gpu1"), user="root")
    assert login(entry, host_keys="strict") == ["root"]


def test_trust_asks_for_no_passphrase(sshd: Sshd, tmp_path: Path) -> None:
    def ask(prompt: str) -> str:
        raise AssertionError(prompt)

    key = keygen(tmp_path / "key", passphrase="secret")
    entry = replace(host(sshd, "plain"), identity_file=str(key))
    found = flow.read_host_keys(flow.prepare(inventory(entry), (entry,), Credentials(None, ask)))
    assert [(shown.host, shown.state) for shown in found.shown] == [("plain", "new")]


def test_trust_asks_the_others_where_one_has_no_way(sshd: Sshd, home: Path) -> None:
    (home / ".ssh/config").write_text("Host bad\n  ProxyJump a:b\n")
    entries = (Host("bad", "bad"), host(sshd, "plain"))
    found = flow.read_host_keys(flow.prepare(inventory(*entries), entries, Credentials()))
    assert [shown.host for shown in found.shown] == ["plain"]
    assert [answer.host for answer in found.failed] == ["bad"]


def test_trust_asks(changing: tuple[Sshd, Path], own: Path) -> None:
    for answer, code in ((b"n\n", 1), (b"y\n", 0)):
        master, slave = pty.openpty()
        argv = [sys.executable, "-m", "taco_launch", "-i", str(changing[1]), "trust", "gpu1"]
        process = subprocess.Popen(argv, stdin=slave, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        os.close(slave)
        os.write(master, answer)
        _out, err = process.communicate(timeout=patience(60))
        os.close(master)
        assert (process.returncode, b"accept 1 host key?" in err) == (code, True)
        assert own.exists() == (code == 0)
