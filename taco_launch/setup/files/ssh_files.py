"""The files of SSH between a cluster's containers, as text: names, client, known hosts, who may log in, sshd's settings."""

import ipaddress
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from taco_launch.core.frozen import dataclass
from taco_launch.core.model.host import paths

_HEADING = "# made by taco-launch setup, which overwrites it when hosts come and go\n"
_KEY = re.compile(r"([a-z0-9@.-]+ [A-Za-z0-9+/=]+)(?:[ \t].*)?")
_KNOWN = re.compile(r"(?:\[([^\]\s]+)\]:[0-9]+|(\S+)) ([a-z0-9@.-]+ [A-Za-z0-9+/=]+) (\S+)")
_NAME = re.compile(r"[\w.-]+", re.ASCII)
# OpenSSH before 7.8 reads its configuration in lines of at most 1023 bytes.
_LINE = 1000


@dataclass(frozen=True)
class Member:
    """A host of the mesh: `address` is where its container's sshd listens, `key` its public host key, "" if not known."""

    name: str
    address: str
    key: str = ""


def public_key(text: object) -> str | None:
    """Return a public key as `TYPE BASE64`, without its comment; None where `text` is none."""
    match = _KEY.fullmatch(text.strip()) if isinstance(text, str) else None
    return match[1] if match else None


@lru_cache(maxsize=1 << 14)  # every host of a cluster asks for all of them
def is_address(text: str) -> bool:
    """Return whether a text is an IP address, not a name."""
    try:
        ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return True


def hosts_file(members: Iterable[Member], own: str, hostname: str | None, theirs: str = "") -> str:
    """Return /etc/hosts of the containers: every host by its name in the inventory, then what the host itself knows.

    The host `own` has its system's name beside it (`hostname`, and that up to its first dot), which programs look up to
    find their own address; a name that another host of the inventory has stays that one's. `theirs` is the host's
    /etc/hosts: the servers of data that it names are found in the container too. Names of ours stay ours.
    """
    members = tuple(members)
    taken = {member.name for member in members}
    more = [hostname, hostname.partition(".")[0]] if hostname else []
    lines = ["127.0.0.1\tlocalhost\n", "::1\tlocalhost ip6-localhost ip6-loopback\n"]
    for member in members:
        if not is_address(member.address):
            continue  # what has no number yet is found by the resolver
        beside = [name for name in more if name not in taken] if member.name == own else []
        lines.append(f"{member.address}\t{' '.join(dict.fromkeys((member.name, *beside)))}\n")
    return _HEADING + "".join([*lines, *_known_to_the_host(theirs, taken.union(more))])


def _known_to_the_host(text: str, taken: Collection[str]) -> Iterator[str]:
    """Yield the lines of a host's /etc/hosts for names that are not taken, but for those of the host itself (hosts(5))."""
    for line in text.splitlines():
        address, *names = line.partition("#")[0].split() or [""]
        own = [name for name in names if name not in taken and _NAME.fullmatch(name)]
        if own and is_address(address) and not _is_loopback(address):
            yield f"{address}\t{' '.join(own)}\n"


def _is_loopback(address: str) -> bool:
    number = ipaddress.ip_address(address.partition("%")[0])
    # Pythons differ in whether ::ffff:127.0.0.1 is one
    return (getattr(number, "ipv4_mapped", None) or number).is_loopback


def ssh_config(cluster: str, members: Iterable[Member], port: int) -> str:
    """Return /etc/ssh/ssh_config of the containers: how each of the others is reached, by its name or its address.

    Nothing in it is about any other host, such as one that a job copies its data from.
    """
    members = tuple(members)
    blocks = [f"Host {member.name}\n    HostName {member.address}\n" for member in members]
    names = dict.fromkeys(name for member in members for name in (member.name, member.address))
    common = (
        f"Port {port}",
        "User root",
        f"IdentityFile {paths.key(cluster)}",
        "IdentitiesOnly yes",
        # What OpenSSH 8.9 and newer start with, sntrup761, takes 70 ms more a connection: a job makes two one after the
        # other. Names that OpenSSH 6.5 knows already; the second for machines in FIPS mode.
        "KexAlgorithms curve25519-sha256@libssh.org,ecdh-sha2-nistp256",
        "PreferredAuthentications publickey",
        "BatchMode yes",
        "StrictHostKeyChecking yes",
        f"UserKnownHostsFile {paths.known_hosts(cluster)}",
        "GlobalKnownHostsFile /dev/null",
        "UpdateHostKeys no",
        "CheckHostIP no",
        "ConnectTimeout 10",
        "ConnectionAttempts 3",
        "LogLevel ERROR",
    )
    blocks += [f"{line}\n" + "".join(f"    {each}\n" for each in common) for line in _host_lines(tuple(names))]
    return _HEADING + "".join(blocks)


def known_hosts(members: Iterable[Member], port: int) -> str:
    """Return the host keys that are known, `[ADDRESS]:PORT TYPE KEY NAME` each."""
    return "".join(
        f"{_known_as(member.address, port)} {member.key} {member.name}\n" for member in members if member.key
    )


def parse_known_hosts(text: str) -> Mapping[str, Member]:
    """Read what `known_hosts` gave, by name; lines that are not its own are passed over."""
    matches = filter(None, map(_KNOWN.fullmatch, text.splitlines()))
    return {match[4]: Member(match[4], match[1] or match[2], match[3]) for match in matches}


def authorized_keys(key: str) -> str:
    """Return who may log in: whoever has the cluster's key, of which `key` is the public half.

    bash takes a first shell behind sshd for a login: the one that sshd has read ForceCommand would read the image's
    .bashrc, and what that prints would break scp, sftp and orted. By SHLVL it is not the first.
    """
    return f'environment="SHLVL=1" {key}\n'


def sshd_config(cluster: str, address: str, port: int) -> str:
    """Return the settings of a container's sshd: on one address, keys only, every session by way of session.sh.

    They are read alike by OpenSSH 7.2 (Ubuntu 16.04), 7.4 (CentOS 7) and those of today.
    """
    settings = (
        f"ListenAddress {f'[{address}]' if ':' in address else address}:{port}",
        f"HostKey {paths.host_key(cluster)}",
        f"PidFile {paths.SSHD_PID}",
        f"AuthorizedKeysFile {paths.authorized_keys(cluster)}",
        "AuthenticationMethods publickey",
        "PubkeyAuthentication yes",
        "PasswordAuthentication no",
        "ChallengeResponseAuthentication no",
        "UsePAM no",  # its limits would take the place of the container's, memlock before all
        "AllowUsers root",
        "PermitRootLogin prohibit-password",
        "PermitUserEnvironment yes",  # for what authorized_keys says of SHLVL
        f"ForceCommand /bin/sh {paths.session_script(cluster)}",
        "Subsystem sftp sftp-server",  # a word that session.sh knows: its path differs between images
        "AllowAgentForwarding no",
        # An editor's remote mode needs it. Whoever logs in may run programs that connect anywhere, so it allows nothing new.
        "AllowTcpForwarding local",
        "X11Forwarding no",
        "PrintMotd no",
        "UseDNS no",
        # all hosts of a cluster may come at once
        "MaxStartups 1024",
        "MaxSessions 1024",
        "LoginGraceTime 60",
    )
    return _HEADING + "".join(f"{line}\n" for line in settings)


def _known_as(address: str, port: int) -> str:
    return address if port == 22 else f"[{address}]:{port}"  # sshd(8): brackets only with another port


def _host_lines(names: Sequence[str]) -> Iterator[str]:
    """Divide names into `Host` lines that every ssh can read."""
    line = "Host"
    for name in names:
        if len(line) + 1 + len(name) > _LINE:
            yield line
            line = "Host"
        line += f" {name}"
    if names:
        yield line
