"""The container of a job: the inventory's, or a variant of it with the job's own image, data or /dev/shm; on Slurm one of the nodes' own programs."""

import re
from collections.abc import Callable, Sequence

from taco_launch.core.errors import Fault, SpecError, UsageError
from taco_launch.core.model.engines import ENGINES, SlurmContainer
from taco_launch.core.model.host.hosts import Container, DataSet, Inventory
from taco_launch.core.model.host.job_containers import Variant
from taco_launch.core.model.job_request import OF_CONTAINER, JobRequest
from taco_launch.core.model.launchers import LAUNCHERS
from taco_launch.hosts.inventory.schema import mounts, names
from taco_launch.setup.model import job_containers

_FILE = re.compile(r"/[^\x00-\x1f\x7f:]{1,1023}")
# Where nobody says where an image comes from: setup/job_containers/prepare.py looks.
_AUTO = "auto"
_Mount = tuple[str, str, str]
# What each program calls a file with an image, and the image NAME of a registry.
_ENDINGS = {"apptainer": ".sif", "pyxis": ".sqsh"}
_NOT_ON_SLURM = {"image_from": "the nodes get images from their registry", "shm_size": "it is the /dev/shm of the node"}


def container_of(request: JobRequest, inventory: Inventory) -> Container | None:
    """Return the container that a job runs in, None for none.

    Raises:
        UsageError: the inventory has no container, or the workers are to have another image.
        SpecError: an image, data or a size is wrong; all faults at once.
    """
    base = inventory.container
    asked = [name for name in OF_CONTAINER if getattr(request, name) not in (None, ())]
    if not asked:
        return base
    image = _image_of(request)
    if base is None:
        called = request.called(asked[0])
        raise UsageError(
            f"{called}: requires a container, and the inventory has none: the job would run directly on the hosts",
            hint=ENGINES.get(inventory.engine, ENGINES["agent"]).image_hint,
        )
    return _variant(request, base, inventory, image)


def _image_of(request: JobRequest) -> str:
    """Return the image that a request names, "" for none.

    Raises:
        UsageError: the workers are to have another image.
    """
    if request.image and request.worker_image and request.image != request.worker_image:
        raise UsageError(
            f"{request.called('worker_image')}: {request.worker_image}: all ranks of a job run in one image, which is "
            f"{request.image} ({request.called('image')})",
            hint="leave one of them out; or start two jobs, with an image each: the launcher here runs in the image of its ranks",
        )
    return request.image or request.worker_image or ""


def on_slurm(request: JobRequest, inventory: Inventory) -> SlurmContainer:
    """Return the container that the ranks run in.

    Raises:
        UsageError: the image is missing, or something does not apply to Slurm or to the launcher.
        SpecError: the image or a mount is wrong; all faults at once.
    """
    program, image = inventory.slurm.containers, _image_of(request)
    for name, why in _NOT_ON_SLURM.items():
        if getattr(request, name) is not None:
            raise UsageError(f"{request.called(name)} does not apply to containers on Slurm", hint=why)
    if not image:
        raise UsageError(
            f"{request.called('data')}: requires a container",
            hint=f"add {request.called('image')} NAME; without a container the ranks see the folders of the nodes",
        )
    launcher = LAUNCHERS[request.launcher or "mpirun"]
    if launcher.sets_rendezvous:
        raise UsageError(
            f"{request.called('launcher')} {launcher.name} starts no ranks in containers on Slurm: it would run outside of them",
            hint=f"use {request.called('launcher')} env: it sets the same variables for torch.distributed",
        )
    faults: list[Fault] = []
    # Slurm runs a job as its user, who may mount what that user can read.
    sets, paths = _mounts(request.data, inventory, request.called("data"), faults, mounts.parse_mount)
    try:
        image = _on_slurm_image(program, image)
    except ValueError as error:
        faults.append(Fault(request.called("image"), names.shown(image), *error.args))
    if faults:
        raise SpecError(request.source or names.COMMAND_LINE, tuple(faults))
    return SlurmContainer(program, image, (*sets, *paths))


def _on_slurm_image(program: str, text: str) -> str:
    """Return an image as its program calls it: that of a registry, or an absolute path of a file.

    Raises:
        ValueError: (problem, hint)
    """
    ending = _ENDINGS[program]
    if text.endswith(ending) or text.startswith("/"):
        if not (text.endswith(ending) and mounts.PATH.fullmatch(text)):
            raise ValueError(
                f"must be the absolute path of a file *{ending} on the nodes, or an image of a registry", ""
            )
        return text
    names.image(text)
    if program == "pyxis":  # REGISTRY#NAME
        text = re.sub(r"^((?=[^/]*[.:])[^/]+|localhost)/", r"\1#", text)
    return f"docker://{text}"


def _variant(request: JobRequest, base: Container, inventory: Inventory, image: str) -> Container:
    faults: list[Fault] = []
    if image:
        try:
            names.image(image)
        except ValueError as error:
            faults.append(Fault(request.called("image"), names.shown(image), *error.args))
    if request.image_from is not None and not image:
        raise UsageError(
            f"{request.called('image_from')}: it sets where the image comes from, but no image is named",
            hint=f"add {request.called('image')} NAME, or leave it out",
        )
    source = request.image_from or (_AUTO if image else "")
    if source not in ("", _AUTO, "registry", "controller") and not _FILE.fullmatch(source):
        problem = "must be registry, controller, or the absolute path of a tar file on this machine"
        faults.append(Fault(request.called("image_from"), names.shown(source), problem, ""))
    sets, data = _mounts(
        request.data, inventory, request.called("data"), faults, lambda text: _of_path(text, inventory)
    )
    shm_size = None if request.shm_size is None else _size(request.shm_size, request.called("shm_size"), faults)
    if faults:
        raise SpecError(request.source or names.COMMAND_LINE, tuple(faults))
    if source == _AUTO and job_containers.same_image(image, base.image):
        source = ""  # the inventory's own, from where that says
    wanted = Variant(image, source, mounts=sets, data=data, shm_size=shm_size)
    return job_containers.container_of(base, job_containers.variant_of(wanted, base))


def _mounts(
    texts: Sequence[str], inventory: Inventory, called: str, faults: list[Fault], of_path: Callable[[str], _Mount]
) -> tuple[tuple[_Mount, ...], tuple[_Mount, ...]]:
    """Return the mounts of data sets, and those of paths, which `of_path` reads; what is wrong with them is added to the faults."""
    known = {each.name: each for each in inventory.data}
    of_sets: list[_Mount] = []
    of_paths: list[_Mount] = []
    places: dict[str, str] = {}
    for text in texts:
        name, _colon, rest = text.partition(":")
        try:
            if name.startswith("/"):
                found = of_path(text)
                of_paths.append(found)
            else:
                found = _of_set(name, rest, known)
                of_sets.append(found)
        except ValueError as error:
            problem, hint = error.args
            faults.append(Fault(called, names.shown(text), problem, hint))
            continue
        if found[1] in places:
            faults.append(Fault(called, names.shown(text), f"{found[1]} has {places[found[1]]} already", ""))
        places[found[1]] = found[0]
    return tuple(of_sets), tuple(of_paths)


def _of_path(text: str, inventory: Inventory) -> tuple[str, str, str]:
    """Return the mount of a path of the hosts: `HOST_PATH:PATH` or `HOST_PATH:PATH:ro`; read-only unless the inventory lets jobs write.

    Raises:
        ValueError: the text is not of this form, or the inventory does not let jobs mount the path like this.
    """
    path, inside, mode = mount = mounts.parse_mount(text)
    if inventory.container is not None and mount in inventory.container.mounts:
        return mount
    if mounts.belongs_to_the_host(path):
        problem = "belongs to the host: anyone who runs a rank could become root on the host"
        who = "keep data elsewhere, or let the owner of the inventory mount it: container: {mounts: [...]}"
        raise ValueError(problem, who)
    roots, file = inventory.data_roots, names.plain(inventory.source or "the inventory", names.PATH_MAX)
    has = f"{file} has {mounts.roots_line(roots) if roots else 'no data_roots'}"
    above = [root for root in roots if mounts.is_below(path, root[0])]
    if not above:
        line = mounts.roots_line((*roots, (path, "rw" if text.endswith(":rw") else "ro")))
        raise ValueError(f"{path} is outside the folders that jobs may mount: {has}", f"write there: {line}")
    if any(root_mode == "rw" for _root, root_mode in above):
        return path, inside, mode
    if text.endswith(":rw"):
        line = mounts.roots_line([(root[0], "rw") if root in above else root for root in roots])
        raise ValueError(f"jobs can only read {above[0][0]}: {has}", f"leave :rw out, or write there: {line}")
    return path, inside, "ro"


def _of_set(name: str, rest: str, known: dict[str, DataSet]) -> tuple[str, str, str]:
    """Return the mount of a data set: `NAME:PATH` or `NAME:PATH:ro`.

    Raises:
        ValueError: there is no such data set, it is read only, or PATH is wrong.
    """
    if name not in known:
        listed = names.did_you_mean(name, known) or (
            f"data sets of the inventory: {', '.join(known)}" if known else "the inventory names no data sets (data:)"
        )
        raise ValueError("is neither an absolute path of the hosts nor a data set of the inventory", listed)
    inside, _colon, mode = rest.partition(":")
    if not inside:
        raise ValueError("must be NAME:PATH, with the path where the ranks see it", f"such as {name}:/data")
    one = known[name]
    if one.mode == "ro" and mode == "rw":
        raise ValueError("in the inventory this data set is read only (mode: ro)", "leave :rw out")
    return mounts.mount(one.path, inside, mode or one.mode)


def _size(text: str, called: str, faults: list[Fault]) -> int | None:
    try:
        return mounts.parse_size(text)
    except ValueError as error:
        faults.append(Fault(called, names.shown(text), *error.args))
        return None
