"""Known_hosts files: read as ssh-keygen reads them, and our own written whole, private, by many at once."""

import base64
import shutil
import subprocess
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from taco_launch.core.errors import HostError
from taco_launch.core.model.host.hosts import Host
from taco_launch.hosts.ssh.config import Config
from taco_launch.hosts.ssh.host_key_policy import Verifier
from taco_launch.hosts.ssh.host_keys import HostKey, HostKeyStatus, KnownHosts
from tests.support.patience import HANG
from tests.support.threads import side_by_side

ED = HostKey("ssh-ed25519", b"\0\0\0\x0bssh-ed25519\0\0\0 " + b"a" * 32)
OTHER = HostKey("ssh-ed25519", b"\0\0\0\x0bssh-ed25519\0\0\0 " + b"b" * 32)
RSA = HostKey("ssh-rsa", b"\0\0\0\x07ssh-rsa\0\0\0\x01\x03\0\0\0\x09" + b"\0" + b"\x81" * 8)


def line(names: str, key: HostKey, marker: str = "") -> str:
    return f"{marker}{names} {key.kind} {base64.b64encode(key.blob).decode()}\n"


def known(tmp_path: Path, text: str) -> KnownHosts:
    (tmp_path / "user").write_text(text)
    return KnownHosts(tmp_path / "own" / "known_hosts", (str(tmp_path / "user"),))


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("", "new"),
        (line("gpu1", ED), "known"),
        (line("other,GPU1", ED), "known"),
        (line("gpu?,!gpu1", ED), "new"),
        (line("*", ED), "known"),
        (line("gpu1", OTHER), "changed"),
        (line("gpu1", OTHER) + line("gpu1", ED), "known"),
        (line("gpu1", RSA), "changed"),  # it was requested the known kind first
        (line("gpu1", ED) + line("*", ED, "@revoked "), "revoked"),
        (line("*", OTHER, "@revoked "), "new"),
        (line("*", ED, "@cert-authority "), "new"),
        ("gpu1 ssh-ed25519 !!!\n# " + line("gpu1", ED) + "gpu1\n\n", "new"),
        ("gpu1 ssh-ed25519 " + "A" * 5 + "\n", "new"),
    ],
)
def test_what_lines_say(tmp_path: Path, text: str, state: str) -> None:
    assert known(tmp_path, text).judge("gpu1", ED, ()).state == state


def test_ports(tmp_path: Path) -> None:
    hosts = known(tmp_path, line("[gpu1]:2222", OTHER) + line("gpu1", ED))
    assert hosts.judge("[gpu1]:2222", ED, ()).state == "changed"
    assert hosts.judge("[gpu1]:2223", ED, ()).state == "known"
    assert hosts.judge("[gpu1]:2223", OTHER, ()).state == "new"
    assert hosts.kinds("[gpu1]:2223", ()) == ("ssh-ed25519",)


@pytest.mark.skipif(
    not shutil.which("ssh-keygen"), reason="ssh-keygen is not installed (apt-get install openssh-client)"
)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.from_regex(r"[a-z0-9.]{1,12}|\[[a-z0-9.]{1,9}\]:[1-9][0-9]{0,3}", fullmatch=True))
def test_hashed_names_and_fingerprints(tmp_path: Path, name: str) -> None:
    file = tmp_path / "hashed"
    file.write_text(line(name, ED) + line("another", OTHER))
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(file)], check=True, capture_output=True)
    assert not any(entry.startswith(f"{name} ") for entry in file.read_text().splitlines())
    hosts = KnownHosts(tmp_path / "own", (str(file),))
    assert hosts.judge(name, ED, ()).state == "known"
    assert hosts.judge(f"x{name}", ED, ()).state == "new"
    shown = subprocess.run(["ssh-keygen", "-lf", str(file)], capture_output=True, text=True, check=True).stdout
    assert ED.fingerprint in shown


def test_ours_is_written_by_many_at_once(tmp_path: Path) -> None:
    path = tmp_path / "state" / "known_hosts"

    def add(number: int) -> None:
        KnownHosts(path).add([(f"gpu{number}", ED)])

    side_by_side(add, ((number,) for number in range(30)))
    assert sorted(path.read_text().splitlines(keepends=True)) == sorted(line(f"gpu{n}", ED) for n in range(30))
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    hosts = KnownHosts(path)
    assert hosts.judge("gpu7", OTHER, ()).state == "changed"
    hosts.add([("gpu7", OTHER)])
    assert hosts.judge("gpu7", OTHER, ()).state == "known"
    assert hosts.judge("gpu7", ED, ()).state == "changed"


def test_a_key_that_took_anothers_place_is_the_only_one(tmp_path: Path) -> None:
    hosts = known(tmp_path, line("gpu1", ED) + line("gpu1", RSA))
    hosts.add([("gpu1", OTHER)])
    assert [hosts.judge("gpu1", key, ()).state for key in (ED, OTHER, RSA)] == ["changed", "known", "known"]


@pytest.mark.parametrize("shared", [True, False])
def test_of_two_first_contacts_one_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool) -> None:
    """Both find the host unknown before either writes; `shared`: in one process, otherwise in two."""
    path, both, results = tmp_path / "own" / "known_hosts", threading.Barrier(2), []
    judge, first = KnownHosts.judge, threading.local()

    def together(self: KnownHosts, name: str, key: HostKey, files: object) -> HostKeyStatus:
        del files
        verdict = judge(self, name, key, ())
        if not hasattr(first, "done"):
            first.done = True
            both.wait(HANG)
        return verdict

    monkeypatch.setattr(KnownHosts, "judge", together)
    one = KnownHosts(path)
    known_hosts = (one, one if shared else KnownHosts(path))
    route = Config({}, ()).route(Host("gpu1", "gpu1", user="root"))

    def contact(number: int) -> None:
        try:
            Verifier(known_hosts[number], "accept-new", "cluster.yaml", frozenset(("gpu1",))).check(
                route, (ED, OTHER)[number]
            )
            results.append("taken")
        except HostError as error:
            results.append("CHANGED" if "has CHANGED" in error.message else error.message)

    side_by_side(contact, ((number,) for number in range(2)))
    assert sorted(results) == ["CHANGED", "taken"]
    assert len(path.read_text().splitlines()) == 1


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(HostError, match="cannot read host keys"):
        KnownHosts(tmp_path / "own").judge("a", ED, [str(tmp_path / "folder")])
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError, match="cannot keep host keys"):
        KnownHosts(tmp_path / "file" / "known_hosts").add([("a", ED)])
