"""A rank that is hard to end: it takes the shapes it is told, and leaves a witness file for each process it becomes.

victim.py FOLDER MODE...: `wipe` starts over with an empty environment, `daemon` forks twice into a session of its own,
`session` starts a session of its own, `deaf` ignores TERM, `spin` burns a core, `fork` leaves a child behind that forks
on and on; each process writes FOLDER/PID with its start time.
"""

import os
import signal
import sys
import time
from pathlib import Path


def start_of(pid: int) -> str:
    stat = Path(f"/proc/{pid}/stat").read_bytes()
    return stat[stat.rindex(b")") + 2 :].split()[19].decode()


def bear_witness(folder: Path) -> None:
    (folder / str(os.getpid())).write_text(start_of(os.getpid()), encoding="ascii")


def main() -> None:
    folder, modes = Path(sys.argv[1]), sys.argv[2:]
    bear_witness(folder)
    while modes:
        mode = modes.pop(0)
        if mode == "wipe":
            os.execve(sys.executable, [sys.executable, __file__, str(folder), *modes], {})
        if mode == "session":
            if os.fork():
                os.wait()
                os._exit(0)
            os.setsid()
        if mode == "daemon" and os.fork() == 0:
            os.setsid()
            if os.fork():
                os._exit(0)
        if mode == "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if mode == "fork" and os.fork() == 0:
            while True:
                bear_witness(folder)
                if os.fork():
                    os._exit(0)
                time.sleep(0.01)
        if mode == "spin":
            bear_witness(folder)
            while True:
                pass
        bear_witness(folder)
    time.sleep(600)


main()
