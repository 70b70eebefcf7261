"""Where a stack is, in the words of a user: on which line of their files, and in which call that waits for other ranks."""

import re
from typing import NamedTuple, Optional, Tuple

from taco_launch.core.model.run.rank_samples import Frame, Stack

# What stands in folders of these names is a library's, not the user's.
_LIBRARY = re.compile(
    r"/(?:site|dist)-packages/|/lib(?:64)?/python\d|^<frozen |^<string>$|\.(?:so|pyx|pxd|pxi|c|cc|cpp|cu|cuh|h|hpp|inl)(?:$|[.\d])"
)
_STANDARD = re.compile(
    r"/lib(?:64)?/python\d[\w.]*/(?!(?:site|dist)-packages)|^(?:queue|threading|selectors|socket|multiprocessing)"
)
_BACKWARD = re.compile(r"/torch/autograd/")
# Of these the lines change while nothing happens.
_BELOW = re.compile(
    r"/lib(?:64)?/python\d[\w.]*/(?!(?:site|dist)-packages)|torch/utils/data/|\.(?:so|pyx|pxd|c|cc|cpp|cu|cuh|h|hpp|inl)(?:$|[.\d])"
)
_OPERATIONS = (
    "allreduce|allgather|allgatherv|broadcast|bcast|alltoall|alltoallv|reducescatter|reduce_scatter|barrier|join|reduce|gather|scatter|"
    "all_reduce|all_gather|all_to_all|recv|send|isend|irecv|monitored_barrier|wait|synchronize"
)
_HOROVOD_CALL = re.compile(
    r"(?:Horovod)?(Allreduce|Allgather|Broadcast|Alltoall|Reducescatter|Join|Barrier)(?:\.\w+)?$|^(?:grouped_)?(allreduce|allgather|broadcast|alltoall|reducescatter|join|barrier)_?(?:_async_?)?$",
    re.IGNORECASE,
)
_TORCH_CALL = re.compile(rf"^(?:batch_)?({_OPERATIONS})(?:_\w+)?$")
_MPI_CALL = re.compile(r"^P?MPI_(\w+)$")
_MPI4PY_CALL = re.compile(r"^(?:[\w.]*\.)?([A-Za-z]\w*)$")
_MPI_INSIDE = re.compile(r"^(?:ompi_|opal_progress|mca_|MPIR_|MPID_|MPIDI_|PMPI_)")
_NCCL = re.compile(r"^(?:nccl[A-Z]\w*|pnccl\w+)")
_GPU_WAIT = re.compile(
    r"^(?:cu(?:da)?(?:Stream|Event|Device|Ctx)Synchronize\w*|cuStreamSynchronize\w*|c10::cuda::\w+::synchronize|hip\w+Synchronize)"
)
_C10D_WAIT = re.compile(r"c10d::.*(?:[wW]ait|synchronize|recv)|^gloo::|c10d::Reducer::finalize_backward")
_STORE = re.compile(r"c10d::\w*Store::")


class Place(NamedTuple):
    """Where a stack is: `line` is `train.py:57` of the user's file ("" for none), `function` its function there.

    `call` is what it waits in for other ranks (`hvd.allreduce`), "" where it waits in no known call; `gpu` says that it
    waits for a GPU, which may compute or wait itself; `inside` is the call of the standard library that it is in.
    """

    function: str
    line: str
    call: str
    gpu: bool = False
    inside: str = ""

    @property
    def waits(self) -> bool:
        """Whether it waits for other ranks."""
        return bool(self.call)


def place(stack: Stack) -> Place:
    """Return where a stack is."""
    user = next((frame for frame in stack.frames if not is_library(frame)), None)
    inner = stack.frames if user is None else stack.frames[: stack.frames.index(user)]
    python = user or next((frame for frame in stack.frames if frame.line and not _is_native(frame)), None)
    line = f"{_name(python.file)}:{python.line}" if python is not None else ""
    function = python.function if python is not None else stack.frames[0].function if stack.frames else ""
    call, gpu = _call(inner)
    if not call and any(_BACKWARD.search(frame.file) for frame in inner):
        # Autograd runs hooks, and with them collectives, in threads of its own, which the main thread waits for.
        call = next(filter(None, (_call(other.frames)[0] for other in stack.others)), "")
    standard = next(
        (frame for frame in reversed(inner) if _STANDARD.search(frame.file) and not _is_native(frame)), None
    )
    return Place(function, line, call, gpu, standard.function if standard is not None else "")


def busy(stack: Stack) -> Optional[Frame]:
    """Return where a thread beside the main one works: it runs, and waits in no known call; None without one."""
    for other in stack.others:
        if other.active and not _call(other.frames)[0]:
            return next(frame for frame in other.frames if frame.line)
    return None


def waits_for_children(stack: Stack) -> bool:
    """Return whether a program has started others with multiprocessing, or torch's, and waits for their end."""
    return any(frame.function.endswith("join") and "multiprocessing" in frame.file for frame in stack.frames)


def is_library(frame: Frame) -> bool:
    """Return whether a frame is of no file of the user's."""
    return bool(_LIBRARY.search(frame.file)) or not frame.file or _is_native(frame)


def _call(frames: Tuple[Frame, ...]) -> Tuple[str, bool]:
    """Return the call for other ranks that frames are in, and whether they wait for a GPU; the outermost name is a user's."""
    gpu = any(_GPU_WAIT.search(frame.function) for frame in frames)
    for name in (_horovod(frames), _torch(frames), _mpi(frames), _native(frames)):
        if name:
            return name, gpu
    return "", gpu


def _horovod(frames: Tuple[Frame, ...]) -> str:
    own = [frame for frame in frames if "/horovod/" in frame.file]
    for frame in reversed(own):
        match = _HOROVOD_CALL.search(frame.function)
        if match is not None:
            return f"hvd.{(match[1] or match[2]).lower()}"
    waits = any(frame.function in ("synchronize", "horovod::torch::WaitAndClear") for frame in (*own, *frames))
    return "hvd.synchronize" if waits else ""


def _torch(frames: Tuple[Frame, ...]) -> str:
    for frame in reversed(frames):
        if frame.file.endswith("torch/distributed/distributed_c10d.py") and _TORCH_CALL.match(frame.function):
            return f"torch.distributed.{frame.function}"
    return ""


def _mpi(frames: Tuple[Frame, ...]) -> str:
    for frame in frames:
        match = _MPI_CALL.match(frame.function)
        if match is not None:
            return f"MPI_{match[1]}"
    if any(_MPI_INSIDE.match(frame.function) for frame in frames):
        return next(
            (f"MPI.{frame.function.rpartition('.')[2]}" for frame in reversed(frames) if "mpi4py" in frame.file), "MPI"
        )
    return ""


def _native(frames: Tuple[Frame, ...]) -> str:
    for frame in frames:
        if _NCCL.match(frame.function):
            return frame.function
        if _STORE.search(frame.function):
            return "the rendezvous store"
        if _C10D_WAIT.search(frame.function):
            return "torch.distributed"
    return ""


def _is_native(frame: Frame) -> bool:
    return ".so" in frame.file or not frame.line


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def same_python(one: Stack, other: Stack) -> bool:
    """Return whether two stacks are on the same lines of Python.

    Native code below moves while a call polls, and so does what waits for a queue: the standard library, torch's loader.
    """
    return _python(one) == _python(other)


def _python(stack: Stack) -> Tuple[Frame, ...]:
    return tuple(frame for frame in stack.frames if frame.line and not _BELOW.search(frame.file))
