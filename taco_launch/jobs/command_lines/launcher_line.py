"""A line of mpirun, horovodrun, torch's launchers or their like -> its parts, each with what it is here, and its program."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from taco_launch.core.frozen import dataclass
from taco_launch.core.launch.command_line.nested_launcher import NestedLauncher
from taco_launch.jobs.command_lines import container_options
from taco_launch.jobs.command_lines import launcher_options as table
from taco_launch.jobs.command_lines.launcher_options import Meaning
from taco_launch.jobs.command_lines.shell_script import is_unknown, shown
from taco_launch.jobs.command_lines.shell_words import UNKNOWN
from taco_launch.jobs.command_lines.unfinished import placeholders

HINT = "write it as a job file (`taco-launch submit --schema`); other options of mpirun go into a profile"
# Every job's line has these variables where they are needed.
PASSED_ON = ("PATH", "LD_LIBRARY_PATH")
_COUNT = re.compile(r"[1-9][0-9]{0,5}")
_BROKEN = re.compile(r"\d")  # 4-n of `-N 4-n 48`: what follows would be read as the program
_RANGES = re.compile(r"\d+[-:]\d+|0")
_RANGE = re.compile(r"[1-9][0-9]{0,5}:[1-9][0-9]{0,5}")
_RUNS_A_SCRIPT = re.compile(r"python[0-9.]*$|.*/python[0-9.]*$")
_ARGUMENTS = (f"{UNKNOWN}@", f"{UNKNOWN}*")  # what the script was started with
_PER_HOST = re.compile(r"ppr:(?P<count>[1-9][0-9]{0,5}):node(?P<rest>:.*)?")
# How a program begins, where it is behind an option that is not known.
_PROGRAM = re.compile(r"python[0-9.]*$|\./|/|.*\.(?:py|sh|exe|out)$|.*_perf$")
_HOST = re.compile(r"[A-Za-z][A-Za-z0-9.-]*")  # -l nodes=gpu01 of PBS
_AUTOMATIC = ("auto", "gpu", "cpu", "")
NOT_KNOWN = "its value is computed where the script runs: set it yourself"
_PYTHON = re.compile(r"(?:.*/)?python[\d.]*")
# bsub(1): `-R "select[mem>1000] span[ptile=8]"` gives each host 8 ranks, hosts=1 has them on one host.
_SPAN = re.compile(r"\bspan\[\s*(?:ptile\s*=\s*(?P<each>[1-9][0-9]{0,5})|hosts\s*=\s*(?P<nodes>1))\s*\]")
_HAS_PROPERTIES = re.compile(r"\w+=\d+(?::[A-Za-z][\w.-]*)+$", re.ASCII)  # nodes=4:ppn=8:big
_SEVERAL_KINDS = re.compile(r"\b(?:select|nodes)=[^,]*\+")
_EVERYTHING = ("ALL", "NONE")
# Slurm's tables have options of containers, too.
_OF_SLURM = {kind: {**container_options.OF_SLURM, **table.OPTIONS[kind]} for kind in ("srun", "Slurm")}
_TABLES = {**table.OPTIONS, **container_options.OPTIONS, **_OF_SLURM}


class UnclearError(Exception):
    """The line cannot be taken for a job: `index` is the word in doubt, `problem` why, `hint` what to do."""

    def __init__(self, index: int, problem: str, hint: str = HINT) -> None:
        """Keep what is wrong."""
        super().__init__(problem)
        self.index = index
        self.problem = problem
        self.hint = hint


@dataclass(frozen=True)
class Part:
    """An option of a line with its values.

    `index` is the place of its first word, `use` one of launcher_options, `name` the variable, parameter or option here and
    `value` what it is set to. `why` is the reason where it is left out; `is_known` tells whether the launcher has it.
    """

    index: int
    words: tuple[str, ...]
    use: str
    name: str = ""
    value: str = ""
    why: str = ""
    is_known: bool = True


@dataclass(frozen=True)
class LauncherLine:
    """The content of a line: its parts in their order, and its program, which starts at `begin`.

    `kind` is the launcher's, one of `launcher_options.OPTIONS`. `before` is what the launcher starts the program by.
    """

    kind: str
    parts: tuple[Part, ...]
    begin: int
    program: tuple[str, ...]
    before: tuple[str, ...] = ()

    def of(self, *uses: str) -> Iterator[Part]:
        """Yield the parts of some uses."""
        return (part for part in self.parts if part.use in uses)

    def last(self, use: str) -> Part | None:
        """Return the last part of a use: it is the one that counts."""
        return next(reversed([*self.of(use)]), None)

    @property
    def left_out(self) -> tuple[Part, ...]:
        """Return the parts that a job does not have."""
        return tuple(self.of(table.OMITTED, table.REFUSED, table.BARE, *table.OF_GPUS))


def read(words: Sequence[str], inner: NestedLauncher, variables: Mapping[str, str] | None = None) -> LauncherLine:
    """Read a launcher's line, without what stands before it; `variables` are those that it is started with.

    A bare `-x NAME` has its value from there; of one that does not exist the ranks have their container's own.

    Raises:
        UnclearError: where its program starts is not known, or it has none.
    """
    kind = "hydra" if inner.kind == "mpirun" and table.names_hydra(words, inner.env) else inner.kind
    environment = {**(variables or {}), **dict(text.split("=", 1) for text in inner.env)}
    reader = Reader(kind, words, environment)
    try:
        begin = reader.read(inner.words)
    except UnclearError:
        if kind != "mpirun" or not _is_hydras(reader.parts):
            raise
    if kind == "mpirun" and _is_hydras(reader.parts):
        reader = Reader(kind := "hydra", words, environment)
        begin = reader.read(inner.words)
    before, program = inner.around, tuple(words[begin:])
    by = reader.python(words[0] if inner.words > 1 and words[0].rpartition("/")[2].startswith("python") else "python3")
    is_file = program[0].endswith(".py") or (UNKNOWN in program[0] and not program[0].endswith(".sh"))
    if kind in table.OF_PYTHON and (kind == "torch" or "-m" in by or is_file):
        before = (*before, *by)
    set_here = [variable(0, (text,), text) for text in inner.env]
    if kind == "hydra":  # it gives all ranks what it was started with
        set_here += [Part(0, (name,), table.ENV, name, value) for name, value in (variables or {}).items()]
    return LauncherLine(kind, (*set_here, *reader.parts), begin, program, before)


def setting(kind: str, option: str, value: str) -> Part:
    """Return what an option of a launcher, one of its table, is here.

    Raises:
        UnclearError: it cannot have the value.
    """
    reader = Reader(kind, (f"--{option}={value}" if value else f"--{option}",), {})
    reader.option(0)
    return reader.parts[-1]


def _is_hydras(parts: Sequence[Part]) -> bool:
    """Return whether a line that was read as one of Open MPI has an option that only Hydra's mpirun and mpiexec have."""
    return any(not part.is_known and part.words[0].lstrip("-") in table.ONLY_HYDRAS for part in parts)


class Reader:
    """Takes one option after the other."""

    def __init__(self, kind: str, words: Sequence[str], variables: Mapping[str, str]) -> None:
        """Start before the first option."""
        self._kind, self._words, self._variables = kind, words, variables
        self._table = _TABLES[kind]
        self._is_module = self._is_no_python = False
        self.parts: list[Part] = []

    def read(self, at: int) -> int:
        """Read the options from a place on; return where the program starts.

        Raises:
            UnclearError: no program comes after the options, or more than one.
        """
        words = self._words
        while at < len(words) and words[at].startswith("-") and words[at] != "-":
            if words[at] == "--":
                at += 1
                break
            at = self.option(at)
        if at >= len(words):
            raise UnclearError(len(words) - 1, "is the last word, and no program comes after the launcher's options")
        if unfinished := placeholders.no_program(words, at, self._table):
            raise UnclearError(at, *unfinished)
        if self._kind == "torch" and self.python("python3") == ("python3",) and _PYTHON.fullmatch(words[at]):
            problem = "would be run as a script: torchrun starts Python itself"
            raise UnclearError(at, problem, f"remove {words[at]} before the script")
        if ":" in words[at:]:
            problem = "starts a second program, or one with other settings, in the same job, and here a job has one"
            raise UnclearError(at + list(words[at:]).index(":"), problem, table.BY_RANK)
        if words[at] in (".", "..") or (words[at].endswith("/") and UNKNOWN not in words[at]):
            raise UnclearError(at, "is a folder, and no program", "write a backslash in its place to continue the line")
        if self._may_be_options(words[at], words[at + 1 :]):
            problem = "stands where the launcher's options are read, and its value is not known here: write it"
            raise UnclearError(at, problem)
        return at

    def _may_be_options(self, first: str, rest: Sequence[str]) -> bool:
        """Return whether a value that is not known may hold options, as it does where a program or an option follows."""
        if not is_unknown(first) or first in _ARGUMENTS:
            return first in _ARGUMENTS
        following = rest[0] if rest else ""
        if following.startswith("-"):
            return self._split(following)[0] in self._table
        if not following or following in _ARGUMENTS:
            return "[" in first  # an array
        return is_unknown(following) or self._kind not in table.OF_PYTHON or any(word.endswith(".py") for word in rest)

    def python(self, python: str) -> tuple[str, ...]:
        """Return what starts the program of one of torch's launchers."""
        return () if self._is_no_python else (python, "-m") if self._is_module else (python,)

    def resources(self, at: int, option: str, between: str) -> int:
        """Read what `-l nodes=4:ppn=28,walltime=1:00:00` asks for, each as an option; return the place behind it."""
        end = next(
            (end for end in range(at + 1, len(self._words)) if self._words[end].startswith("-")), len(self._words)
        )
        requests = ",".join(filter(None, (self._words[at][len(option) :], *self._words[at + 1 : end])))
        if _SEVERAL_KINDS.search(requests):
            self.parts.append(Part(at, (option, requests), table.REFUSED, table.NODES, why=table.SEVERAL_KINDS))
            return end
        for request in filter(None, re.split(between, requests)):  # qsub(1): -l gpu is -l gpu=TRUE
            each, *names = request.split(":") if _HAS_PROPERTIES.match(request) else (request,)
            self.parts += [Part(at, (option, name), table.OMITTED, why=table.OF_HOSTS) for name in names]
            reader = Reader(self._kind, (f"--{each}" if "=" in each else f"--{each}=TRUE",), {})
            reader.option(0)
            self.parts += [replace(part, words=(option, part.words[0][2:])) for part in reader.parts]
        return end

    def option(self, at: int) -> int:
        """Read the option at a place; return the place behind it and its values.

        Raises:
            UnclearError: it lacks its value, or the value is not one that it can have.
        """
        word = self._words[at]
        name, is_set, value = self._split(word)
        meaning = self._table.get(name) or self._abbreviated(word, name)
        if meaning is None:
            return self._unknown(at, is_set)
        if meaning.why == table.SEVERAL:
            raise UnclearError(at, meaning.why, table.BY_RANK)
        count = meaning.words
        if is_set and not (self._kind == "mpirun" and count == 3):
            end = at + 1
            values: tuple[str, ...] = (value,)
        else:
            if name in table.OPTIONS["hydra"] and meaning.use == table.PAIR:
                count = 2 if "=" in "".join(self._words[at + 1 : at + 2]) else 3
            end = at + count
            if end > len(self._words):
                raise UnclearError(at, "has no value")
            values = tuple(self._words[at + 1 : end])
            is_hosts = meaning.use in (table.HOSTS, table.INCLUDE)
            for place, each in enumerate(values, at + 1):
                if each == "--" or (each.startswith("-") and (is_hosts or each.lstrip("-") in self._table)):
                    raise UnclearError(place, f"is an option, and stands where {word} has its value")
        is_to_fill_in = any(map(placeholders.LIKE_PLACEHOLDER.search, values)) and meaning.use != table.OMITTED
        # Of a list of mounts, those that are known are read.
        is_read = meaning.use in (table.OMITTED, table.REFUSED, table.ENV) or meaning.target == "--data"
        if is_to_fill_in or (UNKNOWN in "".join(values) and not is_read):
            is_list = meaning.use in (table.HOSTS, table.HOSTFILE) and table.LISTS.search(values[-1])
            unknown = placeholders.WRITE if is_to_fill_in else NOT_KNOWN
            why = table.LISTED if is_list else f"{unknown}{table.SET_BY.get(meaning.use, '')}"
            self.parts.append(Part(at, tuple(self._words[at:end]), table.REFUSED, meaning.use, why=why))
        else:
            self.parts += self._parts(at, tuple(self._words[at:end]), meaning, values)
        return end

    def _abbreviated(self, word: str, name: str) -> Meaning | None:
        """Return the meaning of the only option that a name is the start of, where the launcher reads it as that option."""
        meant = [each for option, each in self._table.items() if len(option) > 1 and option.startswith(name)]
        is_one = word.startswith("--") and self._kind in table.ABBREVIATES and len({id(each) for each in meant}) == 1
        return meant[0] if is_one else None

    def _split(self, word: str) -> tuple[str, bool, str]:
        """Return an option's name in kebab case, whether a value is part of its word, and that value."""
        is_option = word[1:].partition("=")[0].replace("_", "-") in self._table
        if self._kind in table.GLUED and not word.startswith("--") and len(word) > 2 and not is_option:
            return word[1], True, word[2:].removeprefix("=")
        name, equals, value = word.lstrip("-").partition("=")
        return (name if self._kind in ("mpirun", "hydra") else name.replace("_", "-")), bool(equals), value

    def _unknown(self, at: int, is_set: bool) -> int:
        """Leave an option out that is not in the table; the next word is its value, unless it looks like a program.

        Raises:
            UnclearError: the next two words look like one.
        """
        following, then = (*self._words[at + 1 : at + 3], "-", "-")[:2]
        is_flag = is_set or following.startswith("-") or _PROGRAM.match(following) or at + 2 >= len(self._words)
        is_hydras = self._kind == "mpirun" and self._words[at].lstrip("-") in table.ONLY_HYDRAS
        if not (is_set or is_hydras or _RUNS_A_SCRIPT.match(following)) and all(map(_PROGRAM.match, (following, then))):
            problem = f"is no option that is known here, and {following!r} or {then!r} may be the program"
            raise UnclearError(at, problem, f"write {self._words[at]}={following}, or omit it")
        end = at + 1 if is_flag else at + 2
        read_as = ", read as one without a value" if is_flag else f", read with the value {shown(following)!r}"
        why = f"is no option that is known here{'' if is_set else read_as}"
        self.parts.append(Part(at, tuple(self._words[at:end]), table.REFUSED, why=why, is_known=False))
        return end

    def _parts(self, at: int, words: tuple[str, ...], meaning: Meaning, values: tuple[str, ...]) -> Iterator[Part]:
        value = values[-1] if values else ""
        use, name, why = meaning.use, meaning.target, meaning.why
        if use in (table.RANKS, table.EACH, table.NODES, table.TIMES, table.LEAST, table.MOST, *table.OF_GPUS):
            yield self._counted(at, words, use, meaning.convert(value))
        elif use == table.MAP_BY:
            yield from self._mapped(at, words, value, why)
        elif use in (table.ENV, table.LIST):
            for text in value.split(",") if use == table.LIST else (value,):
                if text and text not in _EVERYTHING:
                    yield variable(at, words, text, self._variables)
        elif use == table.PAIR:
            name, equals, rest = values[0].partition("=")
            yield Part(at, words, table.ENV, name, rest if equals else value)
        elif use == table.MCA:
            yield Part(at, words, use, values[0], values[1], table.PARAMETERS.get(values[0], ""))
        elif use in (table.OPTION, table.VARIABLE):
            yield from self._converted(at, words, meaning, value)
        elif use in (table.INCLUDE, table.SPAN):
            yield _included(at, words, value) if use == table.INCLUDE else _spanned(at, words, value, why)
        elif use in (table.HOSTS, table.HOSTFILE):
            if use == table.HOSTS:
                _check_hosts(at + len(words) - 1, value)
            yield Part(at, words, use, value=value)
        else:
            self._is_module |= use == table.MODULE
            self._is_no_python |= use == table.NO_PYTHON
            yield Part(at, words, use, why=why)

    def _counted(self, at: int, words: tuple[str, ...], use: str, value: str) -> Part:
        if self._kind == "PBS" and use == table.NODES and _HOST.fullmatch(value):
            return Part(at, words, table.HOSTS, value=value)
        if _COUNT.fullmatch(value) or (use == table.NODES and _RANGE.fullmatch(value)):
            return Part(at, words, use, value=value)
        if use == table.EACH and value in _AUTOMATIC:
            return Part(at, words, table.OMITTED, why="a host runs as many ranks as it has slots")
        if use in table.OF_GPUS and value == "0":
            return Part(at, words, table.OMITTED, why="asks for no GPUs")
        is_many = use == table.RANKS and self._kind in ("mpirun", "hydra")
        if is_many or (self._kind not in table.DIRECTIVES and _BROKEN.match(value) and not _RANGES.fullmatch(value)):
            raise UnclearError(at + len(words) - 1, f"is not a number{' of ranks' if is_many else ''}")
        return Part(at, words, table.REFUSED, use, why=f"{value!r} is not a number")

    def _mapped(self, at: int, words: tuple[str, ...], value: str, why: str) -> Iterator[Part]:
        each = _PER_HOST.fullmatch(value)
        if each is not None:
            yield Part(
                at, words, table.EACH, value=each["count"], why=f"{each['rest'][1:]}: {why}" if each["rest"] else ""
            )
        elif value.startswith("ppr:"):
            yield Part(at, words, table.REFUSED, why="places ranks within hosts, which a job cannot specify")
        elif re.match("seq|rankfile|dist", value):
            yield Part(at, words, table.REFUSED, why=table.BY_FILE)
        elif value.partition(":")[0] == "node":
            yield Part(at, words, table.SPREAD)
        else:
            yield Part(at, words, table.OMITTED, why=why)

    def _converted(self, at: int, words: tuple[str, ...], meaning: Meaning, value: str) -> Iterator[Part]:
        use = table.ENV if meaning.use == table.VARIABLE else meaning.use
        # Slurm's and Apptainer's mounts are a list, ours and Docker's one of several
        is_list = meaning.target == "--data" and self._kind != "docker"
        for each in value.split(",") if is_list else (value,):
            which = "" if each == value else f"{shown(each)}: "
            if UNKNOWN in each:
                yield Part(at, words, table.REFUSED, why=f"{which}{NOT_KNOWN}")
                continue
            try:
                yield Part(at, words, use, meaning.target, meaning.convert(each), meaning.why)
            except ValueError as error:
                yield Part(at, words, table.REFUSED, why=f"{which}{error}")


def variable(at: int, words: tuple[str, ...], text: str, variables: Mapping[str, str] = MappingProxyType({})) -> Part:
    """Return the part of a variable: NAME alone is one of `variables`, or the ranks' own, as `NAME=$NAME` is."""
    name, equals, value = text.partition("=")
    value = value if equals else variables.get(name, f"{UNKNOWN}{name}")
    if value in (f"{UNKNOWN}{name}", f"{UNKNOWN}{{{name}}}"):
        return Part(at, words, table.BARE, name, why="the ranks have that of their host or container")
    if UNKNOWN in value:
        return Part(at, words, table.REFUSED, name, why=NOT_KNOWN)
    same = table.parameter(name)
    return Part(at, words, table.MCA if same else table.ENV, same or name, value)


def _check_hosts(at: int, value: str) -> None:
    """Check the hosts of a line.

    Raises:
        UnclearError: they cannot be hosts.
    """
    if value.startswith("-"):  # no host name does (RFC 1123, 2.1)
        raise UnclearError(at, "stands where the hosts are expected")
    if "" in value.split(","):
        problem = "lists a host without a name: is there a blank behind a comma?"
        raise UnclearError(at, problem, "write the list without blanks: gpu1,gpu2")


def _included(at: int, words: tuple[str, ...], value: str) -> Part:
    """Read DeepSpeed's `--include host1@host2:0,1`: hosts, with the numbers of their GPUs."""
    hosts = []
    for each in value.split("@"):
        host, colon, slots = each.partition(":")
        hosts.append(f"{host}:{len(slots.split(','))}" if colon else host)
    why = "which GPUs of a host: taco-launch chooses free ones" if ":" in value else ""
    return Part(at, words, table.HOSTS, value=",".join(hosts), why=why)


def _spanned(at: int, words: tuple[str, ...], value: str, why: str) -> Part:
    """Read LSF's requirements, of which the span of the hosts counts ranks."""
    span = _SPAN.search(value)
    if span is None:
        return Part(at, words, table.OMITTED, why=why)
    return Part(at, words, table.EACH if span["each"] else table.NODES, value=span["each"] or span["nodes"])
