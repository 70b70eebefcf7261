"""What the controller has of an image: in a tar file of `docker save`, old and new, and in an engine that only says so."""

import io
import json
import os
import tarfile
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from taco_launch.core.errors import HostError
from taco_launch.core.model.host.hosts import Container
from taco_launch.setup.apply.image_source import image_on_controller, stream
from taco_launch.setup.model.ops import SourceImage
from taco_launch.setup.stage_parts.image_copy import common_layers
from tests.support.image_files import layered

CONFIG, MANIFEST = "1" * 64, "2" * 64


def saved(tags: list[str], *, oci: bool = False, mode: str = "w", empty: int = 0) -> bytes:
    """Write what docker writes: up to 24 (configuration and layers by name), and from 25 on (an OCI layout as well)."""
    config = f"blobs/sha256/{CONFIG}" if oci else f"{CONFIG}.json"
    files: dict[str, Any] = {config: {}, "manifest.json": [{"Config": config, "RepoTags": tags, "Layers": []}]}
    if oci:
        named = {"io.containerd.image.name": f"docker.io/library/{tags[0]}"}
        files["index.json"] = {"manifests": [{"digest": f"sha256:{MANIFEST}", "annotations": named}]}
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode) as tar:  # type: ignore[call-overload]
        for name, value in sorted(files.items()):
            data = json.dumps(value).encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
        for number in range(empty):
            tar.addfile(tarfile.TarInfo(f"empty-{number}"))
    return made.getvalue()


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        (saved(["train:1"]), {CONFIG}),
        (saved(["other:1", "train:1"], mode="w:gz"), {CONFIG}),
        (saved(["train:1"], oci=True), {CONFIG, MANIFEST}),
    ],
    ids=["before 25", "compressed", "an OCI layout"],
)
def test_a_tar_file_is_read_and_sent_as_it_is(tmp_path: Path, text: bytes, ids: set[str]) -> None:
    file = tmp_path / "image.tar"
    file.write_bytes(text)
    container = Container("docker.io/library/train:1", source=str(file))
    found = image_on_controller(container)
    assert isinstance(found, SourceImage)
    assert (found.where, set(found.ids)) == (str(file), {f"sha256:{each}" for each in ids})
    with stream(container) as opened:
        assert (opened.size, opened.sha256) == (len(text), sha256(text).hexdigest())
        assert opened.at(3, 10) == text[3:13]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (saved(["other:2"]), "holds other:2, not train:1"),
        (saved([]), "holds no image with a name, not train:1"),
        (saved(["train:1"], empty=5000), "is not a docker save archive: it has more than 4096 files"),
        (b"no tar at all", ": file could not be opened successfully"),
        (None, ": No such file or directory"),
    ],
)
def test_what_is_wrong_with_a_tar_file_is_said(tmp_path: Path, text: bytes | None, says: str) -> None:
    file = tmp_path / "image.tar"
    if text is not None:
        file.write_bytes(text)
    found = image_on_controller(Container("train:1", source=str(file)))
    assert isinstance(found, str)
    assert found.startswith(str(file))
    assert says in found


def engine(folder: Path, monkeypatch: pytest.MonkeyPatch, status: str = "[]", save: str = "cat $0.tar") -> None:
    (folder / "docker").write_text(
        "#!/bin/sh\n"
        f'case "$1 $2" in "image inspect") echo sha256:{MANIFEST} 5000 ;; info*) echo \'{status}\' ;; save*) {save} ;; esac\n'
    )
    (folder / "docker").chmod(0o755)
    (folder / "docker.tar").write_bytes(saved(["train:1"]))
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("TACO_LAUNCH_STATE", str(folder / "state"))


def test_what_the_engine_here_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    container = Container("train:1", source="controller")
    engine(tmp_path, monkeypatch)
    assert image_on_controller(container) == SourceImage("the controller", frozenset((f"sha256:{MANIFEST}",)), 5000)
    with stream(container) as opened:
        assert opened.at(0, opened.size) == saved(["train:1"])
        assert list((tmp_path / "state").iterdir()) == [], "it has a name"

    engine(tmp_path, monkeypatch, status='[["driver-type","io.containerd.snapshotter.v1"]]')
    found = image_on_controller(container)
    assert isinstance(found, SourceImage)
    assert found.ids == {f"sha256:{MANIFEST}", f"sha256:{CONFIG}"}  # hosts with another kind of engine say the latter

    engine(tmp_path, monkeypatch, save="echo half; echo no such image >&2; exit 1")
    with pytest.raises(HostError, match="this machine: docker save train:1: no such image"), stream(container):
        pass
    (tmp_path / "docker").write_text("#!/bin/sh\necho Error: No such image: train:1 >&2\nexit 1\n")
    assert str(image_on_controller(container)).endswith("train:1: Error: No such image: train:1")
    monkeypatch.setenv("PATH", str(tmp_path / "state"))
    assert str(image_on_controller(container)).endswith("train:1: No such file or directory")


def test_layers_that_all_hosts_have_are_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACO_LAUNCH_STATE", str(tmp_path / "state"))
    path = layered(
        tmp_path / "i.tar", {"a/layer.tar": "sha256:1", "b/layer.tar": "sha256:2", "c/layer.tar": "sha256:3"}
    )
    asked: list[list[str]] = []

    def known(layers: Sequence[str]) -> int:
        asked.append(list(layers))
        return 2

    container = Container("t:1", source=str(path))
    with stream(container, known) as found:
        text = found.at(0, found.size)
    assert asked == [["sha256:1", "sha256:2", "sha256:3"]]
    assert (found.left_out, found.sha256) == (2, sha256(text).hexdigest())
    with tarfile.open(fileobj=io.BytesIO(text)) as tar:
        assert tar.getnames() == ["c/layer.tar", "c.json", "manifest.json"]
        member = tar.extractfile("c/layer.tar")
        assert member is not None
        assert member.read() == b"data of c/layer.tar"
    layered(path, {"a/layer.tar": "sha256:1"}, images=2)  # whose layers these are is not clear
    with stream(container, known) as found:
        assert (found.left_out, found.at(0, found.size)) == (0, path.read_bytes())


def test_what_hosts_have_in_common() -> None:
    assert [common_layers("abc", other) for other in ("", "abd", "abcd", "xbc")] == [0, 2, 3, 0]
