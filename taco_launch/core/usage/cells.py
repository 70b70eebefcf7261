"""Put the use of hardware into cells of a table."""

from typing import Callable, Dict, List, Optional, Sequence, Tuple

from taco_launch.core.model.job_view import Usage

_GPU: Dict[str, Callable[[Usage], str]] = {
    "GPU USE": lambda use: _percent(use.gpu),
    "GPU MEM": lambda use: _percent(use.gpu_memory),
    "POWER": lambda use: _number(use.power, "{:.0f} W"),
    "TEMP": lambda use: _number(use.temperature, "{:.0f} °C"),
}
_HOST: Dict[str, Callable[[Usage], str]] = {
    "CPU": lambda use: _percent(use.cpu) if use.job_cpus is None else f"{use.job_cpus:.1f} of {use.cpus}",
    "IO WAIT": lambda use: _percent(use.iowait),
    "RECEIVE": lambda use: _rate(use.received),
    "SEND": lambda use: _rate(use.sent),
}


def cells(usages: Sequence[Optional[Usage]]) -> Tuple[Tuple[str, ...], List[List[str]]]:
    """Return the names of the columns and a row for each; those of GPUs only where one has GPUs."""
    columns = {**(_GPU if any(usage is not None and usage.gpus for usage in usages) else {}), **_HOST}
    return tuple(columns), [["-" if usage is None else cell(usage) for cell in columns.values()] for usage in usages]


def _number(value: Optional[float], form: str) -> str:
    return "-" if value is None else form.format(value)


def _percent(share: Optional[float]) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"


def _rate(value: Optional[float]) -> str:
    for unit, size in (("GB/s", 1e9), ("MB/s", 1e6)):
        if value is not None and value >= size:
            return f"{value / size:.3g} {unit}"
    return _number(None if value is None else value / 1e3, "{:.0f} kB/s")
