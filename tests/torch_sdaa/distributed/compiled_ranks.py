"""Functions that ranks run in tests of ``torch.compile`` on several devices."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.distributed as dist
from tccl_ranks import join
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from torch_sdaa import dynamo


class Net(nn.Module):
    """A perceptron; PyTorch does not compile its own modules with hooks, which FSDP adds."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 16), nn.LayerNorm(16), nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> Any:
        """Return three numbers per row."""
        return self.last(nn.functional.gelu(self.norm(self.first(x))))


def _steps(model: Any, own: Any, rank: int) -> float:
    """Train three steps; return a sum of the weights."""
    optimizer = torch.optim.SGD(own.parameters(), 0.1)
    for step in range(3):
        batch = torch.randn(4, 6, generator=torch.Generator().manual_seed(10 * step + rank)).sdaa()
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        found = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in own.parameters()]
        return float(sum((place + 1) * each.double().cpu().sum() for place, each in enumerate(found)))


def wrapped() -> dict[str, Any]:
    """Return results of training with DDP and FSDP, compiled and uncompiled, and the report."""
    rank, _ = join()
    torch.manual_seed(0)
    model = Net().sdaa()
    found: dict[str, Any] = {}
    for name, compiled in (("ddp", False), ("ddp compiled", True)):
        torch.compiler.reset()
        dynamo.clear()
        own = DistributedDataParallel(copy.deepcopy(model))
        found[name] = _steps(torch.compile(own, backend="sdaa") if compiled else own, own, rank)
        found[f"{name} graphs"] = [(graph.stage, len(graph.fallbacks)) for graph in dynamo.report().graphs]
    for name, compiled in (("fsdp", False), ("fsdp compiled", True)):
        torch.compiler.reset()
        dynamo.clear()
        sharded: Any = copy.deepcopy(model)
        fully_shard(sharded)
        found[name] = _steps(torch.compile(sharded, backend="sdaa") if compiled else sharded, sharded, rank)
        found[f"{name} graphs"] = [(graph.stage, len(graph.fallbacks)) for graph in dynamo.report().graphs]
    dist.destroy_process_group()
    return found
