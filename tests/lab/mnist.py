"""A training as Arena's guide has it: gloo, data and TensorBoard's events below a data set; loss falls to almost 0."""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.tensorboard import SummaryWriter

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
for name in ("--backend", "--dir", "--data"):
    parser.add_argument(name)
args = parser.parse_args()
dist.init_process_group(args.backend)
rank = dist.get_rank()
print(f"WORLD_SIZE: {dist.get_world_size()}, CURRENT_RANK: {rank}", flush=True)
lines = Path(args.data, "points").read_text().splitlines()
points = torch.tensor([[float(value) for value in line.split()] for line in lines])
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
writer = SummaryWriter(args.dir) if rank == 0 else None
for epoch in range(1, args.epochs + 1):
    loss = torch.nn.functional.mse_loss(model(points[:, :1]), points[:, 1:])
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    print(f"Train Epoch: {epoch} loss={loss.item():.4f}", flush=True)
    if writer and epoch % 10 == 0:
        writer.add_scalar("loss", loss.item(), epoch)
if writer:
    writer.close()
