"""Hosts and the inventory that names them, as resolved values (`inventory/` reads what the user wrote)."""

from dataclasses import field
from typing import Optional, Tuple

from taco_launch.core.frozen import dataclass


@dataclass(frozen=True)
class GpuConstraints:
    """Which GPUs of a host a job may have, and how they are chosen.

    `only` and `without` are nvidia-smi's indices, `models` parts of the names of the GPUs that are wanted; empty, all are.
    Without `topology` the lowest indices are taken, whatever the links between the GPUs. With `gpus` slots that are no
    GPUs are not taken.
    """

    only: Tuple[int, ...] = ()
    without: Tuple[int, ...] = ()
    models: Tuple[str, ...] = ()
    topology: bool = True
    gpus: bool = False

    def admits(self, index: int) -> bool:
        """Return whether a job may have the GPU of that index, as far as its model is all one."""
        return index not in self.without and (not self.only or index in self.only)


@dataclass(frozen=True)
class Host:
    """One machine.

    `slots` is how many ranks it takes, None where its facts decide (GPUs, else the larger of 2 and its cores);
    `max_slots` is the most that a command line may ask of it, None for any number.
    `connection` is `local` (this machine) or `ssh`; `address`, `port`, `user` and `identity_file` matter to ssh only,
    where an empty `user` or None `identity_file` leaves the choice to the ssh configuration. `gpus` is `auto` (those that
    the driver tells) or `none`: it has none to be used, whatever its driver says.
    `has` is how many slots there are where a command line says how many of them a job may take, which is `slots` then:
    0 where its facts tell, None where `slots` is all there is. `constraints` say which of its GPUs a job may have.
    """

    name: str
    address: str
    port: int = 22
    user: str = ""
    identity_file: Optional[str] = None
    slots: Optional[int] = None
    max_slots: Optional[int] = None
    labels: Tuple[Tuple[str, str], ...] = ()
    connection: str = "ssh"
    gpus: str = "auto"
    has: Optional[int] = None
    constraints: GpuConstraints = field(default_factory=GpuConstraints)

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
    """What jobs are told about the network; `auto` is decided by facts.

    `interface` is a name or `auto`; `rdma` and `gdr` are `auto`, `on` or `off`; `gid_index` is None for auto;
    `port_range` is (first, last), both included, or None for any. `firewall` is `check` (what is blocked is named) or
    `manage` (set-up opens what jobs need).
    """

    interface: str = "auto"
    rdma: str = "auto"
    gid_index: Optional[int] = None
    gdr: str = "auto"
    port_range: Optional[Tuple[int, int]] = None
    firewall: str = "check"


@dataclass(frozen=True)
class Registry:
    """A login at the registry that an image is pulled from; without a file the password comes from the environment."""

    user: str
    password_file: Optional[str] = None


@dataclass(frozen=True)
class Container:
    """The training container of every host.

    `ulimits` holds (name, limit in the limit's own unit, -1 for none); `shm_size` is in bytes; `provides` names what
    the image holds that nothing can detect (`lightcc`). `privileged` gives it all of the host instead of the least that
    RDMA needs. `sys_ptrace` gives it the capability SYS_PTRACE; `pid` is `host` where it sees the host's processes, else
    `own`. `mounts` are (path on the host, path inside, `rw` or `ro`); `env` is (name, value). `registry` is None
    where pulling takes no login. `source` is where set-up takes the image from: `registry`, `controller` (the engine of
    the machine that taco-launch runs on), or the path of a tar file there, as `docker save` writes it. `variant_ports`
    are the first and the last port for the sshds of variants (setup/model/job_containers.py), None for those behind `ssh_port`.
    Of a variant, `variant` is the key, "" of the inventory's own container, and `data` holds the mounts that whoever asked
    for the job named by their paths.
    """

    image: str
    ssh_port: int = 12222
    shm_size: int = 32 << 30
    ulimits: Tuple[Tuple[str, int], ...] = (("memlock", -1), ("stack", 67108864))
    provides: Tuple[str, ...] = ()
    privileged: bool = False
    sys_ptrace: bool = False
    pid: str = "own"
    mounts: Tuple[Tuple[str, str, str], ...] = ()
    env: Tuple[Tuple[str, str], ...] = ()
    registry: Optional[Registry] = None
    source: str = "registry"
    variant_ports: Optional[Tuple[int, int]] = None
    variant: str = ""
    data: Tuple[Tuple[str, str, str], ...] = ()


@dataclass(frozen=True)
class DataSet:
    """A folder of the hosts that jobs name: `path` is where it lies on each; `mode` is `ro` where nobody may write to it."""

    name: str
    path: str
    description: str = ""
    mode: str = "rw"
    owner: str = ""


@dataclass(frozen=True)
class DockerEngine:
    """The Docker Engine of every host, as set-up brings it and sets it.

    `source` says where it comes from when there is none: `distribution` (its package), `docker` (Docker's own package
    repository, at `url` where that is mirrored; `key` is a file of the controller, the key that signs there, None for
    Docker's), `script` (a get-docker script at `url`, whose SHA-256 is `sha256`),
    `packages` (the files of the folder `packages` on the controller) or `none` (it is not installed by us).
    `proxy` holds (`http`, `https` or `no`, value). `mirrors`, `insecure_registries`, `data_root` and `settings` (key,
    JSON text) go into daemon.json; what is not named there stays as it is.
    """

    source: str = "distribution"
    url: Optional[str] = None
    key: Optional[str] = None
    sha256: Optional[str] = None
    packages: Optional[str] = None
    proxy: Tuple[Tuple[str, str], ...] = ()
    mirrors: Tuple[str, ...] = ()
    insecure_registries: Tuple[str, ...] = ()
    data_root: Optional[str] = None
    settings: Tuple[Tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Toolkit:
    """The NVIDIA container toolkit of every host with GPUs, as set-up brings it.

    `source` says where it comes from when there is none: `nvidia` (NVIDIA's package repository, at `url` where that is
    mirrored, signed by `key`, a file of the controller, None for NVIDIA's), `packages` (the files of the folder
    `packages` on the controller) or `none` (it is not installed by us). `cdi` is `auto` (containers get
    their GPUs by CDI where engine and toolkit can) or `off`.
    """

    source: str = "nvidia"
    url: Optional[str] = None
    key: Optional[str] = None
    packages: Optional[str] = None
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
class Inventory:
    """A cluster: hosts in the order the user wrote them, all defaults resolved into each.

    `head` is the name of one of `hosts`. `container` is None where jobs run on the head only, without one. `mpirun` is a
    path or a bare name looked up on PATH. `versions` holds what was declared of openmpi, nccl and horovod: (name,
    version). `source` says where the inventory came from, for messages.
    `host_keys` is `strict` (unknown host keys are refused) or `accept-new` (they are taken and kept; changed ones are
    refused still). `known_hosts` is a file of host keys that come with the inventory, None for none. `connect_timeout`
    is how long (seconds) to wait for a host's sshd, None where the ssh configuration or the default says it. `docker` is
    how set-up brings docker, `engine` what keeps and runs the jobs, a key of ENGINES. `data` holds the data sets that jobs may name. `host_loss_timeout` is for how long (seconds) a host of a job may be silent, None for the
    default.
    """

    cluster: str
    head: str
    hosts: Tuple[Host, ...]
    container: Optional[Container] = None
    network: Network = field(default_factory=Network)
    host_keys: str = "strict"
    mpirun: str = "mpirun"
    profile: str = "auto"
    versions: Tuple[Tuple[str, str], ...] = ()
    groups: Tuple[Tuple[str, Tuple[str, ...]], ...] = ()
    source: str = ""
    known_hosts: Optional[str] = None
    connect_timeout: Optional[int] = None
    docker: DockerEngine = field(default_factory=DockerEngine)
    host_loss_timeout: Optional[int] = None
    toolkit: Toolkit = field(default_factory=Toolkit)
    peermem: Peermem = field(default_factory=Peermem)
    engine: str = "agent"
    data: Tuple[DataSet, ...] = ()
