"""The plan of a job without mpirun: a command on each host, started there by its guard, for torchrun and for `env`."""

from dataclasses import replace
from typing import Dict, Iterable, Iterator, List, Sequence, Tuple

from taco_launch.core.launch.command_line.env import TORCH_SOCKETS, VISIBLE_GPUS, elastic_env, mark, rendezvous
from taco_launch.core.launch.command_line.host_env import HostEnv, host_env, with_gpus
from taco_launch.core.launch.command_line.overrides import Option, command_tokens
from taco_launch.core.launch.command_line.remarks import draft_of, remarks
from taco_launch.core.launch.command_line.request_checks import check_once
from taco_launch.core.launch.command_line.separator import escape
from taco_launch.core.launch.command_line.torch_sockets import WHY, with_sockets
from taco_launch.core.launch.launchers import env as per_slot
from taco_launch.core.model.job_facts import JobFacts
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.model.launchers import launcher_of
from taco_launch.core.model.plans import HostCommand, LaunchPlan, Placement, Token, numbered

# How often torchrun looks whether its ranks live; 5 s before torch 2.3, which each job would take longer to end.
_MONITOR_SECONDS = "1"
# Each lost host costs a restart. The supervisor ends a job whose ranks fail again and again while no host comes or goes.
_ELASTIC_RESTARTS = "1000"
# join_timeout: a host that joins waits for the next round as long as the others train. last_call_timeout: with the least
# number of hosts a round waits so many seconds for more (torch/distributed/elastic/rendezvous/dynamic_rendezvous.py).
_RENDEZVOUS = "join_timeout=600,last_call_timeout=5"


def plan(
    spec: JobSpec, job_id: str, placement: Placement, facts: JobFacts, wrapper: Sequence[str], _folder: str, port: int
) -> LaunchPlan:
    """Build the LaunchPlan; what a profile sets by `-x` is set for the ranks, its options of mpirun itself are not used.

    `wrapper` is what stands before the command on each host: for torchrun the argv of the agent's rank wrapper, for `env`
    that of what starts it once for each rank; the last word is `--`. `port` is the one of the rendezvous.

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
        if launcher_of(spec).sets_rendezvous:
            before = _torchrun_tokens(spec, placement, number, port)
            behind = [replace(token, text=_torchrun_argument(token.text)) for token in command[1:]]
            lines = [[*_behind_env(set_), *before, *command[:1], *behind]]
            argv = (*(token.text for token in before), *wrapper[:1], *map(_torchrun_argument, wrapper[1:]))
        else:
            gpus = {**dict(dict(own).get(share.host, ())), **dict(spec.env)}.get(VISIBLE_GPUS) or ""
            lines = []
            for local, rank in enumerate(ranks):
                of_rank = per_slot.settings(spec, placement, share.host, rank, local, port, gpus)
                named = {token.text.partition("=")[0] for token in of_rank} & {VISIBLE_GPUS}
                both = [*(token for token in set_ if token.text.partition("=")[0] not in named), *of_rank]
                lines.append([*_behind_env(both), *command, *per_slot.behind(spec, local)])
            argv = per_slot.argv(spec, wrapper, ranks, placement.np, gpus)
        words += lines
        env = {**values, **dict(mark(spec.name, job_id)), **(elastic_env(ranks[0]) if spec.elastic else {})}
        typed = tuple(tuple(token.text for token in line) for line in lines)
        escaped = map(escape, spec.command)
        argv = (*argv, *(map(_torchrun_argument, escaped) if launcher_of(spec).sets_rendezvous else escaped))
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


def _torchrun_argument(word: str) -> str:
    """Return an argument as torchrun passes it on unchanged: it puts `$$` and `${local_rank}` into its program's arguments.

    The program itself, the first word, is left as it is (torch/distributed/elastic/utils/api.py, macros.substitute).
    """
    return word.replace("$", "$$")


def _torchrun_tokens(spec: JobSpec, placement: Placement, number: int, port: int) -> List[Token]:
    """Return torchrun and its options on the host with that number in the placement.

    Every host meets the others at the address of rank 0's host (torchrun's static rendezvous): so ranks are numbered in the
    order of the placement, which a c10d rendezvous does not promise. Options are spelled with `_`, as torch 1.10 to 2.x take
    them (torch/distributed/run.py); 2.0 was the first to take `-`.
    """
    if spec.elastic:
        return _elastic_tokens(spec, placement, number, port)
    address, port_ = rendezvous(spec, placement, port)
    options = (
        ("--nnodes", str(len(placement.shares)), "the job's hosts"),
        ("--nproc_per_node", str(placement.shares[number].ranks), "the ranks of this host"),
        ("--node_rank", str(number), "the position of this host among the job's hosts"),
        ("--master_addr", address, "the hosts meet at the host of rank 0"),
        ("--master_port", port_, "a port that is free there when the job starts"),
        ("--max_restarts", "0", "the job's restart policy retries it, not torchrun"),
        ("--monitor_interval", _MONITOR_SECONDS, "seconds between torchrun's checks whether its ranks have ended"),
    )
    return _torchrun(options)


def _elastic_tokens(spec: JobSpec, placement: Placement, number: int, port: int) -> List[Token]:
    """Return torchrun and its options on a host that may be joined and left by others (torchrun's c10d rendezvous).

    The first host has the store where all meet. Ranks are numbered anew in each round.
    """
    address, port_ = rendezvous(spec, placement, port)
    share = placement.shares[number]
    own = next(host.address for host in spec.hosts if host.name == share.host)
    options = (
        ("--nnodes", f"{spec.least_hosts}:{spec.host_count}", "--elastic: between so many hosts"),
        ("--nproc_per_node", str(share.ranks), "the ranks of this host"),
        ("--rdzv_backend", "c10d", "torchrun's rendezvous that hosts can join and leave"),
        ("--rdzv_endpoint", f"{address}:{port_}", "the hosts meet at the first host"),
        ("--rdzv_id", spec.name, "the job"),
        ("--rdzv_conf", f"is_host={int(number == 0)},{_RENDEZVOUS}", "the first host has the store"),
        ("--local_addr", own, "where the others reach this host"),
        ("--max_restarts", _ELASTIC_RESTARTS, "a host that comes or goes restarts all ranks"),
        ("--monitor_interval", _MONITOR_SECONDS, "seconds between torchrun's checks whether its ranks have ended"),
    )
    return _torchrun(options)


def _torchrun(options: Iterable[Tuple[str, str, str]]) -> List[Token]:
    found = [Token("torchrun", "user", "--launcher torchrun")]
    found += [Token(word, "launcher", why) for option, value, why in options for word in (option, value)]
    return [*found, Token("--no_python", "launcher", "the command names its own program, such as python")]
