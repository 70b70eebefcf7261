"""A request, an inventory and its caller -> the JobSpec that a head can run, or everything that is wrong with the request."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from taco_launch.core.command import shell
from taco_launch.core.errors import Fault, SpecError, TacoLaunchError, UsageError, quoted
from taco_launch.core.launch.light_program import with_light
from taco_launch.core.model.engines import ENGINES, SlurmOptions
from taco_launch.core.model.host.hosts import Container, Host, Inventory
from taco_launch.core.model.job_request import OF_CONTAINER, OF_SLURM, JobRequest
from taco_launch.core.model.jobs import JobSpec, NetworkOverrides, Policy, Profile, TensorBoard
from taco_launch.core.model.launchers import LAUNCHERS
from taco_launch.hosts.inventory import profile, select
from taco_launch.hosts.inventory.load import SHIPPED, typed_anywhere
from taco_launch.hosts.inventory.schema import names
from taco_launch.jobs.request import job_names, nested, policy, sizes
from taco_launch.jobs.request.caller import Caller

# Of a line in quotes, no more letters than these.
_MOST_SHOWN = 60
# What torch.utils.tensorboard writes to where nobody says anything else; how long a TensorBoard outlives its job.
_LOGDIR, _BOARD_GRACE_SECONDS = "runs", 600.0
T = TypeVar("T")
# (name, value) of environment variables, and of MCA parameters.
_Variables = tuple[tuple[tuple[str, str | None], ...], tuple[tuple[str, str], ...]]


def resolve(request: JobRequest, inventory: Inventory, caller: Caller) -> JobSpec:
    """Return the job that is requested, with all that the inventory says of it.

    Raises:
        NestedLauncherError: the command is a launcher, which ours would start for each rank.
        UsageError: parts of the request contradict each other, there is no command, or it is a line in quotes.
        SpecError: a value of the request, the inventory or the profile is wrong; or several things are, then all of them.
    """
    problems: list[TacoLaunchError] = []

    def each(read: Callable[[], T], otherwise: T) -> T:
        """Return what `read` does, and keep its error, so that the others are found, too."""
        try:
            return read()
        except (UsageError, SpecError) as error:
            problems.append(error)
            return otherwise

    nothing: dict[str, Any] = {}
    no_variables: _Variables = (), ()
    nobody: tuple[Host, ...] = ()
    each(lambda: _check_command(request.command, caller), None)
    size = each(lambda: sizes.sizes(request), nothing)
    name = each(lambda: _name(request), "")
    env, mca = each(lambda: _variables(request, caller), no_variables)
    hosts = each(lambda: _hosts(request, inventory, caller), nobody)
    launcher = each(lambda: _launcher(request), "")
    asked = each(lambda: _asked(request), NetworkOverrides())
    options = each(lambda: profile_of(inventory, request.profile, caller.environ), Profile())
    rules = each(
        lambda: policy.policy(
            request, inventory.host_loss_timeout, inventory.notify, typed_anywhere(inventory, caller.folder)
        ),
        Policy(),
    )
    inside = each(lambda: _container(request, inventory), None)
    workdir = each(lambda: _workdir(request), "")
    board = each(lambda: _board(request), None)
    asked_of_slurm = each(lambda: _slurm(request, inventory, hosts), None)
    if problems:
        raise _one(problems, request)
    spec = JobSpec(
        name=name,
        command=with_light(request.command) if asked.light and not _has_lightcc(inside) else request.command,
        hosts=hosts,
        launcher=launcher,
        per_host=request.per_host,
        head=_head(inventory, hosts),
        env=env,
        mca=mca,
        asked=asked,
        profile=options,
        network=inventory.network,
        container=inside,
        # the inventory says versions of its own image's software
        versions=inventory.versions
        if inside is None or inventory.container is None or inside.image == inventory.container.image
        else (),
        cwd=workdir if workdir.startswith("/") else caller.folder,
        workdir=workdir,
        mpirun=inventory.mpirun,
        cluster=inventory.cluster,
        owner=caller.user,
        policy=rules,
        exclusive=request.exclusive,
        tensorboard=board,
        slurm=asked_of_slurm,
        **size,
    )
    nested.refuse(spec, caller)
    _check_program(spec.command[0], caller)
    return spec


def _has_lightcc(container: Container | None) -> bool:
    return container is not None and "lightcc" in container.provides


def _board(request: JobRequest) -> TensorBoard | None:
    """Return the TensorBoard beside the job; what belongs to one is refused where there is none.

    Raises:
        UsageError: an option is given without --tensorboard, or the folder is none of the head.
    """
    called = request.called("tensorboard")
    for name in ("logdir", "tensorboard_grace"):
        if getattr(request, name) is not None and not request.tensorboard:
            raise UsageError(f"{request.called(name)} requires {called}", hint=f"add {called}")
    if not request.tensorboard:
        return None
    if request.logdir is not None and ("\0" in request.logdir or "://" in request.logdir):
        raise UsageError(f"{request.called('logdir')}: {request.logdir!r} is not a folder of the head")
    grace = request.tensorboard_grace
    return TensorBoard(request.logdir or _LOGDIR, _BOARD_GRACE_SECONDS if grace is None else grace)


def _one(problems: Sequence[TacoLaunchError], request: JobRequest) -> TacoLaunchError:
    """Return the error of all that is wrong."""
    if len(problems) == 1:
        problem = problems[0]
        where = f"{request.source}: " if request.source and isinstance(problem, UsageError) else ""
        return UsageError(where + problem.message, problem.hint) if where else problem
    faults: list[Fault] = []
    for problem in problems:
        if isinstance(problem, SpecError):
            other = "" if problem.source in (names.COMMAND_LINE, request.source) else problem.source
            faults += [fault._replace(path=": ".join(filter(None, (other, fault.path)))) for fault in problem.faults]
        else:
            faults.append(Fault("", "", problem.message, problem.hint or ""))
    return SpecError(request.source or names.COMMAND_LINE, tuple(faults))


# Commands that a shell has in itself (POSIX, 2.14, and bash).
_BUILTINS = frozenset(
    ("cd", "source", ".", "export", "set", "unset", "alias", "ulimit", "umask", "eval", "exec", "trap")
)


def _check_command(command: tuple[str, ...], caller: Caller) -> None:
    """Refuse no command, and a whole line as one word, as ranks would: no program has such a name.

    Raises:
        UsageError: there is no command, or it is a whole line in one word.
    """
    if not command:
        raise UsageError("the command is missing", hint="it goes after --, or in the job file")
    program, *words = command
    if not words and len(program.split()) > 1 and not (caller.is_program(program) or caller.is_file(program)):
        shown = repr(program if len(program) <= _MOST_SHOWN else f"{program[:_MOST_SHOWN]}...")
        raise UsageError(f"no program has the name {shown}", hint=quoted(program))


def _check_program(program: str, caller: Caller) -> None:
    """Refuse what only a shell understands at the start of a line.

    Raises:
        UsageError: it is an assignment, or a command that a shell has in itself.
    """
    if re.fullmatch(r"[A-Za-z_]\w*=.*", program, re.DOTALL) and not caller.is_file(program):
        raise UsageError(
            f"{shell([program])} sets a variable, which only a shell does before a command",
            hint=f"-x {shell([program])}",
        )
    if program in _BUILTINS and not caller.is_program(program):
        hint = f"to run it with what follows: sh -c '{program} ...; COMMAND'; to start in a folder: --workdir FOLDER"
        raise UsageError(f"{program} is a command of the shell, and no program", hint=hint)


def _name(request: JobRequest) -> str:
    if request.name is None:
        return job_names.default_name(request.command or ("job",))
    return names.job_name(request.name, request.called("name"))


def _launcher(request: JobRequest) -> str:
    name = request.launcher or "mpirun"
    if request.per_host and not LAUNCHERS[name].is_ours:
        per_host, launcher = request.called("per_host"), request.called("launcher")
        hint = f"add {launcher} env, or omit it"
        raise UsageError(f"{per_host}: {launcher} {name} starts a process for each rank", hint=hint)
    return name


def _asked(request: JobRequest) -> NetworkOverrides:
    interface = request.interface
    return NetworkOverrides(
        transport=request.transport,
        interface=interface if interface is None else names.interface(interface, request.called("interface")),
        gdr=request.gdr,
        light=bool(request.light),
    )


def _variables(request: JobRequest, caller: Caller) -> _Variables:
    """Return the variables and MCA parameters; the table of knobs is loaded only for some."""
    if not (request.env or request.knobs or request.mca or request.env_files):
        return (), ()
    from taco_launch.jobs.request import variables  # noqa: PLC0415 - the table of knobs is large

    lax, environ = request.allow_unknown_knobs, caller.environ
    own = dict(request.env)
    of_files, unset = variables.read(request.env_files, environ, allow_unknown=lax)
    env = (*((name, value) for name, value in of_files.items() if name not in own), *request.env)
    for name in [name for name in unset if name not in own]:
        caller.note(f"note: {unset[name]}: {name} {variables.NOT_SET}, so the ranks do not get it")
    found = variables.check(env, request.knobs, request.mca, environ, allow_unknown=lax)
    return found.env, found.mca


def _workdir(request: JobRequest) -> str:
    """Return where the ranks start; what a request says of code is only looked at where there is some."""
    if (request.sync, request.workdir, request.sync_max, request.code_at) == (None, None, None, None):
        return ""
    from taco_launch.jobs.request import code_options  # noqa: PLC0415 - few jobs have code of their own

    return code_options.check(request)


def _hosts(request: JobRequest, inventory: Inventory, caller: Caller) -> tuple[Host, ...]:
    if request.host is None:
        hosts = inventory.job_hosts
    elif inventory.source == SHIPPED:
        hosts = select.hosts_of(request.host, caller.local_names())
    else:
        hosts = select.choose(replace(inventory, hosts=inventory.job_hosts), request.host)
    narrowing = (request.gpu_ids, request.gpus, request.gpu_topology) != (None, None, None)
    if not narrowing and not (request.exclude or request.selectors or request.gpu_models):
        return tuple(hosts)
    from taco_launch.jobs.request.selection import narrow  # noqa: PLC0415 - few jobs ask for it

    return narrow(request, inventory, hosts)


def profile_of(inventory: Inventory, wanted: str | None, environ: Mapping[str, str]) -> Profile:
    """Return the profile that was requested, or the inventory's, a path in which counts from the inventory's folder."""
    name = wanted or inventory.profile
    if wanted is None and names.is_profile_path(name):
        name = str(Path(inventory.source).parent / Path(name).expanduser())
    return profile.load(name, inventory.source, environ)


def _slurm(request: JobRequest, inventory: Inventory, hosts: tuple[Host, ...]) -> SlurmOptions | None:
    """Return what is asked of Slurm, None where another engine keeps the queue.

    Raises:
        UsageError: Slurm is asked for something, and there is none; or as its own `options` does.
    """
    engine = ENGINES.get(inventory.engine)
    if engine is not None and engine.options:
        options: SlurmOptions = import_module(engine.options).options(request, inventory, hosts)
        if not inventory.slurm.containers or all(getattr(request, name) in (None, ()) for name in OF_CONTAINER):
            return options
        inside = import_module(f"{__package__}.container").on_slurm(request, inventory)
        return replace(options, container=inside)
    if request.array is not None and request.array.limit is not None:
        raise UsageError(
            f"--array: the limit %{request.array.limit} works only with Slurm",
            hint=f"omit %{request.array.limit}: each job starts when slots are free",
        )
    first = next((name for name in OF_SLURM if getattr(request, name)), None)
    if first is not None:
        hint = "use -i slurm: on a login node, or -i slurm:USER@LOGIN"
        raise UsageError(f"{request.called(first)} works only with Slurm", hint=hint)
    return None


def _head(inventory: Inventory, hosts: tuple[Host, ...]) -> str:
    """Return the host that mpirun runs on; this machine may go under another name that -H gave it."""
    if inventory.container is not None or any(host.name == inventory.head for host in hosts):
        return inventory.head
    return next((host.name for host in hosts if host.connection == "local"), inventory.head)


def _container(request: JobRequest, inventory: Inventory) -> Container | None:
    """Return the container that a job runs in; what says which is loaded where one is asked for."""
    if inventory.slurm.containers or all(getattr(request, name) in (None, ()) for name in OF_CONTAINER):
        return inventory.container
    from taco_launch.jobs.request.container import container_of  # noqa: PLC0415 - see above

    return container_of(request, inventory)
