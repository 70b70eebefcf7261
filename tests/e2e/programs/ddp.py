"""Train a small model by torch's DistributedDataParallel over gloo."""

import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _step in range(3):
    loss = model(torch.ones(2, 4) * (dist.get_rank() + 1)).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.barrier()
print(f"trained {os.environ['RANK']} of {dist.get_world_size()}", flush=True)
dist.destroy_process_group()
