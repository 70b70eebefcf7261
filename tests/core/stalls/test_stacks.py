"""Stacks as py-spy prints them: whose they are, where they are, and what cannot be read."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.core.model.run.rank_samples import Frame, OtherThread, Stack
from taco_launch.core.model.stalls import RankLook
from taco_launch.core.stalls import judge
from taco_launch.core.stalls.dumps import MOST_CHARACTERS, main_stack, of_threads
from taco_launch.core.stalls.groups import describe_activity, groups, sentence
from taco_launch.core.stalls.waits import place, same_python
from tests.support.recorded_stalls import situation

SITE = "/opt/venv/lib/python3.11/site-packages"
HOROVOD, C10D = f"{SITE}/horovod/torch/mpi_ops.py", f"{SITE}/torch/distributed/distributed_c10d.py"


def frame(name: str, file: str = "/train/train.py", line: int = 7) -> dict[str, object]:
    return {"name": name, "filename": file, "line": line, "module": None}


def test_the_main_thread() -> None:
    main, other = [frame("<module>")], [frame("run", "/usr/local/lib/python3.11/threading.py")]
    threads: list[dict[str, object]] = [
        {"pid": 5, "os_thread_id": 6, "thread_name": "Thread-1", "active": True, "frames": other},
        {"pid": 5, "os_thread_id": 5, "thread_name": None, "active": False, "frames": main},
    ]
    run = Frame("run", "/usr/local/lib/python3.11/threading.py", 7)
    expected = Stack((Frame("<module>", "/train/train.py", 7),), others=(OtherThread((run,), active=True),))
    assert main_stack(json.dumps(threads)) == expected
    for thread in threads:
        del thread["os_thread_id"]
    assert of_threads(threads) == expected  # by its outermost frame
    assert of_threads(threads[:1]) is None


@pytest.mark.parametrize(
    "text",
    ["", "[", "{}", "null", "[1]", '[{"frames": 3}]', '[{"thread_name": "MainThread", "frames": [3]}]', "[" * 100_000],
)
def test_what_is_no_stack(text: str) -> None:
    assert main_stack(text) is None


def test_a_stack_that_is_too_long() -> None:
    assert main_stack("[" + " " * MOST_CHARACTERS) is None
    deep = [{"thread_name": "MainThread", "frames": [frame("f") for _ in range(1000)]}]
    found = of_threads(deep)
    assert found is not None
    assert (len(found.frames), found.truncated) == (100, True)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda each: (
            st.lists(each)
            | st.dictionaries(st.sampled_from(["frames", "thread_name", "pid", "name", "filename", "line"]), each)
        ),
    )
)
def test_any_json_is_read(told: object) -> None:
    found = main_stack(json.dumps(told))
    assert found is None or place(found) is not None


@pytest.mark.parametrize(
    ("frames", "call"),
    [
        ([("synchronize", HOROVOD), ("forward", HOROVOD), ("allreduce", HOROVOD)], "hvd.allreduce"),
        ([("synchronize", HOROVOD), ("HorovodBroadcast.forward", HOROVOD)], "hvd.broadcast"),
        ([("synchronize", HOROVOD), ("synchronize", f"{SITE}/horovod/torch/optimizer.py")], "hvd.synchronize"),
        ([("barrier", C10D)], "torch.distributed.barrier"),
        ([("all_gather_into_tensor", C10D)], "torch.distributed.all_gather_into_tensor"),
        ([("c10d::TCPStore::wait", "/x/libtorch_cpu.so"), ("_store_based_barrier", C10D)], "the rendezvous store"),
        ([("PMPI_Allreduce", "/x/libmpi.so.40"), ("Allreduce", f"{SITE}/mpi4py/MPI.so")], "MPI_Allreduce"),
        ([("opal_progress", "/x/libopen-pal.so"), ("Barrier", f"{SITE}/mpi4py/MPI.so")], "MPI.Barrier"),
        ([("MPIDI_progress", "/x/libmpi.so.12")], "MPI"),
        ([("ncclGroupEnd", "/x/libnccl.so.2")], "ncclGroupEnd"),
        ([("c10d::ProcessGroupNCCL::WorkNCCL::synchronizeInternal", "/x/libtorch_cuda.so")], "torch.distributed"),
        ([("gloo::transport::tcp::UnboundBuffer::waitRecv", "/x/libtorch_cpu.so")], "torch.distributed"),
        ([("__getitem__", f"{SITE}/torch/utils/data/dataset.py")], ""),
        ([("synchronize_weights", "/train/mine.py")], ""),
        ([("clock_nanosleep", "/x/libc.so.6")], ""),
    ],
)
def test_calls_that_wait_for_other_ranks(frames: list[tuple[str, str]], call: str) -> None:
    stack = Stack(
        (*(Frame(name, file, 0 if ".so" in file else 3) for name, file in frames), Frame("step", "/train/train.py", 57))
    )
    found = place(stack)
    assert found.call == call
    assert found.line.endswith(".py:57") or "mine.py" in found.line


def test_a_program_that_is_all_library() -> None:
    stack = Stack((Frame("train", f"{SITE}/transformers/trainer.py", 5), Frame("main", f"{SITE}/cli/run.py", 6)))
    assert place(stack).line == "trainer.py:5"
    assert place(Stack((Frame("f", "/x/a.so"),))) == place(Stack((Frame("f", "/x/a.so"),)))
    assert place(Stack(())).line == ""


def test_native_frames_move_while_a_call_polls() -> None:
    ranks = situation("mpi_receives_nothing")
    stacks = [look.stack for look in ranks[0].looks[-6:] if look.stack is not None]
    assert len(set(stacks)) > 1
    assert all(same_python(stacks[0], other) for other in stacks)


def look(rank: int, host: str, stack: Stack) -> RankLook:
    where = place(stack)
    return RankLook(rank, host=host, does=describe_activity(where), waits=where.waits)


def test_groups_in_words() -> None:
    at = Stack((Frame("load", "/train/data.py", 3), Frame("<module>", "/train/train.py", 9)))
    other = Stack((Frame("save", "/train/train.py", 30),))
    found = groups([look(0, "a", at), look(1, "b", at), look(2, "c", other)])
    same = [replace(found[1], ranks=((0, "a"), (1, "a")))]
    assert sentence(same) == "ranks 0, 1 on a are in load at data.py:3"
    assert sentence(found) == "rank 2 on c is in save at train.py:30; ranks 0 on a, 1 on b are in load at data.py:3"
    assert sentence(()) == ""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "[W stall_inspector.cc:105] One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks",
            True,
        ),
        ("Stalled ranks:", True),
        ("1: [allreduce.gradient, allreduce.bias]", True),
        ("gradient [missing ranks: 0]", True),
        ("[Rank 118] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2398459", True),
        ("step 10", False),
        ("loss: 1.5", False),
        ("1: [1.5, 2.5]" * 1000, False),
    ],
)
def test_lines_that_only_say_that_it_hangs(line: str, expected: bool) -> None:
    assert judge.is_stall(line) is expected
