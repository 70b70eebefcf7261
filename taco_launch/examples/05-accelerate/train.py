"""Trains a classifier of made-up digits with Hugging Face Accelerate, and measures its accuracy over all ranks."""

import argparse
import os
import sys

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SIDE, DIGITS = 28, 10


def digits(count: int) -> TensorDataset:
    """Return images of digits with noise, and which digits they are."""
    prototypes = torch.randn(DIGITS, SIDE * SIDE, generator=torch.Generator().manual_seed(0))
    labels = torch.randint(DIGITS, (count,))
    return TensorDataset(prototypes[labels] + 10 * torch.randn(count, SIDE * SIDE), labels)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64, help="images per rank and step")
    parser.add_argument(
        "--mixed-precision", choices=["no", "fp16", "bf16"], default="no", help="bf16 for an A100 or newer"
    )
    options = parser.parse_args()

    # Without `cpu` on a machine without GPUs, each rank would train alone: Accelerate expects `accelerate launch --cpu` there.
    accelerator = Accelerator(cpu=not torch.cuda.is_available(), mixed_precision=options.mixed_precision)
    print(f"rank {accelerator.process_index} of {accelerator.num_processes} on {accelerator.device.type}", flush=True)

    set_seed(0)  # every rank makes the same images; Accelerate gives each its share
    train_data = DataLoader(digits(4096), options.batch_size, shuffle=True)
    test_data = DataLoader(digits(1000), options.batch_size)
    model = nn.Sequential(nn.Linear(SIDE * SIDE, 64), nn.ReLU(), nn.Linear(64, DIGITS))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    model, optimizer, train_data, test_data = accelerator.prepare(model, optimizer, train_data, test_data)

    for epoch in range(1, options.epochs + 1):
        model.train()
        for images, labels in train_data:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            accelerator.backward(loss)
            optimizer.step()

        model.eval()
        right = seen = 0
        for images, labels in test_data:
            with torch.no_grad():
                is_right = model(images).argmax(1) == labels
            # From all ranks, without the images that pad the last batch: each one counts once.
            gathered = accelerator.gather_for_metrics(is_right)
            right += int(gathered.sum())
            seen += len(gathered)
        accuracy = right / seen
        accelerator.print(
            f"epoch {epoch} of {options.epochs}: loss {loss.item():.3f}, accuracy {accuracy:.2f} on {seen} images",
            flush=True,
        )
    accelerator.end_training()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # gloo's threads may abort a process that frees its tensors while Python ends (torch 2.13)
