"""A rank that is hard to end: it takes the shapes it is told, and leaves a witness file for each process it becomes.

victim.py FOLDER MODE...: `wipe` starts over with an empty environment, `daemon` forks twice into a session of its own,
`session` starts a session of its own, `deaf` ignores TERM, `spin` burns a core, `fork` leaves a child behind that forks
on and on; each process writes FOLDER/PID with its start time, and FOLDER.ready/PID once it has taken all of its shapes.
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


def is_ready(folder: Path) -> None:
    ready = folder.with_suffix(".ready")
    ready.mkdir(exist_ok=True)
    (ready / str(os.getpid())).touch()


def wipe(folder: Path, rest: list[str]) -> None:
    os.execve(sys.executable, [sys.executable, __file__, str(folder), *rest], {})


def session(_folder: Path, _rest: list[str]) -> None:
    if os.fork():
        os.wait()
        os._exit(0)
    os.setsid()


def daemon(_folder: Path, _rest: list[str]) -> None:
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)


def deaf(_folder: Path, _rest: list[str]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def fork(folder: Path, _rest: list[str]) -> None:
    if os.fork() == 0:
        is_ready(folder)
        while True:
            bear_witness(folder)
            if os.fork():
                os._exit(0)
            time.sleep(0.01)


def spin(folder: Path, _rest: list[str]) -> None:
    bear_witness(folder)
    is_ready(folder)
    while True:
        pass


MODES = {mode.__name__: mode for mode in (wipe, session, daemon, deaf, fork, spin)}


def main() -> None:
    folder, modes = Path(sys.argv[1]), sys.argv[2:]
    bear_witness(folder)
    while modes:
        MODES[modes.pop(0)](folder, modes)
        bear_witness(folder)
    is_ready(folder)
    time.sleep(600)


main()
