"""Which lines of output are of a known training program, and what they say.

Only forms that no other program is known to print: a wrong number is worse than none. A progress bar is one of a training
where it says so, by its description or by a loss; a bar without either counts only beside lines of Hugging Face's Trainer.
"""

import re
from typing import Callable, Dict, Optional, Tuple

from taco_launch.core.progress import bars
from taco_launch.core.progress.reading import UNIT, TrainingProgress

MOST_LINE = 2000
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|\([A-Z0-9])")
# A cheap look at what most lines do not have.
_WORDS = re.compile(r"%\||/s[,\]]|s/|it/s|s/it|img/sec|images/sec|[Ll]oss|SamplesPerSec|skipped=|iteration|• ")
_NUMBER = r"\d{1,12}(?:\.\d{1,20})?(?:[eE][+-]?\d{1,3})?"
_LOSS = rf"{_NUMBER}|nan|NaN|inf"

_HOROVOD = re.compile(rf"Iter #(\d{{1,9}}): ({_NUMBER}) img/sec per [GC]PU\s*$")
_TF_CNN = re.compile(
    rf"(?:^|[>:\s])(\d{{1,9}})\s+images/sec: ({_NUMBER}) \+/- {_NUMBER} \(jitter = {_NUMBER}\)(?:\s+({_LOSS}))?(?:\s|$)"
)
_TRAINER = re.compile(
    rf"^\s*\{{['\"]loss['\"]: ['\"]?({_LOSS})['\"]?, (?:['\"]\w+['\"]: ['\"]?[\w.+-]+['\"]?, )*['\"]epoch['\"]: ['\"]?({_NUMBER})['\"]?(?:, ['\"]step['\"]: (\d{{1,9}}))?[,\w\s'\":.+-]*\}}\s*$"
)
_DEEPSPEED_STEP = re.compile(r"\] \[Rank \d+\] step=(\d{1,9}), skipped=\d+, lr=\[")
_DEEPSPEED_RATE = re.compile(
    rf"\[timer\.py:\d+:stop\] (?:epoch=\d+/micro_step=\d+/global_step=|\d+/)(\d{{1,9}}), "
    rf"(?:RunningAvg)?SamplesPerSec=({_NUMBER})\d*(?:, CurrSamplesPerSec=({_NUMBER})\d*)?"
)
_MEGATRON = re.compile(r"iteration\s+(\d{1,9})/\s*(\d{1,9}) \|(.{0,1500})\|\s*$")
_NEMO = re.compile(r"Training epoch (\d{1,6}), iteration (\d{1,9})/(\d{1,9}) \|(.{0,1500})$")
_FIELD = re.compile(rf"(?:^|\|)\s*([\w ()/]{{1,60}}?)\s*:\s*({_LOSS})(?=\s*(?:\||$))")
_NANOGPT = re.compile(rf"(?:^|\s)iter (\d{{1,9}}): loss ({_LOSS}), time ({_NUMBER})ms(?:, mfu -?{_NUMBER}%)?\s*$")
_LLMC = re.compile(
    rf"(?:^|\s)step\s+(\d{{1,9}})/(\d{{1,9}}) (?:\([\d.]+%\) )?\| (?:train )?loss:?\s+({_LOSS})\b(?=.*\|)"
    r"(?:.*?(?:\| ([\d,]{1,15}(?:\.\d+)?) tok/s|\| tok/sec: ([\d,]{1,15}(?:\.\d+)?)))?"
)
# pytorch/examples' mnist/main.py, and Horovod's
_MNIST = re.compile(rf"^\s*Train Epoch: (\d{{1,6}}) \[(\d{{1,9}})/(\d{{1,9}}) \(\d{{1,3}}%\)\]\s+Loss: ({_LOSS})\s*$")
# Of no program: what people write who count steps or epochs and print the loss behind them.
_PLAIN = re.compile(
    rf"(?:^|\s)(?:[Ss]tep|[Ii]ter(?:ation)?|([Ee]poch))[ :]+(\d{{1,9}})/(\d{{1,9}})[ ,:|-]{{1,5}}(?:train(?:ing)?[ _])?"
    rf"[Ll]oss[ :=]{{1,3}}({_LOSS})(?=$|[\s,|])(?:[\s,|]{{1,5}}({_NUMBER}) ?{UNIT})?"
)
_TITAN = re.compile(rf"\bstep:\s+(\d{{1,9}})\s+loss:\s+({_LOSS})\s+.*?\btps: ([\d,]{{1,15}})")


def read(text: str) -> Optional[TrainingProgress]:
    """Return what a line says; None where it is of no known training program."""
    if len(text) > MOST_LINE or not _WORDS.search(text):
        return None
    line = _ESCAPES.sub("", text) if "\x1b" in text else text
    for form, take in _FORMS:
        match = form.search(line)
        if match is not None:
            found = take(match)
            if found is not None:
                return found
    return bars.read(line)


def _horovod(match: "re.Match[str]") -> TrainingProgress:
    return TrainingProgress("Horovod benchmark", step=_number(match[1]), rate=_number(match[2]), unit="img/s per rank")


def _tf_cnn(match: "re.Match[str]") -> TrainingProgress:
    return TrainingProgress(
        "tf_cnn_benchmarks",
        step=_number(match[1]),
        rate=_number(match[2]),
        loss=_number(match[3]),
        unit="img/s per rank",
    )


def _trainer(match: "re.Match[str]") -> TrainingProgress:
    return TrainingProgress(
        "Hugging Face Trainer", "log", _number(match[3]), epoch=_number(match[2]), loss=_number(match[1])
    )


def _deepspeed_step(match: "re.Match[str]") -> TrainingProgress:
    return TrainingProgress("DeepSpeed", "step", _number(match[1]))


def _deepspeed_rate(match: "re.Match[str]") -> TrainingProgress:
    return TrainingProgress(
        "DeepSpeed", "timer", _number(match[1]), rate=_number(match[3] or match[2]), unit="samples/s"
    )


def _megatron(match: "re.Match[str]") -> Optional[TrainingProgress]:
    fields = _fields(match[3])
    # GPT-NeoX says its rate before the iteration.
    before = _FIELD.search(match.string[: match.start()].rstrip(" |") + "|")
    rate = _number(before[2]) if before is not None and before[1].strip() == "samples/sec" else None
    seconds = fields.get("elapsed time per iteration (s)")
    milliseconds = fields.get("elapsed time per iteration (ms)")
    if seconds is None and milliseconds is not None:
        seconds = milliseconds / 1000
    if seconds is None:
        return None
    batch = fields.get("global batch size")
    if rate is None and batch is not None and seconds > 0:
        rate = batch / seconds
    loss = next((fields[name] for name in ("lm loss", "lm_loss", "loss", "total loss") if name in fields), None)
    return TrainingProgress(
        "Megatron-LM", "", _number(match[1]), _number(match[2]), loss=loss, rate=rate, unit="samples/s"
    )


def _nemo(match: "re.Match[str]") -> Optional[TrainingProgress]:
    fields = _fields(match[4])
    loss = fields.get("reduced_train_loss")
    if loss is None and "train_step_timing in s" not in fields:
        return None
    seconds, batch = fields.get("train_step_timing in s"), fields.get("global_batch_size")
    rate = batch / seconds if batch and seconds else None
    step, total = _number(match[2]), _number(match[3])
    return TrainingProgress("NeMo", "", step, total, _number(match[1]), loss, rate, "samples/s")


def _nanogpt(match: "re.Match[str]") -> TrainingProgress:
    milliseconds = _number(match[3])
    rate = 1000 / milliseconds if milliseconds else None
    return TrainingProgress("nanoGPT", step=_number(match[1]), loss=_number(match[2]), rate=rate, unit="it/s")


def _llmc(match: "re.Match[str]") -> TrainingProgress:
    rate = _number((match[4] or match[5] or "").replace(",", ""))
    return TrainingProgress(
        "llm.c", "", _number(match[1]), _number(match[2]), loss=_number(match[3]), rate=rate, unit="tokens/s"
    )


def _mnist(match: "re.Match[str]") -> TrainingProgress:
    step, total = _number(match[2]), _number(match[3])
    return TrainingProgress("PyTorch's MNIST example", "", step, total, _number(match[1]), _number(match[4]))


def _plain(match: "re.Match[str]") -> TrainingProgress:
    series = "epochs" if match[1] else "steps"
    return TrainingProgress(
        "a training of its own",
        series,
        _number(match[2]),
        _number(match[3]),
        loss=_number(match[4]),
        rate=_number(match[5]),
        unit=match[6] or "",
    )


def _titan(match: "re.Match[str]") -> TrainingProgress:
    rate = _number(match[3].replace(",", ""))
    return TrainingProgress(
        "torchtitan", step=_number(match[1]), loss=_number(match[2]), rate=rate, unit="tokens/s per rank"
    )


def _fields(text: str) -> Dict[str, float]:
    """Return the numbers of `| lm loss: 2.5E+00 | grad norm: 0.2`."""
    found: Dict[str, float] = {}
    for part in text.split("|")[:60]:
        match = _FIELD.match(f"|{part}")
        number = _number(match[2]) if match is not None else None
        if match is not None and number is not None:
            found[match[1].strip()] = number
    return found


def _number(text: Optional[str]) -> Optional[float]:
    return float(text) if text else None


_FORMS: Tuple[Tuple["re.Pattern[str]", Callable[["re.Match[str]"], Optional[TrainingProgress]]], ...] = (
    (_HOROVOD, _horovod),
    (_TF_CNN, _tf_cnn),
    (_TRAINER, _trainer),
    (_DEEPSPEED_STEP, _deepspeed_step),
    (_DEEPSPEED_RATE, _deepspeed_rate),
    (_MEGATRON, _megatron),
    (_NEMO, _nemo),
    (_NANOGPT, _nanogpt),
    (_LLMC, _llmc),
    (_TITAN, _titan),
    (_MNIST, _mnist),
    (_PLAIN, _plain),
)
