r"""Finds the lines of a benchmark in a log: what each says, and which rank printed it.

Two forms of log are known:

- Horovod's synthetic benchmark, and ours, which prints the same lines: `Model: M`, `Batch size: B`,
  `Number of GPUs: N`, `Iter #K: V img/sec per GPU`, `Img/sec per GPU: V +-H`, `Total img/sec on N GPU(s): V +-H`,
  all of them by rank 0 only. `CPU`, `HPU` and the like may stand for `GPU`.
- tf_cnn_benchmarks: `Devices: ['horovod/gpu:0', ...]`, `STEP images/sec: V +/- H (jitter = J) LOSS` and
  `total images/sec: V`, by every rank; the total is that of all ranks.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple


class RefusedError(Exception):
    """Why a log gives no sample; never leaves `parse`."""


class LogLine(NamedTuple):
    """One line of a form: where it stands (from 1), the ranks its tags name, which line it is, its values, its text."""

    number: int
    printed_by: tuple[str, ...]
    kind: str
    values: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        """Return the line as messages name it."""
        return f"line {self.number}: {shown(self.text)}"


# A cut line must never read as a whole one, so the digits after the point are counted: one in Horovod's form, two in
# the totals of tf_cnn_benchmarks, as their format strings (%.1f, %.2f) print them.
_NUMBER = r"(\d{1,15}\.\d|-?nan|-?inf)"
_FORMS = tuple(
    (kind, re.compile(pattern, re.ASCII))
    for kind, pattern in (
        ("iteration", rf"Iter #(\d{{1,9}}): {_NUMBER} img/sec per [A-Z]PU"),
        ("step", r"(\d{1,9})\s+images/sec: (\d{1,15}\.\d) \+/- \S+ \(jitter = [\w.-]+\)(?:\s+[\w.+-]+)*"),
        ("rate", rf"Img/sec per [A-Z]PU: {_NUMBER} \+-{_NUMBER}"),
        ("total", rf"Total img/sec on (\d{{1,9}}) [A-Z]PU\(s\): {_NUMBER} \+-{_NUMBER}"),
        ("tf_total", r"total images/sec: (\d{1,15}\.\d\d|-?nan|-?inf)"),
        ("tf_header", r"Step\s+Img/sec\s[\w\s]*"),
        ("ranks", r"Number of [A-Z]PUs: (\d{1,9})"),
        ("model", r"Model:\s+([\w.+/-]+)"),
        ("batch", r"Batch size: (\d{1,9})"),
        ("tf_batch", r"(\d{1,9})(?:\.0)? per device"),
        ("tf_devices", r"Devices:\s+\[('[^']*'(?:, '[^']*')*)\]"),
    )
)
_WORDS = re.compile(r"[Ii]mg/sec|images/sec|Model:|Batch size:|Number of [A-Z]PUs:|per device|Devices:")
_RATE_WORDS = re.compile(r"[Ii]mg/sec|images/sec")
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|\([A-Z0-9])")
# What is put before each line, with the rank or pod where it names one: by our own merged log, `kubectl logs --prefix`,
# torchrun, `docker logs -t`; and by those who quote it.
_LABELS = (
    r"[^\s|]+/(\d+)\s+\|",
    r"\[(pod/[\w.-]+/[\w.-]+)\](?:\s|$)",
    r"\[[a-z]\w{0,63}?(\d{1,7})\]:",
    r"()>\s",
    r"()\d{4}-\d\d-\d\dT[\d:.]+Z\s",
)
# The same of `srun -l`, Hydra's -l and docker compose, whose forms a program's own lines may have, too.
_LOOSE_LABELS = (r"(\d{1,7}):(?:\s|$)", r"\[(\d{1,7})\](?:\s|$)", r"([a-z0-9][\w.-]{0,255})\s+\|(?:\s|$)")
_LABEL = re.compile(rf"(?:{'|'.join(_LABELS)})\s*", re.ASCII)
_LABEL_OR_LOOSE = re.compile(rf"(?:{'|'.join((*_LABELS, *_LOOSE_LABELS))})\s*", re.ASCII)
_TAGGED = (  # [JOB,RANK]<stdout>: of mpirun, [RANK]<stdout>: of horovodrun, the time before it on request
    r"(?:\[?[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\]?)?"
    r"(?:\[(?:\d+,)?(?P<rank>\d+)\])?<std(?:out|err|diag)>:"
)
_TAG = re.compile(_TAGGED, re.ASCII)
_LAST_TAG = re.compile(_TAGGED + r"\Z", re.ASCII)
_LINE_END = re.compile(r"[\r\n]")
_SHOWN = 120


def lines(text: str) -> Iterator[LogLine]:
    """Yield the lines of the two forms, from a log with anything else in between; in time linear to its length.

    What launchers, Kubernetes, docker or our own merged log put before a line is taken off, and so are colours.

    Raises:
        RefusedError: A line speaks of a rate and is not whole.
    """
    for number, marked in _marked(without_escapes(text)):
        line = _read(number, marked.strip())
        if line is not None:
            yield line


def without_escapes(text: str) -> str:
    """Return a text without colours and the like."""
    return _ESCAPES.sub("", text) if "\x1b" in text else text


def _marked(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line number, line) of the lines that hold a word of the forms: most lines of a big log do not.

    A carriage return ends a line too, since a progress display may stand before what replaced it, but does not count.
    """
    position, number = 0, 1
    while found := _WORDS.search(text, position):
        begin = max(position, *(text.rfind(end, position, found.start()) + 1 for end in "\r\n"))
        number += text.count("\n", position, begin)
        end = _LINE_END.search(text, found.end())
        position = end.start() if end else len(text)
        yield number, text[begin:position]


def _read(number: int, text: str) -> LogLine | None:
    rest, printed_by = untagged(text)
    for kind, form in _FORMS:
        match = form.fullmatch(rest)
        if match is not None:
            return LogLine(number, printed_by, kind, match.groups(), rest)
    if _RATE_WORDS.search(rest):
        raise RefusedError(
            f"line {number}: {shown(rest)} is truncated, mixed with another line, or in an unknown format"
        )
    return None


def untagged(text: str, *, loose: bool = True) -> tuple[str, tuple[str, ...]]:
    """Return a line without the labels before it, and the ranks that they name.

    Without `loose` a label stays whose form a line of any program may have.

    mpirun's tag is taken off the end too where it names the same rank: it writes `text[1,0]<stdout>:` where the end of
    the line reached it after the text (seen with Open MPI 4.1.4).
    """
    ranks = []
    begin, form = 0, _LABEL_OR_LOOSE if loose else _LABEL
    while label := form.match(text, begin):
        ranks += [rank for rank in label.groups() if rank]
        begin = label.end()
    text = text[begin:]
    tag = _TAG.match(text)
    if tag is not None:
        ranks.append(tag["rank"] or "")
        text = text[tag.end() :].lstrip()
        last = _LAST_TAG.search(text)
        if last is not None and last["rank"] == tag["rank"]:
            text = text[: last.start()].rstrip()
    return text, tuple(ranks)


def shown(text: str) -> str:
    """Return a text as messages name it: in quotes, and not long."""
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")
