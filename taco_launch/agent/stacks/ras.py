"""Ask NCCL's RAS, which NCCL 2.24 and newer start in each job: `verbose status` on TCP port 28028 of the host.

Source: NCCL User Guide, Troubleshooting, RAS; NCCL_RAS_ADDR is another address.
"""

import re
import socket
import time
from typing import Iterable

from taco_launch.core.protocol.stack_messages import RAS_CHARACTERS

_PORT = 28028
# Any process may have the variable: no other host is connected to for it.
_LOCAL = re.compile(r"(?:localhost|127\.0\.0\.1|\[?::1\]?):([0-9]{1,5})")
_MOST_ANSWERS = 4
_SECONDS = 5.0


def status(addresses: Iterable[str]) -> str:
    """Return the answers at the values of NCCL_RAS_ADDR ("" is the default); "" where nothing listens."""
    matches = [_LOCAL.fullmatch(address) for address in addresses]
    ports = sorted({_PORT if match is None else int(match[1]) for match in matches})
    return "".join(_ask(port) for port in ports[:_MOST_ANSWERS] if port < 1 << 16)[:RAS_CHARACTERS]


def _ask(port: int) -> str:
    """Return what came within five seconds."""
    answer = b""
    deadline = time.monotonic() + _SECONDS
    try:
        with socket.create_connection(("127.0.0.1", port), _SECONDS) as connection:
            connection.sendall(b"verbose status\n")
            while len(answer) < RAS_CHARACTERS and time.monotonic() < deadline:
                connection.settimeout(max(0.01, deadline - time.monotonic()))
                piece = connection.recv(RAS_CHARACTERS)
                if not piece:
                    break
                answer += piece
    except OSError:
        pass
    return answer.decode("utf-8", "replace")
