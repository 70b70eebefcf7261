"""The Docker Engine of this machine: how it is spoken to, and what it and the machine can do."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from taco_launch.core.command import shell
from taco_launch.core.errors import FAILED, NOT_FOUND, TacoLaunchError, UsageError
from taco_launch.core.frozen import dataclass

OURS = "taco-launch.lab=engine"  # the label of an engine that the lab started
_OLDEST = (20, 10)  # the first with --cgroupns
# linux/capability.h, in the order of the bits
_CAPABILITIES = (
    *("CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP"),
    *("LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER"),
    *("SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE"),
    *("SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP"),
    *("MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF"),
    "CHECKPOINT_RESTORE",
)

_START = "start the engine, or let the lab start one: taco-launch lab up"


class UnreachableError(TacoLaunchError):
    """No engine answers; `refused` says that this user may not ask it."""

    def __init__(self, message: str, hint: str | None, *, refused: bool = False) -> None:
        """Keep whether this user is `refused`."""
        super().__init__(message, hint)
        self.refused = refused


@dataclass(frozen=True)
class RunningEngine:
    """An engine that answers: its version, this machine's version of cgroups (1 or 2), whether the lab started it."""

    version: str
    cgroups: int
    ours: bool
    userns: bool
    containers: int


@dataclass(frozen=True)
class ProgramResult:
    """What a program said; `code` is its exit code."""

    code: int
    stdout: bytes
    stderr: str

    @property
    def text(self) -> str:
        """What it printed, without the last line feed."""
        return self.stdout.decode("utf-8", "replace").rstrip("\n")


def ask(*args: str, stdin: bytes = b"", timeout: float = 120) -> ProgramResult:
    """Have the docker client do something; its answer, whatever the exit code (127: there is no client).

    Raises:
        TacoLaunchError: it gave no answer within `timeout` seconds.
    """
    argv = ("docker", *args)
    try:
        done = subprocess.run(argv, input=stdin, capture_output=True, timeout=timeout, check=False)
    except FileNotFoundError:
        return ProgramResult(NOT_FOUND, b"", "docker: no such command")
    except subprocess.TimeoutExpired:
        raise TacoLaunchError(
            f"{shell(argv[:3])}: the Docker Engine gave no answer in {timeout:.0f} s",
            hint="check whether it is running: docker info",
        ) from None
    return ProgramResult(done.returncode, done.stdout, done.stderr.decode("utf-8", "replace").strip())


def docker(*args: str, stdin: bytes = b"", timeout: float = 120) -> str:
    """Have the docker client do something and give what it printed.

    Raises:
        TacoLaunchError: it failed; the message has the engine's own words.
    """
    answer = ask(*args, stdin=stdin, timeout=timeout)
    if answer.code:
        words = answer.stderr.splitlines() or [f"exit {answer.code}"]
        raise TacoLaunchError(f"docker {args[0]}: {words[-1]}")
    return answer.text


def docker_build(*args: str, stdin: bytes = b"", timeout: float = 1800) -> None:
    """Build an image.

    Raises:
        TacoLaunchError: it failed; the message has the last output of the step that did.
    """
    answer = ask("build", "--force-rm", *args, stdin=stdin, timeout=timeout)
    if answer.code:
        said = [*answer.text.splitlines(), *answer.stderr.splitlines()]
        words = [line for line in said if line.startswith(("E:", "ERROR"))] or said[-5:] or [f"exit {answer.code}"]
        raise TacoLaunchError("docker build: " + "\n".join(words))


def execute(container: str, *argv: str, stdin: bytes = b"", timeout: float = 60) -> ProgramResult:
    """Run a program in a container as root."""
    return ask("exec", "--interactive", container, *argv, stdin=stdin, timeout=timeout)


def connect(environ: Mapping[str, str]) -> RunningEngine:
    """Find the engine that `docker` speaks to, $DOCKER_HOST included.

    Raises:
        UnreachableError: none answers, or this user may not ask it.
        UsageError: it is of a kind that the lab cannot use.
    """
    host = environ.get("DOCKER_HOST", "")
    if host and not host.startswith("unix://"):
        raise UsageError(
            f"DOCKER_HOST is {host}: the hosts of a lab can only be reached where their engine runs",
            hint="log in there, or: env -u DOCKER_HOST taco-launch lab up",
        )
    answer = ask("info", "--format", "{{json .}}", timeout=30)
    if answer.code == NOT_FOUND:
        raise UnreachableError("there is no Docker Engine here: the docker command is not installed", _START)
    try:
        info = json.loads(answer.stdout)
    except ValueError:
        info = {}
    errors = info.get("ServerErrors") or ([] if info.get("ServerVersion") else [answer.stderr or "no answer"])
    if errors:
        return _unreachable(str(errors[0]).splitlines()[0], host)
    return _usable(info)


def _unreachable(said: str, host: str) -> RunningEngine:
    if "permission denied" in said.lower():
        raise UnreachableError(
            f"this user may not use the Docker Engine: {said}",
            hint="run the command as root, such as sudo taco-launch lab up (or join the docker group: sudo usermod -aG docker $USER, then log in again)",
            refused=True,
        )
    hint = f"DOCKER_HOST is {host}: start that engine, or unset DOCKER_HOST" if host else _START
    raise UnreachableError(f"no Docker Engine answers: {said}", hint)


def _usable(info: Mapping[str, Any]) -> RunningEngine:
    version = str(info["ServerVersion"])
    security = " ".join(info.get("SecurityOptions") or ())
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if "name=rootless" in security:
        raise UsageError(
            "the Docker Engine here is a rootless one: this machine cannot reach the addresses of its containers",
            hint="use an engine that runs as root: sudo taco-launch lab up, or DOCKER_HOST=unix:///var/run/docker.sock",
        )
    if numbers < _OLDEST:
        raise UsageError(f"the Docker Engine here is {version}: the lab needs 20.10 or newer", hint="upgrade it")
    return RunningEngine(
        version=version,
        cgroups=int(info.get("CgroupVersion") or 1),
        ours=OURS in (info.get("Labels") or ()),
        userns="name=userns" in security,
        containers=int(info.get("Containers") or 0),
    )


def lacking_capabilities(status: str) -> tuple[str, ...]:
    """Read /proc/self/status: the capabilities that no process of this machine can get (its bounding set)."""
    found = re.search(r"^CapBnd:\s*([0-9a-fA-F]+)$", status, re.MULTILINE)
    held = int(found[1], 16) if found else 0
    return tuple(name for bit, name in enumerate(_CAPABILITIES) if not held >> bit & 1)


def machine_lacks() -> tuple[str, ...]:
    """Return the capabilities that this machine does not have."""
    return lacking_capabilities(Path("/proc/self/status").read_text("utf-8"))


def interactive(argv: Sequence[str], *, terminal: bool) -> int:
    """Run `docker exec` with this process's own standard streams; give the exit code of what ran."""
    options = ("--interactive", "--tty") if terminal else ("--interactive",)
    program = shutil.which("docker", path=os.environ.get("PATH"))
    if program is None:
        return FAILED
    return subprocess.run((program, "exec", *options, *argv), check=False).returncode
