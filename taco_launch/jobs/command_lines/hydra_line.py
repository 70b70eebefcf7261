"""A line of mpiexec.hydra (MPICH, Intel MPI) as people write it -> its ranks, variables and program, as mpirun_line has them."""

from collections.abc import Mapping, Sequence

from taco_launch.jobs.command_lines.mpirun_line import WORKDIR, MpirunLine, Options, UnclearError

_PROGRAMS = ("mpirun", "mpiexec", "mpiexec.hydra")
# How many words an option takes with its values (mpiexec.hydra -help, MPICH 4 and 5, Intel MPI 2021): what the inventory
# and the profile say here, and what only changes what Hydra prints.
_UNUSED = {
    **dict.fromkeys(("hosts", "host", "f", "hostfile", "machinefile", "machine", "iface", "bind-to", "map-by"), 2),
    **dict.fromkeys(("launcher", "bootstrap", "rmk", "prepend-pattern"), 2),
    **dict.fromkeys(("genvall", "envall", "prepend-rank", "l", "verbose", "v", "info", "print-all-exitcodes"), 1),
}
_RANKS, _PER_HOST = ("n", "np"), ("ppn", "perhost", "ppr")
_SET, _PASSED = ("genv", "env"), ("genvlist", "envlist")


def read(words: Sequence[str], variables: Mapping[str, str]) -> MpirunLine:
    """Read the words of a line; `variables` are those that it is started with, which Hydra gives to all ranks.

    Raises:
        UnclearError: the line is none of Hydra, or an option is not known beyond doubt.
    """
    if words[0].rpartition("/")[2] not in _PROGRAMS:
        raise UnclearError(0, "is not mpiexec.hydra, so it is not known how it starts the ranks")
    line = Options(variables)
    if "/" in words[0]:
        line.unused.append(f"path {words[0]}")
    line.env += [(name, value, 0) for name, value in variables.items()]
    at = 1
    while at < len(words) and words[at].startswith("-"):
        at += _option(line, words, at)
    return line.line(words, at)


def _option(line: Options, words: Sequence[str], at: int) -> int:
    """Take the option at a place; return how many words it has with its values.

    Raises:
        UnclearError: the option has no counterpart in a job, or no value.
    """
    option = words[at].lstrip("-")
    count = 2 if option in (*_RANKS, *_PER_HOST, *_PASSED, *_SET, *WORKDIR) else _UNUSED.get(option, 0)
    if option in _SET and "=" not in "".join(words[at + 1 : at + 2]):
        count = 3
    if not count:
        raise UnclearError(at, "is an option of Hydra that has no counterpart in a job")
    if at + count > len(words):
        raise UnclearError(at, "has no value")
    if option in _RANKS:
        line.ranks(words[at + 1], at + 1)
    elif option in _PER_HOST:
        line.ranks_per_host(words[at + 1], at + 1)
    elif option in WORKDIR:
        line.workdir = words[at + 1], at + 1
    elif option in _SET:
        name, equals, value = words[at + 1].partition("=")
        line.env.append((name, value if equals else words[at + 2], at + count - 1))
    elif option in _PASSED:
        line.bare += [name for name in words[at + 1].split(",") if name]
    else:
        line.unused.append(" ".join(words[at : at + count]))
    return count
