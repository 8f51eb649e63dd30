"""Floating-point operations of an ATen operator, from its name and shapes.

Matrix products use PyTorch's formulas (``torch.utils.flop_counter``). Elementwise operators, reductions and composites
use the operations per element of ``engine.sdaa`` for the equivalent ONNX operator; a backward operator counts twice its
forward. These are approximations, and rarely the bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log2, prod
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from engine.sdaa import HEAVY

Sizes = Sequence[int]

_PRODUCTS = {"mm": 2, "bmm": 2, "addmm": 3, "baddbmm": 3}
"""Matrix products in PyTorch's registry, and the number of operands of their formula."""

_LIKE = {
    **dict.fromkeys(("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "logaddexp"), "Exp"),
    **dict.fromkeys(("logsumexp", "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh"), "Exp"),
    **dict.fromkeys(("sqrt", "rsqrt", "norm", "linalg_vector_norm"), "Sqrt"),
    **dict.fromkeys(("_softmax", "softmax", "_safe_softmax", "_masked_softmax"), "Softmax"),
    **dict.fromkeys(("_log_softmax", "nll_loss_forward", "cross_entropy_loss"), "LogSoftmax"),
    **dict.fromkeys(("erf", "erfc", "erfinv", "lgamma", "digamma"), "Erf"),
    **dict.fromkeys(("gelu",), "Gelu"),
    **dict.fromkeys(("tanh", "atanh", "asinh", "acosh", "selu", "elu", "celu"), "Tanh"),
    **dict.fromkeys(
        ("sigmoid", "log_sigmoid", "log_sigmoid_forward", "binary_cross_entropy", "logit", "glu"), "Sigmoid"
    ),
    **dict.fromkeys(("binary_cross_entropy_with_logits", "softplus"), "Softplus"),
    **dict.fromkeys(("pow", "float_power"), "Pow"),
    **dict.fromkeys(("silu",), "Swish"),
    **dict.fromkeys(("mish",), "Mish"),
    **dict.fromkeys(
        ("native_layer_norm", "native_group_norm", "native_batch_norm", "cudnn_batch_norm"), "LayerNormalization"
    ),
    **dict.fromkeys(("_native_batch_norm_legit", "batch_norm", "_batch_norm_with_update"), "LayerNormalization"),
    **dict.fromkeys(
        ("_native_batch_norm_legit_no_training", "batch_norm_stats", "batch_norm_elemt"), "LpNormalization"
    ),
    **dict.fromkeys(("_fused_rms_norm", "rms_norm"), "RMSNormalization"),
}
"""ATen operators, and the ONNX operator with the same number of operations per element."""

_OWN = {"_fused_adam_": 12, "_fused_adamw_": 13, "_fused_sgd_": 4, "_fused_adagrad_": 6}
_OWN |= {
    "fused_adam": 12,
    "fused_sgd": 4,
    "fused_adadelta": 13,
    "fused_lamb": 17,
    "gather_grads": 2,
    "copy_lists": 1,
    "clip_grad_norm": 3,
    "shuffle_channels": 1,
    "unshuffle_channels": 1,
}
"""Operations per element read by fused optimizers and this project's operators, counted in their formulas."""

_CUBIC = ("linalg_", "cholesky", "lu_", "triangular_solve", "svd", "symeig", "qr", "inverse", "ormqr", "geqrf", "lstsq")
_FOURIER = ("_fft_",)


def has_no_rule(op: str) -> bool:
    """Return whether the arithmetic of an operator is unknown: an operator of another library, or a factorization."""
    if op.startswith("sdaa::") and base_of(op) in {*_OWN, *_SPECIAL}:  # operators of torch_sdaa.apex and .contrib
        return False
    return not op.startswith("aten::") or base_of(op).startswith(_CUBIC)


def base_of(op: str) -> str:
    """Return an operator's base name: without library, ``_foreach`` and the underscore of in-place operators."""
    name = op.rpartition("::")[2].removeprefix("_foreach_")
    return name[:-1] if name.endswith("_") and not name.startswith("_fused") else name


def operations(op: str, inputs: Sequence[Sizes], outputs: Sequence[Sizes]) -> float | None:
    """Return the floating-point operations of a launch; a multiply-add counts two.

    Returns ``None`` if the formula does not apply to the shapes (a nested tensor is logged as its flat values).

    Args:
        op: ``aten::mm``. inputs, outputs: sizes; an operand given twice may be listed once.
    """
    name = base_of(op)
    if name in _PRODUCTS:
        return _product(name, inputs, outputs)
    if name in _SPECIAL:
        return _SPECIAL[name](inputs, outputs)
    if name in _OWN:
        return _OWN[name] * sum(map(prod, inputs)) / max(1, _LISTS.get(name, 4))
    return _by_elements(op, name, inputs, outputs)


def elementwise(inputs: Sequence[Sizes], outputs: Sequence[Sizes]) -> float:
    """Return the operations of an unknown launch: one for each element of the larger side."""
    return max(float(sum(map(prod, outputs))), float(max(map(prod, inputs), default=0)))


def _by_elements(op: str, name: str, inputs: Sequence[Sizes], outputs: Sequence[Sizes]) -> float:
    elements = elementwise(inputs, outputs)
    if op.startswith("aten::_foreach_"):
        reduced = sum(map(prod, outputs)) < sum(map(prod, inputs)) and name in ("norm", "powsum", "max")
        elements = float(sum(map(prod, inputs if reduced or not outputs else outputs)))
    if name.startswith(_FOURIER):
        return 5 * elements * log2(max(elements, 2))
    if name.startswith(("sort", "argsort", "topk", "kthvalue", "median")):
        return elements * log2(max(inputs[0][-1] if inputs and inputs[0] else 2, 2))
    forward = name.partition("_backward")[0]
    times = 2 if "_backward" in name else 1
    return elements * times * HEAVY.get(_LIKE.get(forward, ""), 1)


_LISTS = {"_fused_adam_": 4, "_fused_adamw_": 4, "_fused_sgd_": 2, "_fused_adagrad_": 3}
_LISTS |= {"fused_sgd": 2, "clip_grad_norm": 1, "gather_grads": 1, "copy_lists": 2}
_LISTS |= {"shuffle_channels": 1, "unshuffle_channels": 1}


def _product(name: str, inputs: Sequence[Sizes], outputs: Sequence[Sizes]) -> float | None:
    operands = [tuple(sizes) for sizes in inputs][: _PRODUCTS[name]]
    formula: Any = flop_registry[getattr(torch.ops.aten, name)]
    rank = 3 if name.endswith("bmm") else 2
    if len(operands) == _PRODUCTS[name] and _can_be_multiplied(operands[-2], operands[-1], rank):
        return float(formula(*operands))
    # x @ x: the operand is listed once, and is square along the summed dimension.
    if len(operands) < _PRODUCTS[name] and outputs and operands and len(operands[-1]) == len(outputs[0]) == rank:
        return 2.0 * prod(outputs[0]) * operands[-1][-2]
    return None


def _can_be_multiplied(left: Sizes, right: Sizes, rank: int) -> bool:
    return len(left) == len(right) == rank and left[-1] == right[-2] and left[:-2] == right[:-2]


def _addbmm(inputs: Sequence[Sizes], outputs: Sequence[Sizes]) -> float | None:
    if not inputs or len(inputs[-1]) != 3:
        return None
    batch = inputs[-2] if len(inputs) > 1 else inputs[0]
    return 2.0 * prod(batch) * inputs[-1][-1]


def _cdist(inputs: Sequence[Sizes], outputs: Sequence[Sizes]) -> float | None:
    if not outputs or not inputs or not inputs[0]:
        return None
    return 3.0 * prod(outputs[0]) * inputs[0][-1]


def _iou(inputs: Sequence[Sizes], outputs: Sequence[Sizes]) -> float | None:
    """Return 14 operations per pair of boxes and 3 per box; the backward counts twice."""
    boxes = [sizes[0] for sizes in inputs if len(sizes) == 2 and sizes[1] == 4]
    if not boxes:
        return None
    return 14.0 * boxes[0] * boxes[-1] + 3.0 * (boxes[0] + boxes[-1])


_SPECIAL: dict[str, Callable[[Sequence[Sizes], Sequence[Sizes]], float | None]] = {
    "addbmm": _addbmm,
    "_int_mm": lambda inputs, outputs: _product("mm", inputs, outputs),
    **dict.fromkeys(("addmv", "mv", "dot", "vdot", "addr"), lambda inputs, _: 2.0 * max(map(prod, inputs), default=0)),
    "pairwise_iou": _iou,
    "pairwise_iou_backward": lambda inputs, outputs: None if (once := _iou(inputs[-2:], outputs)) is None else 2 * once,
    **dict.fromkeys(("_cdist_forward", "_euclidean_dist"), _cdist),
}
