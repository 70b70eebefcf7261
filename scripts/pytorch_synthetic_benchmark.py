#!/usr/bin/env python3
"""Measures how many made-up images per second a model trains on, alone or with many ranks.

Start it under mpirun or horovodrun (Horovod), under torchrun (torch.distributed), or alone. Needs benchmark_run.py and
benchmark_models.py beside it. Exit codes: 0 measured, 1 failed, 2 usage, 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import importlib
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from benchmark_run import Comm

_FAILED, _USAGE, _INTERRUPTED = 1, 2, 130
# who am I, of how many, on this host: torchrun's names (our launcher sets them too), Open MPI's, Horovod's own
_RANK_NAMES = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK"),
)
_LAUNCHED = ("OMPI_COMM_WORLD_SIZE", "HOROVOD_SIZE")  # mpirun or horovodrun over it, horovodrun over Gloo


class _FaultError(Exception):
    """Ends this rank: one line with what failed and what to type next, and the exit code."""

    def __init__(self, message: str, exit_code: int = _FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with the command line in one line: under mpirun every rank says it."""

    def error(self, message: str) -> NoReturn:
        raise _FaultError(f"{message}; {self.prog} --help shows all options", _USAGE)


def main(argv: list[str], environ: Mapping[str, str]) -> int:
    """Run one rank; give its exit code."""
    try:
        _benchmark(_parser().parse_args(argv), environ)
    except _FaultError as fault:
        _complain(str(fault), environ)
        return fault.exit_code
    except KeyboardInterrupt:
        return _INTERRUPTED
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        description="Measure how many made-up images per second a model trains on.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "--model", default="resnet50", help="resnet18, resnet50, resnet101, vgg16, tiny, or any of torchvision's"
    )
    parser.add_argument("--batch-size", type=_positive, default=32, help="images per rank and step")
    parser.add_argument("--image-size", type=_image_size, default=224, help="width and height in pixels")
    parser.add_argument("--num-warmup-batches", type=_count, default=10, help="steps before the clock starts")
    parser.add_argument("--num-batches-per-iter", type=_positive, default=10, help="steps per iteration")
    parser.add_argument("--num-iters", type=_positive, default=10, help="iterations; each gives one rate")
    parser.add_argument("--no-cuda", action="store_true", help="train on the CPU where there is a GPU, too")
    parser.add_argument("--threads", type=_positive, help="CPU threads of each rank; torch's own choice without it")
    parser.add_argument(
        "--comm",
        choices=("horovod", "torch", "none"),
        help="how the ranks communicate; without it horovod under mpirun and horovodrun where it imports, "
        "else torch where RANK and WORLD_SIZE are set, else none",
    )
    parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients in half precision")
    parser.add_argument("--use-adasum", action="store_true", help="combine gradients by Adasum (Horovod only)")
    parser.add_argument(
        "--gradients-only", action="store_true", help="only exchange the model's gradients: no forward, no backward"
    )
    # torch.distributed.launch gives it to every script, in either spelling; LOCAL_RANK says the same
    parser.add_argument("--local_rank", "--local-rank", type=_count, help=argparse.SUPPRESS)
    return parser


def _count(text: str) -> int:
    return _at_least(0, text)


def _positive(text: str) -> int:
    return _at_least(1, text)


def _image_size(text: str) -> int:
    return _at_least(32, text)  # the models halve it five times


def _at_least(lowest: int, text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = lowest - 1
    if number < lowest:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {lowest}")
    return number


def _benchmark(asked: argparse.Namespace, environ: Mapping[str, str]) -> None:
    try:
        import benchmark_models  # noqa: PLC0415 - torch takes seconds to import, or is missing: --help needs none of it
        import benchmark_run  # noqa: PLC0415
    except (ImportError, OSError) as error:
        ours = getattr(error, "name", None) in ("benchmark_models", "benchmark_run")
        what, remedy = ("a part of this script", "copy it here too") if ours else ("torch", "pip install torch")
        raise _FaultError(f"{what} does not import ({_line(error)}): {remedy}") from None
    options = benchmark_run.Options(
        model=asked.model,
        batch_size=asked.batch_size,
        image_size=asked.image_size,
        warmup_batches=asked.num_warmup_batches,
        batches_per_iter=asked.num_batches_per_iter,
        iters=asked.num_iters,
        fp16_allreduce=asked.fp16_allreduce,
        use_adasum=asked.use_adasum,
        gradients_only=asked.gradients_only,
        no_cuda=asked.no_cuda,
        threads=asked.threads,
    )
    name = asked.comm or _default_comm(environ)
    if asked.gradients_only and name == "none":
        raise _FaultError("--gradients-only measures communication: give --comm horovod or --comm torch", _USAGE)
    if asked.use_adasum and name != "horovod":
        raise _FaultError(f"--use-adasum needs --comm horovod, not {name}", _USAGE)
    try:
        benchmark_run.run(options, _comm(name, asked, environ))
    except benchmark_models.UnknownModelError as error:
        raise _FaultError(f"{error}; --model tiny is always there", _USAGE) from None
    except (RuntimeError, MemoryError, ValueError, TypeError, OSError) as error:
        raise _FaultError(_explain(error, asked)) from None


def _default_comm(environ: Mapping[str, str]) -> str:
    launched = [name for name in _LAUNCHED if name in environ]
    why_not = _horovod_fault() if launched else ""
    if launched and not why_not:
        return "horovod"
    if "RANK" in environ and "WORLD_SIZE" in environ:
        return "torch"
    if launched and environ[launched[0]] != "1":
        raise _FaultError(
            f"{launched[0]} is {environ[launched[0]]}, but horovod does not import ({why_not}): install it, or give "
            "--comm torch, or --comm none to let every rank train alone"
        )
    return "none"


def _horovod_fault() -> str:
    """Return why Horovod cannot be used, nothing where it can."""
    try:
        importlib.import_module("horovod.torch")
    except (ImportError, OSError, RuntimeError, AttributeError) as error:  # not built for this torch, this MPI, ...
        return _line(error)
    return ""


def _comm(name: str, asked: argparse.Namespace, environ: Mapping[str, str]) -> Comm:
    import benchmark_run  # noqa: PLC0415 - see above

    if name == "none":
        return benchmark_run.Alone()
    place = _place(environ)
    if name == "horovod":
        if why_not := _horovod_fault():
            raise _FaultError(
                f"horovod does not import ({why_not}): pip install horovod, or give --comm torch or --comm none"
            )
        comm = benchmark_run.Horovod(fp16=asked.fp16_allreduce, adasum=asked.use_adasum)
        # a Horovod built without MPI finds only itself under mpirun
        if place is not None and place[1] != comm.size:
            raise _FaultError(
                f"the launcher started {place[1]} ranks, Horovod finds {comm.size}: see horovodrun --check-build, "
                "or give --comm torch"
            )
        return comm
    if place is None:
        raise _FaultError("--comm torch finds no RANK and WORLD_SIZE: start it with mpirun or torchrun", _USAGE)
    missing = [variable for variable in ("MASTER_ADDR", "MASTER_PORT") if not environ.get(variable)]
    if missing:
        raise _FaultError(
            f"--comm torch needs {' and '.join(missing)} in the environment, where rank 0 can be reached: "
            "mpirun -x MASTER_ADDR=HOST -x MASTER_PORT=29500 ...",
            _USAGE,
        )
    if not environ["MASTER_PORT"].isdecimal():
        raise _FaultError(f"MASTER_PORT must be a port number, not {environ['MASTER_PORT']!r}", _USAGE)
    return benchmark_run.TorchDistributed(*place, fp16=asked.fp16_allreduce)


def _place(environ: Mapping[str, str]) -> tuple[int, int, int] | None:
    """Return rank, world size and local rank as the launcher says them, None where none does."""
    for names in _RANK_NAMES:
        texts = [environ.get(name, "") for name in names]
        if texts[0] and texts[1]:
            numbers = all(text.isdecimal() for text in (*texts[:2], texts[2] or "0"))
            if not numbers or int(texts[0]) >= int(texts[1]):
                shown = ", ".join(f"{name}={environ[name]}" for name in names if environ.get(name))
                raise _FaultError(f"{shown} is not a rank of a number of ranks: fix the environment", _USAGE)
            return int(texts[0]), int(texts[1]), int(texts[2] or "0")
    return None


def _explain(error: Exception, asked: argparse.Namespace) -> str:
    text = _line(error)
    lower = text.lower()
    if isinstance(error, MemoryError) or "out of memory" in lower or "can't allocate memory" in lower:
        less = f"try --batch-size {asked.batch_size // 2}" if asked.batch_size > 1 else "try a smaller --image-size"
        return f"{asked.model} with batch size {asked.batch_size} does not fit into memory ({text}): {less}"
    return f"{asked.model} failed ({type(error).__name__}: {text}); try --model tiny --comm none, then one of the two"


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:600]


def _complain(message: str, environ: Mapping[str, str]) -> None:
    try:
        place = _place(environ)
    except _FaultError:
        place = None
    rank = f"rank {place[0]} on {socket.gethostname()}: " if place and place[1] > 1 else ""
    print(f"{Path(sys.argv[0]).name}: {rank}{message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    code = main(sys.argv[1:], os.environ)
    sys.stdout.flush()
    # no teardown of the interpreter: with torch 2.13 over Gloo it aborts now and then ("terminate called without an
    # active exception", exit code 134) after a good run, and after a failure Horovod's would wait for the other ranks
    os._exit(code)
