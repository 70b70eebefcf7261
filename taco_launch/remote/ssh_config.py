"""OpenSSH's configuration files -> the route to a host: address, login, keys, jump hosts, known_hosts.

What the inventory says goes before what the files say, as options of the ssh command line do; its port 22 counts as not
said. A host is looked up by its address, as it would be typed after `ssh`. paramiko reads the files; `Include`, which
it does not know, is replaced by what it includes. ssh_config(5) is the source of all rules here.
"""

import getpass
import glob
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import paramiko

from taco_launch.errors import Fault, HostError, SpecError
from taco_launch.model.hosts import Host

SSH_PORT = 22
_FILES = ("~/.ssh/config", "/etc/ssh/ssh_config")
_MAX_INCLUDES = 16  # readconf.c's READCONF_MAX_DEPTH
_WORD = re.compile(r"(\w+)(?:\s*=\s*|\s+)(.+)")
_USER_KNOWN_HOSTS = "~/.ssh/known_hosts ~/.ssh/known_hosts2"
_GLOBAL_KNOWN_HOSTS = "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"
_DEFAULT_KEYS = tuple(f"~/.ssh/id_{kind}" for kind in ("ed25519", "ecdsa", "rsa", "ed25519_sk", "ecdsa_sk", "dsa"))
CONNECT_SECONDS = 10.0
BANNER_SECONDS = 30.0


@dataclass(frozen=True)
class Route:
    """How one host is reached.

    `name` is the host's for messages, `address` and `port` where to connect (from the last of `jumps`, if there are
    any), `known_as` what known_hosts files call it. `identity_files` are the private keys to offer and `chosen` says
    whether somebody chose them; `only_these` keeps other keys of the agent away. `agent` is its socket, empty for none.
    `jumps` are ProxyJump's hosts as written; `proxy` is a command whose stdin and stdout lead there. `timeout` is how
    long (seconds) to wait for a TCP connection, `banner_timeout` for sshd's first words on it: ConnectTimeout is both.
    """

    name: str
    address: str
    port: int
    user: str
    known_as: str
    identity_files: tuple[str, ...]
    certificate_files: tuple[str, ...]
    chosen: bool
    only_these: bool
    agent: str
    jumps: tuple[str, ...]
    proxy: tuple[str, ...]
    known_hosts: tuple[str, ...]
    timeout: float
    banner_timeout: float


class Config:
    """The user's configuration files, read once."""

    def __init__(self, environ: Mapping[str, str], files: tuple[str, ...] = _FILES) -> None:
        """Read the files that are there.

        Raises:
            SpecError: one cannot be read or understood.
        """
        self._environ = environ
        self._text = "\n".join("Match all\n" + "\n".join(_lines(file, 0)) for file in files)
        self._parsed = _parsed(self._text)
        self._has_match = re.search(r"(?im)^\s*match\s+(?!all\s*$)", self._text) is not None

    def route(self, host: Host) -> Route:
        """Give the route to a host of the inventory.

        Raises:
            HostError: the files say what cannot be done here.
        """
        given = {"Port": str(host.port) if host.port != SSH_PORT else "", "User": host.user}
        found = self._lookup(host.address, given)
        files = tuple(found.get("identityfile", ()))
        chosen = bool(files) or host.identity_file is not None
        files = (host.identity_file,) if host.identity_file is not None else files or _DEFAULT_KEYS
        port = int(given["Port"] or found.get("port", SSH_PORT))
        address = found["hostname"]
        jump, proxy = _first_of(found)
        return Route(
            name=host.name,
            address=address,
            port=port,
            user=host.user or found.get("user") or getpass.getuser(),
            known_as=found.get("hostkeyalias") or (address if port == SSH_PORT else f"[{address}]:{port}"),
            identity_files=tuple(_home(file) for file in files if file.lower() != "none"),
            certificate_files=tuple(_home(file) for file in _words(found.get("certificatefile", ""))),
            chosen=chosen,
            only_these=host.identity_file is not None or found.get("identitiesonly", "no").lower() == "yes",
            agent=self._agent(found.get("identityagent", "SSH_AUTH_SOCK")),
            jumps=tuple(part.strip() for part in jump.split(",")) if jump else (),
            proxy=_proxy_words(host.name, proxy),
            known_hosts=tuple(
                _home(file)
                for key, default in (
                    ("userknownhostsfile", _USER_KNOWN_HOSTS),
                    ("globalknownhostsfile", _GLOBAL_KNOWN_HOSTS),
                )
                for file in _words(found.get(key, default))
                if file.lower() != "none"
            ),
            timeout=float(found.get("connecttimeout", CONNECT_SECONDS)),
            banner_timeout=float(found.get("connecttimeout", BANNER_SECONDS)),
        )

    def _lookup(self, address: str, given: Mapping[str, str]) -> paramiko.SSHConfigDict:
        found: paramiko.SSHConfigDict = self._parsed.lookup(address)
        overruled = [f"  {key} {value}" for key, value in given.items() if value]
        # What the inventory says has to be seen by `Match user` and by the tokens of a ProxyCommand too.
        if overruled and (self._has_match or "proxycommand" in found or "proxyjump" in found):
            found = _parsed("\n".join(["Host *", *overruled, self._text])).lookup(address)
        return found

    def _agent(self, said: str) -> str:
        if said.lower() == "none":
            return ""
        if said == "SSH_AUTH_SOCK" or said.startswith("$"):
            return self._environ.get(said.strip("${}"), "")
        return _home(said)


def jump_host(spec: str) -> Host:
    """Read one host of ProxyJump: `[user@]host[:port]`, or `ssh://[user@]host[:port]`; brackets around IPv6.

    Raises:
        HostError: it is none.
    """
    found = re.fullmatch(r"(?:ssh://)?(?:([^@\s]+)@)?(\[[^\]\s]+\]|[^:@\s\[\]]+)(?::([0-9]{1,5}))?/?", spec)
    if not found:
        raise HostError(f"jump host {spec!r}: not [user@]host[:port]", hint="see ProxyJump in ~/.ssh/config")
    address = found[2].strip("[]")
    return Host(address, address, port=int(found[3] or SSH_PORT), user=found[1] or "")


def _first_of(found: Mapping[str, str]) -> tuple[str, str]:
    """Give ProxyJump and ProxyCommand, of which at most one counts."""
    jump, proxy = found.get("proxyjump") or "", found.get("proxycommand") or ""
    if jump.lower() == "none":
        jump = ""
    if jump and proxy:  # paramiko keeps both; ssh takes what it reads first
        proxy = "" if list(found).index("proxyjump") < list(found).index("proxycommand") else proxy
        jump = "" if proxy else jump
    return jump, proxy


def _proxy_words(host: str, command: str) -> tuple[str, ...]:
    """Split a ProxyCommand as a shell would; no shell runs it.

    Raises:
        HostError: it needs one.
    """
    reader = shlex.shlex(command, posix=True, punctuation_chars=";<>|&()")
    reader.whitespace_split = True
    reader.commenters = ""
    hint = "put the command into a script, and name that: ProxyCommand /path/of/script %h %p"
    try:
        words = list(reader)
    except ValueError as error:
        raise HostError(f"{host}: ProxyCommand {command}: {error}", hint=hint) from None
    if any(word and set(word) <= set(";<>|&()") for word in words) or re.search(r"[`$]", command):
        raise HostError(f"{host}: ProxyCommand {command}: it needs a shell, and none runs it here", hint=hint)
    return tuple(words[1:] if words[:1] == ["exec"] else words)


def _home(path: str) -> str:
    return str(Path(path).expanduser())


def _words(text: str) -> list[str]:
    return shlex.split(text)


def _parsed(text: str) -> paramiko.SSHConfig:
    try:
        parsed: paramiko.SSHConfig = paramiko.SSHConfig.from_text(text)
    except paramiko.ConfigParseError as error:
        raise _unreadable("~/.ssh/config", str(error)) from None
    return parsed


def _lines(file: str, depth: int) -> list[str]:
    """Give the lines of a file, each `Include` replaced by what it includes."""
    path = Path(file).expanduser()
    if depth > _MAX_INCLUDES:
        raise _unreadable(file, "Include goes too deep: does it include itself?")
    try:
        lines = path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise _unreadable(file, error.strerror or str(error)) from None
    block, given = "", []
    for line in lines:
        found = _WORD.match(line.strip())
        key = found[1].lower() if found else ""
        if found and key == "include":
            for pattern in _words(found[2]):
                for name in sorted(glob.glob(str(_folder(path) / _home(pattern)))):  # noqa: PTH207 - of any folder
                    given += _lines(name, depth + 1)
            given.append(block or "Match all")  # its Host lines end there
            continue
        if key in ("host", "match"):
            block = line
        given.append(line)
    return given


def _folder(path: Path) -> Path:
    """Give the folder that names in `Include` begin from."""
    return Path("/etc/ssh") if path.is_relative_to("/etc/ssh") else Path("~/.ssh").expanduser()


def _unreadable(file: str, problem: str) -> SpecError:
    return SpecError(file, (Fault("ssh configuration", "", problem),), hint=f"see what ssh says: ssh -G -F {file} x")
