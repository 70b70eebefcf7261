"""The options of a line as units, so that what the user gives replaces ours: mpirun refuses an option twice."""

from typing import Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from taco_launch.core.frozen import dataclass
from taco_launch.core.launch.light_program import MODULE
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.model.plans import Token

_MCA = ("-mca", "--mca", "--prtemca", "--pmixmca", "-gmca", "--gmca")
# A list of what to use and one of what not to: mpirun takes only one of the two (Open MPI 4.1, btl_tcp and oob_tcp).
_OPPOSITES = (("_if_exclude", "_if_include"),)

# What tells the hosts on a line, and what a file with them; without either mpirun reads its default hostfile.
_HOSTS, _HOSTFILES = ("H", "host"), ("hostfile", "machinefile")


@dataclass(frozen=True)
class Option:
    """One option and its arguments; `by` names the decisions that put it there."""

    tokens: Tuple[Token, ...]
    by: Tuple[str, ...] = ()

    @property
    def key(self) -> Tuple[str, str]:
        """What may stand on a line once: a variable, an MCA parameter under any of its names, or the option itself."""
        first = self.tokens[0].text
        if first == "-x":
            return "-x", self.tokens[1].text.partition("=")[0]
        if first in _MCA:
            return "mca", _canonical(self.tokens[1].text)
        return "option", first.lstrip("-")

    @property
    def env(self) -> Tuple[Tuple[str, Optional[str]], ...]:
        """The variable that `-x` sets, None where it takes the caller's value; nothing for other options."""
        if self.tokens[0].text != "-x":
            return ()
        name, equals, value = self.tokens[1].text.partition("=")
        return ((name, value if equals else None),)


def env_option(name: str, value: Optional[str], source: str, why: str) -> Option:
    """Return `-x NAME=VALUE`, or `-x NAME` for the caller's value."""
    return _option(("-x", name if value is None else f"{name}={value}"), source, why)


def mca_option(name: str, value: str, source: str, why: str) -> Option:
    """Return `--mca NAME VALUE`, which Open MPI 5.0 hands on to its runtime where the parameter is of that."""
    return _option(("--mca", name, value), source, why)


def given_options(spec: JobSpec) -> Iterator[Option]:
    """Yield the variables and MCA parameters that were requested with the job."""
    for name, value in spec.env:
        yield env_option(name, value, "user", "the caller's value" if value is None else "given with the job")
    for name, text in spec.mca:
        yield mca_option(name, text, "user", "given with the job")


def replaced(options: Iterable[Option], given: Iterable[Option]) -> List[Option]:
    """Return the options with those that are given in the place of ours, and the others behind."""
    line: Dict[Tuple[str, str], Option] = {option.key: option for option in options}
    line.update((option.key, option) for option in given)
    return list(line.values())


def tells_hosts(options: Iterable[Option], *, by_file: bool = True) -> bool:
    """Return whether a line of these options tells mpirun its hosts, `by_file` or in itself."""
    wanted = (*_HOSTS, *_HOSTFILES) if by_file else _HOSTS
    return any(kind == "option" and name in wanted for kind, name in (option.key for option in options))


def _option(words: Iterable[str], source: str, why: str) -> Option:
    return Option(tuple(Token(word, source, why) for word in words))


def _canonical(name: str) -> str:
    # Only needed where there are such parameters, and its table takes a while to load.
    from taco_launch.core.launch import knobs  # noqa: PLC0415

    for one, other in _OPPOSITES:
        if name.endswith(one):
            name = name[: -len(one)] + other
    knob = knobs.find(name)
    return knob.name if knob is not None else name


def command_tokens(command: Sequence[str]) -> Iterator[Token]:
    """Yield the words of a job's command; those of `taco_launch.light`, which `--light` adds, with their reason."""
    for number, word in enumerate(command):
        of_light = MODULE in (word, *command[number + 1 : number + 2]) and word in (MODULE, "-m")
        yield Token(word, "user", "--light: it applies LIGHT_* in each rank" if of_light else "the job's command")
