"""Variables, knobs and MCA parameters that a request names: checked against the table of knobs, all faults at once."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from taco_launch.core.errors import Fault, SpecError
from taco_launch.core.frozen import dataclass
from taco_launch.core.launch import knobs
from taco_launch.core.launch.knobs import values as knob_values
from taco_launch.core.launch.knobs.lists import FINE
from taco_launch.hosts.inventory.load import read_file
from taco_launch.hosts.inventory.schema import names
from taco_launch.hosts.inventory.variable_names import (
    BESIDE_X,
    ENV_LIST,
    MCA_NAME,
    env_fault,
    mca_fault,
    prefixed,
    shown_value,
    unknown,
)

NOT_SET = "is not set here"
OTHERS = "pass any other variable with -x, and any other MCA parameter with --mca"
# mpirun refuses both of a pair (ompi_info: "mutually exclusive").
_EITHER = (("btl_tcp_if_include", "btl_tcp_if_exclude"), ("oob_tcp_if_include", "oob_tcp_if_exclude"))


@dataclass(frozen=True)
class Variables:
    """What was requested, in the order it was given, no name twice.

    `env` holds environment variables, (name, value), the value None where the caller's is to be taken; `mca` holds MCA
    parameters.
    """

    env: tuple[tuple[str, str | None], ...] = ()
    mca: tuple[tuple[str, str], ...] = ()


def pairs(texts: Iterable[str]) -> tuple[tuple[str, str | None], ...]:
    """Return (name, value) of NAME=VALUE, and (name, None) of NAME."""
    words = (text.partition("=") for text in texts)
    return tuple((name, value if equals else None) for name, equals, value in words)


def check(
    env: Sequence[tuple[str, str | None]],
    knobs: Sequence[tuple[str, str | None]],
    mca: Sequence[tuple[str, str]],
    environ: Mapping[str, str],
    *,
    allow_unknown: bool,
) -> Variables:
    """Return what is requested by -x, --knob and --mca, or all that is wrong with it.

    Values of -x and --mca are taken as they are and refused where the library would read something else; values of
    --knob are put into the form that it reads.

    Args:
        env: (name, value) of variables; one whose value is None has to be set in `environ`, and its value there is checked.
        knobs: (name, value as people write it); None is refused as missing.
        mca: (name, value) of MCA parameters.
        environ: the caller's environment.
        allow_unknown: let names pass that look like a known library's and are not in the table.

    Raises:
        SpecError: all that is wrong, each with its option. Values of names that the table has not are never shown.
    """
    found = _Gathered(environ, allow_unknown=allow_unknown)
    for name, text in env:
        found.add_env(name, text)
    for name, text in knobs:
        found.add_knob(name, text)
    for name, value in mca:
        found.add_mca(name, value)
    return found.result()


class _Gathered:
    """Gathers what is right and what is wrong."""

    def __init__(self, environ: Mapping[str, str], *, allow_unknown: bool) -> None:
        self._environ = environ
        self._allow_unknown = allow_unknown
        self._env: dict[str, str | None] = {}
        self._mca: dict[str, tuple[str, str]] = {}  # under the one name that all aliases share
        self._given: dict[str, str] = {}  # the option that a name came with
        self._faults: list[Fault] = []

    def result(self) -> Variables:
        for one, other in _EITHER:
            if one in self._mca and other in self._mca:
                self._fault(
                    "--mca", self._mca[one][0], f"cannot be combined with {self._mca[other][0]}", "keep one of them"
                )
        if self._faults:
            raise SpecError(names.COMMAND_LINE, tuple(self._faults))
        return Variables(tuple(self._env.items()), tuple(self._mca.values()))

    def add_env(self, name: str, value: str | None) -> None:
        try:
            names.env(name, value)
        except SpecError as error:
            self._faults.extend(error.faults)
            return
        problem, hint = env_fault(name, value, allow_unknown=self._allow_unknown)
        if problem:
            self._fault("-x", name, problem, hint)
        elif value is None and name not in self._environ:
            self._fault("-x", name, NOT_SET, f"-x {name}=VALUE gives it a value")
        elif self._right("-x", name, value):
            self._keep_env("-x", name, value)

    def add_knob(self, name: str, value: str | None) -> None:
        if value is None:
            known = knobs.find(name)
            like = f"such as --knob {name}={known.example}" if known else "write --knob NAME=VALUE"
            self._fault("--knob", name, "has no value", like)
            return
        if (bare := knobs.parameter(name)) != name:
            write = f"write --knob {bare}={shown_value(bare, value)}"
            self._fault("--knob", name, prefixed(name, bare), write)
            return
        knob = knobs.find(name)
        if knob is None and not knobs.must_be_known(name) and not name.startswith("UCX_"):
            near = knobs.closest(name)
            meant = f"did you mean {names.shown(near)}? " if near else ""
            self._fault("--knob", name, "no such knob", meant + OTHERS)
            return
        problem, hint = BESIDE_X if name == ENV_LIST else FINE if self._allow_unknown else unknown(name)
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
            names.env(name, value, "--knob")
        except SpecError as error:
            self._faults.extend(error.faults)
            return
        self._keep_env("--knob", name, value)

    def add_mca(self, name: str, value: str) -> None:
        left, equals, right = name.partition("=")
        if equals and MCA_NAME.fullmatch(left):
            write = f"write --mca {left} {shown_value(left, right)}"
            self._fault("--mca", left, "has its value after '=', but --mca requires two words", write)
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


OPTION = "--env-file"
# Any other line without a value may be a piece of a secret of several lines.
_SHOWN_NAME = re.compile(r"[A-Za-z_]\w{,39}", re.ASCII)


def read(
    paths: Sequence[str], environ: Mapping[str, str], *, allow_unknown: bool
) -> tuple[dict[str, str | None], dict[str, str]]:
    """Return the variables of files, those of a later line instead of an earlier one's; and the names without a value.

    A name without a value is left out where the caller has none, as docker does: it is returned with its place.

    Raises:
        SpecError: a file cannot be read, or has lines that are wrong: all of them, without their values.
    """
    pairs: dict[str, str | None] = {}
    unset: dict[str, str] = {}
    for path in paths:
        for number, name, value in _lines(path, environ, allow_unknown=allow_unknown):
            if value is not None or name in environ:
                pairs[name] = value
            elif _SHOWN_NAME.fullmatch(name):
                unset[name] = f"{names.plain(path)}: line {number}"
    return pairs, {name: place for name, place in unset.items() if name not in pairs}


def _lines(path: str, environ: Mapping[str, str], *, allow_unknown: bool) -> Iterator[tuple[int, str, str | None]]:
    data = read_file(path, OPTION)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        at = data.count(b"\n", 0, error.start) + 1
        raise SpecError(path, (Fault(f"line {at}", "", "is not UTF-8; save the file as UTF-8"),)) from None
    faults: list[Fault] = []
    for number, ended in enumerate(text.split("\n"), 1):
        line = ended.removesuffix("\r").lstrip()
        if not line or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        given = value if equals else None
        try:
            if equals or name in environ or any(map(str.isspace, name)):
                check(((name, given),), (), (), environ, allow_unknown=allow_unknown)
        except SpecError as error:
            faults += [Fault(f"line {number}", names.shown(name), fault.problem, fault.hint) for fault in error.faults]
        else:
            yield number, name, given
    if faults:
        raise SpecError(path, tuple(faults))
