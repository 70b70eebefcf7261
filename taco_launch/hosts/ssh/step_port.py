"""A port on the loopback of a node of Slurm, which may have no sshd: each connection to it is a step of the job (srun --overlap)."""

import base64
import contextlib
import socket
import subprocess
from typing import Any

import paramiko

from taco_launch.core.command import shell
from taco_launch.core.errors import HostError
from taco_launch.core.model.host.hosts import Inventory
from taco_launch.hosts.remote.credentials import Credentials
from taco_launch.hosts.ssh.channel import bound_unread
from taco_launch.hosts.ssh.host_port import HostPort

# Slurm may be slow to start a step; seconds.
_CONNECT_SECONDS = 60.0
# Runs on the node: joins its standard input and output to a port. It prints one byte once it is connected.
_RELAY = """
import os, socket, sys, threading
far = socket.create_connection(("localhost", int(sys.argv[1])))
os.write(1, b"+")
def send():
    for data in iter(lambda: os.read(0, 65536), b""):
        far.sendall(data)
    far.shutdown(socket.SHUT_WR)
threading.Thread(target=send, daemon=True).start()
with open(1, "wb", buffering=0, closefd=False) as out:
    for data in iter(lambda: far.recv(65536), b""):
        while data:
            data = data[out.write(data):]
os._exit(0)
"""


class StepPort:
    """A port on the loopback of a node of a job, reached from the login node."""

    def __init__(self, inventory: Inventory, node: str, port: int, program: str, access: Credentials) -> None:
        """Prepare the way to the login node; nothing is opened. `program` stands for ssh to the job's nodes. Raises as HostPort."""
        self.name, self._port = node, port
        self._argv = (program, node, shell(("python3", "-I", "-S", "-c", _on_one_line(_RELAY), str(port))))
        head = next(host for host in inventory.hosts if host.name == inventory.head)
        self._login = None if head.connection == "local" else HostPort(inventory, head, port, access)
        self._steps: list[subprocess.Popen[bytes]] = []

    def open(self) -> None:
        """Log in to the login node if it is another machine. Raises as HostPort."""
        if self._login is not None:
            self._login.open()

    def connect(self) -> Any:
        """Connect to the port.

        Raises:
            HostError: Slurm starts no step on the node, or nothing accepts connections there.
        """
        try:
            far = self._step_here() if self._login is None else self._step_there(self._login)
            far.settimeout(_CONNECT_SECONDS)
            is_connected = far.recv(1) == b"+"
            far.settimeout(None)
        except (OSError, EOFError, paramiko.SSHException) as error:
            raise HostError(f"{self.name}: no connection by srun: {error}") from None
        if not is_connected:
            far.close()
            raise HostError(
                f"{self.name}: nothing accepts connections on port {self._port} of its loopback",
                hint=f"does the program listen there yet? On the login node: {shell((*self._argv[:2], 'ss -ltn'))}",
            )
        return far

    def _step_here(self) -> socket.socket:
        near, far = socket.socketpair()
        with far:
            self._steps = [each for each in self._steps if each.poll() is None]
            step = subprocess.Popen(
                self._argv, stdin=far.fileno(), stdout=far.fileno(), stderr=subprocess.DEVNULL, start_new_session=True
            )
            self._steps.append(step)
        return near

    def _step_there(self, login: HostPort) -> paramiko.Channel:
        channel: paramiko.Channel = login.open().connection.transport.open_session(timeout=_CONNECT_SECONDS)
        channel.exec_command(shell(self._argv))
        bound_unread(channel)
        return channel

    def close(self) -> None:
        """Close all connections."""
        for each in self._steps:
            with contextlib.suppress(OSError):
                each.terminate()
        if self._login is not None:
            self._login.close()


def _on_one_line(program: str) -> str:
    """Return a program of Python without line ends, which srun does not pass on."""
    return f"import base64; exec(base64.b64decode({base64.b64encode(program.encode()).decode()!r}))"
