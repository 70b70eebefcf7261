"""What a set-up brings along from the controller, learns from one host for all others, or asks hosts before it begins."""

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

from taco_launch.agent.store import untrusted
from taco_launch.core.command import Command, shell
from taco_launch.core.errors import HostError, TacoLaunchError, UsageError, last_line
from taco_launch.core.model import codec
from taco_launch.core.model.host import paths
from taco_launch.core.model.host.facts import SetupState
from taco_launch.core.model.host.hosts import Inventory
from taco_launch.core.model.host.image_reference import Reference
from taco_launch.hosts.fanout import Fanout
from taco_launch.hosts.remote import agent_bundle
from taco_launch.hosts.remote.reply_errors import understood
from taco_launch.hosts.remote.transport import Transport
from taco_launch.setup.model.ops import HostFolder
from taco_launch.setup.plan import blockers
from taco_launch.setup.plan.host_plan import HostPlan

VARIABLE = "TACO_LAUNCH_REGISTRY_PASSWORD"
_PACKAGES = (".deb", ".rpm")
# Of what an inventory names: a password or keys, a package.
_SECRET_BYTES, _PACKAGE_BYTES = 1 << 20, 1 << 30
_FETCH_SECONDS = 60.0
# What engines call docker's own registry in a login.
_HUB = "https://index.docker.io/v1/"
# $@ are paths: for each one that is there its size, a newline and its content.
_FETCH = 'for file; do if [ -f "$file" ]; then wc -c <"$file" && cat "$file" || exit; else echo none; fi; done'


def password(inventory: Inventory, given: str | None) -> str | None:
    """Return the password for the image's registry: the first line of its file, else the one given (of the environment).

    Raises:
        UsageError: there is a login and no password, or its file cannot be read.
    """
    registry = inventory.container.registry if inventory.container else None
    if registry is None:
        return None
    if registry.password_file is None:
        if not given:
            raise UsageError(
                f"container.registry: no password was given for user {registry.user}",
                hint=f"set password_file in {inventory.source}, or set {VARIABLE}",
            )
        return given
    try:
        file = Path(registry.password_file).expanduser()
        lines = untrusted.read_named(file, _SECRET_BYTES).decode("utf-8").splitlines()
    except (OSError, ValueError) as error:
        why = f"{error.strerror}" if isinstance(error, OSError) else "it is not text"
        raise _no_password(inventory, registry.password_file, why) from None
    if not lines or not lines[0]:
        raise _no_password(inventory, registry.password_file, "its first line is empty")
    return lines[0]


def _no_password(inventory: Inventory, file: str, why: str) -> UsageError:
    return UsageError(
        f"{inventory.source}: container.registry.password_file: {file}: {why}",
        hint=f"write the password into its first line (chmod 600), or remove password_file and set {VARIABLE}",
    )


def packages(named: str | None, key: str) -> tuple[tuple[str, bytes], ...]:
    """Return the packages in a folder of the controller, which `key` of the inventory names: (file name, content), by name.

    Without a folder there are none.

    Raises:
        UsageError: there are none in it, or they cannot be read.
    """
    if named is None:
        return ()
    folder = Path(named).expanduser()
    try:
        files = sorted(file for file in folder.iterdir() if file.suffix in _PACKAGES)
        found = tuple((file.name, untrusted.read_named(file, _PACKAGE_BYTES)) for file in files)
    except OSError as error:
        raise UsageError(f"{key}: {error.filename or folder}: {error.strerror}") from None
    if not found:
        raise UsageError(f"{key}: there is no {' or '.join(_PACKAGES)} file in {folder}")
    return found


def signing_key(section: str, named: str | None) -> bytes | None:
    """Return the key of the controller that signs a repository, None where the inventory's `section` names none.

    Raises:
        UsageError: it cannot be read, or is none.
    """
    if named is None:
        return None
    try:
        data = untrusted.read_named(Path(named).expanduser(), _SECRET_BYTES)
    except OSError as error:
        raise UsageError(f"{section}.key: {named}: {error.strerror}") from None
    if b"BEGIN PGP PUBLIC KEY BLOCK" not in data:
        raise UsageError(
            f"{section}.key: {named} is not an ASCII-armored PGP key", hint="gpg --armor --export writes one"
        )
    return data


def secrets(inventory: Inventory, registry: str | None) -> tuple[str, ...]:
    """Return what no log may show: the registry's password, and what proxies are logged in with."""
    found = (urlsplit(value).password for name, value in inventory.docker.proxy if name != "no")
    return tuple(filter(None, (registry, *found)))


def unblocked(
    plans: Sequence[HostPlan],
    folders: Sequence[HostFolder],
    inventory: Inventory,
    fanout: Fanout,
    failed: dict[str, TacoLaunchError],
) -> tuple[HostPlan, ...]:
    """Return the plans with what stands in their way: jobs that run, and which of these folders a host lacks.

    A host that does not answer is put to `failed`.
    """
    typed = shell(("taco-launch", "-i", inventory.source))
    container = paths.container(inventory.cluster)
    looks = ((plan.host, blockers.look(plan, container, [folder.path for folder in folders], typed)) for plan in plans)
    asked = {host: command for host, command in looks if command is not None}
    of_host = {plan.host: plan for plan in plans}

    def ask(host: Transport) -> HostPlan:
        said = host.run(asked[host.name]).stdout
        with understood(host.name, "its jobs and folders, before any change"):
            return blockers.with_blockers(of_host[host.name], folders, said)

    answers = fanout.only(tuple(asked)).each(ask)
    failed |= {answer.host: answer.error for answer in answers if answer.error is not None}
    of_host |= {answer.host: answer.value for answer in answers if answer.value is not None}
    return tuple(plan for host, plan in of_host.items() if host not in failed)


def latest(host: Transport, reference: Reference, login: str | None, secret: str | None, seconds: int) -> str:
    """Return the digest that the registry has under an image's name now, asked by a host's engine as it would pull.

    `login` and `secret` are user and password at the registry, which has `seconds` to answer.

    Raises:
        HostError: it cannot be asked, or has no such image.
    """
    given = {"username": login, "password": secret, "serveraddress": reference.registry or _HUB}
    header = base64.urlsafe_b64encode(json.dumps(given).encode()).decode()
    config = f'header = "X-Registry-Auth: {header}"\n' if login else ""
    # The engine's API: GET /distribution/{name}/json. The password goes by curl's input, not by its arguments.
    url = f"http://localhost/distribution/{reference.name}/json"
    argv = ("curl", "-gsS", "-m", f"{seconds}", "--unix-socket", "/var/run/docker.sock", "-K", "-", url)
    result = host.run(Command(argv, config.encode(), sudo=True, timeout=seconds + 10))
    try:
        told = codec.load(result.stdout)
        return str(told["Descriptor"]["digest"])
    except (ValueError, KeyError, TypeError):
        said = last_line(result.stderr) or last_line(result.stdout) or f"curl ended with exit code {result.exit_code}"
    with suppress(ValueError, KeyError, TypeError):
        said = str(codec.load(result.stdout)["message"])
    raise HostError(
        f"{host.name}: cannot get the current version of {reference.name} from the registry: {said}",
        hint=f"check that the registry is up and that {host.name} has curl 7.40 or newer. Without --pull, hosts keep their "
        "image. To choose a certain image: container.image: NAME@sha256:...",
    )


class Agent:
    """The agent's file; it is packed only for hosts that do not have it."""

    def __init__(self) -> None:
        """Read its sources."""
        self._sources = agent_bundle.sources()
        self._name = agent_bundle.name(self._sources)
        self._data = b""

    def file(self, made: Iterable[SetupState]) -> tuple[str, bytes]:
        """Return name and content; the content is empty while every host has a file of that name."""
        path = f"{paths.AGENT}/{self._name}"
        if not self._data and not all(_has(each, path) for each in made):
            self._data = agent_bundle.build(self._sources)
        return self._name, self._data


def _has(made: SetupState, path: str) -> bool:
    return isinstance(made.files, tuple) and any(file.path == path for file in made.files)


class HeadFiles:
    """What the head alone keeps until the others have it: the cluster's private key, which is never logged.

    Where the head does not answer, another member tells the host keys that all know, which stay known then.
    """

    def __init__(self, cluster: str, more: Sequence[str] = ()) -> None:
        """Nothing is read yet; `more` are other files that the head keeps."""
        self._key, self._known, self._more = paths.key(cluster), paths.known_hosts(cluster), tuple(more)
        self._texts: dict[str, bytes] = {}
        self._public = ""

    def read(self, member: Transport, made: SetupState, *, is_head: bool = True) -> None:
        """Read what exists and not known yet as it is; of another member than the head the host keys only.

        Raises:
            HostError: it cannot be read.
        """
        told = (self._key, self._known, *self._more) if is_head else (self._known,)
        files = made.files if isinstance(made.files, tuple) else ()
        there = {file.path: file.sha256 for file in files if file.path in told}
        new = [path for path, sha in there.items() if sha256(self._texts.get(path, b"")).hexdigest() != sha]
        gone = {path for path in told if path not in there or path in new}
        self._texts = {path: text for path, text in self._texts.items() if path not in gone}
        self._texts |= fetch(member, new) if new else {}
        if is_head:
            self._public = made.cluster_key if isinstance(made.cluster_key, str) else ""

    @property
    def cluster_key(self) -> tuple[bytes, str] | None:
        """The cluster's key: (private, public), None while there is none."""
        private = self._texts.get(self._key)
        return (private, self._public) if private and self._public else None

    @property
    def more(self) -> Mapping[str, bytes]:
        """The other files that exist, by path."""
        return {path: self._texts[path] for path in self._more if path in self._texts}

    @property
    def known_hosts(self) -> str:
        """The text of known_hosts, empty while there is none."""
        return self._texts.get(self._known, b"").decode("utf-8", "replace")


def fetch(transport: Transport, files: Sequence[str]) -> Mapping[str, bytes]:
    """Return the content of those files of a host that are there, by path.

    Raises:
        HostError: one of them cannot be read, or as `Transport.run` does.
    """
    command = Command(("/bin/sh", "-c", _FETCH, "fetch", *files), sudo=True, timeout=_FETCH_SECONDS)
    result = transport.run(command)
    if result.exit_code:
        raise HostError(f"{transport.name}: cannot read {' '.join(files)}: {last_line(result.stderr)}")
    found, rest = {}, result.stdout
    with understood(transport.name, "files of set-up"):
        for path in files:
            size, _, rest = rest.partition(b"\n")
            if size.strip() != b"none":
                if not 0 <= int(size) <= len(rest):
                    raise ValueError(f"{path}: {int(size)} bytes of {len(rest)}")
                found[path], rest = rest[: int(size)], rest[int(size) :]
    return found
