"""What the controller needs to enter a lab: key pair, host keys, ssh configuration, the registry's login and authority.

All of it lies in `lab/NAME` below the state folder, for its owner only, and can be made again from the lab itself.
"""

import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from taco_launch.agent.store.folders import make_private, state_folder
from taco_launch.core.errors import TacoLaunchError
from taco_launch.core.frozen import dataclass
from taco_launch.lab.docker.labels import LabHost, check_lab_name

REGISTRY_USER = "lab"
USER = "root"


def root_folder(environ: Mapping[str, str], uid: int) -> Path:
    """Return the folder of all labs."""
    return state_folder(environ, uid) / "lab"


@dataclass(frozen=True)
class LabFiles:
    """The files of one lab."""

    folder: Path

    @property
    def key(self) -> Path:
        """The private key; the public one lies beside it."""
        return self.folder / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        """The hosts' public keys, read by way of the engine, not of the network."""
        return self.folder / "known_hosts"

    @property
    def ssh_config(self) -> Path:
        """What `ssh -F` needs to reach every host by its name."""
        return self.folder / "ssh_config"

    @property
    def password(self) -> Path:
        """The password of the registry."""
        return self.folder / "registry-password"

    @property
    def authority(self) -> Path:
        """The certificate of the lab's own authority, which signed the registry's."""
        return self.folder / "ca.crt"

    @property
    def packages_key(self) -> Path:
        """The key that signs the simulated packages."""
        return self.folder / "packages.asc"

    @property
    def image(self) -> Path:
        """The training image, as hosts of the lab call it: one line; there while the registry has it."""
        return self.folder / "training-image"

    def make_key(self) -> str:
        """Return the public key; the pair is made where either half is missing.

        Raises:
            TacoLaunchError: ssh-keygen is missing or failed.
        """
        public = self.key.with_suffix(".pub")
        make_private(self.folder)
        if not (self.key.is_file() and public.is_file()):
            if shutil.which("ssh-keygen") is None:
                raise TacoLaunchError("ssh-keygen is not installed", hint="apt-get install openssh-client")
            self.key.unlink(missing_ok=True)
            comment = f"taco-launch-lab-{self.folder.name}"
            argv = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(self.key))
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
            if done.returncode:
                raise TacoLaunchError(f"{self.key}: ssh-keygen: {done.stderr.strip()}")
        return public.read_text("utf-8").strip()

    def keep(self, path: Path, text: str) -> bool:
        """Write a file of this folder, readable by its owner only; say whether that changed anything."""
        if path.is_file() and path.read_text("utf-8") == text:
            return False
        make_private(self.folder)
        part = path.with_name(f".{path.name}.part")
        part.unlink(missing_ok=True)
        part.touch(mode=0o600)
        part.write_text(text, "utf-8")
        part.rename(path)
        return True

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


def access(environ: Mapping[str, str], uid: int, lab: str) -> LabFiles:
    """Return the files of a lab; nothing is touched.

    Raises:
        UsageError: no lab may have this name.
    """
    check_lab_name(lab)
    return LabFiles(root_folder(environ, uid) / lab)


def known_hosts(keys: Iterable[tuple[LabHost, str]]) -> str:
    """Return a known_hosts file for hosts and their public keys (one a line, as in ssh_host_*_key.pub)."""
    lines = []
    for host, text in keys:
        for line in sorted(text.splitlines()):
            kind, key, *_ = line.split()
            lines.append(f"{host.name},{host.address} {kind} {key}\n")
    return "".join(lines)


def ssh_config(hosts: Iterable[LabHost], files: LabFiles) -> str:
    """Return an ssh configuration that knows every host by its name."""
    lines = [f"Host {host.name}\n  HostName {host.address}\n" for host in hosts]
    lines.append(
        f"Host *\n  User {USER}\n  IdentityFile {files.key}\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {files.known_hosts}\n  GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n"
    )
    return "".join(lines)
