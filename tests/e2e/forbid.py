"""What a container without SYS_PTRACE forbids: reading another process's memory (seccomp(2))."""

import ctypes
import errno
import platform
import struct

# process_vm_readv and process_vm_writev follow one another in both tables of system calls.
_FIRST = {"x86_64": 310, "aarch64": 270}.get(platform.machine())
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 22, 38
_SECCOMP_MODE_FILTER = 2
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
# classic BPF: load a word, jump if greater or equal, return
_LD, _JGE, _RET = 0x20, 0x35, 0x06

KNOWN = _FIRST is not None


def forbid_single_copy() -> None:
    """Forbid it to this process and its children: a `preexec_fn`."""
    assert _FIRST is not None
    steps = [
        (_LD, 0, 0, 0),  # the system call's number
        (_JGE, 0, 2, _FIRST),
        (_JGE, 1, 0, _FIRST + 2),
        (_RET, 0, 0, _ERRNO | errno.EPERM),
        (_RET, 0, 0, _ALLOW),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    for call in ((_PR_SET_NO_NEW_PRIVS, 1, 0), (_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, program)):
        if libc.prctl(*call, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl")
