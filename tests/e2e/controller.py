"""A controller in a cluster's network: taco-launch as a user types it, by SSH to the first host."""

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from tests.e2e.cluster import STATE, Cluster
from tests.e2e.hosts import environ
from tests.support.patience import patience

PORT, ON = 2222, 2
_INVENTORY = """
cluster: c
ssh: {{user: root, identity_file: {folder}/login, host_keys: accept-new}}
hosts:
  n1: {{address: 10.77.0.1, port: {port}, slots: 2}}
  n2: {{address: 10.77.0.2, slots: 2}}
"""


class Controller:
    """Runs taco-launch as a user does."""

    def __init__(self, cluster: Cluster) -> None:
        made = cluster.made
        self._cluster = cluster
        self.inventory = made.folder / "inventory.yaml"
        self.inventory.write_text(_INVENTORY.format(folder=made.folder, port=PORT))
        self.home = made.folder / "home"
        (self.home / ".ssh").mkdir(parents=True, exist_ok=True)
        # Its sessions have the state folder and the programs that the tests' own calls have.
        config = made.folder / "sshd_config.controller"
        own = f"Port {PORT}\nSetEnv TACO_LAUNCH_STATE={STATE} PATH={cluster.env['PATH']}\n"
        config.write_text(own + (made.folder / "sshd_config").read_text())
        sshd = made.run("sh", "-c", "command -v sshd || echo /usr/sbin/sshd").stdout.strip()
        done = made.run(sshd, "-f", str(config), "-h", str(made.folder / "n1.key"))
        assert done.returncode == 0, done.stderr

    def argv(self, *words: str) -> list[str]:
        """Return the command line: with this machine's files, in the third host's network."""
        return [*self.network, sys.executable, "-m", "taco_launch", "-i", str(self.inventory), *words]

    @property
    def network(self) -> tuple[str, ...]:
        """What goes before a command that is to run in the third host's network."""
        return ("nsenter", "-t", str(self._cluster.made.inits[ON]), "-n", "--")

    @property
    def env(self) -> dict[str, str]:
        return {**environ({}), "HOME": str(self.home), "TACO_LAUNCH_STATE": str(self.home / "state")}

    def __call__(self, *words: str, **more: Any) -> "subprocess.CompletedProcess[str]":
        own: dict[str, Any] = {"env": self.env, "timeout": patience(60), **more}
        return subprocess.run(self.argv(*words), capture_output=True, text=True, check=False, **own)

    def cut(self) -> None:
        """End all connections of SSH to the head, as a network does that fails for a moment."""
        for pid in self.sessions():
            self._cluster.kill(pid, 0)

    def sessions(self) -> Sequence[int]:
        """Return the processes that serve its connections."""
        found = self._cluster.alive(r"^sshd(-session)?: root")
        return [pid for on, pid in found if on == 0]
