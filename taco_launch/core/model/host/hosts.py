"""Hosts and the inventory that names them, as resolved values (`inventory/` reads what the user wrote)."""

from dataclasses import field
from typing import Iterable, Optional, Tuple

from taco_launch.core.frozen import dataclass

# After Host.gpus in `slot_words`; agents of before ignore it.
GATE = "+gate"
# After that; older agents ignore it, too.
WHILE_DRAINED = "+drained"
# A label of nodes of Slurm; a login node has none.
PARTITION = "slurm_partition"


@dataclass(frozen=True)
class GpuConstraints:
    """The GPUs of a host that a job may use, and how they are chosen."""

    # indices of nvidia-smi that it may have; () for all
    only: Tuple[int, ...] = ()
    # indices of nvidia-smi that it may not have
    without: Tuple[int, ...] = ()
    # parts of the names of the GPUs that are wanted; () for all
    models: Tuple[str, ...] = ()
    # False: the lowest indices are taken, whatever the links between the GPUs
    topology: bool = True
    # True: slots that are no GPUs are not taken
    gpus: bool = False

    def admits(self, index: int) -> bool:
        """Return whether a job may have the GPU of that index, as far as its model is all one."""
        return index not in self.without and (not self.only or index in self.only)


@dataclass(frozen=True)
class Host:
    """One machine."""

    # the name that the inventory gives it
    name: str
    # name or IP address that ssh connects to
    address: str
    # of its sshd
    port: int = 22
    # login on it; "" leaves it to the ssh configuration
    user: str = ""
    # private key for it; None leaves it to the ssh configuration
    identity_file: Optional[str] = None
    # how many ranks it takes; None where its facts decide (GPUs, else the larger of 2 and its cores)
    slots: Optional[int] = None
    # the most slots that a command line may request of it; None for any number
    max_slots: Optional[int] = None
    # each a (name, value), sorted by name
    labels: Tuple[Tuple[str, str], ...] = ()
    # `local` (this machine, without ssh) or `ssh`
    connection: str = "ssh"
    # `auto` (those that the driver reports) or `none` (it has none to be used, whatever its driver reports)
    gpus: str = "auto"
    # how many slots there are, where a command line says in `slots` how many of them a job may take:
    # 0 where its facts tell, None where `slots` is all there is
    has: Optional[int] = None
    # which of its GPUs a job may have
    constraints: GpuConstraints = field(default_factory=GpuConstraints)
    # True: it gives no slots to jobs while its quick checks find a fault
    gate: bool = False
    # True: a job may have it while it is drained, as one that measures whether it is sound again
    while_drained: bool = False

    @property
    def slot_words(self) -> str:
        """`gpus`, with a suffix where agents check the host as well, and one where they ignore its drain."""
        return self.gpus + GATE * self.gate + WHILE_DRAINED * self.while_drained

    @property
    def is_slurm_node(self) -> bool:
        """Whether it is a node of Slurm, and not a login node."""
        return PARTITION in dict(self.labels)

    @property
    def leaf(self) -> Optional[str]:
        """The switch of the network that it is connected to, by its label `leaf`."""
        return dict(self.labels).get("leaf")

    @property
    def size(self) -> str:
        """How many slots it has, in a word: `8`; `auto` as its facts tell; `auto+8` the same, but 8 at least."""
        if self.has is None:
            return "auto" if self.slots is None else str(self.slots)
        return str(max(self.has, self.slots or 0)) if self.has else f"auto+{self.slots or 0}"


@dataclass(frozen=True)
class Network:
    """Network settings of jobs; where a value is `auto`, facts decide."""

    # a name or `auto`
    interface: str = "auto"
    # `auto`, `on` or `off`
    rdma: str = "auto"
    # of the RDMA ports; None for auto
    gid_index: Optional[int] = None
    # GPUDirect RDMA: `auto`, `on` or `off`
    gdr: str = "auto"
    # first and last port that jobs may listen on; None for any
    port_range: Optional[Tuple[int, int]] = None
    # `check` (set-up names what is blocked) or `manage` (it opens what jobs need)
    firewall: str = "check"


@dataclass(frozen=True)
class Registry:
    """A login at the registry that an image is pulled from; without a file the password comes from the environment."""

    user: str
    password_file: Optional[str] = None


@dataclass(frozen=True)
class Container:
    """The training container of every host."""

    # its reference, such as NAME:TAG
    image: str
    # port of its own sshd
    ssh_port: int = 12222
    # size of /dev/shm in bytes
    shm_size: int = 32 << 30
    # (name, limit in the limit's own unit, -1 for none)
    ulimits: Tuple[Tuple[str, int], ...] = (("memlock", -1), ("stack", 67108864))
    # what the image holds that nothing can detect (`lightcc`)
    provides: Tuple[str, ...] = ()
    # True: it gets all of the host instead of the least that RDMA needs
    privileged: bool = False
    # True: it gets the capability SYS_PTRACE
    sys_ptrace: bool = False
    # `host` where it sees the host's processes, else `own`
    pid: str = "own"
    # (path on the host, path inside, `rw` or `ro`)
    mounts: Tuple[Tuple[str, str, str], ...] = ()
    # its environment variables: (name, value)
    env: Tuple[Tuple[str, str], ...] = ()
    # login for the image; None where pulling takes none
    registry: Optional[Registry] = None
    # where set-up takes the image from: `registry`, `controller` (the engine of the machine that taco-launch runs on),
    # or the path of a tar file there, as `docker save` writes it
    source: str = "registry"
    # first and last port for the sshds of variants (setup/model/job_containers.py); None for those behind `ssh_port`
    variant_ports: Optional[Tuple[int, int]] = None
    # key of a variant; "" of the inventory's own container
    variant: str = ""
    # of a job's own container: the mounts that its user requested by path, as in `mounts`
    data: Tuple[Tuple[str, str, str], ...] = ()


@dataclass(frozen=True)
class SlurmCluster:
    """The programs that the nodes of a Slurm cluster offer to jobs."""

    # by what jobs run in containers: one of engines.CONTAINERS; "" for nothing
    containers: str = ""


@dataclass(frozen=True)
class DataSet:
    """A folder of the hosts that jobs name."""

    # what jobs call it
    name: str
    # where it lies on each host
    path: str
    # description; "" if none is given
    description: str = ""
    # `ro` for read-only, else `rw`
    mode: str = "rw"
    # maintainer; "" if none is given
    owner: str = ""


@dataclass(frozen=True)
class DockerEngine:
    """The Docker Engine of every host, as set-up brings it and sets it; daemon.json keeps what is not named here."""

    # where it comes from when there is none: `distribution` (its package), `docker` (Docker's package repository),
    # `script` (a get-docker script), `packages` (files of the controller) or `none` (set-up does not install it)
    source: str = "distribution"
    # of the script, or of a mirror of Docker's repository; None for Docker's
    url: Optional[str] = None
    # file of the controller: the key that signs at `url`; None for Docker's
    key: Optional[str] = None
    # of the script, 64 hex digits; None for other sources
    sha256: Optional[str] = None
    # folder of the controller with the package files; None for other sources
    packages: Optional[str] = None
    # (`http`, `https` or `no`, value)
    proxy: Tuple[Tuple[str, str], ...] = ()
    # URLs of mirrors of docker.io, in the order of their use
    mirrors: Tuple[str, ...] = ()
    # registries without TLS
    insecure_registries: Tuple[str, ...] = ()
    # folder for images and containers; None for the engine's default
    data_root: Optional[str] = None
    # other keys of daemon.json: (key, JSON text)
    settings: Tuple[Tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Toolkit:
    """The NVIDIA container toolkit of every host with GPUs, as set-up brings it."""

    # where it comes from when there is none: `nvidia` (NVIDIA's package repository), `packages` (files of the controller)
    # or `none` (set-up does not install it)
    source: str = "nvidia"
    # of a mirror of NVIDIA's repository; None for NVIDIA's
    url: Optional[str] = None
    # file of the controller: the key that signs at `url`; None for NVIDIA's
    key: Optional[str] = None
    # folder of the controller with the package files; None for other sources
    packages: Optional[str] = None
    # `auto` (containers get their GPUs by CDI where engine and toolkit can) or `off`
    cdi: str = "auto"


@dataclass(frozen=True)
class Peermem:
    """How HCAs reach the GPUs' memory on every host that has both (GPUDirect RDMA).

    `use` is `auto` (facts decide), `off` (set-up does nothing), `dmabuf`, or the module `nvidia_peermem` or
    `nv_peer_mem`. `package` is the one that brings nv_peer_mem, None for the usual name; `packages` is a folder on the
    controller with it and all that it takes, None where the hosts' own sources have it.
    """

    use: str = "auto"
    package: Optional[str] = None
    packages: Optional[str] = None


@dataclass(frozen=True)
class Notice:
    """Who gets messages: an address (core/messages/address.py), and on which occasions (core/messages/occasions.py)."""

    to: str
    when: Tuple[str, ...] = ("job-failure", "hang", "lost-host", "night-red")

    def wants(self, occasions: Iterable[str]) -> bool:
        """Return whether it gets a message on one of these."""
        return any(each in self.when for each in occasions)


@dataclass(frozen=True)
class HealthPolicy:
    """What is done about faults of hosts: by `check --drain`, and by the hosts before each job."""

    # the checks whose faults drain a host; `faults` for all of them
    drain: Tuple[str, ...] = ("faults",)
    # so many times in a row a check finds a fault before the host is drained
    after: int = 2
    # the most hosts that it may keep drained, in percent of all
    share: int = 20
    # URL for messages about what it did; None for none
    notify: Optional[str] = None
    # whether hosts themselves give no slots while their quick checks find a fault
    gate: bool = True


@dataclass(frozen=True)
class Inventory:
    """A cluster, all defaults resolved into each host."""

    # its name
    cluster: str
    # the name of one of `hosts`: it keeps the queue and the records of jobs
    head: str
    # in the order the user wrote them
    hosts: Tuple[Host, ...]
    # None where jobs run on the head only, without one
    container: Optional[Container] = None
    # what jobs are told about the network
    network: Network = field(default_factory=Network)
    # `strict` (unknown host keys are refused) or `accept-new` (they are taken and kept; changed ones are refused still)
    host_keys: str = "strict"
    # a path, or a bare name that is looked up on PATH
    mpirun: str = "mpirun"
    # `auto`, a name, or the path of a profile of the mpirun line
    profile: str = "auto"
    # declared of openmpi, nccl and horovod: (name, version)
    versions: Tuple[Tuple[str, str], ...] = ()
    # (name, the names of its hosts)
    groups: Tuple[Tuple[str, Tuple[str, ...]], ...] = ()
    # where the inventory came from, for messages
    source: str = ""
    # file of host keys that come with the inventory; None for none
    known_hosts: Optional[str] = None
    # seconds to wait for a host's sshd; None where the ssh configuration or the default says it
    connect_timeout: Optional[int] = None
    # how set-up brings docker
    docker: DockerEngine = field(default_factory=DockerEngine)
    # seconds that a host of a job may be silent; None for the default
    host_loss_timeout: Optional[int] = None
    # how set-up brings the container toolkit
    toolkit: Toolkit = field(default_factory=Toolkit)
    # how HCAs reach the GPUs' memory
    peermem: Peermem = field(default_factory=Peermem)
    # what keeps and runs the jobs: a key of ENGINES
    engine: str = "agent"
    # what its jobs on Slurm use
    slurm: SlurmCluster = field(default_factory=SlurmCluster)
    # the data sets that jobs may name
    data: Tuple[DataSet, ...] = ()
    # folders of the hosts that jobs may mount by path, with all below them: (path, `ro` or `rw`)
    data_roots: Tuple[Tuple[str, str], ...] = ()
    # what is done about faults of hosts; None for nothing
    health: Optional[HealthPolicy] = None
    # who gets messages about jobs and nightly runs
    notify: Tuple[Notice, ...] = ()

    @property
    def job_hosts(self) -> Tuple[Host, ...]:
        """The hosts that can run jobs: all of them, or the nodes of Slurm."""
        return tuple(host for host in self.hosts if host.is_slurm_node) or self.hosts
