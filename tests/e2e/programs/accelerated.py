"""Train a small model as Accelerate's own examples do."""

import torch
from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(16, 4)), batch_size=2)
model = torch.nn.Linear(4, 1)
model, optimizer, data = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), data)
for (batch,) in data:
    optimizer.zero_grad()
    accelerator.backward(model(batch).sum())
    optimizer.step()
accelerator.wait_for_everyone()
print(f"trained {accelerator.process_index} of {accelerator.num_processes}", flush=True)
accelerator.end_training()
