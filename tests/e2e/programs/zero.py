"""Train a small model with DeepSpeed's ZeRO 1 on CPUs."""

import os

import deepspeed
import torch

deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 1}, "zero_allow_untested_optimizer": True}
model = torch.nn.Linear(4, 1)
engine, *_rest = deepspeed.initialize(
    model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), config=config, dist_init_required=False
)
for _step in range(2):
    engine.backward(engine(torch.ones(2, 4)).sum())
    engine.step()
print(f"trained {os.environ['RANK']} of {torch.distributed.get_world_size()}", flush=True)
