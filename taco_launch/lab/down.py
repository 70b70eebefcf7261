"""lab down: removes all that a lab is made of, and nothing else."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from taco_launch.core.command import shell
from taco_launch.core.errors import TacoLaunchError, UsageError
from taco_launch.core.frozen import dataclass
from taco_launch.lab import access, registry
from taco_launch.lab.docker import daemon, engine, hosts
from taco_launch.lab.docker.engine import docker
from taco_launch.lab.docker.labels import KEY, check_lab_name, option_of
from taco_launch.lab.docker.reporter import Reporter
from taco_launch.lab.images import image
from taco_launch.lab.lock import one_at_a_time

# What a lab is made of, in the order in which it is removed.
_PARTS = ("containers", "volumes", "networks", "keys")


@dataclass(frozen=True)
class RemovalResult:
    """How many containers of which lab were removed, and what was kept of images: (name, size)."""

    labs: tuple[tuple[str, int], ...]
    kept: tuple[tuple[str, str], ...] = ()


def down(lab: str | None, environ: Mapping[str, str], talk: Reporter, *, images: bool = False) -> RemovalResult:
    """Remove a lab, or every lab where `lab` is None, whatever is there of it; with `images` those too.

    An engine that the lab started is stopped when no container is left in it.

    Raises:
        UsageError: no lab may have this name.
        TacoLaunchError: the engine refused to remove something, or does not answer: what is left.
    """
    if lab is not None:
        check_lab_name(lab)
    folder = access.root_folder(environ, os.geteuid())
    left = list(_PARTS)
    with _left_told(lab, left):
        try:
            engine.connect(environ)
        except engine.UnreachableError as error:
            files = folder if lab is None else folder / lab
            if error.refused:
                raise
            if not files.exists():
                talk.say(f"{error.message}, and this machine has no keys of a lab")
                return RemovalResult(())
            raise engine.UnreachableError(
                f"{error.message}; what is left of {'the labs' if lab is None else f'the lab {lab!r}'} is not known, and "
                f"its keys stay in {files}",
                hint=f"start the engine, then type: {_typed(lab)}; if that engine is gone: {shell(('rm', '-r', str(files)))}",
            ) from None
        with one_at_a_time(talk):
            names = _names() if lab is None else (lab,)
            removed = tuple((name, _remove(name, left)) for name in names)
            _forget(lab, environ)
            left.clear()
            if images:
                image.remove()
                if not registry.remove_volume():
                    talk.say("the images in the registry stay: another lab uses the registry")
            kept = (*image.kept(), *registry.registry_volume())
            daemon.stop_if_unused(environ, folder, talk)
    with suppress(OSError):
        folder.rmdir()  # unless another lab has its keys there
    return RemovalResult(tuple((name, count) for name, count in removed if count), kept)


@contextmanager
def _left_told(lab: str | None, left: Sequence[str]) -> Iterator[None]:
    """Add to an error of the engine what is left of a lab, and that the command may be run again.

    Raises:
        TacoLaunchError: the engine fails; its message is extended.
    """
    try:
        yield
    except (UsageError, engine.UnreachableError):
        raise
    except TacoLaunchError as error:
        if not left:
            raise
        hint = f"run the command again to remove what is left: {_typed(lab)}"
        of = "the labs" if lab is None else f"the lab {lab!r}"
        what = f"{error.message}; these parts of {of} were not removed: {', '.join(left)}"
        raise TacoLaunchError(what, hint=f"{error.hint}; then {hint}" if error.hint else hint) from error


def _typed(lab: str | None) -> str:
    return f"taco-launch lab down{' --all' if lab is None else option_of(lab)}"


def _names() -> tuple[str, ...]:
    """Return the names of all labs, also of those that were cut short before they had a host."""
    shown = f'{{{{.Label "{KEY}"}}}}'
    found: set[str] = set()
    for kind in (("ps", "--all"), ("volume", "ls"), ("network", "ls")):
        found.update(docker(*kind, "--filter", f"label={KEY}", "--format", shown).split())
    return tuple(sorted(found))


def _remove(lab: str, left: list[str]) -> int:
    """Remove the hosts of a lab, and volumes and networks that carry its label; give how many they were.

    `left` has what is not removed yet.
    """
    wanted = ("--filter", f"label={KEY}={lab}", "--quiet")
    left[:] = _PARTS
    containers = [found.container for found in hosts.find(lab)]
    if containers:
        docker("rm", "--force", "--volumes", *containers)
    left.remove("containers")
    count = len(containers)
    for kind in ("volume", "network"):
        names = docker(kind, "ls", *wanted).split()
        if names:
            docker(kind, "rm", *names)
        left.remove(f"{kind}s")
        count += len(names)
    return count


def _forget(lab: str | None, environ: Mapping[str, str]) -> None:
    """Remove keys, host keys and password."""
    folder = access.root_folder(environ, os.geteuid())
    if lab is not None:
        access.access(environ, os.geteuid(), lab).remove()
        return
    with suppress(FileNotFoundError):
        for entry in folder.iterdir():
            if entry.is_dir():
                access.LabFiles(entry).remove()
