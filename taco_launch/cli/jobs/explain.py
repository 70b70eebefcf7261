"""explain: what a log tells of a failure, with cause and next step."""

import codecs
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import click

from taco_launch.cli.options.common import complete_file, settings_of, verb
from taco_launch.cli.output import render
from taco_launch.core.errors import UsageError
from taco_launch.core.model.codec import to_json
from taco_launch.core.signatures.aftermath import without_handled
from taco_launch.core.signatures.known import FailureText
from taco_launch.core.signatures.log_scan import LogScan
from taco_launch.core.signatures.match import SignatureMatch

_CHUNK = 1 << 18
_END = 1 << 12
# The first bytes of what a compressed file is read with.
_PACKED = {b"\x1f\x8b": "zcat", b"BZh": "bzcat", b"\xfd7zXZ\0": "xzcat", b"\x28\xb5\x2f\xfd": "zstdcat"}
_WIDE = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@verb(output=True)
@click.argument("log", shell_complete=complete_file)
def explain(ctx: click.Context, log: str) -> None:
    """Explain the failures in a log: cause and next step.

    LOG is a file, or - for standard input. It knows the messages of mpirun 4.1 and 5.0, UCX, libfabric, ssh, Horovod,
    NCCL, torch, Lightning, accelerate, DeepSpeed, Ray, TensorFlow, docker, Slurm, the NVIDIA container toolkit and the
    kernel, with or without the prefixes that mpirun, docker or `logs` add.

    \b
    Examples:
      taco-launch explain slurm-4711.out
      taco-launch logs -v vgg16 | taco-launch explain -
      dmesg -T | taco-launch explain - --json
    """
    settings = settings_of(ctx)
    scan = LogScan()
    end = ""
    for text in _text(log):
        scan.feed(text)
        end = (end + text)[-_END:]
    found = without_handled(scan.matches(), end, scan.lines)
    if all(match.kind is FailureText.NOTE for match in found):
        name = "standard input" if log == "-" else log
        read = f"{scan.lines} line{'' if scan.lines == 1 else 's'} read"
        unusual = scan.unusual.lines()
        last = "; these lines stand out:" if unusual else scan.last_words and f"; its last output: {scan.last_words}"
        if _is_binary(end):
            read, last, *unusual = (
                "it is not text, or not in UTF-8",
                "; name a log file, or pass on a job's log: taco-launch logs -v NAME | taco-launch explain -",
            )
        settings.talk("\n".join(map(render.printable, (f"no known failure in {name}: {read}{last}", *unusual))))
    _print_findings(found, settings.output)


def _text(log: str) -> Iterator[str]:
    """Yield a log as text, a piece at a time; what is no UTF-8, nor UTF-16 that says so, is replaced.

    Raises:
        UsageError: it cannot be read, or is compressed.
    """
    name = log if re.fullmatch(r"[a-z][a-z0-9-]*", log) else "NAME"
    hint = f"name a file, or - for standard input: taco-launch logs -v {name} | taco-launch explain -"
    try:
        if log == "-":
            if sys.stdin is None:
                raise UsageError("explain -: standard input is closed", hint=hint)
            yield from _decoded(sys.stdin.buffer, log)
            return
        with open(log, "rb") as file:
            yield from _decoded(file, log)
    except OSError as error:
        raise UsageError(f"explain {log}: {error.strerror or error}", hint=hint) from None
    except ValueError:  # a null character, which no file name has
        raise UsageError(f"explain {log}: no such file", hint=hint) from None


def _is_binary(text: str) -> bool:
    """Return whether a quarter of what was read last is not text; a log that was cut while open may start with nulls."""
    return 4 * (text.count("\0") + text.count("\ufffd")) > len(text)


def _decoded(file: BinaryIO, log: str) -> Iterator[str]:
    data = file.read(_CHUNK)
    for begin, program in _PACKED.items():
        if data.startswith(begin):
            name = "LOG" if log == "-" else shlex.quote(log)
            raise UsageError(f"explain {log}: it is compressed", hint=f"{program} {name} | taco-launch explain -")
    # Two broken bytes may look like the mark of UTF-16, whose line ends have a null besides.
    wide = data.startswith(_WIDE) and b"\0" in data[:_END]
    decoder = codecs.getincrementaldecoder("utf-16" if wide else "utf-8")("replace")
    while data:
        yield decoder.decode(data)
        data = file.read(_CHUNK)
    yield decoder.decode(b"", final=True)


def _print_findings(found: Sequence[SignatureMatch], output: str) -> None:
    """Print the known errors in a log: each with its line, its cause and what to do."""
    if output in ("json", "yaml"):
        render.data([{**to_json(match.finding), "text": match.text} for match in found], output)
        return
    for match in found:
        told = match.finding
        where = f" on {told.host}" if told.host else ""
        note = " (no failure)" if match.kind is FailureText.NOTE else ""
        click.echo(render.printable(f"line {told.line}: {told.signature}{where}{note}"))
        for name, text in (("text", match.text), ("cause", told.cause), ("next", told.next)):
            click.echo(f"  {name + ':':<7}{render.printable(text)}")
