"""Trains a classifier of made-up digits with Lightning, and measures its accuracy over all ranks."""

import argparse
import os
import sys

import lightning
import torch
from lightning.pytorch.plugins.environments import TorchElasticEnvironment
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SIDE, DIGITS = 28, 10


def digits(count: int) -> TensorDataset:
    """Return images of digits with noise, and which digits they are."""
    prototypes = torch.randn(DIGITS, SIDE * SIDE, generator=torch.Generator().manual_seed(0))
    labels = torch.randint(DIGITS, (count,))
    return TensorDataset(prototypes[labels] + 10 * torch.randn(count, SIDE * SIDE), labels)


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(SIDE * SIDE, 64), nn.ReLU(), nn.Linear(64, DIGITS))

    def training_step(self, batch: list[torch.Tensor], _index: int) -> torch.Tensor:
        images, labels = batch
        loss = nn.functional.cross_entropy(self.network(images), labels)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: list[torch.Tensor], _index: int) -> None:
        images, labels = batch
        is_right = self.network(images).argmax(1) == labels
        self.log("accuracy", is_right.float().mean(), sync_dist=True)  # the mean of all ranks

    def on_validation_epoch_end(self) -> None:
        values = self.trainer.callback_metrics
        self.print(
            f"epoch {self.current_epoch + 1} of {self.trainer.max_epochs}: "
            f"loss {values['loss']:.3f}, accuracy {values['accuracy']:.2f}",
            flush=True,
        )

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.001)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64, help="images per rank and step")
    options = parser.parse_args()

    lightning.seed_everything(0, verbose=False)  # every rank makes the same images; Lightning gives each its share
    train_data = DataLoader(digits(4096), options.batch_size, shuffle=True)
    test_data = DataLoader(digits(1024), options.batch_size)
    ranks_here = int(os.environ["LOCAL_WORLD_SIZE"])
    trainer = lightning.Trainer(
        plugins=[TorchElasticEnvironment()],  # the ranks are those of torchrun: Lightning starts none
        num_nodes=int(os.environ["WORLD_SIZE"]) // ranks_here,
        devices=ranks_here,
        strategy="ddp",
        max_epochs=options.epochs,
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    print(f"rank {trainer.global_rank} of {trainer.world_size} on {trainer.strategy.root_device.type}", flush=True)
    trainer.fit(Classifier(), train_data, test_data)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # gloo's threads may abort a process that frees its tensors while Python ends (torch 2.13)
