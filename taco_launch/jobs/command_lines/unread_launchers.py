"""Name launchers that start ranks and are not read here: their lines are refused, never run as if they were programs."""

import posixpath
from collections.abc import Sequence

from taco_launch.core.launch.command_line.nested_launcher import inner
from taco_launch.jobs.command_lines.shell_script import read, shown

_MODULES = frozenset(
    (
        *("paddle.distributed.launch", "paddle.distributed.fleet.launch", "paddle.distributed.run"),
        *(
            "oneflow.distributed.launch",
            "torch_xla.distributed.xla_dist",
            "bagua.distributed.launch",
            "torch_npu.launch",
        ),
    )
)
_PROGRAMS = frozenset(("fleetrun", "msrun", "bpslaunch", "dmlc-submit", "xla_dist"))
# Programs that start torchrun themselves where NPROC_PER_NODE is set, or FORCE_TORCHRUN.
_START_TORCHRUN = ("swift", "llamafactory-cli", "xtuner")
_REMOTE = ("ssh", "pdsh", "clush", "parallel-ssh", "pssh")
# How many words may come before the command: options of ssh and the host.
_MOST_BEFORE = 9
HINT = "give the number of ranks and the program: taco-launch run --np N -- PROGRAM"


def not_read(words: Sequence[str]) -> str:
    """Return why a command is not read, although it starts ranks; "" for any other command."""
    name = posixpath.basename(words[0])
    if name.startswith("python"):
        named = [*words[1:]]
        if "-m" in named[:-1]:
            name = named[named.index("-m") + 1]
        elif posixpath.basename(named[0] if named else "") == "launch.py" and "--launcher" in named:  # dmlc_tracker's
            return "launch.py starts the workers of a parameter server, and is not read here"
    if name in _MODULES or name in _PROGRAMS:
        return f"{name} starts ranks, and is not read here"
    if name in _START_TORCHRUN:
        return (
            f"{name} starts torchrun itself where NPROC_PER_NODE or FORCE_TORCHRUN is set: start its ranks here, without "
            f"these variables: taco-launch run --launcher torchrun --np N -- {' '.join(words[:2])} ..."
        )
    if name in _REMOTE and _starts_ranks(words[1:]):
        return f"{name} starts a command on other hosts: translate that command alone, and list the hosts with -H"
    return ""


def _starts_ranks(words: Sequence[str]) -> bool:
    """Return whether a launcher is behind the options and the host of ssh, or in a command line that it is given as a word."""
    lines = [" ".join(words[at:]) for at in range(1, min(len(words), _MOST_BEFORE))]
    return any(inner(each.words) for line in lines for each in read(shown(line)).commands)
