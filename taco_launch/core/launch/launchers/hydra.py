"""The line of mpiexec.hydra, the launcher of MPICH and Intel MPI, for a placed job.

Both take `-hosts A,B -ppn N`, or with unequal hosts `-machinefile FILE` of `HOST:N` lines, and `-genv NAME VALUE`; both give
the variables of mpiexec's own environment to the ranks, on all hosts (seen with MPICH 4.0 and 5.0, Intel MPI 2021.19).
"""

from typing import Dict, Iterator, List, Sequence, Tuple

from taco_launch.core.launch.command_line.decisions import Decisions, reached
from taco_launch.core.launch.command_line.env import mark
from taco_launch.core.launch.command_line.host_env import host_env, with_gpus
from taco_launch.core.launch.command_line.overrides import Option, command_tokens
from taco_launch.core.launch.command_line.remarks import draft_of, remarks
from taco_launch.core.launch.command_line.request_checks import check_once
from taco_launch.core.launch.command_line.separator import escape
from taco_launch.core.launch.command_line.torch_sockets import with_sockets
from taco_launch.core.model.job_facts import JobFacts
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.model.launchers import LAUNCHERS, launcher_of
from taco_launch.core.model.plans import HostCommand, LaunchPlan, Placement, PlanFile, Token

# -iface is for mpiexec and its proxies; libfabric, by which the ranks speak, reads this (fi_tcp(7)). Without it Intel MPI
# waits for ever where all hosts have an interface with one address, as docker0.
_OF_RANKS = "FI_TCP_IFACE"
# What runs instead of ssh, by environment: MPICH's name for it, and Intel MPI's.
_SSH = ("HYDRA_LAUNCHER_EXEC", "I_MPI_HYDRA_BOOTSTRAP_EXEC")
# The ports for mpiexec and its proxies, as FIRST:LAST.
_PORTS = ("MPIEXEC_PORT_RANGE", "I_MPI_PORT_RANGE")
# Hydra runs it as `FILE [OPTION...] HOST PROGRAM [ARGUMENT...]`. The proxy is started behind the agent's wrapper, so that
# what its ranks leave behind can be found.
_SCRIPT = """#!/bin/sh
options=
while [ "${1#-}" != "$1" ]; do
  options="$options $1"
  shift
done
host=$1
shift
exec ssh%s $options "$host" $TACO_LAUNCH_PROXY_AGENT "$@"
"""


def plan(
    spec: JobSpec, job_id: str, placement: Placement, facts: JobFacts, wrapper: Sequence[str], folder: str, _port: int
) -> LaunchPlan:
    """Build the LaunchPlan: what a profile sets by `-x` is set for the ranks, its options of Open MPI are not used.

    `wrapper` is the argv of the agent's rank wrapper, put before the command in the executed form; `folder` is where
    the files will lie, empty for the folder that the line is typed in.

    Raises:
        UsageError: this machine is taken under two names.
        UnusableError: RDMA is requested, and a host has none.
    """
    check_once(spec, placement)
    draft = draft_of(spec, placement, facts, folder, only_env=True)
    decisions, given, options = draft.decisions, draft.given, draft.options
    line, files = _hosts(spec, placement, folder, decisions)
    # As with mpirun, a value that the user gives may be a secret: the agent gives it to the ranks, and no argv has it.
    own = {option.key for option in given}
    settings = [token for option in options for token in _settings(option)]
    public = [token for option in options if option.key not in own for token in _settings(option)]
    command = [*command_tokens(spec.command)]
    executed = [token.text for token in (*line, *public)] + [*wrapper, *(escape(word) for word in spec.command)]
    script = _script(folder) if decisions.holds("elsewhere") else ""
    if script:
        port = "" if spec.container is None else f" -p {spec.container.ssh_port}"
        files = (*files, PlanFile(script, _SCRIPT % port, mode=0o700))
    of_gpus = with_gpus(host_env(spec, decisions), spec, placement, facts, options)
    tokens = (*line, *settings, *command)
    words = tuple(token.text for token in tokens)
    env = tuple(_env(spec, job_id, script).items())
    return LaunchPlan(
        tokens=tokens,
        commands=(HostCommand(spec.head, tuple(executed), (words,), tuple(range(placement.np)), env),),
        host_env=with_sockets(of_gpus, spec, placement, facts, decisions, options),
        files=files,
        warnings=(*_unused(given), *remarks(draft)),
    )


def _hosts(
    spec: JobSpec, placement: Placement, folder: str, decisions: Decisions
) -> Tuple[List[Token], Tuple[PlanFile, ...]]:
    """Return the program, its hosts and the number of ranks; and the file that names hosts with unequal numbers."""
    launcher = launcher_of(spec)
    default = spec.mpirun == LAUNCHERS["mpirun"].program
    program = launcher.program if default else spec.mpirun
    found = [Token(program, "default" if default else "inventory", "the launcher")]
    files: Tuple[PlanFile, ...] = ()
    hosts = reached(spec, placement)
    each = {ranks for _name, ranks in hosts}
    if [name for name, _ranks in hosts] == ["localhost"]:
        pass
    elif len(each) == 1:
        placed = ("-hosts", ",".join(name for name, _ranks in hosts), "-ppn", str(each.pop()))
        found += [Token(word, "launcher", placement.why) for word in placed]
    else:
        path = f"{folder}/machinefile" if folder else "machinefile"
        files = (PlanFile(path, "".join(f"{name}:{ranks}\n" for name, ranks in hosts)),)
        found += [Token(word, "launcher", placement.why) for word in ("-machinefile", path)]
    found += [Token(word, "launcher", "number of ranks") for word in ("-np", str(placement.np))]
    interface = decisions.values.get("interface")
    if interface is not None and len(hosts) > 1 and decisions.holds("one_interface"):
        words = ["-iface", interface.text]
        if _OF_RANKS not in dict(spec.env):
            words += ["-genv", _OF_RANKS, interface.text]
        found += [Token(word, interface.source, interface.why) for word in words]
    return found, files


def _settings(option: Option) -> Iterator[Token]:
    """Yield `-genv NAME VALUE` for `-x NAME=VALUE`; a variable of the caller reaches the ranks in any case."""
    ((name, value),) = option.env
    if value is not None:
        last = option.tokens[-1]
        for word in ("-genv", name, value):
            yield Token(word, last.source, last.why)


def _script(folder: str) -> str:
    return f"{folder}/hydra-ssh" if folder else "hydra-ssh"


def _env(spec: JobSpec, job_id: str, script: str) -> Dict[str, str]:
    """Return what goes by mpiexec's own environment: the mark, what runs instead of ssh, its ports."""
    env = dict(mark(spec.name, job_id))
    if script:
        env.update((name, script) for name in _SSH)
    if spec.network.port_range is not None:
        first, last = spec.network.port_range
        env.update((name, f"{first}:{last}") for name in _PORTS)
    return env


def _unused(given: Sequence[Option]) -> Iterator[str]:
    names = [option.key[1] for option in given if not option.env]
    if names:
        yield f"--mca {', '.join(names)}: not used: MCA parameters are Open MPI's, and --launcher hydra starts MPICH or Intel MPI"
