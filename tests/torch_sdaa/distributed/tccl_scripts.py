"""What ranks do in ``test_tccl_scripts.py``: calls of frameworks and of scripts for CUDA."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from tccl_ranks import join
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def inference() -> dict[str, list[float]]:
    """Return results of collectives on tensors that ``torch.inference_mode`` created, as in Lightning's ``test``."""
    rank, size = join()
    with torch.inference_mode():
        mean = torch.full((2,), float(rank), device="sdaa")
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        part = torch.empty(2, device="sdaa")
        dist.reduce_scatter_tensor(part, torch.ones(2 * size, device="sdaa"))
        scaled = torch.ones(2, device="sdaa")
        dist.all_reduce(scaled, op=dist._make_nccl_premul_sum(0.5))
    normal = torch.full((2,), float(rank), device="sdaa")
    dist.all_reduce(normal, op=dist.ReduceOp.AVG)
    return {
        "mean": mean.tolist(),
        "part": part.tolist(),
        "scaled": scaled.tolist(),
        "normal": normal.tolist(),
    }


def bfloat16_hook() -> bool:
    """Return whether DDP with PyTorch's hook averages gradients that were rounded to bfloat16."""
    rank, size = join()
    model = nn.parallel.DistributedDataParallel(nn.Linear(3, 1, bias=False).to("sdaa"))
    model.register_comm_hook(None, default_hooks.bf16_compress_hook)
    inputs = torch.randn(size, 4, 3, generator=torch.Generator().manual_seed(0))
    model(inputs[rank].to("sdaa")).sum().backward()
    parts = [(one.sum(0).bfloat16() / size) for one in inputs]
    found = model.module.weight.grad.cpu()[0]
    return torch.allclose(found, torch.stack(parts).sum(0).float(), rtol=0.02)


def barrier_of_gloo() -> int:
    """Pass ``device_ids`` to a barrier of the CPU, as accelerate does."""
    rank, size = join("gloo")
    dist.barrier(device_ids=[rank])
    dist.barrier(dist.new_group(list(range(size))), False, [rank])
    return dist.get_world_size()


def groups_of_accelerate(offload: str) -> list[str]:
    """Return the devices of a group that accelerate creates with ``tccl`` for FSDP.

    ``offload``: whether parameters are in host memory, as accelerate's variable has it.
    """
    os.environ.update(
        ACCELERATE_USE_FSDP="true", FSDP_OFFLOAD_PARAMS=offload, FSDP_STATE_DICT_TYPE="SHARDED_STATE_DICT"
    )
    join()
    return sorted(one.type for one in dist.group.WORLD._device_types)


def split_attention() -> None:
    """Begin context parallelism, which is an error."""
    from torch.distributed.tensor.experimental import context_parallel

    _, size = join()
    mesh = init_device_mesh("sdaa", (size,))
    with context_parallel(mesh, buffers=[torch.ones(1, 2, 8, 4, device="sdaa")], buffer_seq_dims=[2]):
        pass


@contextmanager
def _redirection() -> Iterator[None]:
    from torch_sdaa.contrib import transfer_to_sdaa  # begins the redirection

    try:
        yield
    finally:
        transfer_to_sdaa.restore()


def names() -> dict[str, Any]:
    """Return what a script for CUDA reads of a mesh and a group, before and after the redirection's end."""
    _, size = join()
    with _redirection():
        mesh = init_device_mesh("cuda", (size,), mesh_dim_names=("dp",))
        compiled = torch.compile(lambda x: x + 1 if mesh.device_type == "cuda" else x - 1, fullgraph=True)
        read = {
            "mesh": mesh.device_type,
            "part": mesh["dp"].device_type,
            "again": init_device_mesh(mesh.device_type, (size,)).device_type,
            "compiled": compiled(torch.zeros(1, device=mesh.device_type)).item(),
            "script": dist.get_backend(),
            "torch": dist.c10d_logger._get_msg_dict("save")["backend"],
        }
    return {**read, "after": [mesh.device_type, dist.get_backend()]}


def checkpoint() -> bool:
    """Return whether a sharded model that a script for CUDA saves is the one that it loads."""
    _, size = join("cpu:gloo,sdaa:tccl")
    with _redirection():
        torch.manual_seed(0)
        mesh = init_device_mesh("cuda", (size,))
        model = fully_shard(nn.Linear(6, 4).cuda(), mesh=mesh)
        whole = [each.full_tensor().clone() for each in model.parameters()]
        dcp.save({"model": model.state_dict()}, checkpoint_id="now")
        dcp.async_save({"model": model.state_dict()}, checkpoint_id="later").result()
        same = []
        for name in ("now", "later"):
            with torch.no_grad():
                for each in model.parameters():
                    each.zero_()
            state = {"model": model.state_dict()}
            dcp.load(state, checkpoint_id=name)
            same += [torch.equal(each.full_tensor(), old) for each, old in zip(model.parameters(), whole, strict=True)]
    return all(same)
