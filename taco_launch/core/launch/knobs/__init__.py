"""The table of knobs: all of them, and how one is found by its name, its start or a name nearly like it."""

import difflib
from typing import Callable, Dict, Optional, Tuple

from taco_launch.core.launch.knobs.horovod import HOROVOD, LIGHTCC
from taco_launch.core.launch.knobs.knob import Knob
from taco_launch.core.launch.knobs.lists import edit_distance_one
from taco_launch.core.launch.knobs.nccl import LOGGING, NETWORK
from taco_launch.core.launch.knobs.nccl_tuning import NEIGHBOURS, TUNING, UNDOCUMENTED
from taco_launch.core.launch.knobs.open_mpi import OPENMPI, UCX
from taco_launch.core.launch.knobs.torch import GLOO, TORCH

__all__ = [
    "KNOWN_PREFIXES",
    "TABLE",
    "Knob",
    "closest",
    "find",
    "matching",
    "must_be_known",
    "one_typo_away",
    "parameter",
]

TABLE: Tuple[Knob, ...] = (
    *NETWORK,
    *LOGGING,
    *TUNING,
    *NEIGHBOURS,
    *TORCH,
    *GLOO,
    *(
        Knob(name, "text", "", "Not documented: for NCCL's own developers.", "NCCL 2.29.7, its library")
        for name in UNDOCUMENTED
    ),
    *HOROVOD,
    *LIGHTCC,
    *OPENMPI,
    *UCX,
)
# Every name with one of these is in the table, but for plugins'; of UCX_ and MCA parameters there are thousands.
KNOWN_PREFIXES = ("NCCL_", "HOROVOD_", "LIGHT_")
# The newest versions whose names it has.
NEWEST = {"NCCL_": "NCCL up to 2.32", "HOROVOD_": "Horovod up to 0.28", "LIGHT_": "LightCC of TACO Training 0.3"}
# Plugins of NCCL read these: Google's FasTrak and GPUDirect-TCPX, NVIDIA's for IB, AWS's for libfabric, tuners.
_PLUGINS = (
    "NCCL_FASTRAK_",
    "NCCL_GPUDIRECTTCPX_",
    "NCCL_IBEXT_",
    "NCCL_OFI_",
    "NCCL_TUNER_CONFIG_PATH",
    "NCCL_USE_BLOCKING",
    "OFI_NCCL_",
)
# How Open MPI and its PRRTE and PMIx look for MCA parameters in the environment.
_ENVIRONMENT = ("OMPI_MCA_", "PRTE_MCA_", "PMIX_MCA_")
# From which share of like letters on a name may be meant (difflib's ratio).
_ALIKE = 0.75

_BY_NAME: Dict[str, Knob] = {name: knob for knob in TABLE for name in (knob.name, *knob.aliases)}


def find(name: str) -> Optional[Knob]:
    """Return the knob of that name or alias, None where the table has none."""
    return _BY_NAME.get(name)


def matching(text: str) -> Tuple[Knob, ...]:
    """Return the knob of that name, else all whose name starts with `text`, else all whose name holds it.

    Aliases count as names, upper and lower case as the same, and an MCA parameter may be written as in the environment.
    """
    exact = find(text)
    if exact:
        return (exact,)
    part = parameter(text).lower()
    tests: Tuple[Callable[[str], bool], ...] = (
        lambda name: name == part,
        lambda name: name.startswith(part),
        lambda name: part in name,
    )
    for test in tests:
        found = tuple(knob for knob in TABLE if any(test(name.lower()) for name in (knob.name, *knob.aliases)))
        if found:
            return found
    return ()


def parameter(name: str) -> str:
    """Return the name of an MCA parameter whose environment form `name` is (OMPI_MCA_btl: btl), else `name` itself."""
    prefix = next((prefix for prefix in _ENVIRONMENT if name.startswith(prefix)), "")
    return name[len(prefix) :] or name


def closest(name: str) -> str:
    """Return the known name that is most like `name`, empty where none is.

    Names of one library are compared without its prefix, which all of them share. Short of that, a name is taken of
    which `name` has the first words, where it is the only one: HOROVOD_FUSION.
    """
    prefix = next((prefix for prefix in KNOWN_PREFIXES if name.upper().startswith(prefix)), "")
    text = name[len(prefix) :][:80]
    known = {other[len(prefix) :]: other for other in _BY_NAME if other.startswith(prefix)}
    if prefix:
        text = text.upper()
    found = difflib.get_close_matches(text, known, n=1, cutoff=_ALIKE)
    longer = [other for other in known if other.startswith(f"{text}_")]
    best = found[0] if found else longer[0] if len(longer) == 1 else ""
    return known.get(best, "")


def must_be_known(name: str) -> bool:
    """Return whether the table has to know a name: by its prefix, or because it is a known one in lower case."""
    if name.startswith(_PLUGINS):
        return False
    return name.startswith(KNOWN_PREFIXES) or (not name.isupper() and name.upper() in _BY_NAME)


def one_typo_away(name: str) -> str:
    """Return the known name from which `name` is one slip of the finger away, empty where there is none.

    Short names are other names, and so are those of other frameworks: bml, pml_base_verbose.
    """
    if find(name) or len(name) < 6 or name.endswith("_base_verbose") or name.startswith(_PLUGINS):
        return ""
    return next((known for known in _BY_NAME if edit_distance_one(name, known)), "")
