"""Value ranges of an operator's outputs, computed from those of its inputs: one function per kind of operator.

A range is valid for all elements of a tensor and for finite inputs. Outputs of operators without a rule may have any
value of their type. Sums and products are those of unbounded integers; the caller checks for overflow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper

from engine.base import Array
from engine.signature import Dim

INF = math.inf
_MOST = 2**200  # limit of followed products; no type can represent larger ones
EXP_HIGHEST = 88.0  # Exp of a larger number is infinite in float32

WHOLE: Mapping[int, tuple[int, int]] = {
    int(number): (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    for number, dtype in (
        (TensorProto.INT64, np.int64),
        (TensorProto.UINT64, np.uint64),
        (TensorProto.INT32, np.int32),
        (TensorProto.UINT32, np.uint32),
        (TensorProto.INT16, np.int16),
        (TensorProto.UINT16, np.uint16),
        (TensorProto.INT8, np.int8),
        (TensorProto.UINT8, np.uint8),
    )
}
"""Integer types with their minimum and maximum."""

FLOATS = frozenset((TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16))


@dataclass(frozen=True, slots=True)
class Range:
    """Range of a tensor's elements (infinite bounds: unknown); ``infinite`` if a constant has an infinity."""

    low: float
    high: float
    infinite: bool = False

    def joined(self, *others: Range) -> Range:
        """Return the smallest range that contains this one and the others."""
        every = (self, *others)
        return Range(min(r.low for r in every), max(r.high for r in every), any(r.infinite for r in every))

    def within(self, low: float, high: float) -> bool:
        """Return whether all values are between ``low`` and ``high``."""
        return low <= self.low and self.high <= high


ANY = Range(-INF, INF)
BOOLEAN = Range(0, 1)


@dataclass(frozen=True, slots=True)
class Operand:
    """Known properties of an input: range, type, shape (if known), and values (if constant)."""

    name: str
    range: Range
    kind: int
    shape: Sequence[Dim] | None
    constant: Array | None


@dataclass(frozen=True, slots=True)
class Inputs:
    """A node with its inputs (``None`` for an omitted one); ``longest``: maximum size of an unknown dimension."""

    node: NodeProto
    operands: Sequence[Operand | None]
    longest: int

    def operand(self, place: int) -> Operand | None:
        """Return an input, or ``None`` if it is omitted."""
        return self.operands[place] if place < len(self.operands) else None

    def range(self, place: int) -> Range:
        """Return the range of an input; unknown if it is omitted."""
        found = self.operand(place)
        return ANY if found is None else found.range

    def ranges(self, start: int = 0) -> list[Range]:
        """Return the ranges of the given inputs from index ``start``."""
        return [one.range for one in self.operands[start:] if one is not None]

    def attribute(self, name: str, default: Any) -> Any:
        """Return an attribute's value."""
        for one in self.node.attribute:
            if one.name == name:
                return helper.get_attribute_value(one)
        return default

    def is_whole(self) -> bool:
        """Return whether the first input has an integer type."""
        first = self.operand(0)
        return first is not None and first.kind in WHOLE

    def sizes(self, place: int) -> list[int]:
        """Return the maximum sizes of an input's dimensions; empty if the shape is unknown."""
        found = self.operand(place)
        shape = None if found is None else found.shape
        return [] if shape is None else [d if isinstance(d, int) else self.longest for d in shape]

    def longest_size(self, place: int) -> int:
        """Return the maximum size of any dimension of an input."""
        found = self.operand(place)
        return self.longest if found is None or found.shape is None else max(self.sizes(place), default=1)

    def count(self, place: int) -> int:
        """Return the maximum number of elements of an input."""
        found = self.operand(place)
        if found is None or found.shape is None:
            return self.longest**2
        return math.prod(self.sizes(place))


Rule = Callable[[Inputs], Range]


def _times(x: float, y: float) -> float:
    if x == 0 or y == 0:
        return 0  # also for an infinity, which means an unknown finite number
    product = x * y
    return product if not isinstance(product, int) or abs(product) < _MOST else math.copysign(_MOST, product)


def _product(a: Range, b: Range) -> Range:
    every = [_times(x, y) for x, y in _corners(a, b)]
    return Range(min(every), max(every))


def _mul(i: Inputs) -> Range:
    is_square = len(i.node.input) == 2 and i.node.input[0] == i.node.input[1]
    return _square(i.range(0)) if is_square else _product(i.range(0), i.range(1))


def _square(a: Range) -> Range:
    low, high = sorted((abs(a.low), abs(a.high)))
    return Range(0 if _has_zero(a) else _times(low, low), _times(high, high))


def _has_zero(a: Range) -> bool:
    return a.low <= 0 <= a.high


def _div(i: Inputs) -> Range:
    a, b = i.range(0), i.range(1)
    if _has_zero(b):
        largest = max(abs(a.low), abs(a.high))
        return Range(-largest, largest) if i.is_whole() else ANY
    if i.is_whole():
        every = [int(x / y) if abs(x) < 2**52 else _quotient(int(x), int(y)) for x, y in _corners(a, b)]
        return Range(min(every), max(every)).joined(Range(0, 0))
    divided = [0.0 if math.isinf(y) else x / y for x, y in _corners(a, b)]
    return Range(min(divided), max(divided))


def _quotient(x: int, y: int) -> int:
    whole = abs(x) // abs(y)
    return whole if (x < 0) == (y < 0) else -whole


def _corners(a: Range, b: Range) -> list[tuple[float, float]]:
    return [(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]


def _mod(i: Inputs) -> Range:
    a, b = i.range(0), i.range(1)
    most = max(abs(b.low), abs(b.high))
    if i.attribute("fmod", 0):
        most = min(most, max(abs(a.low), abs(a.high)))
        return Range(0 if a.low >= 0 else -most, most)
    if i.is_whole():
        return Range(0 if b.low > 0 else -most, 0 if b.high < 0 else most)
    return Range(-most, most)


def _abs(a: Range) -> Range:
    low, high = sorted((abs(a.low), abs(a.high)))
    return Range(0 if _has_zero(a) else low, high, a.infinite)


def exponent(i: Inputs) -> float | None:
    """Return the exponent of a Pow if it is a single constant number."""
    found = i.operand(1)
    if found is None or found.constant is None or found.constant.size != 1:
        return None
    return float(found.constant.reshape(-1)[0])


def _pow(i: Inputs) -> Range:
    a, power = i.range(0), exponent(i)
    if power is None:
        return Range(0, INF) if a.low >= 0 else ANY
    if power in (2.0, 4.0):
        square = _square(a)
        return square if power == 2 else _square(square)
    if power == 3:
        return _product(_square(a), a) if a.low >= 0 or a.high <= 0 else _product(_square(a).joined(Range(0, 0)), a)
    if power in (0.0, 1.0):
        return a if power else Range(1, 1)
    return Range(0, INF) if a.low >= 0 or power % 2 == 0 else ANY


def _e(x: float) -> float:
    return INF if x > EXP_HIGHEST else math.exp(x)


def _reciprocal(a: Range) -> Range:
    return ANY if _has_zero(a) else Range(1 / a.high if a.high else 0.0, 1 / a.low if a.low else 0.0)


def _rounded(a: Range) -> Range:
    return Range(a.low if math.isinf(a.low) else math.floor(a.low), a.high if math.isinf(a.high) else math.ceil(a.high))


def _limited(i: Inputs) -> Range:
    a = i.range(0)
    low, high = (i.attribute("min", None), i.attribute("max", None))
    lowest = i.range(1).low if i.operand(1) is not None else -INF if low is None else low
    highest = i.range(2).high if i.operand(2) is not None else INF if high is None else high
    return Range(min(max(a.low, lowest), highest), max(min(a.high, highest), lowest))


def _unary(rule: Callable[[Range], Range]) -> Rule:
    return lambda i: rule(i.range(0))


def _binary(rule: Callable[[Range, Range], Range]) -> Rule:
    return lambda i: rule(i.range(0), i.range(1))


def _combined(of: Callable[[Iterable[float]], float]) -> Rule:
    def rule(i: Inputs) -> Range:
        every = i.ranges()
        return Range(of(r.low for r in every), of(r.high for r in every), any(r.infinite for r in every))

    return rule


def _joined(start: int = 0, stop: int | None = None, *others: Range) -> Rule:
    def rule(i: Inputs) -> Range:
        every = [one.range for one in i.operands[start:stop] if one is not None]
        return every[0].joined(*every[1:], *others) if every else ANY

    return rule


def _scattered(i: Inputs) -> Range:
    return i.range(0).joined(i.range(2)) if i.attribute("reduction", b"none") == b"none" else ANY


def _constant_of_shape(i: Inputs) -> Range:
    value = i.attribute("value", None)
    if value is None:
        return Range(0, 0)
    from onnx import numpy_helper

    number = numpy_helper.to_array(value).reshape(-1)[:1].tolist()
    return Range(number[0], number[0]) if number and math.isfinite(number[0]) else Range(-INF, INF, True)


def _accumulated(i: Inputs) -> Range:
    a = i.range(0)
    if not i.is_whole():
        return Range(0 if a.low >= 0 else -INF, 0 if a.high <= 0 else INF)
    n = i.count(0) if i.node.op_type != "CumSum" else i.longest_size(0)
    return Range(min(a.low, _times(a.low, n)), max(a.high, _times(a.high, n)))


def _all_multiplied(i: Inputs) -> Range:
    a, n = i.range(0), i.longest_size(0)
    if not i.is_whole():
        return Range(0, INF) if a.low >= 0 else ANY
    most = max(abs(a.low), abs(a.high), 1)
    largest = most**n if n * math.log2(most + 1) < 200 else _MOST
    return Range(0 if a.low >= 0 else -largest, largest)


def _or(a: Range, b: Range) -> Range:
    high = max(a.high, b.high)
    return Range(0, high if math.isinf(high) else (1 << int(high).bit_length()) - 1) if _are_natural(a, b) else ANY


def _are_natural(a: Range, b: Range) -> bool:
    return a.low >= 0 and b.low >= 0


def _shifted(i: Inputs) -> Range:
    a, b = i.range(0), i.range(1)
    left = i.attribute("direction", b"") == b"LEFT"
    return Range(0, _times(a.high, 2 ** min(int(b.high), 64))) if left else Range(0, a.high)


def _fixed(low: float, high: float) -> Rule:
    return lambda i: Range(low, high)


KEEPING = (
    *("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Gather", "GatherND", "Split"),
    *("GatherElements", "Expand", "Tile", "DepthToSpace", "SpaceToDepth", "Compress", "ReverseSequence", "MaxPool"),
    *("GlobalMaxPool", "ReduceMax", "ReduceMin", "ReduceMean", "GlobalAveragePool", "TopK", "Unique", "StopGradient"),
)
TRUTHS = (*("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Xor", "Not", "IsNaN", "IsInf"),)
RULES: Mapping[str, Rule] = {
    **dict.fromkeys(KEEPING, _joined(0, 1)),
    **dict.fromkeys(("Trilu", "AveragePool", "Dropout", "CenterCropPad"), _joined(0, 1, Range(0, 0))),
    **dict.fromkeys(TRUTHS, _fixed(0, 1)),
    **dict.fromkeys(("Sigmoid", "Softmax", "HardSigmoid", "Hardmax"), _fixed(0, 1)),
    **dict.fromkeys(("Tanh", "Sin", "Cos", "Erf", "Sign", "Softsign"), _fixed(-1, 1)),
    **dict.fromkeys(("Floor", "Ceil", "Round"), _unary(_rounded)),
    **dict.fromkeys(("ReduceSumSquare", "ReduceL2", "ReduceL1", "Softplus"), _fixed(0, INF)),
    **dict.fromkeys(("ReduceSum", "CumSum"), _accumulated),
    **dict.fromkeys(("Concat", "Mean"), _joined()),
    **dict.fromkeys(("ScatterElements", "ScatterND", "Scatter"), _scattered),
    **dict.fromkeys(("ArgMax", "ArgMin", "NonZero", "Shape"), lambda i: Range(0, i.longest_size(0))),
    "Where": _joined(1),
    "Pad": lambda i: i.range(0).joined(i.range(2) if i.operand(2) is not None else Range(0, 0)),
    "Relu": _unary(lambda a: Range(max(a.low, 0), max(a.high, 0))),
    "Add": _binary(lambda a, b: Range(a.low + b.low, a.high + b.high, a.infinite or b.infinite)),
    "Sub": _binary(lambda a, b: Range(a.low - b.high, a.high - b.low, a.infinite or b.infinite)),
    "Mul": _mul,
    "Div": _div,
    "Mod": _mod,
    "Neg": _unary(lambda a: Range(-a.high, -a.low, a.infinite)),
    "Abs": _unary(_abs),
    "Pow": _pow,
    "Sqrt": _unary(lambda a: Range(math.sqrt(max(a.low, 0.0)), math.sqrt(max(a.high, 0.0)))),
    "Exp": _unary(lambda a: Range(_e(a.low), _e(a.high))),
    "Reciprocal": _unary(_reciprocal),
    "Clip": _limited,
    "Max": _combined(max),
    "Min": _combined(min),
    "Sum": _combined(sum),
    "ReduceProd": _all_multiplied,
    "Range": _binary(lambda a, b: a.joined(b)),
    "Size": lambda i: Range(0, i.count(0)),
    "ConstantOfShape": _constant_of_shape,
    "OneHot": _joined(2),
    "BitShift": _shifted,
    "Cosh": _fixed(1, INF),
    "BitwiseAnd": _binary(lambda a, b: Range(0, min(a.high, b.high)) if _are_natural(a, b) else ANY),
    "BitwiseOr": _binary(_or),
    "BitwiseXor": _binary(_or),
}
"""Operators with a known range of the first output (for TopK: of the values)."""
