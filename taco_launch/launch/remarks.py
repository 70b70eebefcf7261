"""What a user should know of a line before it runs: what has no effect, costs something, or goes against the environment."""

import re
from typing import Iterator, List, Optional, Sequence, Tuple

from taco_launch.launch.decide import OWN_GID, Decisions, declared, version
from taco_launch.launch.replace import Option
from taco_launch.launch.separator import taken
from taco_launch.model.facts import Facts
from taco_launch.model.jobs import JobSpec
from taco_launch.model.plans import Placement

Pairs = Sequence[Tuple[str, Optional[str]]]
_SINGLE_DASH = re.compile(r"-(?!np$|mca$|hostfile$)[a-z]{2}")
_KNOBS = ("NCCL_", "HOROVOD_", "LIGHT_", "UCX_")


def remarks(
    spec: JobSpec, placement: Placement, facts: Facts, decisions: Decisions, options: Sequence[Option]
) -> Tuple[str, ...]:
    """Give all remarks on a line of these options."""
    env = [pair for option in options for pair in option.env]
    said: List[str] = [
        *_light(placement, decisions, env),
        *_gid(spec, facts),
        *_ports(spec, placement, decisions),
        *_openmpi5(decisions, options),
        *_overridden(facts, options),
    ]
    mine = taken(spec.command)
    if mine:
        said.append(
            f"{', '.join(mine)}: run by taco-launch your program gets it; in the pasted line mpirun takes it for its own "
            "(there: sh -c 'PROGRAM ...')"
        )
    pairs = [(name, value) for name, value in env if value is not None and name.startswith(_KNOBS)]
    if pairs:
        # Only needed where there are such variables, and its table takes a while to load.
        from taco_launch.launch import knob_remarks  # noqa: PLC0415

        said += knob_remarks.remarks(pairs)
    return tuple(said)


def _light(placement: Placement, decisions: Decisions, env: Pairs) -> Iterator[str]:
    if not any(name.startswith("LIGHT_") for name, _value in env):
        return
    if not decisions.holds("lightcc"):
        yield (
            "LIGHT_*: nothing will read them: the image is not known to provide LightCC (if it does: "
            "container: {provides: [lightcc]})"
        )
    if len(placement.shares) == 1:
        yield "LIGHT_*: of no use on one host: 2D all-reduce and top-k compression save traffic between hosts"
    elif "ranks_per_host" not in decisions.values:
        yield "LIGHT_2D_ALLREDUCE: needs as many ranks on every host, and this job's hosts have unequal numbers"


def _gid(spec: JobSpec, facts: Facts) -> Iterator[str]:
    nccl = declared(spec, "nccl") or facts.nccl
    if spec.network.gid_index is not None and nccl is not None and version(nccl) >= OWN_GID:
        yield (
            f"NCCL_IB_GID_INDEX: NCCL {nccl} finds the index by itself, on each host its own: better leave "
            "network.gid_index at auto"
        )


def _ports(spec: JobSpec, placement: Placement, decisions: Decisions) -> Iterator[str]:
    if spec.network.port_range is None or len(placement.shares) == 1:
        return
    most = max(share.ranks for share in placement.shares)
    choice = decisions.values.get("port_count")
    if choice is None or int(choice.text) < most:
        yield f"network.port_range: too few ports: one for each of a host's {most} ranks and 1 to 16 for mpirun itself"


def _openmpi5(decisions: Decisions, options: Sequence[Option]) -> Iterator[str]:
    """Open MPI 5.0.11 takes `none` of `-bind-to none` for the program; the options that it knows are short or listed."""
    old = [option.tokens[0].text for option in options if _SINGLE_DASH.match(option.tokens[0].text)]
    if old and decisions.holds("openmpi5"):
        yield f"{', '.join(dict.fromkeys(old))}: Open MPI 5 wants two dashes, and fails; --profile auto makes its line"


def _overridden(facts: Facts, options: Sequence[Option]) -> Iterator[str]:
    """Name what is ours, not the user's word on the command line, and goes before the caller's environment."""
    inherited = dict(facts.environment)
    for option in options:
        if option.tokens[0].source == "user":
            continue
        for name, value in option.env:
            if value is not None and inherited.get(name, value) != value:
                yield f"{name}={value} goes before your environment's {inherited[name]!r} (to keep yours: -x {name})"
        kind, name = option.key
        for variable in (f"OMPI_MCA_{name}", f"PRTE_MCA_{name}") if kind == "mca" else ():
            value = option.tokens[-1].text
            if inherited.get(variable, value) != value:
                yield (
                    f"--mca {name} {value} goes before {variable}={inherited[variable]} of your environment "
                    f"(to keep yours: --mca {name} {inherited[variable]})"
                )
        exclude = name.replace("_if_include", "_if_exclude")
        if exclude != name and f"OMPI_MCA_{exclude}" in inherited:
            yield f"OMPI_MCA_{exclude} of your environment stands against --mca {name}, and mpirun fails: unset it"
