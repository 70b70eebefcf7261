"""A training that works for some seconds and then does what its first argument says; run by tests/core/stalls/record.py."""
# ruff: noqa: PLC0415 - each situation needs the libraries of its own only

import importlib
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

SITUATION, FOLDER, SECONDS = sys.argv[1], sys.argv[2], float(sys.argv[3])
PAUSE = 0.05


class Alone:
    rank = 0

    def reduce(self) -> None:
        time.sleep(0.01)


class Horovod:
    def __init__(self) -> None:
        import torch

        hvd = importlib.import_module("horovod.torch")
        hvd.init()
        self.hvd, self.tensor, self.rank = hvd, torch.ones(65536), hvd.rank()

    def reduce(self) -> None:
        self.hvd.allreduce(self.tensor, name="gradient")


class Gloo:
    def __init__(self) -> None:
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo", timeout=timedelta(hours=1))
        self.dist, self.tensor, self.rank = dist, torch.ones(65536), dist.get_rank()

    def reduce(self) -> None:
        self.dist.all_reduce(self.tensor)


class Mpi:
    def __init__(self) -> None:
        import numpy as np

        self.world = importlib.import_module("mpi4py.MPI").COMM_WORLD
        self.rank = self.world.Get_rank()
        self.tensor, self.sum = np.ones(65536), np.ones(65536)

    def reduce(self) -> None:
        self.world.Allreduce(self.tensor, self.sum)


def load_batch(_job: Any) -> None:
    time.sleep(10**6)


def read_slowly(_job: Any) -> None:
    with open("/dev/zero", "rb", buffering=0) as file:
        while file.read(65536):
            time.sleep(0.4)


def save_slowly(_job: Any) -> None:
    with open(f"{FOLDER}/checkpoint", "wb", buffering=0) as file:
        for _ in range(1000):
            file.write(bytes(1 << 18))
            time.sleep(0.4)


def evaluate(_job: Any) -> None:
    found = 0
    for number in range(10**10):
        found += number % 7


def compute(_job: Any) -> None:
    import torch

    torch.set_num_threads(1)
    matrix = torch.ones(9000, 9000)
    torch.mm(matrix, matrix)


def wait_for_loader(_job: Any) -> None:
    batches: queue.Queue[int] = queue.Queue()
    threading.Thread(target=lambda: None).start()
    batches.get()


def receive(job: Any) -> None:
    job.dist.recv(job.tensor, src=1 - job.rank)


def receive_from_0(job: Any) -> None:
    job.world.recv(source=0)


def stop(_job: Any) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def barrier(job: Any) -> None:
    job.dist.barrier()


# What ranks do when they have worked, and what the others do meanwhile; all of them reduce besides.
THEN: dict[str, dict[int, Callable[[Any], None]]] = {
    "horovod_one_sleeps": {1: load_batch},
    "gloo_one_sleeps": {1: load_batch},
    "mpi_receives_nothing": {1: receive_from_0},
    "mpi_one_is_stopped": {1: stop},
    "mpi_network_is_stuck": {},
    "gloo_both_receive": {0: receive, 1: receive},
    "gloo_barrier": {0: barrier, 1: load_batch},
    "horovod_one_computes": {0: compute},
    "horovod_one_reads_slowly": {0: read_slowly},
    "gloo_one_saves": {0: save_slowly, 1: barrier},
    "gloo_one_evaluates": {0: evaluate, 1: barrier},
    "alone_loader_is_dead": {0: wait_for_loader},
    "horovod_trains": {},
    "gloo_trains": {},
}
KINDS: dict[str, Callable[[], Any]] = {"horovod": Horovod, "gloo": Gloo, "mpi": Mpi, "alone": Alone}


def main() -> None:
    job = KINDS[SITUATION.partition("_")[0]]()
    with open(f"{FOLDER}/{job.rank}.pid", "w", encoding="ascii") as file:
        file.write(str(os.getpid()))
    step = 0
    while step < SECONDS / PAUSE or not THEN[SITUATION]:  # all ranks reduce equally often
        time.sleep(PAUSE)
        job.reduce()
        step += 1
        if job.rank == 0 and step % 10 == 0:
            print(f"step {step}", flush=True)
    THEN[SITUATION].get(job.rank, lambda _job: None)(job)
    job.reduce()


main()
