"""Hosts on one machine: namespaces on a bridge, each with a name, address, processes, /tmp, home and sshd of its own.

Nothing of them has a name on the machine: they end with the process that made them, however that ends.
"""

import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO

from tests.support.patience import patience

_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
_NEEDED = {"ip": "iproute2", "nsenter": "util-linux", "ssh": "openssh-client", "sshd": "openssh-server"}
_UNSHARE = [
    *("setpriv", "--pdeathsig", "KILL", "--"),
    *("unshare", "--net", "--uts", "--mount", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc", "--"),
]
_HIDDEN = ("/tmp", pwd.getpwuid(0).pw_dir)
# The first process of a host. What is hidden and yet has to be seen follows the fixed arguments.
_INIT = """
set -eu
name=$1 address=$2 sshd=$3 folder=$4 tmp=$5 home=$6
shift 6
echo "$name" >/proc/sys/kernel/hostname
mount -t tmpfs tmpfs /run
mkdir -p /run/sshd /run/keep
for path; do
  mkdir -p "/run/keep$path"
  mount --bind "$path" "/run/keep$path"
done
mount -t tmpfs -o mode=1777 tmpfs "$tmp"
mount -t tmpfs -o mode=0700 tmpfs "$home"
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
for path; do
  mkdir -p "$path"
  mount --bind "/run/keep$path" "$path"
done
mount --bind "$folder/hosts" /etc/hosts
mount --bind "$folder/shadow" /etc/shadow
read -r cable
ip link set lo up
ip address add "$address/16" dev eth0
ip link set eth0 up
# as Docker leaves it on every host: the same address everywhere, which must not be used between them
ip link add docker0 type veth peer name container0
ip address add 172.17.0.1/16 dev docker0
ip link set docker0 up
ip link set container0 up
exec "$sshd" -D -e -f "$folder/sshd_config" -h "$folder/$name.key"
"""
_SSHD = """
AuthorizedKeysFile {folder}/login.pub
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
MaxStartups 1000
PidFile none
StrictModes no
UseDNS no
UsePAM no
"""
_SSH = """
Host *
  User root
  IdentityFile {folder}/login
  IdentitiesOnly yes
  IdentityAgent none
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  BatchMode yes
  ConnectTimeout 10
"""
_WAIT = 'for a; do until (exec 3<>"/dev/tcp/$a/22") 2>/dev/null; do sleep 0.05; done; done'


def why_not() -> str:
    """Return why no hosts can be made here, empty where they can."""
    if os.geteuid() != 0:
        return "cannot: only root makes hosts of namespaces"
    for command, package in _NEEDED.items():
        if not shutil.which(command, path=_PATH):
            return f"{command} is not installed (apt-get install {package})"
    script = "mount -t tmpfs tmpfs /run && ip link add br0 type bridge && ip link add eth0 type veth peer name port0"
    run = _run([*_UNSHARE, "sh", "-c", script])
    return f"cannot: make a host of namespaces: {run.stderr.strip()}" if run.returncode else ""


@dataclass(frozen=True)
class Hosts:
    """Hosts that run; the first is the head."""

    names: tuple[str, ...]
    inits: tuple[int, ...]  # the process that is first in each
    folder: Path  # seen in all of them

    @property
    def ssh_config(self) -> Path:
        """What `ssh -F` needs to reach each of them by its whole name."""
        return self.folder / "ssh_config"

    def run(
        self,
        *argv: str,
        on: int = 0,
        env: Mapping[str, str] = MappingProxyType({}),
        timeout: float = 60,
        stdin: str = "",
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command on a host, in the folder that all see, with `env` added."""
        return _run([*self.inside(on), *argv], stdin, env, timeout)

    def inside(self, on: int = 0) -> list[str]:
        """Return what goes before a command that is to run on a host."""
        enter = ["nsenter", "-t", str(self.inits[on]), "-n", "-u", "-m", "-i", "-p", "--"]
        return [*enter, "env", "-C", str(self.folder)]


@contextmanager
def hosts(names: Sequence[str], folder: Path, keep: Sequence[Path] = ()) -> Iterator[Hosts]:
    """Make hosts of these names; `folder` is theirs, and each sees `keep`, wherever that lies.

    Raises:
        AssertionError: a host did not come up; with what it said.
    """
    addresses = [f"10.77.{number // 256}.{number % 256}" for number in range(1, len(names) + 1)]
    _write_files(names, addresses, folder)
    kept = [str(path) for path in (folder, *keep) if any(path.is_relative_to(hidden) for hidden in _HIDDEN)]
    fixed = [shutil.which("sshd", path=_PATH) or "sshd", str(folder), *_HIDDEN]
    with ExitStack() as stack:
        started = [
            stack.enter_context(_held(["sh", "-c", _INIT, "init", name, address, *fixed, *kept], folder))
            for name, address in zip(names, addresses, strict=True)
        ]
        switch, _stdin = stack.enter_context(_held(["sleep", "infinity"], folder))
        cables = (
            f"link add name port{number} master br0 up type veth peer name eth0 netns {init}"
            for number, (init, _stdin) in enumerate(started)
        )
        _ip(switch, "link add br0 type bridge", "link set br0 up", *cables)
        for _init, stdin in started:
            stdin.write(b"plugged in\n")
            stdin.flush()
        made = Hosts(tuple(names), tuple(init for init, _stdin in started), folder)
        deadline = time.monotonic() + patience(30)
        try:
            # Until the first host has mounted the folder nothing can be run in it.
            while made.run("bash", "-c", _WAIT, "wait", *addresses, timeout=30).returncode:
                assert time.monotonic() < deadline, (folder / "log").read_text()
                time.sleep(0.05)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"not every sshd answers: {(folder / 'log').read_text()}") from None
        yield made


def _write_files(names: Sequence[str], addresses: Sequence[str], folder: Path) -> None:
    keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f"]
    subprocess.run([*keygen, str(folder / "login")], check=True)
    table, known, config = ["127.0.0.1 localhost"], [], []
    for name, address in zip(names, addresses, strict=True):
        subprocess.run([*keygen, str(folder / f"{name}.key")], check=True)
        table.append(f"{address} {name}")
        known.append(f"{address} {(folder / f'{name}.key.pub').read_text().strip()}")
        config.append(f"Host {name}\n  HostName {address}")
    (folder / "hosts").write_text("\n".join([*table, ""]))
    (folder / "known_hosts").write_text("\n".join([*known, ""]))
    (folder / "ssh_config").write_text("\n".join(config) + _SSH.format(folder=folder))
    (folder / "sshd_config").write_text(_SSHD.format(folder=folder))
    (folder / "shadow").write_text("root:*:19000::::::\nsshd:*:19000::::::\n")  # sshd refuses a locked root


@contextmanager
def _held(argv: Sequence[str], folder: Path) -> Iterator[tuple[int, IO[bytes]]]:
    """Run a command as the first process of new namespaces, which end with the block: its id, and its stdin."""
    with (folder / "log").open("ab") as log:
        holder = subprocess.Popen(
            [*_UNSHARE, *argv], stdin=subprocess.PIPE, stdout=log, stderr=log, env=environ({}), start_new_session=True
        )
    try:
        deadline = time.monotonic() + patience(10)
        children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children")
        while not children.read_text():  # its child starts when the namespaces are made
            assert holder.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline, "unshare does not start its command"
            time.sleep(0.005)
        assert holder.stdin
        yield int(children.read_text()), holder.stdin
    finally:
        holder.kill()
        holder.communicate()


def _ip(init: int, *lines: str) -> None:
    """Run commands of ip in the network namespace of a process."""
    argv = ["nsenter", "-t", str(init), "-n", "ip", "-batch", "-"]
    run = _run(argv, "\n".join(lines))
    assert run.returncode == 0, run.stderr


def _run(
    argv: Sequence[str], stdin: str = "", env: Mapping[str, str] = MappingProxyType({}), timeout: float = 60
) -> "subprocess.CompletedProcess[str]":
    own, limit = environ(env), patience(timeout)
    return subprocess.run(argv, input=stdin, capture_output=True, text=True, env=own, timeout=limit, check=False)


def environ(more: Mapping[str, str]) -> dict[str, str]:
    """Return the caller's environment without what it says to Open MPI, with the folders of system commands."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("OMPI_", "PMIX_", "PRTE_"))}
    return {**own, "PATH": _PATH, **more}
