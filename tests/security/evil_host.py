"""A malicious SSH server, on loopback: it lets anybody in and answers each command as a script says."""

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import paramiko

_MARKER = re.compile(rb"taco_m=([0-9a-f]+);")
_PIECE = 1 << 20


@dataclass
class Session:
    """One command on its way: the marker that the controller expects, and the channel."""

    marker: bytes
    channel: paramiko.Channel
    line: bytes

    def start(self) -> bytes:
        """Pretend that the shell has started; return the line that it is given, with what follows it so far."""
        self.channel.sendall(self.marker + b":start 4711\n")
        self.channel.sendall_stderr(self.marker + b":start 4711\n")
        return self.receive()

    def receive(self, seconds: float = 10) -> bytes:
        """Return what the controller sends, b"" when that takes longer or nothing more comes."""
        self.channel.settimeout(seconds)
        with suppress(TimeoutError):
            return bytes(self.channel.recv(_PIECE))
        return b""

    def wait(self) -> None:
        """Stay silent until the controller has had enough."""
        while not self.channel.closed:
            time.sleep(0.01)

    def say(self, data: bytes) -> None:
        """Send bytes on stdout."""
        self.channel.sendall(data)

    def end(self, code: bytes = b"0") -> None:
        """Send the end markers."""
        self.channel.sendall(self.marker + b":end " + code + b"\n")
        self.channel.sendall_stderr(self.marker + b":end " + code + b"\n")


@dataclass
class Evil:
    """The server: its port, and what the controller has sent to each command, in order."""

    port: int
    sent: list[bytes] = field(default_factory=list)


class _Door(paramiko.ServerInterface):
    def __init__(self, act: Callable[[Session], None]) -> None:
        self._act = act

    def get_allowed_auths(self, _username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, _username: str, _key: paramiko.PKey) -> int:
        return paramiko.AUTH_SUCCESSFUL

    def check_channel_request(self, _kind: str, _number: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def check_channel_pty_request(self, *_words: object) -> bool:
        return True

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        found = _MARKER.search(command)
        session = Session(found[1] if found else b"", channel, command)
        threading.Thread(target=self._run, args=(session,), daemon=True).start()
        return True

    def _run(self, session: Session) -> None:
        with suppress(OSError, EOFError, paramiko.SSHException):  # the controller has had enough
            self._act(session)
            session.wait()
        with suppress(OSError, EOFError, paramiko.SSHException):
            session.channel.close()


@contextmanager
def evil_host(act: Callable[[Session, Evil], None]) -> Iterator[Evil]:
    """Run the server; `act` is called for each command, in a thread."""
    key = paramiko.ECDSAKey.generate()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        evil = Evil(listener.getsockname()[1])
        transports: list[paramiko.Transport] = []

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client, _address = listener.accept()
                    transport = paramiko.Transport(client)
                    transport.add_server_key(key)
                    transports.append(transport)
                    with suppress(paramiko.SSHException, EOFError):
                        transport.start_server(server=_Door(lambda session: act(session, evil)))

        threading.Thread(target=serve, daemon=True).start()
        try:
            yield evil
        finally:
            for transport in transports:
                transport.close()
