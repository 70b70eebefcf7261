"""Brings a Docker Engine to a machine that has none running, and takes away the one that it started."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from taco_launch.agent.store.folders import make_private
from taco_launch.core.errors import SIGNAL_BASE, TacoLaunchError
from taco_launch.lab.docker import engine
from taco_launch.lab.docker.reporter import Reporter

_PACKAGES = ("docker.io", "iptables", "iproute2")
_UNIT = "taco-launch-lab-engine"
_SYSTEMD = Path("/run/systemd/system")  # sd_booted(3): it is there where systemd runs the machine
_PID_FILE = Path("/var/run/docker.pid")  # dockerd's own default
_POLICY = Path("/usr/sbin/policy-rc.d")
_POLICY_TEXT = "#!/bin/sh\n# of taco-launch lab up, for as long as it installs packages\nexit 101\n"
_START_SECONDS = 30


def ready(environ: Mapping[str, str], folder: Path, talk: Reporter) -> engine.RunningEngine:
    """Return an engine that answers: the machine's own, or one that is installed and started here.

    An engine started here carries the label `taco-launch.lab=engine`, and its log lies in `folder`.

    Raises:
        TacoLaunchError: there is none, and this user may not start one: what to type.
    """
    try:
        return engine.connect(environ)
    except engine.UnreachableError as error:
        problem = error
    if problem.refused or environ.get("DOCKER_HOST"):
        raise problem
    if os.geteuid():
        raise TacoLaunchError(f"{problem.message}; starting one requires root", hint="sudo taco-launch lab up")
    if shutil.which("dockerd") is None:
        install(_PACKAGES, talk)
    if not shutil.which("docker"):
        raise TacoLaunchError(
            "dockerd is installed, but the docker command is not", hint="apt-get install docker-cli, or docker-ce-cli"
        )
    _start(folder / "engine.log", talk)
    return engine.connect(environ)


def needs(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return what `ready` would install and start on this machine: nothing if an engine answers, or if it would refuse."""
    try:
        engine.connect(environ)
    except engine.UnreachableError as error:
        if error.refused or environ.get("DOCKER_HOST") or os.geteuid():
            return ()
        packages = [] if shutil.which("dockerd") else [f"install {', '.join(_PACKAGES)} (apt-get)"]
        return (*packages, "start a Docker Engine, which `taco-launch lab down` stops with the last container")
    return ()


def install(packages: tuple[str, ...], talk: Reporter) -> None:
    """Install Debian packages, without having their services started.

    Raises:
        TacoLaunchError: this is no Debian or Ubuntu, or this user is not root, or apt failed: its last output.
    """
    command = f"apt-get install {' '.join(packages)}"
    if shutil.which("apt-get") is None:
        raise TacoLaunchError(
            f"{', '.join(packages)} missing, and this machine has no apt-get: the lab requires Debian or Ubuntu",
            hint="install what is missing by hand, or use a machine with Debian or Ubuntu",
        )
    if os.geteuid():
        raise TacoLaunchError(
            f"{', '.join(packages)}: not installed, and installing requires root", hint=f"sudo {command}"
        )
    talk.say(f"installing {', '.join(packages)} (apt-get)")
    apt = ("apt-get", "-o", "DPkg::Lock::Timeout=60")
    settings = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_SUSPEND": "1", "LC_ALL": "C"}
    with _services_stay_stopped():
        subprocess.run((*apt, "update"), env=settings, capture_output=True, check=False)  # old lists may do as well
        done = subprocess.run(
            (*apt, "install", "-y", "--no-install-recommends", *packages),
            env=settings,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    if done.returncode:
        words = [line for line in done.stderr.splitlines() if line.startswith("E:")] or done.stderr.splitlines()[-1:]
        raise TacoLaunchError(f"apt-get could not install {' '.join(packages)}: {'; '.join(words)}", hint=command)


@contextmanager
def _services_stay_stopped() -> Iterator[None]:
    """Have Debian's invoke-rc.d start nothing: the engine is started here, with the label that says so.

    A policy of the machine's own stays as it is; one of ours that a killed command left is taken away in the end.
    """
    if _POLICY.exists() and _POLICY.read_text("utf-8", "replace") != _POLICY_TEXT:
        yield
        return
    with _signals_as_exceptions():
        try:
            _POLICY.write_text(_POLICY_TEXT, "utf-8")
            _POLICY.chmod(0o755)
            yield
        finally:
            _POLICY.unlink(missing_ok=True)


@contextmanager
def _signals_as_exceptions() -> Iterator[None]:
    """Have SIGTERM and SIGHUP leave by way of `finally`, as Ctrl-C does; one that is ignored stays so (nohup)."""

    def leave(number: int, _frame: object) -> None:
        raise SystemExit(SIGNAL_BASE + number)

    numbers = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is signal.SIG_DFL]
    try:
        for number in numbers:
            signal.signal(number, leave)
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def _start(log: Path, talk: Reporter) -> None:
    talk.say("starting a Docker Engine (it is stopped by `taco-launch lab down` when its last container is gone)")
    make_private(log.parent)
    argv = ("dockerd", "--label", engine.OURS)
    with log.open("wb") as output:
        if _SYSTEMD.exists():
            # a transient unit: nothing of the machine's configuration is changed, and it is gone after a reboot
            command = ("systemd-run", "--unit", _UNIT, "--collect", "--property=Delegate=yes", *argv)
            subprocess.run(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, check=False)
            process = None
        else:
            process = subprocess.Popen(
                argv, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True
            )
    deadline = time.monotonic() + _START_SECONDS
    while engine.ask("version", timeout=30).code:
        if time.monotonic() > deadline or (process is not None and process.poll() is not None):
            raise _failed(log)
        time.sleep(0.2)


def _failed(log: Path) -> TacoLaunchError:
    if _SYSTEMD.exists():
        return TacoLaunchError("the Docker Engine did not start", hint=f"its log: journalctl -u {_UNIT}")
    lines = log.read_text("utf-8", "replace").strip().splitlines()
    why = next((line for line in reversed(lines) if "level=" not in line), lines[-1] if lines else "it printed nothing")
    return TacoLaunchError(f"the Docker Engine did not start: {why}", hint=f"its log: {log}")


def stop_if_unused(environ: Mapping[str, str], folder: Path, talk: Reporter) -> None:
    """Stop an engine that the lab started, once it holds no container, whosever."""
    try:
        found = engine.connect(environ)
    except engine.UnreachableError:
        return
    if not found.ours:
        return
    if found.containers:
        talk.say(
            f"the Docker Engine that the lab started keeps running, because containers are left in it: {found.containers}"
        )
        return
    if _SYSTEMD.exists():
        argv = ("systemctl", "stop", _UNIT)
        subprocess.run(argv, check=False)
    else:
        _end(int(_PID_FILE.read_text("utf-8")))
    (folder / "engine.log").unlink(missing_ok=True)
    talk.say("stopped the Docker Engine that the lab had started")


def _end(pid: int) -> None:
    """End dockerd and wait until it is gone.

    Raises:
        TacoLaunchError: it is not dockerd, or it does not end.
    """
    name = Path(f"/proc/{pid}/comm")
    with suppress(FileNotFoundError, ProcessLookupError):
        if name.read_text("utf-8").strip() != "dockerd":
            raise TacoLaunchError(
                f"cannot stop the lab's Docker Engine: {_PID_FILE} names process {pid}, which is not dockerd",
                hint="find it and end it: pgrep -a dockerd, then kill PID",
            )
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + _START_SECONDS
        while name.exists() and "State:\tZ" not in Path(f"/proc/{pid}/status").read_text("utf-8"):
            if time.monotonic() > deadline:
                raise TacoLaunchError(
                    f"dockerd (process {pid}) did not exit within {_START_SECONDS:g} s", hint=f"kill -9 {pid}"
                )
            time.sleep(0.1)
