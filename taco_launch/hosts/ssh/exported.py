"""Routes as an OpenSSH configuration of its own, which needs no other file: for ssh -F, scp, rsync and editors."""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from taco_launch.core.errors import HostError
from taco_launch.core.frozen import dataclass
from taco_launch.hosts.ssh.config import Config, Route, jump_host

HEADING = "# made by taco-launch export ssh-config, which overwrites it\n"
_MOST_HOPS = 8
_PLAIN = re.compile(r"[^\s\"#\\]+")


@dataclass(frozen=True)
class ContainerLogin:
    """A training container as ssh reaches it: by which name, where its sshd is, as that is seen from the head."""

    alias: str
    address: str
    port: int


@dataclass(frozen=True)
class KeyFiles:
    """The files that logins to the containers take: the cluster's private key, and their host keys by alias."""

    key: str
    known_hosts: str


def text(config: Config, head: Route | None, cluster: str, logins: Sequence[ContainerLogin], files: KeyFiles) -> str:
    """Return the configuration; `head` is the way to the head, None where that is this machine.

    Raises:
        HostError: there are too many jump hosts on the way, or one is written in a way that nobody understands.
    """
    blocks = [HEADING]
    jump = f"{cluster}-head"
    if head is not None:
        blocks += _way(config, head, jump, files=files, hops=0)
    for login in logins:
        lines = [
            f"HostName {login.address}",
            f"Port {login.port}",
            "User root",
            f"IdentityFile {_quoted(files.key)}",
            "IdentitiesOnly yes",
            "PreferredAuthentications publickey",
            f"HostKeyAlias {login.alias}",
            f"UserKnownHostsFile {_quoted(files.known_hosts)}",
            "GlobalKnownHostsFile /dev/null",
            "StrictHostKeyChecking yes",
            "UpdateHostKeys no",
            *([f"ProxyJump {jump}"] if head is not None else []),
        ]
        blocks.append(_block(login.alias, lines))
    return "\n".join(blocks)


def _way(config: Config, route: Route, alias: str, *, files: KeyFiles, hops: int) -> Iterator[str]:
    """Yield the blocks of a host on the way, behind those of its jump hosts.

    Raises:
        HostError: there are too many jump hosts in a row.
    """
    if hops > _MOST_HOPS:
        raise HostError(
            f"{route.name}: more than {_MOST_HOPS} jump hosts in a row: does ProxyJump form a loop?",
            hint=f"ssh -G {route.name} | grep -i proxyjump",
        )
    lines = [
        f"HostName {route.address}",
        f"Port {route.port}",
        f"User {route.user}",
        f"HostKeyAlias {route.known_as}" if not route.known_as.startswith("[") else "",
        f"UserKnownHostsFile {' '.join(map(_quoted, route.known_hosts))}",
        "StrictHostKeyChecking yes",
        *(f"IdentityFile {_quoted(file)}" for file in route.identity_files if Path(file).exists()),
        *(f"CertificateFile {_quoted(file)}" for file in route.certificate_files),
        "IdentitiesOnly yes" if route.only_these else "",
        f"IdentityAgent {_quoted(route.agent)}" if route.agent else "",
    ]
    if route.jumps:
        *before, last = route.jumps
        inner = config.route(jump_host(last))
        if before:  # what is written goes before what the configuration says of the last
            inner = replace(inner, jumps=tuple(before), proxy=())
        inner = replace(inner, known_hosts=tuple(dict.fromkeys((*route.known_hosts, *inner.known_hosts))))
        yield from _way(config, inner, f"{alias}-jump", files=files, hops=hops + 1)
        lines.append(f"ProxyJump {alias}-jump")
    elif route.proxy:
        lines.append("ProxyCommand " + " ".join(shlex.quote(word).replace("%", "%%") for word in route.proxy))
    yield _block(alias, lines)


def _block(alias: str, lines: Sequence[str]) -> str:
    return "".join((f"Host {alias}\n", *(f"    {line}\n" for line in lines if line)))


def _quoted(path: str) -> str:
    """Return a path as ssh_config reads it: a per cent sign is a token's, blanks stand between double quotes.

    Raises:
        HostError: the path has quotes or line breaks.
    """
    escaped = path.replace("%", "%%")
    if _PLAIN.fullmatch(escaped):
        return escaped
    if '"' in path or "\n" in path:
        raise HostError(
            f"{path!r}: an ssh configuration cannot refer to a file with this name",
            hint="rename it without quotes and line breaks",
        )
    return f'"{escaped}"'
