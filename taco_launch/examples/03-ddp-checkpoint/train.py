"""Trains on made-up digits with DistributedDataParallel, saves checkpoints, and continues from the last one."""

import argparse
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SIDE, DIGITS = 28, 10
EVERY = 20  # steps between two checkpoints

stop = False


def stop_soon(_number: int, _frame: object) -> None:
    """Note that the job is about to be ended: the loop saves and leaves."""
    global stop
    stop = True


def digits(prototypes: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return images of digits with noise, and which digits they are."""
    labels = torch.randint(DIGITS, (count,), device=prototypes.device)
    return prototypes[labels] + 10 * torch.randn(count, SIDE * SIDE, device=prototypes.device), labels


def save(path: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint that is whole at any time: a file beside it replaces the old one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(state, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoint", type=Path, required=True, help="a file that rank 0 writes and reads")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--step-time", type=float, default=0.02, help="seconds that each step waits")
    parser.add_argument("--fail-at", type=int, help="step at which the first attempt fails, to show a retry")
    options = parser.parse_args()
    checkpoint = options.checkpoint.expanduser()
    signal.signal(signal.SIGUSR1, stop_soon)

    gpu = torch.cuda.is_available()
    if gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    else:
        torch.set_num_threads(1)  # ranks of one host share its cores
    device = "cuda" if gpu else "cpu"
    dist.init_process_group("nccl" if gpu else "gloo")
    rank = dist.get_rank()

    torch.manual_seed(0)
    prototypes = torch.randn(DIGITS, SIDE * SIDE, device=device)
    model = nn.Sequential(nn.Linear(SIDE * SIDE, 64), nn.ReLU(), nn.Linear(64, DIGITS)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    # Rank 0 reads the checkpoint for all ranks: the other hosts need not see the file.
    found = [torch.load(checkpoint, map_location="cpu") if rank == 0 and checkpoint.exists() else None]
    dist.broadcast_object_list(found, src=0)
    first = 0
    if found[0]:
        model.load_state_dict(found[0]["model"])
        optimizer.load_state_dict(found[0]["optimizer"])
        first = found[0]["step"]
    if rank == 0:
        print(f"attempt {os.environ['TACO_LAUNCH_ATTEMPT']}: starting at step {first}", flush=True)
    ddp = DistributedDataParallel(model)

    torch.manual_seed(rank + 1000 * first)  # each rank has digits of its own
    for step in range(first + 1, options.steps + 1):
        images, labels = digits(prototypes, 64)
        optimizer.zero_grad()
        output = ddp(images)
        loss = nn.functional.cross_entropy(output, labels)
        loss.backward()
        optimizer.step()
        time.sleep(options.step_time)
        if step == options.fail_at and os.environ["TACO_LAUNCH_ATTEMPT"] == "1":
            print(f"failing at step {step}", flush=True)
            os._exit(9)
        # Ranks get the signal at different steps, so they agree on when to leave.
        leave = torch.tensor(float(stop), device=device)
        dist.all_reduce(leave, op=dist.ReduceOp.MAX)
        last = step == options.steps or bool(leave)
        if rank == 0 and (last or step % EVERY == 0):
            accuracy = (output.argmax(1) == labels).float().mean().item()
            save(checkpoint, {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step})
            print(f"step {step} of {options.steps}: loss {loss.item():.3f}, accuracy {accuracy:.2f}, saved", flush=True)
        if last:
            break
    else:
        step = first

    if rank == 0 and step == options.steps:
        checkpoint.replace(checkpoint.with_name("model.pt"))  # the next run starts at step 0
        print(f"trained: {options.checkpoint.with_name('model.pt')}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # gloo's threads may abort a process that frees its tensors while Python ends (torch 2.13)
