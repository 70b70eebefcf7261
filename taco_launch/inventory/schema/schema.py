"""The keys of an inventory file, as pydantic models: what a user may write, before ranges and defaults are resolved.

A key without a value (YAML's null) counts as not written.
"""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from taco_launch.inventory.schema.section import SchemaSection
from taco_launch.inventory.schema.values import (
    AutoOrOff,
    ClusterName,
    ConnectTimeout,
    DataName,
    DataPath,
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
from taco_launch.model.engines import ENGINES

if TYPE_CHECKING:
    EngineName = str
else:
    EngineName = Literal[tuple(ENGINES)]


class Ssh(SchemaSection):
    """How the hosts are reached."""

    user: User | None = Field(
        default=None, description="User on hosts that have no user of their own here. Default: ssh's own choice."
    )
    identity_file: FilePath | None = Field(
        default=None, description="Private key for hosts that have no identity_file of their own: a path from / or ~/."
    )
    host_keys: Literal["strict", "accept-new"] = Field(
        default="strict",
        description="strict: only known host keys. accept-new: an unknown host's key is accepted the first time.",
    )
    known_hosts: FilePath | None = Field(
        default=None,
        description="Host keys that come with the inventory, a file in known_hosts form: a path from / or ~/. "
        "They count besides those that ssh and taco-launch know.",
    )
    connect_timeout: ConnectTimeout | None = Field(
        default=None,
        description="Seconds to wait for a host to accept the connection, and then for the first words of its sshd. "
        "Without it ConnectTimeout of ~/.ssh/config, else 10 and 30.",
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
        description="check: set-up names what a firewall blocks between the hosts. manage: it opens what jobs need.",
    )


class Registry(SchemaSection):
    """A login at the registry that the image is pulled from."""

    user: RegistryLogin = Field(description="User at the registry.")
    password_file: OwnFile | None = Field(
        default=None,
        description="File on this machine whose first line is the password: a path from / or ~/. "
        "Without it the environment variable TACO_LAUNCH_REGISTRY_PASSWORD.",
    )


class ImageSource(SchemaSection):
    """An image, and where set-up takes it from."""

    name: Image = Field(description="NAME:TAG of the image.")
    source: ImageFrom = Field(
        default="registry",
        alias="from",
        description="registry: hosts pull it. controller: the Docker Engine of this machine has it. Or a tar file of this "
        "machine, as docker save writes it: a path from / or ~/. Of these one copy goes out, and hosts pass it on.",
    )


def _image_form(value: Any) -> str:
    return "mapping" if isinstance(value, (dict, ImageSource)) else "text"


ImageEntry = Annotated[
    Annotated[Image, Tag("text")] | Annotated[ImageSource, Tag("mapping")], Discriminator(_image_form)
]


class Container(SchemaSection):
    """The training container of every host."""

    image: ImageEntry = Field(
        description="Image the container is made from; with where it comes from: {name: NAME:TAG, from: controller}."
    )
    ssh_port: Port = Field(default=12222, description="Port of the container's own sshd (host network).")
    shm_size: Size = Field(default=32 << 30, description="Size of /dev/shm: a number and b, k, m, g or t, such as 32g.")
    ulimits: dict[LimitName, Limit] = Field(
        default={},
        description="Limits by docker's names, -1 for none; memlock -1 and stack 67108864 where they are not named.",
    )
    provides: tuple[Feature, ...] = Field(
        default=(), description="What the image contains and cannot be detected, such as lightcc."
    )
    privileged: bool = Field(
        default=False,
        description="true: --privileged, access to all of the host, instead of the least that RDMA requires.",
    )
    sys_ptrace: bool = Field(
        default=False,
        description="true: the capability SYS_PTRACE. Without it ranks of one host copy by shared memory (no CMA) where "
        "kernel or engine let them not read each other's, and no debugger of another user attaches.",
    )
    pid: Literal["host", "own"] = Field(
        default="own",
        description="own: it sees its own processes alone. host: all of the host's, by which slots that other clusters have "
        "and GPUs that others use are named; who runs a rank can then become root of what no user namespace confines.",
    )
    mounts: tuple[Mount, ...] = Field(
        default=(),
        description="Folders of the host in the container: HOST_PATH:PATH, or HOST_PATH:PATH:ro to read only.",
    )
    env: dict[EnvName, EnvValue] = Field(default={}, description="Environment variables of the container.")
    registry: Registry | None = Field(default=None, description="Login at the image's registry. Default: none.")
    variant_ports: PortRange | None = Field(
        default=None,
        description="First and last port for the sshds of containers that jobs bring (--image, --data), such as 12400-12499. "
        "Default: 100 ports from ssh_port + 100 on.",
    )


class DataEntry(SchemaSection):
    """A folder of the hosts that jobs name: --data NAME:PATH."""

    path: DataPath = Field(description="Its path on every host, such as /mnt/nas/imagenet: a whole path.")
    description: str | None = Field(default=None, description="What it is, for `taco-launch data list`.")
    mode: Literal["rw", "ro"] = Field(default="rw", description="ro: jobs read it only, whatever they ask for.")
    owner: str | None = Field(default=None, description="Its owner, for `taco-launch data list`.")


class Proxy(SchemaSection):
    """The proxy that the Docker Engine pulls through."""

    http: Url | None = Field(default=None, description="HTTP_PROXY.")
    https: Url | None = Field(default=None, description="HTTPS_PROXY.")
    no_proxy: NoProxy | None = Field(default=None, description="NO_PROXY: hosts, domains and networks, with commas.")


class Docker(SchemaSection):
    """The Docker Engine of every host: where set-up takes it from, and its settings."""

    source: Literal["distribution", "docker", "script", "packages", "none"] = Field(
        default="distribution",
        description="Where it comes from on hosts without one. distribution: its package. docker: Docker's own package "
        "repository. script: a get-docker script. packages: files of this machine. none: it is not installed.",
    )
    url: PublicUrl | None = Field(
        default=None, description="docker: a mirror of download.docker.com. script: where the script is."
    )
    key: OwnFile | None = Field(
        default=None,
        description="docker: file of this machine with the key that signs a mirror, if that is not Docker's: a path from / or ~/.",
    )
    sha256: Sha256 | None = Field(default=None, description="SHA-256 of the script.")
    packages: OwnFile | None = Field(
        default=None, description="Folder of this machine with the package files (.deb or .rpm): a path from / or ~/."
    )
    proxy: Proxy = Field(default_factory=Proxy, description="The proxy that images are pulled through.")
    mirrors: tuple[PublicUrl, ...] = Field(default=(), description="Mirrors of the registry docker.io, first to last.")
    insecure_registries: tuple[RegistryName, ...] = Field(
        default=(), description="Registries without TLS: HOST, HOST:PORT or a network."
    )
    data_root: HostPath | None = Field(
        default=None, description="Folder for images and containers. Default: the engine's own choice."
    )
    settings: dict[SettingName, Setting] = Field(
        default={}, description="Further keys of daemon.json; those that are not named stay as they are."
    )


class Toolkit(SchemaSection):
    """The NVIDIA container toolkit, by which containers get GPUs: where set-up takes it from on hosts with GPUs."""

    source: Literal["nvidia", "packages", "none"] = Field(
        default="nvidia",
        description="Where it comes from on hosts without one. nvidia: NVIDIA's package repository. packages: files of "
        "this machine. none: it is not installed.",
    )
    url: PublicUrl | None = Field(default=None, description="A mirror of https://nvidia.github.io/libnvidia-container.")
    key: OwnFile | None = Field(
        default=None,
        description="nvidia: file of this machine with the key that signs a mirror, if that is not NVIDIA's: a path from / "
        "or ~/.",
    )
    packages: OwnFile | None = Field(
        default=None, description="Folder of this machine with the package files (.deb or .rpm): a path from / or ~/."
    )
    cdi: AutoOrOff = Field(
        default="auto",
        description="auto: containers get GPUs by CDI where docker and toolkit can. off: by the runtime nvidia.",
    )


class Peermem(SchemaSection):
    """How HCAs reach the GPUs' memory (GPUDirect RDMA); nothing is done where network.gdr is off."""

    use: Literal["auto", "off", "dmabuf", "nvidia_peermem", "nv_peer_mem"] = Field(
        default="auto",
        description="auto: facts decide. dmabuf: the kernel's own way, nothing is loaded. nvidia_peermem: the module of "
        "the driver from 470 on. nv_peer_mem: the module before that. off: set-up does nothing.",
    )
    package: PackageName | None = Field(
        default=None,
        description="Package that contains nv_peer_mem, from the hosts' package sources. "
        "Default: nvidia-peer-memory-dkms (apt) or nvidia_peer_memory (rpm).",
    )
    packages: OwnFile | None = Field(
        default=None,
        description="Folder of this machine with the package files (.deb or .rpm) instead, with dkms and the headers of "
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
        description="Number of ranks that a host may run, or auto: its GPUs, else max(2, cores). Default: auto.",
    )
    max_slots: MaxSlots | None = Field(
        default=None, description="The most slots that -H may request on a host. Default: any number."
    )
    gpus: Literal["auto", "none"] | None = Field(
        default=None,
        description="auto: those that the driver reports. none: use no GPU of the host, even if a driver is installed. "
        "Default: auto.",
    )
    topology: OnOff | None = Field(
        default=None,
        description="on: of several sets of GPUs a job gets the one with the fastest links. off: the lowest indices. "
        "Default: on.",
    )
    labels: dict[Label, Label] | None = Field(
        default=None, description="Labels for --selector; those of defaults and groups are merged, label by label."
    )
    connection: Literal["local", "ssh"] | None = Field(
        default=None, description="local: this machine, nothing is opened. ssh: the default."
    )


class HostEntry(HostDefaults):
    """One host, or the hosts of one range."""

    address: str | None = Field(
        default=None,
        description="Name or IP address to reach the host at. For a range of hosts a range of as many addresses, "
        "such as 10.0.0.[1-2]. Default: its key.",
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
    head: str | None = Field(default=None, description="The host that keeps queue and jobs. Default: the first host.")
    engine: EngineName = Field(
        default="agent",
        description=f"What keeps the jobs and runs them. {'; '.join(f'{name}: {what}' for name, what in ENGINES.items())}.",
    )
    ssh: Ssh = Field(default_factory=Ssh, description="ssh to the hosts: login, key, host keys, waits.")
    network: Network = Field(default_factory=Network, description="The network of jobs: interface, RDMA, ports.")
    container: Container | None = Field(
        default=None, description="The training container. Default: jobs run on the head only, without a container."
    )
    docker: Docker = Field(
        default_factory=Docker, description="The Docker Engine of every host, as set-up installs it."
    )
    toolkit: Toolkit = Field(
        default_factory=Toolkit,
        description="The NVIDIA container toolkit of every host with GPUs, as set-up brings it.",
    )
    peermem: Peermem = Field(
        default_factory=Peermem, description="Peer memory for GPUDirect RDMA, as set-up brings it."
    )
    mpirun: Program = Field(
        default="mpirun",
        description="The launcher: a path from /, or a name that is looked up on PATH. With `--launcher hydra` that of MPICH or "
        "Intel MPI.",
    )
    profile: Profile = Field(
        default="auto",
        description="Options of the mpirun line: auto, another profile's name, or the path of a profile file.",
    )
    versions: Versions = Field(
        default_factory=Versions,
        description='Versions of openmpi, nccl and horovod, in quotes, such as "4.1.4". Default: those that the head has.',
    )
    host_loss_timeout: HostLossTimeout | None = Field(
        default=None, description="Seconds that a host of a job may be silent before the job ends. Default: 60."
    )
    data: dict[DataName, DataEntry] = Field(
        default={}, description="Data sets by name: folders of the hosts that jobs name (--data NAME:PATH)."
    )
    defaults: HostDefaults = Field(default_factory=HostDefaults, description="Host keys for all hosts.")
    hosts: dict[str, HostEntry | None] = Field(
        description="Hosts by name; a key may be a range such as gpu[1-8]. The order here is the order everywhere."
    )
    groups: dict[GroupName, GroupEntry] = Field(
        default={}, description="Groups by name: a list of hosts, or a mapping of hosts and keys for all of them."
    )


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of an inventory file, for editors: every key with its description."""
    return InventoryFile.model_json_schema() | {"$schema": "https://json-schema.org/draft/2020-12/schema"}
