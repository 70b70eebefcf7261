"""How far the training of a job has come, as its own output tells."""

from typing import Optional

from taco_launch.frozen import dataclass


@dataclass(frozen=True)
class Progress:
    """The last values that a program printed; None is "not told".

    `program` names the format. `rate` is what the program says of its own speed, in `unit` (`img/s`, `samples/s`,
    `it/s`); `steps_per_second` is measured by the times of the lines, and `eta` is seconds to `total` by that.
    `time` is when the last line came, in seconds since the epoch.
    """

    program: str
    rank: int
    time: float
    step: Optional[float] = None
    total: Optional[float] = None
    epoch: Optional[float] = None
    loss: Optional[float] = None
    rate: Optional[float] = None
    unit: str = ""
    steps_per_second: Optional[float] = None
    eta: Optional[float] = None
