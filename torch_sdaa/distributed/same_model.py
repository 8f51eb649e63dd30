"""Comparison of the ranks' models under ``DistributedDataParallel`` or FSDP2: every rank reports the first
difference.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
from collections.abc import Mapping
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from torch_sdaa.distributed import roll
from torch_sdaa.loading import late_imports

DDP, FSDP = "DistributedDataParallel", "fully_shard"

Parameter = tuple[str, list[int], str]
"""Name, shape, dtype."""

_counts: dict[str, Any] = {}
"""Number of compared models, by wrapper and group."""


def verify_first() -> None:
    """Compare the models before PyTorch does, whose message has only an index, different on every rank."""
    original = DistributedDataParallel._build_params_for_reducer

    @functools.wraps(original)
    def build(self: Any) -> Any:
        found = original(self)
        compare(self, found[0])
        return found

    DistributedDataParallel._build_params_for_reducer = build
    late_imports.when_imported("torch.distributed.fsdp._fully_shard._fsdp_state", _verify_sharded)


def _verify_sharded() -> None:
    """Compare a sharded model before its first forward gathers parameters: gloo aborts on a wrong size."""
    from torch.distributed.fsdp._fully_shard._fsdp_state import FSDPState

    original = FSDPState._lazy_init

    @functools.wraps(original)
    def begin(self: Any) -> None:
        if self._is_root is None and self._modules:
            compare_shards(self._modules[0])
        original(self)

    FSDPState._lazy_init = begin


def compare_shards(module: Any) -> None:
    """Check that a sharded model is the same on all ranks of its mesh.

    Raises:
        RuntimeError: one line with the first parameter that differs.
    """
    found: dict[Any, list[Parameter]] = {}
    for name, parameter in module.named_parameters():
        mesh = getattr(parameter, "device_mesh", None)
        if mesh is not None and mesh.device_type == "sdaa":
            for group in mesh.get_all_groups():
                found.setdefault(group, []).append(_described(name, parameter))
    for group, parameters in found.items():
        _agree(group, FSDP, parameters)


def compare(ddp: Any, parameters: list[Any]) -> None:
    """Check that a model is the same on all ranks.

    Raises:
        RuntimeError: one line with the first parameter that differs.
        ValueError: the model is on the CPU, for which its group has no backend.
    """
    group = ddp.process_group
    kinds = {device.type for device in group._device_types}
    if kinds == {"sdaa"} and ddp.device.type == "cpu":
        raise ValueError(
            "DistributedDataParallel: the model is on the CPU, but its group's backend is tccl, for the device only: "
            "call model.sdaa() first, or init_process_group() without a name, which adds gloo for the CPU"
        )
    if "sdaa" not in kinds or ddp.device.type != "sdaa":
        return
    names = {id(parameter): name for name, parameter in ddp.module.named_parameters()}
    mine = [_described(names.get(id(p), "?"), p) for p in parameters]
    if ddp.broadcast_buffers:
        buffers = ((name, b) for name, b in ddp.module.named_buffers() if name not in ddp.parameters_to_ignore)
        mine += [_described(f"buffer {name}", b) for name, b in buffers]
    _agree(group, DDP, mine)


def _described(name: str, tensor: Any) -> Parameter:
    return name, list(tensor.shape), str(tensor.dtype).removeprefix("torch.")


def _agree(group: Any, who: str, mine: list[Parameter]) -> None:
    """Compare the parameters of all ranks of a group, through its store."""
    backend = group._get_backend(torch.device("sdaa"))
    store = getattr(backend, "store", None)
    if store is None:  # wrapped by TORCH_DISTRIBUTED_DEBUG=DETAIL, which checks more
        return
    number = next(_counts.setdefault(f"{who} {group.group_name}", itertools.count()))
    key = f"tccl/model/{who}/{number}"
    text = json.dumps(mine)
    rank, size, timeout = group.rank(), group.size(), backend.options._timeout
    store.set(f"{key}/whole/{rank}", text)
    store.set(f"{key}/digest/{rank}", hashlib.sha256(text.encode()).hexdigest())
    keys = [f"{key}/digest/{other}" for other in range(size)]
    roll.wait_for(
        store,
        keys,
        timeout,
        lambda missing: (
            f"tccl: rank {', '.join(map(str, missing))} has no model in {who} to compare, but the others have"
        ),
        lambda: roll.members(store, size),
    )
    digests = [store.get(one) for one in keys]
    for other in range(1, size):
        if digests[other] != digests[0]:
            models = {which: [tuple(p) for p in json.loads(store.get(f"{key}/whole/{which}"))] for which in (0, other)}
            read = [f"{key}/read/{each}" for each in range(size)]
            roll.part(store, torch.distributed.get_rank(), read[rank], read)
            raise RuntimeError(_difference(who, models, other))


def _difference(who: str, models: Mapping[int, list[Any]], other: int) -> str:
    first, second = models[0], models[other]
    for ours, theirs in itertools.zip_longest(first, second):
        if ours == theirs:
            continue
        if ours is None or theirs is None:
            name, has, lacks = (theirs[0], other, 0) if ours is None else (ours[0], 0, other)
            what = f"rank {has} has a parameter {name!r} that rank {lacks} lacks ({len(first)} and {len(second)})"
        elif ours[0] != theirs[0]:
            what = f"rank 0 has {_shown(ours)}, rank {other} has {_shown(theirs)} instead"
        else:
            what = f"{ours[0]!r} is {_sizes(ours)} on rank 0 and {_sizes(theirs)} on rank {other}"
        return f"{who}: the ranks' models differ: {what}; build the same model on every rank"
    return f"{who}: the ranks' models differ; build the same model on every rank"


def _shown(parameter: Parameter) -> str:
    return f"{parameter[0]!r} ({_sizes(parameter)})"


def _sizes(parameter: Parameter) -> str:
    return f"{'x'.join(map(str, parameter[1])) or 'one number'} {parameter[2]}"
