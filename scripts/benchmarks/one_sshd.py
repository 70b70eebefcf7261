"""One sshd on loopback that plays any number of hosts: addresses 127.x.y.z of it, and an inventory that names them."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

_KEX = "curve25519-sha256,curve25519-sha256@libssh.org"
# SHLVL keeps bash from reading the rc files of whoever measures: hosts are hosts, not this machine's desktop.
_SSHD = """
Port {port}
ListenAddress 0.0.0.0
HostKey {folder}/host
AuthorizedKeysFile {folder}/login.pub
KexAlgorithms {kex}
PermitRootLogin prohibit-password
PasswordAuthentication no
MaxStartups 10000
PidFile none
StrictModes no
UseDNS no
UsePAM no
SetEnv PATH=/usr/local/bin:/usr/bin:/bin SHLVL=2
"""


def addresses(count: int) -> tuple[str, ...]:
    """Return so many addresses of the loopback interface."""
    return tuple(f"127.1.{number >> 8}.{number & 255}" for number in range(1, count + 1))


def inventory(folder: Path, count: int, more: str = "") -> None:
    """Write cluster-COUNT.yaml, which names so many addresses; `more` are sections of the user's."""
    port = (folder / "port").read_text()
    hosts = "".join(f"  h{number}: {{address: {each}}}\n" for number, each in enumerate(addresses(count), 1))
    (folder / f"cluster-{count}.yaml").write_text(
        f"cluster: bench\nssh: {{user: root, identity_file: {folder}/login, known_hosts: {folder}/known_hosts}}\n"
        f"defaults: {{port: {port}}}\n{more}hosts:\n{hosts}"
    )


@contextlib.contextmanager
def start(folder: Path, more: str = "") -> Iterator[None]:
    """Start an sshd with `more` in its configuration, and write what clients need to reach it, and the probe."""
    for name in ("host", "login"):
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(argv, check=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (folder / "port").write_text(str(port))
    (folder / "sshd_config").write_text(_SSHD.format(port=port, folder=folder, kex=_KEX) + more)
    (folder / "known_hosts").write_text(f"[127.*]:{port} {(folder / 'host.pub').read_text()}")
    (folder / "ssh_config").write_text(
        f"Host *\n  User root\n  Port {port}\n  IdentityFile {folder}/login\n  IdentitiesOnly yes\n  BatchMode yes\n"
        f"  UserKnownHostsFile {folder}/known_hosts\n  StrictHostKeyChecking yes\n  KexAlgorithms {_KEX}\n"
    )
    source = Path(__file__).resolve().parents[2] / "taco_launch/core/facts/probe.sh"
    (folder / "probe.sh").write_bytes(source.read_bytes())
    Path("/run/sshd").mkdir(exist_ok=True)
    program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin") or "sshd"
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([program, "-D", "-e", "-f", str(folder / "sshd_config")], stderr=log)
        try:
            deadline = time.monotonic() + 10
            while True:
                with socket.socket() as client:
                    if client.connect_ex(("127.0.0.1", port)) == 0:
                        break
                if server.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit((folder / "log").read_text())
                time.sleep(0.05)
            yield
        finally:
            server.terminate()
            server.wait()
