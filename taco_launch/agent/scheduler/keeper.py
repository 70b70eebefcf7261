"""Keep the queue served: start the scheduler, and start it again when it is killed, until nothing is pending.

The scheduler sees to it that this process lives, too: see scheduler.py.
"""

import os
import signal
import time

from taco_launch.agent.processes import agent_program
from taco_launch.agent.store.folders import Jobs, state_folder
from taco_launch.agent.upkeep import scheduler_wakeup
from taco_launch.core.errors import OK

# One that ends again and again is started less and less often; one that has run for so long begins with the first pause.
_PAUSE_SECONDS, _SOUND_SECONDS = (1.0, 20.0), 60.0


def main(agent: str, lock: int) -> int:
    """Serve the queue; `lock` is the descriptor of its lock, which the scheduler inherits."""
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    pause = _PAUSE_SECONDS[0]
    while True:
        begun = time.monotonic()
        scheduler = agent_program.start(agent, "schedule", str(lock), str(os.getpid()), keep=(lock,))
        _pid, status = os.waitpid(scheduler.pid, 0)
        if status == OK:
            break
        pause = _PAUSE_SECONDS[0] if time.monotonic() - begun > _SOUND_SECONDS else pause
        time.sleep(pause)
        pause = min(2 * pause, _PAUSE_SECONDS[1])
    os.close(lock)
    scheduler_wakeup.ensure(Jobs(state_folder(os.environ, os.geteuid())), agent)  # the scheduler found the lock taken
    return OK
