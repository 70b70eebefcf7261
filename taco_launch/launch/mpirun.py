"""The mpirun line for a placed job, word by word with its reason, and the form in which it is executed."""

from typing import List, Sequence, Tuple

from taco_launch.command import shell
from taco_launch.launch.env import mark
from taco_launch.launch.separator import escape
from taco_launch.model.jobs import JobSpec
from taco_launch.model.plans import LaunchPlan, Placement, Token


def plan(spec: JobSpec, job_id: str, placement: Placement, wrapper: Sequence[str], *, root: bool) -> LaunchPlan:
    """Build the LaunchPlan.

    `wrapper` is the argv of the agent's rank wrapper, put before the command in the executed form; `root` says
    whether mpirun will run as root, which it refuses unless told.
    """
    # mpirun tries ssh for any name that does not resolve to this machine; its own it knows under this one.
    local = {host.name for host in spec.hosts if host.connection == "local"}
    hosts = ",".join(
        f"{'localhost' if share.host in local else share.host}:{share.ranks}" for share in placement.shares
    )
    tokens: List[Token] = [Token(spec.mpirun, "inventory" if spec.mpirun != "mpirun" else "default", "the launcher")]
    tokens += _option("-np", str(placement.np), "default" if spec.np is None else "user", "one process per rank")
    tokens += _option("-H", hosts, "launcher", placement.why)
    if root:
        tokens.append(Token("--allow-run-as-root", "fact", "the job runs as root, which mpirun refuses unless told"))
    tokens += _option("--bind-to", "none", "default", "a rank's threads may use every core, as Horovod advises")
    tokens += _option("--map-by", "slot", "default", "ranks of one host are neighbours, so its ring stays inside it")
    for name, value in spec.env:
        why = "the caller's value" if value is None else "given with -x"
        tokens += _option("-x", name if value is None else f"{name}={value}", "user", why)
    command = tuple(Token(word, "user", "the job's command") for word in spec.command)
    executed = [token.text for token in tokens]
    executed += [*wrapper, *(escape(word) for word in spec.command)]
    return LaunchPlan((*tokens, *command), tuple(executed), mark(spec.name, job_id))


def line(tokens: Sequence[Token]) -> str:
    """Give the tokens as one line to paste into a shell."""
    return shell([token.text for token in tokens])


def _option(name: str, value: str, source: str, why: str) -> Tuple[Token, Token]:
    return Token(name, source, why), Token(value, source, why)
