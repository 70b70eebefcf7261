"""A host for the docker stage's scripts: its /etc and /var/lib in a folder, and simulated tools."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from taco_launch.setup.scripts import text

# All that the scripts may find besides what is simulated.
_REAL = "awk base64 basename cat chmod cp cut date df env grep head id ls mkdir mktemp mv od readlink rm sed sh sha1sum sha256sum sleep sort tail tr wc".split()  # noqa: SIM905
# What stands in front of a script where it is run.
_FRONT = {
    "docker_install.sh": ("dpkg.sh", "packages.sh"),
    "toolkit_install.sh": ("dpkg.sh", "packages.sh"),
    "docker_settings.sh": ("dockerd.sh",),
    "docker_start.sh": ("dpkg.sh", "dockerd.sh"),
}


@dataclass(frozen=True)
class Machine:
    """A folder that holds a host's /etc and /var/lib, simulated tools, and what they were called with."""

    root: Path

    def tool(self, name: str, script: str) -> None:
        """Put a tool that notes its arguments and then does what `script` says."""
        path = self.root / "bin" / name
        path.unlink(missing_ok=True)
        path.write_text(f'#!/bin/sh\necho "{name} $*" >>{self.root}/calls\n{script}\n')
        path.chmod(0o755)

    def run(self, script: str, *args: str) -> tuple[int, str]:
        """Run a script of set-up as a batch does; give its exit code and its last line, with the hint that follows it."""
        body = "".join(map(text, (*_FRONT[script], script)))
        body = body.replace("/etc/", f"{self.root}/etc/").replace("/var/lib/dpkg", f"{self.root}/dpkg")
        done = subprocess.run(
            ("/bin/sh", "-euc", body, "setup", *args),
            env={
                "PATH": str(self.root / "bin"),
                "TMPDIR": str(self.root / "tmp"),
                "taco_typed": "taco-launch -i hosts.yaml",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=30,
            check=False,
        )
        assert os.listdir(self.root / "tmp") == []
        said = done.stdout.strip().splitlines() or [""]
        return done.returncode, "\n".join(said[-2:] if said[-1].startswith("hint: ") else said[-1:])

    @property
    def calls(self) -> list[str]:
        path = self.root / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def called(self, name: str) -> list[str]:
        return [call for call in self.calls if call.split()[0] == name]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    for folder in ("bin", "tmp", "etc", "etc/apt/sources.list.d", "etc/yum.repos.d", "dpkg/updates"):
        (tmp_path / folder).mkdir(parents=True)
    for name in _REAL:
        real = shutil.which(name)
        assert real is not None
        (tmp_path / "bin" / name).symlink_to(real)
    machine = Machine(tmp_path)
    machine.tool("sleep", "")
    machine.tool("systemctl", "")
    machine.tool("update-ca-certificates", "")
    machine.tool("dpkg", "case $1 in --audit) ;; --print-architecture) echo amd64 ;; esac")
    machine.tool("apt-cache", "exit 100")
    machine.tool(
        "apt-get",
        f"""case " $* " in *" install "*)
      for tool in docker dockerd; do printf '#!/bin/sh\\n' >{tmp_path}/bin/$tool; chmod 755 {tmp_path}/bin/$tool; done ;;
    esac""",
    )
    (tmp_path / "etc/os-release").write_text("ID=debian\nVERSION_CODENAME=bookworm\nVERSION_ID=12\n")
    return machine
