"""One look at the counters of a rank's processes."""

from typing import Optional, Sequence

from taco_launch.agent.counters import nics, process_trees, processes, sockets
from taco_launch.agent.counters.process_trees import RankProcess
from taco_launch.core.model.run.rank_samples import RankSample


def rank_sample(
    members: Sequence[RankProcess],
    now: float,
    *,
    output: Optional[int] = None,
    network: Optional[int] = None,
    changes: int = 0,
) -> RankSample:
    """Return what the kernel counts of a rank's processes; `now` and the other values are those of RankSample."""
    pids = [member.pid for member in members]
    counted = processes.of_processes(pids)
    python = process_trees.of_python(members)
    main = None if python is None else processes.counters(python.pid)
    return RankSample(
        now,
        output=output,
        sockets=sockets.of_processes(pids).bytes,
        network=network,
        read=None if counted is None else counted.read,
        written=None if counted is None else counted.written,
        cpu=None if counted is None else counted.cpu_seconds,
        main_cpu=None if main is None else main.main_cpu_seconds,
        changes=changes,
    )


def infiniband_bytes() -> Optional[int]:
    """Return the bytes that the InfiniBand ports of this host have carried; None without ports that count them."""
    ports = [port.received + port.sent for port in nics.infiniband_ports() if port.received and port.sent]
    return sum(ports) if ports else None
