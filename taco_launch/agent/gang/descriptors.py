"""The open files that a job over many hosts costs its head: the limit is raised for it, or the job is refused."""

import resource

from taco_launch.core.errors import HostError

# Of each host: the connection to its guard, and what its ssh prints on stderr. Of each rank: its log and the times of its
# lines, written and read. Counted in /proc/PID/fd of a supervisor with 8 ranks, and with 16 to 128 hosts of one rank.
_OF_HOST, _OF_RANK, _OWN = 2, 4, 64


def provide(hosts: int, ranks: int) -> None:
    """Raise this process's limit of open files to what so many hosts and ranks need; one that suffices stays.

    Raises:
        HostError: the hard limit does not allow that.
    """
    needed = require(hosts, ranks)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def require(hosts: int, ranks: int) -> int:
    """Return how many open files so many hosts and ranks need.

    Raises:
        HostError: the hard limit does not allow that.
    """
    needed = _OWN + _OF_HOST * hosts + _OF_RANK * ranks
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise HostError(
            f"a job of {ranks} ranks needs {needed} open files on its head, where the hard limit is {hard}",
            hint="raise it on the head: LimitNOFILE= of the service that taco-launch or its container runs in, "
            "or nofile in /etc/security/limits.conf",
        )
    return needed
