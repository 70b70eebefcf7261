"""Run in a training container, by its own Python 3.8 or newer: which of the other hosts does this one reach?

The whole file goes to the interpreter's input; nothing is imported but the standard library. Answers are JSON, a line
each. `listen ADDRESS FIRST LAST SECONDS PEER...` listens on a port between FIRST and LAST (0 0: the kernel's choice),
says which, and goes to the background until every PEER has come (its address) or the time is over. `ask SECONDS NAME ADDRESS PORT...` goes to each of these peers: by ssh, and to the port that listens.
"""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

# ssh connections that one host opens at a time; every other host does the same
_AT_ONCE = 16
_TRIES = 50


def listen(address: str, first: int, last: int, seconds: float, peers: list[str]) -> None:
    """Listen in the background, and say on which port."""
    server = _bound(address, first, last)
    server.listen(128)
    _tell({"port": server.getsockname()[1]})
    if os.fork():
        return
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    missing = set(peers)
    end = time.monotonic() + seconds
    while missing and time.monotonic() < end:
        server.settimeout(max(0.1, end - time.monotonic()))
        try:
            client, peer = server.accept()
        except OSError:
            continue
        missing.discard(peer[0])
        client.close()


def _bound(address: str, first: int, last: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for _ in range(_TRIES):
        server = socket.socket(family, socket.SOCK_STREAM)
        try:
            server.bind((address, random.randint(first, last)))  # noqa: S311 - any free one
        except OSError as error:
            problem = error
            server.close()
        else:
            return server
    raise SystemExit(f"cannot listen on any port of {address} from {first} to {last}: {problem.strerror}")


def ask(peers: list[tuple[str, str, int]], seconds: float) -> None:
    """Go to each peer, and say what came of it: null where all is well."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for answer in pool.map(lambda peer: _asked(peer, seconds), peers):
            _tell(answer)


def _tell(answer: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _asked(peer: tuple[str, str, int], seconds: float) -> dict[str, object]:
    name, address, port = peer
    connected, ssh = _by_ssh(name, seconds)
    return {"peer": name, "connected": connected, "ssh": ssh, "port": _connected(address, port, seconds)}


def _connected(address: str, port: int, seconds: float) -> str | None:
    try:
        socket.create_connection((address, port), seconds).close()
    except OSError as error:  # a time-out is one without a number
        return (error.strerror or str(error)).lower()
    return None


def _by_ssh(name: str, seconds: float) -> tuple[bool, str | None]:
    """Log in and out; say whether there was a connection at all, and what went wrong, None where nothing did."""
    argv = ["ssh", "-n", "-o", f"ConnectTimeout={seconds:.0f}", "-o", "ConnectionAttempts=1", name, "true"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=3 * seconds, check=False)
    except subprocess.TimeoutExpired:
        return True, f"no answer after {3 * seconds:.0f} s"
    except OSError as error:
        return True, f"ssh: {error.strerror}"
    if not done.returncode:
        return True, None
    said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    why = said[-1] if said else f"exit code {done.returncode}"
    if "connect to host " not in why:
        return True, why
    reason = why.rpartition(": ")[2].lower()  # in the words of the C library
    return False, "timed out" if reason == "connection timed out" else reason


if __name__ == "__main__":
    if sys.argv[1] == "listen":
        listen(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]), sys.argv[6:])
    else:
        words = sys.argv[3:]
        starts = range(0, len(words), 3)
        ask([(words[at], words[at + 1], int(words[at + 2])) for at in starts], float(sys.argv[2]))
