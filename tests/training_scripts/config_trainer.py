"""A trainer class and a dataclass of settings, in the style of newer code bases."""
from __future__ import annotations

import argparse
import copy
import json
import logging
import sys
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch
from sklearn.datasets import load_breast_cancer
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR
from torch.utils.data import DataLoader, TensorDataset, random_split

logger = logging.getLogger("trainer")


@dataclass
class Config:
    device: str = "cuda:0" if torch.cuda.is_available() else "cpu"
    epochs: int = 3
    batch_size: int = 64
    lr: float = 3e-3
    weight_decay: float = 0.01
    ema: float = 0.9
    warmup: int = 2
    patience: int = 2
    amp: bool = False
    seed: int = 17

    @classmethod
    def load(cls, path: Path | None, **changes) -> Config:
        values = json.loads(path.read_text()) if path else {}
        unknown = set(values) - {f.name for f in fields(cls)}
        if unknown:
            raise ValueError(f"unknown settings: {sorted(unknown)}")
        return cls(**{**values, **{k: v for k, v in changes.items() if v is not None}})


class EMA:
    def __init__(self, model: nn.Module, decay: float) -> None:
        self.module = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        for mine, other in zip(self.module.state_dict().values(), model.state_dict().values()):
            mine.lerp_(other, 1 - self.decay) if mine.is_floating_point() else mine.copy_(other)


class Trainer:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.device = torch.device(config.device)
        self.on_gpu = self.device.type == "cuda"
        if self.on_gpu:
            torch.cuda.set_device(self.device)
            torch.cuda.reset_peak_memory_stats(self.device)
        torch.manual_seed(config.seed)
        data = load_breast_cancer()
        x = torch.tensor(data.data, dtype=torch.float32)
        x = (x - x.mean(0)) / x.std(0)
        whole = TensorDataset(x, torch.tensor(data.target, dtype=torch.float32))
        train, val = random_split(whole, [449, 120], torch.Generator().manual_seed(1))
        self.train_loader = DataLoader(train, config.batch_size, shuffle=True, drop_last=True, pin_memory=self.on_gpu)
        self.val_loader = DataLoader(val, 120)
        self.model = nn.Sequential(nn.Linear(30, 32), nn.BatchNorm1d(32), nn.Mish(), nn.Linear(32, 1)).to(self.device)
        self.ema = EMA(self.model, config.ema)
        self.optimizer = torch.optim.AdamW(self.parameter_groups(), lr=config.lr)
        steps = config.epochs * len(self.train_loader)
        self.scheduler = SequentialLR(
            self.optimizer,
            [LinearLR(self.optimizer, 0.1, total_iters=config.warmup), CosineAnnealingLR(self.optimizer, steps)],
            [config.warmup],
        )
        self.scaler = torch.cuda.amp.GradScaler(enabled=config.amp and self.on_gpu)
        self.loss = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(0.6, device=self.device))

    def parameter_groups(self) -> list[dict]:
        decay = [p for p in self.model.parameters() if p.ndim > 1]
        rest = [p for p in self.model.parameters() if p.ndim <= 1]
        return [{"params": decay, "weight_decay": self.config.weight_decay}, {"params": rest, "weight_decay": 0.0}]

    def step(self, x: Tensor, y: Tensor) -> float:
        x, y = x.to(self.device, non_blocking=self.on_gpu), y.to(self.device, non_blocking=self.on_gpu)
        with torch.autocast(self.device.type, enabled=self.config.amp and self.device.type != "cpu"):
            loss = self.loss(self.model(x).squeeze(1), y)
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.scheduler.step()
        self.ema.update(self.model)
        return loss.item()

    @torch.inference_mode()
    def validate(self) -> float:
        (x, y), = self.val_loader
        return self.loss(self.ema.module(x.to(self.device)).squeeze(1), y.to(self.device)).item()

    def fit(self) -> None:
        best, bad = float("inf"), 0
        for epoch in range(self.config.epochs):
            self.model.train()
            for x, y in self.train_loader:
                print(f"epoch {epoch} loss {self.step(x, y)!r}")
            value = self.validate()
            print(f"epoch {epoch} validation loss {value!r}")
            best, bad = (value, 0) if value < best else (best, bad + 1)
            if bad > self.config.patience:
                break
        if self.on_gpu:
            logger.info("peak memory %d bytes", torch.cuda.max_memory_allocated(self.device))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path)
    parser.add_argument("--device")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--amp", action="store_true", default=None)
    arguments = vars(parser.parse_args())
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    config = Config.load(arguments.pop("config"), **arguments)
    logger.info("%s", json.dumps(asdict(config)))
    Trainer(config).fit()
