"""What a user should know of a line before it runs: what has no effect, costs something, or defies the environment."""

import re
from dataclasses import replace
from typing import Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from taco_launch.core.frozen import dataclass
from taco_launch.core.launch.command_line import profile_options as entries
from taco_launch.core.launch.command_line.decisions import Decisions, decide, versions
from taco_launch.core.launch.command_line.env import VISIBLE_GPUS
from taco_launch.core.launch.command_line.light_2d_allreduce import torus
from taco_launch.core.launch.command_line.nested_launcher import bare, inner
from taco_launch.core.launch.command_line.network_remarks import join_texts, network_remarks
from taco_launch.core.launch.command_line.overrides import Option, given_options, replaced, tells_hosts
from taco_launch.core.launch.command_line.profile_options import LeftOut
from taco_launch.core.launch.command_line.request_checks import check_asked
from taco_launch.core.launch.command_line.separator import words_mpirun_takes
from taco_launch.core.launch.light_program import names_light
from taco_launch.core.model.job_facts import JobFacts
from taco_launch.core.model.jobs import JobSpec, NetworkOverrides
from taco_launch.core.model.launchers import launcher_of
from taco_launch.core.model.plans import Placement

_SINGLE_DASH = re.compile(r"-(?!np$|mca$|hostfile$)[a-z]{2}")
_MPI_INCLUDES = ("btl_tcp_if_include", "oob_tcp_if_include", "prte_if_include")
_INTERFACE = re.compile(r"=?[A-Za-z][\w.-]*$")  # one name, no list and no network
# A variable, and an option of torch's launchers with nothing behind it. Small letters are Hydra's, which reads ${model.size}
# itself; a word of other characters may be code.
_VARIABLE = re.compile(r"[\w./:=,@%+~{}-]*(?<!\\)\$\{?[A-Z_][A-Z0-9_]*\b(?:\[[^\]\s]*\])?[\w./:=,@%+~{}$-]*", re.ASCII)
_EMPTY = re.compile(
    r"--(nnodes|nproc[-_]per[-_]node|node[-_]rank|master[-_](addr|port)|rank|local[-_]rank|world[-_]size)=$"
)
_SHELLS = ("sh", "bash", "dash", "ash", "ksh", "zsh")
_BY_A_SHELL = "for a shell in each rank, write sh -c 'PROGRAM --option=$NAME ...'"
_OTHER = "-"  # no interface's name
# What a shell would put in; a password may look so, a path does not.
_REFERENCE = re.compile(r"(?<!\\)\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*\})")
_KNOBS = ("NCCL_", "HOROVOD_", "LIGHT_", "UCX_")
Pairs = Sequence[Tuple[str, Optional[str]]]


@dataclass(frozen=True)
class Draft:
    """A line before it is told: what the profile gave (`ours`), what the user `given`, and what came of both.

    `decisions` are what `decide` made of all before it.
    """

    spec: JobSpec
    placement: Placement
    facts: JobFacts
    folder: str
    decisions: Decisions
    ours: Tuple[Option, ...]
    given: Tuple[Option, ...]
    options: Tuple[Option, ...]
    left_out: LeftOut


def draft_of(spec: JobSpec, placement: Placement, facts: JobFacts, folder: str, *, only_env: bool = False) -> Draft:
    """Decide what the line of a placed job has; with `only_env`, of its options those alone that set variables.

    Raises:
        UsageError: what is requested contradicts the placement.
        UnusableError: RDMA is requested, and a host has none.
    """
    check_asked(spec, placement, facts)
    decisions = decide(spec, placement, facts, folder)
    ours, left_out = entries.options(spec.profile, decisions)
    given = tuple(given_options(spec))
    options = torus(replaced(ours, given), spec, placement, facts, decisions)
    if only_env:
        options = [option for option in options if option.env]
        left_out = tuple(each for each in left_out if each[0].env)
    return Draft(spec, placement, facts, folder, decisions, tuple(ours), given, tuple(options), left_out)


def remarks(draft: Draft) -> Tuple[str, ...]:
    """Return all remarks on a line."""
    env = [pair for option in draft.options for pair in option.env]
    by_mpirun = launcher_of(draft.spec).is_open_mpi
    said = [
        *_left_out(draft),
        *_asked(draft),
        *_undone(draft),
        *(_hosts(draft) if by_mpirun else ()),
        *_gpus(draft),
        *_not_there(draft),
        *_cpus(draft),
        *(_reached(draft) if by_mpirun else ()),
        *network_remarks(draft.spec, draft.facts, draft.decisions, dict(env)),
        *_interfaces(draft.options),
        *_light(draft, env),
        *(_ports(draft.spec, draft.placement, draft.decisions) if by_mpirun else ()),
        *_openmpi5(draft.decisions, draft.options),
        *_overridden(draft.facts, draft.options),
        *(_taken(draft.spec) if by_mpirun else ()),
        *_inside(draft.spec),
        *_unread(draft.spec.command),
        *_lost(draft.spec),
        *_board(draft.spec, draft.placement),
    ]
    gpus = {host.host: host.gpus for host in draft.facts.hosts if host.gpus}
    said += given_remarks(draft.given, draft.placement, gpus)
    given = draft.given if by_mpirun else ()
    mca = [(option.tokens[1].text, option.tokens[-1].text) for option in given if option.key[0] == "mca"]
    pairs = [(name, value) for name, value in env if value is not None and name.startswith(_KNOBS)] + mca
    if _led(draft):
        pairs = [pair for pair in pairs if pair[0] != "NCCL_IB_GID_INDEX"]
    if pairs:
        # Only needed where there are such variables, and its table takes a while to load.
        from taco_launch.core.launch.knobs import remarks as knob_remarks  # noqa: PLC0415

        said += knob_remarks.remarks(pairs)
        said += knob_remarks.by_version(pairs, versions(draft.spec, draft.facts))
    return tuple(dict.fromkeys(said))


def _led(draft: Draft) -> bool:
    """Return whether the facts gave the GID index: then it is known why."""
    index = draft.decisions.values.get("gid_index")
    given = {name for option in draft.given for name, _value in option.env}
    return index is not None and index.source == "fact" and "NCCL_IB_GID_INDEX" not in given


def _left_out(draft: Draft) -> Iterator[str]:
    """Name the options that were left out for want of a fact, but for what the user gives instead."""
    given = {option.key for option in draft.given}
    waiting: Dict[str, List[str]] = {}
    for option, fact in draft.left_out:
        if option.key not in given:
            waiting.setdefault(fact, []).append(option.key[1])
    for fact, names in waiting.items():
        yield f"{', '.join(dict.fromkeys(names))}: left out, since {fact}"


def _asked(draft: Draft) -> Iterator[str]:
    """Name what was requested and has no place in the line."""
    asked = draft.spec.asked
    without: List[Tuple[str, NetworkOverrides]] = []
    if asked.transport in ("tcp", "rdma"):
        without.append((f"--transport {asked.transport}", replace(asked, transport="auto")))
    if asked.interface:
        without.append(("--interface", replace(asked, interface=_OTHER)))
    if asked.gdr is not None:
        without.append(("--gdr" if asked.gdr else "--no-gdr", replace(asked, gdr=not asked.gdr)))
    if asked.light:
        without.append(("--light", replace(asked, light=False)))
    one_host = len(draft.placement.shares) == 1
    for flag, other in without:
        if _line(draft, other) == [_text(option) for option in draft.ours]:
            why = "on one host" if one_host else f"under the profile {draft.spec.profile.name}"
            yield f"{flag} changes nothing on the line {why}"
    env = {name for option in draft.options for name, _value in option.env}
    if asked.transport == "tcp" and not one_host and not env & {"NCCL_IB_DISABLE", "NCCL_NET"}:
        yield "--transport tcp: nothing on the line keeps NCCL off RDMA: add -x NCCL_IB_DISABLE=1"
    if draft.decisions.holds("gdr") and draft.decisions.holds("tcp"):
        yield "GPUDirect RDMA is requested, but the job uses TCP: GPUDirect RDMA requires RDMA"


def _line(draft: Draft, asked: NetworkOverrides) -> List[str]:
    """Return the profile's options as they would be if this were requested."""
    spec = replace(draft.spec, asked=asked)
    decisions = decide(spec, draft.placement, draft.facts, draft.folder)
    return [_text(option) for option in entries.options(spec.profile, decisions)[0]]


def _undone(draft: Draft) -> Iterator[str]:
    """Name what the user gives by name in the place of what the user requested by an option."""
    line = {option.key: option for option in draft.given}
    for option in draft.ours:
        other = line.get(option.key)
        if other is not None and option.tokens[0].source == "user" and _text(option) != _text(other):
            yield f"{_text(other)} undoes {_text(option)} ({option.tokens[0].why})"


def _hosts(draft: Draft) -> Iterator[str]:
    if not tells_hosts(draft.options) and len(draft.placement.shares) > 1:
        yield (
            "the line names no hosts: mpirun reads them from its default hostfile, as under the MPI Operator; to paste the line "
            "elsewhere, write that file with --to DIR and set OMPI_MCA_orte_default_hostfile (5.0: PRTE_MCA_prte_default_hostfile)"
        )


def _gpus(draft: Draft) -> Iterator[str]:
    """Yield where ranks share GPUs, and which host has fewer than the others that are to take as many ranks."""
    have = {host.host: host.gpus for host in draft.facts.hosts if host.gpus}
    placed = {share.host: share.ranks for share in draft.placement.shares if share.host in have}
    crowded = [
        f"{host} has {have[host]} GPUs for {ranks} ranks" for host, ranks in placed.items() if ranks > (have[host] or 0)
    ]
    if crowded:
        yield f"ranks share GPUs: {join_texts(crowded)}"
    slots = {host.name: host.slots for host in draft.spec.hosts}
    for host in placed:
        most = max(have[other] or 0 for other in placed if slots[other] == slots[host])
        if (have[host] or 0) < most:
            yield (
                f"{host} has {have[host]} GPUs, and other hosts of the job have {most}: is a GPU missing? "
                f"taco-launch setup --check -H {host} shows it"
            )


def _cpus(draft: Draft) -> Iterator[str]:
    """Yield where ranks share CPUs: what they measure there says nothing of as many hosts or cores."""
    have = {host.host: host.cpus for host in draft.facts.hosts if host.cpus is not None}
    placed = [(share.host, share.ranks) for share in draft.placement.shares if share.host in have]
    crowded = [f"{host} has {have[host]} CPUs for {ranks} ranks" for host, ranks in placed if ranks > have[host]]
    if crowded:
        yield f"ranks share CPUs, and wait for one another: {join_texts(crowded)}"


def _not_there(draft: Draft) -> Iterator[str]:
    """Yield which GPUs are named that no host has, as far as that is known, by its GPUs or by its slots."""
    have = {host.host: host.gpus for host in draft.facts.hosts}
    counts = {host.name: have.get(host.name) or host.has or host.slots for host in draft.spec.hosts}
    named = {index for host in draft.spec.hosts for index in host.constraints.only}
    most = max((256 if count is None else count for count in counts.values()), default=0)
    beyond = sorted(index for index in named if index >= most)
    if beyond:
        yield f"--gpu-ids {_listed(beyond)}: no host of the job is known to have such a GPU: a host has at most {most}"
    for host in draft.spec.hosts:
        count = counts[host.name]
        beyond = [index for index in host.constraints.without if count is not None and index >= count]
        if beyond:
            yield f"--exclude {host.name}:{_listed(beyond)}: excludes nothing: {host.name} has only {count} GPUs or slots"


def _listed(indices: Sequence[int]) -> str:
    return ",".join(map(str, indices))


def _reached(draft: Draft) -> Iterator[str]:
    """A pasted line has no login, port or key of a host: ssh's own configuration has to know them."""
    placed = {share.host for share in draft.placement.shares}
    odd = [
        host.name
        for host in draft.spec.hosts
        if host.name in placed and host.connection == "ssh" and (host.user or host.port != 22 or host.identity_file)
    ]
    if odd and draft.spec.container is None and draft.decisions.holds("elsewhere"):
        more = f" and {len(odd) - 1} more" if len(odd) > 1 else ""
        yield f"{odd[0]}{more}: user, port or key are not on the line; where you paste it, ~/.ssh/config must define them"


def _interfaces(options: Sequence[Option]) -> Iterator[str]:
    """NCCL's and MPI's interface are as a rule the same: two names are a slip more often than a wish."""
    nccl = [value for option in options for name, value in option.env if name == "NCCL_SOCKET_IFNAME" and value]
    mpi = [
        option.tokens[-1].text for option in options if option.tokens[1:2] and option.tokens[1].text in _MPI_INCLUDES
    ]
    plain = {text.lstrip("=") for text in (*nccl, *mpi) if _INTERFACE.match(text)}
    if nccl and mpi and len(plain) > 1:
        yield f"NCCL_SOCKET_IFNAME={nccl[0]} and {', '.join(dict.fromkeys(mpi))} for MPI differ: --interface sets both"


def _taken(spec: JobSpec) -> Iterator[str]:
    mine = words_mpirun_takes(spec.command)
    if mine:
        yield (
            f"{', '.join(mine)}: with taco-launch, your program gets it; in a pasted line, mpirun reads it as its own option "
            "(write sh -c 'PROGRAM ...' there)"
        )


def _inside(spec: JobSpec) -> Iterator[str]:
    """Yield what the one rank of a job that is a launcher has; where that cannot be meant it was refused."""
    found = inner(spec.command)
    if found is not None and not spec.per_host:
        yield (
            f"everything that {found.name} starts shares this job's one slot and its GPU "
            "(--launcher env --per-host --slots-per-host N starts it once on each host, with N slots)"
        )


def _unread(command: Sequence[str]) -> Iterator[str]:
    """Name the words that a shell in each rank was to put values into, and none does."""
    program = bare(command)[2] or command
    if program[0].rpartition("/")[2] in _SHELLS:
        return
    words = [word for word in command if _VARIABLE.fullmatch(word)]
    if words:
        yield f"{join_texts(words)}: no shell expands the command, so the program gets this literally ({_BY_A_SHELL})"
    empty = [word for word in command if _EMPTY.match(word)]
    if empty:
        yield f"{join_texts(empty)}: the value after = is empty: your own shell expanded it, not a shell in each rank ({_BY_A_SHELL})"


def _lost(spec: JobSpec) -> Iterator[str]:
    """Yield that a retry finds no checkpoint of the attempt before it in the copy of the code, where no other folder is given."""
    inside = spec.container
    elsewhere = spec.workdir.startswith("/") or (inside is not None and (inside.mounts or inside.data))
    if spec.policy.backoff_limit and spec.code is not None and spec.code.source and not elsewhere:
        yield (
            "each attempt starts in a fresh copy of the code, so a retry does not find checkpoints written there: "
            f"write them to {'an absolute path of the host' if inside is None else 'a folder of --data'}"
        )


def _board(spec: JobSpec, placement: Placement) -> Iterator[str]:
    """Yield that TensorBoard does not see what rank 0 writes on another host than the head."""
    first = placement.shares[0].host
    if spec.tensorboard is not None and first != spec.head:
        yield (
            f"TensorBoard reads {spec.tensorboard.logdir} on {spec.head}, and rank 0 runs on {first}: write the logs to a folder "
            f"that both share (--logdir), or name {spec.head} first in -H"
        )


def _text(option: Option) -> str:
    return " ".join(token.text for token in option.tokens)


def _light(draft: Draft, env: Pairs) -> Iterator[str]:
    decisions, placement, between = draft.decisions, draft.placement, draft.facts.between
    if not any(name.startswith("LIGHT_") for name, _value in env):
        return
    if between is not None and between.hcas_there and not decisions.holds("tcp"):
        yield "LIGHT_*: hosts exchange data by RDMA, where compression seldom saves time: compare with --no-light"
    if names_light(draft.spec.command) and not decisions.holds("lightcc"):
        yield (
            "LIGHT_*: taco_launch.light applies them, in torch's DistributedDataParallel and in Horovod; if the image "
            "provides LightCC, declare container: {provides: [lightcc]}"
        )
    elif not decisions.holds("lightcc"):
        yield (
            "LIGHT_*: nothing is known to read them. In a script, start the program by python3 -m taco_launch.light; if the "
            "image provides LightCC, declare container: {provides: [lightcc]}"
        )
    if len(placement.shares) == 1:
        yield "LIGHT_*: of no use on one host: 2D all-reduce and top-k compression save traffic between hosts"
    elif "ranks_per_host" not in decisions.values and dict(env).get("LIGHT_2D_ALLREDUCE") == "1":
        yield "LIGHT_2D_ALLREDUCE: needs the same number of ranks on every host, and this job's hosts differ"


def _ports(spec: JobSpec, placement: Placement, decisions: Decisions) -> Iterator[str]:
    if spec.network.port_range is None or len(placement.shares) == 1:
        return
    most = max(share.ranks for share in placement.shares)
    choice = decisions.values.get("port_count")
    if choice is None or int(choice.text) < most:
        yield f"network.port_range: too few ports: each of a host's {most} ranks needs one, and mpirun itself needs an eighth of the range"


def _openmpi5(decisions: Decisions, options: Sequence[Option]) -> Iterator[str]:
    """Open MPI 5.0.11 takes `none` of `-bind-to none` for the program; what it knows is short or listed."""
    old = [option.tokens[0].text for option in options if _SINGLE_DASH.match(option.tokens[0].text)]
    if old and decisions.holds("openmpi5"):
        yield f"{', '.join(dict.fromkeys(old))}: Open MPI 5 requires two dashes, and fails; --profile auto writes the line for it"


def _overridden(facts: JobFacts, options: Sequence[Option]) -> Iterator[str]:
    """Name what is ours, not the user's word on the command line, and goes before the caller's environment."""
    inherited = dict(facts.environment or ())
    for option in options:
        if option.tokens[0].source == "user":
            continue
        for name, value in option.env:
            if value is not None and inherited.get(name, value) != value:
                yield f"{name}={value} overrides your environment's {inherited[name]!r} (to keep yours: -x {name})"
        kind, name = option.key
        for variable in (f"OMPI_MCA_{name}", f"PRTE_MCA_{name}") if kind == "mca" else ():
            value = option.tokens[-1].text
            if inherited.get(variable, value) != value:
                yield (
                    f"--mca {name} {value} overrides {variable}={inherited[variable]} of your environment "
                    f"(to keep yours: --mca {name} {inherited[variable]})"
                )
        exclude = name.replace("_if_include", "_if_exclude")
        if exclude != name and f"OMPI_MCA_{exclude}" in inherited:
            yield f"OMPI_MCA_{exclude} of your environment conflicts with --mca {name}, so mpirun fails: unset it"


def reference(name: str, value: str) -> str:
    """Return the $NAME in the value of a variable of paths, "" where there is none: the ranks get it as it stands."""
    found = _REFERENCE.search(value) if name.endswith("PATH") else None
    return found[0] if found else ""


def given_remarks(given: Sequence[Option], placement: Placement, gpus: Mapping[str, int]) -> Iterator[str]:
    """Yield the remarks on what is given by name; `gpus` are the numbers of GPUs of hosts, as far as they are known."""
    there = max((gpus.get(share.host, 0) for share in placement.shares), default=0)
    most = max((share.ranks for share in placement.shares), default=0)
    for name, value in (pair for option in given for pair in option.env):
        if value is None:
            continue
        if text := reference(name, value):
            yield f"{name}: no shell expands the value, so the ranks get {text} literally: write its value instead"
        elif name == "MASTER_ADDR":
            yield f"{name}={value} overrides what taco-launch sets so that the ranks of this job meet: omit it"
        elif name == VISIBLE_GPUS and 0 < len(value.split(",")) < most:
            yield f"ranks share GPUs: {name}={value} names {len(value.split(','))} for up to {most} ranks on a host"
        elif name == VISIBLE_GPUS and value and len(value.split(",")) < there:
            yield (
                f"{name}={value}: the ranks see these GPUs, whichever the job has, and other jobs may use them: "
                "choose the job's GPUs with --gpu-ids instead"
            )
