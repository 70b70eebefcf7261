"""LIGHT_2D_ALLREDUCE without LightCC: Horovod has a 2D all-reduce of its own, under another name."""

from typing import Dict, List, Optional, Sequence

from taco_launch.core.launch.command_line.decisions import Decisions, versions
from taco_launch.core.launch.command_line.overrides import Option, env_option
from taco_launch.core.model.host.versions import version
from taco_launch.core.model.job_facts import JobFacts
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.model.plans import Placement

# horovod PR 3608: HOROVOD_TORUS_ALLREDUCE came with 0.26; it needs NCCL, several hosts and a group of one host's ranks.
_TORUS = (0, 26)


def torus(
    options: Sequence[Option], spec: JobSpec, placement: Placement, facts: JobFacts, decisions: Decisions
) -> List[Option]:
    """Put HOROVOD_TORUS_ALLREDUCE in place of LIGHT_2D_ALLREDUCE where it does the same and nothing reads the other.

    Only for LIGHT_2D_ALLREDUCE alone: with top-k compression besides, Horovod's would not do what was asked.
    """
    env: Dict[str, Optional[str]] = {name: value for option in options for name, value in option.env}
    horovod = versions(spec, facts).get("horovod")
    per_host = decisions.values["ranks_per_host"].text if "ranks_per_host" in decisions.values else ""
    applies = (
        env.get("LIGHT_2D_ALLREDUCE") == "1"
        and env.get("LIGHT_TOPK_ALLREDUCE", "0") == "0"
        and not decisions.holds("lightcc")
        and horovod is not None
        and version(horovod) >= _TORUS
        and len(placement.shares) > 1
        and env.get("LIGHT_INTRA_SIZE", per_host) == per_host != ""
    )
    if not applies:
        return list(options)
    why = f"does in Horovod {horovod} what LIGHT_2D_ALLREDUCE does in LightCC, which the image does not provide"
    line: List[Option] = []
    for option in options:
        names = [name for name, _value in option.env]
        if names == ["LIGHT_2D_ALLREDUCE"]:
            line.append(env_option("HOROVOD_TORUS_ALLREDUCE", "1", "launcher", why))
        elif names != ["LIGHT_INTRA_SIZE"]:
            line.append(option)
    return line
