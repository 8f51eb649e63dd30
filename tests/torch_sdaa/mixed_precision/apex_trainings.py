"""A small network trained with ``apex.amp``, and without."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

import torch_sdaa  # noqa: F401 -- makes the device
from torch_sdaa.apex import amp


def net() -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 16, 5)
        return nn.Sequential(*layers).sdaa()


def sgd(params: Any) -> Any:
    return torch.optim.SGD(params, 0.05, momentum=0.9)


def batches(steps: int, first: int = 0) -> Iterator[tuple[Any, Any]]:
    generator = torch.Generator().manual_seed(1)
    for step in range(first + steps):
        x, y = torch.randn(4, 3, 6, 6, generator=generator), torch.randint(5, (4,), generator=generator)
        if step >= first:
            yield x.sdaa(), y.sdaa()


def train_step(model: Any, optimizer: Any, x: Any, y: Any) -> float:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled:
        scaled.backward()
    optimizer.step()
    return float(loss.item())


def with_apex(level: str, make: Callable[[Any], Any] = sgd, steps: int = 5, **options: Any) -> tuple[Any, list[float]]:
    model = net()
    model, optimizer = amp.initialize(model, make(model.parameters()), opt_level=level, verbosity=0, **options)
    return model, [train_step(model, optimizer, x, y) for x, y in batches(steps)]


def plainly(make: Callable[[Any], Any] = sgd, autocast: bool = False) -> tuple[Any, list[float]]:
    model, losses = net(), []
    optimizer, scaler = make(model.parameters()), torch.amp.GradScaler("sdaa", enabled=autocast)
    for x, y in batches(5):
        optimizer.zero_grad()
        with torch.autocast("sdaa", enabled=autocast):
            loss = nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return model, losses


def same(a: Any, b: Any) -> bool:
    return all(torch.equal(p, q) for p, q in zip(a.state_dict().values(), b.state_dict().values(), strict=True))
