"""Memory layout of convolutions while a graph is traced: that of the CPU's kernels, which run on this device.

PyTorch asks for the backend of a convolution by device type, and assumes contiguous results for other devices. So a
compiled network in ``channels_last`` would return other strides than uncompiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torch_sdaa.loading import late_imports

_MODULE = "torch._subclasses.fake_impls"
_LAST = (torch.channels_last, torch.channels_last_3d)


def change_when_imported() -> None:
    """Change the rule for convolutions, now or when it is imported."""
    late_imports.when_imported(_MODULE, _change)


def _change() -> None:
    from torch._subclasses import fake_impls

    rules = fake_impls.op_implementations_dict
    for operator, first in ((torch.ops.aten.convolution.default, 0), (torch.ops.aten.convolution_backward.default, 1)):
        if operator in rules:
            rules[operator] = _with_layout(rules[operator], first)


def _with_layout(original: Callable[..., Any], first: int) -> Callable[..., Any]:
    """Return a rule whose results have the strides of the CPU's if the input or the weight is channels last.

    Args:
        original: PyTorch's. first: position of the input among the arguments; the weight follows.
    """

    from torch._prims_common import suggest_memory_format
    from torch.utils import _pytree as pytree

    def on_cpu(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cpu")

    def convolution(fake_mode: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        made = original(fake_mode, func, *args, **kwargs)
        results = made if isinstance(made, tuple) else (made,)
        if not any(each is not None and each.device.type == "sdaa" for each in results):
            return made
        names = func._schema.arguments
        operands = [kwargs[names[k].name] if names[k].name in kwargs else args[k] for k in (first, first + 1)]
        if all(suggest_memory_format(each) not in _LAST for each in operands):
            return made
        with fake_mode:
            args, kwargs = pytree.tree_map(on_cpu, (args, kwargs))
        asked = original(fake_mode, func, *args, **kwargs)
        wanted = asked if isinstance(asked, tuple) else (asked,)
        with fake_mode:
            laid = tuple(
                each if each is None else each.new_empty_strided(each.shape, like.stride())
                for each, like in zip(results, wanted, strict=True)
            )
        return laid if isinstance(made, tuple) else laid[0]

    return convolution
