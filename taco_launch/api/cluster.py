"""Jobs from Python: the calls behind the command line.

    from taco_launch.api import Cluster, JobRequest

    with Cluster("hcc.yaml") as cluster:
        job = cluster.submit(JobRequest(command=("python3", "train.py"), np=16))
        print(job.wait(), job.logs(rank=0).decode())

Every call raises a TacoLaunchError (taco_launch.core.errors) with a message and a hint: what failed, where, and what to do.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache, cached_property
from types import TracebackType
from typing import TYPE_CHECKING

from taco_launch.core import trace
from taco_launch.core.command import BARE
from taco_launch.core.errors import UsageError, no_lab
from taco_launch.core.model.engines import CONTAINERS, SLURM_PREFIX
from taco_launch.core.model.host.hosts import Inventory, SlurmCluster
from taco_launch.core.model.job_request import JobRequest
from taco_launch.core.model.jobs import JobSpec
from taco_launch.hosts.inventory import VARIABLE
from taco_launch.hosts.remote.credentials import Credentials
from taco_launch.jobs.backend import Backend, FollowListener, HeadFacts, Output, connect, require_started
from taco_launch.jobs.request.caller import here, local_names

if TYPE_CHECKING:
    from taco_launch.api.job import Job
    from taco_launch.core.model.host.facts import HostFacts
    from taco_launch.core.model.host.job_containers import VariantUse
    from taco_launch.core.model.job_rows import JobRow
    from taco_launch.core.model.job_view import JobView
    from taco_launch.jobs.code.job_code import JobCode
    from taco_launch.jobs.dry_run import Planned
    from taco_launch.setup.apply.host_ops import SetupEvent
    from taco_launch.setup.plan.host_plan import HostPlan

_LAB = "lab"


def _say_nothing(_words: str) -> None:
    """Do nothing."""


class Cluster:
    """The hosts of an inventory, or this machine, and the jobs that its head keeps."""

    def __init__(
        self,
        inventory: str | os.PathLike[str] | Inventory | None = None,
        *,
        access: Credentials | None = None,
        environ: Mapping[str, str] | None = None,
        typed: str = BARE,
        say: Callable[[str], None] = _say_nothing,
        backend: Backend | None = None,
        slurm_containers: str = "",
    ) -> None:
        """Name the hosts; nothing is read or connected to before it is needed.

        `inventory` is the path of an inventory or a hostfile, `lab:NAME`, an inventory that was read, or None for
        $TACO_LAUNCH_INVENTORY, else this machine. `access` holds what hosts may ask for: sudo's password. `environ` is
        the environment that jobs take variables from, by default this process's. `typed` is how hints call taco-launch;
        `say` is given what is going on. `backend` keeps the jobs, by default the engine that the
        inventory names. `slurm_containers` is what the nodes of `slurm:` have for containers: apptainer or pyxis.

        Raises:
            UsageError: `slurm_containers` is another program.
        """
        self._given = inventory
        if slurm_containers not in ("", *CONTAINERS):
            raise UsageError(f"slurm_containers: {slurm_containers!r} is neither {' nor '.join(CONTAINERS)}")
        self._slurm = SlurmCluster(slurm_containers)
        self._access = access or Credentials()
        self.environ = os.environ if environ is None else environ
        self.typed = typed
        self.say = say
        # The same, once for the same words: a matrix has many jobs of one script.
        self.note: Callable[[str], None] = cache(lambda words: self.say(words))  # noqa: PLW0108 - `say` may be replaced
        self._kept_by = backend
        self.git_secrets: Mapping[str, str] = {}  # what git alone is given of the environment
        self._open = ExitStack()
        self._code: JobCode | None = None

    def __enter__(self) -> "Cluster":  # noqa: PYI034 - typing.Self is of Python 3.11
        """Return it; `close` at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Close what is connected. Jobs continue."""
        self._open.close()
        self.__dict__.pop("backend", None)

    @cached_property
    def inventory(self) -> Inventory:
        """The inventory.

        Raises:
            SpecError: it cannot be read, or something in it is wrong.
            TacoLaunchError: it is a lab's, and taco-launch-lab is not installed.
        """
        from taco_launch.hosts.inventory.load import load  # noqa: PLC0415 - lists of this machine's jobs need none

        if isinstance(self._given, Inventory):
            return self._given
        source = self._source
        if source is not None and source.partition(":")[0] == _LAB:
            try:
                from taco_launch.lab.inventory import load as load_lab  # noqa: PLC0415 - an extra
            except ImportError as error:
                raise no_lab(error) from None
            inventory = load_lab(source, self.environ)
        elif (source or "").startswith(SLURM_PREFIX):
            from taco_launch.hosts.slurm_inventory import load as load_slurm  # noqa: PLC0415 - only for Slurm

            inventory = replace(load_slurm(str(source), local_names, self._access), slurm=self._slurm)
        else:
            inventory = load(None if self._given is None else source, self.environ, local_names)
        trace.decision(
            "inventory: %s: hosts: %s, head: %s", source or "this machine", len(inventory.hosts), inventory.head
        )
        return inventory

    @property
    def _with_head(self) -> Inventory:
        """The inventory, or as much of it as leads to the head, where that is less to ask for."""
        if isinstance(self._given, Inventory) or not (self._source or "").startswith(SLURM_PREFIX):
            return self.inventory
        from taco_launch.hosts.slurm_inventory import login_of  # noqa: PLC0415 - only for Slurm

        return login_of(str(self._source), local_names)

    @cached_property
    def backend(self) -> Backend:
        """What keeps the jobs: the engine that the inventory names, which the first call connects to."""
        if self._kept_by is not None:
            return self._kept_by
        if self._source is None:
            return self._open.enter_context(connect(None, None, self.environ, self.typed))
        found = self._open.enter_context(connect(self._with_head, self.access, self.environ, self.typed))
        if found.containers is not None:
            found.containers.prepare = self._prepared
        return found

    def _prepared(self, spec: JobSpec) -> JobSpec:
        """Return a job whose container is there on its hosts."""
        if spec.container is None or not spec.container.variant:
            return spec
        from taco_launch.setup.job_containers import prepare  # noqa: PLC0415 - few jobs have one

        records = self.backend.containers
        if records is None:
            return spec
        listener = prepare.SetupListener(self._told, self.say, self.say)
        return prepare.prepare(spec, self.inventory, self.access, records.find_variant, listener, records.variants)

    def _told(self, step: "SetupEvent") -> None:
        if step.kind != "begins":
            what = "another set-up is running there" if step.kind == "waits" else step.what
            self.say(f"{step.host}: {step.stage}: {what}: {step.kind}")

    @property
    def _source(self) -> str | None:
        """Which inventory was named; None for this machine."""
        if self._given is None:
            return self.environ.get(VARIABLE) or None
        return str(self._given) if isinstance(self._given, (str, os.PathLike)) else self._given.source

    @property
    def access(self) -> Credentials:
        """The passwords that hosts may ask for."""
        return self._access

    # --- jobs

    def resolve(self, request: JobRequest) -> JobSpec:
        """Return the job of a request, with all that the inventory says of it.

        Raises:
            UsageError: a field has a wrong type, parts of the request contradict each other, or its command is a launcher.
            SpecError: a value of the request, the inventory or the profile is wrong; all faults at once.
        """
        with _typed(request) as checked:
            return self._resolved(checked)

    def _resolved(self, request: JobRequest) -> JobSpec:
        from taco_launch.jobs.request.resolve import resolve  # noqa: PLC0415 - lists of jobs need none of it

        return resolve(request, self.inventory, here(self.environ, self.note))

    def with_code(self, spec: JobSpec, request: JobRequest, *, same: bool = False) -> JobSpec:
        """Return a job with the code of its request: as its files are now, or the `same` as an earlier job's."""
        if request.sync is None and not request.config_files:
            if spec.container is not None:
                self._warn_of_files_left_here(spec, request.called("sync"))
            return spec
        from taco_launch.jobs.code.job_code import JobCode  # noqa: PLC0415 - few jobs have code of their own

        if self._code is None or not same:
            self._code = JobCode({**self.environ, **self.git_secrets}, self.say, self.backend.provide_code)
        return self._code.attach(spec, request)

    def _warn_of_files_left_here(self, spec: JobSpec, option: str) -> None:
        from taco_launch.jobs.request.code_options import left_here  # noqa: PLC0415 - jobs without a container need none

        for word in left_here(spec, os.getcwd()):  # noqa: PTH109 - see jobs/request/caller.py
            where = "exists on this machine, but not in the job's containers"
            self.note(f"warning: {word} {where}; to copy this folder to the hosts: {option} .")

    def submit(self, request: JobRequest) -> "Job":
        """Start a job and return; it continues by itself.

        Raises:
            UsageError: its name is taken, or as `resolve`.
            TacoLaunchError: no host can be its place; nothing is kept of it.
        """
        return self._submit(request)

    def _submit(self, request: JobRequest, *, same_code: bool = False) -> "Job":
        with _typed(request) as checked:
            spec = self.with_code(self._resolved(checked), checked, same=same_code)
            found = self.backend.submit(spec, self.environ)
            require_started(found)
        return self._begun(found)

    def run(
        self, request: JobRequest, output: Output = lambda _data: None, watch: FollowListener | None = None
    ) -> "Job":
        """Start a job, follow it to its end, and return it; `output` is given its log. Raises as `submit` does.

        A job whose ranks fail raises nothing: `exit_code` of what is returned tells. KeyboardInterrupt stops the job first.
        """
        from taco_launch.api.followed_job import run_or_stop  # noqa: PLC0415 - the command line has a way of its own

        with _typed(request) as checked:
            spec = self.with_code(self._resolved(checked), checked)
            found = run_or_stop(self.backend, spec, self.environ, output, watch or FollowListener())
        return self._begun(found)

    def map(self, request: JobRequest, matrix: "Mapping[str, Sequence[object]]") -> "list[Job]":
        """Start a job for each combination of the values in `matrix`; return them in that order.

        Each name of `matrix` is a variable of the job's environment, and `{NAME}` in a word of its command is its value.

        Raises:
            TacoLaunchError: as `submit`; the message names the jobs that have started.
        """
        from taco_launch.api.several_jobs import start_all  # noqa: PLC0415 - the command line has no use for it

        with _typed(request) as checked:
            pass  # `submit` tells of all else
        self._code = None
        return start_all(lambda each: self._submit(each, same_code=True), checked, matrix)

    def as_completed(self, jobs: "Iterable[Job]", *, timeout: float | None = None) -> "Iterator[Job]":
        """Yield each of these jobs once it has ended, in the order of their ends, for at most `timeout` seconds.

        Raises:
            TimeoutError: some have not ended by then. They run on.
        """
        from taco_launch.api.several_jobs import as_completed  # noqa: PLC0415 - see above

        return as_completed(self.backend, jobs, timeout)

    def wait_all(self, jobs: "Iterable[Job]", *, timeout: float | None = None) -> "tuple[int, ...]":
        """Wait until all of these jobs have ended, for at most `timeout` seconds; return their exit codes in their order.

        Raises:
            TimeoutError: some have not ended by then. They run on.
        """
        jobs = tuple(jobs)
        ended = {job.name: job.exit_code or 0 for job in self.as_completed(jobs, timeout=timeout)}
        return tuple(ended[job.name] for job in jobs)

    def job(self, name: str) -> "Job":
        """Return a job by its name.

        Raises:
            NoJobError: it does not exist.
        """
        return self._job(self.backend.get(name))

    def _begun(self, found: "JobView") -> "Job":
        for warning in found.record.warnings:
            self.say(f"warning: {warning}")
        return self._job(found)

    def _job(self, found: "JobView") -> "Job":
        from taco_launch.api.job import Job  # noqa: PLC0415 - the command line has its own view of a job

        return Job(self.backend, found)

    def jobs(self) -> "tuple[JobRow, ...]":
        """Return a row of every job, the newest first."""
        rows, warnings = self.backend.list()
        for warning in warnings:
            self.say(f"warning: {warning}")
        return rows

    def variants(self) -> "tuple[VariantUse, ...]":
        """Return the containers that jobs have beside the cluster's own, and which jobs need them."""
        records = self.backend.containers
        return () if records is None else records.variants()

    def plan(self, request: JobRequest, *, folder: str = "", explain: bool = False) -> "Planned":
        """Plan a job as the head would, were all of its hosts free, and start nothing.

        Facts that are not declared are asked of the hosts. `folder` is where the files will lie that the line names; `explain`
        asks hosts for their GPUs, too.

        Raises:
            PlacementError: the job does not fit; or as `resolve`.
        """
        with _typed(request) as checked:
            return self.plan_of(self._resolved(checked), folder=folder, explain=explain)

    def plan_of(
        self, spec: JobSpec, *, folder: str = "", explain: bool = False, facts: "Sequence[HostFacts]" = ()
    ) -> "Planned":
        """Plan a job that was resolved. See `plan`; `facts` are those of its hosts, where they are known already."""
        from taco_launch.core.launch.missing_facts import missing_facts  # noqa: PLC0415

        if self._source is None and not facts and missing_facts(spec):
            self.backend.prestart("facts")  # it loads what it needs while this process does
        from taco_launch.jobs import dry_run as plan  # noqa: PLC0415 - loaded while the agent loads

        def ask(missing: Sequence[str]) -> HeadFacts:
            self.say(f"asking the head for: {', '.join(missing)}")
            path = self.environ.get("PATH", os.defpath)
            count_slots = any(host.slots is None for host in spec.hosts)
            return self.backend.facts(mpirun=spec.mpirun, path=path, count_slots=count_slots, topology=explain)

        def ask_hosts(missing: Sequence[str]) -> "tuple[tuple[HostFacts, ...], tuple[str, ...]]":
            # the software of a job's own container is asked in that, where it is there
            from taco_launch.hosts.gather_facts import in_container, job_hosts  # noqa: PLC0415 - only where hosts are asked

            inside = self.inventory if spec.container is None else in_container(self.inventory, spec.container)
            count = "one host" if len(spec.hosts) == 1 else f"{len(spec.hosts)} hosts"
            self.say(f"asking {count} for: {', '.join(missing)}")
            topology = explain or plan.may_choose(spec)
            return job_hosts(inside, spec.hosts, self.access, topology=topology)

        root = os.geteuid() == 0
        return plan.dry_run(spec, self.environ, ask, ask_hosts, root=root, folder=folder, explain=explain, facts=facts)

    def planned_container(self, spec: JobSpec) -> "tuple[JobSpec, tuple[HostPlan, ...]]":
        """Return a job as it would run, and what would be prepared for its container; nothing is changed.

        Raises:
            HostError: the head cannot be reached.
        """
        from taco_launch.setup.job_containers import prepare  # noqa: PLC0415 - see above

        records = self.backend.containers
        if records is None:
            return spec, ()
        listener = prepare.SetupListener(self._told, self.say, self.say)
        return prepare.plan(spec, self.inventory, self.access, records.find_variant, listener)

    # --- hosts

    def facts(self, *names: str) -> "tuple[HostFacts, ...]":
        """Return what is known of hosts, by default all of them, asked now.

        Raises:
            UsageError: a host is not in the inventory.
            HostError: a host does not answer.
        """
        from taco_launch.api.host_facts import facts_of  # noqa: PLC0415 - only where hosts are asked

        return facts_of(self.inventory, names, self.access)


@contextmanager
def _typed(request: JobRequest) -> Iterator[JobRequest]:
    """Yield a request with values of the right types; errors inside the block name the fields of the request.

    One that was typed as options has the right types, and its errors name these.
    """
    if request.written:
        yield request
        return
    from taco_launch.jobs.request.python_values import coerce_fields, errors_with_fields  # noqa: PLC0415 - the command line's requests have their types

    with errors_with_fields():
        yield coerce_fields(request)
