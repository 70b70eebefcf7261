"""Simulate packages of drivers and tools for the lab's apt repository.

- the NVIDIA container toolkit, laid out as NVIDIA's own repository is: its programs do with the simulated driver of a
  lab host what the real ones do with the real driver
- nvidia-peer-memory and nvidia-peer-memory-dkms, whose module the host's simulated dkms builds
- the headers of the running kernel, without which dkms builds nothing

Versions have the word `simulated` in them, but for those of nvidia-peer-memory, by which people choose.
"""

import os
import re
import stat
from collections.abc import Iterator, Sequence
from importlib import resources

from taco_launch.core.frozen import dataclass

TOOLKIT = "libnvidia-container/stable/deb"
PEER_MEMORY = "peer-memory"
KERNEL = "kernel"
# What dpkg takes for the name of a package (Debian policy, 5.6.1)
_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]+")
_TOOLKIT_VERSIONS = ("1.16.2-1+simulated", "1.17.8-1+simulated")
# 1.0-9 is the one of old guides, 1.1 the last for OFED 4.9, 1.3 the last at all (the releases of nv_peer_memory)
_PEER_MEMORY_VERSIONS = ("1.0-9", "1.1-0", "1.3-0")


@dataclass(frozen=True)
class Package:
    """One package; `files` are (absolute path, mode, content), `scripts` (name, text) of its DEBIAN folder."""

    folder: str
    name: str
    version: str
    title: str
    depends: str = ""
    files: tuple[tuple[str, int, bytes], ...] = ()
    scripts: tuple[tuple[str, str], ...] = ()
    conffiles: tuple[str, ...] = ()

    @property
    def control(self) -> str:
        """Its control file (deb-control(5))."""
        depends = f"Depends: {self.depends}\n" if self.depends else ""
        return (
            f"Package: {self.name}\nVersion: {self.version}\nArchitecture: all\n{depends}"
            f"Maintainer: taco-launch lab <lab@localhost>\nSection: misc\nPriority: optional\n"
            f"Description: {self.title}\n Simulated: made for a lab of taco-launch, of no use on a real machine.\n"
        )


def packages(release: str | None = None) -> tuple[Package, ...]:
    """Return all packages; `release` is the kernel of the hosts, this machine's by default."""
    versions = [package for version in _TOOLKIT_VERSIONS for package in _toolkit(version)]
    drivers = [package for version in _PEER_MEMORY_VERSIONS for package in _peer_memory(version)]
    return (*versions, *drivers, *_headers(release or os.uname().release))


def tree(each: Sequence[Package]) -> Iterator[tuple[str, int, bytes]]:
    """Yield the files from which the repository is built: (absolute path, mode, content), a folder for each package."""
    for package in each:
        folder = f"/{package.folder}/{package.name}_{package.version}"
        yield f"{folder}/DEBIAN/control", 0o644, package.control.encode()
        for name, text in package.scripts:
            yield f"{folder}/DEBIAN/{name}", 0o755, text.encode()
        if package.conffiles:
            yield f"{folder}/DEBIAN/conffiles", 0o644, "".join(f"{path}\n" for path in package.conffiles).encode()
        for path, mode, content in package.files:
            yield f"{folder}{path}", mode, content


def _program(name: str) -> bytes:
    return resources.files(__name__).joinpath("programs").joinpath(name).read_bytes()


def _toolkit(version: str) -> Iterator[Package]:
    """The four packages, with the programs that are in each of NVIDIA's."""
    number = version.partition("-")[0]

    def own(*names: str) -> tuple[tuple[str, int, bytes], ...]:
        return tuple(
            (f"/usr/bin/{name}", 0o755, _program(name).replace(b"@VERSION@", number.encode())) for name in names
        )

    title = "NVIDIA container"
    about = (("/usr/share/doc/libnvidia-container1/README", 0o644, b"simulated: there is no library in it\n"),)
    yield Package(TOOLKIT, "libnvidia-container1", version, f"{title} runtime library", files=about)
    yield Package(
        TOOLKIT, "libnvidia-container-tools", version, f"{title} runtime library (command-line tools)",
        f"libnvidia-container1 (>= {version})", own("nvidia-container-cli"),
    )  # fmt: skip
    yield Package(
        TOOLKIT, "nvidia-container-toolkit-base", version, f"{title} toolkit base", "perl",
        own("nvidia-ctk", "nvidia-container-runtime"),
    )  # fmt: skip
    yield Package(
        TOOLKIT, "nvidia-container-toolkit", version, f"{title} toolkit",
        f"nvidia-container-toolkit-base (= {version}), libnvidia-container-tools (>= {version})",
        own("nvidia-container-runtime-hook"),
    )  # fmt: skip


def _peer_memory(version: str) -> Iterator[Package]:
    name, source = "nvidia-peer-memory", f"/usr/src/nvidia-peer-memory-{version}"
    conf = "/etc/infiniband/nv_peer_mem.conf"
    settings = (
        f'PACKAGE_NAME="{name}"\nPACKAGE_VERSION="{version}"\nBUILT_MODULE_NAME[0]="nv_peer_mem"\n'
        'DEST_MODULE_LOCATION[0]="/kernel/drivers/video"\nBUILD_DEPENDS[0]="mlnx-ofed-kernel"\nAUTOINSTALL="yes"\n'
    )
    yield Package(
        PEER_MEMORY, name, version, "starts nv_peer_mem at boot",
        files=(("/etc/init.d/nv_peer_mem", 0o755, _program("nv_peer_mem")), (conf, 0o644, b"# simulated\nONBOOT=yes\n")),
        scripts=(
            ("postinst", "#!/bin/sh\nset -e\nupdate-rc.d nv_peer_mem defaults\n"),
            ("postrm", '#!/bin/sh\nset -e\n[ "$1" != purge ] || update-rc.d nv_peer_mem remove\n'),
        ),
        conffiles=(conf, "/etc/init.d/nv_peer_mem"),
    )  # fmt: skip
    yield Package(
        PEER_MEMORY, f"{name}-dkms", version, "source of nv_peer_mem, for dkms",
        f"{name} (= {version})",
        (
            (f"{source}/dkms.conf", 0o644, settings.encode()),
            (f"{source}/nv_peer_mem.c", 0o644, b"/* simulated: the lab's dkms compiles nothing */\n"),
        ),
        scripts=(
            ("postinst", _program("dkms-postinst").decode().replace("@VERSION@", version)),
            ("prerm", f"#!/bin/sh\nset -e\n[ ! -d /var/lib/dkms/{name}/{version} ] || dkms remove {name}/{version}\n"),
        ),
    )  # fmt: skip


def _headers(release: str) -> Iterator[Package]:
    """The headers of a kernel; none where no package can have its name."""
    name = f"linux-headers-{release}"
    if _NAME.fullmatch(name):
        source = f"/usr/src/{name}"
        yield Package(
            KERNEL, name, "1+simulated", f"headers of Linux {release}",
            files=(
                (f"{source}/Makefile", 0o644, b"# simulated: nothing is built with it\n"),
                (f"/lib/modules/{release}/build", stat.S_IFLNK, source.encode()),
            ),
        )  # fmt: skip
