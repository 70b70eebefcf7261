"""Train a small model with Lightning; the first argument is the number of hosts that it is told, the second the processes of each."""

import sys
import tempfile

import lightning
import torch


class Small(lightning.LightningModule):  # type: ignore[misc] # it is Any where the library is not installed
    """A linear layer."""

    def __init__(self) -> None:
        """Make it."""
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch: "list[torch.Tensor]", _index: int) -> torch.Tensor:
        """Return the loss of a batch."""
        loss: torch.Tensor = self.layer(batch[0]).sum()
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return what changes the weights."""
        return torch.optim.SGD(self.parameters(), lr=0.1)


if __name__ == "__main__":
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(16, 4)), batch_size=2)
    trainer = lightning.Trainer(
        accelerator="cpu",
        num_nodes=int(sys.argv[1]),
        devices=int(sys.argv[2]),
        strategy="ddp",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        default_root_dir=tempfile.gettempdir(),
    )
    trainer.fit(Small(), data)
    print(f"trained {trainer.global_rank} of {trainer.world_size}", flush=True)
