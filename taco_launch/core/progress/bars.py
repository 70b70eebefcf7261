"""Progress bars of trainings: tqdm's, which Lightning and Hugging Face's Trainer use, and Lightning's of rich."""

import re
from typing import Dict, Optional

from taco_launch.core.progress.reading import TrainingProgress

_NUMBER = r"\d{1,12}(?:\.\d{1,12})?"
_COUNT = rf"{_NUMBER}[kKMG]?"
_BAR = re.compile(
    rf"^\s*(?:(?P<about>[^|%]{{0,200}}?)[:\s]\s*)?(?P<percent>\d{{1,3}})%(?:\|[^|]{{0,400}}\|)? *(?P<step>{_COUNT})/(?P<total>{_COUNT})"
    rf" \[(?P<past>[\d:]{{1,12}})<(?P<left>[\d:?]{{1,20}}|\d+ days?, [\d:]+), *(?P<rate>{_NUMBER}|\?)"
    rf"(?P<per>[A-Za-z]{{1,12}}/s|s/[A-Za-z]{{1,12}})(?:, *(?P<more>[^\]]{{0,1000}}))?\]"
)
_RICH = re.compile(
    rf"^\s*Epoch (?P<epoch>\d{{1,6}})/\d{{1,6}}\s+[━╸╺ ]+\s*(?P<step>\d{{1,9}})/(?P<total>\d{{1,9}})\s+[\d:]+ • [\d:-]+\s+(?P<rate>{_NUMBER})it/s(?P<more>.{{0,1000}})$"
)
_LOSS = re.compile(
    rf"(?:^|[\s,_])(?:train_?)?loss(?:_step|/train)?\s*[=:]\s*(?P<loss>{_NUMBER}(?:[eE][+-]?\d{{1,3}})?|nan|inf)(?=$|[\s,\]])"
)
_EPOCH = re.compile(r"\b[Ee]poch:?\s*\[?(\d{1,6})")
# What a bar of a training calls itself; others (Map, Downloading, Loading checkpoint shards, Validation) are none.
_TRAINS = re.compile(r"^(?:\[?train(?:ing)?\]?|epochs?|steps?|iterations?|iters?|batch(?:es)?)\b", re.IGNORECASE)
_OTHER = re.compile(
    r"valid|\bval\b|eval|test|sanity|predict|infer|download|load|map|filter|token|generat|prepar|process|sav|upload|extract|fetch|cach|warm",
    re.IGNORECASE,
)
_UNITS = {"it": "it/s", "batch": "it/s", "step": "it/s", "steps": "it/s", "sample": "samples/s", "samples": "samples/s"}
_UNITS.update({"example": "samples/s", "examples": "samples/s", "img": "img/s", "images": "img/s", "epoch": "epochs/s"})
_SCALES: Dict[str, float] = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}

BARE = "progress bar"  # of a series that counts only beside lines of a known trainer


def read(line: str) -> Optional[TrainingProgress]:
    """Return what a bar says; None where the line has none of a training. A bar that does not say of what has program `BARE`."""
    match = _BAR.match(line)
    if match is None:
        return _rich(line)
    about, more = (match["about"] or "").strip(), match["more"] or ""
    loss = _LOSS.search(more)
    if _OTHER.search(about) or (about and not _TRAINS.match(about) and loss is None):
        return None
    unit = _UNITS.get(match["per"].replace("s/", "").replace("/s", ""))
    if unit is None:
        return None
    epoch = _EPOCH.search(about)
    is_epochs = unit == "epochs/s" or (epoch is None and about.lower().startswith("epoch"))
    program = "progress bar of a training" if about or loss is not None else BARE
    step, total = _count(match["step"]), _count(match["total"])
    if total <= 0 or step > total:
        return None
    return TrainingProgress(
        program,
        "epochs" if is_epochs else "steps",
        step,
        total,
        float(epoch[1]) if epoch is not None else None,
        float(loss["loss"]) if loss is not None else None,
        _rate(match["rate"], match["per"]),
        "epochs/s" if is_epochs else unit,
    )


def _rich(line: str) -> Optional[TrainingProgress]:
    match = _RICH.match(line)
    if match is None:
        return None
    loss = _LOSS.search(match["more"])
    return TrainingProgress(
        "Lightning",
        "steps",
        float(match["step"]),
        float(match["total"]),
        float(match["epoch"]),
        float(loss["loss"]) if loss is not None else None,
        float(match["rate"]),
        "it/s",
    )


def _rate(text: str, per: str) -> Optional[float]:
    if text == "?":
        return None
    value = float(text)
    if per.startswith("s/"):
        return 1 / value if value else None
    return value


def _count(text: str) -> float:
    scale = _SCALES.get(text[-1])
    return float(text) if scale is None else float(text[:-1]) * scale
