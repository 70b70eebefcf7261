"""The table of simulated kernel modules: what each needs, whether it loads, what it brings."""

from taco_launch.core.frozen import dataclass


@dataclass(frozen=True)
class Module:
    """One kernel module.

    `folder` is where its file lies below /lib/modules/RELEASE; `package` is the fact of the state folder (`driver`,
    `ofed`) that it was installed with: `none` there means that its file is not. `version` is a text, or `@FACT`.
    `boot` says that the machine loads it unasked (what udev and openibd do). `fails` are (fact, value, text): while the
    fact has that value, loading ends with that text of strerror(3) (`Invalid argument`). `sys` are (path, content) that
    appear under /sys while it is loaded; a content `@version` is the loaded version.

    `since` is the first driver branch that has it. `built` is the fact that says which OFED it was built against: with
    `none` there its initialization ends with EINVAL (nvidia-peermem.c), with another one than the loaded ib_core's its
    symbols do not fit. `signed` is (fact, value): with any other value Secure Boot refuses it. `peer` is the peer memory
    client that it registers, which may be there once; `used` is the fact that counts what holds it besides modules.
    """

    name: str
    size: int
    folder: str
    package: str
    version: str
    license: str
    description: str
    depends: tuple[str, ...] = ()
    boot: bool = True
    fails: tuple[tuple[str, str, str], ...] = ()
    sys: tuple[tuple[str, str], ...] = ()
    since: int = 0
    built: str = ""
    signed: tuple[str, str] | None = None
    peer: str = ""
    used: str = ""


_DKMS = "updates/dkms"
_OFED = "updates/dkms/mlnx"
_GPL = "Dual BSD/GPL"


def _ofed(name: str, size: int, description: str, *depends: str) -> Module:
    return Module(name, size, _OFED, "ofed", "@ofed", _GPL, description, depends)


def _nvidia(name: str, size: int, description: str, *depends: str) -> Module:
    return Module(
        name, size, _DKMS, "driver", "@driver", "@driver-license", description, depends, signed=("driver-signed", "yes")
    )


def _peer_files(*clients: str) -> tuple[tuple[str, str], ...]:
    """Return what ib_core's sysfs shows of peer memory clients (MLNX_OFED, drivers/infiniband/core/peer_mem.c)."""
    folder = "/sys/kernel/mm/memory_peers"
    return tuple(
        (f"{folder}/{client}/{name}", content)
        for client in clients
        for name, content in (("version", "@version"), ("num_alloc_mrs", "0"), ("num_dealloc_mrs", "0"))
    )


# Dependencies before what needs them: the order of loading at boot. Sizes are those of driver 535 and OFED 5.4.
MODULES = (
    _ofed("ib_core", 442368, "core kernel InfiniBand API"),
    _ofed("mlx5_core", 1740800, "Mellanox 5th generation network adapters (ConnectX series) core driver"),
    _ofed("ib_uverbs", 163840, "InfiniBand userspace verbs access", "ib_core"),
    _ofed("mlx5_ib", 450560, "Mellanox 5th generation network adapters (ConnectX series) IB driver",
          "mlx5_core", "ib_core", "ib_uverbs"),
    _ofed("ib_umad", 36864, "InfiniBand userspace MAD packet access", "ib_core"),
    _ofed("ib_cm", 126976, "InfiniBand CM", "ib_core"),
    _ofed("iw_cm", 49152, "iWARP CM", "ib_core"),
    _ofed("rdma_cm", 122880, "Generic RDMA CM Agent", "ib_core", "ib_cm", "iw_cm"),
    _ofed("rdma_ucm", 32768, "RDMA Userspace Connection Manager Access", "ib_core", "ib_uverbs", "rdma_cm"),
    _nvidia("nvidia", 56598528, "NVIDIA GPU driver"),
    _nvidia("nvidia_modeset", 1306624, "NVIDIA modesetting driver", "nvidia"),
    _nvidia("nvidia_uvm", 1523712, "NVIDIA Unified Memory driver", "nvidia"),
    Module("nvidia_peermem", 16384, _DKMS, "driver", "@driver", _GPL, "NVIDIA GPU memory plug-in",
           ("ib_core", "nvidia"), boot=False, sys=_peer_files("nv_mem", "nv_mem_nc"), since=470, built="driver-ofed",
           signed=("driver-signed", "yes"), peer="nv_mem", used="peermem-users"),
    Module("nv_peer_mem", 16384, _DKMS, "nv-peer-mem", "@nv-peer-mem", _GPL, "NVIDIA GPU memory plug-in",
           ("ib_core", "nvidia"), boot=False, sys=_peer_files("nv_mem"), built="nv-peer-mem-ofed",
           signed=("mok", "enrolled"), peer="nv_mem", used="peermem-users"),
)  # fmt: skip


def table(module: Module) -> str:
    """Return the module as the host's programs read it: one `key value` a line, `fails` and `sys` any number of times."""
    lines = [
        f"size {module.size}",
        f"folder {module.folder}",
        f"package {module.package}",
        f"version {module.version}",
        f"license {module.license}",
        f"description {module.description}",
        f"depends {' '.join(module.depends)}".rstrip(),
        f"boot {'yes' if module.boot else 'no'}",
        f"since {module.since}",
        *([f"built {module.built}"] if module.built else []),
        *([f"signed {' '.join(module.signed)}"] if module.signed else []),
        *([f"peer {module.peer}"] if module.peer else []),
        *([f"used {module.used}"] if module.used else []),
        *(f"fails {fact} {value} {text}" for fact, value, text in module.fails),
        *(f"sys {path} {content}" for path, content in module.sys),
    ]
    return "\n".join(lines) + "\n"
