"""The controller's own copy of the training image: in its engine, or in a tar file; and the stream that hosts get of it."""

import contextlib
import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from taco_launch.agent.store import untrusted
from taco_launch.agent.store.folders import make_private, state_folder
from taco_launch.core.command import shell
from taco_launch.core.errors import HostError, last_line
from taco_launch.core.frozen import dataclass
from taco_launch.core.model import codec
from taco_launch.core.model.host.hosts import Container
from taco_launch.core.model.host.image_reference import parse_reference
from taco_launch.setup.model.ops import SourceImage

_SECONDS = 20
_CHUNK = 1 << 20
_MOST_JSON = 16 << 20
# An image has at most 127 layers (moby, layer/layer_store.go), of up to four files each.
_MOST_MEMBERS = 4096
_SHA256_DIGITS = 64


@dataclass(frozen=True)
class ImageStream:
    """What hosts get, as `docker load` takes it: an open file of `size` bytes, and its SHA-256."""

    fd: int
    size: int
    sha256: str
    # How many layers it is without, as all hosts have them.
    left_out: int = 0

    def at(self, offset: int, length: int) -> bytes:
        """Return the bytes from an offset on, as many as there are; any thread may ask."""
        return os.pread(self.fd, length, offset)


def image_on_controller(container: Container) -> SourceImage | str:
    """Look what the controller has of an image that no registry gives; text says why there is nothing to be had."""
    try:
        if container.source == "controller":
            return _of_engine(container.image)
        with _opened(container.source) as file, tarfile.open(fileobj=file) as tar:
            return _read(tar, container.image, container.source)
    except HostError as error:
        return error.message
    except (tarfile.TarError, EOFError, OSError) as error:
        return f"{container.source}: {getattr(error, 'strerror', None) or error}"


@contextlib.contextmanager
def stream(container: Container, known: Callable[[Sequence[str]], int] = lambda _layers: 0) -> Iterator[ImageStream]:
    """Open the stream of an image; what docker saves of it lies in a file without a name meanwhile.

    `known` returns how many of the image's layers, of which it is given the diff IDs from the lowest on, all hosts have: the
    stream is without these. `docker load` does not read a layer that is there (moby, image/tarexport/load.go).

    Raises:
        HostError: docker does not give it, the file cannot be read, or this machine has no room.
    """
    try:
        with contextlib.ExitStack() as stack:
            if container.source == "controller":
                file: IO[bytes] = stack.enter_context(_scratch())
                with _saved(container.image) as saved:
                    shutil.copyfileobj(saved, file, _CHUNK)
                file.flush()
            else:
                file = stack.enter_context(_opened(container.source))
            left_out = _layers(file, known)
            if left_out:
                whole, file = file, stack.enter_context(_scratch())
                _copy_without(left_out, whole, file)
            file.seek(0)
            digest = hashlib.sha256()
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
            yield ImageStream(file.fileno(), os.fstat(file.fileno()).st_size, digest.hexdigest(), len(left_out))
    except OSError as error:
        raise HostError(
            f"this machine: {container.image}: the image data cannot be read or written: {error.strerror or error}",
            hint="check the free disk space, or use another state folder: TACO_LAUNCH_STATE=FOLDER",
        ) from None


def _scratch() -> IO[bytes]:
    folder = state_folder(os.environ, os.geteuid())
    make_private(folder)
    return tempfile.TemporaryFile(dir=folder)


def _layers(file: IO[bytes], known: Callable[[Sequence[str]], int]) -> frozenset[str]:
    """Return the names of the layers in a tar file that hosts have already; none where it holds several images."""
    file.seek(0)
    try:
        with tarfile.open(fileobj=file) as tar:
            (entry,) = _json(tar, "manifest.json")
            config = _json(tar, entry["Config"])
            layers, ids = [str(name) for name in entry["Layers"]], [str(each) for each in config["rootfs"]["diff_ids"]]
    except (tarfile.TarError, EOFError, KeyError, TypeError, ValueError):
        return frozenset()
    return frozenset(layers[: known(ids)]) if len(layers) == len(ids) else frozenset()


def _json(tar: tarfile.TarFile, name: str) -> Any:
    member = tar.getmember(name)
    file = tar.extractfile(member) if member.size <= _MOST_JSON else None
    return codec.load(file.read() if file else b"")


def _copy_without(names: frozenset[str], whole: IO[bytes], slim: IO[bytes]) -> None:
    whole.seek(0)
    with tarfile.open(fileobj=whole) as tar, tarfile.open(fileobj=slim, mode="w|") as made:
        for member in tar:
            if member.name not in names:
                made.addfile(member, tar.extractfile(member) if member.isreg() else None)
    slim.flush()


def _opened(path: str) -> IO[bytes]:
    return os.fdopen(untrusted.open_named(Path(path).expanduser()), "rb")


def _of_engine(image: str) -> SourceImage:
    asked = _docker("image", "inspect", "--format", "{{.Id}} {{.Size}}", parse_reference(image).name)
    identity, size = asked.split()
    if "containerd" in _docker("info", "--format", "{{json .DriverStatus}}"):
        # Such an engine calls an image by its manifest, others by its configuration: the stream tells both.
        with _saved(image) as saved, tarfile.open(fileobj=saved, mode="r|") as tar:
            read = _read(tar, image, "the controller")
        return SourceImage("the controller", read.ids | {identity}, read.size)
    return SourceImage("the controller", frozenset((identity,)), int(size))


def _docker(*words: str) -> str:
    argv = ("docker", *words)
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HostError(f"this machine: {shell(argv)}: {getattr(error, 'strerror', None) or error}") from None
    if done.returncode:
        raise HostError(f"this machine: {shell(argv)}: {last_line(done.stderr) or f'exit code {done.returncode}'}")
    return done.stdout.decode("utf-8", "replace")


@contextlib.contextmanager
def _saved(image: str) -> Iterator[IO[bytes]]:
    argv = ("docker", "save", parse_reference(image).name)
    with tempfile.TemporaryFile() as said:
        with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said) as process:
            assert process.stdout is not None
            try:
                yield process.stdout
                while process.stdout.read(_CHUNK):  # what a reader of tar files leaves
                    pass
            except BaseException:
                process.kill()
                raise
        if process.returncode:
            said.seek(0)
            raise HostError(f"this machine: {shell(argv)}: {last_line(said.read())}")


def _read(tar: tarfile.TarFile, image: str, where: str) -> SourceImage:
    """Read what a stream of `docker save` holds of an image.

    Raises:
        HostError: it holds no such image.
    """
    found: dict[str, Any] = {}
    size = 0
    for number, member in enumerate(tar):
        if number == _MOST_MEMBERS:
            raise HostError(f"{where} is not a docker save archive: it has more than {_MOST_MEMBERS} files")
        size += member.size
        if member.name in ("manifest.json", "index.json") and member.isfile() and member.size <= _MOST_JSON:
            file = tar.extractfile(member)
            with contextlib.suppress(ValueError):
                found[member.name] = codec.load(file.read() if file else b"")
    wanted = parse_reference(image).name
    try:
        images = {
            parse_reference(tag).name: entry["Config"]
            for entry in found["manifest.json"]
            for tag in entry["RepoTags"] or ()
        }
        manifests = found["index.json"]["manifests"] if "index.json" in found else ()
        digests = {
            entry["digest"]
            for entry in manifests
            if len(manifests) == 1
            or parse_reference(entry.get("annotations", {}).get("io.containerd.image.name", "")).name == wanted
        }
    except (KeyError, TypeError, AttributeError):
        raise HostError(
            f"{where} is not a docker save archive: it contains no manifest.json that lists images"
        ) from None
    if wanted not in images:
        raise HostError(f"{where} holds {', '.join(images) or 'no image with a name'}, not {wanted}")
    config = images[wanted].rpartition("/")[2].removesuffix(".json")
    ids = {f"sha256:{config}"} if len(config) == _SHA256_DIGITS else set()
    return SourceImage(where, frozenset(ids | digests), size)
