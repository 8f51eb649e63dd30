"""Strict mode: raises an error for operations that cards of this kind cannot do, to check a script before it is moved.

Off by default: the simulated card computes everything that PyTorch's CPU kernels compute. ``TORCH_SDAA_STRICT=1`` or
:func:`set_strict` enables it; then each distinct launch is checked once against :data:`RULES`, every float16 operand
and result must be finite, and a thread may use one device only. The rules are from guides for a comparable card.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine import ConfigError
from torch_sdaa.cost.counts import base_of
from torch_sdaa.cost.prices import COPIES, Launch, Meta, is_view, shown
from torch_sdaa.loading.core import C

VARIABLE = "TORCH_SDAA_STRICT"
"""Environment variable: ``1`` enables strict mode; ``0`` or unset disables it."""

PRODUCTS = frozenset(
    (
        *(
            "mm",
            "bmm",
            "addmm",
            "baddbmm",
            "addbmm",
            "addmv",
            "mv",
            "dot",
            "linear",
            "convolution",
            "convolution_backward",
        ),
        *("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention_for_cpu_backward"),
    )
)
"""Operators of the matrix unit."""

_FLOATING = ("Half", "BFloat16", "Float", "Double", "ComplexHalf", "ComplexFloat", "ComplexDouble")
_WIDE = ("Double", "ComplexDouble")


@dataclass(frozen=True, slots=True)
class Rule:
    """A limitation of such cards.

    Attributes:
        name: of the rule. source: chapter of the guide. fix: what to do instead.
        broken: returns the part of a launch that violates the rule, or "". ``None``: checked elsewhere, by value or by
            thread.
    """

    name: str
    source: str
    fix: str
    broken: Callable[[str, Sequence[Meta], Sequence[Meta]], str] | None = None


def _wide(op: str, inputs: Sequence[Meta], outputs: Sequence[Meta]) -> str:
    return next((shown(name) for name, *_ in (*inputs, *outputs) if name in _WIDE), "")


def _not_half(op: str, inputs: Sequence[Meta], outputs: Sequence[Meta]) -> str:
    if base_of(op) not in PRODUCTS:
        return ""
    return next((shown(name) for name, *_ in (*inputs, *outputs) if name in _FLOATING and name != "Half"), "")


def _int64_maximum(op: str, inputs: Sequence[Meta], outputs: Sequence[Meta]) -> str:
    return "int64" if base_of(op) in ("max", "amax", "aminmax") and inputs and inputs[0][0] == "Long" else ""


def _int64_target(op: str, inputs: Sequence[Meta], outputs: Sequence[Meta]) -> str:
    # Class targets. PyTorch refuses integer targets of binary_cross_entropy_with_logits, the example in the FAQ.
    if not base_of(op).startswith("nll_loss"):
        return ""
    return "an int64 target" if any(name == "Long" for name, *_ in inputs) else ""


def _mixed_stack(op: str, inputs: Sequence[Meta], outputs: Sequence[Meta]) -> str:
    names = sorted({shown(name) for name, *_ in inputs})
    return " and ".join(names) if base_of(op) in ("stack", "cat") and len(names) > 1 else ""


def _shape_of_data(op: str, inputs: Sequence[Meta], outputs: Sequence[Meta]) -> str:
    return "a result whose shape depends on data" if base_of(op) in _DYNAMIC else ""


_DYNAMIC = (
    "nonzero",
    "masked_select",
    "_unique",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
    "unique_dim_consecutive",
)

RULES = (
    Rule("float64", "002, migration: 除开昇腾芯片不支持的fp64数据格式", "use float32: .float()", _wide),
    Rule(
        "float16 matrix products",
        "004, 约束与限制: cube计算的算子只支持float16",
        "run it under torch.autocast('sdaa', dtype=torch.float16), or call .half()",
        _not_half,
    ),
    Rule("finite float16", "004, 约束与限制: 不支持float16类型的inf/nan数据输入输出", "scale the loss, or use float32"),
    Rule("one device a thread", "004, FAQ ExchangeDevice: 在一个线程内，只能调用一个NPU设备", "a process per device"),
    Rule(
        "int64 maximum",
        "004, 单算子样例编写说明: 在输入参数为torch.int64时，max算子在npu上报错",
        "use .int()",
        _int64_maximum,
    ),
    Rule(
        "int64 targets",
        "004, 迁移样例: 将数据集目标结果target修改成int32类型解决算子报错问题",
        "use target.to(torch.int32), which the device accepts",
        _int64_target,
    ),
    Rule(
        "one dtype in stack",
        "004, FAQ MemCopySync: 将stack入参数据类型转换为一致",
        "use .to() on the parts",
        _mixed_stack,
    ),
    Rule("fixed shapes", "004, FAQ 动态shape: 将动态shape修改为固定shape", "use torch.where and masks", _shape_of_data),
)
"""All rules; ``source`` is a text of the specification and its chapter."""


def refusal(launch: Launch) -> str:
    """Return why such cards cannot do a launch, in one line; "" if they can."""
    op, inputs, outputs, _ = launch
    if is_view(op) or op == COPIES[1]:  # copied values were checked when they were made
        return ""
    for rule in RULES:
        found = rule.broken(op, inputs, outputs) if rule.broken else ""
        if found:
            return f"strict mode: {op} with {found}: such cards cannot do this ({rule.name}); {rule.fix}"
    return ""


def set_strict(on: bool) -> None:
    """Switch strict mode on or off for this process."""
    C.set_judge(refusal)
    C.set_strict(bool(on))


def is_strict() -> bool:
    """Return whether strict mode is on."""
    return bool(C.is_strict())


def start() -> None:
    """Apply ``TORCH_SDAA_STRICT``; raise ConfigError if it is neither 0 nor 1."""
    text = os.environ.get(VARIABLE, "0")
    if text not in ("", "0", "1"):
        raise ConfigError(f"environment variable {VARIABLE}={text!r} must be 1 (strict mode) or 0")
    if text == "1":
        set_strict(True)
