"""Train a small network with Lightning: ``python lightning_script.py DEVICES ACCELERATOR``; written as for CUDA."""

import sys

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(lightning.LightningModule):
    """Two layers with dropout, trained to tell the sign of a sum."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 2))

    def training_step(self, batch, index):
        x, y = batch
        loss = nn.functional.cross_entropy(self.layers(x), y)
        if self.global_rank == 0:
            print("loss", loss.item(), x.device.type, flush=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.5)


def main():
    devices = int(sys.argv[1])
    lightning.seed_everything(1, verbose=False)
    x = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    loader = DataLoader(TensorDataset(x, (x.sum(1) > 0).long()), batch_size=16 // devices)
    trainer = lightning.Trainer(
        accelerator=sys.argv[2],
        devices=devices,
        strategy="ddp" if devices > 1 else "auto",
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Net(), loader)


if __name__ == "__main__":
    main()
