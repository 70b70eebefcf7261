"""Simulate what no small machine has: GPUs, HCAs, their drivers.

`files(machine, host)` gives what is put into a host container (Debian 12, systemd) before its first boot. There, a unit
makes the hardware appear at every boot, before anything else that could ask for it. Every simulated tool answers from
one state, so that what set-up or a fault changes shows everywhere.

The state folder is /var/lib/simulated-hardware, one file per fact, one line in each:

- `machine`, `host`: which machine this is, and the host's number in its lab
- `driver`: the installed NVIDIA driver, module and library (`470.82.01`), or `none`; `driver-license`: `NVIDIA`, or
  `Dual MIT/GPL` for the open kernel module; `driver-ofed`: the OFED that it was built against, or `none`, on which
  nvidia_peermem depends
- `ofed`: the installed MLNX_OFED, or `none`; `bond`: the interface that eth0 is renamed to at boot, or `none`
- `nv-peer-mem`: the nv_peer_mem that dkms has built, or `none`; `nv-peer-mem-ofed`: against which OFED
- `peermem-users`: how many pieces of memory are registered with the loaded peer memory module, which then stays loaded
- `secure-boot`: `on`, `off` or `none` (no EFI). With `on` the driver's modules need `driver-signed` to be `yes`, and
  those that dkms builds `mok`, the machine owner's key, to be `enrolled`
- `iommu`: the type of the devices' IOMMU groups (`DMA`, `DMA-FQ`, `identity`), or `none`; `acs`: `on` where the bridges
  redirect what devices send to each other (Access Control Services), or `off`
- `reload-loses-gpus`: `yes` where `systemctl daemon-reload` takes their GPUs from running containers
- `persistenced`, `fabricmanager`: the installed versions of these daemons, or `none`; systemd knows whether they run
- `gpu/INDEX/...`: `state` is `present`, `gone` (not on the PCI bus: the others are renumbered, as they really are) or
  `lost` (fallen off the bus: nvidia-smi says so and fails); the rest is what nvidia-smi and sysfs say of the GPU
- `hca/NAME/...`: `state` is `ACTIVE`, `INIT` or `DOWN`, or `gone`; `layer`, `rate`, `lid`, `netdev`, ...
- `module/NAME`: a loaded kernel module; the line is the version that was loaded. Empty after a boot until it loads:
  the hardware's own modules, less those that a `blacklist` line of /etc/modprobe.d names, then /etc/modules-load.d
- `nvswitch/INDEX/...`: where the NVSwitches sit
- `process/PID`: a process on a GPU: `INDEX MIB NAME`. It counts for as long as the process lives

`simulated-hardware get [FACT]`, `set FACT VALUE` and `boot` (as after a reboot) work on it in the host:

- a GPU removed: `simulated-hardware set gpu/3/state gone`
- a port down: `simulated-hardware set hca/mlx5_0/state DOWN`
- NVLinks: `simulated-hardware set gpu/3/nvlink-down 2` (how many are down), `set gpu/3/nvlink-errors 7` (CRC errors of link 0)
- an Xid in the kernel log: `simulated-hardware say 'NVRM: Xid (PCI:0000:1b:00): 79, pid=1, GPU has fallen off the bus.'`
- another driver: `simulated-hardware set driver 535.86.10`. Until the module is loaded anew (`simulated-hardware boot`,
  or a reboot) nvidia-smi fails with "Driver/library version mismatch", as it does after an upgrade

Containers of the host's own engine see the simulated kernel as they would see the real one: /usr/local/sbin/runc, which
stands before the engine's, has `container-view` lay it over their /sys and /proc. GPUs are in those containers that the
simulated container toolkit puts them into (taco_launch/lab/packages).

/etc/taco-launch/simulated names the simulated subjects, one a line. CPUs and addresses are the machine's own, and so is
the memory that a host can use. Its NUMA is made up: two nodes, between which the CPUs are shared out, so that binding
to a node works, each shown with half of the machine's memory, all of it free.
"""

import stat
from importlib import resources

from taco_launch.lab.hardware import machines
from taco_launch.lab.hardware.machine import SimulatedMachine
from taco_launch.lab.hardware.modules import MODULES, table
from taco_launch.lab.hardware.state import facts

MACHINES: tuple[str, ...] = tuple(machine.name for machine in machines.ALL)

_STATE = "/var/lib/simulated-hardware"
_LIBRARY = "/usr/lib/simulated-hardware"
_UNIT = "simulated-hardware.service"
_UNITS = "/usr/lib/systemd/system"
_GENERATOR = "/usr/lib/systemd/system-generators/simulated-gpus"
_STARTED = "/etc/systemd/system/multi-user.target.wants"
_WANTED = "/etc/systemd/system/sysinit.target.d/simulated-hardware.conf"


def files(machine: str, host: int) -> tuple[tuple[str, int, bytes], ...]:
    """Return what makes host number `host` (1..) a simulated `machine`: (absolute path, mode, content).

    With the mode of a symbolic link (stat.S_IFLNK) the content is what it points to.
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
    found.append((_GENERATOR, stat.S_IFLNK, f"{_LIBRARY}/gpu-generator".encode()))
    for program in sorted(resources.files(__name__).joinpath("programs").iterdir(), key=lambda each: each.name):
        content = program.read_bytes()
        if program.name == _UNIT:
            found.append((f"/etc/systemd/system/{_UNIT}", 0o644, content))
        else:
            found.append((f"{_LIBRARY}/{program.name}", 0o755 if content.startswith(b"#!") else 0o644, content))
        if program.name in _services(chosen):  # systemd reads its units before the programs could put them there
            found.append((f"{_UNITS}/{program.name}", 0o644, content))
            found.append((f"{_STARTED}/{program.name}", stat.S_IFLNK, f"{_UNITS}/{program.name}".encode()))
    return tuple(found)


def _services(machine: SimulatedMachine) -> tuple[str, ...]:
    """Name the services that the packages of a machine bring."""
    openibd = ("openibd.service",) if machine.ofed else ()
    manager = ("nvidia-fabricmanager.service",) if machine.nvswitches else ()
    return ("nvidia-persistenced.service", *openibd, *manager)


def _subjects(machine: SimulatedMachine) -> tuple[str, ...]:
    """Name what is simulated, in the words of /etc/taco-launch/simulated."""
    rdma = ("rdma",) if machine.hcas else ()
    bond = ("bond",) if machine.bond else ()
    return ("gpu", "topology", "modules", "numa", *rdma, *bond)
