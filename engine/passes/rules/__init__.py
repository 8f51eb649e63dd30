"""Rewrite rules that a pass file selects by name: ``rewrite(model, ["channel_shuffle", "shuffle_split"])``.

:data:`RULES` lists all rules. The gain of a rule on the simulated card is computed by rewriting the model and comparing
the costs of both (:mod:`engine.passes.rules.gain`). A pass file that selects rules::

    from engine.passes import rewrite


    def use_passes(model):
        return rewrite(model, ["hard_swish", "transpose_pair"])

Some rules write operators of newer opsets than exporters use; ``rewrite(model, ["gelu"], opset=20)`` converts the model
first.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.base import PassError
from engine.passes import _library

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

_ROUNDS = 10  # maximum number of applications of a rule, whose result may match again


@dataclass(frozen=True, slots=True)
class Rule:
    """A rewrite rule."""

    matches: str  # description of the pattern
    becomes: str  # description of the replacement
    where: str  # ``module:function`` here, which changes an onnx-ir model in place and returns the matches
    min_opset: int = 7  # oldest default opset with the operators of the replacement

    def apply(self, model: ir.Model) -> int:
        """Apply the rule in place until it no longer matches; return the number of matches (0 for an older opset)."""
        if not self.fits(model.opset_imports.get("", 0)):
            return 0
        module, _, function = self.where.partition(":")
        once: Callable[[ir.Model], int] = getattr(importlib.import_module(f"{__name__}.{module}"), function)
        total = 0
        for _ in range(_ROUNDS):
            fired = once(model)
            if not fired:
                break
            total += fired
            _library.tidy(model)  # infers the shapes of new values, which the next match requires
        return total

    def fits(self, opset: int) -> bool:
        """Return whether a model of this opset supports the operators of the replacement."""
        return opset >= self.min_opset


RULES: Mapping[str, Rule] = {
    "conv_batch_norm": Rule(
        "Conv, ConvTranspose or Gemm with constant weights, then BatchNormalization",
        "the same node with the batch norm in its weights (folded in float64)",
        "linear:conv_batch_norm",
    ),
    "conv_bias": Rule(
        "Conv, ConvTranspose or Gemm with constant weights, then Add, Sub, Mul or Div with a constant per channel",
        "the same node with the constant in its weights and bias (folded in float64)",
        "linear:conv_bias",
    ),
    "conv_activation": Rule(
        "a convolution or matrix product, then Reshape, Transpose, Flatten, Squeeze or Unsqueeze, then an activation",
        "the activation first, which the card then takes into the kernel before it",
        "linear:conv_activation",
    ),
    "hard_swish": Rule(
        "x * Clip(x + 3, 0, 6) / 6, and x * HardSigmoid(x) of slope 1/6",
        "HardSwish",
        "activations:hard_swish",
        min_opset=14,
    ),
    "silu": Rule("x * Sigmoid(x)", "Swish", "activations:silu", min_opset=24),
    "gelu": Rule("x / 2 * (1 + Erf(x / sqrt(2)))", "Gelu", "activations:gelu", min_opset=20),
    "gelu_tanh": Rule(
        "x / 2 * (1 + Tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))",
        'Gelu with approximate="tanh"',
        "activations:gelu_tanh",
        min_opset=20,
    ),
    "layer_norm": Rule(
        "(x - mean) / sqrt(variance + epsilon) * scale (+ bias) over the last axis, written out",
        "LayerNormalization",
        "normalisation:layer_norm",
        min_opset=17,
    ),
    "attention": Rule(
        "Softmax(q @ k.T * scale (+ mask)) @ v on tensors of four dimensions (batch, heads, positions, size)",
        "Attention",
        "attention:attention",
        min_opset=23,
    ),
    "transpose_past": Rule(
        "Transpose, an elementwise operator of one input, Transpose",
        "the operator, then one Transpose, or none where the two undo each other",
        "layout:transpose_past",
    ),
    "transpose_pair": Rule("Transpose of a Transpose", "one Transpose, or none", "layout:transpose_pair"),
    "transpose_view": Rule(
        "Transpose that moves only axes of length 1", "Reshape, which copies nothing", "layout:transpose_view"
    ),
    "channel_shuffle": Rule(
        "Reshape that splits axis 1, Transpose within what was split, Reshape that joins it (channel shuffle)",
        "one Gather along axis 1",
        "shuffle:channel_shuffle",
    ),
    "shuffle_split": Rule(
        "Gather of constant channels, then Split or Slices along the same axis",
        "one Gather per piece, each reading only what it keeps",
        "shuffle:shuffle_split",
    ),
    "gather_conv": Rule(
        "Gather of constant channels that only an ungrouped Conv with constant weights reads",
        "the Conv alone, with its weights reordered (zeros for channels it does not use: an infinity there gives NaN)",
        "shuffle:gather_conv",
    ),
    "reshape_chain": Rule(
        "Reshape, Flatten, Squeeze or Unsqueeze one after another", "one Reshape", "layout:reshape_chain"
    ),
}
"""All rules by name, in the recommended order."""


def rewrite(model: onnx.ModelProto, names: Iterable[str], opset: int = 0) -> onnx.ModelProto:
    """Return the model after the default pass and these rules, in this order, first converted to ``opset`` if older.

    Raise PassError if a rule does not exist, the conversion failed, or the graph libraries do not support the model.
    """
    return rewrite_counted(model, names, opset)[0]


def rewrite_counted(
    model: onnx.ModelProto, names: Iterable[str], opset: int = 0, tidied: bool = False
) -> tuple[onnx.ModelProto, dict[str, int]]:
    """Like :func:`rewrite`, and also return the matches of each rule; ``tidied`` skips the default pass."""
    chosen = {name: find(name) for name in names}
    counts: dict[str, int] = {}

    def change(graph: ir.Model) -> None:
        _library.raise_opset(graph, opset)
        if not tidied:
            _library.tidy(graph)
        for name, rule in chosen.items():
            counts[name] = rule.apply(graph)

    return _library.edit(model, change, "rewrite rules"), counts


def find(name: str) -> Rule:
    """Return a rule by its name; raise PassError if the name is unknown."""
    if name not in RULES:
        raise PassError(f"unknown rewrite rule {name!r}; use: {', '.join(RULES)}")
    return RULES[name]
