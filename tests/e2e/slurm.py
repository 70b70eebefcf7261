"""A Slurm of two nodes on one machine: slurmctld, and two slurmd, each with processes and a local disk of its own.

The GPUs are simulated: device files that exist everywhere stand for them. All ends with the process that started it.
"""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.support.patience import patience

NODES = ("n1", "n2")
_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
_NEEDED = {"slurmctld": "slurm-wlm", "slurmd": "slurm-wlm", "munged": "munge", "setpriv": "util-linux"}
_OWN = ("setpriv", "--pdeathsig", "KILL", "--")
_NODE = (
    *_OWN,
    "unshare",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
    "--propagation",
    "private",
    "--",
)
_CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmdSpoolDir={folder}/spool.%n
StateSaveLocation={folder}/state
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,sched_min_interval=1,bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
KillWait=20
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2 Gres=gpu:2 State=UNKNOWN
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2 Gres=gpu:2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=one Nodes=n1 MaxTime=INFINITE State=UP
"""
_GRES = "NodeName=n[1-2] Name=gpu File=/dev/null,/dev/zero\n"


def why_not() -> str:
    """Return why there can be no Slurm here, "" where there can."""
    if os.geteuid():
        return "cannot: only root starts a Slurm"
    missing = sorted({package for program, package in _NEEDED.items() if shutil.which(program, path=_PATH) is None})
    return f"cannot: there is no {', '.join(missing)}" if missing else ""


@contextmanager
def slurm(folder: Path, settings: str = _CONF, gres: str = _GRES) -> Iterator[dict[str, str]]:
    """Start Slurm; return the variables by which its programs find it, and the number of the process of slurmctld.

    `settings` is slurm.conf, in which {host}, {folder} and {ports[N]} are filled in; `gres` is gres.conf.
    """
    folder.chmod(0o755)
    environ = {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": _PATH}
    local = Path(f"/tmp/taco-launch-{os.geteuid()}")
    local.mkdir(mode=0o700, exist_ok=True)
    for name in ("state", *(f"spool.{node}" for node in NODES)):
        (folder / name).mkdir()
    conf = settings.format(host=socket.gethostname(), folder=folder, ports=_free_ports(3))
    (folder / "slurm.conf").write_text(conf, "utf-8")
    (folder / "gres.conf").write_text(gres, "utf-8")
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    with ExitStack() as stack:
        files = [f"--{kind}={folder}/munge.{kind}" for kind in ("socket", "pid-file", "log-file", "seed-file")]
        _start(stack, folder, "munged", (*_OWN, "munged", "--foreground", "--force", f"--key-file={key}", *files))
        _until((folder / "munge.socket").exists, "munged")
        environ["SLURMCTLD_PID"] = str(_start(stack, folder, "slurmctld", (*_OWN, "slurmctld", "-D"), environ))
        for node in NODES:
            script = f'mount -t tmpfs -o mode=0700 tmpfs "$1" && exec slurmd -D -N {node}'
            _start(stack, folder, node, (*_NODE, "sh", "-c", script, "sh", str(local)), environ)
        _until(lambda: _states(environ) == ["idle", "idle"], "both nodes")
        yield environ


def _start(
    stack: ExitStack, folder: Path, name: str, argv: tuple[str, ...], environ: dict[str, str] | None = None
) -> int:
    log = stack.enter_context((folder / f"{name}.out").open("wb"))
    process = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, "PATH": _PATH, **(environ or {})}
    )
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process.pid


def _states(environ: dict[str, str]) -> list[str]:
    argv = ("sinfo", "--noheader", "--Node", "--partition=all", "--format=%T")
    done = subprocess.run(argv, env={**os.environ, **environ}, capture_output=True, text=True, check=False)
    return done.stdout.split()


def _until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + patience(40)
    while not holds():
        assert time.monotonic() < deadline, f"{what} did not start"
        time.sleep(0.1)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
