"""What an operation brings along for scripts/packages.sh: packages of the controller, the proxy, a source of packages."""

import hashlib
from dataclasses import replace

from taco_launch.core.model.host.hosts import DockerEngine
from taco_launch.core.model.host.paths import STATE
from taco_launch.setup.model.ops import FileTarget, Op

# Where the script finds packages of the controller, the proxy, and the source; it removes all of them.
GIVEN = f"{STATE}/docker/packages"
PROXY = f"{STATE}/docker/proxy"
SOURCE = f"{STATE}/docker/source"
MANAGERS = ("apt-get", "dnf", "yum", "zypper")


def ending(manager: str) -> str:
    """Return the ending of the names of packages that a package manager takes."""
    return ".deb" if manager == "apt-get" else ".rpm"


def way(manager: str) -> tuple[str, ...]:
    """Return the words by which scripts/packages.sh installs packages of the controller with a package manager."""
    return ("apt-packages", GIVEN) if manager == "apt-get" else ("rpm-packages", GIVEN, manager)


def given(manager: str, packages: tuple[tuple[str, bytes], ...]) -> tuple[FileTarget, ...]:
    """Return those packages of the controller, (file name, content), that are for a package manager, and their sums."""
    files = tuple(
        FileTarget(f"{GIVEN}/{name}", data, 0o600) for name, data in packages if name.endswith(ending(manager))
    )
    if not files:
        return ()
    sums = "".join(f"{hashlib.sha256(file.data).hexdigest()}  {file.path.rpartition('/')[2]}\n" for file in files)
    return (*files, FileTarget(f"{GIVEN}/SHA256SUMS", sums.encode(), 0o600))


def proxied(engine: DockerEngine) -> FileTarget:
    """Return the proxy that the engine has, for what is fetched from outside."""
    lines = "".join(f"{name}_proxy={value}\n" for name, value in engine.proxy)
    return FileTarget(PROXY, lines.encode(), 0o600, secret=True)


def from_source(op: Op, text: str, shown: str) -> Op:
    """Have an operation bring a source of packages, which `--diff` shows where it ends up."""
    file = FileTarget(SOURCE, text.encode(), shown=shown)
    return replace(op, why=f"{op.why}; the package source is written to {shown}", files=(*op.files, file))
