"""Established TCP connections as /proc/PID/net/tcp and tcp6 list them, without byte counters. Pure."""

import re
import socket
import struct
from typing import Iterator, Optional

from taco_launch.agent.counters.inet_diag import TcpConnection, address

# proc(5): number, local end, remote end, state (01: established), queues, timer, retransmits, user, timeout, inode
_ROW = re.compile(
    r" *\d+: (?P<local>[0-9A-F]{8}|[0-9A-F]{32}):(?P<lport>[0-9A-F]{4}) (?P<remote>[0-9A-F]{8}|[0-9A-F]{32}):"
    r"(?P<rport>[0-9A-F]{4}) 01 \S+ \S+ \S+ +\d+ +\d+ (?P<inode>\d+)(?: |$)"
)


def connections(text: str) -> Iterator[TcpConnection]:
    """Yield the established connections of such a file; a line that is cut is none."""
    for line in text.split("\n"):
        row = _ROW.match(line)
        if row is not None:
            local, remote = _address(row["local"]), _address(row["remote"])
            if local is not None and remote is not None:
                yield TcpConnection(int(row["inode"]), local, int(row["lport"], 16), remote, int(row["rport"], 16))


def _address(digits: str) -> Optional[str]:
    """Return an address: the kernel prints its words of 32 bits as numbers of this machine's byte order."""
    words = [int(digits[index : index + 8], 16) for index in range(0, len(digits), 8)]
    data = struct.pack(f"={len(words)}I", *words)
    return address(socket.AF_INET if len(words) == 1 else socket.AF_INET6, data)
