"""Notes what a process imports, starts and connects to, for test_budget.py: run first, also inside of the agent."""

# Before 3.12 these are loaded before any file of a zip runs: counted there, they would be ten modules more for newer ones.
import collections  # noqa: F401
import contextlib  # noqa: F401
import functools  # noqa: F401
import os
import sys

_STARTS = ("subprocess.Popen", "os.fork", "os.exec", "os.posix_spawn", "os.system")


def _note(event: str, arguments: tuple) -> None:  # type: ignore[type-arg]  # nothing is imported here, nor new in Python
    if event == "import":
        told = f"import {arguments[0]}"
    elif event == "os.posix_spawn" and sys._getframe(1).f_code.co_name == "_posix_spawn":
        return  # by subprocess.Popen, which was noted: since 3.13 it does so more often
    elif event in _STARTS:
        told = f"start {event} {arguments[0] if arguments else ''}"
    elif event == "socket.connect":
        told = f"connect {arguments[1]}"
    else:
        return
    descriptor = os.open(os.environ["TACO_LAUNCH_NOTES"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, f"{os.getpid()} {_role()} {told}\n".encode())
    os.close(descriptor)


def _role() -> str:
    descriptor = os.open("/proc/self/cmdline", os.O_RDONLY)
    words = os.read(descriptor, 4096).split(b"\0")
    os.close(descriptor)
    agents = [index for index, word in enumerate(words) if word.endswith(b".pyz")]
    return words[agents[0] + 1].decode() if agents else "controller"


if sys.version_info < (3, 11) and _role() == "controller":
    import subprocess  # noqa: F401  # click imports uuid, which has 3.10 import it

sys.addaudithook(_note)
