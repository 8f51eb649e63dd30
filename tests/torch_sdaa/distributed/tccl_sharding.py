"""What ranks do in ``test_tccl_sharding.py``: FSDP2 from the meta device, tensor parallelism, random DTensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from tccl_ranks import join
from tccl_training import digest
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

SHAPE = (7, 10)
"""Of random tensors: their rows are not divisible by the number of ranks."""


def placed() -> list[Any]:
    """Return the device that a mesh selects, which is LOCAL_RANK's, and a device selected before, which it keeps."""
    rank, size = join(None, select=False)
    used = torch.sdaa.is_initialized()
    init_device_mesh("sdaa", (size,))
    found = [used, torch.sdaa.current_device() == rank, torch.ones(1, device="sdaa").device.index == rank]
    torch.sdaa.set_device(3 - rank)
    init_device_mesh("sdaa", (size,))
    return [*found, torch.sdaa.current_device() == 3 - rank]


# ----------------------------------------------------------------------------------------------- random numbers


def _fills() -> dict[str, Callable[[Any], Any]]:
    dropout = nn.Dropout(0.4)
    return {
        "normal_": lambda x: x.normal_(1, 2),
        "uniform_": lambda x: x.uniform_(-1, 3),
        "bernoulli_": lambda x: x.bernoulli_(0.3),
        "bernoulli": lambda x: torch.bernoulli(x.sigmoid()),
        "rand_like": torch.rand_like,
        "randn_like": torch.randn_like,
        "randint_like": lambda x: torch.randint_like(x, 2, 90),
        "dropout": dropout,
        "native_dropout": lambda x: torch.native_dropout(x, 0.4, True)[0],
        "normal_ in double precision": lambda x: x.double().normal_(),
        "with a generator": lambda x: x.normal_(generator=torch.Generator("sdaa").manual_seed(3)),
    }


def drawn() -> list[str]:
    """Return the random operators whose DTensor differs from one device's tensor, or that leave another state."""
    _, size = join()
    mesh = init_device_mesh("sdaa", (size,))
    values = torch.randn(SHAPE, generator=torch.Generator().manual_seed(1)).to("sdaa")
    wrong = []
    for name, fill in _fills().items():
        torch.manual_seed(5)
        alone = fill(values.clone())
        after = torch.rand(3, device="sdaa")
        for placement in (Shard(0), Shard(1), Replicate()):
            tensor = distribute_tensor(values, mesh, [placement])
            torch.manual_seed(5)
            found = fill(tensor)
            same = found.to_local().stride() == tensor.to_local().stride() and torch.equal(found.full_tensor(), alone)
            if not same or not torch.equal(torch.rand(3, device="sdaa"), after):
                wrong.append(f"{name} {placement}")
    return wrong


def made() -> list[str]:
    """Return the bits of new random DTensors, of one rank's plain tensor, and of the generator's state after each."""
    from torch.distributed import tensor as dtensor

    _, size = join()
    mesh = init_device_mesh("sdaa", (size,))
    torch.manual_seed(8)
    found = [dtensor.rand(SHAPE, device_mesh=mesh, placements=[Shard(0)]).full_tensor(), torch.sdaa.get_rng_state()]
    torch.manual_seed(8)
    return [digest(found), digest([torch.rand(SHAPE, device="sdaa"), torch.sdaa.get_rng_state()])]


# ---------------------------------------------------------------------------------------- FSDP2 from the meta device


class Block(nn.Module):
    """Attention and a feed-forward part of a small transformer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mixed = nn.Linear(width, 3 * width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.mixed(self.norm(x)).chunk(3, -1)
        x = x + nn.functional.scaled_dot_product_attention(q, k, v)
        return x + self.down(nn.functional.gelu(self.up(x)))


class Words(nn.Module):
    """A small language model; rows of its weights are not divisible by the number of ranks."""

    def __init__(self, words: int = 23, width: int = 18) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.out = nn.Linear(width, words)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.words(x)
        for block in self.blocks:
            h = block(h)
        result: torch.Tensor = self.out(h)
        return result


def unmade(make: Callable[[], nn.Module] = Words) -> nn.Module:
    with torch.device("meta"):
        return make()


def initialized(model: nn.Module, device: str) -> nn.Module:
    """Give a model on the meta device its memory and weights."""
    model.to_empty(device=device)
    torch.manual_seed(17)
    for module in model.modules():
        if callable(reset := getattr(module, "reset_parameters", None)):
            reset()
    return model


def whole(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().cpu()


def trained(model: nn.Module, batches: list[torch.Tensor], device: str) -> list[torch.Tensor]:
    """Return the weights after a step for each batch; not of Adam, which enlarges rounding of gradients near zero."""
    optimizer = torch.optim.SGD(model.parameters(), 0.3, momentum=0.9)
    for x in batches:
        optimizer.zero_grad()
        y = model(x.to(device))
        nn.functional.cross_entropy(y.flatten(0, 1), x.to(device).flatten()).backward()
        optimizer.step()
    return [whole(p) for p in model.parameters()]


def recipe() -> dict[str, Any]:
    """Train a sharded model that was created on the meta device, and the same one on the CPU of this process."""
    rank, size = join(None, select=False)
    mesh = init_device_mesh("sdaa", (size,))
    model: Any = unmade()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    initialized(model, "sdaa")
    alone = initialized(unmade(), "cpu")
    begun = [digest(whole(p) for p in m.parameters()) for m in (model, alone)]
    data = torch.Generator().manual_seed(4)
    batches = [torch.randint(0, 23, (8, 6), generator=data) for _ in range(3)]
    mine = trained(model, [x.chunk(size)[rank] for x in batches], "sdaa")
    theirs = trained(alone, batches, "cpu")
    apart = max(float((a - b).abs().max()) for a, b in zip(mine, theirs, strict=True))
    before = initialized(unmade(), "cpu").parameters()
    moved = max(float((a - whole(b)).abs().max()) for a, b in zip(mine, before, strict=True))
    there = model.out.weight.device.index == rank
    return {"begun": begun, "bits": digest(mine), "apart": apart, "moved": moved, "device": there}


# --------------------------------------------------------------------------------------------- tensor parallelism


class Feeding(nn.Module):
    """Two layers, split by columns and by rows."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(12, 40), nn.Linear(40, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.down(nn.functional.gelu(self.up(x)))
        return result


def tensor_parallel(replicas: int) -> dict[str, Any]:
    """Train a model split over devices, its replicas sharded, and the same one on the CPU of this process."""
    _, size = join(None, select=False)
    mesh = init_device_mesh("sdaa", (replicas, size // replicas), mesh_dim_names=("dp", "tp"))
    model = parallelize_module(unmade(Feeding), mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    if replicas > 1:
        fully_shard(model, mesh=mesh["dp"])
    initialized(model, "sdaa")
    alone = initialized(unmade(Feeding), "cpu")
    begun = [digest(whole(p) for p in m.parameters()) for m in (model, alone)]
    data = torch.Generator().manual_seed(4)
    batches = [torch.randn(8, 12, generator=data) for _ in range(3)]
    part = mesh["dp"].get_local_rank()
    results = []
    for m, device in ((model, "sdaa"), (alone, "cpu")):
        optimizer = torch.optim.SGD(m.parameters(), 0.1)
        for x in batches:
            optimizer.zero_grad()
            m((x.chunk(replicas)[part] if m is model else x).to(device)).square().mean().backward()
            optimizer.step()
        results.append([whole(p) for p in m.parameters()])
    apart = max(float((a - b).abs().max()) for a, b in zip(*results, strict=True))
    first: Any = next(model.parameters())
    return {"begun": begun, "bits": digest(results[0]), "apart": apart, "own": digest([first.to_local()])}


def unseeded() -> list[bool]:
    """Return whether ranks with different seeds draw equal replicas, which DTensor synchronizes at the first draw."""
    rank, size = join()
    mesh = init_device_mesh("sdaa", (size,))
    torch.manual_seed(rank)
    tensor = distribute_tensor(torch.zeros(SHAPE, device="sdaa"), mesh, [Replicate()]).normal_()
    every = [torch.empty(SHAPE, device="sdaa") for _ in range(size)]
    dist.all_gather(every, tensor.to_local().contiguous())
    return [torch.equal(one, every[0]) for one in every]
