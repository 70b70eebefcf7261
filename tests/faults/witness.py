"""A rank of these tests: takes one of its host's places for itself alone, and keeps it as long as it lives.

witness.py PLACES SECONDS CODE: as many files as the host has slots lie in a folder of the host that every cluster's
container has, beside all folders of ours. A rank takes the first that nobody has locked. Where all are locked, more ranks
are here than slots, whatever our own leases say: that is written down, and the rank fails with a code of its own. One that
ends is written down as well, with the times between which it had its place. It stays for SECONDS, or until a file end-JOB
is in that folder.
"""

import fcntl
import os
import sys
import time

FOLDER = "/srv/witness"
TWICE = 99
TICK_SECONDS = 0.1


def take(places: int) -> bool:
    for place in range(places):
        file = os.open(f"{FOLDER}/{place}", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
        else:
            return True  # the file stays open, and so locked, to the end of this process
    return False


def write_down(name: str, line: str) -> None:
    file = os.open(f"{FOLDER}/{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.write(file, f"{line}\n".encode())
    os.close(file)


def main(places: int, seconds: float, code: int) -> int:
    rank, job = os.environ["RANK"], os.environ["TACO_LAUNCH_JOB"]
    if not take(places):
        write_down("twice", f"rank {rank} of {job} found all {places} places taken")
        return TWICE
    begin = time.time()
    end = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end and not os.path.exists(f"{FOLDER}/end-{job}"):  # noqa: PTH110 - it ticks, and often
        print("tick", number, flush=True)
        number += 1
        time.sleep(TICK_SECONDS)
    write_down("ran", f"{job} {rank} {begin} {time.time()}")
    return code


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])))
