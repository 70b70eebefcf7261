"""Trains a small ResNet on random images with Horovod, and prints images per second."""

import argparse
import time

import horovod.torch as hvd
import torch
from torch import nn

CLASSES = 10


class Block(nn.Module):
    """Two convolutions, and a shortcut around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.path(images) + self.shortcut(images))


def resnet() -> nn.Module:
    """Return a network of three blocks."""
    return nn.Sequential(
        Block(3, 16, 1),
        Block(16, 32, 2),
        Block(32, 64, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, CLASSES),
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8, help="images per rank and step")
    parser.add_argument("--image-size", type=int, default=32)
    parser.add_argument("--iters", type=int, default=3, help="number of speed measurements")
    parser.add_argument("--steps", type=int, default=10, help="steps of one measurement")
    options = parser.parse_args()

    hvd.init()
    gpu = torch.cuda.is_available()
    if gpu:
        torch.cuda.set_device(hvd.local_rank())
    else:
        torch.set_num_threads(1)  # ranks of one host share its cores
    device = "cuda" if gpu else "cpu"

    torch.manual_seed(0)
    model = resnet().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * hvd.size())
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    torch.manual_seed(hvd.rank())  # each rank has images of its own
    images = torch.randn(options.batch_size, 3, options.image_size, options.image_size, device=device)
    labels = torch.randint(CLASSES, (options.batch_size,), device=device)

    def train(steps: int) -> float:
        """Train, and return this rank's images per second."""
        start = time.perf_counter()
        for _ in range(steps):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
        if gpu:
            torch.cuda.synchronize()
        return options.batch_size * steps / (time.perf_counter() - start)

    train(options.steps)  # the first steps are slower than the rest
    rates = []
    for number in range(options.iters):
        rates.append(train(options.steps))
        if hvd.rank() == 0:
            print(f"Iter #{number}: {rates[-1]:.1f} img/sec per {device.upper()}", flush=True)

    total = hvd.allreduce(torch.tensor(sum(rates) / len(rates)), op=hvd.Sum).item()
    spread = 2 * hvd.size() * torch.tensor(rates).std().item()
    if hvd.rank() == 0:
        unit = "GPU" if gpu else "CPU"
        print(f"Total img/sec on {hvd.size()} {unit}(s): {total:.1f} +-{spread:.1f}", flush=True)


if __name__ == "__main__":
    main()
