"""A second user of the host, who attacks."""

import sys

ATTACKER = 65534


def attacker(script: str, *words: str) -> tuple[str, ...]:
    # Another user may not read root's Python: it becomes that user when it has started.
    become = f"os.setgroups([]); os.setgid({ATTACKER}); os.setuid({ATTACKER})"
    return (sys.executable, "-I", "-c", f"import ctypes, fcntl, json, os, sys, time\n{become}\n{script}", *words)
