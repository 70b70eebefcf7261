"""py-spy of this machine, which reads stacks: it is put beside the agent of hosts with the same kind of processor."""

import platform
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

_PACKAGE = "py-spy"


def program() -> tuple[str, bytes] | None:
    """Return the name of its file beside an agent, and its content; None where it is not installed as a program.

    `pip install --target` puts programs elsewhere than the package's list of files names.
    """
    try:
        found = distribution(_PACKAGE)
    except PackageNotFoundError:
        return None
    for file in found.files or ():
        if file.name == _PACKAGE and (path := Path(str(file.locate()))).is_file():
            return f"{_PACKAGE}-{found.version}-{platform.machine()}", path.read_bytes()
    return None
