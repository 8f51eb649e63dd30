"""Operators: every entry of PyTorch's ``op_db``, forward and backward, on the device and on the CPU."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db

from tests.torch_sdaa.conformance.copies import DEVICE, DifferentError, compare, copied, tensors
from tests.torch_sdaa.conformance.tally import Entry, excuses

ALLOWED = 2
"""Maximum number of skipped entries."""


def names() -> list[str]:
    """Return the database's entries, by name and variant; a second entry of one name has a number."""
    seen: dict[str, int] = {}
    out = []
    for op in op_db:
        name = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
        seen[name] = seen.get(name, 0) + 1
        out.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return out


def run(name: str, most: int | None = None) -> Entry:
    """Run an entry's samples up to a maximum, in float32 or, if not supported, its first dtype."""
    op = op_db[names().index(name)]
    excused = excuses("ops")
    entry = Entry(name, reason=excused["skips"].get(name, ""), refuses=excused["refuses"].get(name, ""))
    supported = op.supported_dtypes("cpu")
    if not supported:
        entry.absent = "PyTorch has no kernel of it for the CPU"
        return entry
    dtype = torch.float32 if torch.float32 in supported else sorted(supported, key=str)[0]
    grad = bool(op.supports_autograd and (dtype.is_floating_point or dtype.is_complex))
    ways = {way: name in excused[way] for way in ("close", "unset", "host_arguments")}
    samples = list(itertools.islice(_samples(op, dtype, grad), most))
    for number, sample in enumerate(samples):
        try:
            _one(op, sample, grad, entry, **ways)
        except DifferentError as error:
            entry.wrong.append(f"sample {number} of {len(samples)}: {error}")
    return entry


def _samples(op: Any, dtype: torch.dtype, grad: bool) -> Iterator[Any]:
    torch.manual_seed(0)
    random.seed(0)
    yield from list(op.sample_inputs("cpu", dtype, requires_grad=grad))


def _one(op: Any, sample: Any, grad: bool, entry: Entry, *, close: bool, unset: bool, host_arguments: bool) -> None:
    call = (sample.input, list(sample.args), dict(sample.kwargs))
    theirs, ours = copied(call, "cpu"), copied(call, DEVICE)
    if host_arguments:
        ours = (ours[0], *copied(call[1:], "cpu"))
    expected, refused = _try(lambda: op(theirs[0], *theirs[1], **theirs[2]))
    # where nothing says on which device a result is to be made, the default device does
    with nullcontext() if tensors(ours) or "device" in ours[2] else torch.device(DEVICE):
        result, failed = _try(lambda: op(ours[0], *ours[1], **ours[2]))
    if _both_refuse(refused, failed, "forward", entry):
        return
    compare(result, expected, close=close, values=not unset)
    if not host_arguments:  # what an operator did to its arguments
        compare(tensors(ours), tensors(theirs), close=close, values=not unset)
    entry.counts["forward"] += 1
    if grad and not unset:
        _backward(sample, (expected, theirs), (result, ours), entry, close=close)


def _backward(sample: Any, cpu: tuple[Any, Any], device: tuple[Any, Any], entry: Entry, *, close: bool) -> None:
    theirs, refused = _try(lambda: _gradients(sample, *cpu))
    ours, failed = _try(lambda: _gradients(sample, *device))
    if _both_refuse(refused, failed, "backward", entry):
        return
    if theirs is not None:
        compare(ours, theirs, close=close)
        entry.counts["backward"] += 1


def _gradients(sample: Any, result: Any, arguments: Any) -> list[Tensor | None] | None:
    """Return the gradients of the arguments for arbitrary ones of the results; ``None``: no argument requires any."""
    outputs = [t for t in tensors(sample.output_process_fn_grad(result)) if t.requires_grad]
    leaves = [t for t in tensors(arguments) if t.requires_grad]
    if not outputs or not leaves:
        return None
    generator = torch.Generator().manual_seed(1)
    given = [
        torch.randn(t.shape, dtype=t.dtype, generator=generator).to(t.device)
        if t.layout is torch.strided and not t.is_nested
        else torch.ones_like(t)
        for t in outputs
    ]
    return list(torch.autograd.grad(outputs, leaves, given, allow_unused=True))


def _try(f: Callable[[], Any]) -> tuple[Any, Exception | None]:
    """Return a function's result with fixed seeds, or its error."""
    torch.manual_seed(5)
    random.seed(5)
    try:
        return f(), None
    except Exception as error:  # noqa: BLE001 -- whatever it is, it is what is compared
        return None, error


def _both_refuse(cpu: Exception | None, device: Exception | None, way: str, entry: Entry) -> bool:
    if cpu is None and device is None:
        return False
    if cpu is None:
        raise DifferentError(f"{way}: {type(device).__name__}: {' '.join(str(device).split())[:300]}")
    if device is None:
        raise DifferentError(f"{way}: the CPU raises {type(cpu).__name__}: {' '.join(str(cpu).split())[:200]}")
    entry.counts["refused"] += 1
    return True
