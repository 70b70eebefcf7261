"""The torchrun line of one host.

Every host meets the others at the address of rank 0's host (torchrun's static rendezvous): so ranks are numbered in the
order of the placement, which a c10d rendezvous does not promise. Options are spelled with `_`, as torch 1.10 to 2.x take
them (torch/distributed/run.py); 2.0 was the first to take `-`.
"""

from typing import List

from taco_launch.core.launch.command_line.env import rendezvous
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.model.plans import Placement, Token

# How often torchrun looks whether its ranks live; 5 s before torch 2.3, which each job would take longer to end.
_MONITOR_SECONDS = "1"


def argument(word: str) -> str:
    """Return an argument as torchrun passes it on unchanged: it puts `$$` and `${local_rank}` into its program's arguments.

    The program itself, the first word, is left as it is (torch/distributed/elastic/utils/api.py, macros.substitute).
    """
    return word.replace("$", "$$")


def line_tokens(spec: JobSpec, placement: Placement, number: int, port: int) -> List[Token]:
    """Return torchrun and its options on the host with that number in the placement."""
    address, port_ = rendezvous(spec, placement, port)
    options = (
        ("--nnodes", str(len(placement.shares)), "the job's hosts"),
        ("--nproc_per_node", str(placement.shares[number].ranks), "the ranks of this host"),
        ("--node_rank", str(number), "the position of this host among the job's hosts"),
        ("--master_addr", address, "the hosts meet at the host of rank 0"),
        ("--master_port", port_, "a port that is free there when the job starts"),
        ("--max_restarts", "0", "the job's restart policy retries it, not torchrun"),
        ("--monitor_interval", _MONITOR_SECONDS, "seconds between torchrun's checks whether its ranks have ended"),
    )
    found = [Token("torchrun", "user", "--launcher torchrun")]
    found += [Token(word, "launcher", why) for option, value, why in options for word in (option, value)]
    return [*found, Token("--no_python", "launcher", "the command names its own program, such as python")]
