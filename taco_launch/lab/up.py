"""lab up: makes what is missing of a lab, and repairs what the controller has lost of it."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path
from threading import Event
from typing import TypeVar

from taco_launch.core.errors import HostError, TacoLaunchError, UsageError
from taco_launch.core.frozen import dataclass
from taco_launch.lab import access, registry, subnet
from taco_launch.lab.docker import daemon, hosts
from taco_launch.lab.docker.engine import RunningEngine, ask, docker, execute, machine_lacks
from taco_launch.lab.docker.hosts import WAKE, FoundHost, state_word
from taco_launch.lab.docker.labels import DEFAULT_NAME, KEY, NO_GPUS, REGISTRY, LabHost, check_lab_name, option_of
from taco_launch.lab.docker.reporter import Reporter
from taco_launch.lab.hardware import machines
from taco_launch.lab.images import image, repository, root, training
from taco_launch.lab.lock import one_at_a_time

T = TypeVar("T")

_DEFAULT_SIZE, _DEFAULT_SLOTS = 2, 2
_MAX_SLOTS = 64
_AT_ONCE = 8  # hosts that are made at the same time
_ADMIT = """
set -eu
umask 077
mkdir -p ~root/.ssh
touch ~root/.ssh/authorized_keys
grep -qxF "$1" ~root/.ssh/authorized_keys || { echo "$1" >>~root/.ssh/authorized_keys; echo admitted; }
"""


@dataclass(frozen=True)
class LabRequest:
    """What a user requests.

    None leaves it as it is, or to the default: 2 hosts, of 2 slots or as many as GPUs, of the own release, without Docker.
    """

    lab: str = DEFAULT_NAME
    size: int | None = None
    slots: int | None = None
    gpus: str | None = None
    release: str | None = None
    docker: bool | None = None


@dataclass(frozen=True)
class Lab:
    """A lab that is up: `changes` is what was done, nothing where it was up already.

    `down` holds (host, state) of those that a fault keeps off or paused: they are left as they are. `has_image` says that its registry
    has a training image.
    """

    name: str
    hosts: tuple[LabHost, ...]
    changes: tuple[str, ...]
    down: tuple[tuple[str, str], ...] = ()
    has_image: bool = True


def up(wanted: LabRequest, environ: Mapping[str, str], talk: Reporter, *, train: bool = True) -> Lab:
    """Bring a lab up: engine, images, network, hosts, access. What already exists stays as it is.

    With `train` the registry gets the training image; where it cannot be made, that is said, and the lab is up without.

    Raises:
        UsageError: the lab is there with other numbers, or they cannot be.
        HostError: a host does not come up.
        TacoLaunchError: the engine, or what is needed to make an image, is missing.
    """
    check(wanted)
    folder = access.root_folder(environ, os.geteuid())
    with removed_if_killed(wanted.lab, talk), one_at_a_time(talk):
        found_engine = daemon.ready(environ, folder, talk)
        there = hosts.find(wanted.lab)
        wanted = settled(wanted, tuple(found.host for found in there), root.own_release())
        files = access.access(environ, os.geteuid(), wanted.lab)
        lab = _up(wanted, there, found_engine, files, talk)
        changes = _train(lab, files, environ, talk) if train else ()
        return replace(lab, changes=(*lab.changes, *changes), has_image=files.image.is_file())


@dataclass(frozen=True)
class UpPlan:
    """What `up` would do: to this machine, where a user is to agree, and with containers and images."""

    machine: tuple[str, ...]
    lab: tuple[str, ...]


def plan(wanted: LabRequest, environ: Mapping[str, str], *, train: bool = True) -> UpPlan:
    """Return what `up` would do; it changes nothing.

    Raises:
        UsageError: the lab exists with other numbers, or they cannot be.
        TacoLaunchError: images cannot be made here.
    """
    check(wanted)
    machine = daemon.needs(environ)
    there = () if machine else hosts.find(wanted.lab)
    wanted = settled(wanted, tuple(found.host for found in there), root.own_release())
    if len(there) == (wanted.size or 0) + 1:
        return UpPlan((), ())
    lacking = image.missing(wanted.release or "", engine=bool(wanted.docker))
    if any(what.endswith(" host") for what in lacking) and shutil.which("mmdebstrap") is None:
        machine = (*machine, "install mmdebstrap (apt-get)")
    images = [f"build images: {', '.join(lacking)}"] if lacking else []
    training_image = ["training image: build it (about 2 minutes) unless the registry has it"] if train else []
    made = f"create a network and containers: {wanted.size or 0} hosts with {wanted.slots} slots each, and a registry"
    return UpPlan(machine, (*images, made, *training_image))


@contextmanager
def removed_if_killed(lab: str, talk: Reporter) -> Iterator[None]:
    """Remove a lab that did not exist before if the block does not end well, also after a SIGKILL.

    A shell waits for this process to write, and runs `lab down` if it ends without.
    """
    if _exists(lab):
        yield
        return
    down = (sys.executable, "-I", "-m", "taco_launch", "-q", "lab", "down", "--name", lab)
    guard = ("/bin/sh", "-c", 'read -r done || exec "$@"', "sh", *down)
    nothing = subprocess.DEVNULL
    with subprocess.Popen(
        guard, stdin=subprocess.PIPE, stdout=nothing, stderr=nothing, start_new_session=True
    ) as waits:
        assert waits.stdin is not None
        try:
            yield
            waits.stdin.write(b"done\n")
        except TacoLaunchError:  # what exists shows why
            waits.stdin.write(b"done\n")
            raise
        except BaseException:
            talk.say("\nremoving the incomplete lab")
            raise
        finally:
            waits.stdin.close()


def _exists(lab: str) -> bool:
    """Return whether anything of a lab exists; without an engine nothing does."""
    try:
        return bool(hosts.find(lab))
    except TacoLaunchError:
        return False


def check(wanted: LabRequest) -> None:
    """Refuse numbers and names that cannot be.

    Raises:
        UsageError: one of them cannot.
    """
    check_lab_name(wanted.lab)
    if wanted.size is not None and not 1 <= wanted.size <= subnet.MAX_HOSTS:
        raise UsageError(f"--hosts {wanted.size}: a lab has 1 to {subnet.MAX_HOSTS} hosts")
    if wanted.slots is not None and not 1 <= wanted.slots <= _MAX_SLOTS:
        raise UsageError(f"--slots {wanted.slots}: a lab host has 1 to {_MAX_SLOTS} slots")
    if wanted.release is not None and not re.fullmatch("[a-z]+", wanted.release):
        raise UsageError(f"--release {wanted.release}: a code name has small letters only, as in /etc/os-release")


def settled(wanted: LabRequest, there: Sequence[LabHost], own: str) -> LabRequest:
    """Fill in what a user left open, from the hosts that are there; `own` is this machine's release.

    Raises:
        UsageError: what is requested differs from them.
    """
    if not there:
        size, slots = wanted.size or _DEFAULT_SIZE, wanted.slots or _slots(wanted.gpus)
        return LabRequest(wanted.lab, size, slots, wanted.gpus or NO_GPUS, wanted.release or own, bool(wanted.docker))
    first = there[0]
    pairs = (
        ("--hosts", wanted.size, first.size),
        ("--slots", wanted.slots, first.slots),
        ("--gpus", wanted.gpus, first.gpus),
        ("--release", wanted.release, first.release or own),
    )
    differ = [f"{option} {asked} (it has {has})" for option, asked, has in pairs if asked not in (None, has)]
    differ += ["--docker (it was made without)"] * bool(wanted.docker and not first.docker)
    if differ:
        again = " ".join(f"{option} {asked}" for option, asked, _ in pairs if asked is not None)
        again = f"{again}{' --docker' * bool(wanted.docker)}".strip()
        name = option_of(wanted.lab)
        raise UsageError(
            f"the lab {wanted.lab!r} already exists with other settings: {', '.join(differ)}",
            hint=f"taco-launch lab down{name} && taco-launch lab up{name} {again}; or another lab beside it: "
            f"taco-launch lab up --name other {again}",
        )
    return LabRequest(wanted.lab, first.size, first.slots, first.gpus, first.release or own, first.docker)


def _slots(gpus: str | None) -> int:
    """Return the slots of a host of this kind: its GPUs, as an inventory of real hosts would have it."""
    return next((len(machine.gpus) for machine in machines.ALL if machine.name == gpus), _DEFAULT_SLOTS)


def planned(wanted: LabRequest, net: IPv4Network) -> tuple[LabHost, ...]:
    """Return all hosts of a lab, the registry last."""
    size = wanted.size or 0
    shared = (size, wanted.slots or 0, wanted.gpus or NO_GPUS, wanted.release or "", bool(wanted.docker))
    hosts_ = (LabHost(wanted.lab, f"gpu{number}", subnet.host(net, number), *shared) for number in range(1, size + 1))
    return (*hosts_, LabHost(wanted.lab, REGISTRY, subnet.registry(net), *shared))


def _up(
    wanted: LabRequest, there: Sequence[FoundHost], engine: RunningEngine, files: access.LabFiles, talk: Reporter
) -> Lab:
    changes: list[str] = []
    base, registry_image = image.ensure(wanted.release or "", talk, engine=bool(wanted.docker))
    net, made = _network(wanted.lab)
    changes += [f"network {net}"] * made
    lab = planned(wanted, net)
    known = {found.host.name: found for found in there}
    lacking = machine_lacks()
    for host in lab:
        if host.is_registry:
            registry.make_volume()
        else:
            hosts.make_volumes(host)

    def raise_host(host: LabHost, stop: Event) -> tuple[str, str]:
        """Make, start and wait for a host; give its container's id, and what was done."""
        talk.show(f"{host.name}: starting")
        found = known.get(host.name)
        if found is not None and found.state not in ("created", "running"):
            return found.container, ""
        container = (
            found.container
            if found
            else hosts.create(host, lab, engine, lacking, registry_image if host.is_registry else base)
        )
        started = found is None or found.state == "created"
        if started:
            docker("start", container)
        failed = hosts.wait_booted(host, container, stop)
        if failed:
            talk.say(f"{host.name}: these systemd units failed: {failed}")
        return container, f"started {host.name}" if started else ""

    raised = dict(zip((host.name for host in lab), _side_by_side(raise_host, lab), strict=True))
    changes += [done for _, done in raised.values() if done]
    changes += _open(lab, {name: container for name, (container, _) in raised.items()}, files)
    _say_what_is_not_here(lacking, known, talk)
    asleep = ((found.host.name, state_word(found.state)) for found in there)
    return Lab(wanted.lab, lab, tuple(changes), tuple(pair for pair in asleep if pair[1] in WAKE))


def _side_by_side(run: Callable[[LabHost, Event], T], lab: Sequence[LabHost]) -> list[T]:
    """Do something with every host; the first error ends the others' waiting, and so does Ctrl-C."""
    stop = Event()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        try:
            pending: list[Future[T]] = [pool.submit(run, host, stop) for host in lab]
            return [future.result() for future in pending]
        except BaseException:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _open(lab: Sequence[LabHost], containers: Mapping[str, str], files: access.LabFiles) -> list[str]:
    """Have the controller enter every host that is on, and every host trust the registry; give what that changed."""
    key = files.make_key()
    running = {found.host.name for found in hosts.find(lab[0].lab) if found.state == "running"}
    changes: list[str] = []
    served: repository.Served | None = None
    if REGISTRY in running:
        login = registry.start(lab[-1], containers[REGISTRY])
        changes += ["stored the registry's password"] * files.keep(files.password, login.password + "\n")
        changes += ["stored the registry's certificate"] * files.keep(files.authority, login.authority)
        if lab[-1].gpus != NO_GPUS:
            served = repository.start(lab[-1], containers[REGISTRY])
            changes += ["built the simulated packages"] * served.built
            changes += ["stored the key of the simulated packages"] * files.keep(files.packages_key, served.key)

    def enter(host: LabHost, _stop: Event) -> tuple[LabHost, str, str]:
        """Let the controller's key in; give the host's own public keys, and "admitted" where the key was not in yet.

        Raises:
            HostError: ssh access could not be set up.
        """
        container = containers[host.name]
        admitted = execute(container, "/bin/sh", "-c", _ADMIT, "admit", key)
        keys = execute(container, "/bin/sh", "-c", "cat /etc/ssh/ssh_host_*_key.pub")
        if admitted.code or keys.code:
            raise HostError(f"{host.name}: ssh access could not be set up: {admitted.stderr or keys.stderr}")
        if files.authority.is_file():
            registry.trust(host, container, files.authority.read_text("utf-8"))
        if served is not None and not host.is_registry:
            repository.offer(host, container, served.key)
        return host, keys.text, admitted.text

    entered = _side_by_side(enter, [host for host in lab if host.name in running])
    changes += [f"added the ssh key to {host.name}" for host, _, done in entered if done]
    # A host that is off keeps the lines it has; it gets them anew at the next `lab up`.
    if len(entered) == len(lab) or not files.known_hosts.is_file():
        lines = access.known_hosts((host, keys) for host, keys, _ in entered)
        changes += ["pinned the host keys"] * files.keep(files.known_hosts, lines)
    changes += ["wrote ssh_config"] * files.keep(files.ssh_config, access.ssh_config(lab, files))
    return changes


def _train(lab: Lab, files: access.LabFiles, environ: Mapping[str, str], talk: Reporter) -> list[str]:
    """Have the registry hold the training image, and the controller know its name; give what that changed."""
    host = lab.hosts[-1]
    found = next(each for each in hosts.find(lab.name) if each.host.name == host.name)
    if found.state != "running":
        return []
    try:
        recipe = training.recipe()
        changes = []
        if not registry.has(found.container, recipe.name):
            tag = training.ensure(recipe, environ, talk)
            talk.say("putting the training image into the registry (about 15 s, once)")
            registry.push(host, found.container, tag, recipe.name, talk.show)
            changes.append(f"put {recipe.name} into the registry")
    except TacoLaunchError as error:
        talk.say(f"no training image: {error.message}{f' (hint: {error.hint})' if error.hint else ''}")
        return []
    return changes + ["stored the training image's name"] * files.keep(
        files.image, f"{registry.ADDRESS}/{recipe.name}\n"
    )


def _network(lab: str) -> tuple[IPv4Network, bool]:
    """Return the lab's network, and whether it was made just now."""
    name = hosts.network(lab)
    answer = ask("network", "inspect", name)
    if not answer.code:
        return IPv4Network(json.loads(answer.stdout)[0]["IPAM"]["Config"][0]["Subnet"]), False
    taken = [*subnet.routed(Path("/proc/net/route").read_text("utf-8"))]
    for each in json.loads(docker("network", "inspect", *docker("network", "ls", "--quiet").split())):
        configs = each["IPAM"]["Config"] or ()
        taken += [IPv4Network(config["Subnet"]) for config in configs if ":" not in config.get("Subnet", ":")]
    net = subnet.free(taken)
    docker("network", "create", "--label", f"{KEY}={lab}", "--subnet", str(net), name)
    return net, True


def _say_what_is_not_here(lacking: Sequence[str], known: Mapping[str, FoundHost], talk: Reporter) -> None:
    """Report once, when a lab is made, which of the machine's own gaps its hosts share."""
    missing = [capability for capability in lacking if capability not in hosts.FORBIDDEN]
    if missing and not known:
        why = ": limits such as memlock cannot be raised there" if "SYS_RESOURCE" in missing else ""
        talk.say(f"this machine lacks {', '.join(missing)}, so the lab's hosts do, too{why}")
