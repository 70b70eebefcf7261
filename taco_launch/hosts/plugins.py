"""Find backends of other packages: entry points of what is installed, which are looked at for no name that is built in.

The agent is one file with the standard library alone, so nothing else can be added to taco-launch from outside.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from taco_launch.core.errors import UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

BACKENDS = "taco_launch.backends"


def list_backends() -> "tuple[EntryPoint, ...]":
    """Return the entry points of backends, by name."""
    metadata: Any = import_module("importlib.metadata")  # few calls need it, and it takes as long as they do
    return tuple(sorted(metadata.entry_points(group=BACKENDS), key=lambda entry: entry.name))


def load_backend(name: str) -> Any:
    """Return what the entry point of a backend names: its `connect`.

    Raises:
        UsageError: no package has it, several have it, or it cannot be loaded.
    """
    entries = [entry for entry in list_backends() if entry.name == name]
    if not entries:
        hint = f"install the package that provides it (entry point group {BACKENDS}), or name another engine"
        raise UsageError(f"engine {name}: no installed package provides it", hint=hint)
    if len(entries) > 1:
        packages = " and ".join(sorted(map(_describe_package, entries)))
        raise UsageError(f"engine {name}: {packages} both provide it", hint="remove one of these packages")
    (entry,) = entries
    try:
        connect = entry.load()
    except Exception as error:
        raise _refuse(entry, f"{type(error).__name__}: {error}") from error
    if not callable(connect):
        raise _refuse(entry, "it is no function")
    return connect


def _refuse(entry: "EntryPoint", why: str) -> UsageError:
    return UsageError(
        f"engine {entry.name}: entry point {entry.value} of {_describe_package(entry)} cannot be loaded: {why}",
        hint="update or remove that package, or name another engine in the inventory",
    )


def _describe_package(entry: "EntryPoint") -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "an unknown package"
