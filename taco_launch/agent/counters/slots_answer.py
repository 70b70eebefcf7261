"""`agent slots`: who has the slots of this host, and how much of its hardware was in use meanwhile, for `top node`."""

import contextlib
import time

from taco_launch.agent.counters import gpu_usage, host_usage
from taco_launch.agent.host import gpus as host_gpus
from taco_launch.agent.host.occupancy import AUTO, answer
from taco_launch.core.errors import HostError
from taco_launch.core.protocol.calls.hosts import SlotsReply

# Between the two readings at least; a CPU counts a hundred ticks in a second.
_SECONDS = 0.5


def main(size: str = AUTO, gpus: str = AUTO, leases: str = "", state: str = "") -> int:
    """Answer with one SlotsReply; the arguments are those of `occupancy.arguments`."""
    before = host_usage.read()

    def completed(reply: SlotsReply) -> SlotsReply:
        numbers = []
        if reply.occupancy is not None and reply.occupancy.gpus:
            with contextlib.suppress(HostError):
                numbers = list(gpu_usage.parse(host_gpus.counters()).values())
        time.sleep(max(0.0, before.time + _SECONDS - time.monotonic()))
        usage = host_usage.between(before, host_usage.read())
        return reply.replace(usage=gpu_usage.added(usage, numbers) if numbers else usage)

    return answer(size, gpus, leases, state, completed)
