"""py-spy of this machine, which reads stacks: it is put beside the agent of hosts with the same kind of processor."""

import platform
from importlib.metadata import PackageNotFoundError, distribution

_PACKAGE = "py-spy"


def program() -> tuple[str, bytes] | None:
    """Return the name of its file beside an agent, and its content; None where it is not installed as a program."""
    try:
        found = distribution(_PACKAGE)
    except PackageNotFoundError:
        return None
    for file in found.files or ():
        if file.name == _PACKAGE:
            return f"{_PACKAGE}-{found.version}-{platform.machine()}", file.read_binary()
    return None
