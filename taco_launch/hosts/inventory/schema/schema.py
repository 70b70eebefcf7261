"""The keys of an inventory file, as pydantic models: what a user may write, before ranges and defaults are resolved.

A key without a value (YAML's null) counts as not written.
"""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from taco_launch.core.model.engines import ENGINES
from taco_launch.hosts.inventory.schema.data_folders import DataEntry, DataRootEntry
from taco_launch.hosts.inventory.schema.health import HealthPolicy
from taco_launch.hosts.inventory.schema.notify import DESCRIPTION, NoticesEntry
from taco_launch.hosts.inventory.schema.section import SchemaSection, text_or_mapping
from taco_launch.hosts.inventory.schema.slurm import Slurm
from taco_launch.hosts.inventory.schema.values import (
    AutoOrOff,
    ClusterName,
    ConnectTimeout,
    DataName,
    EngineName,
    EnvName,
    EnvValue,
    Feature,
    FilePath,
    GidIndex,
    GroupName,
    HostLossTimeout,
    HostPath,
    Image,
    ImageFrom,
    Interface,
    Label,
    Limit,
    LimitName,
    MaxSlots,
    Mount,
    NoProxy,
    OnOff,
    OwnFile,
    PackageName,
    Port,
    PortRange,
    Profile,
    Program,
    PublicUrl,
    RegistryLogin,
    RegistryName,
    Setting,
    SettingName,
    Sha256,
    Size,
    Slots,
    Switch,
    Url,
    User,
    Version,
)


class Ssh(SchemaSection):
    """How the hosts are reached."""

    user: User | None = Field(
        default=None, description="User on hosts that set no user of their own. Default: the user that ssh chooses."
    )
    identity_file: FilePath | None = Field(
        default=None, description="Private key for hosts that set no identity_file: a path that starts with / or ~/."
    )
    host_keys: Literal["strict", "accept-new"] = Field(
        default="strict",
        description="strict: only known host keys. accept-new: an unknown host's key is accepted the first time.",
    )
    known_hosts: FilePath | None = Field(
        default=None,
        description="File with the host keys that come with the inventory, in known_hosts format: a path that starts with / or ~/. "
        "They are used in addition to the host keys that ssh and taco-launch know.",
    )
    connect_timeout: ConnectTimeout | None = Field(
        default=None,
        description="Seconds to wait for a host to accept the connection, and then for the first answer of its sshd. "
        "Default: ConnectTimeout of ~/.ssh/config, otherwise 10 and 30.",
    )


class Network(SchemaSection):
    """What jobs are told about the network."""

    interface: Interface = Field(
        default="auto", description="Network interface between the hosts, such as bond0, or auto."
    )
    rdma: Switch = Field(default="auto", description="RDMA: auto (where every host has it), on or off.")
    gid_index: GidIndex = Field(default="auto", description="GID index of the RDMA ports: 0 to 255, or auto.")
    gdr: Switch = Field(default="auto", description="GPUDirect RDMA: auto, on or off.")
    port_range: PortRange | None = Field(
        default=None,
        description="First and last TCP port that jobs may listen on, such as 40000-45000. Default: any.",
    )
    firewall: Literal["check", "manage"] = Field(
        default="check",
        description="check: set-up reports what a firewall blocks between the hosts. manage: it opens what jobs need: the "
        "container's sshd, port_range, and the ports that the kernel chooses (32768-60999), since NCCL and Gloo listen there.",
    )


class Registry(SchemaSection):
    """A login at the registry that the image is pulled from."""

    user: RegistryLogin = Field(description="User at the registry.")
    password_file: OwnFile | None = Field(
        default=None,
        description="File on this machine whose first line is the password: a path from / or ~/. "
        "Default: the environment variable TACO_LAUNCH_REGISTRY_PASSWORD holds the password.",
    )


class ImageSource(SchemaSection):
    """An image, and where set-up takes it from."""

    name: Image = Field(description="NAME:TAG of the image.")
    source: ImageFrom = Field(
        default="registry",
        alias="from",
        description="registry: hosts pull it. controller: it is copied from the Docker Engine of this machine. Or the path of a tar file on this "
        "machine, made with docker save. For the last two, one copy is sent and hosts pass it on to one another.",
    )


ImageEntry = Annotated[
    Annotated[Image, Tag("text")] | Annotated[ImageSource, Tag("mapping")], Discriminator(text_or_mapping)
]


class Container(SchemaSection):
    """The training container of every host."""

    image: ImageEntry = Field(
        description="Image of the container: NAME:TAG, or with its source: {name: NAME:TAG, from: controller}."
    )
    ssh_port: Port = Field(default=12222, description="Port of the container's own sshd (host network).")
    shm_size: Size = Field(default=32 << 30, description="Size of /dev/shm: a number and b, k, m, g or t, such as 32g.")
    ulimits: dict[LimitName, Limit] = Field(
        default={},
        description="Limits by docker's names, where -1 means unlimited. Defaults: memlock -1, stack 67108864.",
    )
    provides: tuple[Feature, ...] = Field(
        default=(), description="Features that the image contains but that cannot be detected, such as lightcc."
    )
    privileged: bool = Field(
        default=False,
        description="true: --privileged, with access to the whole host, instead of only the rights that RDMA requires.",
    )
    sys_ptrace: bool = Field(
        default=False,
        description="true: the container gets the capability SYS_PTRACE. Without it, ranks of one host use shared memory instead of CMA if "
        "the kernel or the engine does not let them read each other's memory, and a debugger of another user cannot attach.",
    )
    pid: Literal["host", "own"] = Field(
        default="own",
        description="own: it sees only its own processes. host: it sees all processes of the host, so that slots of other clusters "
        "and GPUs in use are reported; anyone who runs a rank can then become root outside the container unless a user namespace prevents it.",
    )
    mounts: tuple[Mount, ...] = Field(
        default=(),
        description="Folders of the host to mount in the container: HOST_PATH:PATH, or HOST_PATH:PATH:ro for read-only.",
    )
    env: dict[EnvName, EnvValue] = Field(default={}, description="Environment variables of the container.")
    registry: Registry | None = Field(default=None, description="Login for the image's registry. Default: no login.")
    variant_ports: PortRange | None = Field(
        default=None,
        description="First and last port for the sshd of containers that are created for jobs (--image, --data), such as 12400-12499. "
        "Default: 100 ports, starting at ssh_port + 100.",
    )


class Proxy(SchemaSection):
    """The proxy that the Docker Engine pulls through."""

    http: Url | None = Field(default=None, description="HTTP_PROXY.")
    https: Url | None = Field(default=None, description="HTTPS_PROXY.")
    no_proxy: NoProxy | None = Field(
        default=None,
        description="NO_PROXY: hosts, domains and networks that are reached without the proxy, separated by commas.",
    )


class Docker(SchemaSection):
    """The Docker Engine of every host: where set-up takes it from, and its settings."""

    source: Literal["distribution", "docker", "script", "packages", "none"] = Field(
        default="distribution",
        description="Where set-up gets Docker on hosts without it. distribution: its package. docker: Docker's own package "
        "repository. script: a get-docker script. packages: package files on this machine. none: set-up does not install it.",
    )
    url: PublicUrl | None = Field(
        default=None, description="docker: a mirror of download.docker.com. script: the URL of the script."
    )
    key: OwnFile | None = Field(
        default=None,
        description="With source docker: file on this machine with the mirror's signing key, if the mirror does not use Docker's key. The path starts with / or ~/.",
    )
    sha256: Sha256 | None = Field(default=None, description="With source script: SHA-256 checksum of the script.")
    packages: OwnFile | None = Field(
        default=None, description="Folder of this machine with the package files (.deb or .rpm): a path from / or ~/."
    )
    proxy: Proxy = Field(default_factory=Proxy, description="The proxy that images are pulled through.")
    mirrors: tuple[PublicUrl, ...] = Field(default=(), description="Mirrors of docker.io, in the order of their use.")
    insecure_registries: tuple[RegistryName, ...] = Field(
        default=(), description="Registries without TLS: HOST, HOST:PORT or a network."
    )
    data_root: HostPath | None = Field(
        default=None, description="Folder for images and containers. Default: the engine's default."
    )
    settings: dict[SettingName, Setting] = Field(
        default={}, description="Other keys of daemon.json. Keys that are not listed here stay unchanged."
    )


class Toolkit(SchemaSection):
    """The NVIDIA container toolkit, by which containers get GPUs: where set-up takes it from on hosts with GPUs."""

    source: Literal["nvidia", "packages", "none"] = Field(
        default="nvidia",
        description="Where set-up gets the toolkit on hosts without it. nvidia: NVIDIA's package repository. packages: package files on "
        "this machine. none: set-up does not install it.",
    )
    url: PublicUrl | None = Field(default=None, description="A mirror of https://nvidia.github.io/libnvidia-container.")
    key: OwnFile | None = Field(
        default=None,
        description="With source nvidia: file on this machine with the mirror's signing key, if the mirror does not use NVIDIA's key. The path starts with / or ~/.",
    )
    packages: OwnFile | None = Field(
        default=None, description="Folder of this machine with the package files (.deb or .rpm): a path from / or ~/."
    )
    cdi: AutoOrOff = Field(
        default="auto",
        description="auto: containers get GPUs by CDI if docker and the toolkit support it. off: by the runtime nvidia.",
    )


class Peermem(SchemaSection):
    """How HCAs reach the GPUs' memory (GPUDirect RDMA); nothing is done where network.gdr is off."""

    use: Literal["auto", "off", "dmabuf", "nvidia_peermem", "nv_peer_mem"] = Field(
        default="auto",
        description="auto: chosen from the host's facts. dmabuf: DMA-BUF of the kernel, no module is loaded. nvidia_peermem: the module of "
        "drivers from 470 on. nv_peer_mem: the module for older drivers. off: set-up does nothing.",
    )
    package: PackageName | None = Field(
        default=None,
        description="Name of the package with nv_peer_mem in the package repositories of the hosts. "
        "Default: nvidia-peer-memory-dkms (apt) or nvidia_peer_memory (rpm).",
    )
    packages: OwnFile | None = Field(
        default=None,
        description="Install from this folder on this machine instead: it has the package files (.deb or .rpm), dkms, and the headers of "
        "the hosts' kernel: a path from / or ~/.",
    )


class Versions(SchemaSection):
    """Versions of what jobs use, such as "4.1.4"; what is not declared is asked of the head."""

    openmpi: Version | None = Field(default=None, description="Version of the Open MPI that `mpirun` belongs to.")
    nccl: Version | None = Field(default=None, description="Version of the NCCL that jobs load.")
    horovod: Version | None = Field(default=None, description="Version of Horovod.")


class HostDefaults(SchemaSection):
    """Keys that a host, a group or `defaults` may set; a host goes before its groups, these before `defaults`."""

    port: Port | None = Field(default=None, description="Port of the host's sshd. Default: 22.")
    user: User | None = Field(default=None, description="Login on the host. Default: ssh.user.")
    identity_file: FilePath | None = Field(
        default=None, description="Private key for the host. Default: ssh.identity_file."
    )
    slots: Slots | None = Field(
        default=None,
        description="Number of ranks that a host may run, or auto: its number of GPUs, or max(2, cores) without GPUs. Default: auto.",
    )
    max_slots: MaxSlots | None = Field(
        default=None, description="The most slots that -H may request on a host. Default: any number."
    )
    gpus: Literal["auto", "none"] | None = Field(
        default=None,
        description="auto: the GPUs that the driver reports. none: use no GPU of the host, even if a driver is installed. "
        "Default: auto.",
    )
    topology: OnOff | None = Field(
        default=None,
        description="on: a job gets the free GPUs with the fastest links between them. off: it gets those with the lowest indices. "
        "Default: on.",
    )
    labels: dict[Label, Label] | None = Field(
        default=None, description="Labels for --selector. Labels from defaults, groups and the host are merged."
    )
    connection: Literal["local", "ssh"] | None = Field(
        default=None,
        description="local: the host is this machine, so no connection is opened. ssh: connect by ssh. Default: ssh.",
    )


class HostEntry(HostDefaults):
    """One host, or the hosts of one range."""

    address: str | None = Field(
        default=None,
        description="Name or IP address of the host. For a range of hosts, give a range with the same number of addresses, "
        "such as 10.0.0.[1-2]. Default: the host's key.",
    )


class Group(HostDefaults):
    """A named part of the hosts, with keys for all of them."""

    hosts: tuple[str, ...] = Field(description="Hosts or ranges of hosts of this inventory.")


def _form(value: Any) -> str | None:
    if isinstance(value, tuple):
        return "list"
    return "mapping" if isinstance(value, (dict, Group)) else None


GroupEntry = Annotated[
    Annotated[tuple[str, ...], Tag("list")] | Annotated[Group, Tag("mapping")],
    Discriminator(_form),
]


class InventoryFile(SchemaSection):
    """An inventory of taco-launch: a cluster, its hosts and how they are used."""

    cluster: ClusterName = Field(description="Name of the cluster.")
    head: str | None = Field(
        default=None, description="The host that keeps the queue and the records of jobs. Default: the first host."
    )
    engine: EngineName = Field(
        default="agent",
        description=f"What manages and runs the jobs. {'; '.join(f'{name}: {engine.description}' for name, engine in ENGINES.items())}. "
        "Another installed package may provide more.",
    )
    slurm: Slurm = Field(default_factory=Slurm, description="With engine slurm: what the nodes have.")
    ssh: Ssh = Field(default_factory=Ssh, description="ssh to the hosts: login, key, host keys, timeouts.")
    network: Network = Field(default_factory=Network, description="The network of jobs: interface, RDMA, ports.")
    container: Container | None = Field(
        default=None, description="The training container. Default: jobs run on the head only, without a container."
    )
    docker: Docker = Field(
        default_factory=Docker, description="The Docker Engine of every host, as set-up installs it."
    )
    toolkit: Toolkit = Field(
        default_factory=Toolkit,
        description="The NVIDIA container toolkit of every host with GPUs, as set-up installs it.",
    )
    peermem: Peermem = Field(
        default_factory=Peermem, description="Peer memory for GPUDirect RDMA, as set-up configures it."
    )
    mpirun: Program = Field(
        default="mpirun",
        description="The launcher: an absolute path, or a name that is looked up on PATH. With `--launcher hydra`, the launcher of MPICH or "
        "Intel MPI.",
    )
    profile: Profile = Field(
        default="auto",
        description="Profile with the options of the mpirun line: auto, the name of a profile, or the path of a profile file.",
    )
    versions: Versions = Field(
        default_factory=Versions,
        description='Versions of openmpi, nccl and horovod, in quotes, such as "4.1.4". Default: the versions found on the head.',
    )
    host_loss_timeout: HostLossTimeout | None = Field(
        default=None, description="Seconds without an answer from a host of a job before the job ends. Default: 60."
    )
    health: HealthPolicy | None = Field(
        default=None,
        description="What is done about faults of hosts, by `check --drain` and before each job. Default: nothing.",
    )
    notify: NoticesEntry = Field(default=(), description=f"{DESCRIPTION} Default: nobody.")
    data: dict[DataName, DataEntry] = Field(
        default={}, description="Data sets by name: folders on the hosts that jobs can mount (--data NAME:PATH)."
    )
    data_roots: tuple[DataRootEntry, ...] = Field(
        default=(),
        description="Folders of the hosts that jobs can mount by path, including subfolders (--data PATH:PATH). A plain path is read-only; "
        "{path: /data, mode: rw} is writable. Default: none.",
    )
    defaults: HostDefaults = Field(
        default_factory=HostDefaults, description="Settings for all hosts: any of the keys of a host."
    )
    hosts: dict[str, HostEntry | None] = Field(
        description="Hosts by name; a key may be a range such as gpu[1-8]. Everywhere else, hosts have the order given here."
    )
    groups: dict[GroupName, GroupEntry] = Field(
        default={},
        description="Groups by name: a list of hosts, or a mapping with hosts and the settings for all of them.",
    )
