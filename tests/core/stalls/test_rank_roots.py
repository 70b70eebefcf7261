"""Whose rank a process is, by the variables of all launchers above it. The variables are those that real launchers gave."""

from collections.abc import Mapping

from taco_launch.core.stalls.rank_roots import ProcessSeen, RankRoot, matching_roots, rank_roots


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
