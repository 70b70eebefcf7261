"""What each option of a program that starts a container is here: tables as in launcher_options.

Sources: `docker run --help` of 27, `podman run --help` of 5 and `podman-hpc run --help` of 1.1; `apptainer exec --help` of
1.3; `shifter --help` of 22.
"""

import posixpath

from taco_launch.hosts.inventory.schema import mounts
from taco_launch.jobs.command_lines import launcher_options as table
from taco_launch.jobs.command_lines.launcher_options import ENV, LIST, OMITTED, OPTION, REFUSED, Meaning

_OURS = "taco-launch starts the container of the ranks"
_ROOTS = "/root"
_MODES = ("ro", "rw")


def image(value: str) -> str:
    """Return the name of an image as --image has it.

    Raises:
        ValueError: it is a file, or no image of a registry.
    """
    name = value.removeprefix("docker-daemon:").removeprefix("docker:").lstrip("/")
    if "://" in name or name.endswith((".sif", ".img", ".simg", ".sqsh")) or value.startswith((".", "/", "~", "id:")):
        raise ValueError("is a file, or an image of another kind: --image requires an image of a registry")
    return name


def _mount(value: str) -> str:
    """Return a mount as --data has it.

    Raises:
        ValueError: a job cannot have it.
    """
    source, _colon, rest = value.partition(":")
    inside, _colon, modes = rest.partition(":")
    mode = next((each for each in modes.split(",") if each in _MODES), "")
    text = ":".join(filter(None, (source, inside or source, mode)))
    try:
        path = mounts.parse_mount(text)[0]
    except ValueError as error:
        raise ValueError(error.args[0]) from None
    if mounts.is_below(path, _ROOTS):
        raise ValueError(
            f"is below {_ROOTS}, which no job mounts: copy it to another folder, and add --data FOLDER:{inside}"
        )
    if mounts.belongs_to_the_host(path):
        raise ValueError("belongs to the host, and the container of a job has what its ranks need of it")
    return text


def _bind(value: str) -> str:
    """Return `type=bind,source=/a,target=/b` as --data has it.

    Raises:
        ValueError: a job cannot have it.
    """
    keys = dict(each.partition("=")[::2] for each in value.split(","))
    places = [
        next((keys[key] for key in names if key in keys), "")
        for names in (("source", "src"), ("target", "destination", "dst"))
    ]
    if keys.get("type", "bind") != "bind":
        raise ValueError("is no folder of the host")
    return _mount(":".join((*places, "ro" if {"readonly", "ro"} & {*keys} else "rw")))


def _folder(value: str) -> str:
    if not posixpath.isabs(value):
        raise ValueError("is no absolute path")
    return value


def _devices(value: str) -> str:
    """Return `"device=0,1"` as --gpu-ids has it.

    Raises:
        ValueError: it is no list of GPUs by their numbers.
    """
    return table.indices(value.strip('"').partition("device=")[2])


def _tables(meaning: Meaning, one: str = "", two: str = "") -> dict[str, Meaning]:
    return {name: meaning._replace(words=count) for count, names in ((1, one), (2, two)) for name in names.split()}


_MOUNTED = "the container of the ranks mounts it: --image NAME, or an inventory with an image"
_DATA = Meaning(OPTION, target="--data", why=_MOUNTED, convert=_mount)
_WORKDIR = Meaning(OPTION, target="--workdir", convert=_folder)
_BY_X = Meaning(REFUSED, why="-x NAME=VALUE for each variable of that file")
_DOCKER = {
    **_tables(_DATA, two="v volume"),
    "mount": _DATA._replace(convert=_bind),
    **_tables(_WORKDIR, two="w workdir"),
    **_tables(Meaning(ENV), two="e env"),
    "env-file": _BY_X,
    "shm-size": Meaning(OPTION, target="--shm-size"),
    "gpus": Meaning(OPTION, target="--gpu-ids", convert=_devices),
    "entrypoint": Meaning(REFUSED, why="is started in place of the image's own: put it before the program"),
    **_tables(
        Meaning(OMITTED, why=_OURS),
        "rm it ti dit itd i t d interactive tty detach privileged init read-only publish-all P no-healthcheck "
        "gpu mpi cuda-mpi nccl cvmfs openmpi-pmi2 openmpi-pmix",
        "network net ipc pid uts ulimit cap-add cap-drop security-opt device name hostname h user u runtime platform pull "
        "m memory memory-swap c cpus cpuset-cpus cpu-shares p publish l label log-driver log-opt group-add add-host dns "
        "tmpfs restart cidfile stop-timeout userns cgroupns device-cgroup-rule oom-score-adj",
    ),
}
_APPTAINER = {
    **_tables(_DATA, two="B bind"),
    **_tables(_WORKDIR, two="pwd cwd"),
    "env": Meaning(LIST),
    "env-file": _BY_X,
    **_tables(
        Meaning(OMITTED, why=_OURS),
        "nv nvccli rocm cleanenv e contain c containall C writable-tmpfs writable no-home ipc i pid p fakeroot f userns u",
        "H home overlay O app security network dns hostname S scratch W workdir no-mount mount",
    ),
}
_SHIFTER = {
    **_tables(Meaning(OPTION, target="--image", convert=image), two="i image"),
    **_tables(_DATA, two="V volume"),
    **_tables(_WORKDIR, two="w workdir"),
    **_tables(Meaning(ENV), two="e env"),
    "env-file": _BY_X,
    **_tables(Meaning(OMITTED, why=_OURS), "clearenv E v verbose", "m module entrypoint"),
}
# The options that Slurm has of Shifter, for all its programs in a script, and of Pyxis.
OF_SLURM = {
    **{name: _SHIFTER[name] for name in ("image", "volume", "module")},
    "container-image": Meaning(OPTION, target="--image", convert=lambda value: image(value.replace("#", "/", 1))),
    "container-mounts": _DATA,
}
OPTIONS = {"docker": _DOCKER, "apptainer": _APPTAINER, "shifter": _SHIFTER}
KINDS = {
    **{f"{name} run": "docker" for name in ("docker", "podman", "nerdctl", "podman-hpc", "nvidia-docker")},
    **{f"{name} {verb}": "apptainer" for name in ("apptainer", "singularity") for verb in ("exec", "run")},
    "shifter": "shifter",
    "sarus run": "docker",
    **dict.fromkeys(("enroot start", "ch-run", "udocker run"), ""),  # whose options are not read
}
