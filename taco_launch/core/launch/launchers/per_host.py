"""The plan of a job without mpirun: a command on each host, started there by its guard."""

from dataclasses import replace
from typing import Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from taco_launch.core.launch.command_line.env import TORCH_SOCKETS, VISIBLE_GPUS, elastic_env, mark
from taco_launch.core.launch.command_line.host_env import HostEnv, host_env, with_gpus
from taco_launch.core.launch.command_line.overrides import Option, command_tokens
from taco_launch.core.launch.command_line.remarks import draft_of, remarks
from taco_launch.core.launch.command_line.request_checks import check_once
from taco_launch.core.launch.command_line.separator import escape
from taco_launch.core.launch.command_line.torch_sockets import WHY, with_sockets
from taco_launch.core.launch.launchers import env as per_slot
from taco_launch.core.model.job_facts import JobFacts
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.model.plans import HostCommand, LaunchPlan, Placement, Token, numbered

Starter = Callable[[JobSpec, Placement, int, int, Sequence[str]], "HostLine"]


class HostLine(NamedTuple):
    """The words that start a launcher on one host; the job's own command follows them."""

    tokens: Tuple[Token, ...]  # as a person would type it
    argv: Tuple[str, ...]
    # quotes an argument of the command, so that the launcher passes it on unchanged
    escape: Callable[[str], str] = str


def plan(
    spec: JobSpec, job_id: str, placement: Placement, facts: JobFacts, wrapper: Sequence[str], _folder: str, port: int
) -> LaunchPlan:
    """Build the LaunchPlan for `env`, our own starter; `wrapper` starts the command once for each rank. Raises as `plan_hosts`."""
    return plan_hosts(spec, job_id, placement, facts, wrapper, port, None)


def plan_hosts(
    spec: JobSpec,
    job_id: str,
    placement: Placement,
    facts: JobFacts,
    wrapper: Sequence[str],
    port: int,
    starter: Optional[Starter],
) -> LaunchPlan:
    """Build the LaunchPlan; what a profile sets by `-x` is set for the ranks, its options of mpirun itself are not used.

    `starter` returns what starts the ranks of the host with a number in the placement; None for our own, `env`. `wrapper` is
    the argv of the agent's that it gets; the last word is `--`. `port` is the one of the rendezvous.

    Raises:
        UsageError: this machine is taken under two names.
        UnusableError: RDMA is requested, and a host has none.
    """
    check_once(spec, placement)
    draft = draft_of(spec, placement, facts, "", only_env=True)
    decisions, given, options = draft.decisions, draft.given, draft.options
    of_gpus = with_gpus(host_env(spec, decisions), spec, placement, facts, options)
    own = with_sockets(of_gpus, spec, placement, facts, decisions, options)
    values = {name: value for option in options for name, value in option.env if value is not None}
    passed = tuple(name for option in options for name, value in option.env if value is None)
    words: List[List[Token]] = []
    commands: List[HostCommand] = []
    for number, (share, ranks) in enumerate(numbered(placement.shares)):
        set_ = [*_settings(options), *_of_host(dict(own).get(share.host, ()), values)]
        command = [*command_tokens(spec.command)]
        escaped = map(escape, spec.command)
        if starter is not None:
            line = starter(spec, placement, number, port, wrapper)
            behind = [replace(token, text=line.escape(token.text)) for token in command[1:]]
            lines = [[*_behind_env(set_), *line.tokens, *command[:1], *behind]]
            argv = (*line.argv, *map(line.escape, escaped))
        else:
            gpus = {**dict(dict(own).get(share.host, ())), **dict(spec.env)}.get(VISIBLE_GPUS) or ""
            lines = []
            for local, rank in enumerate(ranks):
                of_rank = per_slot.settings(spec, placement, share.host, rank, local, port, gpus)
                named = {token.text.partition("=")[0] for token in of_rank} & {VISIBLE_GPUS}
                both = [*(token for token in set_ if token.text.partition("=")[0] not in named), *of_rank]
                lines.append([*_behind_env(both), *command, *per_slot.behind(spec, local)])
            argv = (*per_slot.argv(spec, wrapper, ranks, placement.np, gpus), *escaped)
        words += lines
        env = {**values, **dict(mark(spec.name, job_id)), **(elastic_env(ranks[0]) if spec.elastic else {})}
        typed = tuple(tuple(token.text for token in line) for line in lines)
        commands.append(HostCommand(share.host, argv, typed, ranks, tuple(env.items()), passed))
    return LaunchPlan(
        tuple(words[0]), tuple(commands), own, (), (*_unused(given, spec, own, placement), *remarks(draft))
    )


def _settings(options: Iterable[Option]) -> Iterator[Token]:
    """Yield what is set for all hosts as words of env(1); what is passed on, whoever types the line has already."""
    for option in options:
        if option.env[0][1] is not None:
            yield option.tokens[-1]


def _of_host(own: Sequence[Tuple[str, str]], values: Dict[str, str]) -> Iterator[Token]:
    for name, value in own:
        if name not in values:
            yield Token(f"{name}={value}", "fact", WHY if name in TORCH_SOCKETS else "this host's own value")


def _behind_env(settings: Sequence[Token]) -> List[Token]:
    """Return settings as words that stand before a command; of two of one name the first."""
    named: Dict[str, Token] = {}
    for token in settings:
        named.setdefault(token.text.partition("=")[0], token)
    return (
        [Token("env", "launcher", "sets the variables that follow for the command"), *named.values()] if named else []
    )


def _unused(given: Sequence[Option], spec: JobSpec, own: HostEnv, placement: Placement) -> Iterator[str]:
    names = [option.key[1] for option in given if not option.env]
    if names:
        yield f"--mca {', '.join(names)}: not used: --launcher {spec.launcher} starts the ranks without mpirun"
    if spec.mps and not dict(spec.env).get(VISIBLE_GPUS):
        gpus = {host for host, pairs in own if dict(pairs).get(VISIBLE_GPUS)}
        without = [share.host for share in placement.shares if share.slots and share.host not in gpus]
        if without:
            yield f"--mps: not used on {', '.join(without)}: the job has no GPU there, or CUDA_VISIBLE_DEVICES was set before"
