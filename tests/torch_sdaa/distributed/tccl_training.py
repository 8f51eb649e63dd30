"""Functions that ranks run in tests of training: DDP, synchronised batch normalisation, FSDP2, checkpoints."""

from __future__ import annotations

import copy
import hashlib
import os
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from tccl_ranks import join
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from torch_sdaa.distributed import roll

Batches = list[tuple[torch.Tensor, torch.Tensor]]


def digest(tensors: Any) -> str:
    """Return a hash of the bits of tensors."""
    found = hashlib.sha256()
    for t in tensors:
        found.update(t.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def whole_numbers() -> tuple[nn.Module, Batches]:
    """Return a model and batches for which every sum is exact in float32, in any order.

    Weights, inputs and targets are small whole numbers, the loss is half a square, rates and sizes powers of 2.
    """
    made = torch.Generator().manual_seed(5)
    model = nn.Linear(8, 4)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randint(-2, 3, p.shape, generator=made))
    batches = [
        (torch.randint(-2, 3, (16, 8), generator=made).float(), torch.randint(-4, 5, (16, 4), generator=made).float())
        for _ in range(2)
    ]
    return model, batches


def network() -> tuple[nn.Module, Batches]:
    """Return a small network of convolutions, and random batches."""
    torch.manual_seed(7)
    model = nn.Sequential(
        nn.Conv2d(2, 6, 3, bias=False),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(6 * 16, 32),
        nn.ReLU(),
        nn.Linear(32, 5),
    )
    return model, [(torch.randn(16, 2, 6, 6), torch.randint(0, 5, (16,))) for _ in range(3)]


def squares(y: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return ((y - target) ** 2).sum(1).mean() / 2


def trained(
    model: Any, batches: Batches, loss: Any, rate: float, rank: int = 0, size: int = 1, device: str = "sdaa"
) -> list[float]:
    """Train on this rank's part of every batch; return the losses of the parts."""
    optimizer = torch.optim.SGD(model.parameters(), rate)
    losses = []
    for x, target in batches:
        mine = slice(rank * len(x) // size, (rank + 1) * len(x) // size)
        optimizer.zero_grad()
        value = loss(model(x[mine].to(device)), target[mine].to(device))
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses


def exact() -> dict[str, Any]:
    """Return the bits after a training on integers: those of one process on the joined batches."""
    rank, size = join()
    model, batches = whole_numbers()
    alone = copy.deepcopy(model).to("sdaa")
    trained(alone, batches, squares, 0.25)
    ddp = DistributedDataParallel(model.to("sdaa"), device_ids=[rank])
    trained(ddp, batches, squares, 0.25, rank, size)
    return {"alone": digest(alone.parameters()), "ddp": digest(ddp.parameters())}


def rounded() -> dict[str, Any]:
    """Return the difference of DDP to one process on the joined batch, and to gloo on the CPU."""
    rank, size = join(None)
    model, batches = network()
    loss = nn.functional.cross_entropy
    plain = copy.deepcopy(model).to("sdaa")
    trained(plain, batches, loss, 0.1)
    synced = nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(model)).to("sdaa")
    ddp = DistributedDataParallel(synced, device_ids=[rank])
    losses = trained(ddp, batches, loss, 0.1, rank, size)
    found = {"ddp": digest(ddp.parameters()), "losses": losses}
    found["apart"] = max(
        float((a - b).abs().max() / b.abs().max())
        for a, b in zip(ddp.state_dict().values(), plain.state_dict().values(), strict=True)
        if a.is_floating_point()
    )
    found["buffers"] = max(
        float((a.double() - b.double()).abs().max()) for a, b in zip(ddp.module.buffers(), plain.buffers(), strict=True)
    )
    # without batch statistics, which the CPU does not synchronise: the same bits as gloo's on the CPU
    for layer, (device, ids) in {"sdaa": ("sdaa", [rank]), "cpu": ("cpu", None)}.items():
        own: Any = copy.deepcopy(model)
        own[1] = nn.Identity()
        wrapped = DistributedDataParallel(own.to(device), device_ids=ids)
        trained(wrapped, batches, loss, 0.1, rank, size, device)
        found[f"bits_{layer}"] = digest(wrapped.parameters())
    return found


def accumulated() -> dict[str, Any]:
    """Return the bits of DDP, of no_sync with it, and of one process that adds the parts' gradients up."""
    rank, size = join()
    model, batches = network()
    model[1] = nn.Identity()
    loss, (x, target) = nn.functional.cross_entropy, batches[0]
    parts = list(zip(x.chunk(size), target.chunk(size), strict=True))
    alone = copy.deepcopy(model).to("sdaa")
    for a, b in parts:
        (loss(alone(a.to("sdaa")), b.to("sdaa")) / size).backward()
    ddp = DistributedDataParallel(copy.deepcopy(model).to("sdaa"), device_ids=[rank])
    a, b = (t.to("sdaa") for t in parts[rank])
    loss(ddp(a), b).backward()
    found = {"alone": digest(p.grad for p in alone.parameters()), "ddp": digest(p.grad for p in ddp.parameters())}
    ddp.zero_grad()
    with ddp.no_sync():
        loss(ddp(a), b).backward()
    found["own"] = digest(p.grad for p in ddp.parameters())
    loss(ddp(a), b).backward()
    found["twice"] = digest(p.grad / 2 for p in ddp.parameters())
    return found


class Branching(nn.Module):
    """Uses one of two layers, the first on even calls."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.shared = nn.Linear(4, 2)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.shared(self.layers[self.calls % 2](x))


def options() -> dict[str, Any]:
    """Return results of DDP's options: unused parameters, a static graph, bucket views, small buckets, hooks."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    rank, _ = join()
    torch.manual_seed(1)
    x, found = torch.randn(6, 4).to("sdaa") + rank, {}
    base = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))

    def gradients(
        model: nn.Module, hook: Any = None, state: Any = None, calls: int = 2, **options: Any
    ) -> list[torch.Tensor]:
        ddp = DistributedDataParallel(copy.deepcopy(model).to("sdaa"), device_ids=[rank], **options)
        if hook is not None:
            ddp.register_comm_hook(state, hook)
        for _ in range(calls):
            ddp.zero_grad()
            ddp(x).square().mean().backward()
        return [p.grad for p in ddp.parameters() if p.grad is not None]

    plain = gradients(base)
    for name, kind in {
        "static": {"static_graph": True},
        "views": {"gradient_as_bucket_view": True},
        "small buckets": {"bucket_cap_mb": 0.01},
        "unused": {"find_unused_parameters": True},
        "hook": {"hook": default_hooks.allreduce_hook},
    }.items():
        found[name] = digest(gradients(base, **kind)) == digest(plain)
    close = gradients(base, default_hooks.fp16_compress_hook)
    found["fp16"] = max(float((a - b).abs().max()) for a, b in zip(close, plain, strict=True))
    power = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
    found["power"] = len(gradients(base, powerSGD_hook.powerSGD_hook, power, calls=4))
    found["branching"] = len(gradients(Branching(), calls=3, find_unused_parameters=True))
    found["joined"] = _uneven(rank)
    return found


def _uneven(rank: int) -> int:
    """Train with more batches on rank 0 than on the others."""
    ddp = DistributedDataParallel(nn.Linear(3, 1).to("sdaa"), device_ids=[rank])
    steps = 0
    with ddp.join():
        for _ in range(4 if rank == 0 else 2):
            ddp(torch.ones(2, 3, device="sdaa")).sum().backward()
            steps += 1
    return steps


def half_precision() -> dict[str, Any]:
    """Return whether DDP under autocast with a scaler skips an overflow on all ranks, and keeps them equal."""
    rank, size = join()
    torch.manual_seed(0)
    ddp = DistributedDataParallel(nn.Linear(8, 4).to("sdaa"), device_ids=[rank])
    optimizer = torch.optim.SGD(ddp.parameters(), 0.1)
    scaler = torch.amp.GradScaler("sdaa", init_scale=2.0**10)
    before = digest(ddp.parameters())
    bits = []
    for step in range(3):
        x = torch.ones(4, 8, device="sdaa") * (float("inf") if step == 0 and rank == size - 1 else rank + 1)
        optimizer.zero_grad()
        with torch.autocast("sdaa", dtype=torch.float16):
            loss = ddp(x).sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        bits.append(digest(ddp.parameters()))
    return {"skipped": bits[0] == before, "moved": bits[2] != before, "bits": bits[2], "scale": scaler.get_scale()}


# ---------------------------------------------------------------------------------------------------- FSDP2


def blocks() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(*(nn.Sequential(nn.Linear(10, 24), nn.GELU(), nn.Linear(24, 10)) for _ in range(3)))


def sharded(model: nn.Module, mesh: Any, **options: Any) -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    for block in model:
        fully_shard(block, mesh=mesh, **options)
    fully_shard(model, mesh=mesh, **options)
    return model


def fsdp(half: bool) -> dict[str, Any]:
    """Return the difference of a sharded training to an unsharded one on the joined batch, and a rank's memory."""
    from torch.distributed.fsdp import MixedPrecisionPolicy

    rank, size = join(device_id=torch.device("sdaa", int(os.environ["RANK"])))
    mesh = dist.device_mesh.init_device_mesh("sdaa", (size,))
    policy = {"mp_policy": MixedPrecisionPolicy(torch.bfloat16, torch.float32)} if half else {}
    alone, model = blocks().to("sdaa"), sharded(blocks().to("sdaa"), mesh, **policy)
    torch.manual_seed(9)
    batches = [torch.randn(8, 10) for _ in range(3)]
    optimizers = [torch.optim.AdamW(m.parameters(), 0.01) for m in (alone, model)]
    for x in batches:
        parts = x, x.chunk(size)[rank]
        for m, optimizer, part in zip((alone, model), optimizers, parts, strict=True):
            optimizer.zero_grad()
            m(part.to("sdaa")).square().mean().backward()
            optimizer.step()
    whole = [p.full_tensor().detach() for p in model.parameters()]
    apart = max(float((a - b.detach()).abs().max()) for a, b in zip(whole, alone.parameters(), strict=True))
    local = sum(p.to_local().numel() for p in model.parameters())
    return {"apart": apart, "bits": digest(whole), "local": local, "all": sum(p.numel() for p in alone.parameters())}


# ---------------------------------------------------------------------------------------------------- checkpoints


def checkpoint(folder: str, begin: int, end: int, final: str = "") -> str:
    """Train steps ``begin`` to ``end`` of a sharded model, from one checkpoint to another; return the weights' bits.

    Every rank computes on the whole batch, so that the averages, and the bits, are the same for 1, 2 and 4.
    """
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    _, size = join(device_id=torch.device("sdaa", int(os.environ["RANK"])))
    mesh = dist.device_mesh.init_device_mesh("sdaa", (size,))
    model = sharded(blocks().to("sdaa"), mesh)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    if begin:
        weights, momenta = get_state_dict(model, optimizer)
        state = {"model": weights, "optimizer": momenta}
        dcp.load(state, checkpoint_id=folder)
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    for step in range(begin, end):
        made = torch.Generator().manual_seed(step)
        optimizer.zero_grad()
        model(torch.randn(8, 10, generator=made).to("sdaa")).square().mean().backward()
        optimizer.step()
    weights, momenta = get_state_dict(model, optimizer)
    if final:
        dcp.save({"model": weights, "optimizer": momenta}, checkpoint_id=final)
    return digest(p.full_tensor() for p in model.parameters())


def ddp_checkpoint(file: str, begin: int, end: int) -> str:
    """The same for DDP, with ``torch.save`` by rank 0."""
    rank, _ = join()
    model = DistributedDataParallel(blocks().to("sdaa"), device_ids=[rank])
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    if begin:
        state = torch.load(file, map_location=f"sdaa:{rank}", weights_only=True)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    for step in range(begin, end):
        made = torch.Generator().manual_seed(step)
        optimizer.zero_grad()
        model(torch.randn(8, 10, generator=made).to("sdaa")).square().mean().backward()
        optimizer.step()
    if rank == 0 and not Path(file).exists():
        torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, file)
    dist.barrier(device_ids=[rank])
    return digest(model.parameters())


# ---------------------------------------------------------------------------------------------------- bad models


def other_models(kind: str) -> str:
    """Return the error of DDP or FSDP2 for ranks with other models; "late": rank 1 reads them after rank 0."""
    rank, _ = join()
    layers: list[nn.Module] = [nn.Linear(4, 8), nn.Linear(8, 2 if rank == 0 or not kind.endswith("shape") else 3)]
    if kind == "fewer" and rank:
        layers.pop()
    if kind == "dtype" and rank:
        layers[1] = layers[1].half()
    if kind == "buffer":
        layers[1].register_buffer("seen", torch.zeros(2 + rank))
    if kind.endswith("sharded") and rank:
        layers[1] = nn.Linear(8, 3)
    if kind.startswith("late") and rank:
        wait = roll.wait_for
        roll.wait_for = lambda *args: (wait(*args), time.sleep(0.5))
    try:
        if kind.endswith("sharded"):
            mesh = dist.device_mesh.init_device_mesh("sdaa", (2,))
            sharded(nn.Sequential(*layers).to("sdaa"), mesh)(torch.ones(2, 4, device="sdaa"))
        DistributedDataParallel(nn.Sequential(*layers).to("cpu" if kind == "cpu" else "sdaa"))
    except (RuntimeError, ValueError) as error:
        return str(error)
    return ""
