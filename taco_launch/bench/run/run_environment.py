"""What a ladder is measured on: the facts of its hosts, collected while it runs, and the circumstances of each run."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace

from taco_launch.bench.compare.causes import CAUSES, MeasuredJob
from taco_launch.bench.model.runs import RunEnvironment
from taco_launch.core.errors import TacoLaunchError
from taco_launch.core.facts import SUBJECTS
from taco_launch.core.model.host import paths
from taco_launch.core.model.host.facts import HostFacts
from taco_launch.core.model.host.hardware import Gpus
from taco_launch.core.model.host.hosts import Host, Inventory
from taco_launch.core.model.job_view import JobView
from taco_launch.core.model.jobs import JobRecord, JobSpec
from taco_launch.hosts.fanout import connect
from taco_launch.hosts.gather_facts import gather, with_declared_values
from taco_launch.hosts.remote.credentials import Credentials
from taco_launch.jobs.code import git_state

# What may change while a ladder continues; the rest takes a change of software, or a reboot, which ends a job.
_CHANGING = ("network", "gpu", "rdma")


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
                found, before = with_declared_values(answer.value, host), self._facts.get(host.name)
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
    state = git_state.ask(folder, os.environ, untracked="no").answer()
    return "" if state is None else state.commit[:12] + "-dirty" * bool(state.changed)


def of_run(hosts: Sequence[HostFacts], spec: JobSpec, record: JobRecord, commit: str = "") -> RunEnvironment:
    """Return the circumstances of a job: all that its hosts' facts, its spec and its record tell.

    `hosts` are looked at as far as the job had ranks there, all of them where it never started. `commit` is that of the
    folder that its command ran in, "" where it is in none. What is not known is left out; what is known not to be there
    is `none`.
    """
    ran = tuple(one for one in hosts if not record.shares or one.host in {share.host for share in record.shares})
    job = MeasuredJob(ran, spec, record, commit)
    found = [
        (host, f"{cause.name} {part}" if part else cause.name, value)
        for cause in CAUSES
        if cause.read is not None
        for host, part, value in cause.read(job)
    ]
    return RunEnvironment(tuple(sorted(set(found))))


def gpu_model(hosts: Sequence[HostFacts]) -> str:
    """Return the one model of all GPUs of hosts, "" where there are none or several."""
    found = [host.gpu.gpus for host in hosts if isinstance(host.gpu, Gpus)]
    names = {gpu.name for gpus in found if isinstance(gpus, tuple) for gpu in gpus}
    return names.pop() if len(names) == 1 else ""
