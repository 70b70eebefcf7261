"""A line of mpirun as people write it -> its ranks, variables, parameters and program, where that is beyond doubt."""

import re
from collections.abc import Mapping, Sequence

from taco_launch.core.frozen import dataclass
from taco_launch.hosts.inventory.profile import WORDS

# What the inventory and the profile say here, and what only changes what mpirun prints.
_HOSTS = ("H", "host", "hostfile", "machinefile", "default-hostfile")
OF_PROFILE = (
    *("bind-to", "map-by", "report-bindings", "display-map", "display-allocation", "oversubscribe"),
    *("tag-output", "timestamp-output", "verbose", "v", "quiet", "q"),
)
# Where its own libraries are, which is so on the hosts or in the image, and more of what it prints.
_PASSED_OVER = ("prefix", "show-progress", "report-state-on-timeout", "get-stack-traces", "display-topo")
_SECONDS = re.compile("[1-9][0-9]{0,8}")
# mpirun(1): ranks on each host.
_EACH = ("N", "npernode")
# mpirun(1) and mpiexec.hydra: the folder that the ranks start in.
WORKDIR = ("wdir", "wd")
_PER_HOST = re.compile(r"ppr:(?P<count>[1-9][0-9]{0,5}):node(?P<rest>:.*)?")
# The frameworks that are of the ranks alone (ompi/mca of Open MPI 4 and 5, and what of opal/mca they move data by): for
# these `-x OMPI_MCA_btl=...` and `--mca btl ...` are the same. Others are mpirun's own, which -x does not reach.
_OF_RANKS = re.compile(
    "OMPI_MCA_((?:accelerator|bml|btl|coll|fbtl|fcoll|fs|io|mpi|mtl|op|opal_cuda|osc|part|pml|sharedfp|smsc|topo|vprotocol)(?:_.*)?)"
)
_HINT = "write it as a job file (`taco-launch submit --schema`); other options of mpirun go into a profile"


class UnclearError(Exception):
    """The line cannot be taken for a job: `index` is the word in doubt, `problem` why, `hint` what to do."""

    def __init__(self, index: int, problem: str, hint: str = _HINT) -> None:
        """Keep what is wrong."""
        super().__init__(problem)
        self.index = index
        self.problem = problem
        self.hint = hint


@dataclass(frozen=True)
class MpirunLine:
    """What a line says; each with the index of its word.

    `np` and `per_host`, the ranks on each host, are None where the line says none; `env` and `mca` hold (name, value,
    index); `unused` the options that are passed over, as they stand there; `bare` the variables whose value does not exist;
    the program starts at `program`. After `timeout` seconds mpirun ends the ranks, which start in the folder `workdir`.
    """

    np: tuple[int, int] | None
    per_host: tuple[int, int] | None
    env: tuple[tuple[str, str, int], ...]
    mca: tuple[tuple[str, str, int], ...]
    unused: tuple[str, ...]
    bare: tuple[str, ...]
    program: int
    timeout: tuple[int, int] | None = None
    workdir: tuple[str, int] | None = None


def read(words: Sequence[str], variables: Mapping[str, str]) -> MpirunLine:
    """Read the words of a line, mpirun the first; `variables` are those that it is started with.

    A bare `-x NAME` has its value from there; of one that does not exist the ranks have their container's own.

    Raises:
        UnclearError: the line is none of mpirun, or an option is not known beyond doubt.
    """
    if words[0].rpartition("/")[2] not in ("mpirun", "mpiexec", "orterun"):
        raise UnclearError(0, "is not mpirun, so it is not known how it starts the ranks")
    line = Options(variables)
    if "/" in words[0]:  # which mpirun, and where its libraries are (mpirun(1), --prefix)
        line.unused.append(f"path {words[0]}")
    at = 1
    while at < len(words) and words[at].startswith("-"):
        count = WORDS.get(words[at].lstrip("-"), 1)
        if at + count > len(words):
            raise UnclearError(at, "has no value")
        line.add(words[at : at + count], at)
        at += count
    return line.line(words, at)


class Options:
    """Gathers what the options of a line say."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        """Start with nothing; `variables` are those that the launcher is started with."""
        self._variables = variables
        self.np: tuple[int, int] | None = None
        self.per_host: tuple[int, int] | None = None
        self.env: list[tuple[str, str, int]] = []
        self.mca: list[tuple[str, str, int]] = []
        self.unused: list[str] = []
        self.bare: list[str] = []
        self.timeout: tuple[int, int] | None = None
        self.workdir: tuple[str, int] | None = None

    def line(self, words: Sequence[str], program: int) -> MpirunLine:
        """Return what was gathered; the program starts at `program`.

        Raises:
            UnclearError: there is none, or a second one.
        """
        if program == len(words):
            raise UnclearError(program - 1, "is the last word, and no program comes after the launcher's options")
        if ":" in words[program:]:
            raise UnclearError(
                program + list(words[program:]).index(":"), "starts a second program, but a job has only one"
            )
        rest = tuple(self.env), tuple(self.mca), tuple(self.unused), tuple(self.bare)
        return MpirunLine(self.np, self.per_host, *rest, program, self.timeout, self.workdir)

    def ranks(self, word: str, at: int) -> None:
        """Take the number of ranks."""
        self.np = _number(word, at), at

    def ranks_per_host(self, word: str, at: int) -> None:
        """Take the number of ranks on each host."""
        self.per_host = _number(word, at), at

    def add(self, words: Sequence[str], at: int) -> None:
        """Take one option with its values; `at` is the index of its first word.

        Raises:
            UnclearError: the option has no counterpart in a job.
        """
        option = words[0].lstrip("-")
        if option in ("np", "n", "c"):
            self.ranks(words[1], at + 1)
        elif option in _EACH:
            self.ranks_per_host(words[1], at + 1)
        elif option == "map-by" and (each := _PER_HOST.fullmatch(words[1])):
            self.per_host = int(each["count"]), at + 1
            if each["rest"]:  # cores for each rank and the like
                self.unused.append(" ".join(words))
        elif option == "map-by" and words[1].startswith("ppr:"):
            raise UnclearError(at + 1, "places ranks within hosts, which a job cannot specify")
        elif option == "x":
            self._variable(words[1], at + 1)
        elif option in ("mca", "gmca"):
            self.mca.append((words[1], words[2], at + 1))
        elif option == "timeout" and _SECONDS.fullmatch(words[1]):
            self.timeout = int(words[1]), at + 1
        elif option in WORKDIR:
            self.workdir = words[1], at + 1
        elif option in (*_HOSTS, *OF_PROFILE, *_PASSED_OVER):
            self.unused.append(" ".join(words))
        elif option != "allow-run-as-root":  # added where it is needed
            raise UnclearError(at, "is an option of mpirun that has no counterpart in a job")

    def _variable(self, word: str, at: int) -> None:
        name, equals, value = word.partition("=")
        if equals or name in self._variables:
            known, same = value if equals else self._variables[name], parameter(name)
            (self.mca if same else self.env).append((same or name, known, at))
        else:
            self.bare.append(name)
            self.unused.append(f"-x {name}")


def parameter(name: str) -> str | None:
    """Return the parameter of Open MPI that a variable of the ranks sets, where `--mca` is the same; else None."""
    found = _OF_RANKS.fullmatch(name)
    return found[1] if found else None


def _number(word: str, at: int) -> int:
    if not re.fullmatch("[1-9][0-9]{0,5}", word):
        raise UnclearError(at, "is not a number of ranks")
    return int(word)
