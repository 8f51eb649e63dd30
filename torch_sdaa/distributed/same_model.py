"""``DistributedDataParallel`` on ranks whose models differ: the first parameter that does is named, on every rank."""

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

Parameter = tuple[str, list[int], str]
"""Name, shape, dtype."""

_counts: dict[str, Any] = {}
"""By group: how many models it has compared."""


def verify_first() -> None:
    """Compare the models before PyTorch does: its own words name a number, and not the same one on every rank."""
    original = DistributedDataParallel._build_params_for_reducer

    @functools.wraps(original)
    def build(self: Any) -> Any:
        found = original(self)
        compare(self, found[0])
        return found

    DistributedDataParallel._build_params_for_reducer = build


def compare(ddp: Any, parameters: list[Any]) -> None:
    """Refuse a model that is not the same on all ranks.

    Raises:
        RuntimeError: one line with the first parameter that differs, and how.
        ValueError: the model is on the CPU, where its group has no backend.
    """
    group = ddp.process_group
    kinds = {device.type for device in group._device_types}
    if kinds == {"sdaa"} and ddp.device.type == "cpu":
        raise ValueError(
            "DistributedDataParallel: the model is on the CPU, and its group's backend is tccl, which has the device "
            "only: model.sdaa() first, or init_process_group() without a name, which joins gloo for the CPU"
        )
    if "sdaa" not in kinds or ddp.device.type != "sdaa":
        return
    names = {id(parameter): name for name, parameter in ddp.module.named_parameters()}
    mine = [(names.get(id(p), "?"), list(p.shape), str(p.dtype).removeprefix("torch.")) for p in parameters]
    backend = group._get_backend(torch.device("sdaa"))
    store = getattr(backend, "store", None)
    if store is None:  # TORCH_DISTRIBUTED_DEBUG=DETAIL wraps it, and checks more than this
        return
    number = next(_counts.setdefault(group.group_name, itertools.count()))
    key = f"tccl/ddp/{number}"
    text = json.dumps(mine)
    rank, size, timeout = group.rank(), group.size(), backend.options._timeout
    store.set(f"{key}/model/{rank}", text)
    store.set(f"{key}/digest/{rank}", hashlib.sha256(text.encode()).hexdigest())
    keys = [f"{key}/digest/{other}" for other in range(size)]
    roll.wait_for(store, keys, timeout, _no_model, lambda: roll.members(store, size))
    digests = [store.get(one) for one in keys]
    for other in range(1, size):
        if digests[other] != digests[0]:
            models = {which: [tuple(p) for p in json.loads(store.get(f"{key}/model/{which}"))] for which in (0, other)}
            raise RuntimeError(_difference(models, other))


def _no_model(missing: Any) -> str:
    return f"tccl: rank {', '.join(map(str, missing))} made no DistributedDataParallel, and the others did"


def _difference(models: Mapping[int, list[Any]], other: int) -> str:
    first, second = models[0], models[other]
    for ours, theirs in itertools.zip_longest(first, second):
        if ours == theirs:
            continue
        if ours is None or theirs is None:
            name, has, lacks = (theirs[0], other, 0) if ours is None else (ours[0], 0, other)
            what = f"rank {has} has a parameter {name!r} that rank {lacks} has not ({len(first)} and {len(second)})"
        elif ours[0] != theirs[0]:
            what = f"where rank 0 has {_shown(ours)}, rank {other} has {_shown(theirs)}"
        else:
            what = f"{ours[0]!r} is {_sizes(ours)} on rank 0 and {_sizes(theirs)} on rank {other}"
        return f"DistributedDataParallel: the ranks' models differ: {what}; build the same model on every rank"
    return "DistributedDataParallel: the ranks' models differ; build the same model on every rank"


def _shown(parameter: Parameter) -> str:
    return f"{parameter[0]!r} ({_sizes(parameter)})"


def _sizes(parameter: Parameter) -> str:
    return f"{'x'.join(map(str, parameter[1])) or 'one number'} {parameter[2]}"
