"""A process of the agent that is forked: it has the interpreter and the modules of the one that starts it.

In /proc it shows the argv and the environment that it would have after exec: who looks for a job's supervisor or guard,
or for what carries a job's mark, finds the same either way. Where the kernel does not allow that, it is executed.
"""

import ctypes
import gc
import os
import signal
import sys
import threading
from typing import Callable, List, Mapping, Optional, Sequence

import taco_launch

# prctl(2); the kernel needs no privilege for the whole map (as LXC uses it), only CONFIG_CHECKPOINT_RESTORE.
_PR_SET_MM, _PR_SET_MM_MAP = 35, 14
_MAP = (
    *("start_code", "end_code", "start_data", "end_data", "start_brk", "brk", "start_stack"),
    *("arg_start", "arg_end", "env_start", "env_end", "auxv"),
)
# The places of the first of these in /proc/self/stat, proc(5), counted from its third field.
_IN_STAT = {"start_code": 23, "end_code": 24, "start_data": 42, "end_data": 43, "start_brk": 44, "start_stack": 25}
_NO_FILE = 0xFFFFFFFF
_shown: List[object] = []  # what /proc reads from the memory of this process, for as long as it lives


class ForkedChild:
    """A forked child of this process, as far as subprocess.Popen's interface is needed of it."""

    def __init__(self, pid: int) -> None:
        """Know a child that nobody has waited for."""
        self.pid = pid
        self.returncode: Optional[int] = None

    def poll(self) -> Optional[int]:
        """Return the exit code, negative for a signal; None while the child runs."""
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # somebody else has collected it
                self.returncode = 0
                return 0
            if pid:
                self.returncode = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        return self.returncode

    def kill(self) -> None:
        """Kill the child, where it has not been collected."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def may(agent: str) -> bool:
    """Return whether this process runs that file's code, and has one thread, which is all that a fork copies."""
    return list(taco_launch.__path__) == [f"{agent}/taco_launch"] and threading.active_count() == 1


def start(
    run: Callable[[], int], argv: Sequence[str], environment: Mapping[str, str], stderr: int, keep: Sequence[int]
) -> ForkedChild:
    """Have a child do `run` and end with its code: in a session of its own, in /, with nothing open but `stderr` and `keep`."""
    shown = dict(environment)
    pid = os.fork()
    if pid:
        return ForkedChild(pid)
    code = 1
    try:
        gc.freeze()  # no open file of the parent is closed when its number is another's by then
        _detach(stderr, keep)
        if not _show(argv, shown):
            os.execve(argv[0], list(argv), shown)  # noqa: S606 - no shell
        os.environ.clear()
        os.environ.update(shown)
        code = run()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:  # noqa: BLE001 - the interpreter's own end is the parent's, and would write its buffers again
        import traceback  # noqa: PLC0415 - no child that works needs it

        traceback.print_exc()
    finally:
        os._exit(code)


def _detach(stderr: int, keep: Sequence[int]) -> None:
    signal.set_wakeup_fd(-1)  # which is the parent's, and closed below
    os.setsid()
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(stderr, 2)
    os.dup2(null, 0)
    os.dup2(null, 1)
    for descriptor in keep:
        os.set_inheritable(descriptor, True)
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor > 2 and descriptor not in keep:
            try:
                os.close(descriptor)
            except OSError:  # that of the listing itself
                continue
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115


class _Map(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_uint64) for name in _MAP),
        ("auxv_size", ctypes.c_uint32),
        ("exe_fd", ctypes.c_uint32),
    )


def _show(argv: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Have /proc show an argv and an environment as this process's; False where the kernel refuses that."""
    words = b"".join(os.fsencode(word) + b"\0" for word in argv)
    text = words + b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in environment.items())
    libc = ctypes.CDLL(None, use_errno=True)
    libc.sbrk.restype = ctypes.c_void_p
    with open("/proc/self/stat", "rb") as file:
        stat = file.read()
    fields = stat[stat.rindex(b")") + 2 :].split()
    memory = ctypes.create_string_buffer(text, len(text))
    _shown.append(memory)
    begin = ctypes.addressof(memory)
    middle, end = begin + len(words), begin + len(text)
    known = {name: int(fields[place]) for name, place in _IN_STAT.items()}
    known.update(brk=libc.sbrk(0), arg_start=begin, arg_end=middle, env_start=middle, env_end=end)
    whole = _Map(auxv_size=0, exe_fd=_NO_FILE, **known)
    done: int = libc.prctl(_PR_SET_MM, _PR_SET_MM_MAP, ctypes.byref(whole), ctypes.sizeof(whole), 0)
    return done == 0
