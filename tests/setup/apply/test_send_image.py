"""One image to many hosts: here the hosts are folders of this machine, with a sshd each, and an engine that says where."""

import fcntl
import hashlib
import os
import shutil
import socket
import subprocess
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import pytest

from taco_launch.core.command import Command, Result
from taco_launch.core.errors import HostError
from taco_launch.core.model.host import paths
from taco_launch.core.model.host.hosts import Container, Host, Inventory
from taco_launch.hosts.fanout import Fanout
from taco_launch.hosts.remote.local import LocalTransport
from taco_launch.setup.apply import image_source, send_image
from taco_launch.setup.apply.host_ops import SetupEvent
from taco_launch.setup.model.ops import SourceImage
from tests.conftest import eventually
from tests.support.image_files import layered
from tests.support.patience import patience

_SSH, _SSHD = shutil.which("ssh"), shutil.which("sshd", path=f"/usr/sbin:{os.environ['PATH']}")
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not (_SSH and _SSHD), reason="cannot: there is no ssh or no sshd on this machine"),
]
GIVEN = SourceImage("a file", frozenset(("sha256:" + "1" * 64,)), 1 << 20)


@contextmanager
def _one_by_one() -> Iterator[None]:
    """Keep hosts, and other processes of these tests, from trying the same of this machine's ports at once."""
    with (Path(tempfile.gettempdir()) / "taco-launch-test-ports").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Folder(LocalTransport):
    """A host that is a folder of this machine: what would lie in /run lies there, and the engine's folder is in it."""

    def __init__(self, name: str, folder: Path, base: str) -> None:
        super().__init__(name)
        self.folder = folder
        self.sent = 0
        self.gone = False
        self._path = f"{folder}/bin:{os.environ['PATH']}"
        (folder / "bin").mkdir(parents=True)
        self.give("docker", f"echo {folder}/root")
        self.give("ssh", f'for word; do :; done; echo "$word" >>{base}/asked; exec {_SSH} "$@"')
        self.give("sshd", f'exec {_SSHD} "$@" -o StrictModes=no -o UsePAM=no')  # /tmp is everybody's; and no root

    def give(self, name: str, body: str) -> None:
        (self.folder / "bin" / name).write_text(f"#!/bin/sh\n{body}\n")
        (self.folder / "bin" / name).chmod(0o755)

    def _here(self, command: Command) -> Command:
        if self.gone:
            raise HostError(f"{self.name}: it is gone")
        argv = tuple(word.replace(paths.RUN, f"{self.folder}/run") for word in command.argv)
        return replace(command, argv=argv, env=(("PATH", self._path),), sudo=False)

    def run(self, command: Command) -> Result:
        self.sent += len(command.stdin) if "take" in command.argv else 0
        with _one_by_one() if "begin" in command.argv else nullcontext():
            return super().run(self._here(command))

    @contextmanager
    def tail(self, command: Command) -> Iterator[IO[bytes]]:
        with super().tail(self._here(command)) as lines:
            yield lines

    @property
    def streams(self) -> list[Path]:
        return sorted((self.folder / "root" / "tmp").iterdir())


def _port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _alive(folder: Path) -> str:
    return subprocess.run(("pgrep", "-af", str(folder)), capture_output=True, text=True, check=False).stdout


class Site:
    """Hosts, the stream that they are to get, and what is said."""

    def __init__(self, folder: Path, count: int, size: int, port: int | None = None) -> None:
        self.data = os.urandom(size)
        (folder / "image.tar").write_bytes(self.data)
        self.hosts = [Folder(f"gpu{number}", folder / f"gpu{number}", str(folder)) for number in range(1, count + 1)]
        container = Container("train:1", ssh_port=port or _port(), source=str(folder / "image.tar"))
        named = tuple(Host(host.name, "127.0.0.1") for host in self.hosts)
        self.inventory = Inventory("c", "gpu1", named, container)
        self.said: list[str] = []
        self.steps: list[SetupEvent] = []

    def copy(self) -> Any:
        return send_image.copy(Fanout(tuple(self.hosts)), self.inventory, GIVEN, self.steps.append, self.said.append)

    def whole(self, host: Folder) -> bool:
        (stream,) = host.streams
        return stream.name == "taco-launch-image.tar" and stream.read_bytes() == self.data

    @property
    def sent(self) -> int:
        return sum(host.sent for host in self.hosts)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Have the controller send little at a time, and no more than a quarter before the event is set."""
    monkeypatch.setattr(send_image, "_LEAST", 1 << 16)
    monkeypatch.setattr(send_image, "_MOST", 1 << 16)
    monkeypatch.setattr(send_image, "_TELL_SECONDS", 0.0)
    monkeypatch.setattr(send_image, "_AGAIN_SECONDS", 0.1)
    at = image_source.ImageStream.at
    go_on = threading.Event()

    def slowly(stream: image_source.ImageStream, offset: int, length: int) -> bytes:
        if offset >= stream.size // 4:
            go_on.wait(patience(30))
        return at(stream, offset, length)

    monkeypatch.setattr(image_source.ImageStream, "at", slowly)
    return go_on


def test_who_takes_from_a_host_that_dies_goes_on_with_another_where_it_was(
    tmp_path: Path, slow: threading.Event
) -> None:
    site = Site(tmp_path, 4, 2 << 20)
    second = site.hosts[1]

    def dies(step: SetupEvent) -> None:
        """Have gpu2, which gpu4 takes from, end in the middle, with all that runs there."""
        if step.host == "gpu4" and not second.gone and int(step.what.split()[2]):
            second.gone = True
            subprocess.run(("pkill", "-9", "-f", f"{second.folder}/run"), check=False)
            shutil.rmtree(second.folder / "run", ignore_errors=True)
            slow.set()

    failed = send_image.copy(Fanout(tuple(site.hosts)), site.inventory, GIVEN, dies, site.said.append)
    assert list(failed) == ["gpu2"]
    assert second.gone
    assert [site.whole(host) for host in site.hosts if host is not second] == [True] * 3
    assert site.sent == len(site.data), site.said
    assert any(line.startswith("gpu4 gets no more of the image from gpu2: ") for line in site.said)
    offsets = [int(line.split()[1]) for line in (tmp_path / "asked").read_text().splitlines()]
    assert 0 < max(offsets) < len(site.data), "it started anew"

    second.gone = False
    sent = site.sent
    assert site.copy() == {}  # the command again: the others keep what they have
    assert [site.whole(host) for host in site.hosts] == [True] * 4
    assert site.sent == sent
    eventually(lambda: not _alive(tmp_path), 9, "no sshd and no watch to be left")


def test_what_came_wrong_comes_again_and_hosts_that_cannot_talk_get_it_one_by_one(tmp_path: Path) -> None:
    site = Site(tmp_path, 3, 1 << 20)
    first, second, third = site.hosts
    assert site.copy() == {}
    assert site.sent == len(site.data)
    assert site.said[-1].startswith("train:1 (1 MiB) reached 3 hosts in ")
    assert site.said[-1].endswith(" s; the controller sent 1 MiB")
    # On a busy machine the whole of a copy may be reported twice.
    givers = {step.host: step.what.rpartition(" from ")[2] for step in site.steps if "100 %" in step.what}
    assert sorted(givers.values()) == ["gpu1", "gpu1", "the controller"]
    assert [list((host.folder / "run").iterdir()) for host in site.hosts] == [[], [], []]
    (stream,) = first.streams
    stream.write_bytes(site.data[:-1] + b"?" if site.data[-1:] != b"?" else site.data[:-1] + b"!")
    second.streams[0].unlink()
    third.streams[0].unlink()
    (third.folder / "root" / "tmp" / "taco-launch-image-of-another.part").write_bytes(b"old")
    (third.folder / "root" / "tmp" / "taco-launch-image.tar").write_bytes(b"x" * (2 << 20))  # of another image, larger
    for host in (second, third):
        host.give("ssh", "echo 'ssh: connect to host 127.0.0.1: No route to host' >&2; exit 255")
    assert site.copy() == {}
    assert [site.whole(host) for host in site.hosts] == [True] * 3
    assert site.sent == len(site.data) * 4
    said = "gets no more of the image from gpu1: ssh: connect to host 127.0.0.1: No route to host"
    assert f"gpu2 {said}" in site.said


def test_a_port_that_a_connection_leaves_from_is_no_port_to_serve_at(tmp_path: Path) -> None:
    """sshd would take it for IPv6 alone, and say nothing."""
    with socket.create_server(("127.0.0.1", 0)) as other, socket.create_connection(other.getsockname()) as held:
        site = Site(tmp_path, 2, 1 << 16, port=held.getsockname()[1])
        assert site.copy() == {}
    assert site.sent == len(site.data), site.said


def test_a_slow_line_carries_it_packed(tmp_path: Path, slow: threading.Event) -> None:
    slow.set()
    site = Site(tmp_path, 1, 1)
    site.data = bytes(range(256)) * 2048
    (tmp_path / "image.tar").write_bytes(site.data)
    run = LocalTransport.run

    def slowly(host: LocalTransport, command: Command) -> Result:
        time.sleep(len(command.stdin) / 4e6)
        return run(host, command)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalTransport, "run", slowly)
        assert site.copy() == {}
    assert site.whole(site.hosts[0])
    assert site.sent < len(site.data) / 4


def test_a_host_without_room_is_told_and_keeps_no_other(tmp_path: Path) -> None:
    site = Site(tmp_path, 2, 1 << 16)
    site.hosts[0].give("df", "echo; echo fs 1 1 1023 1% /")
    failed = site.copy()
    takes = "0 MiB are free, and the image takes about 3 MiB: docker image prune"
    assert [str(error) for error in failed.values()] == [
        f"gpu1: copy train:1: {site.hosts[0].folder}/root/tmp: {takes}"
    ]
    assert site.whole(site.hosts[1])


def test_a_host_that_gives_what_is_wrong_spoils_no_other(tmp_path: Path) -> None:
    site = Site(tmp_path, 3, 1 << 18)
    kept = site.hosts[0].folder / "root" / "tmp" / "taco-launch-image.tar"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"?" * len(site.data))  # it says that it has all of it, and that it is right
    site.hosts[0].give("sha256sum", f"echo {hashlib.sha256(site.data).hexdigest()}")
    assert site.copy() == {}
    assert [site.whole(host) for host in site.hosts[1:]] == [True] * 2
    assert any("the data from gpu1 differs from what was sent (SHA-256)" in line for line in site.said), site.said


def test_a_host_that_gives_without_an_end_fills_no_disk(tmp_path: Path) -> None:
    site = Site(tmp_path, 2, 1 << 18)
    site.hosts[1].give("ssh", "exec cat /dev/zero")
    sizes: list[int] = []

    def look(_step: SetupEvent) -> None:
        sizes.extend(file.stat().st_size for file in site.hosts[1].streams)

    assert send_image.copy(Fanout(tuple(site.hosts)), site.inventory, GIVEN, look, site.said.append) == {}
    assert max(sizes) <= len(site.data)
    assert site.whole(site.hosts[1])


def test_a_line_without_an_end_is_its_hosts_error(tmp_path: Path) -> None:
    site = Site(tmp_path, 2, 1 << 18)
    site.hosts[1].give("ssh", "sleep 60")
    tail = Folder.tail

    @contextmanager
    def endless(host: Folder, command: Command) -> Iterator[IO[bytes]]:
        with tail(host, replace(command, argv=("sh", "-c", "tr '\\0' 7 </dev/zero"))) as lines:
            yield lines

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Folder, "tail", endless)
        assert site.copy() == {}  # from the controller then
    assert [site.whole(host) for host in site.hosts] == [True] * 2


@pytest.mark.parametrize(
    ("status", "names"),
    [("[]", ["b/layer.tar", "c/layer.tar"]), ('[["driver-type","io.containerd.snapshotter.v1"]]', None)],
)
def test_layers_that_all_hosts_have_do_not_travel(tmp_path: Path, status: str, names: list[str] | None) -> None:
    site = Site(tmp_path, 2, 1)
    layered(tmp_path / "image.tar", {f"{name}/layer.tar": f"sha256:{name}" for name in "abc"})
    for host, has in zip(site.hosts, ('["sha256:a","sha256:b"]\n["sha256:x"]', '["sha256:a","sha256:z"]'), strict=True):
        answers = (
            f"""*DriverStatus*) echo '{status}' ;; 'image ls'*) echo 1 ;; 'image inspect'*) printf '%s\\n' '{has}' ;;"""
        )
        host.give("docker", f"case $* in {answers} *) echo {host.folder}/root ;; esac")
    assert site.copy() == {}
    for host in site.hosts:
        with tarfile.open(host.streams[0]) as tar:
            layers = [name for name in tar.getnames() if name.endswith("layer.tar")]
        assert layers == (names or ["a/layer.tar", "b/layer.tar", "c/layer.tar"])
    assert any(
        line.startswith("train:1: the hosts already have 1 of its layers; copying the remaining ") for line in site.said
    ) == bool(names)
