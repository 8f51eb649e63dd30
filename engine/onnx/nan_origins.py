"""Where NaN, or an infinity, may first appear in a model whose inputs are finite numbers of ordinary size."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine.onnx.range_rules import EXP_HIGHEST, INF, KEEPING, TRUTHS, Inputs, Range, exponent

_LEAST_DIVISOR = 1e-20
"""What a number of ordinary size may be divided by without leaving float32."""

_LOSSLESS_POWERS = (0.0, 1.0, 2.0, 3.0, 4.0)
"""Exponents of a Pow that is a few products."""


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


_BIRTHS: Mapping[str, Callable[[Inputs], bool]] = {
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

_BEARING = frozenset(
    {
        *KEEPING,
        *TRUTHS,
        *("Where", "Concat", "Pad", "Max", "Min", "Clip", "Neg", "Abs", "Cast", "CastLike", "Relu", "Constant"),
        *("ScatterElements", "ScatterND", "Trilu", "ConstantOfShape", "Sigmoid", "Tanh", "Shape", "Size", "Erf"),
    }
) - {"ReduceMean", "GlobalAveragePool"}
"""Operators that make no NaN of an infinity."""


def may_make_nan(i: Inputs) -> bool:
    """Say whether an operator may make NaN or an infinity of finite numbers, or NaN of an infinity in a constant.

    An operator of another domain may. Products and sums of finite numbers that are too large for the type are left out.
    """
    if i.node.domain not in ("", "ai.onnx"):
        return True  # not known
    infinite = [r for r in i.ranges() if r.infinite]
    op = i.node.op_type
    if infinite and op not in _BEARING and not (op in ("Add", "Sub") and len(infinite) == 1):
        return True
    birth = _BIRTHS.get(op)
    return birth is not None and birth(i)
