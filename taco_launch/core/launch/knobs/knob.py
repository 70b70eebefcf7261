"""What is known of one knob: a row of one of the tables in this folder."""

import re
from typing import Optional, Tuple

from taco_launch.core.frozen import dataclass

# The libraries as people call them, in the order of tables.
LIBRARIES = {
    "nccl": "NCCL",
    "nccl-tests": "nccl-tests",
    "pytorch": "PyTorch",
    "horovod": "Horovod",
    "lightcc": "LightCC",
    "openmpi": "Open MPI",
    "ucx": "UCX",
}
_LIBRARIES = (
    ("NCCL_TESTS_", "nccl-tests"),
    ("NCCL_ASYNC_ERROR_HANDLING", "pytorch"),
    ("NCCL_BLOCKING_WAIT", "pytorch"),
    ("NCCL_DESYNC_DEBUG", "pytorch"),
    ("NCCL_ENABLE_TIMING", "pytorch"),
    ("NCCL_", "nccl"),
    ("HOROVOD_", "horovod"),
    ("LIGHT_", "lightcc"),
    ("UCX_", "ucx"),
    ("TORCH_", "pytorch"),
    ("GLOO_", "pytorch"),
)
# What an example may be made of: it is typed into a shell as it stands.
_PLAIN = re.compile(r"[A-Za-z0-9_.,:/+-]+")
# Where neither a default nor the choices make an example.
_EXAMPLES = {"hca": "=mlx5_0", "interfaces": "=eth0", "networks": "eth0", "cidr": "10.0.0.0/16", "ports": "40000-40999"}

# How a library reads what stands behind a knob of some kind; (kind, "") is for libraries that are not named.
_READS = {
    ("switch", "nccl"): "as a C number (strtoll): 'true' is 0, which is off",
    ("switch", "horovod"): "as a C number (strtol), and a number above 0 is on: 'true' is 0, which is off",
    ("switch", "openmpi"): "1, true or t for on; PRRTE of Open MPI 5 reads everything else as off, 'yes' included",
    (
        "switch",
        "pytorch",
    ): "y, yes, 1, t or true for on; n, no, 0, f or false for off; upper or lower case; other values are refused",
    ("switch", ""): "as a number: 0 or 1",
    ("integer", "nccl"): "as a C number (strtoll): '64M' is 64, '0x10' is 16, '010' is 8",
    ("integer", "horovod"): "as a C number (strtol): '64M' is 64",
    (
        "integer",
        "openmpi",
    ): "as a C number; a suffix k, m or g multiplies it by 1024, 1024^2 or 1024^3, even where the unit is seconds",
    ("integer", ""): "as a number",
    ("number", ""): "as a C floating-point number: '1ms' is 1",
    ("level", ""): "an exact upper-case word; anything else that is not a number is ignored without a message",
    ("hca", ""): "a leading ^ excludes, then a leading = requests exact names; both apply to the whole list",
    ("interfaces", ""): "a leading ^ excludes, then a leading = requests exact names; both apply to the whole list",
    (
        "functions",
        "",
    ): "words in upper or lower case; since 2.24 an unknown one ends the job, before that it was ignored",
    ("components", ""): "a leading ^ excludes the whole list",
    ("options", ""): "split at spaces; quotes are not interpreted",
}


@dataclass(frozen=True)
class Knob:
    """One environment variable or MCA parameter.

    `kind` is what may stand there: switch (0 or 1), integer, number (a fraction too), word (one of `choices`),
    verbosity (one of `choices`, or a number), words (some of `choices`, with commas), level, hca, interfaces,
    functions, components, networks, ports, cidr, endpoint, path, options, key or text. `unit` (bytes, ms, s) is what a
    number counts; `low` and `high` are included, 0 is not where a number has to be `positive`. `exact` words have to be
    written in upper or lower case as `choices` has them; `choices` of a text are its best known values, and
    `form` is a regular expression that it has to match. `default` is
    empty where the library decides or nothing is set, and `history` tells what it was in earlier versions. `since` is
    the first version that has the name, `until` the first without it; `instead` is what to write for a name that no
    current version reads. `applies` says when it has an effect at all, `why` what it is for, `source` where all this is
    from. `aliases` are other names of the same thing, as a rule those of the other generation of Open MPI. The value of
    a `secret` is left out of messages; a line that is shown or written has it all the same, unless it is handed over as
    `-x NAME`, which takes it from the environment. `given` is how it is given where --knob, -x and --mca do nothing.
    """

    name: str
    kind: str
    default: str
    why: str
    source: str
    values: str = ""
    unit: str = ""
    low: Optional[float] = None
    high: Optional[float] = None
    positive: bool = False
    choices: Tuple[str, ...] = ()
    form: str = ""
    exact: bool = False
    history: str = ""
    since: str = ""
    until: str = ""
    instead: str = ""
    applies: str = ""
    aliases: Tuple[str, ...] = ()
    secret: bool = False
    given: str = ""

    @property
    def library(self) -> str:
        """Who reads it: nccl, nccl-tests, pytorch, horovod, lightcc, ucx or openmpi."""
        return next((library for prefix, library in _LIBRARIES if self.name.startswith(prefix)), "openmpi")

    @property
    def mca(self) -> bool:
        """Whether it is an MCA parameter (`--mca NAME VALUE`) and not an environment variable."""
        return self.name[0].islower()

    @property
    def reads(self) -> str:
        """How the library reads the value, empty where there is nothing to say."""
        return _READS.get((self.kind, self.library)) or _READS.get((self.kind, ""), "")

    @property
    def example(self) -> str:
        """A right value that can be typed as it stands, `VALUE` where only the user knows one."""
        if self.secret or self.kind == "components":
            return "VALUE"
        if self.kind == "switch":
            return "0" if self.default == "1" else "1"
        usual = self.default or _EXAMPLES.get(self.kind) or next(iter(self.choices), "")
        if not usual and self.kind in ("integer", "number") and self.low is not None:
            usual = f"{max(self.low, 0):g}"
        return usual if _PLAIN.fullmatch(usual.lstrip("=")) else "VALUE"

    @property
    def allowed(self) -> str:
        """The values that may stand there, in words."""
        if self.values:
            return self.values
        if self.kind == "switch":
            return "0 or 1"
        if self.kind == "verbosity":
            return f"{', '.join(self.choices)}, or a number from {self.low:g} to {self.high:g}"
        if self.kind in ("word", "level"):
            return ", ".join(self.choices)
        if self.kind == "words":
            return f"one or more of {', '.join(self.choices)}, separated by commas; a leading ^ excludes them"
        if self.kind in ("integer", "number"):
            return _numbers(self)
        return self.kind


def _numbers(knob: Knob) -> str:
    whole = "a whole number" if knob.kind == "integer" else "a number"
    unit = {"bytes": " of bytes", "ms": " of milliseconds", "s": " of seconds"}.get(knob.unit, knob.unit)
    low = "" if knob.low is None else f" from {knob.low:g}"
    high = "" if knob.high is None else f" to {knob.high:g}"
    return f"{whole}{unit}{low}{high}"
