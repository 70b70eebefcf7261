"""Why a job failed, as far as the log of the rank to blame and mpirun itself tell."""

import socket
from typing import Dict, Tuple

from taco_launch.agent import logs, records
from taco_launch.agent.folders import JobFolder
from taco_launch.diagnose import Scan
from taco_launch.model.jobs import Finding
from taco_launch.signatures.entry import Kind

_MOST = 8
# With these mpirun says that a rank failed, which the job's reason says already.
_BANNERS = ("rank-exited", "rank-exited-255", "rank-command-not-found", "rank-not-executable", "rank-failed")


def why(folder: JobFolder, rank: int, host: str, *, ended_itself: bool) -> Tuple[Finding, ...]:
    """Give what the logs tell of the failure, of each its first and its last MiB; the first failure first.

    `rank` is the one to blame, on `host`. Where we ended the job (`ended_itself` is false) what its ranks said when they
    were ended is left out. Hosts are told by their names in the job's spec.

    Raises:
        TacoLaunchError: the job's spec cannot be read.
    """
    scan = Scan(_names(folder), failed=True)
    for stem, where in ((folder.rank(rank), host), (folder.launcher, "")):
        scan.begin(where)
        head, between, tail = logs.ends(stem)
        scan.feed(head)
        scan.skip(between)
        scan.feed(tail)
    kinds = {Kind.NOTE} if ended_itself else {Kind.NOTE, Kind.OUTCOME, Kind.FALLBACK}
    found = [match.finding for match in scan.matches() if match.kind not in kinds]
    return tuple(finding for finding in found if finding.signature not in _BANNERS)[:_MOST]


def _names(folder: JobFolder) -> Dict[str, str]:
    """Give the names of the hosts by what mpirun and the ranks may call them: an address, this machine's own name."""
    spec = records.read_spec(folder)
    names = {host.address: host.name for host in spec.hosts}
    local = [host.name for host in spec.hosts if host.connection == "local"]
    head = spec.head or (local[0] if local else "")
    if head:
        own = socket.gethostname()
        names.update({own: head, own.partition(".")[0]: head})
    names.update({host.name: host.name for host in spec.hosts})  # a name stays what it is, whatever else it may be
    return names
