"""A command's three streams over one SSH channel, without polling and without a thread of its own."""

import contextlib
import threading
from collections.abc import Callable

import paramiko

_CHUNK = 1 << 20
_PIECE = 1 << 18
# Of one stream, unread: the window that a host has to keep to is half of that. Paramiko does not look at it.
_MOST_UNREAD = 4 << 20
# RFC 4253, 6.1: 35,000 bytes have to do; OpenSSH sends up to 256 KiB.
_MOST_PACKET = 1 << 18


class BoundedPacketizer(paramiko.packet.Packetizer):
    """Reads packets of a size that an SSH server may send; paramiko reads any, up to 4 GiB, before it knows the host."""

    def read_all(self, n: int, check_rekey: bool = False) -> bytes:
        """Return `n` bytes.

        Raises:
            SSHException: so many bytes are no packet's.
        """
        if n > _MOST_PACKET:
            raise paramiko.SSHException(f"a packet of {n} bytes")
        found: bytes = super().read_all(n, check_rekey)  # type: ignore[no-untyped-call]
        return found


def bound_unread(channel: paramiko.Channel) -> None:
    """Close the connection of a channel as soon as more is unread than a host may send: it would fill the memory."""
    for buffer in (channel.in_buffer, channel.in_stderr_buffer):
        buffer.feed = _bounded(buffer, channel)  # type: ignore[method-assign]


def _bounded(buffer: "paramiko.buffered_pipe.BufferedPipe", channel: paramiko.Channel) -> Callable[[bytes], None]:
    feed = buffer.feed

    def bounded(data: bytes) -> None:
        if len(buffer) + len(data) > _MOST_UNREAD:
            channel.get_transport().close()
        else:
            feed(data)  # type: ignore[no-untyped-call]

    return bounded


class ChannelPipe:
    """A process on a host, as a session sees it: see `session.ProcessStreams`."""

    def __init__(self, channel: paramiko.Channel) -> None:
        """Read from a channel on which nothing was asked yet."""
        bound_unread(channel)
        self._channel = channel
        self._arrived = threading.Event()
        # What channel.fileno() does too, without the two file descriptors per channel that it costs.
        channel.in_buffer.set_event(self._arrived)
        channel.in_stderr_buffer.set_event(self._arrived)

    def receive(self, timeout: float | None) -> tuple[bytes, bytes] | None:
        """Return what arrived: see `session.ProcessStreams`."""
        channel = self._channel
        if not self._arrived.wait(timeout):
            return b"", b""
        ended = channel.eof_received or channel.closed  # before reading: what came before the end is there
        self._arrived.clear()
        # Reading clears the event as well: what arrives after the last look sets it again.
        out, err = bytearray(), bytearray()
        while len(out) + len(err) < _CHUNK and ((ready := channel.recv_ready()) or channel.recv_stderr_ready()):
            if ready:
                out += channel.recv(_CHUNK)
            else:
                err += channel.recv_stderr(_CHUNK)
        if out or err:
            if ended or len(out) + len(err) >= _CHUNK:  # there may be more
                self._arrived.set()
            return bytes(out), bytes(err)
        if ended:
            self._arrived.set()
            return None
        return b"", b""

    def send(self, data: bytes, *, last: bool = False) -> None:
        """Send input: see `session.ProcessStreams`."""

        def write() -> None:
            with contextlib.suppress(OSError, EOFError, paramiko.SSHException):  # it ended: what it says tells why
                self._send_all(data)
                if last:
                    self._channel.shutdown_write()

        if len(data) <= self._channel.out_window_size:
            write()
        else:
            threading.Thread(target=write, daemon=True).start()

    def write(self, data: bytes) -> None:
        """Send input, and wait until the host's window has taken it: see `transport.CommandInput`."""
        try:
            self._send_all(data)
        except (EOFError, paramiko.SSHException) as error:
            raise OSError(str(error)) from None

    def _send_all(self, data: bytes) -> None:
        """Send in pieces: paramiko's sendall copies all that is left for every packet, of 32 KiB at most."""
        for at in range(0, len(data), _PIECE):
            self._channel.sendall(data[at : at + _PIECE])

    def close(self) -> None:
        """End the input: see `transport.CommandInput`."""
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            self._channel.shutdown_write()

    def ending(self) -> str:
        """Return how the process ended, where the host says so."""
        if self._channel.status_event.wait(1) and self._channel.exit_status >= 0:
            return f"exit code {self._channel.exit_status}"
        return "" if self._channel.get_transport().is_active() else "the connection was lost"
