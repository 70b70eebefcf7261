"""Private keys, certificates, the agent's keys: loaded once, shared by all connections, each passphrase asked once."""

import base64
import binascii
import copy
import io
import re
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paramiko
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from paramiko.agent import AgentKey, AgentSSH
from paramiko.auth_strategy import AuthSource, AuthStrategy, InMemoryPrivateKey

from taco_launch.agent.store import untrusted
from taco_launch.core.command import shell
from taco_launch.core.frozen import dataclass
from taco_launch.hosts.remote.credentials import Credentials
from taco_launch.hosts.ssh.config import Route

_MAGIC = b"openssh-key-v1\0"  # PROTOCOL.key of OpenSSH
_MOST_BYTES = 1 << 20  # of a key or certificate
_ASKED = 3  # as often as ssh asks
_DAMAGED = "cannot be read as a private key: is it truncated, damaged, or of a type that ssh does not support?"
_NOT_HERE = {
    "sk-": "is on a security key, which is not supported",
    "ssh-dss": "is a DSA key, which is too weak and is not supported",
}


@dataclass(frozen=True)
class OfferedKey:
    """A key to log in with, and what to call it in messages."""

    key: paramiko.PKey
    label: str


@dataclass(frozen=True)
class OfferedKeys:
    """Keys in the order to offer them, and a word on each that cannot be offered."""

    keys: tuple[OfferedKey, ...]
    left_out: tuple[str, ...]


def key_hint(route: Route, offers: OfferedKeys) -> str:
    """Return what to do where a host accepts none of the keys that were offered, or there was none."""
    if offers.keys:
        put = f"put a public key there: {shell(('ssh-copy-id', *route.login))}"
        here = f"check user and identity_file of {route.name} in the inventory (User and IdentityFile in ~/.ssh/config)"
        return f"{here}; if they are correct, {put}"
    files = route.identity_files
    locked = [path for path in files if any(why.startswith(f"{path} is encrypted") for why in offers.left_out)]
    if locked:
        return f"load the key into ssh-agent, which asks for its passphrase: {shell(('ssh-add', *locked))}"
    if route.chosen and files:
        named = shell(("ls", "-l", *files))
        return f"check the key file that identity_file in the inventory or IdentityFile in ~/.ssh/config sets: {named}"
    return "make a key (ssh-keygen), load one (ssh-add), or set its path as identity_file in the inventory"


@dataclass(frozen=True)
class _File:
    """What a key file shows without its passphrase; `public` is empty where that is not known."""

    path: str
    public: bytes
    encrypted: bool
    problem: str = ""


class Keyring:
    """All keys of one call. To be used by one thread."""

    def __init__(self, access: Credentials) -> None:
        """Load nothing yet."""
        self._access = access
        self._files: dict[str, _File | None] = {}
        self._keys: dict[str, paramiko.PKey | str] = {}
        self._agents: dict[str, tuple[AgentKey, ...]] = {}
        self._offers: dict[object, OfferedKeys] = {}

    def offers(self, route: Route) -> OfferedKeys:
        """Return the keys for a host; asks for the passphrase of an encrypted key that was chosen, or is the only one."""
        asked = (route.identity_files, route.certificate_files, route.chosen, route.only_these, route.agent)
        if asked not in self._offers:
            self._offers[asked] = self._gather(route)
        return self._offers[asked]

    def _gather(self, route: Route) -> OfferedKeys:
        found: list[OfferedKey] = []
        left_out: list[str] = []
        agent = {_public(key): key for key in self._agent(route.agent)}
        waiting = []
        for path in route.identity_files:
            file = self._file(path)
            if file is None:
                left_out += [f"{path}: no such file"] if route.chosen else []
            elif file.public in agent and not _unsupported(agent[file.public].get_name()):
                found += self._with_certificates(agent.pop(file.public), f"{path} (agent)", path, route)
            elif file.problem:
                left_out.append(f"{path} {file.problem}")
            elif file.encrypted and not route.chosen:
                waiting.append(file)
            else:
                found += self._opened(file, route, left_out)
        others: list[OfferedKey] = []
        for key in agent.values() if not route.only_these else ():
            problem = _unsupported(key.get_name())
            label = f"{key.comment or key.get_name()} (agent)"
            if problem:
                left_out.append(f"{label} {problem}")
            else:
                others.append(OfferedKey(key, label))
        found = [*found, *others] if route.chosen else [*others, *found]
        for file in waiting:
            if found:
                left_out.append(f"{file.path} is encrypted, and no passphrase was entered: ssh-add {file.path}")
            else:
                found += self._opened(file, route, left_out)
        return OfferedKeys(tuple(found), tuple(left_out))

    def _opened(self, file: _File, route: Route, left_out: list[str]) -> list[OfferedKey]:
        if file.path not in self._keys:
            self._keys[file.path] = self._load(file)
        key = self._keys[file.path]
        if isinstance(key, str):
            left_out.append(f"{file.path} {key}")
            return []
        return self._with_certificates(key, file.path, file.path, route)

    def _load(self, file: _File) -> paramiko.PKey | str:
        """Return the key, or why there is none."""
        if not file.encrypted:
            try:
                return _read(file.path)
            except Exception:  # noqa: BLE001 - cryptography raises what it likes for what is not a key
                return f"{_DAMAGED} see: {shell(('ssh-keygen', '-y', '-f', file.path))}"
        if self._access.ask_passphrase is None:
            return f"is encrypted, and there is no terminal to ask for its passphrase: ssh-add {file.path}"
        for attempt in range(_ASKED):
            again = "once more, " if attempt else ""
            passphrase = self._access.ask_passphrase(f"{again}passphrase of {file.path}: ")
            if not passphrase:
                break
            try:
                return _read(file.path, passphrase.encode("utf-8", "surrogateescape"))
            except Exception:  # noqa: BLE001, S112 - the ways to say "wrong passphrase" are many
                continue
        return f"is encrypted, and its passphrase was not given: ssh-add {file.path}"

    def _with_certificates(self, key: paramiko.PKey, label: str, path: str, route: Route) -> list[OfferedKey]:
        """Return the key with each of its certificates, and then by itself, as ssh offers them."""
        offers = []
        for certificate in dict.fromkeys((*route.certificate_files, f"{path}-cert.pub")):
            certified = AgentKey(key.agent, key.blob, key.comment) if isinstance(key, AgentKey) else copy.copy(key)
            try:
                certified.load_certificate(_content(certificate).decode("ascii"))
                if _certified(certified.public_blob.key_blob) != _public(key):
                    continue
            except (OSError, ValueError, IndexError, struct.error, paramiko.SSHException):
                continue  # not there, or of another key
            offers.append(OfferedKey(certified, f"{label} with {certificate}"))
        return [*offers, OfferedKey(key, label)]

    def _file(self, path: str) -> _File | None:
        if path not in self._files:
            try:
                present = next((name for name in (path, f"{path}.pub") if Path(name).exists()), None)
                self._files[path] = _examined(path, _content(present)) if present else None
            except OSError as error:
                self._files[path] = _File(path, b"", False, f"cannot be read: {error.strerror}")
        return self._files[path]

    def _agent(self, path: str) -> tuple[AgentKey, ...]:
        if path not in self._agents:
            self._agents[path] = _agent_keys(path) if path else ()
        return self._agents[path]


class KeyAuthStrategy(AuthStrategy):
    """Offers keys to a host, in their order; `tried` names those that it was asked about."""

    def __init__(self, user: str, offers: OfferedKeys) -> None:
        """Offer for `user`."""
        super().__init__(ssh_config=paramiko.SSHConfig())  # type: ignore[no-untyped-call]
        self._user = user
        self._transport: paramiko.Transport | None = None
        self.offers = offers
        self.tried: list[str] = []

    def authenticate(self, transport: paramiko.Transport) -> Any:
        """Offer them on a new connection."""
        self._transport, self.tried = transport, []
        return super().authenticate(transport)  # type: ignore[no-untyped-call]

    @property
    def hung_up(self) -> bool:
        """Whether the host ended the connection before a key was taken."""
        return self._transport is not None and not self._transport.is_active()

    def get_sources(self) -> Iterator[AuthSource]:
        """Yield them one by one, as long as the host listens."""
        for offer in self.offers.keys:
            if self.hung_up:
                return
            self.tried.append(offer.label)
            yield InMemoryPrivateKey(self._user, offer.key)


class _Agent(AgentSSH):
    """An agent whose questions do not mix, however many connections sign at once."""

    def __init__(self, path: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._lock = threading.Lock()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(path)
        self._connect(connection)  # type: ignore[no-untyped-call]

    def _send_message(self, msg: paramiko.Message) -> object:
        with self._lock:
            return super()._send_message(msg)  # type: ignore[no-untyped-call]


def _agent_keys(path: str) -> tuple[AgentKey, ...]:
    try:
        return tuple(_Agent(path).get_keys())  # type: ignore[no-untyped-call]
    except (OSError, paramiko.SSHException):
        return ()  # as ssh: an agent that has gone is none


def _read(path: str, passphrase: bytes | None = None) -> paramiko.PKey:
    """Read a private key in any of OpenSSH's forms: its own, PEM, PKCS8. paramiko by itself does not know the last."""
    data = _content(path)
    load = serialization.load_ssh_private_key if b"BEGIN OPENSSH" in data else serialization.load_pem_private_key
    key = load(data, passphrase)
    if isinstance(key, rsa.RSAPrivateKey):
        return paramiko.RSAKey(key=key)
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return paramiko.ECDSAKey(vals=(key, key.public_key()))
    form = serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    return paramiko.Ed25519Key(file_obj=io.StringIO(key.private_bytes(*form).decode("ascii")))


def _content(path: str) -> bytes:
    """Return the content of a file that an inventory may have named: a regular one, of the size that keys have.

    Raises:
        OSError: it is another, or cannot be read.
    """
    return untrusted.read_named(Path(path), _MOST_BYTES)


def _examined(path: str, data: bytes) -> _File:
    """See what a key file holds without opening it."""
    lines = data.decode("latin-1").split("\n")
    if data.startswith((b"ssh-", b"ecdsa-", b"sk-")):
        return _File(path, _blob(lines[0]), False, "is a public key, and no ssh-agent has its private key")
    public = _blob(_first_line(f"{path}.pub"))
    if "BEGIN OPENSSH PRIVATE KEY" not in data[:200].decode("latin-1"):
        return _File(path, public, b"ENCRYPTED" in data[:400], _other_form(path, data))
    try:
        packed = base64.b64decode("".join(line.strip() for line in lines if "-----" not in line))
        if not packed.startswith(_MAGIC):
            return _File(path, public, False, _DAMAGED)
        message = paramiko.Message(packed[len(_MAGIC) :])
        cipher = message.get_text()
        message.get_text()  # key derivation
        message.get_string()  # its options
        message.get_int()  # the number of keys: one
        public = message.get_string()
        kind = paramiko.Message(public).get_text()
    except (binascii.Error, struct.error, UnicodeDecodeError):
        return _File(path, public, False, _DAMAGED)
    return _File(path, public, cipher != "none", _unsupported(kind) if kind else _DAMAGED)


def _other_form(path: str, data: bytes) -> str:
    """Return what is wrong with a file that is not in OpenSSH's own form; empty where it starts as PEM or PKCS8 do."""
    if b"BEGIN DSA" in data[:200]:
        return _NOT_HERE["ssh-dss"]
    if re.search(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----", data):
        return ""
    if data.startswith(b"PuTTY-User-Key-File"):
        return f"is in PuTTY's format; convert it: {shell(('puttygen', path, '-O', 'private-openssh', '-o', f'{path}.openssh'))}"
    return "is not a private key: it has no line BEGIN ... PRIVATE KEY" if data.strip() else "is empty"


def _unsupported(kind: str) -> str:
    return next((problem for begin, problem in _NOT_HERE.items() if kind.startswith(begin)), "")


def _first_line(path: str) -> str:
    try:
        return _content(path).decode("latin-1").split("\n", 1)[0]
    except OSError:
        return ""


def _blob(line: str) -> bytes:
    """Return the key of a line of a .pub file, empty where there is none."""
    words = line.split()
    try:
        return base64.b64decode(words[1]) if len(words) > 1 else b""
    except binascii.Error:
        return b""


def _public(key: paramiko.PKey) -> bytes:
    return bytes(key.blob) if isinstance(key, AgentKey) else bytes(key.asbytes())


def _certified(certificate: bytes) -> bytes:
    """Return the public key that a certificate is about (PROTOCOL.certkeys: type, nonce, then the key's own fields)."""
    message = paramiko.Message(certificate)
    kind = message.get_text()
    message.get_string()
    plain = kind.replace("-cert-v01@openssh.com", "")
    fields = 2 if plain == "ssh-rsa" or plain.startswith("ecdsa-") else 1
    packed = paramiko.Message()
    packed.add_string(plain)
    for _field in range(fields):
        packed.add_string(message.get_string())
    return bytes(packed.asbytes())
