"""A real sshd on loopback, on a port of its own, with users, shells and sudo rules that only it and its sessions see."""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.conftest import eventually
from tests.support.patience import HANG

_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
# A mount namespace: what is bound over /etc is seen by this sshd only, and gone with it.
_INIT = """
set -eu
folder=$1 sshd=$2
mount -t tmpfs tmpfs /run
mkdir /run/sshd /run/test
mount --bind "$folder" /run/test
for file in passwd shadow group sudoers; do
  if [ -e "$folder/$file" ] && [ -e "/etc/$file" ]; then mount --bind "$folder/$file" "/etc/$file"; fi
done
exec "$sshd" -D -e -f /run/test/sshd_config
"""
_CONFIG = """
ListenAddress 0.0.0.0:{port}
{host_keys}
AuthorizedKeysFile /run/test/authorized
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
PidFile none
StrictModes no
UseDNS no
UsePAM no
PrintMotd no
LogLevel VERBOSE
"""


@dataclass(frozen=True)
class User:
    """A user of the sshd; `password` is for sudo, `sudo` a line of its rules after the user's name."""

    name: str
    uid: int
    shell: str = "/bin/bash"
    password: str = ""
    sudo: tuple[str, ...] = ()
    rc: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Sshd:
    """One that runs."""

    port: int
    folder: Path
    pid: int = field(default=0)

    def host_key(self, kind: str = "ed25519") -> str:
        """Return the public half of a host key, as known_hosts has it."""
        return " ".join((self.folder / f"host_{kind}.pub").read_text().split()[:2])

    @property
    def login(self) -> Path:
        """The private key that everybody may log in with."""
        return self.folder / "login"

    def log(self) -> str:
        """Return what it said."""
        return (self.folder / "log").read_text(errors="replace")


def why_not() -> str:
    """Return why there can be none here, empty where there can."""
    if os.geteuid() != 0:
        return "cannot: only root starts an sshd with users of its own"
    if not shutil.which("sshd", path=_PATH):
        return "sshd is not installed (apt-get install openssh-server)"
    script = ["unshare", "--mount", "sh", "-c", "mount -t tmpfs tmpfs /run"]
    run = subprocess.run(script, capture_output=True, text=True, check=False)
    return f"cannot: make a mount namespace: {run.stderr.strip()}" if run.returncode else ""


def keygen(path: Path, kind: str = "ed25519", *options: str, passphrase: str = "") -> Path:
    """Make a key pair."""
    argv = ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", path.name, "-f", str(path), *options]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)
    return path


@contextlib.contextmanager
def sshd(
    folder: Path, *, users: tuple[User, ...] = (), options: str = "", kinds: tuple[str, ...] = ("ed25519",)
) -> Iterator[Sshd]:
    """Start one; it ends with the block."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind in kinds:
        if not (folder / f"host_{kind}").exists():
            keygen(folder / f"host_{kind}", kind)
    if not (folder / "login").exists():
        keygen(folder / "login")
        (folder / "authorized").write_text((folder / "login.pub").read_text())
    _write_users(folder, users)
    text = (
        options + "\n" + _CONFIG.replace("{host_keys}", "\n".join(f"HostKey /run/test/host_{kind}" for kind in kinds))
    )
    process, port = _started(folder, text)
    try:
        yield Sshd(port, folder, process.pid)
    finally:
        process.kill()
        process.wait()


def _started(folder: Path, config: str) -> "tuple[subprocess.Popen[bytes], int]":
    """Start one on a free port: on another one where somebody else took that before it listened."""
    argv = ["setpriv", "--pdeathsig", "KILL", "--", "unshare", "--mount", "--", "sh", "-c", _INIT, "init"]
    program = shutil.which("sshd", path=_PATH) or "sshd"
    for _try in range(3):
        with socket.socket() as probe:
            probe.bind(("0.0.0.0", 0))
            port = probe.getsockname()[1]
        (folder / "sshd_config").write_text(config.replace("{port}", str(port)))
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen([*argv, str(folder), program], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        if _listens(process, port, folder):
            return process, port
        process.kill()
        process.wait()
    raise AssertionError(f"sshd does not listen: {(folder / 'log').read_text()}")


def _listens(process: "subprocess.Popen[bytes]", port: int, folder: Path) -> bool:
    """Wait until it says that it listens; return false where its port is in use."""
    deadline = time.monotonic() + HANG
    while True:
        said = (folder / "log").read_text(errors="replace")
        if f"Server listening on 0.0.0.0 port {port}" in said:
            return True
        if "Address already in use" in said:
            return False
        assert process.poll() is None, said
        assert time.monotonic() < deadline, f"sshd does not listen: {said}"
        time.sleep(0.02)


def _write_users(folder: Path, users: tuple[User, ...]) -> None:
    passwd, shadow, group = ["root:x:0:0:root:/root:/bin/bash"], ["root:*:19000::::::"], ["root:x:0:"]
    passwd.append("sshd:x:105:65534::/run/sshd:/usr/sbin/nologin")
    passwd.append("nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin")
    shadow.append("sshd:*:19000::::::")
    group += ["tty:x:5:", "nogroup:x:65534:", "shadow:x:42:"]
    rules = ["Defaults env_reset", "Defaults secure_path=/usr/sbin:/usr/bin:/sbin:/bin"]
    folder.chmod(0o755)
    for user in users:
        home = folder / "home" / user.name
        home.mkdir(parents=True, exist_ok=True)
        for name, text in user.rc:
            file = home / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        for path in (home, *home.rglob("*")):
            os.chown(path, user.uid, user.uid)
        passwd.append(f"{user.name}:x:{user.uid}:{user.uid}::/run/test/home/{user.name}:{user.shell}")
        hashed = "*"
        if user.password:
            made = subprocess.run(
                ["openssl", "passwd", "-6", user.password], capture_output=True, text=True, check=True
            )
            hashed = made.stdout.strip()
        shadow.append(f"{user.name}:{hashed}:19000::::::")
        group.append(f"{user.name}:x:{user.uid}:")
        rules += [line.replace("USER", user.name) for line in user.sudo]
    for name, lines in (("passwd", passwd), ("shadow", shadow), ("group", group), ("sudoers", rules)):
        (folder / name).unlink(missing_ok=True)
        (folder / name).write_text("\n".join([*lines, ""]))
    (folder / "shadow").chmod(0o640)
    (folder / "sudoers").chmod(0o440)


@contextmanager
def agent(*keys: Path) -> Iterator[str]:
    """Run one that holds keys; give its socket."""
    path = f"/tmp/taco-launch-agent-{os.getpid()}"
    env = {**os.environ, "SSH_AUTH_SOCK": path}

    def add(word: str) -> int:
        return subprocess.run(["ssh-add", word], env=env, capture_output=True, check=False).returncode

    process = subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL)
    try:
        # ssh-add(1): 2 where no agent answers, which is so for a moment when its socket already exists
        eventually(lambda: add("-l") < 2, 10, "the agent")
        for key in keys:
            assert add(str(key)) == 0
        yield path
    finally:
        process.terminate()
        process.wait()
