"""Logins to the training containers for other programs: a configuration for ssh, and the key and host keys that it names."""

import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from taco_launch.agent.store.folders import make_private, state_folder
from taco_launch.core.command import Command
from taco_launch.core.errors import HostError, TacoLaunchError, UsageError
from taco_launch.core.model.host import paths
from taco_launch.core.model.host.hosts import Inventory
from taco_launch.core.model.job_view import JobView
from taco_launch.hosts.fanout import connect
from taco_launch.hosts.remote.credentials import Credentials
from taco_launch.hosts.ssh.config import Config
from taco_launch.hosts.ssh.exported import HEADING, ContainerLogin, KeyFiles, text
from taco_launch.hosts.ssh.host_keys import own_file
from taco_launch.setup.files.ssh_files import Member, is_address, parse_known_hosts

_READ = 'cat -- "$1" && printf "\\0" && cat -- "$2"'
_SECONDS = 60.0
_KEY = re.compile(rb"-----BEGIN OPENSSH PRIVATE KEY-----\n[A-Za-z0-9+/=\n]{1,16384}-----END OPENSSH PRIVATE KEY-----\n")
_MOST_HEADING = 4096


def of_job(inventory: Inventory, job: JobView) -> Inventory:
    """Return an inventory as if the container that a job has, which may be its own, were the cluster's.

    Raises:
        UsageError: the job runs on the hosts themselves.
    """
    container = job.spec.container
    if container is None:
        raise UsageError(
            f"job {job.spec.name} does not run in a container: ssh reaches its hosts without a configuration"
        )
    cluster = paths.variant(inventory.cluster, container.variant) if container.variant else inventory.cluster
    hosts = tuple(host for host in inventory.hosts if host.name in (*job.record.hosts, inventory.head))
    return replace(inventory, cluster=cluster, container=container, hosts=hosts)


def ssh_config(
    inventory: Inventory, access: Credentials, environ: Mapping[str, str], called: str
) -> tuple[str, tuple[str, ...]]:
    """Return the configuration, and notes on hosts that it leaves out. The files that it names are written.

    `called` is what the entries begin with: CALLED-HOST.

    They lie in taco-launch's state folder, for their owner only: the cluster's key, which opens all of its containers.

    Raises:
        UsageError: the inventory has no container.
        HostError: the head cannot be reached, or is not set up.
        TacoLaunchError: a file cannot be written.
    """
    container = inventory.container
    if container is None:
        raise UsageError(
            "the inventory has no container section, so there is no ssh configuration to export",
            hint="connect to the hosts directly: ssh HOST; to run jobs in containers, add container: {image: ...}",
        )
    key, members = _of_head(inventory, access)
    folder = state_folder(environ, os.geteuid()) / "ssh" / inventory.cluster
    files = KeyFiles(str(folder / "key"), str(folder / "known_hosts"))
    logins, known, left_out = [], [], []
    for host in inventory.hosts:
        alias = f"{called}-{host.name}"
        member = members.get(host.name)
        if member is None or not member.key:
            left_out.append(f"{host.name}: the head does not know its container: set this host up first")
            continue
        address = member.address if is_address(member.address) else host.address
        logins.append(ContainerLogin(alias, address, container.ssh_port))
        known.append(f"{alias} {member.key}\n")
    config = Config(environ, connect_timeout=inventory.connect_timeout)
    head = next(host for host in inventory.hosts if host.name == inventory.head)
    route = None if head.connection == "local" else config.route(head)
    if route is not None:
        more = (str(Path(inventory.known_hosts).expanduser()),) if inventory.known_hosts else ()
        files_known = (*route.known_hosts, *more, str(own_file(environ)))
        route = replace(route, known_hosts=tuple(dict.fromkeys(files_known)))
    found = text(config, route, called, logins, files)
    try:
        make_private(folder)
        _write(Path(files.key), key.decode("ascii"))
        _write(Path(files.known_hosts), "".join(known))
    except OSError as error:
        raise TacoLaunchError(
            f"{folder}: {error.strerror}", hint="check the free space and your write permission there"
        ) from None
    return found, tuple(left_out)


def write(found: str, to: Path) -> None:
    """Write a configuration for its owner only, whole or not at all.

    Raises:
        UsageError: another file is there.
        TacoLaunchError: it cannot be written.
    """
    try:
        if to.is_symlink() or (to.exists() and not _is_ours(to)):
            raise UsageError(f"{to}: was not written by `export ssh-config`", hint="remove it, or name another file")
        _write(to, found)
    except OSError as error:
        raise TacoLaunchError(f"{to}: {error.strerror}", hint="name another file: --to FILE") from None


def _is_ours(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(_MOST_HEADING).startswith(HEADING.encode())


def _write(path: Path, content: str) -> None:
    descriptor, part = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mode 0600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(content)
        Path(part).replace(path)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise


def _of_head(inventory: Inventory, access: Credentials) -> tuple[bytes, Mapping[str, Member]]:
    """Return the cluster's key and its containers' host keys, as the head has them.

    Raises:
        HostError: the key cannot be read, or is no private key.
    """
    head = next(host for host in inventory.hosts if host.name == inventory.head)
    files = paths.key(inventory.cluster), paths.known_hosts(inventory.cluster)
    with connect(inventory, (head,), access) as fanout:
        (transport,) = fanout.transports
        command = Command(("/bin/sh", "-c", _READ, "read", *files), sudo=True, timeout=_SECONDS)
        result = transport.run(command)
    setup = f"taco-launch -i {inventory.source} setup prepares the hosts" if inventory.source else "set the hosts up"
    if result.exit_code:
        raise HostError(f"{head.name}: {files[0]}: the cluster's key cannot be read: is the host set up?", hint=setup)
    key, _nul, known = result.stdout.partition(b"\0")
    if not _KEY.fullmatch(key):
        raise HostError(f"{head.name}: {files[0]}: is not an OpenSSH private key", hint=setup)
    return key, parse_known_hosts(known.decode("utf-8", "replace"))
