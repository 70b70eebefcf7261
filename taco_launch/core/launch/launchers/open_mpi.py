"""The mpirun line for a placed job, word by word with its reason, and the form in which it is executed."""

from typing import Dict, Sequence, Tuple

from taco_launch.core.command import shell
from taco_launch.core.errors import UsageError
from taco_launch.core.launch.command_line.decisions import Decisions, hostfile_path, reached
from taco_launch.core.launch.command_line.env import SESSIONS, mark
from taco_launch.core.launch.command_line.host_env import host_env, typed_gpus, with_gpus
from taco_launch.core.launch.command_line.overrides import command_tokens, tells_hosts
from taco_launch.core.launch.command_line.remarks import draft_of, remarks
from taco_launch.core.launch.command_line.request_checks import check_once
from taco_launch.core.launch.command_line.separator import escape
from taco_launch.core.launch.command_line.torch_sockets import with_sockets
from taco_launch.core.model.job_facts import JobFacts
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.model.plans import HostCommand, LaunchPlan, Placement, PlanFile, Token

# By environment, Open MPI 4.1 and PRRTE 3 (Open MPI 5.0): the default hostfile, ssh's arguments, and whether messages
# of several ranks are gathered into one, which is lost where the job ends at once.
_DEFAULT_HOSTFILE = ("OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile")
_SSH_ARGS = ("OMPI_MCA_plm_rsh_args", "PRTE_MCA_plm_ssh_args")
_AGGREGATE = ("OMPI_MCA_orte_base_help_aggregate", "PRTE_MCA_prte_base_help_aggregate")
_FEW_RANKS = 64
# Where Open MPI makes its session folders. By default all jobs of a user on a host have /tmp/ompi.HOST.UID, and 4.1 removes it
# with its last job, while another one may be making its own folder in there. Checked with 4.1.4 and 5.0.11: both pass the
# variable to the daemons on other hosts, which make the folder.
_SESSIONS = ("OMPI_MCA_orte_tmpdir_base", "PRTE_MCA_prte_tmpdir_base")
_JOB_FOLDER = "<folder of the job>"  # of a dry run
# By these a user has said where. Open MPI 4 refuses the second and third beside the first.
_OTHER_SESSIONS = ("tmpdir_base", "local_tmpdir_base", "remote_tmpdir_base", "top_session_dir")
_SESSION_NAMES = frozenset(f"{part}_{name}" for part in ("orte", "prte") for name in _OTHER_SESSIONS)
# sockaddr_un, for what Open MPI makes of it at most, /ompi.HOST.UID/pid.PID/pmix-PID: 4.1 and 5.0 have no socket there.
_MOST_SOCKET_PATH = 107
_SESSION_PATH = "/ompi.{}.4294967295/pid.4194304/pmix-4194304"


def plan(
    spec: JobSpec,
    job_id: str,
    placement: Placement,
    facts: JobFacts,
    wrapper: Sequence[str],
    folder: str,
    _port: int = 0,
) -> LaunchPlan:
    """Build the LaunchPlan.

    `wrapper` is the argv of the agent's rank wrapper, put before the command in the executed form; `folder` is where
    the files will lie that the line names, empty for the folder it is typed in.

    Raises:
        UsageError: mpirun cannot be given a host under the name it has.
        UnusableError: RDMA is requested, and a host has none.
    """
    draft = draft_of(spec, placement, facts, folder)
    decisions, options = draft.decisions, draft.options
    _check_names(spec, placement, decisions)
    launcher = Token(spec.mpirun, "inventory" if spec.mpirun != "mpirun" else "default", "the launcher")
    tokens = (launcher, *(token for option in options for token in option.tokens))
    command = tuple(command_tokens(spec.command))
    # What a user gives by `-x NAME=VALUE` may be a secret, and everybody on the hosts sees argv: the agent gives it to the
    # ranks (env.local_env).
    own = {("-x", name) for name, value in spec.env if value is not None}
    executed = [launcher.text, *(token.text for option in options if option.key not in own for token in option.tokens)]
    executed += [*wrapper, *(escape(word) for word in spec.command)]
    env = _env(spec, job_id, placement, facts, decisions)
    if wrapper:  # otherwise no agent removes the folders afterwards
        env.update(_session_env(spec, placement, facts, f"{folder or _JOB_FOLDER}/{SESSIONS}"))
    files: Tuple[PlanFile, ...] = ()
    if not tells_hosts(options):
        env.update((name, hostfile_path(folder)) for name in _DEFAULT_HOSTFILE)
    if not tells_hosts(options, by_file=False):
        files = (PlanFile(hostfile_path(folder), _hostfile(spec, placement)),)
    of_gpus = with_gpus(host_env(spec, decisions), spec, placement, facts, options)
    typed = (*tokens, *(token for option in typed_gpus(of_gpus, placement, facts) for token in option.tokens), *command)
    line_ = tuple(token.text for token in typed)
    head = HostCommand(spec.head, tuple(executed), (line_,), tuple(range(placement.np)), tuple(env.items()))
    return LaunchPlan(
        tokens=typed,
        commands=(head,),
        host_env=with_sockets(of_gpus, spec, placement, facts, decisions, options),
        files=files,
        warnings=remarks(draft),
    )


def line(tokens: Sequence[Token]) -> str:
    """Return the tokens as one line to paste into a shell."""
    return shell([token.text for token in tokens])


def _session_env(spec: JobSpec, placement: Placement, facts: JobFacts, path: str) -> Dict[str, str]:
    """Return the variables that give a job its own session folders; none where the user has chosen, or a path would be too long."""
    given = {name for name, _value in (*spec.mca, *spec.env, *(facts.environment or ()))}
    chosen = any(name.rpartition("_MCA_")[2] in _SESSION_NAMES for name in given)
    longest = max((share.host for share in placement.shares), key=len)
    if chosen or len((path + _SESSION_PATH.format(longest)).encode("utf-8", "surrogateescape")) > _MOST_SOCKET_PATH:
        return {}
    return dict.fromkeys(_SESSIONS, path)


def _hostfile(spec: JobSpec, placement: Placement) -> str:
    """Return the placement as a hostfile of Open MPI."""
    return "".join(f"{name} slots={ranks}\n" for name, ranks in reached(spec, placement))


def _check_names(spec: JobSpec, placement: Placement, decisions: Decisions) -> None:
    """Refuse what mpirun reads as something else; seen with 4.1.4 and 5.0.11.

    Raises:
        UsageError: a host has such a name.
    """
    check_once(spec, placement)
    for name, _ranks in reached(spec, placement):
        if "_" in name and decisions.holds("openmpi4"):
            raise UsageError(
                f"host {name}: Open MPI 4 does not accept '_' in a host's name",
                hint=f"give it another name in an inventory (hosts: {{{name.replace('_', '-')}: {{address: {name}}}}})",
            )
        if ":" in name:
            raise UsageError(
                f"host {name}: mpirun accepts no IPv6 address, only a name for it",
                hint=f'name it in an inventory (hosts: {{gpu1: {{address: "{name}"}}}}), and use -H gpu1',
            )


def _env(spec: JobSpec, job_id: str, placement: Placement, facts: JobFacts, decisions: Decisions) -> Dict[str, str]:
    """Return what goes by mpirun's own environment: the mark, and what the machinery needs besides the line."""
    env = dict(mark(spec.name, job_id))
    inherited = dict(facts.environment or ())
    if placement.np <= _FEW_RANKS:
        env.update((name, inherited.get(name, "0")) for name in _AGGREGATE)
    if spec.container is not None and decisions.holds("elsewhere"):
        port = f"-p {spec.container.ssh_port}"
        env.update((name, f"{inherited[name]} {port}" if inherited.get(name) else port) for name in _SSH_ARGS)
    return env
