"""Saves when it is told to, as a training does: `saver.py FOLDER SECONDS CODE`; rank N takes N+1 times as long.

Before it has a handler it starts a process that has none, as the workers of a data loader are.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

told: list[int] = []
folder, rank = Path(sys.argv[1]), int(os.environ["RANK"])
worker = subprocess.Popen(["sleep", "600"])
signal.signal(signal.SIGUSR1, lambda number, _frame: told.append(number))
(folder / f"ready-{rank}").touch()
while not told:
    time.sleep(0.02)
time.sleep(float(sys.argv[2]) * (rank + 1))
(folder / f"saved-{rank}").write_text("worker gone" if worker.poll() is not None else "saved")
sys.exit(int(sys.argv[3]))
