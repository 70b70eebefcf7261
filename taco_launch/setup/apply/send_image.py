"""One image to many hosts: the controller sends one copy, hosts pass it on as it comes, and a cut one continues where it was."""

import base64
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from taco_launch.core.command import Command, Result
from taco_launch.core.errors import HostError, TacoLaunchError, last_line
from taco_launch.core.manifest import size_text
from taco_launch.core.model import codec
from taco_launch.core.model.host import paths
from taco_launch.core.model.host.hosts import Inventory
from taco_launch.hosts.fanout import Fanout
from taco_launch.hosts.inventory.ranges import fold
from taco_launch.hosts.remote.reply_errors import lines as bounded_lines
from taco_launch.hosts.remote.reply_errors import understood
from taco_launch.hosts.remote.transport import Transport
from taco_launch.setup import scripts
from taco_launch.setup.apply import image_source
from taco_launch.setup.apply.host_ops import SetupEvent
from taco_launch.setup.model.ops import SourceImage
from taco_launch.setup.stage_parts.image_copy import (
    CONTROLLER,
    SLOW,
    TransferNode,
    common_layers,
    compression_worthwhile,
    order,
    source,
)

# The layers of all images, as JSON; nothing where the engine has containerd's image store.
_LAYERS = """
case $(docker info --format '{{json .DriverStatus}}') in *containerd*) echo '[]'; exit ;; esac
images=$(docker image ls -q --no-trunc | sort -u | head -n 200)
[ -n "$images" ] || { echo '[]'; exit; }
# shellcheck disable=SC2086 # words
docker image inspect --format '{{json .RootFS.Layers}}' $images | { printf '['; tr '\\n' ',' | sed 's/,$//'; echo ']'; }
"""
_FOLDER = f"{paths.RUN}/image-copy"
_SCRIPT = "image_copy.sh"
_WRONG = 3
_BEGIN_SECONDS, _TAKE_SECONDS, _CHECK_SECONDS = 90, 150, 3600
# Ports after the one of the container's sshd, which is open between the hosts: a container may be there already.
_PORTS = 10
# What goes to a host in one command: as much as takes about so long.
_LEAST, _MOST, _CHUNK_SECONDS = 1 << 20, 32 << 20, 2.0
_TRIES, _AGAIN_SECONDS = 3, 2.0
_STALLED_SECONDS = 60
_SLOWEST = 1e5  # bytes a second: a slower link takes longer than anybody waits
_WAIT_SECONDS = 5
_TELL_SECONDS = 1.0
_GZIP = 31  # zlib.compressobj


def copy(
    hosts: Fanout,
    inventory: Inventory,
    given: SourceImage,
    report: Callable[[SetupEvent], None],
    say: Callable[[str], None] = lambda _what: None,
) -> Mapping[str, TacoLaunchError]:
    """Bring the stream of the inventory's image to all `hosts`, ready for load.sh; give those that failed, and why.

    `report` is told how far each host is, from many threads; `say` what concerns all of them.

    Raises:
        HostError: the controller cannot read its own image.
    """
    container = inventory.container
    if container is None:
        raise ValueError("no container")
    say(f"reads {container.image} of {given.where}")
    lists = _layers(hosts)

    def known(layers: Sequence[str]) -> int:
        return min(max((common_layers(layers, each) for each in of_host), default=0) for of_host in lists)

    with image_source.stream(container, known) as stream:
        if stream.left_out:
            say(
                f"{container.image}: the hosts already have {stream.left_out} of its layers; "
                f"copying the remaining {size_text(stream.size)}"
            )
        return _Copy(inventory, given, stream, report, say).bring(hosts)


def _layers(hosts: Fanout) -> list[list[list[str]]]:
    """Return the layers of each image of each host, by their diff IDs; nothing of a host that does not tell.

    An engine with containerd's image store gets whole images: it takes no stream without a layer.
    """
    found = []
    for answer in hosts.each(
        lambda transport: transport.run(Command(("/bin/sh", "-c", _LAYERS), sudo=True, timeout=_BEGIN_SECONDS))
    ):
        try:
            images = codec.load(answer.value.stdout) if answer.value is not None and not answer.value.exit_code else []
        except ValueError:
            images = []
        lists = images if isinstance(images, list) else []
        found.append([[str(layer) for layer in each] for each in lists if isinstance(each, list)])
    return found


class _Copy:
    """One copy on its way."""

    def __init__(
        self,
        inventory: Inventory,
        given: SourceImage,
        stream: image_source.ImageStream,
        report: Callable[[SetupEvent], None],
        say: Callable[[str], None],
    ) -> None:
        self._hosts = {host.name: host for host in inventory.hosts}
        assert inventory.container is not None
        self._image = inventory.container.image
        ports = [*range(inventory.container.ssh_port, inventory.container.ssh_port + _PORTS)]
        if inventory.network.port_range is not None:
            first, last = inventory.network.port_range
            ports += range(first, min(last, first + _PORTS - 1) + 1)
        self._wanted_ports = tuple(str(port) for port in ports if port < 1 << 16)
        self._given = given
        self._stream = stream
        self._report = report
        self._say = say
        self._changed = threading.Condition()
        self._nodes: dict[str, TransferNode] = {}
        self._ports: dict[str, str] = {}
        self._told: dict[str, float] = {}
        self._silent: dict[str, str] = {}  # why others cannot take it from a host
        self._gave: dict[str, set[str]] = {}  # from which hosts each has taken
        self._sent = 0
        self._files = _files()

    def bring(self, hosts: Fanout) -> Mapping[str, TacoLaunchError]:
        """Do all of it."""
        begun = time.monotonic()
        failed = {answer.host: answer.error for answer in hosts.each(self._begin) if answer.error is not None}
        self._nodes = {each.name: self._nodes[each.name] for each in hosts.transports if each.name in self._nodes}
        names = order(self._nodes)
        for name in names:
            self._nodes[name] = replace(self._nodes[name], source=source(name, self._nodes, self._stream.size))
        if self._silent and len(names) > 1:
            whys = "; ".join(dict.fromkeys(self._silent.values()))
            self._say(f"{fold(tuple(self._silent))}: no other host can get the image from there: {whys}")
        by_name = {each.name: each for each in hosts.transports}
        ordered = Fanout(tuple(by_name[name] for name in names))  # sources before those that take from them
        failed |= {answer.host: answer.error for answer in ordered.each(self._fill) if answer.error is not None}
        whole = ordered.only([name for name in names if name not in failed])
        failed |= {answer.host: answer.error for answer in whole.each(self._finish) if answer.error is not None}
        ordered.only(failed).each(self._end)
        count, seconds = len(names) - len(failed.keys() & set(names)), time.monotonic() - begun
        self._say(
            f"{self._image} ({size_text(self._stream.size)}) reached {count} host{'s' if count != 1 else ''} "
            f"in {seconds:.0f} s; the controller sent {size_text(self._sent)}"
        )
        return failed

    def _begin(self, transport: Transport) -> None:
        kib = self._given.space >> 10
        words = ("begin", self._stream.sha256, str(self._stream.size), str(kib), transport.name, *self._wanted_ports)
        result = self._run(transport, words, self._files, _BEGIN_SECONDS, there=False)
        with understood(transport.name, "the start of the copy"):
            said = result.stdout.decode("utf-8", "replace").splitlines()
            told = dict(line.split(" ", 1) for line in said if " " in line)
            port, _, why = told["port"].partition(" ")
            has = self._size(told["has"], port)
        with self._changed:
            self._nodes[transport.name] = TransferNode(has, serves=port != "none")
            self._ports[transport.name] = port
            if port == "none":
                self._silent[transport.name] = why

    def _size(self, told: str | bytes, port: str = "none") -> int:
        """Return how many bytes of the stream a host has, by its own word, which is checked with that on its port.

        Raises:
            ValueError: the word is wrong.
        """
        has = int(told)
        if not 0 <= has <= self._stream.size or not (port == "none" or 0 < int(port) < 1 << 16):
            raise ValueError(f"{has} bytes of {self._stream.size}, port {port:.20}")
        return has

    def _fill(self, transport: Transport) -> None:
        """Have one host get all of the stream, from whoever can give it."""
        try:
            self._get(transport)
        except BaseException:
            with self._changed:
                self._nodes[transport.name] = replace(self._nodes[transport.name], gone=True, source=None)
                self._changed.notify_all()
            raise

    def _get(self, transport: Transport) -> None:
        for _again in range(2):
            self._take(transport)
            result = self._run(transport, ("check", self._stream.sha256), seconds=_CHECK_SECONDS, fails=(_WRONG,))
            if result.exit_code != _WRONG:
                return
            self._distrust(transport.name)
        raise HostError(
            f"{transport.name}: {self._image}: the received data differed from the sent data twice (SHA-256)",
            hint="check its disk and memory: run dmesg on the host",
        )

    def _distrust(self, name: str) -> None:
        """Have a host start over, from the controller alone: it cannot tell which of the others gave what is wrong."""
        givers = self._gave.pop(name, set())
        with self._changed:
            node = self._nodes[name]
            self._nodes[name] = replace(node, refused=node.refused | self._nodes.keys() - {name}, source=None)
        self._now(name, 0)
        if givers:
            self._say(
                f"{name}: the data from {fold(tuple(sorted(givers)))} differs from what was sent (SHA-256): it now gets everything from "
                "the controller"
            )

    def _take(self, transport: Transport) -> None:
        name, failures = transport.name, 0
        while (before := self._nodes[name].has) < self._stream.size:
            giver = self._source(transport)
            try:
                if giver == CONTROLLER:
                    self._from_controller(transport)
                else:
                    self._gave.setdefault(name, set()).add(giver)
                    self._from_host(transport, giver)
            except HostError:
                failures = 1 if self._nodes[name].has > before else failures + 1
                if failures == _TRIES:
                    raise
                time.sleep(_AGAIN_SECONDS * failures)
            with self._changed:
                node = replace(self._nodes[name], source=None)
                if giver != CONTROLLER and node.has == before:
                    node = replace(node, refused=node.refused | {giver})
                self._nodes[name] = node
                self._changed.notify_all()

    def _source(self, transport: Transport) -> str:
        """Return the host, or the controller, that is to give to this one; wait until there is one."""
        name = transport.name
        while True:
            with self._changed:
                node = self._nodes[name]
                above = node.source
                if above is None or (above and self._nodes[above].gone):
                    self._nodes[name] = replace(node, source=None)
                    above = source(name, self._nodes, self._stream.size)
                if above is not None:
                    self._nodes[name] = replace(node, source=above)
                    return above
                self._changed.wait(_WAIT_SECONDS)
            self._has(transport)  # and so it hears of us

    def _from_controller(self, transport: Transport) -> None:
        at, length, rate = self._has(transport), _LEAST, 0.0
        while at < self._stream.size:
            data = self._stream.at(at, length)
            begun = time.monotonic()
            packed = _packed(data) if 0 < rate < SLOW else data
            if packed is not data and not compression_worthwhile(
                len(data), len(packed), time.monotonic() - begun, rate
            ):
                packed = data
            form = ("gzip",) if packed is not data else ()
            begun = time.monotonic()
            self._run(transport, ("take", str(at), str(len(data)), *form), packed, _TAKE_SECONDS)
            rate = len(packed) / (time.monotonic() - begun)
            length = int(min(max(rate * _CHUNK_SECONDS, _LEAST), _MOST))
            at += len(data)
            self._sent += len(packed)
            self._now(transport.name, at)

    def _from_host(self, transport: Transport, giver: str) -> None:
        name, heard = transport.name, time.monotonic()
        words = ("pull", giver, self._hosts[giver].address, self._ports[giver])
        # A host that neither reports nor hangs up is given up at last, whatever the giver's speed.
        seconds = _BEGIN_SECONDS + (self._stream.size - self._nodes[name].has) / _SLOWEST
        why = ""
        with transport.tail(_command(words, seconds=seconds)) as lines:
            for line in bounded_lines(lines, name, f"copy {self._image}"):
                what, _, told = line.decode("utf-8", "replace").strip().partition(" ")
                if what == "cut":
                    why = told or "the connection ended"
                elif what == "has":
                    with understood(name, "how much it has of the copy"):
                        has = self._size(told)
                    if has > self._nodes[name].has:
                        heard = time.monotonic()
                    self._now(name, has)
                above = self._nodes[giver]
                stalled = above.has > self._nodes[name].has and time.monotonic() - heard > _STALLED_SECONDS
                if above.gone or stalled:
                    gone = f"the copy to {giver} has failed"
                    why = why or (gone if above.gone else f"nothing arrived for {_STALLED_SECONDS} s")
                    break
            else:
                if not why and self._nodes[name].has < self._stream.size:
                    raise HostError(f"{name}: the output ended while the host received {self._image} from {giver}")
        if why:
            self._say(f"{name} gets no more of the image from {giver}: {why}")

    def _has(self, transport: Transport) -> int:
        result = self._run(transport, ("has",))
        with understood(transport.name, "how much it has of the copy"):
            has = self._size(result.stdout)
        self._now(transport.name, has)
        return has

    def _now(self, name: str, has: int) -> None:
        """Note how much a host has, and tell it now and then."""
        with self._changed:
            node = self._nodes[name] = replace(self._nodes[name], has=has)
            self._changed.notify_all()
            now = time.monotonic()
            if has < self._stream.size and now - self._told.get(name, 0.0) < _TELL_SECONDS:
                return
            self._told[name] = now
        share = 100 * has // max(1, self._stream.size)
        giver = node.source or "the controller"
        what = f"copy {self._image}: {share} % of {size_text(self._stream.size)} from {giver}"
        self._report(SetupEvent(name, "image", what, "begins"))

    def _finish(self, transport: Transport) -> None:
        self._run(transport, ("finish", self._stream.sha256), there=False)

    def _end(self, transport: Transport) -> None:
        with suppress(HostError):
            self._run(transport, ("end",), there=False)

    def _run(
        self,
        transport: Transport,
        words: tuple[str, ...],
        stdin: bytes = b"",
        seconds: float = _BEGIN_SECONDS,
        *,
        there: bool = True,
        fails: tuple[int, ...] = (),
    ) -> Result:
        """Run image_copy.sh on a host; `there` says that the host has it by now.

        Raises:
            HostError: the script fails.
        """
        result = transport.run(_command(words, stdin, seconds, there=there))
        if result.exit_code and result.exit_code not in fails:
            said = last_line(result.stderr).removeprefix("error: ") or f"exit code {result.exit_code}"
            raise HostError(f"{transport.name}: copy {self._image}: {said}")
        return result


def _command(
    words: tuple[str, ...], stdin: bytes = b"", seconds: float | None = None, *, there: bool = True
) -> Command:
    program = (f"{_FOLDER}/{_SCRIPT}",) if there else ("-c", scripts.text(_SCRIPT), "image_copy")
    return Command(("/bin/sh", *program, _FOLDER, *words), stdin, sudo=True, timeout=seconds)


def _files() -> bytes:
    """Return what every host needs for this copy alone: the script, and the key by which hosts know each other."""
    # NIST P-256: also hosts in FIPS mode take it.
    key = ec.generate_private_key(ec.SECP256R1())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n"
    files = {"key": private, "key.pub": public, _SCRIPT: scripts.text(_SCRIPT).encode()}
    return b"".join(b"%s %s\n" % (name.encode(), base64.b64encode(data)) for name, data in files.items())


def _packed(data: bytes) -> bytes:
    packer = zlib.compressobj(1, zlib.DEFLATED, _GZIP)
    return packer.compress(data) + packer.flush()
