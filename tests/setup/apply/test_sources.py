"""What a set-up brings along from the controller: passwords, packages, the agent, and the files of the head."""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from taco_launch.core.command import Command, Result
from taco_launch.core.errors import HostError, UsageError
from taco_launch.core.model.host import paths
from taco_launch.core.model.host.fact_value import Absent
from taco_launch.core.model.host.facts import SetupFile, SetupState
from taco_launch.core.model.host.hosts import Container, DockerEngine, Inventory, Registry
from taco_launch.core.model.host.image_reference import parse_reference
from taco_launch.setup.apply import sources
from tests.support.simulated_setup import PASSWORD, Simulated


def registry(file: str | None) -> Inventory:
    return Inventory("c", "a", (), Container("i", registry=Registry("me", file)), source="cluster.yaml")


def test_the_password_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\nanother line\n")
    assert sources.password(registry(str(file)), None) == PASSWORD
    for text in ("", "\nx\n"):
        file.write_text(text)
        with pytest.raises(Exception, match="its first line is empty"):
            sources.password(registry(str(file)), None)
    file.unlink()
    with pytest.raises(Exception, match=r"password_file: .*: No such file or directory"):
        sources.password(registry(str(file)), "x")
    assert sources.password(Inventory("c", "a", ()), None) is None


def test_the_key_of_a_repository(tmp_path: Path) -> None:
    file = tmp_path / "gpgkey"
    file.write_bytes(b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n")
    assert sources.signing_key("toolkit", str(file)) == file.read_bytes()
    assert sources.signing_key("toolkit", None) is None
    file.write_bytes(b"\x99\x02")
    with pytest.raises(UsageError, match=r"toolkit\.key: .* is not an ASCII-armored PGP key"):
        sources.signing_key("toolkit", str(file))
    file.unlink()
    with pytest.raises(UsageError, match=r"toolkit\.key: .*: No such file or directory"):
        sources.signing_key("toolkit", str(file))


def test_packages_of_a_folder(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"there is no \.deb or \.rpm file"):
        sources.packages(str(tmp_path), "docker.packages")
    for name in ("b.deb", "a.deb", "read.me"):
        (tmp_path / name).write_text(name)
    assert sources.packages(str(tmp_path), "docker.packages") == (("a.deb", b"a.deb"), ("b.deb", b"b.deb"))
    assert sources.packages(None, "docker.packages") == ()


class Asked(Simulated):
    """A host whose curl gives this answer, and keeps what it was asked."""

    def __init__(self, code: int, stdout: str, stderr: str = "") -> None:
        super().__init__("gpu1")
        self.answer = (code, stdout.encode(), stderr.encode())

    def run(self, command: Command) -> Result:
        self.asked = command
        return Result("gpu1", command, *self.answer, 0.1)


def test_the_registry_is_asked_by_a_host_s_engine_and_no_argument_holds_the_password() -> None:
    reference = parse_reference("r.example:5000/train:1")
    host = Asked(0, '{"Descriptor": {"digest": "sha256:aa", "size": 1}}')
    assert sources.latest(host, reference, "me", PASSWORD, 60) == "sha256:aa"
    assert host.asked.argv[-1] == "http://localhost/distribution/r.example:5000/train:1/json"
    assert host.asked.sudo
    assert PASSWORD not in " ".join(host.asked.argv)
    header = host.asked.stdin.decode().partition(": ")[2].strip().strip('"')
    assert json.loads(base64.urlsafe_b64decode(header)) == {
        "username": "me",
        "password": PASSWORD,
        "serveraddress": "r.example:5000",
    }
    sources.latest(host, reference, None, None, 60)
    assert host.asked.stdin == b""


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((0, '{"message": "errors:\\ndenied"}\n'), "errors:\ndenied"),
        ((127, "", "sh: curl: not found\n"), "sh: curl: not found"),
        ((0, "page not found"), "page not found"),
        ((0, "[]"), "[]"),
        ((7, ""), "curl ended with exit code 7"),
    ],
)
def test_why_the_registry_cannot_be_asked(answer: Any, said: str) -> None:
    with pytest.raises(HostError) as caught:
        sources.latest(Asked(*answer), parse_reference("t:1"), None, None, 60)
    assert caught.value.message == f"gpu1: cannot get the current version of t:1 from the registry: {said}"
    assert "Without --pull, hosts keep their image" in str(caught.value.hint)


def test_what_no_log_shows() -> None:
    proxy = (("http", "http://u:p%40ss@x:1"), ("https", "http://y:1"), ("no", "a"))
    found = sources.secrets(Inventory("c", "a", (), docker=DockerEngine(proxy=proxy)), PASSWORD)
    assert found == (PASSWORD, "p%40ss")
    assert sources.secrets(Inventory("c", "a", ()), None) == ()


def test_files_are_fetched_whole_or_not_there(tmp_path: Path) -> None:
    data = bytes(range(256)) * 3 + b"\nnone\n7\n"
    (tmp_path / "a b").write_bytes(data)
    (tmp_path / "empty").touch()
    wanted = [str(tmp_path / name) for name in ("gone", "a b", "empty")]
    assert sources.fetch(Simulated("gpu1"), wanted) == {wanted[1]: data, wanted[2]: b""}


def test_the_head_s_files_are_read_when_they_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {paths.key("c"): b"PRIVATE", paths.known_hosts("c"): b"one\n"}
    asked: list[list[str]] = []

    def fetch(_transport: Any, files: Sequence[str]) -> dict[str, bytes]:
        asked.append(list(files))
        return {path: there[path] for path in files}

    def made() -> SetupState:
        files = tuple(SetupFile(path, hashlib.sha256(data).hexdigest(), 0o600) for path, data in there.items())
        return SetupState(files, (), (), None, Absent(), "ssh-ed25519 AAAA", *[Absent()] * 7)

    monkeypatch.setattr(sources, "fetch", fetch)
    head = sources.HeadFiles("c")
    assert (head.cluster_key, head.known_hosts) == (None, "")
    for _ in range(2):
        head.read(Simulated("gpu1"), made())
    assert (head.cluster_key, head.known_hosts) == ((b"PRIVATE", "ssh-ed25519 AAAA"), "one\n")
    there[paths.known_hosts("c")] = b"two\n"
    head.read(Simulated("gpu1"), made())
    assert head.known_hosts == "two\n"
    there[paths.known_hosts("c")] = b"three\n"
    head.read(Simulated("gpu2"), made(), is_head=False)  # the head does not answer any more
    assert (head.cluster_key, head.known_hosts) == ((b"PRIVATE", "ssh-ed25519 AAAA"), "three\n")
    del there[paths.key("c")]
    head.read(Simulated("gpu1"), made())
    assert head.cluster_key is None
    assert asked == [[paths.key("c"), paths.known_hosts("c")], *[[paths.known_hosts("c")]] * 2]


def test_another_member_tells_the_host_keys_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {paths.key("c"): b"PRIVATE", paths.known_hosts("c"): b"one\n"}
    monkeypatch.setattr(sources, "fetch", lambda _transport, files: {path: there[path] for path in files})
    files = tuple(SetupFile(path, hashlib.sha256(data).hexdigest(), 0o600) for path, data in there.items())
    head = sources.HeadFiles("c")
    head.read(
        Simulated("gpu2"), SetupState(files, (), (), None, Absent(), "ssh-ed25519 AAAA", *[Absent()] * 7), is_head=False
    )
    assert (head.cluster_key, head.known_hosts) == (None, "one\n")


def test_secret_files_of_a_stage_are_read_from_the_head_alone_and_again_when_they_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = {paths.MUNGE_KEY: b"SECRET"}
    monkeypatch.setattr(sources, "fetch", lambda _transport, files: {path: there[path] for path in files})

    def read(head: sources.HeadFiles, *, is_head: bool = True) -> Mapping[str, bytes]:
        files = tuple(SetupFile(path, hashlib.sha256(data).hexdigest(), 0o400) for path, data in there.items())
        state = SetupState(files, (), (), None, Absent(), Absent(), *[Absent()] * 7)
        head.read(Simulated("gpu1"), state, is_head=is_head)
        return head.more

    assert read(sources.HeadFiles("c")) == {}
    head = sources.HeadFiles("c", (paths.MUNGE_KEY,))
    assert read(head, is_head=False) == {}
    assert read(head) == {paths.MUNGE_KEY: b"SECRET"}
    there[paths.MUNGE_KEY] = b"NEW"
    assert read(head) == {paths.MUNGE_KEY: b"NEW"}
    there.clear()
    assert read(head) == {}


def test_the_agent_is_packed_only_where_it_is_missing() -> None:
    agent = sources.Agent()
    bare = SetupState((), (), (), None, Absent(), Absent(), *[Absent()] * 7)
    name, data = agent.file([])
    assert data == b""
    there = replace(bare, files=(SetupFile(f"{paths.AGENT}/{name}", "0" * 64, 0o600),))
    assert agent.file([there]) == (name, b"")
    assert agent.file([there, bare])[1][:2] == b"PK"
