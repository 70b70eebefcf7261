"""The network from one rank to another: rates of TCP streams or of ib_write_bw in bytes/s, round-trip times in seconds."""

import contextlib
import errno
import fcntl
import os
import random
import re
import shutil
import socket
import struct
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, List, Optional, Sequence, Tuple

ANSWER_SECONDS = 10.0
_CHUNK = 1 << 20
_PINGS = 50
_SIOCGIFADDR = 0x8915
# linux/tcp.h, struct tcp_info: tcpi_total_retrans and tcpi_segs_out
_RETRANSMITTED, _SENT = 100, 136


def own_address(towards: str) -> Tuple[str, str]:
    """Return this host's address for training, and how it was chosen: that of NCCL's interface, else of the way to rank 0."""
    for variable in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        name = os.environ.get(variable, "").lstrip("=")
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            answer = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            return socket.inet_ntoa(answer[20:24]), f"{name}, of {variable}"
    return towards, "the way to rank 0"


def listen(address: str, ports: Optional[Sequence[int]]) -> socket.socket:
    """Listen on a free port of an address, from the first to the last of `ports`, or any with None.

    Raises:
        OSError: none is free, or the address is not of this host.
    """
    first, last = ports or (0, 0)
    for port in random.sample(range(first, last + 1), last + 1 - first):
        try:
            return socket.create_server((address, port), family=_family(address), backlog=64)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
    raise OSError(f"no port of {address} is free in network.port_range, {first}-{last}")


class DataPort:
    """Receives what other ranks send: counts bytes, or returns each one at once."""

    def __init__(self, address: str, token: str, ports: Optional[Sequence[int]] = None) -> None:
        """Listen on a free port of an address, as listen() does."""
        self._listener = listen(address, ports)
        self._token = token.encode()
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(ANSWER_SECONDS)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            word = _exactly(connection, len(self._token) + 1)
            if word[:-1] != self._token:
                return
            buffer = memoryview(bytearray(_CHUNK if word[-1:] == b"S" else 1))
            count = 0
            while received := connection.recv_into(buffer):
                count += received
                if word[-1:] == b"E":
                    connection.sendall(buffer[:received])
            if word[-1:] == b"S":
                connection.sendall(struct.pack("!Q", count))


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count and (piece := connection.recv(count - len(data))):
        data += piece
    if len(data) < count:
        raise OSError("the connection ended early")
    return data


def send(to: List[Any], token: str, seconds: float, streams: int) -> Dict[str, Any]:
    """Send for some seconds; return the rate until the last byte has arrived, and the share of packets sent again."""

    def stream(connection: socket.socket) -> int:
        data = bytes(_CHUNK)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        return int(struct.unpack("!Q", _exactly(connection, 8))[0])

    with contextlib.ExitStack() as stack, ThreadPoolExecutor(streams) as pool:
        opened = [stack.enter_context(_connected(to, token + "S")) for _ in range(streams)]
        start = time.monotonic()
        total = sum(pool.map(stream, opened))
        elapsed = time.monotonic() - start
        info = [each.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _SENT + 4) for each in opened]
    sent = sum(struct.unpack_from("I", each, _SENT)[0] for each in info if len(each) >= _SENT + 4)
    again = sum(struct.unpack_from("I", each, _RETRANSMITTED)[0] for each in info)
    return {"rate": total / elapsed, "resent": again / sent if sent else 0.0}


def ping(to: List[Any], token: str) -> Dict[str, Any]:
    """Return the shortest time in which a byte comes back."""
    with _connected(to, token + "E") as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        times = []
        for _ in range(_PINGS):
            start = time.monotonic()
            connection.sendall(b".")
            _exactly(connection, 1)
            times.append(time.monotonic() - start)
    return {"rtt": min(times)}


def _connected(to: List[Any], word: str) -> socket.socket:
    connection = socket.create_connection((to[0], to[1]), timeout=ANSWER_SECONDS)
    connection.sendall(word.encode())
    return connection


def rdma_device() -> str:
    """Return the HCA that NCCL would use for ib_write_bw, "" where RDMA is off or the program is missing."""
    if os.environ.get("NCCL_IB_DISABLE") == "1" or shutil.which("ib_write_bw") is None:
        return ""
    wanted = re.split(r"[,:]", os.environ.get("NCCL_IB_HCA", "").lstrip("="))[0]
    with contextlib.suppress(OSError):
        devices = sorted(name for name in os.listdir("/sys/class/infiniband") if name.startswith(wanted))
        return devices[0] if devices and not wanted.startswith("^") else ""
    return ""


def write_bw(port: int, address: str = "") -> Dict[str, Any]:
    """Run one side of ib_write_bw, the server without an address; return the client's rate.

    Raises:
        OSError: it failed; with the end of its output.
    """
    gid = os.environ.get("NCCL_IB_GID_INDEX")
    argv = ["ib_write_bw", "-d", rdma_device(), "-p", str(port), "-F", "-D", "1", "-q", "4", "--report_gbits"]
    argv += [*(["-x", gid] if gid else []), *([address] if address else [])]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False)
    rows = re.findall(r"^\s*\d+\s+\d+\s+[\d.]+\s+([\d.]+)\s+[\d.]+\s*$", done.stdout, re.MULTILINE)
    if done.returncode or (address and not rows):
        raise OSError(f"ib_write_bw: {(done.stderr or done.stdout).strip()[-200:]}")
    return {"rate": float(rows[-1]) * 1e9 / 8, "resent": 0.0} if address else {}
