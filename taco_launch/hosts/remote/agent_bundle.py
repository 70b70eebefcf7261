"""The agent's zipapp, built from this package: standard library only, named by the hash of its sources and by this Python.

Who builds it twice gets the same bytes: one controller may write the file while the agent of another runs from it.
"""

import functools
import io
import marshal
import sys
from collections.abc import Iterator
from importlib.util import MAGIC_NUMBER, source_hash
from pathlib import Path
from types import CodeType

import taco_launch
from taco_launch.core.digest import digest

# What ships: these rooms and the package's own file. ruff (pyproject.toml), the section py38 of scripts/test and the
# contracts of setup.cfg name the same; `light` is what ranks import.
SHIPPED = ("agent", "core", "light")
# The first lines are read by any Python; what they say, jobs/backend/agent_location.py understands. The collector of cycles would
# run ten times while modules are imported, which make none: a process starts 5 % sooner without (launch_overhead.py).
_MAIN = b"""import sys
if sys.version_info < (3, 8):
    sys.stdout.write("unready python %s\\n" % sys.version.split()[0])
    sys.exit(0)
import gc
import zipimport
gc.set_threshold(20000)
try:
    from taco_launch.agent.__main__ import main
    sys.exit(main(sys.argv[0], sys.argv[1:]))
except ModuleNotFoundError as error:
    sys.stdout.write("unready module %s\\n" % error.name)
    sys.exit(1)
except zipimport.ZipImportError:  # what it says of compressed files where zlib is missing
    sys.stdout.write("unready module zlib\\n")
    sys.exit(1)
"""
# Code of these rooms is read by few processes and is compressed; what every rank starts with is not, which saves 2 to 4 ms of
# its 50. Sources serve other Pythons and tracebacks only: compressed too, the file has 4 MB instead of 6.6.
_SELDOM_USED = tuple(
    f"taco_launch/{part}"
    for part in (
        "agent/counters/",
        "agent/gang/placement_errors.py",
        "agent/messages/",
        "agent/scheduler/allocation.py",
        "agent/slurm/",
        "agent/snapshots/",
        "agent/stacks/",
        "agent/tensorboard/",
        "agent/rank/exec_",
        "agent/rank/horovod_",
        "agent/rank/tree_",
        "agent/rank/unrunnable.py",
        "agent/supervisor/elastic.py",
        "agent/supervisor/failure_analysis.py",
        "core/facts/",
        "core/manifest.py",
        "core/messages/",
        "core/signatures/",
        "core/slurm/",
        "core/stalls/",
        "core/usage/",
        "core/verify/",
        "light/",
    )
)
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the zip format's first moment: the same sources give the same file
_UNCHECKED_HASH = (1).to_bytes(4, "little")


def sources() -> tuple[tuple[str, bytes], ...]:
    """Return (path inside the zipapp, content) of every source file, and of the scripts that they run."""
    root = Path(taco_launch.__file__).parent
    rooms = (file for room in SHIPPED for file in (root / room).rglob("*") if file.suffix in {".py", ".sh"})
    files = [root / "__init__.py", *sorted(rooms)]
    return tuple((f"taco_launch/{file.relative_to(root)}", file.read_bytes()) for file in files)


def name(contents: tuple[tuple[str, bytes], ...]) -> str:
    """Name the file by its contents and the Python that it is compiled for, and by the version for who compares two of them."""
    parts = (part for path, data in contents for part in (path.encode(), data))
    return f"agent-{taco_launch.__version__}-{digest((_MAIN, MAGIC_NUMBER, *parts))[:16]}.pyz"


@functools.lru_cache(maxsize=1)  # it takes a second, and several heads may need it
def build(contents: tuple[tuple[str, bytes], ...]) -> bytes:
    """Build the zipapp. Compiled code for this Python lies beside the sources; another Python passes it over."""
    import zipfile  # noqa: PLC0415 - once for each version; every call to the agent imports this file

    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", compresslevel=9) as archive:
        archive.writestr(zipfile.ZipInfo("__main__.py", _EPOCH), _MAIN)
        for path, data in contents:
            archive.writestr(zipfile.ZipInfo(path, _EPOCH), data, zipfile.ZIP_DEFLATED)
            if path.endswith(".py"):
                # Before 3.11 marshal writes the members of a set in the order of their hashes. What is stored keeps its size all
                # the same, and so each file its place, by which a running agent finds it.
                deflates = sys.version_info >= (3, 11) and path.startswith(_SELDOM_USED)
                how = zipfile.ZIP_DEFLATED if deflates else zipfile.ZIP_STORED
                archive.writestr(zipfile.ZipInfo(f"{path}c", _EPOCH), _compiled(path, data), how)
    return packed.getvalue()


def _compiled(path: str, data: bytes) -> bytes:
    """Return the contents of a .pyc (PEP 552: hash-based, unchecked) as py_compile writes them: without docstrings."""
    code = compile(data, path, "exec", dont_inherit=True, optimize=2)
    # marshal writes what is referenced once in another way than what is referenced more often. Without this, that would depend
    # on what else this process has imported.
    referenced = list(_parts(code))
    written = MAGIC_NUMBER + _UNCHECKED_HASH + source_hash(data) + marshal.dumps(code)
    del referenced
    return written


def _parts(value: object) -> Iterator[object]:
    """Yield a constant of a code object and all that is in it."""
    yield (
        sys.intern(value) if isinstance(value, str) and len(value) == 1 else value
    )  # of one character there is one string
    if isinstance(value, CodeType):
        names = (value.co_names, value.co_varnames, value.co_cellvars, value.co_freevars)
        for part in (value.co_consts, *names, value.co_name, value.co_filename):
            yield from _parts(part)
    elif isinstance(value, (tuple, frozenset)):
        for part in value:
            yield from _parts(part)
