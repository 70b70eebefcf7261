"""What a ladder is measured on: the facts of its hosts, collected while it runs, and the circumstances of each run."""

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace

from taco_launch.bench.circumstances import gpu_model, of_run
from taco_launch.bench.runs import RunEnvironment
from taco_launch.errors import TacoLaunchError
from taco_launch.facts import SUBJECTS
from taco_launch.flows.facts import declared, gather
from taco_launch.model.host.facts import HostFacts
from taco_launch.model.host.hosts import Host, Inventory
from taco_launch.model.job_view import JobView
from taco_launch.model.jobs import JobSpec
from taco_launch.remote.credentials import Credentials
from taco_launch.remote.fanout import connect
from taco_launch.setup import paths

# What may change while a ladder continues; the rest takes a change of software, or a reboot, which ends a job.
_CHANGING = ("network", "gpu", "rdma")
_GIT_SECONDS = 10.0


class EnvironmentProbe:
    """The hosts of a ladder: looked at in full once, then for what may have changed, at the start of each block."""

    def __init__(
        self, inventory: Inventory, hosts: Sequence[Host], access: Credentials, folder: str, say: Callable[[str], None]
    ) -> None:
        """Ask nothing yet; `folder` is where the command was typed, of which the commit is told."""
        self._inventory = inventory
        self._hosts = tuple(hosts)
        self._access = access
        self._say = say
        self._commit = _commit(folder)
        self._facts: dict[str, HostFacts] = {}

    @property
    def facts(self) -> tuple[HostFacts, ...]:
        """What is known of the hosts that have answered."""
        return tuple(self._facts.values())

    def refresh(self) -> None:
        """Ask the hosts; what one does not answer is said, and stays as it was."""
        first = not self._facts
        subjects = SUBJECTS if first else _CHANGING
        container = paths.container(self._inventory.cluster) if self._inventory.container else None
        try:
            with connect(self._inventory, self._hosts, self._access) as fanout:
                answers = gather(fanout, subjects, sudo=self._access.sudo_password is not None, container=container)
        except TacoLaunchError as error:
            self._say(f"facts not gathered: {error.message}")
            return
        for host, answer in zip(self._hosts, answers, strict=True):
            if answer.error is not None:
                self._say(f"facts not gathered in full: {answer.error.message}")
            if answer.value is not None:
                found, before = declared(answer.value, host), self._facts.get(host.name)
                changed = {subject: getattr(found, subject) for subject in subjects}
                self._facts[host.name] = found if before is None else replace(before, **changed)

    def gpu(self, job: JobView) -> str:
        """Return the model of the GPUs of a job's hosts, "" without any or where they differ."""
        return gpu_model(self._of(job))

    def circumstances(self, spec: JobSpec, job: JobView | None) -> RunEnvironment:
        """Return what a run was made on; nothing of one that never had a place."""
        if job is None:
            return RunEnvironment()
        return of_run(self._of(job), spec, job.record, commit=self._commit)

    def _of(self, job: JobView) -> tuple[HostFacts, ...]:
        return tuple(self._facts[share.host] for share in job.record.shares if share.host in self._facts)


def _commit(folder: str) -> str:
    """Return the commit of a folder's files, `-dirty` behind it where they differ from it; "" where it has none."""
    line = ("git", "--no-optional-locks", "-C", folder, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
    try:
        told = subprocess.run(line, capture_output=True, text=True, timeout=_GIT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return told.stdout.strip() if told.returncode == 0 else ""
