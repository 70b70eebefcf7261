"""What a set-up brings along from the controller: passwords, packages, the agent, and the files of the head."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from taco_launch.flows import setup_sources
from taco_launch.model.facts import Made, MadeFile
from taco_launch.model.found import Absent
from taco_launch.model.hosts import Container, Engine, Inventory, Registry
from taco_launch.setup import paths
from tests.cli.test_setup import PASSWORD, Simulated


def registry(file: str | None) -> Inventory:
    return Inventory("c", "a", (), Container("i", registry=Registry("me", file)), source="cluster.yaml")


def test_the_password_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\nanother line\n")
    assert setup_sources.password(registry(str(file)), {}) == PASSWORD
    for text in ("", "\nx\n"):
        file.write_text(text)
        with pytest.raises(Exception, match="its first line is empty"):
            setup_sources.password(registry(str(file)), {})
    file.unlink()
    with pytest.raises(Exception, match=r"password_file: .*: No such file or directory"):
        setup_sources.password(registry(str(file)), {setup_sources.VARIABLE: "x"})
    assert setup_sources.password(Inventory("c", "a", ()), {}) is None


def test_packages_of_a_folder(tmp_path: Path) -> None:
    engine = Engine("packages", packages=str(tmp_path))
    with pytest.raises(Exception, match=r"there is no \.deb or \.rpm file"):
        setup_sources.packages(engine)
    for name in ("b.deb", "a.deb", "read.me"):
        (tmp_path / name).write_text(name)
    assert setup_sources.packages(engine) == (("a.deb", b"a.deb"), ("b.deb", b"b.deb"))
    assert setup_sources.packages(Engine()) == ()


def test_files_are_fetched_whole_or_not_there(tmp_path: Path) -> None:
    data = bytes(range(256)) * 3 + b"\nnone\n7\n"
    (tmp_path / "a b").write_bytes(data)
    (tmp_path / "empty").touch()
    wanted = [str(tmp_path / name) for name in ("gone", "a b", "empty")]
    assert setup_sources.fetch(Simulated("gpu1"), wanted) == {wanted[1]: data, wanted[2]: b""}


def test_the_head_s_files_are_read_when_they_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {paths.key("c"): b"PRIVATE", paths.known_hosts("c"): b"one\n"}
    asked: list[list[str]] = []

    def fetch(_transport: Any, files: Sequence[str]) -> dict[str, bytes]:
        asked.append(list(files))
        return {path: there[path] for path in files}

    def made() -> Made:
        files = tuple(MadeFile(path, hashlib.sha256(data).hexdigest(), 0o600) for path, data in there.items())
        return Made(files, (), (), None, Absent(), "ssh-ed25519 AAAA", *[Absent()] * 7)

    monkeypatch.setattr(setup_sources, "fetch", fetch)
    head = setup_sources.HeadFiles("c")
    assert (head.cluster_key, head.known_hosts) == (None, "")
    for _ in range(2):
        head.read(Simulated("gpu1"), made())
    assert (head.cluster_key, head.known_hosts) == ((b"PRIVATE", "ssh-ed25519 AAAA"), "one\n")
    there[paths.known_hosts("c")] = b"two\n"
    head.read(Simulated("gpu1"), made())
    assert head.known_hosts == "two\n"
    del there[paths.key("c")]
    head.read(Simulated("gpu1"), made())
    assert head.cluster_key is None
    assert asked == [[paths.key("c"), paths.known_hosts("c")], [paths.known_hosts("c")]]


def test_the_agent_is_packed_only_where_it_is_missing() -> None:
    agent = setup_sources.Agent()
    bare = Made((), (), (), None, Absent(), Absent(), *[Absent()] * 7)
    name, data = agent.file([])
    assert data == b""
    there = replace(bare, files=(MadeFile(f"{paths.AGENT}/{name}", "0" * 64, 0o600),))
    assert agent.file([there]) == (name, b"")
    assert agent.file([there, bare])[1][:2] == b"PK"
