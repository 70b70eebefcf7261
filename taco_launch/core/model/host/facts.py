"""What a host is: one noun for each thing that the probe looks at.

A field that could not be read is `Unknown` with the reason, never a guess; what is known not to be there is `Absent`.
Sizes are bytes, rates are Gbit/s, times are seconds.
"""

from typing import Optional, Tuple

from taco_launch.core.frozen import dataclass
from taco_launch.core.model.host.fact_value import NOT_ASKED, Absent, Found, Unknown, known_value
from taco_launch.core.model.host.hardware import Gpu, Gpus, Hca, PciDevice, Rdma, Topology
from taco_launch.core.model.host.health import HealthFacts


@dataclass(frozen=True)
class Os:
    """`id` and `version` as in /etc/os-release (`centos`, `7.6.1810` if the release file says it), `name` in words."""

    id: str
    version: str
    name: str


@dataclass(frozen=True)
class Cpu:
    """`cores` are physical ones of all sockets, `threads` what the scheduler sees; `model` is empty if none is told."""

    model: str
    sockets: int
    cores: int
    threads: int


@dataclass(frozen=True)
class NumaNode:
    """One NUMA node; `cpus` as the kernel lists them: `0-23,48-71`."""

    index: int
    cpus: str
    memory: int  # bytes


@dataclass(frozen=True)
class Memory:
    """All of the host's memory, what new programs can have of it, and swap."""

    total: int  # bytes
    available: int  # bytes
    swap: int  # bytes


@dataclass(frozen=True)
class Disk:
    """The file system that `path` lies on.

    `typed` says whether its folders tell the types of files, without which overlay2 cannot work: XFS may have been made
    without. None where it is not known.
    """

    path: str
    type: str  # such as xfs
    size: int  # bytes
    free: int  # bytes
    typed: Optional[bool] = None


@dataclass(frozen=True)
class ProcessLimits:
    """What a process started over this connection gets; None is unlimited; memlock and stack in bytes."""

    name: str
    soft: Optional[int]
    hard: Optional[int]


@dataclass(frozen=True)
class System:
    """`clock_offset` is the host's clock less the controller's, give or take `clock_error`.

    `booted` is by the host's clock.
    `access` is `root`, `sudo` (without a password) or `user`. `remove_ipc` and `kill_user_processes` are logind's
    (what happens to an ordinary user's jobs at logout).
    """

    hostname: Found[str]
    os: Found[Os]
    kernel: Found[str]
    architecture: Found[str]
    cpu: Found[Cpu]
    numa: Found[Tuple[NumaNode, ...]]
    memory: Found[Memory]
    disks: Found[Tuple[Disk, ...]]
    limits: Found[Tuple[ProcessLimits, ...]]
    clock_offset: Found[float]  # seconds
    clock_error: Found[float]  # seconds
    clock_synchronised: Found[bool]
    selinux: Found[str]  # such as enforcing
    remove_ipc: Found[bool]
    kill_user_processes: Found[bool]
    access: Found[str]
    init: Found[str]  # the name of process 1
    virtualization: Found[str]
    package_manager: Found[str]
    booted: Found[float]  # seconds since the epoch


@dataclass(frozen=True)
class Address:
    """`address` with its prefix length: `10.0.0.1/24`; `scope` is `global`, `link` or `host`."""

    address: str
    scope: str


@dataclass(frozen=True)
class Interface:
    """`state` as in operstate; `speed` is None where the driver does not say; `master` is its bond or bridge.

    `kind` is `physical`, `bond`, `bridge`, `vlan`, `veth`, `loopback` or `virtual`. `pci` is `0000:1b:00.0`.
    `shaping` is what the kernel slows its traffic by (`tbf rate 100Mbit`), None where it does not, or no tc tells.
    """

    name: str
    kind: str
    state: str
    mtu: int  # bytes
    mac: str
    addresses: Tuple[Address, ...] = ()
    speed: Optional[float] = None  # Gbit/s
    master: Optional[str] = None
    pci: Optional[str] = None
    numa: Optional[int] = None  # the NUMA node, None where the platform names none
    shaping: Optional[str] = None


@dataclass(frozen=True)
class BondMember:
    """One interface of a bond; `up` is its MII status."""

    name: str
    up: bool
    speed: Optional[float]  # Gbit/s, None where the driver does not say


@dataclass(frozen=True)
class Bond:
    """A bond, from /proc/net/bonding; `mode` in the kernel's words (`IEEE 802.3ad Dynamic link aggregation`)."""

    name: str
    mode: str
    up: bool
    members: Tuple[BondMember, ...]


@dataclass(frozen=True)
class Firewall:
    """`tool` is `firewalld`, `ufw`, `nftables` or `iptables`; `active`: it drops or rejects part of what comes in.

    `closed` are the TCP ports (first, last) that certainly no other host can connect to.
    """

    tool: str
    active: bool
    detail: str
    closed: Tuple[Tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Listener:
    """A listening TCP port; `process` is None where only root may see whose it is."""

    address: str
    port: int
    process: Optional[str]


@dataclass(frozen=True)
class NetworkFacts:
    """`default_interface` carries the default route, `reached_by` the address of this connection's own end here."""

    interfaces: Found[Tuple[Interface, ...]]
    bonds: Found[Tuple[Bond, ...]]
    default_interface: Found[str]
    reached_by: Found[str]
    firewalls: Found[Tuple[Firewall, ...]]
    port_range: Found[Tuple[int, int]]  # the first and the last port that the kernel chooses itself
    listeners: Found[Tuple[Listener, ...]]


@dataclass(frozen=True)
class ContainerState:
    """One container of the host's engine."""

    name: str
    image: str
    state: str
    labels: Tuple[Tuple[str, str], ...]


@dataclass(frozen=True)
class Image:
    """One image of the host's engine; `id` and `digest` with `sha256:`.

    `digest` is None where it was never pulled or pushed. `size` is as the engine rounds it (`1.61GB`).
    """

    reference: str
    id: str
    digest: Optional[str]
    size: Optional[int]  # bytes


# What only an engine knows, where none answers.
NO_ANSWER = Unknown("the engine does not answer")


@dataclass(frozen=True)
class DockerFacts:
    """`flavour` is `docker`, `podman` (which answers as docker) or `rootless`; `userns` says that ids are remapped.

    `version` is the engine's: Absent where docker is installed and no engine runs, Unknown where this user may not ask
    it. `config` is the text of /etc/docker/daemon.json. `toolkit` is the version of the NVIDIA container toolkit, and
    `toolkit_programs` those of its programs that are there. `cdi` are the devices that CDI specifications name
    (`nvidia.com/gpu=all`), `cdi_folders` where the engine looks for these: none where CDI is off, Absent before 25.0.
    `security` is what confines containers: of `apparmor`, `seccomp`, `selinux`, `userns` and others, as docker names them.
    """

    version: Found[str]
    flavour: Found[str] = NO_ANSWER
    userns: Found[bool] = NO_ANSWER
    root: Found[str] = NO_ANSWER  # the folder of images and containers
    storage: Found[str] = NO_ANSWER  # the storage driver, such as overlay2
    cgroup_driver: Found[str] = NO_ANSWER
    cgroup_version: Found[int] = NO_ANSWER
    runtimes: Found[Tuple[str, ...]] = NO_ANSWER
    default_runtime: Found[str] = NO_ANSWER
    live_restore: Found[bool] = NO_ANSWER
    mirrors: Found[Tuple[str, ...]] = NO_ANSWER
    insecure_registries: Found[Tuple[str, ...]] = NO_ANSWER
    containers: Found[Tuple[ContainerState, ...]] = NO_ANSWER
    images: Found[Tuple[Image, ...]] = NO_ANSWER
    toolkit: Found[str] = NO_ANSWER
    config: Found[str] = Absent()
    toolkit_programs: Found[Tuple[str, ...]] = NOT_ASKED
    cdi: Found[Tuple[str, ...]] = NOT_ASKED
    cdi_folders: Found[Tuple[str, ...]] = NOT_ASKED
    security: Found[Tuple[str, ...]] = NOT_ASKED


@dataclass(frozen=True)
class Software:
    """What a training image (or the host itself, where jobs run on it) holds.

    `where` is `host` or the container's name. `horovod_build` is what `horovod --check-build` says it was built with,
    `nccl_conf` the text of /etc/nccl.conf, which NCCL obeys silently; the other programs are told by their versions.
    """

    where: str
    openmpi: Found[str]
    mpirun: Found[str]
    ucx: Found[str]
    nccl: Found[str]
    cuda: Found[str]
    python: Found[str]
    torch: Found[str]
    horovod: Found[str]
    horovod_build: Found[Tuple[str, ...]]
    lightcc: Found[str]
    verbs: Found[Tuple[str, ...]]  # providers of libibverbs, such as mlx5
    sshd: Found[str]
    nccl_conf: Found[str]
    memlock: Found[Optional[int]]  # bytes, None for unlimited
    shm: Found[int]  # bytes of /dev/shm


@dataclass(frozen=True)
class SetupFile:
    """A file, folder or link of set-up: `sha256` is a file's (64 hex digits), `link` what a link names."""

    path: str
    sha256: Optional[str]
    mode: int
    link: Optional[str] = None


@dataclass(frozen=True)
class SetupState:
    """The state of set-up on a host, and what it is built on; where a cluster is meant, of the one that was asked about."""

    # folders, files and links of ours in /var/lib/taco-launch (none of jobs; of other clusters only their folder),
    # the cluster's systemd unit, and the drop-ins of docker.service
    files: Found[Tuple[SetupFile, ...]]
    # paths /dev/infiniband/* and /dev/nvidia*
    devices: Found[Tuple[str, ...]]
    # bounding set of process 1: names without CAP_
    capabilities: Found[Tuple[str, ...]]
    # hard limit of process 1 in bytes; None is unlimited
    memlock: Found[Optional[int]]
    # public half of the key of the container's sshd
    host_key: Found[str]
    # public half of the key by which the cluster's containers log in to one another
    cluster_key: Found[str]
    # how the container's unit stands: `active`, `failed`, ...
    unit: Found[str]
    # whether that unit starts at boot
    enabled: Found[bool]
    # what docker comes from, with its version: `docker.io 20.10.24`
    docker_package: Found[str]
    # whether docker.service starts at boot: `enabled`, `disabled`, `masked`, ...
    engine_unit: Found[str]
    # state of docker.service: `active`, `failed`, ...
    engine_active: Found[str]
    # command line of the engine that runs, else its ExecStart
    engine_command: Found[str]
    # text of /etc/docker/daemon.json
    daemon_json: Found[str]
    # text of /etc/hosts
    hosts: Found[str] = NOT_ASKED
    # packages of the NVIDIA container toolkit, each with its version
    toolkit_packages: Found[Tuple[str, ...]] = NOT_ASKED
    # boot ID, namespace of process numbers and name, by which a machine with two addresses is known
    machine: Found[str] = NOT_ASKED
    # of Slurm: (unit, `enabled active`) of installed services, (path, cluster) of settings, where `-` stands for settings
    # that set-up did not write, and (`cgroup`, `2`) where control groups are of version 2
    slurm: Found[Tuple[Tuple[str, str], ...]] = NOT_ASKED


@dataclass(frozen=True)
class HostFacts:
    """All of one host; a subject that was not requested is NOT_ASKED.

    `simulated` names the subjects that are not real on this host: in a lab, those of hardware.
    `pci` is where GPUs and HCAs are in the PCI tree. `unread` names captured files that nothing could be made of, and
    why: (file, reason).
    """

    host: str
    system: Found[System]
    network: Found[NetworkFacts]
    docker: Found[DockerFacts]
    gpu: Found[Gpus]
    topology: Found[Topology]
    rdma: Found[Rdma]
    image: Found[Software]
    made: Found[SetupState] = NOT_ASKED
    health: Found[HealthFacts] = NOT_ASKED
    pci: Found[Tuple[PciDevice, ...]] = NOT_ASKED
    simulated: Found[Tuple[str, ...]] = Absent()
    unread: Tuple[Tuple[str, str], ...] = ()

    @property
    def gpus(self) -> Found[Tuple[Gpu, ...]]:
        """The GPUs that the driver reports, else why it reports none."""
        return self.gpu.gpus if isinstance(self.gpu, Gpus) else self.gpu

    @property
    def hcas(self) -> Found[Tuple[Hca, ...]]:
        """The HCAs, else why none are known."""
        return self.rdma.hcas if isinstance(self.rdma, Rdma) else self.rdma

    @property
    def containers(self) -> Tuple[ContainerState, ...]:
        """The containers that the engine reports, none where it reports nothing."""
        docker = known_value(self.docker)
        return () if docker is None else known_value(docker.containers) or ()
