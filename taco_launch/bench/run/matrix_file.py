"""A matrix in YAML, the user's file or one that is shipped -> Matrix, and what a job of a cell asks for."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from taco_launch.bench.model.matrix import Matrix
from taco_launch.core.errors import Fault, SpecError
from taco_launch.core.model.job_request import JobRequest
from taco_launch.hosts.inventory.load import check_size, read_file
from taco_launch.hosts.inventory.schema import names
from taco_launch.hosts.inventory.schema.faults import Faults
from taco_launch.hosts.inventory.schema.text import decode

OPTION = "MATRIX"
_SHIPPED = Path(__file__).parents[2] / "bench" / "matrices"
_SUFFIXES = (".yaml", ".yml")
_HINT = "`taco-launch bench ladder --schema` describes every key"


def load(name: str, environ: Mapping[str, str]) -> Matrix:
    """Read the matrix that `find` finds.

    Raises:
        SpecError: there is none, it cannot be read, or something in it is wrong: all faults.
    """
    return parse(*find(name), environ)


def find(name: str) -> tuple[bytes, str]:
    """Return the bytes and the path of a matrix: a file's path, else one that is shipped (`lab` or `lab.yaml`).

    A word without `/` and .yaml is one that is shipped, whatever file has this name.

    Raises:
        SpecError: there is no such matrix, or it cannot be read.
    """
    word = name.removesuffix(".yaml")
    known = shipped()
    if word in known and (word == name or not Path(name).exists()):
        file = str(_SHIPPED / f"{word}.yaml")
        return read_file(file, OPTION), file
    if "/" in name or name.endswith(_SUFFIXES):
        return read_file(name, OPTION, f"shipped with taco-launch: {', '.join(known)}"), name
    problem = f"no such matrix; shipped with taco-launch: {', '.join(known)}"
    hint = names.did_you_mean(name, known) or "to use a file of your own: ./NAME.yaml"
    raise SpecError(OPTION, (Fault("matrix", names.shown(name), problem, hint),))


def shipped() -> tuple[str, ...]:
    """Return the names of the matrices that are shipped, sorted."""
    return tuple(sorted(file.stem for file in _SHIPPED.glob("*.yaml")))


def parse(data: bytes, source: str, environ: Mapping[str, str]) -> Matrix:
    """Read the bytes of a file; `source` names it in messages, a profile's path counts from where it lies.

    `environ` is the caller's environment, out of which variables without a value are taken.

    Raises:
        SpecError: something in it is wrong: all faults, each with its place and value.
    """
    check_size(data, source, "matrix")
    faults = Faults(source, _HINT, "matrix")
    text = decode(data, faults)
    from taco_launch.bench.run.matrix_check import MatrixCheck  # noqa: PLC0415 - no other command of bench needs pydantic

    found = MatrixCheck(faults, environ, source).matrix(text, hashlib.sha256(data).hexdigest())
    faults.raise_any()
    return found


def request_of(matrix: Matrix, workload: str, variant: str) -> JobRequest:
    """Return what a job of these is to be, whatever its size."""
    how = matrix.variant(variant)
    return replace(how.job, command=(*matrix.workload(workload).command, *how.args))
