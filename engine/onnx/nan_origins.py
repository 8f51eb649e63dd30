"""Operators that may produce NaN or infinities from finite inputs of ordinary magnitude."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine.onnx.range_rules import EXP_HIGHEST, INF, KEEPING, TRUTHS, Inputs, Range, exponent

_LEAST_DIVISOR = 1e-20  # smallest divisor for which ordinary numbers stay in the range of float32
_LOSSLESS_POWERS = (0.0, 1.0, 2.0, 3.0, 4.0)  # exponents of Pow that are computed as products


def _is_nearly_zero(a: Range) -> bool:
    return a.low < _LEAST_DIVISOR and a.high > -_LEAST_DIVISOR


def _divides_by_zero(i: Inputs) -> bool:
    return not i.is_whole() and _is_nearly_zero(i.range(1))


def _may_overflow(i: Inputs) -> bool:
    return i.range(0).high > EXP_HIGHEST


def _outside(low: float, high: float) -> Callable[[Inputs], bool]:
    return lambda i: not i.range(0).within(low, high)


def _power_is_not_safe(i: Inputs) -> bool:
    if i.is_whole() or exponent(i) in _LOSSLESS_POWERS:
        return False
    power = exponent(i)
    return power is None or power < 0 or power > max(_LOSSLESS_POWERS) or i.range(0).low < 0


def _variance_is_not_safe(i: Inputs) -> bool:
    return bool(i.range(4).low + i.attribute("epsilon", 1e-5) <= 0)


def _no_epsilon(i: Inputs) -> bool:
    return bool(i.attribute("epsilon", 1e-5) <= 0)


_NAN_SOURCES: Mapping[str, Callable[[Inputs], bool]] = {
    "Div": _divides_by_zero,
    "Mod": _divides_by_zero,
    "Pow": _power_is_not_safe,
    "Exp": _may_overflow,
    "Log": lambda i: i.range(0).low <= 0,
    "Sqrt": lambda i: i.range(0).low < 0,
    "Reciprocal": lambda i: _is_nearly_zero(i.range(0)),
    "ReduceLogSum": lambda i: i.range(0).low <= 0,
    "Sinh": _outside(-EXP_HIGHEST, EXP_HIGHEST),
    "Cosh": _outside(-EXP_HIGHEST, EXP_HIGHEST),
    "Acos": _outside(-1, 1),
    "Asin": _outside(-1, 1),
    "Acosh": _outside(1, INF),
    "Atanh": _outside(-0.999, 0.999),
    "BatchNormalization": _variance_is_not_safe,
    "ReduceLogSumExp": _may_overflow,
    "ReduceProd": lambda i: True,
    **dict.fromkeys(("LayerNormalization", "InstanceNormalization", "GroupNormalization"), _no_epsilon),
    **dict.fromkeys(("RMSNormalization", "MeanVarianceNormalization"), _no_epsilon),
    "LpNormalization": lambda i: True,
}

_INFINITY_SAFE = frozenset(
    {
        *KEEPING,
        *TRUTHS,
        *("Where", "Concat", "Pad", "Max", "Min", "Clip", "Neg", "Abs", "Cast", "CastLike", "Relu", "Constant"),
        *("ScatterElements", "ScatterND", "Trilu", "ConstantOfShape", "Sigmoid", "Tanh", "Shape", "Size", "Erf"),
    }
) - {"ReduceMean", "GlobalAveragePool"}
"""Operators that do not turn an infinity into NaN."""


def may_make_nan(i: Inputs) -> bool:
    """Return whether an operator may turn finite numbers into NaN or infinity, or a constant's infinity into NaN.

    ``True`` for operators of other domains. Overflow of products and sums is not considered.
    """
    if i.node.domain not in ("", "ai.onnx"):
        return True
    infinite = [r for r in i.ranges() if r.infinite]
    op = i.node.op_type
    if infinite and op not in _INFINITY_SAFE and not (op in ("Add", "Sub") and len(infinite) == 1):
        return True
    source = _NAN_SOURCES.get(op)
    return source is not None and source(i)
