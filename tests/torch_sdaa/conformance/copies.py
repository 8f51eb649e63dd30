"""The same values on the CPU and on the device, and bitwise comparison of two results."""

from __future__ import annotations

from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map

import torch_sdaa  # noqa: F401 -- names the device

DEVICE = "sdaa:0"

Storages: TypeAlias = dict[int, Tensor]
"""Copies of storages, by address."""


class DifferentError(Exception):
    """The device's result differs from the CPU's; the text says how."""


def copied(values: Any, device: str) -> Any:
    """Return arguments with every tensor on a device, in its own memory.

    Strides, offsets and tensors that share memory stay as they are, as they decide which code a kernel runs. ``"cpu"``
    among the values becomes the device.
    """
    done: Storages = {}

    def one(value: Any) -> Any:
        if isinstance(value, Tensor):
            return _copy(value, device, done)
        if (isinstance(value, torch.device) and value.type == "cpu") or value == "cpu":
            return torch.device(device)
        if isinstance(value, torch.Generator):
            return torch.Generator(device).manual_seed(value.initial_seed())
        return value

    return tree_map(one, values)


def _copy(t: Tensor, device: str, done: Storages) -> Tensor:
    if t.layout is not torch.strided or t.is_nested or t.is_quantized or type(t) not in (Tensor, torch.nn.Parameter):
        return t.detach().clone().to(device).requires_grad_(t.requires_grad)
    with torch.no_grad():
        plain = t.detach()
        flags = plain.is_conj(), plain.is_neg()
        if flags[0]:
            plain = plain.conj()
        if flags[1]:
            plain = torch._neg_view(plain)
        place = plain.untyped_storage().data_ptr()
        if place not in done:
            whole = torch.empty(0, dtype=torch.uint8).set_(plain.untyped_storage())
            done[place] = whole.clone() if device == "cpu" else whole.to(device)
        made = torch.empty(0, dtype=t.dtype, device=device)
        made.set_(done[place].untyped_storage(), plain.storage_offset(), plain.size(), plain.stride())
        if flags[1]:
            made = torch._neg_view(made)
        if flags[0]:
            made = made.conj()
    return made.detach().requires_grad_(t.requires_grad)


def tensors(values: Any) -> list[Tensor]:
    """Return the tensors among values, in order."""
    return [value for value in tree_flatten(values)[0] if isinstance(value, Tensor)]


def compare(ours: Any, theirs: Any, *, close: bool = False, values: bool = True) -> None:
    """Raise unless the device's values equal the CPU's.

    Args:
        ours: what the device returned. theirs: what the CPU returned. close: whether rounding may differ.
        values: whether elements count; else only shapes, dtypes, strides and where it lies.

    Raises:
        DifferentError: they are not.
    """
    (mine, form), (other, wanted) = tree_flatten(ours), tree_flatten(theirs)
    if len(mine) != len(other) or str(form) != str(wanted):
        raise DifferentError(f"returns {form}, not {wanted}")
    for number, (a, b) in enumerate(zip(mine, other, strict=True)):
        where = f"result {number}" if len(mine) > 1 else "the result"
        if isinstance(b, Tensor):
            _same_tensor(a, b, where, close, values)
        elif isinstance(b, torch.device):
            if a.type != "sdaa":
                raise DifferentError(f"{where} is {a}")
        elif a != b and not (a != a and b != b):  # NaN is NaN
            raise DifferentError(f"{where} is {a!r}, not {b!r}")


def _same_tensor(a: Any, b: Tensor, where: str, close: bool, values: bool) -> None:
    if not isinstance(a, Tensor):
        raise DifferentError(f"{where} is a {type(a).__name__}, not a tensor")
    if a.device.type != "sdaa":
        raise DifferentError(f"{where} lies on {a.device}")
    for what in ("dtype", "layout", "requires_grad", "is_nested"):
        if getattr(a, what) != getattr(b, what):
            raise DifferentError(f"{where}: {what} {getattr(a, what)}, not {getattr(b, what)}")
    if not b.is_nested and a.shape != b.shape:
        raise DifferentError(f"{where}: shape {tuple(a.shape)}, not {tuple(b.shape)}")
    if not values:
        return
    for part, (x, y) in enumerate(zip(_parts(a), _parts(b), strict=True)):
        _same_values(x, y, where if not part else f"{where} (part {part})", close)


def _parts(t: Tensor) -> list[Tensor]:
    """Return the strided tensors that a tensor consists of."""
    t = t.detach()
    if t.is_nested:
        return [part for one in t.unbind() for part in _parts(one)]
    if t.is_quantized:
        return [t.int_repr()]
    if t.layout is torch.sparse_coo:
        t = t if t.is_coalesced() else t.coalesce()
        return [t.indices(), t.values()]
    if t.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [t.crow_indices(), t.col_indices(), t.values()]
    if t.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [t.ccol_indices(), t.row_indices(), t.values()]
    if t.layout is torch._mkldnn:
        return [t.to_dense()]
    return [t]


def _same_values(x: Tensor, y: Tensor, where: str, close: bool) -> None:
    if x.shape != y.shape:
        raise DifferentError(f"{where}: {tuple(x.shape)} values, not {tuple(y.shape)}")
    x = x.cpu().resolve_conj().resolve_neg()
    y = y.resolve_conj().resolve_neg()
    if x.numel() == 0 or _bits(x).equal(_bits(y)):
        return
    if close:
        try:
            torch.testing.assert_close(x, y, equal_nan=True, rtol=1e-4, atol=1e-5)
        except AssertionError as error:
            raise DifferentError(f"{where}: {' '.join(str(error).split())}") from error
        return
    wrong = (_bits(x) != _bits(y)).reshape(-1)
    first = int(wrong.nonzero()[0, 0])
    bytes_each = wrong.numel() // x.numel()
    mine, other = (t.reshape(-1)[first // bytes_each].item() for t in (x, y))
    raise DifferentError(f"{where}: {mine} instead of {other}; first of the values that differ")


def _bits(t: Tensor) -> Tensor:
    """Return a tensor's bytes."""
    # as_strided, as a tensor of one element is contiguous whatever its strides are
    return t.contiguous().as_strided((t.numel(),), (1,)).view(torch.uint8)
