"""A simulated machine in a folder that stands for a host's root, and its tools."""

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from taco_launch.lab import hardware
from tests.support.patience import patience

LIBRARY = "usr/lib/simulated-hardware"
STATE = "var/lib/simulated-hardware"
MAC = "02:42:0a:00:00:0b"
ADDRESS = "10.0.0.11"


@dataclass(frozen=True)
class Host:
    """The root folder of one."""

    root: Path

    def __call__(self, line: str) -> "subprocess.CompletedProcess[str]":
        """Run one of the host's tools, wherever it lies in it; 127 where it has none of that name."""
        name, *arguments = line.split()
        found = shutil.which(name, path=":".join(str(self.root / folder) for folder in _PATH))
        if found is None:
            return subprocess.CompletedProcess(line, 127, "", f"{name}: not found\n")
        return self.run([found, *arguments])

    def ok(self, line: str) -> str:
        """Run a tool that has to succeed; give what it printed."""
        answer = self(line)
        assert answer.returncode == 0, (line, answer)
        return answer.stdout

    def start(self, words: Sequence[str]) -> "subprocess.Popen[str]":
        """Start one of the host's tools that continues."""
        name, *arguments = words
        found = shutil.which(name, path=":".join(str(self.root / folder) for folder in _PATH))
        assert found is not None
        env = {"PATH": os.environ["PATH"], "SIMULATED_HARDWARE_ROOT": str(self.root)}
        return subprocess.Popen([found, *arguments], env=env, stdout=subprocess.PIPE, text=True)

    def set(self, fact: str, value: str) -> None:
        answer = self.run([str(self.root / LIBRARY / "simulated-hardware"), "set", fact, value])
        assert answer.returncode == 0, answer.stderr

    def boot(self) -> str:
        """Boot it; give what it complained about."""
        answer = self.run([str(self.root / LIBRARY / "simulated-hardware"), "boot"])
        assert answer.returncode == 0, answer.stderr
        return answer.stderr

    def read(self, path: str) -> str:
        return (self.root / path).read_text("utf-8").strip()

    def has(self, path: str) -> bool:
        return (self.root / path).exists()

    def run(self, argv: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        """Run a program for this root folder."""
        env = {"PATH": os.environ["PATH"], "SIMULATED_HARDWARE_ROOT": str(self.root)}
        return subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=patience(30))


_PATH = ("usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "etc/init.d")


def make(root: Path, machine: str, number: int = 1, most: int = 64) -> Host:
    """Make a host of a machine with four CPUs and an interface bond0, of each kind of device at most so many; boot it."""
    for path, mode, content in hardware.files(machine, number):
        device = re.match(rf"/{STATE}/(?:gpu/|hca/mlx5_|nvswitch/)([0-9]+)/", path)
        if device and int(device[1]) >= most:
            continue
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        if stat.S_ISLNK(mode):
            place.symlink_to(content.decode())
            continue
        place.write_bytes(content)
        place.chmod(mode)
    for name, text in (
        ("sys/devices/system/cpu/online", "0-3"),
        ("sys/class/net/bond0/address", MAC),
        ("sys/class/net/bond0/carrier", "1"),
        ("run/simulated-hardware/addresses", ADDRESS),
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n", "utf-8")
    host = Host(root)
    assert host.boot() == ""
    return host
