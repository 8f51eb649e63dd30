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
    """Return a rule whose results are channels last if the input or the weight is.

    Args:
        original: PyTorch's. first: position of the input among the arguments; the weight follows.
    """

    from torch._prims_common import suggest_memory_format

    def convolution(fake_mode: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        made = original(fake_mode, func, *args, **kwargs)
        results = made if isinstance(made, tuple) else (made,)
        if not any(each is not None and each.device.type == "sdaa" for each in results):
            return made
        names = func._schema.arguments
        operands = [kwargs[names[k].name] if names[k].name in kwargs else args[k] for k in (first, first + 1)]
        layout = next((found for found in map(suggest_memory_format, operands) if found in _LAST), None)
        if layout is None:
            return made
        with fake_mode:
            # The last result of a backward is the bias's gradient, which has one dimension.
            laid = tuple(each if each is None or each.dim() < 4 else each.to(memory_format=layout) for each in results)
        return laid if isinstance(made, tuple) else laid[0]

    return convolution
