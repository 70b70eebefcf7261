"""What one line of a training's output says."""

from typing import NamedTuple, Optional

# Behind a rate: img/s, samples/sec.
UNIT = r"([A-Za-z]{1,16}/s)(?:ec)?(?=$|[\s,;|)\]])"


class TrainingProgress(NamedTuple):
    """The values of one line; None is "not said". `program` names the form, `series` what belongs together within it.

    `rate` is in `unit` (`img/s`, `samples/s`, `tokens/s`, `it/s`), as the program says it.
    """

    program: str
    series: str = ""
    step: Optional[float] = None
    total: Optional[float] = None
    epoch: Optional[float] = None
    loss: Optional[float] = None
    rate: Optional[float] = None
    unit: str = ""
