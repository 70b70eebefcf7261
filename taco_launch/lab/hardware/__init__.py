"""Simulated hardware of lab hosts: what no small machine has (GPUs, HCAs, their driver and OFED), called simulated.

`files(machine, host)` gives what is put into a host container (Debian 12, systemd) before its first boot. There, a unit
makes the hardware appear at every boot, before anything else that could ask for it. Every simulated tool answers from
one state, so that what set-up or a fault changes shows everywhere.

The state folder is /var/lib/simulated-hardware, one file per fact, one line in each:

- `machine`, `host`: which machine this is, and the host's number in its lab
- `driver`: the installed NVIDIA driver, module and library (`470.82.01`), or `none`; `driver-license`: `NVIDIA`, or
  `Dual MIT/GPL` for the open kernel module
- `ofed`: the installed MLNX_OFED, or `none`; `bond`: the interface that eth0 is renamed to at boot, or `none`
- `gpu/INDEX/...`: `state` is `present`, `gone` (not on the PCI bus: the others are renumbered, as they really are) or
  `lost` (fallen off the bus: nvidia-smi says so and fails); the rest is what nvidia-smi and sysfs say of the GPU
- `hca/NAME/...`: `state` is `ACTIVE`, `INIT` or `DOWN`, or `gone`; `layer`, `rate`, `lid`, `netdev`, ...
- `module/NAME`: a loaded kernel module; the line is the version that was loaded. Empty after a boot until it loads:
  the hardware's own modules, less those that a `blacklist` line of /etc/modprobe.d names, then /etc/modules-load.d
- `process/PID`: a process on a GPU: `INDEX MIB NAME`. It counts for as long as the process lives

`simulated-hardware get [FACT]`, `set FACT VALUE` and `boot` (as after a reboot) work on it in the host:

- a GPU removed: `simulated-hardware set gpu/3/state gone`
- a port down: `simulated-hardware set hca/mlx5_0/state DOWN`
- another driver: `simulated-hardware set driver 535.86.10`. Until the module is loaded anew (`simulated-hardware boot`,
  or a reboot) nvidia-smi fails with "Driver/library version mismatch", as it does after an upgrade

/etc/taco-launch/simulated names the simulated subjects, one a line. CPUs and addresses are the machine's own, and so is
the memory that a host can use. Its NUMA is made up: two nodes, between which the CPUs are shared out, so that binding
to a node works, each shown with half of the machine's memory, all of it free.
"""

from importlib import resources

from taco_launch.lab.hardware import machines
from taco_launch.lab.hardware.machine import Machine
from taco_launch.lab.hardware.modules import MODULES, table
from taco_launch.lab.hardware.state import facts

MACHINES: tuple[str, ...] = tuple(machine.name for machine in machines.ALL)

_STATE = "/var/lib/simulated-hardware"
_LIBRARY = "/usr/lib/simulated-hardware"
_UNIT = "/etc/systemd/system/simulated-hardware.service"
# A drop-in, where `systemctl enable` would make a link: what is put into a host is plain files.
_WANTED = "/etc/systemd/system/sysinit.target.d/simulated-hardware.conf"


def files(machine: str, host: int) -> tuple[tuple[str, int, bytes], ...]:
    """Give what makes host number `host` (1..) a simulated `machine`: (absolute path, mode, content).

    The same arguments give the same bytes; another host differs in its UUIDs and GUIDs.

    Raises:
        KeyError: there is no such machine (`MACHINES` has the names).
        ValueError: `host` is not 1 or more.
    """
    if host < 1:
        raise ValueError(f"hosts are numbered from 1, not {host}")
    chosen = {each.name: each for each in machines.ALL}[machine]
    found = [(f"{_STATE}/{path}", 0o644, f"{value}\n".encode()) for path, value in facts(chosen, host)]
    found += [(f"{_LIBRARY}/modules/{module.name}", 0o644, table(module).encode()) for module in MODULES]
    found.append(("/etc/taco-launch/simulated", 0o644, "".join(f"{word}\n" for word in _subjects(chosen)).encode()))
    found.append((_WANTED, 0o644, b"[Unit]\nWants=simulated-hardware.service\n"))
    for program in sorted(resources.files(__name__).joinpath("programs").iterdir(), key=lambda each: each.name):
        content = program.read_bytes()
        if program.name.endswith(".service"):
            found.append((_UNIT, 0o644, content))
        else:
            found.append((f"{_LIBRARY}/{program.name}", 0o755 if content.startswith(b"#!") else 0o644, content))
    return tuple(found)


def _subjects(machine: Machine) -> tuple[str, ...]:
    """Name what is simulated, in the words of /etc/taco-launch/simulated."""
    rdma = ("rdma",) if machine.hcas else ()
    bond = ("bond",) if machine.bond else ()
    return ("gpu", "topology", "modules", "numa", *rdma, *bond)
