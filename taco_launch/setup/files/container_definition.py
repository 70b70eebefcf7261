"""What the training container of a host is made of: an inventory and facts in, the arguments of `docker create` out."""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import field

from taco_launch.core.facts.gpus import blocking_faults
from taco_launch.core.frozen import dataclass
from taco_launch.core.model import codec
from taco_launch.core.model.host import paths
from taco_launch.core.model.host.fact_value import Unknown, known_value, was_requested
from taco_launch.core.model.host.facts import ContainerState, DockerFacts, HostFacts, SetupState, System
from taco_launch.core.model.host.hosts import Container, Inventory, Toolkit
from taco_launch.core.model.host.image_reference import parse_reference
from taco_launch.setup import scripts
from taco_launch.setup.files import gpu_devices as of_gpus
from taco_launch.setup.model.host_images import image_on_host
from taco_launch.setup.model.ops import FileTarget

# What RDMA needs of a container beside its devices and memlock: to register memory.
_CAPABILITY = "IPC_LOCK"
# Of ranks of one host that copy from each other's memory (Open MPI's CMA). From Linux 4.8 on docker's seccomp profile lets
# them without it (moby's profiles/seccomp/default.json: minKernel of ptrace and process_vm_readv), and Open MPI lets its
# ranks trace each other. With the host's processes in sight it is the host's root, unless a profile confines it.
_TRACE = "SYS_PTRACE"
# Of /dev/infiniband: what libibverbs and librdmacm open; not umad and issm, which manage the fabric.
_RDMA_DEVICE = re.compile(r"/dev/infiniband/(?:uverbs[0-9]+|rdma_cm)")
_BY_CDI = "with CDI it keeps them, which needs docker 28.2, or docker 25 or newer with docker.settings: {features: {cdi: true}}"
_ANY_DEVICE = re.compile("/dev/.+")
_GPU_DEVICE = re.compile(r"/dev/nvidia(?:[0-9]+|ctl)")
# Where a container of ours keeps its options, so that a plan can say which of them have changed. Beside it are the GPUs
# that its host had then (core/facts/gpus/blocking_faults.py): `--device=nvidia.com/gpu=all` would take as many as are left.
_OPTIONS_LABEL = "taco-launch.options"
_ENV = "--env="
# For the environment of the image, of which Linux lets a program have a few MiB at most (execve(2)).
_RUN_BYTES = 16 << 20
# Of the other containers of a host.
_MOST_NAMED = 4
# What `--privileged` gives, and some containers and virtual machines cannot (capabilities(7)).
_OF_PRIVILEGED = ("SYS_ADMIN", "SYS_MODULE", "SYS_RAWIO", "SYS_RESOURCE")


# What docker gives by default (moby's profiles), and no rank needs: with the host's network NET_RAW reads what the host
# sends and receives, MKNOD makes devices. sshd needs the others (sshd(8): it changes users and roots, writes to audit).
_DROPPED = ("MKNOD", "NET_RAW")


@dataclass(frozen=True)
class Definition:
    """A container to be: the engine's image `name` with the id `image`, and the options of `docker create`.

    `devices` are those whose drivers its start waits for. `remarks` say what a person should know of the options: what
    they open, and what the host cannot give. `env` are the user's variables, (name, value): they stand in no argument,
    which every user of the host may read, but in a file that is there for as long as the container is made. `gpus` are
    the PCI addresses of the GPUs that it gets; none where the user says which it sees.
    """

    cluster: str
    name: str
    image: str
    options: tuple[str, ...]
    devices: tuple[str, ...]
    remarks: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    gpus: tuple[str, ...] = ()

    @property
    def label_options(self) -> tuple[str, ...]:
        """The options as a label tells them: of a variable its name, and by what another value is known."""
        return (*self.options, *(f"{_ENV}{name}#{_known_by(name, value)}" for name, value in self.env))

    @property
    def digest(self) -> str:
        """What tells one definition from another: 16 hexadecimal digits."""
        parts = (self.name, self.image, self.label_options, scripts.text("main.sh"))
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    @property
    def labels(self) -> tuple[tuple[str, str], ...]:
        """What a container of ours is known by."""
        return (
            (paths.CLUSTER_LABEL, self.cluster),
            (paths.DEFINITION_LABEL, self.digest),
            (paths.IMAGE_LABEL, self.name),
            (_OPTIONS_LABEL, json.dumps(self.label_options)),
            *(((blocking_faults.GPUS_LABEL, ",".join(self.gpus)),) if self.gpus else ()),
        )

    @property
    def argv(self) -> tuple[str, ...]:
        """The arguments of `docker create`; the container's name stands before them."""
        return (
            *(f"--label={key}={value}" for key, value in self.labels),
            *self.options,
            *((f"--env-file={paths.secrets_file(self.cluster)}",) if self.env else ()),
            self.name,
            paths.main_script(self.cluster),
        )

    @property
    def files(self) -> tuple[FileTarget, ...]:
        """What the arguments name; create.sh takes it away."""
        lines = "".join(f"{name}={value}\n" for name, value in self.env)
        path = paths.secrets_file(self.cluster)
        return (FileTarget(path, lines.encode("utf-8", "surrogateescape"), 0o600, secret=True),) if self.env else ()


def define(inventory: Inventory, container: Container, facts: HostFacts) -> Definition | None:
    """Define the training container of a host, None where its image does not exist.

    What else its facts do not tell is taken to be as it usually is.
    """
    reference = parse_reference(container.image)
    image = image_on_host(reference, facts.docker) if isinstance(facts.docker, DockerFacts) else None
    if image is None:
        return None
    gpu_options, gpus, gpu_remarks = _gpus(inventory, container, facts)
    privileges, rdma, remarks = _privileges(inventory.cluster, container, facts)
    limits, limit_remarks = _limits(container, facts)
    options = (
        "--entrypoint=/bin/sh",
        "--user=0",  # whatever user the image names: sshd and what sessions do to it are root's
        "--network=host",
        *_pid(inventory.cluster, container),
        f"--shm-size={container.shm_size}",
        *limits,
        *gpu_options,
        *privileges,
        *_mounts(inventory.cluster, container),
        *_names(inventory.cluster),
        "--log-driver=local",  # bounded, unlike docker's default
    )
    return Definition(
        inventory.cluster,
        reference.name,
        image.id,
        options,
        (*rdma, *gpus),
        (*remarks, *gpu_remarks, *limit_remarks),
        container.env,
        blocking_faults.addresses(facts) if gpu_options and of_gpus.VISIBLE not in dict(container.env) else (),
    )


def changes(definition: Definition, there: ContainerState) -> str:
    """Return in what a container of ours differs from its definition; empty where it is the very same."""
    labels = dict(there.labels)
    if labels.get(paths.DEFINITION_LABEL) == definition.digest:
        had, has = len(blocking_faults.gpus_of(there)), len(definition.gpus)
        return f"it was made with {had} GPU{'s' if had > 1 else ''}, and this host has {has}" if 0 < had < has else ""
    was = labels.get(paths.IMAGE_LABEL)
    if was != definition.name:
        return f"it was made from {was}"
    before = _before(there)
    if before is None:
        return "its options were not recorded"
    more = [_shown(option) for option in definition.label_options if option not in before]
    less = [_shown(option) for option in before if option not in definition.label_options]
    differing = [f"with {'another value of ' if option in less else ''}{option}" for option in more]
    differing += [f"no longer with {option}" for option in less if option not in more]
    return f"from now on {', '.join(differing)}" if differing else "its image or its main.sh has changed"


def _before(there: ContainerState) -> tuple[str, ...] | None:
    """Return the options that a container of ours was made with; None where its label does not tell."""
    try:
        told = codec.load(dict(there.labels).get(_OPTIONS_LABEL, ""))
        return tuple(option for option in told if isinstance(option, str))
    except (ValueError, TypeError):
        return None


def _shown(option: str) -> str:
    """Return an option for people; what a variable holds is nobody's business (before, it stood in the label)."""
    if not option.startswith(_ENV):
        return option
    return _ENV + re.split("[=#]", option.removeprefix(_ENV))[0]


def _known_by(name: str, value: str) -> str:
    return hashlib.sha256(f"{name}={value}".encode("utf-8", "surrogateescape")).hexdigest()[:16]


def cannot(container: Container, facts: HostFacts) -> str:
    """Return why a host cannot have the container that the inventory asks for; empty where it can."""
    known = _capabilities(facts)
    lacking = [name for name in _OF_PRIVILEGED if known is not None and name not in known]
    if container.privileged and lacking:
        return f"a privileged container needs {', '.join(lacking)}, which this host does not have"
    return ""


def unread(facts: HostFacts) -> str:
    """Return which devices of a host could not be read, so that nobody knows what its container gets; empty where none."""
    made, docker = facts.made, facts.docker
    if isinstance(made, SetupState) and isinstance(made.devices, Unknown):
        return f"the devices of this host cannot be read: {made.devices.reason}"
    gpus = facts.gpus
    if isinstance(gpus, Unknown) and was_requested(gpus):
        return f"the GPUs of this host cannot be read: {gpus.reason}"
    # An engine that does not exist yet tells nothing; it is asked once it runs.
    if not isinstance(docker, DockerFacts) or not isinstance(docker.version, str) or not isinstance(gpus, tuple):
        return ""
    if gpus and isinstance(docker.toolkit, Unknown) and not of_gpus.option(docker, Toolkit()):
        return f"whether docker has the NVIDIA container toolkit cannot be read: {docker.toolkit.reason}"
    return ""


def lost(definition: Definition, there: ContainerState, facts: HostFacts) -> tuple[str, ...]:
    """Name the devices that a container of ours was made with, and that its host has no more."""
    before = _before(there) or ()
    here = _devices(facts)
    devices = [option.partition("=")[2] for option in before if option.startswith("--device=/")]
    gone = [device for device in devices if device not in here]
    if of_gpus.gpu_method(before) and not of_gpus.gpu_method(definition.options):
        gone.append("the GPUs")
    return tuple(gone)


def fewer(definition: Definition, there: ContainerState) -> str:
    """Return which GPUs have gone since a container of ours was made; empty where there are as many, or it does not tell."""
    return blocking_faults.fewer(blocking_faults.gpus_of(there), definition.gpus)


def _devices(facts: HostFacts, kind: re.Pattern[str] = _ANY_DEVICE) -> tuple[str, ...]:
    made = known_value(facts.made)
    return () if made is None else tuple(sorted(filter(kind.fullmatch, known_value(made.devices) or ())))


def _capabilities(facts: HostFacts) -> tuple[str, ...] | None:
    made = known_value(facts.made)
    return None if made is None else known_value(made.capabilities)


def _gpus(
    inventory: Inventory, container: Container, facts: HostFacts
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the options by which the container gets GPUs, their devices, and what is to be said."""
    gpus, docker = known_value(facts.gpus), known_value(facts.docker)
    if not gpus:
        return (), (), ()
    option = "" if docker is None else of_gpus.option(docker, inventory.toolkit)
    if docker is None or not option:
        return (), (), (f"without its {len(gpus)} GPUs: docker has no NVIDIA container toolkit",)
    options = [option]
    if option == of_gpus.BY_RUNTIME and of_gpus.VISIBLE not in dict(container.env):
        options.append(f"{_ENV}{of_gpus.VISIBLE}=all")
    undecided = of_gpus.undecided(docker, inventory.toolkit)
    told = f"its {len(gpus)} GPUs {of_gpus.gpu_method((option,))}{undecided}"
    privileged = ("--privileged",) if container.privileged else ()
    if of_gpus.loses((option, *privileged), docker):
        told += f", which any `systemctl daemon-reload` removes; {_BY_CDI}"
    return tuple(options), _devices(facts, _GPU_DEVICE) or ("/dev/nvidiactl",), (told,)


def _privileges(
    cluster: str, container: Container, facts: HostFacts
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the options, the devices of RDMA, and what is to be said."""
    rdma = _devices(facts, _RDMA_DEVICE)
    if container.privileged:
        return ("--privileged",), rdma, ("privileged: it may do whatever the host's root may",)
    known = _capabilities(facts)
    wanted = (_CAPABILITY, _TRACE) if container.sys_ptrace else (_CAPABILITY,)
    given = [name for name in wanted if known is None or name in known]
    options = [*(f"--cap-drop={name}" for name in _DROPPED), *(f"--cap-add={name}" for name in given)]
    options += (f"--device={device}" for device in rdma)
    remarks = [f"without the capability {name}, which this host does not have" for name in wanted if name not in given]
    if isinstance(facts.system, System) and facts.system.selinux == "enforcing":
        # Relabelling what is mounted would change the user's own files.
        options.append("--security-opt=label=disable")
        remarks.append("SELinux does not confine it (label=disable)")
    return tuple(options), rdma, (*remarks, *_unconfined(cluster, container, facts))


def _unconfined(cluster: str, container: Container, facts: HostFacts) -> Iterator[str]:
    """Yield what a rank may do to others, whose processes it sees, as far as nothing keeps it from that (docs/explanation/threat-model-ranks.md).

    Without SYS_PTRACE, /proc/PID/root opens where the user is the same and the capabilities are no fewer (ptrace(2), access
    mode PTRACE_MODE_READ): root of a container may be any user of the host for that. AppArmor's docker-default lets what it
    confines trace and signal each other, whichever container it is in (moby's profiles/apparmor/template.go).
    """
    docker = known_value(facts.docker)
    security = {*docker.security} if docker is not None and isinstance(docker.security, tuple) else {"apparmor"}
    if container.pid != "host" or {"userns", "rootless"} & security:
        return
    if "apparmor" not in security:
        yield "AppArmor is off here: anyone who runs a rank can become root on this host; remove container.pid: host"
        return
    others = sorted(each.name for each in facts.containers if dict(each.labels).get(paths.CLUSTER_LABEL) != cluster)
    if others:
        named = ", ".join(others[:_MOST_NAMED]) + (", ..." if len(others) > _MOST_NAMED else "")
        yield f"anyone who runs a rank can become root in other containers of this host ({named}); remove container.pid: host"


# Whether a limit of locked memory is bad, and what to do.
_MEMLOCK = "; TCP works, but RDMA does not (if this host is itself a container, start it with --ulimit memlock=-1)"


def _limits(container: Container, facts: HostFacts) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the options for limits, and what is to be said: a hard limit is raised with CAP_SYS_RESOURCE only."""
    known = _capabilities(facts)
    may_raise = known is None or "SYS_RESOURCE" in known
    hard = dict(_hard_limits(facts))
    options: list[str] = []
    remarks: list[str] = []
    for name, limit in container.ulimits:
        most = hard.get(name)
        if may_raise or most is None or 0 <= limit <= most:
            options.append(f"--ulimit={name}={limit}:{limit}")
        else:
            wanted = "unlimited" if limit < 0 else limit
            remark = f"{name} stays at {most} instead of {wanted}: this host does not have the capability SYS_RESOURCE"
            remarks.append(remark + (_MEMLOCK if name == "memlock" else ""))
    return tuple(options), tuple(remarks)


def _hard_limits(facts: HostFacts) -> Iterator[tuple[str, int]]:
    """Yield the hard limits of the host, where it has such; what the engine itself runs with may be tighter still."""
    if isinstance(facts.system, System) and isinstance(facts.system.limits, tuple):
        for limit in facts.system.limits:
            if limit.hard is not None:
                yield limit.name, limit.hard
    if isinstance(facts.made, SetupState) and isinstance(facts.made.memlock, int):
        yield "memlock", facts.made.memlock


def _pid(cluster: str, container: Container) -> tuple[str, ...]:
    """Return whose processes the container sees: the host's, or its own; those of a cluster's containers see each other.

    So whichever of them looks after a job finds, ends and counts what belongs to it. They are one trust already: they
    have one state folder, and log in to each other.
    """
    name, key = paths.split(cluster)
    if container.pid == "host":
        return ("--pid=host",)
    return (f"--pid=container:{paths.container(name)}",) if key else ()


def _names(cluster: str) -> Iterator[str]:
    name, key = paths.split(cluster)
    yield f"{_ENV}{paths.CLUSTER_VARIABLE}={name}"
    if key:
        yield f"{_ENV}{paths.VARIANT_VARIABLE}={key}"


def _mounts(cluster: str, container: Container) -> tuple[str, ...]:
    # that of its cluster, within which a variant's own is: each reaches the other ones by their files of SSH
    folder = paths.folder(paths.split(cluster)[0])
    own = (
        (paths.state(cluster), paths.state(cluster), "rw"),
        (paths.AGENT, paths.AGENT, "ro"),
        (folder, folder, "ro"),
        (paths.LEASES, paths.LEASES, "rw"),
        (paths.hosts(cluster), "/etc/hosts", "ro"),
        (paths.ssh_config(cluster), "/etc/ssh/ssh_config", "ro"),
    )
    memory = f"--tmpfs={paths.RUN}:mode=0700,size={_RUN_BYTES}"
    return memory, *(f"--mount={_mount(*mount)}" for mount in (*own, *container.mounts, *container.data))


def _mount(source: str, target: str, mode: str) -> str:
    """Return a mount in docker's words: CSV, in which a field with a comma or a quote stands in quotes."""
    fields = ["type=bind", f"source={source}", f"target={target}", *(("readonly",) if mode == "ro" else ())]
    quoted = ('"' + field.replace('"', '""') + '"' if "," in field or '"' in field else field for field in fields)
    return ",".join(quoted)
