"""How far the training of a job has come, as its own output tells."""

from typing import Optional

from taco_launch.frozen import dataclass

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


@dataclass(frozen=True)
class Progress:
    """The last values that a program printed; None is "not told".

    `program` names the format. `rate` is what the program says of its own speed, in `unit` (`img/s`, `samples/s`,
    `it/s`); `steps_per_second` is measured by the times of the lines, and `eta` is seconds to `total` by that.
    `time` is when the last line came, in seconds since the epoch. `diverged`: the loss is printed as nan or inf.
    """

    program: str
    rank: int
    time: float
    step: Optional[float] = None
    total: Optional[float] = None
    epoch: Optional[float] = None
    loss: Optional[float] = None
    diverged: bool = False
    rate: Optional[float] = None
    unit: str = ""
    steps_per_second: Optional[float] = None
    eta: Optional[float] = None

    def text(self, *, left: bool) -> str:
        """Return it as words, such as `step 120/500, loss 0.31, 34.2 img/s, 2m left`; `left`: with the time to its end."""
        found = []
        if self.step is not None:
            found.append(f"step {self.step:.10g}" + ("" if self.total is None else f"/{self.total:.10g}"))
        if self.epoch is not None:
            found.append(f"epoch {self.epoch:.4g}")
        if self.loss is not None or self.diverged:
            found.append("loss is not a number" if self.loss is None else f"loss {self.loss:.4g}")
        if self.rate is not None:
            found.append(f"{self.rate:.4g} {self.unit}")
        elif self.steps_per_second is not None:
            found.append(f"{self.steps_per_second:.3g} steps/s")
        if left and self.eta is not None and self.total is not None:
            found.append(f"{_span(self.eta)} left")
        return ", ".join(found)


def _span(seconds: float) -> str:
    for unit, letter in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "m")):
        if seconds >= unit:
            return f"{seconds / unit:.2g}{letter}"
    return f"{seconds:.0f}s"
