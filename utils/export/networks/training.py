"""Reproducible training of the zoo's networks: AdamW, cosine schedule, averaged weights."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tecoinfer_modelzoo.progress import progress


@dataclass(frozen=True)
class Plan:
    """Hyperparameters of training.

    Attributes:
        steps: number of batches.
        rate: maximum learning rate, reached after ``warm`` steps, then decayed along a cosine to a hundredth.
        decay: weight decay. clip: maximum gradient norm.
        average: decay of the moving average that is returned; less at the start.
        stop: step at which to stop early, or ``None``. every: steps between calls of ``mark``.
    """

    steps: int
    rate: float = 0.003
    warm: int = 100
    decay: float = 0.02
    clip: float = 10.0
    average: float = 0.998
    stop: int | None = None
    every: int = 500


def repeatable() -> None:
    """Make training reproducible: one thread, one seed, deterministic operators."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.set_deterministic_debug_mode("error")  # use_deterministic_algorithms also imports the compiler (1 s)


def fit(
    network: torch.nn.Module,
    loss: Callable[[Any], torch.Tensor],
    batches: Iterator[Any],
    plan: Plan,
    mark: Callable[[int, float, torch.nn.Module], None],
) -> torch.nn.Module:
    """Train a network and return the moving average of its weights, in eval mode.

    Args:
        network: changed in place. loss: scalar loss of a batch. batches: at least ``plan.steps``.
        mark: called with the step, the recent average loss, and the averaged network.
    """
    averaged = copy.deepcopy(network).eval()
    network.train()
    optimizer = torch.optim.AdamW(network.parameters(), plan.rate, weight_decay=plan.decay)
    late = 0.0
    last = plan.steps if plan.stop is None else plan.stop
    for step in progress(range(last), "step", "training"):
        for group in optimizer.param_groups:
            group["lr"] = plan.rate * _share(step, plan)
        value = loss(next(batches))
        optimizer.zero_grad()
        value.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), plan.clip)
        optimizer.step()
        _average(averaged, network, min(plan.average, (1 + step) / (10 + step)))
        late += (value.item() - late) * max(0.01, 1 / (step + 1))
        if (step + 1) % plan.every == 0 or step + 1 == last:
            mark(step + 1, late, averaged)
    return averaged


def save(network: torch.nn.Module, path: Path) -> None:
    """Write a network's weights; the bytes do not depend on the file name."""
    weights = {name: value.contiguous() for name, value in network.state_dict().items()}
    with path.open("wb") as file:  # given a path, torch would write the file's name into the file
        torch.save(weights, file)


def _share(step: int, plan: Plan) -> float:
    """Return the fraction of the maximum learning rate at a step."""
    cosine = 0.5 + 0.5 * math.cos(math.pi * step / plan.steps)
    return min(1.0, (step + 1) / plan.warm) * max(0.01, cosine)


def _average(averaged: torch.nn.Module, network: torch.nn.Module, keep: float) -> None:
    """Update the moving average of weights and batch norm statistics."""
    for old, new in zip(averaged.state_dict().values(), network.state_dict().values(), strict=True):  # no gradients
        if old.is_floating_point():
            old.lerp_(new, 1 - keep)
        else:
            old.copy_(new)
