"""LIGHT_* variables: what each may contain, and the configuration that they make."""

from dataclasses import dataclass
from functools import partial
from typing import Callable, Dict, List, Mapping, NamedTuple, Sequence, Union


class LightError(RuntimeError):
    """Something that gradient compression cannot work with; the message ends with what to do."""


@dataclass(frozen=True)
class Config:
    """The configuration, equal on all ranks. Sizes in bytes."""

    two_d: bool
    intra_size: int
    hierarchical_threshold: int
    topk: bool
    ratio: float
    topk_threshold: int
    fp16: bool
    bucket_bytes: int
    warmup_steps: int
    error_feedback: bool

    @property
    def is_on(self) -> bool:
        """Return whether anything is done otherwise than without the variables."""
        return self.two_d or self.topk

    def reduces_2d(self, size: int) -> bool:
        """Return whether so many bytes are reduced inside the hosts first: up to the threshold, which is included."""
        return self.two_d and size <= self.hierarchical_threshold

    def compresses(self, size: int) -> bool:
        """Return whether only the largest of so many bytes are sent: from the threshold on, which is included."""
        return self.topk and size >= self.topk_threshold

    def describe(self) -> str:
        """Return what each variable became, on one line."""
        return " ".join(f"{name}={+getattr(self, variable.field)}" for name, variable in VARIABLES.items())


class _Variable(NamedTuple):
    field: str
    default: str
    read: Callable[[str], object]
    allowed: str


def _switch(text: str) -> bool:
    return {"0": False, "1": True}[text]


def _integer(text: str, low: int = 0) -> int:
    if not (text.isascii() and text.isdigit() and int(text) >= low):
        raise ValueError(text)
    return int(text)


def _share(text: str) -> float:
    share = float(text)
    if not 0 < share <= 1:
        raise ValueError(text)
    return share


_SWITCH, _COUNT = "0 or 1", "an integer, 0 or larger"
# The first seven have LightCC's names, defaults and comparisons; the others are ours.
VARIABLES: Dict[str, _Variable] = {
    "LIGHT_2D_ALLREDUCE": _Variable("two_d", "0", _switch, _SWITCH),
    "LIGHT_INTRA_SIZE": _Variable("intra_size", "8", partial(_integer, low=1), "an integer, 1 or larger"),
    "LIGHT_HIERARCHICAL_THRESHOLD": _Variable("hierarchical_threshold", str(1 << 30), _integer, _COUNT),
    "LIGHT_TOPK_ALLREDUCE": _Variable("topk", "0", _switch, _SWITCH),
    "LIGHT_TOPK_RATIO": _Variable("ratio", "0.01", _share, "a number above 0, at most 1"),
    "LIGHT_TOPK_THRESHOLD": _Variable("topk_threshold", str(1 << 20), _integer, _COUNT),
    "LIGHT_TOPK_FP16": _Variable("fp16", "0", _switch, _SWITCH),
    "LIGHT_BUCKET_BYTES": _Variable("bucket_bytes", str(25 << 20), _integer, _COUNT),
    "LIGHT_TOPK_WARMUP_STEPS": _Variable("warmup_steps", "0", _integer, _COUNT),
    "LIGHT_ERROR_FEEDBACK": _Variable("error_feedback", "1", _switch, _SWITCH),
}


def read(environ: Mapping[str, str]) -> Config:
    """Read the configuration from environment variables.

    Raises:
        LightError: a LIGHT_* variable is unknown, or has a value that it may not have.

    """
    unknown = sorted(name for name in environ if name.startswith("LIGHT_") and name not in VARIABLES)
    if unknown:
        raise LightError(f"unknown: {', '.join(unknown)}. Known are {', '.join(VARIABLES)}: correct or unset it.")
    values: Dict[str, object] = {}
    for name, variable in VARIABLES.items():
        text = environ.get(name, variable.default)
        try:
            values[variable.field] = variable.read(text)
        except (KeyError, ValueError):
            raise LightError(f"{name}={text!r}: must be {variable.allowed}. Correct or unset it.") from None
    return Config(**values)  # type: ignore[arg-type]


def read_or_error(environ: Mapping[str, str]) -> Union[Config, str]:
    """Read the configuration, or return what is wrong with it: a rank that raised alone would have the others wait."""
    try:
        return read(environ)
    except LightError as error:
        return str(error)


def agreed(by_rank: Sequence[Union[Config, str]]) -> Config:
    """Return the configuration that all ranks have.

    Raises:
        LightError: a rank has none, or another one than the first.

    """
    configs: List[Config] = []
    for rank, one in enumerate(by_rank):
        if isinstance(one, str):
            raise LightError(f"rank {rank}: {one}")
        configs.append(one)
        if one != configs[0]:
            both = f"{one.describe()} and {configs[0].describe()}"
            raise LightError(f"rank {rank} and rank 0 have different LIGHT_* variables: {both}. Set them alike.")
    return configs[0]
