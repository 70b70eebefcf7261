"""Ask NCCL's RAS, which NCCL 2.24 and newer start in each job: `verbose status` on TCP port 28028 of the host.

Source: NCCL User Guide, Troubleshooting, RAS; the address is that of NCCL_RAS_ADDR.
"""

import socket
import time

from taco_launch.core.protocol.stack_messages import RAS_CHARACTERS

ADDRESS = "127.0.0.1:28028"
_SECONDS = 5.0


def status(address: str = ADDRESS) -> str:
    """Return its answer; "" where nothing listens, or what came within five seconds."""
    host, _, port = address.rpartition(":")
    answer = b""
    deadline = time.monotonic() + _SECONDS
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _SECONDS) as connection:
            connection.sendall(b"verbose status\n")
            while len(answer) < RAS_CHARACTERS and time.monotonic() < deadline:
                connection.settimeout(max(0.01, deadline - time.monotonic()))
                piece = connection.recv(RAS_CHARACTERS)
                if not piece:
                    break
                answer += piece
    except (OSError, ValueError):  # ValueError: a port that is no number
        pass
    return answer.decode("utf-8", "replace")[:RAS_CHARACTERS]
