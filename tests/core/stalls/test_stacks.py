"""Stacks as py-spy prints them: whose they are, where they are, and what cannot be read."""

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.core.model.run.rank_samples import Frame, OtherThread, Stack
from taco_launch.core.model.stalls import RankLook
from taco_launch.core.stalls import judge
from taco_launch.core.stalls.dumps import MOST_CHARACTERS, main_stack, of_threads
from taco_launch.core.stalls.groups import describe_activity, groups, sentence
from taco_launch.core.stalls.rank_roots import ProcessSeen, RankRoot, matching_roots, rank_roots
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


# --- Whose rank a process is, by the variables of all launchers above it. The variables are those that real launchers gave


def ompi(rank: int, size: int = 2, job: str = "1910439937") -> dict[str, str]:
    return {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": str(size), "PMIX_NAMESPACE": job}


def torch(rank: int, size: int = 2, master: str = "gpu1", port: str = "29500") -> dict[str, str]:
    return {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": master, "MASTER_PORT": port}


def slurm(rank: int, step: str = "0") -> dict[str, str]:
    return {"SLURM_PROCID": str(rank), "SLURM_NTASKS": "2", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": step}


def hydra(rank: int) -> dict[str, str]:
    return {"PMI_RANK": str(rank), "PMI_SIZE": "2"}


def seen(*rows: tuple[int, int, Mapping[str, str]]) -> dict[int, ProcessSeen]:
    """Return processes of (pid, parent, variables), each with a command line of its number."""
    return {
        pid: ProcessSeen(parent, pid, variables, f"program {pid}", "gpu1 net:[1]") for pid, parent, variables in rows
    }


def roots(*rows: tuple[int, int, Mapping[str, str]]) -> list[RankRoot]:
    return rank_roots(seen(*rows))


def test_the_uppermost_process_with_the_variables_is_the_rank() -> None:
    """Under mpirun's daemon a shell runs the program, which has loaders; mpirun itself has no rank."""
    found = roots(
        (10, 1, {}), (11, 10, ompi(0)), (12, 11, ompi(0)), (13, 12, ompi(0)), (21, 10, ompi(1)), (22, 21, ompi(1))
    )
    assert [(root.pid, root.rank, root.size, root.job) for root in found] == [
        (11, 0, 2, "1910439937"),
        (21, 1, 2, "1910439937"),
    ]


def test_the_nearest_launcher_counts() -> None:
    """Torchrun in a step of Slurm, and mpirun in a pod that an operator has given a rank."""
    step = slurm(0)
    found = roots((10, 1, step), (11, 10, step | torch(0)), (12, 10, step | torch(1)))
    assert [(root.launcher, root.pid) for root in found] == [("torch.distributed", 11), ("torch.distributed", 12)]
    pod = torch(0, 3)
    found = roots((10, 1, pod), (11, 10, pod | ompi(0)), (12, 10, pod | ompi(1)))
    assert [(root.launcher, root.pid) for root in found] == [("Open MPI", 11), ("Open MPI", 12)]


def test_a_pod_whose_only_process_is_its_rank() -> None:
    (found,) = roots((1, 0, torch(2, 3, "job-master-0")))
    assert (found.rank, found.size, found.job) == (2, 3, "job-master-0:29500")


def test_what_a_rank_left_behind_is_no_second_rank() -> None:
    (found,) = roots((11, 10, ompi(0)), (30, 1, ompi(0)))
    assert found.pid == 11


def test_what_an_earlier_run_left_behind_does_not_hide_the_rank() -> None:
    (found,) = roots((5, 1, torch(0)), (10, 1, {}), (11, 10, torch(0)))
    assert found.pid == 11


def test_a_rank_that_tells_its_children_its_number_is_the_rank() -> None:
    """A rank of Slurm sets the variables of torch itself: they appear only in the environment of its children."""
    found = roots((11, 10, slurm(0)), (12, 11, slurm(0) | torch(0)), (21, 10, slurm(1)))
    assert [(root.pid, root.launcher) for root in found] == [(11, "Slurm"), (21, "Slurm")]


def test_the_helper_of_a_program_without_a_launcher_tells_its_rank() -> None:
    """Workers of torch.multiprocessing set their variables where only their children show them."""
    spawned = "python -c from multiprocessing.spawn import spawn_main"
    tracker = "python -c from multiprocessing.resource_tracker import main"
    rows = seen((10, 1, {}), (11, 10, {}), (12, 11, torch(0)), (21, 10, {}), (22, 21, torch(1)))
    commands = {11: spawned, 21: spawned, 12: tracker, 22: tracker}
    rows = {pid: one._replace(command=commands.get(pid, one.command)) for pid, one in rows.items()}
    assert [(root.pid, root.rank) for root in rank_roots(rows)] == [(11, 0), (21, 1)]


def test_a_rank_that_runs_a_job_of_its_own_is_a_rank_all_the_same() -> None:
    """Rank 0 evaluates with torchrun, which has not launched rank 1."""
    own = torch(0, 2)
    below = torch(0, 1, "localhost", "4000")
    found = roots((11, 10, own), (12, 11, own), (13, 12, below), (21, 10, torch(1, 2)))
    assert [(root.pid, root.size) for root in found] == [(11, 2), (21, 2), (13, 1)]


def test_jobs_are_told_apart() -> None:
    """By their namespace; by their rendezvous, which on this host is this host's alone; Hydra's by their proxy."""
    jobs = roots((11, 10, ompi(0)), (21, 20, ompi(0, job="prterun-gpu1-7463@1")))
    assert {root.job for root in jobs} == {"1910439937", "prterun-gpu1-7463@1"}
    local = torch(0, master="localhost")
    containers = seen((11, 10, local), (21, 20, local))
    containers[21] = containers[21]._replace(network="gpu1 net:[2]")
    assert [root.job for root in rank_roots(containers)] == [
        f"localhost:29500:gpu1 net:[{number}]" for number in (1, 2)
    ]
    assert len(roots((11, 10, torch(0, 4)), (21, 20, torch(0, 8)))) == 2
    runs = roots((10, 1, {}), (11, 10, hydra(0)), (20, 1, {}), (21, 20, hydra(0)))
    assert [(root.pid, root.parent) for root in runs] == [(11, 10), (21, 20)]


def test_a_batch_script_is_no_rank() -> None:
    assert not roots((11, 1, slurm(0, "4294967291")), (12, 1, slurm(0, "")))
    assert [root.rank for root in roots((11, 1, slurm(0)), (12, 1, slurm(1)))] == [0, 1]


def test_variables_that_no_launcher_writes() -> None:
    for rank, size in (("-1", "2"), ("2", "2"), ("0", "0"), ("0", "9" * 9), ("", "2"), ("zero", "2"), ("²", "9")):
        assert not roots((11, 1, {"RANK": rank, "WORLD_SIZE": size})), (rank, size)


def test_by_the_command_line() -> None:
    """Of a program and what it has started the uppermost; parents in a circle, whose numbers were given again, end."""
    found = matching_roots(seen((10, 1, {}), (11, 10, {}), (30, 31, {}), (31, 30, {})), "program 1")
    assert [(root.pid, root.rank, root.size, root.launcher) for root in found] == [(10, 0, 0, "")]
    assert not roots((30, 31, ompi(0)), (31, 30, ompi(0)))
