"""-x, --knob and --mca: what a user asks for by name, checked against the table of knobs, all faults at once."""

import re
from collections.abc import Mapping, Sequence

from taco_launch.errors import Fault, SpecError
from taco_launch.frozen import dataclass
from taco_launch.inventory import names
from taco_launch.launch import knob_values, knobs
from taco_launch.launch.knob_lists import FINE

_MCA_NAME = re.compile(r"[A-Za-z0-9_]+")
_ENV_LIST = "mca_base_env_list"
_BESIDE_X = ("cannot stand beside -x, which the line has: mpirun takes one of the two", "use -x NAME=VALUE")
NOT_SET = "is not set here"
LET_THROUGH = "--allow-unknown-knobs lets it through"
# mpirun refuses both of a pair (ompi_info: "mutually exclusive").
_EITHER = (("btl_tcp_if_include", "btl_tcp_if_exclude"), ("oob_tcp_if_include", "oob_tcp_if_exclude"))


@dataclass(frozen=True)
class Knobs:
    """What was asked for, in the order it was given, no name twice.

    `env` holds environment variables, (name, value), the value None where the caller's is to be taken; `mca` holds MCA
    parameters.
    """

    env: tuple[tuple[str, str | None], ...] = ()
    mca: tuple[tuple[str, str], ...] = ()


def parse(
    env: Sequence[str],
    knobs: Sequence[str],
    mca: Sequence[tuple[str, str]],
    environ: Mapping[str, str],
    *,
    allow_unknown: bool,
) -> Knobs:
    """Read the texts of -x (`NAME` or `NAME=VALUE`), --knob (`NAME=VALUE`) and --mca (name, value).

    Values of -x and --mca are taken as they are and refused where the library would read something else; values of
    --knob are put into the form that it reads. A bare NAME has to be set in `environ`, and its value there is checked.

    Args:
        env: the texts of -x.
        knobs: the texts of --knob.
        mca: the pairs of --mca.
        environ: the caller's environment.
        allow_unknown: let names pass that look like a known library's and are not in the table.

    Raises:
        SpecError: all that is wrong, each with its option. Values of names that the table has not are never shown.
    """
    asked = _Asked(environ, allow_unknown=allow_unknown)
    for text in env:
        asked.add_env(text)
    for text in knobs:
        asked.add_knob(text)
    for name, value in mca:
        asked.add_mca(name, value)
    return asked.result()


def env_fault(name: str, value: str | None, *, allow_unknown: bool = False) -> tuple[str, str]:
    """Give what is wrong with the name of a variable for `-x`, as (problem, hint), two empty texts where nothing is.

    `name` is that of an environment variable (`names.env_name`), and `value` goes into a hint where it may be shown.
    """
    knob = knobs.find(name)
    if knob and knob.mca:
        return "is an MCA parameter of mpirun, and -x sets variables", f"write --mca {name} {_told(name, value or '')}"
    if (bare := knobs.parameter(name)) != name:
        problem = "reaches the ranks alone, not mpirun, and there it stands against what mpirun's line says"
        return problem, f"write --mca {bare} {_told(bare, value or '')}"
    return FINE if allow_unknown else _unknown(name)


def mca_fault(name: str, value: str, *, allow_unknown: bool = False) -> tuple[str, str]:
    """Give what is wrong with the name of an MCA parameter, as `env_fault` does; a value is wrong where it is none."""
    knob = knobs.find(name)
    if (bare := knobs.parameter(name)) != name and _MCA_NAME.fullmatch(bare):
        return _prefixed(name, bare), f"write --mca {bare} {_told(bare, value)}"
    if not _MCA_NAME.fullmatch(name):
        return "is not the name of an MCA parameter: letters, digits and '_'", ""
    if not value:
        return "has no value", f"write --mca {name} VALUE"
    if "\0" in value:
        return "its value holds a NUL byte, which no command line can hold", ""
    if (knob and not knob.mca) or knobs.strict(name):
        return "is an environment variable, not an MCA parameter", f"write -x {name}=VALUE"
    if name == _ENV_LIST:
        return _BESIDE_X
    return FINE if allow_unknown else _unknown(name)


def _unknown(name: str) -> tuple[str, str]:
    """Refuse a name that is nearly one of the table; another one may be a newer library's, which the plan says."""
    if knobs.find(name):
        return FINE
    strict = knobs.strict(name)
    nearest = knobs.near(name) if strict else knobs.slip(name)
    if nearest:
        what = "no such knob" if strict else "nearly the name of another"
        return what, f"did you mean {names.shown(nearest)}? {LET_THROUGH}"
    return FINE


class _Asked:
    """Gathers what is right and what is wrong."""

    def __init__(self, environ: Mapping[str, str], *, allow_unknown: bool) -> None:
        self._environ = environ
        self._allow_unknown = allow_unknown
        self._env: dict[str, str | None] = {}
        self._mca: dict[str, tuple[str, str]] = {}  # under the one name that all aliases share
        self._given: dict[str, str] = {}  # the option that a name came with
        self._faults: list[Fault] = []

    def result(self) -> Knobs:
        for one, other in _EITHER:
            if one in self._mca and other in self._mca:
                self._fault(
                    "--mca", self._mca[one][0], f"cannot stand beside {self._mca[other][0]}", "keep one of them"
                )
        if self._faults:
            raise SpecError(names.COMMAND_LINE, tuple(self._faults))
        return Knobs(tuple(self._env.items()), tuple(self._mca.values()))

    def add_env(self, text: str) -> None:
        try:
            name, value = names.parse_env(text)
        except SpecError as error:
            self._faults.extend(error.faults)
            return
        problem, hint = env_fault(name, value, allow_unknown=self._allow_unknown)
        if problem:
            self._fault("-x", name, problem, hint)
        elif value is None and name not in self._environ:
            self._fault("-x", name, NOT_SET, f"-x {name}=VALUE, in one word, gives it a value")
        elif self._right("-x", name, value):
            self._keep_env("-x", name, value)

    def add_knob(self, text: str) -> None:
        name, equals, value = text.partition("=")
        if not equals:
            known = knobs.find(name)
            like = f"such as --knob {name}={known.example}" if known else "write --knob NAME=VALUE"
            self._fault("--knob", name, "has no value", like)
            return
        if (bare := knobs.parameter(name)) != name:
            write = f"write --knob {bare}={_told(bare, value)}"
            self._fault("--knob", name, _prefixed(name, bare), write)
            return
        knob = knobs.find(name)
        if knob is None and not knobs.strict(name) and not name.startswith("UCX_"):
            near = knobs.near(name)
            meant = f"did you mean {names.shown(near)}? " if near else ""
            others = "any other variable goes by -x, any other MCA parameter by --mca"
            self._fault("--knob", name, "no such knob", meant + others)
            return
        problem, hint = _BESIDE_X if name == _ENV_LIST else FINE if self._allow_unknown else _unknown(name)
        if problem:
            self._fault("--knob", name, problem, hint)
            return
        try:
            value = knob_values.normalise(name, value)
        except ValueError as error:
            self._refused("--knob", name, value, error)
            return
        if knob and knob.mca:
            self._keep_mca("--knob", name, value)
            return
        try:
            names.parse_env(f"{name}={value}", "--knob")
        except SpecError as error:
            self._faults.extend(error.faults)
            return
        self._keep_env("--knob", name, value)

    def add_mca(self, name: str, value: str) -> None:
        left, equals, right = name.partition("=")
        if equals and _MCA_NAME.fullmatch(left):
            write = f"write --mca {left} {_told(left, right)}"
            self._fault("--mca", left, "has its value behind a '=', and --mca takes two words", write)
            return
        problem, hint = mca_fault(name, value, allow_unknown=self._allow_unknown)
        if problem:
            self._fault("--mca", name, problem, hint)
        elif self._right("--mca", name, value):
            self._keep_mca("--mca", name, value)

    def _right(self, option: str, name: str, value: str | None) -> bool:
        here = self._environ[name] if value is None else value
        try:
            knob_values.verbatim(name, here)
        except ValueError as error:
            self._refused(option, name, here, error, inherited=value is None)
            return False
        return True

    def _refused(self, option: str, name: str, value: str, error: ValueError, *, inherited: bool = False) -> None:
        problem, hint = error.args
        knob = knobs.find(name)
        assert knob is not None  # nothing else is refused
        between = " " if knob.mca and option == "--mca" else "="
        text = name if knob.secret else f"{name}{between}{value}"
        self._faults.append(
            Fault(option, names.plain(text), f"{'as it is set here: ' if inherited else ''}{problem}", hint)
        )

    def _keep_env(self, option: str, name: str, value: str | None) -> None:
        if name in self._env and self._effective(name, self._env[name]) != self._effective(name, value):
            self._twice(option, name, name)
        else:
            self._env.setdefault(name, value)
            self._given.setdefault(name, option)

    def _keep_mca(self, option: str, name: str, value: str) -> None:
        knob = knobs.find(name)
        key = knob.name if knob else name
        if key in self._mca and self._mca[key][1] != value:
            self._twice(option, name, self._mca[key][0])
        else:
            self._mca.setdefault(key, (name, value))
            self._given.setdefault(name, option)

    def _effective(self, name: str, value: str | None) -> str:
        return self._environ[name] if value is None else value

    def _twice(self, option: str, name: str, before: str) -> None:
        first = self._given[before]
        where = f" with {first}" if first != option else " before"
        same = "" if before == name else f"is the same as {before}, which "
        self._fault(option, name, f"{same}was given another value{where}", "keep one of them")

    def _fault(self, option: str, name: str, problem: str, hint: str = "") -> None:
        self._faults.append(Fault(option, names.shown(name), problem, hint))


def _prefixed(name: str, bare: str) -> str:
    return f"begins with {name[: -len(bare)]}, which is for environment variables only"


def _told(name: str, value: str) -> str:
    """Give a value as a message may show it: that of a known name, harmless and no secret, else the word VALUE."""
    knob = knobs.find(name)
    harmless = bool(value) and names.plain(value) == value and not any(map(str.isspace, value))
    return value if knob and not knob.secret and harmless else "VALUE"
