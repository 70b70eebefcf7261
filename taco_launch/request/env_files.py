"""Files of variables, as `docker run --env-file` reads them: NAME=VALUE, or NAME for the caller's value, a line each."""

from collections.abc import Mapping, Sequence

from taco_launch.errors import Fault, SpecError
from taco_launch.inventory import names
from taco_launch.inventory.load import read_file
from taco_launch.request import variables

OPTION = "--env-file"
_Pairs = tuple[tuple[str, str | None], ...]


def read(paths: Sequence[str], environ: Mapping[str, str], *, allow_unknown: bool) -> _Pairs:
    """Return the variables of files, those of a later line instead of an earlier one's.

    A name without a value is left out where the caller has none, as docker does.

    Raises:
        SpecError: a file cannot be read, or has lines that are wrong: all of them, without their values.
    """
    pairs = (pair for path in paths for pair in _lines(path, environ, allow_unknown=allow_unknown))
    return tuple(dict(pairs).items())


def _lines(path: str, environ: Mapping[str, str], *, allow_unknown: bool) -> _Pairs:
    data = read_file(path, OPTION)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        at = data.count(b"\n", 0, error.start) + 1
        raise SpecError(path, (Fault(f"line {at}", "", "is not UTF-8; save the file as UTF-8"),)) from None
    pairs: list[tuple[str, str | None]] = []
    faults: list[Fault] = []
    for number, ended in enumerate(text.split("\n"), 1):
        line = ended.removesuffix("\r").lstrip()
        if not line or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        pair = (name, value if equals else None)
        if not equals and name not in environ and not any(map(str.isspace, name)):
            continue
        try:
            variables.check((pair,), (), (), environ, allow_unknown=allow_unknown)
        except SpecError as error:
            faults += [Fault(f"line {number}", names.shown(name), fault.problem, fault.hint) for fault in error.faults]
        else:
            pairs.append(pair)
    if faults:
        raise SpecError(path, tuple(faults))
    return tuple(pairs)
