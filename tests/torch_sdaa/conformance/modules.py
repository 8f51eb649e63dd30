"""Modules: every entry of PyTorch's ``module_db``, training and evaluating, forward and backward."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.common_modules import module_db

from tests.torch_sdaa.conformance.copies import DEVICE, DifferentError, compare, copied, tensors
from tests.torch_sdaa.conformance.tally import Entry, excuses

ALLOWED = 0
"""Maximum number of skipped entries."""


def names() -> list[str]:
    """Return the database's entries."""
    return [info.name for info in module_db]


def run(name: str, most: int | None = None) -> Entry:
    """Run an entry's inputs, with a maximum for each mode."""
    info = module_db[names().index(name)]
    excused = excuses("modules")
    entry = Entry(name, reason=excused["skips"].get(name, ""))
    for training in (True, False):
        torch.manual_seed(0)
        made = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=True, training=training)
        for number, inputs in enumerate(itertools.islice(made, most)):
            try:
                _one(info, inputs, training, entry, close=name in excused["close"])
            except DifferentError as error:
                entry.wrong.append(f"{'training' if training else 'evaluating'}, input {number}: {error}")
    return entry


def _one(info: Any, inputs: Any, training: bool, entry: Entry, *, close: bool) -> None:
    if inputs.forward_input is None:
        return
    built, moved = (_built(info, inputs, device) for device in ("cpu", DEVICE))
    call = (list(inputs.forward_input.args), dict(inputs.forward_input.kwargs))
    theirs, refused = _try(built.train(training), copied(call, "cpu"))
    ours, failed = _try(moved.train(training), copied(call, DEVICE))
    if refused is not None:
        if failed is None:
            raise DifferentError(f"the CPU raises {type(refused).__name__}: {refused}")
        entry.counts["refused"] += 1
        return
    if failed is not None:
        raise DifferentError(f"{type(failed).__name__}: {' '.join(str(failed).split())[:300]}")
    for mine, other in zip(ours, theirs, strict=True):
        compare(mine, other, close=close)
    compare(list(moved.buffers()), list(built.buffers()), close=close)
    entry.counts["forward"] += 1
    entry.counts["backward"] += bool(theirs[1])


def _built(info: Any, inputs: Any, device: str) -> torch.nn.Module:
    """Return the module for the inputs, created on the CPU and moved; its buffers in float32 too."""
    args, kwargs = copied((inputs.constructor_input.args, inputs.constructor_input.kwargs), "cpu")
    torch.manual_seed(0)
    made: torch.nn.Module = info.module_cls(*args, **kwargs).to(torch.float32)
    return made.to(device)


def _try(module: torch.nn.Module, call: Any) -> tuple[Any, Exception | None]:
    """Return a module's results, and the gradients of its arguments and parameters; or its error."""
    torch.manual_seed(1)
    try:
        result = module(*call[0], **call[1])
        outputs = [t for t in tensors(result) if t.requires_grad]
        leaves = [t for t in (*tensors(call), *module.parameters()) if t.requires_grad]
        gradients: tuple[Tensor | None, ...] = ()
        if outputs and leaves:
            generator = torch.Generator().manual_seed(2)
            given = [torch.randn(t.shape, dtype=t.dtype, generator=generator).to(t.device) for t in outputs]
            gradients = torch.autograd.grad(outputs, leaves, given, allow_unused=True)
    except Exception as error:  # noqa: BLE001 -- whatever it is, it is what is compared
        return None, error
    return (result, list(gradients)), None
