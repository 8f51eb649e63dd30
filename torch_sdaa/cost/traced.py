"""Make a step on fake tensors take the code paths of the device.

PyTorch uses other paths for fake tensors in places: those of compilers, of single tensors, or outside of the trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.optim import optimizer
from torch.utils import _foreach_utils
from torch.utils._python_dispatch import _disable_current_modes

_FLASH = 1
"""Value of ``torch._fused_sdp_choice`` for the fused operator."""


@contextmanager
def traced_as_run() -> Iterator[None]:
    """Make all tensors fake, and make PyTorch treat them like real tensors of the device."""
    with _Mode(), _moved_as_fake(), _stepped_as_lists(), _attended(), _made_on_the_host():
        yield


@contextmanager
def _moved_as_fake() -> Iterator[None]:
    """Let modules of fake tensors be moved and cast: PyTorch would swap parameters, which weak references prevent."""
    kept = torch.nn.Module._apply

    def apply(self: Any, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        for child in self.children() if recurse else ():
            apply(child, fn)
        for param in [each for each in self._parameters.values() if each is not None]:
            made = fn(param.detach())
            param.data = made
            param.fake_device = made.fake_device
        for name, held in self._buffers.items():
            if held is not None:
                held.constant = None  # fake tensors store the value of a number, and would compute with it
                self._buffers[name] = fn(held)
        return self

    torch.nn.Module._apply = apply
    try:
        yield
    finally:
        torch.nn.Module._apply = kept


@contextmanager
def _stepped_as_lists() -> Iterator[None]:
    """Let optimizers use their list implementation for fake tensors, as for real ones."""
    kinds: Any = (optimizer._foreach_supported_types, _foreach_utils._foreach_supported_types)
    for known in kinds:
        known.append(FakeTensor)
    try:
        yield
    finally:
        for known in kinds:
            known.remove(FakeTensor)


@contextmanager
def _made_on_the_host() -> Iterator[None]:
    """Let ``torch.tensor(..., device="sdaa")`` be created on the host and copied, which is traced.

    Otherwise the copy would be a real launch outside of the trace.
    """
    before = torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(True)
    try:
        yield
    finally:
        torch._C._set_only_lift_cpu_tensors(before)


class _Mode(FakeTensorMode):
    """Fake tensor mode of one trace, shared by copied layers (``nn.TransformerEncoder``)."""

    def __deepcopy__(self, memo: dict[int, Any]) -> FakeTensorMode:
        return self


@contextmanager
def _attended() -> Iterator[None]:
    """Use the device's operators for attention and one_hot: traced tensors would use those of compilers."""
    functional: Any = torch.nn.functional
    kept, one_hot = functional.scaled_dot_product_attention, functional.one_hot

    def attend(query: Tensor, *args: Any, **kwargs: Any) -> Any:
        return _attention(kept, query, *args, **kwargs) if on_card([query]) else kept(query, *args, **kwargs)

    def ones_at(tensor: Tensor, num_classes: int = -1) -> Any:
        if num_classes < 1 or not tensor.numel() or not on_card([tensor]):
            return one_hot(tensor, num_classes)
        made = torch.zeros(*tensor.shape, num_classes, dtype=tensor.dtype, device=tensor.device)
        return made.scatter_(-1, tensor.unsqueeze(-1), 1)

    functional.scaled_dot_product_attention, functional.one_hot = attend, ones_at
    try:
        yield
    finally:
        functional.scaled_dot_product_attention, functional.one_hot = kept, one_hot


def _attention(
    in_steps: Callable[..., Tensor],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Return attention on traced tensors; the operator is chosen with empty tensors of the host."""
    given: list[Any] = [query, key, value, attn_mask]
    if torch.is_autocast_enabled("sdaa"):
        lower = torch.get_autocast_dtype("sdaa")
        given = [each.to(lower) if each is not None and each.dtype == torch.float32 else each for each in given]
    with _disable_current_modes():
        asked = [each if each is None else _like_on_host(each) for each in given]
        choice = torch._fused_sdp_choice(*asked, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    if choice != _FLASH:
        return in_steps(*given, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    mask = given[3]
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(mask.logical_not(), float("-inf"))
    fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    return fused(*given[:3], dropout_p, is_causal, attn_mask=mask, scale=scale)[0]


def _like_on_host(fake: Tensor) -> Tensor:
    made = torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype)
    return made.requires_grad_(fake.requires_grad and torch.is_grad_enabled())


def on_card(tensors: Sequence[Tensor]) -> bool:
    """Return whether a tensor is on the device."""
    return any(tensor.device.type == "sdaa" for tensor in tensors)
