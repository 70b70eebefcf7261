"""Trains a small transformer with DeepSpeed's ZeRO: the optimizer's state and the gradients are sharded over all ranks."""

import argparse
import os
import sys

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

WORDS, WIDTH, LENGTH = 64, 64, 16


class Model(nn.Module):
    """Predicts the next word of a sequence."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, nhead=4, dim_feedforward=4 * WIDTH, dropout=0, batch_first=True)
            for _ in range(layers)
        )
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(words.shape[1], device=words.device)
        hidden = self.embed(words)
        for layer in self.layers:
            hidden = layer(hidden, src_mask=mask, is_causal=True)
        return self.head(hidden.flatten(0, 1))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16, help="sequences per rank and step")
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()

    gpu = torch.cuda.is_available()
    if gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    else:
        torch.set_num_threads(1)  # ranks of one host share its cores
    device = "cuda" if gpu else "cpu"
    deepspeed.init_distributed("nccl" if gpu else "gloo", auto_mpi_discovery=False)
    rank = dist.get_rank()

    torch.manual_seed(0)
    model = Model(options.layers)
    everything = sum(each.numel() for each in model.parameters())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    config = {
        "train_micro_batch_size_per_gpu": options.batch_size,
        "zero_optimization": {"stage": 2},  # 1 shards the optimizer's state only
        "zero_allow_untested_optimizer": True,  # PyTorch's AdamW instead of DeepSpeed's, which is compiled first
    }
    engine, zero, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    torch.manual_seed(1 + rank)  # each rank has sequences of its own
    for step in range(1, options.steps + 1):
        start = torch.randint(WORDS, (options.batch_size, 1), device=device)
        words = (start + 3 * torch.arange(LENGTH, device=device)) % WORDS  # each word is the one before it plus 3
        loss = nn.functional.cross_entropy(engine(words[:, :-1]), words[:, 1:].flatten())
        engine.backward(loss)
        engine.step()
        if step == 1:
            here = sum(each["exp_avg"].numel() for each in zero.optimizer.state.values())
            print(
                f"rank {rank} of {dist.get_world_size()} keeps Adam's averages of {here} of {everything} parameters",
                flush=True,
            )
        if rank == 0 and step % 10 == 0:
            print(f"step {step} of {options.steps}: loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # gloo's threads may abort a process that frees its tensors while Python ends (torch 2.13)
