"""OpenSSH's configuration files -> the route to a host: address, login, keys, jump hosts, known_hosts.

What the inventory says goes before what the files say, as options of the ssh command line do; its port 22 counts as not
said. A host is looked up by its address, as it would be typed after `ssh`. paramiko reads the files; `Include`, which
it does not know, is replaced by what it includes. ssh_config(5) is the source of all rules here.
"""

import getpass
import glob
import os
import re
import shlex
import socket
from collections.abc import Mapping
from pathlib import Path

import paramiko

from taco_launch.agent.store import untrusted
from taco_launch.agent.store.ownership import why_not_own
from taco_launch.core.errors import Fault, HostError, SpecError
from taco_launch.core.frozen import dataclass
from taco_launch.core.model.host.hosts import Host

SSH_PORT = 22
_FILES = ("~/.ssh/config", "/etc/ssh/ssh_config")
_MOST_BYTES = 1 << 20
_MAX_INCLUDES = 16  # readconf.c's READCONF_MAX_DEPTH
_WORD = re.compile(r"(\w+)(?:\s*=\s*|\s+)(.+)")
_USER_KNOWN_HOSTS = "~/.ssh/known_hosts ~/.ssh/known_hosts2"
_GLOBAL_KNOWN_HOSTS = "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"
_DEFAULT_KEYS = tuple(f"~/.ssh/id_{kind}" for kind in ("ed25519", "ecdsa", "rsa", "ed25519_sk", "ecdsa_sk", "dsa"))
# In these a `#` is the command's, not a comment.
_COMMANDS = ("proxycommand", "localcommand", "remotecommand", "knownhostscommand")
_COMMENT = re.compile(r'((?:"[^"]*"|[^"\s]|\s(?!\s*#))*)\s+#.*')
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_MOST = 65535  # the last port; in seconds, longer than anybody waits
CONNECT_SECONDS = 10.0
BANNER_SECONDS = 30.0


@dataclass(frozen=True)
class Route:
    """How one host is reached.

    `name` is the host's for messages, `address` and `port` where to connect (from the last of `jumps`, if there are
    any), `known_as` what known_hosts files call it. `identity_files` are the private keys to offer and `chosen` says
    whether somebody chose them; `only_these` keeps other keys of the agent away. `agent` is its socket, empty for none.
    `jumps` are ProxyJump's hosts as written; `proxy` is a command whose stdin and stdout lead there. `timeout` is how
    long (seconds) to wait for a TCP connection, `banner_timeout` for sshd's first words on it: the inventory's
    connect_timeout and ConnectTimeout are both. `login` is what a person types after `ssh` to get there: options for
    what the inventory says, then user and address.
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
    login: tuple[str, ...]


class Config:
    """The user's configuration files, read once."""

    def __init__(
        self, environ: Mapping[str, str], files: tuple[str, ...] = _FILES, connect_timeout: int | None = None
    ) -> None:
        """Read the files that are there; `connect_timeout` (seconds) goes before theirs.

        Raises:
            SpecError: one cannot be read or understood.
        """
        self._environ = environ
        self._connect_timeout = connect_timeout
        self._places: dict[tuple[str, str], str] = {}
        self._text = "\n".join("Match all\n" + "\n".join(_lines(file, self._places)) for file in files)
        self._parsed = _parsed(self._text)
        self._has_match = re.search(r"(?im)^\s*match\s+(?!all\s*$)", self._text) is not None

    def route(self, host: Host) -> Route:
        """Return the route to a host of the inventory.

        Raises:
            HostError: the files say what cannot be done here.
        """
        given = {"Port": str(host.port) if host.port != SSH_PORT else "", "User": host.user}
        try:
            found = self._lookup(host.address, given)
        except (paramiko.SSHException, ValueError) as error:
            raise HostError(f"{host.name}: ~/.ssh/config: {error}", hint=_see(host)) from None
        files = tuple(found.get("identityfile", ()))
        chosen = bool(files) or host.identity_file is not None
        files = (host.identity_file,) if host.identity_file is not None else files or _DEFAULT_KEYS
        port = host.port if given["Port"] else self._port(host, found)
        waits = self._connect_timeout or self._seconds(host, "ConnectTimeout", found)
        address = found["hostname"]
        if re.search(r"[@\s]", address) or address.count(":") == 1:
            raise self._wrong(
                host, "HostName", address, "not a host name: set the user with User and the port with Port"
            )
        jump, proxy = _first_of(found)
        return Route(
            name=host.name,
            address=address,
            port=port,
            user=host.user or found.get("user") or getpass.getuser(),
            known_as=found.get("hostkeyalias") or (address if port == SSH_PORT else f"[{address}]:{port}"),
            identity_files=tuple(_home(file) for file in files if file.lower() != "none"),
            certificate_files=tuple(_home(file) for file in self._words(host, "CertificateFile", found)),
            chosen=chosen,
            only_these=host.identity_file is not None or found.get("identitiesonly", "no").lower() == "yes",
            agent=self._agent(found.get("identityagent", "SSH_AUTH_SOCK")),
            jumps=tuple(part.strip() for part in jump.split(",")) if jump else (),
            proxy=_proxy_words(host.name, proxy),
            known_hosts=tuple(
                _home(file)
                for key, default in (
                    ("UserKnownHostsFile", _USER_KNOWN_HOSTS),
                    ("GlobalKnownHostsFile", _GLOBAL_KNOWN_HOSTS),
                )
                for file in self._words(host, key, found, default)
                if file.lower() != "none"
            ),
            timeout=waits or CONNECT_SECONDS,
            banner_timeout=waits or BANNER_SECONDS,
            login=_login(host),
        )

    def _port(self, host: Host, found: Mapping[str, str]) -> int:
        said = found.get("port", "")
        if said and not _port(said):
            raise self._wrong(
                host, "Port", said, f"must be a number from 1 to {_MOST} or a service name from /etc/services"
            )
        return _port(said) or SSH_PORT

    def _seconds(self, host: Host, key: str, found: Mapping[str, str]) -> int:
        """Read a time such as 90 or 1m30s in seconds; 0 where none is said.

        Raises:
            SpecError: the value is no time.
        """
        said = found.get(key.lower(), "")
        if not said or said.lower() in ("none", "0"):
            return 0
        parts = re.findall(r"([0-9]+)([a-z]?)", said.lower())
        number = sum(int(count[:9]) * _SECONDS.get(unit, 0) for count, unit in parts)
        whole = "".join(map("".join, parts)) == said.lower() and all(unit in _SECONDS for _count, unit in parts)
        if not whole or not 0 < number <= _MOST:
            raise self._wrong(host, key, said, f"must be a time such as 90 or 1m30s, from 1 to {_MOST} seconds")
        return number

    def _words(self, host: Host, key: str, found: Mapping[str, str], default: str = "") -> list[str]:
        said = found.get(key.lower(), default)
        try:
            return shlex.split(said)
        except ValueError as error:
            raise self._wrong(host, key, said, str(error)) from None

    def _wrong(self, host: Host, key: str, said: str, problem: str) -> HostError:
        place = self._places.get((key.lower(), said), "~/.ssh/config")
        return HostError(f"{host.name}: {place}: {key} {said}: {problem}", hint=_see(host))

    def _lookup(self, address: str, given: Mapping[str, str]) -> paramiko.SSHConfigDict:
        found: paramiko.SSHConfigDict = self._parsed.lookup(address)
        port = given["Port"] or str(_port(found.get("port", "")) or "")  # a ProxyCommand's %p is a number
        overruled = [f"  {key} {value}" for key, value in {**given, "Port": port}.items() if value]
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
    found = re.fullmatch(r"(?:ssh://)?(?:([^@\s]+)@)?(\[[^\]\s]+\]|[^:@\s\[\]]+)(?::([\w-]+))?/?", spec)
    if not found or (found[3] and not _port(found[3])):
        raise HostError(f"jump host {spec!r}: not [user@]host[:port]", hint="see ProxyJump in ~/.ssh/config")
    address = found[2].strip("[]")
    return Host(address, address, port=_port(found[3] or "") or SSH_PORT, user=found[1] or "")


def _port(said: str) -> int:
    """Read a port, or the name of a service as misc.c's a2port does; 0 where it is neither."""
    if re.fullmatch(r"[0-9]{1,9}", said):
        return int(said) if int(said) <= _MOST else 0
    try:
        return socket.getservbyname(said, "tcp")
    except (OSError, ValueError):  # the latter for what no name can hold
        return 0


def _login(host: Host) -> tuple[str, ...]:
    """Return what stands after `ssh` on a command line; what the configuration files say, ssh reads itself."""
    key = host.identity_file if host.identity_file is not None and host.identity_file.lower() != "none" else None
    return (
        *(("-i", _home(key)) if key is not None else ()),
        *(("-p", str(host.port)) if host.port != SSH_PORT else ()),
        f"{host.user}@{host.address}" if host.user else host.address,
    )


def _first_of(found: Mapping[str, str]) -> tuple[str, str]:
    """Return ProxyJump and ProxyCommand, of which at most one counts."""
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
    hint = "put the command into a script and use the script: ProxyCommand /path/of/script %h %p"
    try:
        words = list(reader)
    except ValueError as error:
        raise HostError(f"{host}: ProxyCommand {command}: {error}", hint=hint) from None
    if any(word and set(word) <= set(";<>|&()") for word in words) or re.search(r"[`$]", command):
        raise HostError(
            f"{host}: ProxyCommand {command}: it needs a shell, but taco-launch runs it without one", hint=hint
        )
    return tuple(words[1:] if words[:1] == ["exec"] else words)


def _home(path: str) -> str:
    return os.path.expanduser(path)  # noqa: PTH111 - Path's raises where there is no such ~user


def _see(host: Host) -> str:
    return f"see what ssh reads: ssh -G {host.address}"


def _parsed(text: str) -> paramiko.SSHConfig:
    try:
        parsed: paramiko.SSHConfig = paramiko.SSHConfig.from_text(text)
    except (paramiko.ConfigParseError, ValueError) as error:  # the latter for quotes that do not end
        raise _unreadable("~/.ssh/config", str(error)) from None
    return parsed


def _text(file: str, path: Path) -> str:
    """Return what a file holds, nothing where there is none.

    Raises:
        SpecError: it cannot be read, or another user can write it: it names programs that are executed (ProxyCommand, Match
            exec), and ssh refuses it as well.
    """
    try:
        text = untrusted.read_named(path, _MOST_BYTES).decode("utf-8", "surrogateescape")
        why = why_not_own(path.stat(), os.geteuid(), os.getegid())
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise _unreadable(file, error.strerror or str(error)) from None
    if why:
        raise _unreadable(file, f"it {why}; ssh refuses it as well: chmod go-w {path}, or chown it to yourself")
    return text


def _lines(file: str, places: dict[tuple[str, str], str], depth: int = 0, outer: str = "") -> list[str]:
    """Return the lines of a file, each `Include` replaced by what it includes; `places` notes where a directive stands.

    `outer` is the condition of the block that the file is included in: it holds for each of its own blocks too.

    Raises:
        SpecError: a file cannot be read, or includes are nested too deep.
    """
    path = Path(file).expanduser()
    if depth > _MAX_INCLUDES:
        raise _unreadable(file, "Include is nested too deep: does the file include itself?")
    condition, given = outer, []
    for number, line in enumerate(_text(file, path).splitlines(), 1):
        found = _WORD.match(line.strip())
        if not found:
            given.append(line)
            continue
        key, value = found[1].lower(), found[2]
        if key not in _COMMANDS and (commented := _COMMENT.fullmatch(value)):
            value = commented[1]
        places.setdefault((key, value.strip('"')), f"{file}:{number}")
        try:
            if key == "include":
                for pattern in shlex.split(value):
                    for name in sorted(glob.glob(str(_folder(path) / _home(pattern)))):  # noqa: PTH207 - of any folder
                        given += _lines(name, places, depth + 1, condition)
                given.append(f"Match {condition or 'all'}")  # its Host lines end there
                continue
            if key in ("host", "match"):
                condition = " ".join(filter(None, (outer, _condition(key, value))))
        except ValueError as error:  # quotes that do not end
            raise _unreadable(f"{file}:{number}", str(error)) from None
        given.append(f"Match {condition}" if outer and key in ("host", "match") else f"{key} {value}")
    return given


def _condition(key: str, value: str) -> str:
    """Return what a Host or Match line asks for, as Match says it; empty where it always holds."""
    if key == "host":
        return f"originalhost {shlex.quote(','.join(shlex.split(value)))}"
    return "" if value.strip().lower() == "all" else value


def _folder(path: Path) -> Path:
    """Return the folder that names in `Include` start from."""
    return Path("/etc/ssh") if path.is_relative_to("/etc/ssh") else Path("~/.ssh").expanduser()


def _unreadable(file: str, problem: str) -> SpecError:
    return SpecError(file, (Fault("ssh configuration", "", problem),), hint=f"see what ssh prints: ssh -G -F {file} x")
