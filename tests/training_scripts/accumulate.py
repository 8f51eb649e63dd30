#!/usr/bin/env python3
"""Gradient accumulation with the newer spelling of mixed precision: torch.autocast("cuda"), torch.amp.GradScaler("cuda").

--precision float32 | bfloat16 | float16
"""
from __future__ import annotations

import argparse
import contextlib
import os

import torch
from sklearn.datasets import load_diabetes
from torch import Tensor, nn

DTYPES = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def batches(size: int, generator: torch.Generator) -> list[tuple[Tensor, Tensor]]:
    data = load_diabetes()
    x = torch.as_tensor(data.data, dtype=torch.float32)
    y = torch.as_tensor(data.target, dtype=torch.float32).unsqueeze(1)
    y = (y - y.mean()) / y.std()
    order = torch.randperm(len(x), generator=generator)
    return [(x[part], y[part]) for part in order.split(size)][:-1]


def context(precision: str) -> contextlib.AbstractContextManager:
    if DTYPES[precision] is None or DEVICE == "cpu":
        return contextlib.nullcontext()
    return torch.autocast(device_type=DEVICE, dtype=DTYPES[precision])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--precision", choices=DTYPES, default="float32")
    parser.add_argument("--micro-batch", type=int, default=16)
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

    torch.manual_seed(7)
    torch.backends.cuda.matmul.allow_tf32 = False
    model = nn.Sequential(nn.Linear(10, 96), nn.SiLU(), nn.BatchNorm1d(96), nn.Linear(96, 1)).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.05, total_steps=40)
    scaler = torch.amp.GradScaler(DEVICE, enabled=args.precision == "float16" and DEVICE != "cpu")
    criterion = nn.SmoothL1Loss()

    generator = torch.Generator().manual_seed(11)
    updates = 0
    for epoch in range(args.epochs):
        running = torch.zeros((), device=DEVICE)
        for index, (inputs, targets) in enumerate(batches(args.micro_batch, generator)):
            inputs = inputs.to(DEVICE, non_blocking=True)
            targets = targets.to(DEVICE, non_blocking=True)
            with context(args.precision):
                loss = criterion(model(inputs), targets) / args.accumulate
            scaler.scale(loss).backward()
            running += loss.detach()
            if (index + 1) % args.accumulate == 0:
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
                schedule.step()
                updates += 1
                print(f"update {updates} loss {running.item()!r} lr {schedule.get_last_lr()[0]!r}")
                running.zero_()
    if DEVICE == "cuda":
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated() / 2**20
        assert peak > 0, "nothing was on the card"


if __name__ == "__main__":
    main()
