"""The mpirun line for a placed job, word by word with its reason, and the form in which it is executed."""

import re
from typing import Dict, Iterator, List, Sequence, Tuple

from taco_launch.command import shell
from taco_launch.errors import UsageError
from taco_launch.launch.decide import Decisions, decide, hostfile_path, reached, strongest
from taco_launch.launch.env import mark
from taco_launch.launch.remarks import remarks
from taco_launch.launch.replace import Option, env_option, mca_option, replaced
from taco_launch.launch.separator import escape
from taco_launch.launch.torus import torus
from taco_launch.model.facts import Facts
from taco_launch.model.jobs import JobSpec
from taco_launch.model.plans import File, LaunchPlan, Placement, Token
from taco_launch.model.profiles import Entry

_NAME = re.compile(r"\{([a-z_]+)\}")
# What says on a line which hosts there are; without one of them mpirun reads its default hostfile.
_HOSTS = ("-H", "-host", "--host", "-hostfile", "--hostfile", "-machinefile", "--machinefile")
# The default hostfile by environment, Open MPI 4.1 and PRRTE 3 (Open MPI 5.0).
_DEFAULT_HOSTFILE = ("OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile")


def plan(
    spec: JobSpec, job_id: str, placement: Placement, facts: Facts, wrapper: Sequence[str], folder: str
) -> LaunchPlan:
    """Build the LaunchPlan.

    `wrapper` is the argv of the agent's rank wrapper, put before the command in the executed form; `folder` is where
    the files will lie that the line names, empty for the folder it is typed in.

    Raises:
        UsageError: mpirun cannot be given a host under the name it has.
    """
    decisions = decide(spec, placement, facts, folder)
    _check_names(spec, placement, decisions)
    options, missing = _options(spec, decisions)
    options = replaced(options, _given(spec))
    options = torus(options, spec, placement, facts, decisions)
    launcher = Token(spec.mpirun, "inventory" if spec.mpirun != "mpirun" else "default", "the launcher")
    tokens = (launcher, *(token for option in options for token in option.tokens))
    command = tuple(Token(word, "user", "the job's command") for word in spec.command)
    executed = [token.text for token in tokens]
    executed += [*wrapper, *(escape(word) for word in spec.command)]
    env = list(mark(spec.name, job_id))
    files: Tuple[File, ...] = ()
    if not any(token.text in _HOSTS for token in tokens):
        env += [(name, hostfile_path(folder)) for name in _DEFAULT_HOSTFILE]
    if not any(token.text in ("-H", "-host", "--host") for token in tokens):
        files = (File(hostfile_path(folder), hostfile(spec, placement)),)
    return LaunchPlan(
        tokens=(*tokens, *command),
        executed=tuple(executed),
        env=tuple(env),
        host_env=tuple((host, (("NCCL_IB_GID_INDEX", str(index)),)) for host, index in decisions.host_gids),
        files=files,
        warnings=(
            *(f"options are left out for want of {fact}" for fact in missing),
            *remarks(spec, placement, facts, decisions, options),
        ),
    )


def line(tokens: Sequence[Token]) -> str:
    """Give the tokens as one line to paste into a shell."""
    return shell([token.text for token in tokens])


def hostfile(spec: JobSpec, placement: Placement) -> str:
    """Give the placement as a hostfile of Open MPI."""
    return "".join(f"{name} slots={ranks}\n" for name, ranks in reached(spec, placement))


def _check_names(spec: JobSpec, placement: Placement, decisions: Decisions) -> None:
    """Refuse what mpirun reads as something else; seen with 4.1.4 and 5.0.11."""
    known: Dict[str, str] = {}
    for share, (name, _ranks) in zip(placement.shares, reached(spec, placement)):
        if name in known:
            raise UsageError(
                f"hosts {known[name]} and {share.host} are both this machine, which mpirun takes once",
                hint=f"add up the slots: -H {known[name]}:SLOTS",
            )
        known[name] = share.host
        if "_" in name and decisions.holds("openmpi4"):
            raise UsageError(
                f"host {name}: Open MPI 4 takes no '_' in a host's name",
                hint=f"name it otherwise in an inventory (hosts: {{{name.replace('_', '-')}: {{address: {name}}}}})",
            )
        if ":" in name:
            raise UsageError(
                f"host {name}: mpirun takes no IPv6 address, only a name for it",
                hint=f'name it in an inventory (hosts: {{gpu1: {{address: "{name}"}}}}), and ask for -H gpu1',
            )


def _options(spec: JobSpec, decisions: Decisions) -> Tuple[List[Option], Tuple[str, ...]]:
    """Give the options of the profile that apply, and the facts without which some of them could not be decided."""
    options: List[Option] = []
    missing: Dict[str, None] = {}
    for entry in spec.profile.entries:
        names = _names(entry)
        if not all(_holds(condition, decisions) for condition in entry.when):
            continue
        if not all(name in decisions.values or name in decisions.missing for name in names):
            continue
        waiting = [name for name in (*_conditions(entry), *names) if name in decisions.missing]
        if waiting:
            missing.update((decisions.missing[name], None) for name in waiting)
        else:
            options.append(_rendered(entry, spec, decisions))
    return options, tuple(missing)


def _names(entry: Entry) -> List[str]:
    return [name for word in entry.words for name in _NAME.findall(word)]


def _conditions(entry: Entry) -> List[str]:
    return [condition.rsplit(maxsplit=1)[-1] for condition in entry.when]


def _holds(condition: str, decisions: Decisions) -> bool:
    """Say whether a condition holds, or may hold once a missing fact is known."""
    name = condition.rsplit(maxsplit=1)[-1]
    return name in decisions.missing or decisions.holds(name) != condition.startswith("not ")


def _rendered(entry: Entry, spec: JobSpec, decisions: Decisions) -> Option:
    """Fill in an entry. Its source is what decided that it stands there, else the profile."""
    values = [decisions.values[name] for name in _names(entry)]
    conditions = [decisions.conditions[name] for name in _conditions(entry)]
    reasons = [value.why for value in values] + [condition.why for condition in conditions if condition.why]
    sources = [choice.source for choice in values]
    sources += [condition.source for condition in conditions if condition.source != "launcher"]
    own = "default" if spec.profile.name == "auto" else "profile"
    source = strongest(sources) if sources else own
    why = "; ".join(dict.fromkeys((entry.why, *reasons)))
    words = [_NAME.sub(lambda match: decisions.values[match[1]].text, word) for word in entry.words]
    return Option(tuple(Token(word, source, why) for word in words))


def _given(spec: JobSpec) -> Iterator[Option]:
    for name, value in spec.env:
        yield env_option(name, value, "user", "the caller's value" if value is None else "given on the command line")
    for name, text in spec.mca:
        yield mca_option(name, text, "user", "given on the command line")
