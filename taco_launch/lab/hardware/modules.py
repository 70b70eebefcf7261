"""The table of simulated kernel modules: what each needs, whether it loads, what it brings."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Module:
    """One kernel module.

    `folder` is where its file lies below /lib/modules/RELEASE; `package` is the fact of the state folder (`driver`,
    `ofed`) that it was installed with: `none` there means that its file is not. `version` is a text, or `@FACT`.
    `boot` says that the machine loads it unasked (what udev and openibd do). `fails` are (fact, value, text): while the
    fact has that value, loading ends with that text of strerror(3) (`Invalid argument`). `sys` are (path, content) that
    appear under /sys while it is loaded.
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


_DKMS = "updates/dkms"
_OFED = "updates/dkms/mlnx"
_GPL = "Dual BSD/GPL"


def _ofed(name: str, size: int, description: str, *depends: str) -> Module:
    return Module(name, size, _OFED, "ofed", "@ofed", _GPL, description, depends)


def _nvidia(name: str, size: int, description: str, *depends: str) -> Module:
    return Module(name, size, _DKMS, "driver", "@driver", "@driver-license", description, depends)


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
)  # fmt: skip


def table(module: Module) -> str:
    """Give the module as the host's programs read it: one `key value` a line, `fails` and `sys` any number of times."""
    lines = [
        f"size {module.size}",
        f"folder {module.folder}",
        f"package {module.package}",
        f"version {module.version}",
        f"license {module.license}",
        f"description {module.description}",
        f"depends {' '.join(module.depends)}".rstrip(),
        f"boot {'yes' if module.boot else 'no'}",
        *(f"fails {fact} {value} {text}" for fact, value, text in module.fails),
        *(f"sys {path} {content}" for path, content in module.sys),
    ]
    return "\n".join(lines) + "\n"
