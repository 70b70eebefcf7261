"""The names of variables and MCA parameters: which a job may have, and what is meant by those that it may not."""

import re

from taco_launch.core.launch import knobs
from taco_launch.core.launch.knobs.lists import FINE
from taco_launch.hosts.inventory.schema import names

MCA_NAME = re.compile(r"[A-Za-z0-9_]+")
ENV_LIST = "mca_base_env_list"
BESIDE_X = (
    "cannot be combined with -x, which this command line uses: mpirun accepts only one of the two",
    "use -x NAME=VALUE",
)
# What torch.distributed reads of a rank's place.
OF_A_RANK = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK")
LET_THROUGH = "to use it anyway, add --allow-unknown-knobs"


def env_fault(name: str, value: str | None, *, allow_unknown: bool = False) -> tuple[str, str]:
    """Return what is wrong with the name of a variable for `-x`, as (problem, hint), two empty texts where nothing is.

    `name` is that of an environment variable (`names.env_name`), and `value` goes into a hint where it may be shown.
    """
    if name in OF_A_RANK:
        return "would be the same for every rank, but taco-launch sets it for each rank", "omit it"
    knob = knobs.find(name)
    if knob and knob.mca:
        return (
            "is an MCA parameter of mpirun, but -x sets environment variables",
            f"write --mca {name} {shown_value(name, value or '')}",
        )
    if (bare := knobs.parameter(name)) != name:
        problem = "reaches only the ranks, not mpirun, and contradicts the mpirun command line there"
        return problem, f"write --mca {bare} {shown_value(bare, value or '')}"
    return FINE if allow_unknown else unknown(name)


def mca_fault(name: str, value: str, *, allow_unknown: bool = False) -> tuple[str, str]:
    """Return what is wrong with the name of an MCA parameter, as `env_fault` does; a value is wrong where it is none."""
    knob = knobs.find(name)
    if (bare := knobs.parameter(name)) != name and MCA_NAME.fullmatch(bare):
        return prefixed(name, bare), f"write --mca {bare} {shown_value(bare, value)}"
    if not MCA_NAME.fullmatch(name):
        return "is not the name of an MCA parameter: letters, digits and '_'", ""
    if not value:
        return "has no value", f"write --mca {name} VALUE"
    if "\0" in value:
        return "its value holds a NUL byte, which no command line can hold", ""
    if (knob and not knob.mca) or knobs.must_be_known(name):
        return "is an environment variable, not an MCA parameter", f"write -x {name}=VALUE"
    if name == ENV_LIST:
        return BESIDE_X
    return FINE if allow_unknown else unknown(name)


def unknown(name: str) -> tuple[str, str]:
    """Refuse a name that is nearly one of the table; another one may be a newer library's, which the plan says."""
    if knobs.find(name):
        return FINE
    strict = knobs.must_be_known(name)
    nearest = knobs.closest(name) if strict else knobs.one_typo_away(name)
    if nearest:
        what = "no such knob" if strict else "very similar to a known name"
        return what, f"did you mean {names.shown(nearest)}? {LET_THROUGH}"
    return FINE


def prefixed(name: str, bare: str) -> str:
    """Return what is wrong with a parameter's name that has the prefix of an environment variable."""
    return f"starts with {name[: -len(bare)]}, which is for environment variables only"


def shown_value(name: str, value: str) -> str:
    """Return a value as a message may show it: that of a known name, harmless and no secret, else the word VALUE."""
    knob = knobs.find(name)
    harmless = bool(value) and names.plain(value) == value and not any(map(str.isspace, value))
    return value if knob and not knob.secret and harmless else "VALUE"
