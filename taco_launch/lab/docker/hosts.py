"""The containers that are lab hosts: what each is made of, how it is found, started and waited for.

What is kept from a host (capabilities, settings of the machine that are read-only) protects the machine against
accidents. It does not hold a root who sets out to leave: an inner Docker Engine needs SYS_ADMIN, and with it a host can
mount /proc anew and write to the machine's settings. Run nothing in a lab that you would not run on this machine.
"""

import io
import json
import socket
import stat
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path
from threading import Event

from taco_launch.core.errors import HostError, TacoLaunchError, UsageError
from taco_launch.core.frozen import dataclass
from taco_launch.lab import hardware
from taco_launch.lab.docker.engine import RunningEngine, ask, docker, execute
from taco_launch.lab.docker.labels import KEY, NO_GPUS, REGISTRY, LabHost, from_labels, option_of, order, to_labels

# A disk that can be full without filling the machine's: a tmpfs of this size, which outlives a reboot of its host
# because the registry holds it as well. It takes memory only for what is written.
STATE_PATH = "/var/lib/taco-launch"
STATE_BYTES = 512 << 20
# What acts on the whole machine, not on one host: its clock, kernel, power, devices, its kernel's messages, and files of its
# file systems by their handles (open_by_handle_at(2)).
FORBIDDEN = ("SYS_TIME", "SYS_MODULE", "SYS_BOOT", "SYS_RAWIO", "SYSLOG", "DAC_READ_SEARCH")
# The images of every registry of this machine: one volume, which outlives labs.
REGISTRY_VOLUME, REGISTRY_PATH = "taco-launch-lab-registry", "/var/lib/docker-registry"
BOOT_SECONDS = 90
_SHELVES = "/srv/disks"
_INOTIFY_SPARE = 4  # systemd asks for several at once
# The fault that brings a host back, by the state that it is in.
WAKE = {"off": "power-on", "paused": "resume"}


@dataclass(frozen=True)
class FoundHost:
    """A lab host that is there: its container's id, and its state in docker's word (`running`, `exited`, ...)."""

    host: LabHost
    container: str
    state: str


def no_lab(lab: str) -> UsageError:
    """Return the error of a lab that does not exist; it names those that do."""
    others = sorted({each.host.lab for each in find()})
    if not others:
        return UsageError(f"there is no lab {lab!r}", hint=f"make it: taco-launch lab up{option_of(lab)} --hosts 2")
    hint = f"use -i lab:{others[0]}; `taco-launch lab` commands also take --name {others[0]}"
    return UsageError(f"there is no lab {lab!r}; existing labs: {', '.join(others)}", hint)


def find(lab: str | None = None) -> tuple[FoundHost, ...]:
    """Find the hosts of a lab, or of all labs, by the labels of their containers.

    An image that somebody commits from a host hands its labels on, so a container must have the host's name as well.

    Raises:
        TacoLaunchError: the engine does not answer.
    """
    wanted = KEY if lab is None else f"{KEY}={lab}"
    ids = docker("ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={wanted}").split()
    answer = ask("container", "inspect", *ids) if ids else None  # one that has just gone is an error beside the others
    found = []
    for container in json.loads(answer.stdout or b"[]") if answer else ():
        host = from_labels(container["Config"]["Labels"])
        if host is not None and container["Name"] == f"/{host.container}":
            found.append(FoundHost(host, container["Id"], container["State"]["Status"]))
    return tuple(sorted(found, key=lambda each: order(each.host)))


def state_word(state: str) -> str:
    """Return a container's state in the lab's words: on, off, paused, or docker's where it is neither."""
    return {"running": "on", "exited": "off", "created": "off", "dead": "off"}.get(state, state)


def require_on(found: FoundHost, what: str) -> None:
    """Refuse to do something in a host that is off or paused.

    Raises:
        UsageError: it is; what to type before.
    """
    host, state = found.host, state_word(found.state)
    if state != "on":
        wake = f"taco-launch lab fault{option_of(host.lab)} {host.name} {WAKE[state]}" if state in WAKE else None
        raise UsageError(f"{host.name} is {state}: {what}", hint=wake)


def volumes(host: LabHost) -> tuple[str, str]:
    """Name the volumes of a host: what an inner engine keeps, and its state folder."""
    return f"{host.container}-docker", f"{host.container}-state"


def make_volumes(host: LabHost) -> None:
    """Make the volumes of a host; those that are there stay as they are."""
    label = ("--label", f"{KEY}={host.lab}")
    inner, state = volumes(host)
    docker("volume", "create", *label, inner)
    options = ("type=tmpfs", "device=tmpfs", f"o=size={STATE_BYTES},mode=0755")
    docker("volume", "create", *label, *(word for option in options for word in ("--opt", option)), state)


def network(lab: str) -> str:
    """Name the network of a lab."""
    return f"taco-lab-{lab}"


def create_argv(
    host: LabHost, lab: Sequence[LabHost], engine: RunningEngine, lacking: Iterable[str], image: str
) -> list[str]:
    """Return the arguments of `docker` that make a host; `lab` is all hosts of its lab, `lacking` the machine's own lack.

    The host is given every capability but those that would reach beyond it, instead of --privileged, which would let it
    have them all, and the machine's devices.
    """
    argv = ["create", "--name", host.container, "--hostname", host.name]
    argv += ["--network", network(host.lab), "--ip", host.address]
    for other in lab:
        if other != host:
            argv += ["--add-host", f"{other.name}:{other.address}"]
    for key, value in to_labels(host):
        argv += ["--label", f"{key}={value}"]
    argv += ["--restart", "unless-stopped"]  # `reboot` ends the container: so it is a reboot
    argv += ["--env", "container=docker"]  # systemd leaves alone what is not a container's
    argv += ["--stop-signal", "SIGRTMIN+3"]  # systemd(1): halt
    argv += ["--cap-add", "ALL"]
    for capability in sorted({*FORBIDDEN, *lacking}):
        argv += ["--cap-drop", capability]
    for option in ("seccomp=unconfined", "apparmor=unconfined", "label=disable"):  # inner engines mount, unshare, ...
        argv += ["--security-opt", option]
    if engine.userns:
        argv += ["--userns", "host"]
    argv += ["--cgroupns", "private", "--shm-size", "1g"]
    argv += ["--tmpfs", "/run", "--tmpfs", "/run/lock"]
    if host.name == REGISTRY:
        argv += ["--volume", f"{REGISTRY_VOLUME}:{REGISTRY_PATH}"]
        for other in lab:
            if other != host:
                argv += ["--volume", f"{volumes(other)[1]}:{_SHELVES}/{other.name}"]
    else:
        inner, state = volumes(host)
        argv += ["--volume", f"{inner}:/var/lib/docker", "--volume", f"{state}:{STATE_PATH}"]
    return [*argv, image, "/bin/sh", "-c", script("init.sh")]


def script(name: str) -> str:
    """Return the text of a shell script of this package."""
    return resources.files("taco_launch.lab").joinpath(name).read_text("utf-8")


def create(host: LabHost, lab: Sequence[LabHost], engine: RunningEngine, lacking: Iterable[str], image: str) -> str:
    """Make a host, with its simulated hardware where it has any; nothing is started. Give the container's id.

    Raises:
        TacoLaunchError: the engine refused.
    """
    container = docker(*create_argv(host, lab, engine, lacking, image))
    if not host.is_registry and host.gpus != NO_GPUS:
        files = hardware.files(host.gpus, order(host)[2])
        try:
            docker("cp", "-", f"{container}:/", stdin=packed(files))
        except TacoLaunchError:
            docker("rm", "--force", container)  # a host without its hardware must not be taken for a whole one
            raise
    return container


def packed(files: Iterable[tuple[str, int, bytes]]) -> bytes:
    """Return a tar of (absolute path, mode, content); with the mode of a symbolic link the content is what it points to."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for path, mode, content in files:
            entry = tarfile.TarInfo(path.lstrip("/"))
            if stat.S_ISLNK(mode):
                entry.type, entry.linkname = tarfile.SYMTYPE, content.decode()
                archive.addfile(entry)
                continue
            entry.mode, entry.size = mode, len(content)
            archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def wait_booted(host: LabHost, container: str, stop: Event) -> str:
    """Wait until systemd has started everything and sshd answers; give "", or what of its units failed.

    Raises:
        HostError: that was not so within BOOT_SECONDS: what was waited for, and the evidence.
    """
    deadline = time.monotonic() + BOOT_SECONDS
    state = _wait(lambda: _systemd(container), deadline, stop)
    if state not in ("running", "degraded"):
        raise _not_booted(host, container, f"systemd is {state or 'not up'}")
    if not _wait(lambda: _banner(host.address), deadline, stop):
        raise _not_booted(host, container, f"no sshd answers at {host.address} port 22")
    if state == "running":
        return ""
    listed = execute(container, "systemctl", "--failed", "--plain", "--no-legend", "--no-pager").text
    failed = ", ".join(line.split()[0] for line in listed.splitlines() if line.split())
    return failed and f"{failed}{_inotify_used_up(Path('/proc'))}"


def _wait(check: Callable[[], str], deadline: float, stop: Event) -> str:
    while not stop.is_set():
        answer = check()
        if answer or time.monotonic() > deadline:
            return answer
        stop.wait(0.1)
    return ""


def _systemd(container: str) -> str:
    """Return systemd's state once it is done with booting (systemctl(1), is-system-running), waiting for that a little."""
    state = execute(container, "timeout", "5", "systemctl", "is-system-running", "--wait").text
    return state if state in ("running", "degraded", "maintenance") else ""


def _banner(address: str) -> str:
    """Return what sshd says first (RFC 4253, 4.2)."""
    try:
        with socket.create_connection((address, 22), timeout=2) as connection:
            said = connection.recv(8)
    except OSError:
        return ""
    return said.decode("ascii", "replace") if said.startswith(b"SSH-") else ""


def _inotify_used_up(proc: Path) -> str:
    """Return that this machine has no inotify instance left (inotify(7)), if so: each lab host takes about seven of them.

    Those of processes that this user may not look into are not counted.
    """
    try:
        limit = int((proc / "sys/fs/inotify/max_user_instances").read_text("ascii"))
    except (OSError, ValueError):
        return ""
    used = sum(link == "anon_inode:inotify" for folder in proc.glob("[0-9]*/fd") for link in _links(folder))
    if used < limit - _INOTIFY_SPARE:
        return ""
    return (
        f"; this machine's limit on inotify instances is reached ({used} of {limit}): "
        f"sysctl -w fs.inotify.max_user_instances={limit * 8}"
    )


def _links(folder: Path) -> Iterator[str]:
    with suppress(OSError):  # the process has ended meanwhile, or is another user's
        for file in folder.iterdir():
            with suppress(FileNotFoundError):
                yield str(file.readlink())


def _not_booted(host: LabHost, container: str, problem: str) -> HostError:
    said = docker("logs", "--tail", "3", container).strip() if ask("logs", "--tail", "3", container).code == 0 else ""
    evidence = f"; its console: {said}" if said else ""
    return HostError(
        f"{host.name}: not up after {BOOT_SECONDS} s: {problem}{evidence}{_inotify_used_up(Path('/proc'))}",
        hint=f"look inside: docker exec -it {host.container} journalctl -b; or remove the lab: taco-launch lab down{option_of(host.lab)}",
    )
