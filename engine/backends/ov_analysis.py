"""Analysis of a model for OpenVINO: the guard under which its outputs are exact."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, inliner

from engine.backends.ov_guard import TABLE, UNLIMITED, Guard, Probe
from engine.onnx.range_rules import KEEPING, TRUTHS, WHOLE, Range
from engine.onnx.ranges import Assumed, Step, steps, whole_range
from engine.onnx.shapes import infer_shapes
from engine.onnx.table_indices import index_bounds
from engine.onnx.view import subgraphs, used_names
from tecoinfer_modelzoo.errors import ModelError
from tecoinfer_modelzoo.text import one_line

_INT32 = (-(2**31), 2**31 - 1)

_LEAST_LONGEST, _LEAST_WHOLE = 2**9, 2**8
"""Smallest limits of dimension sizes and of integers for which a model must be exact; otherwise it is refused."""

_STEPS_PER_OCTAVE = 4  # limits that are tried between two powers of two

_QUANTISED = frozenset(
    {
        *("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul"),
        *("ConvInteger", "MatMulInteger"),
    }
)
"""Operators whose integers represent real numbers: the trial measures their error."""

_PASSING_DOUBLES = frozenset(
    {
        *("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Gather", "Split", "Expand"),
        *("Concat", "Constant", "Shape", "Size"),
    }
)
"""Operators that return doubles unchanged."""

_WHOLE_INSIDE = frozenset(
    {
        *KEEPING,
        *TRUTHS,
        *("Add", "Sub", "Mul", "Neg", "Abs", "Sign", "Min", "Max", "Clip", "Cast", "Where", "Concat", "Shape", "Size"),
        *("Constant", "ConstantOfShape", "Range", "NonZero", "ArgMax", "ArgMin", "OneHot", "CumSum", "BitwiseNot"),
        *("BitwiseAnd", "BitwiseOr", "BitwiseXor", "ScatterElements", "ScatterND", "Scatter", "CenterCropPad"),
    }
) - {"ReduceMax", "ReduceMin", "ReduceMean", "MaxPool", "GlobalMaxPool", "GlobalAveragePool", "ReverseSequence", "Tile"}
"""Operators that OpenVINO computes in integers for integer inputs; others it may compute in float32."""

_FLOAT_BITS = 22  # integers below two to this power are exact in float32, including the fraction of a quotient

_ROUNDED = frozenset(("Pow", "ReduceMean", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "Mean", "MaxPool"))
"""Operators whose float32 result may lie just below an integer, and MaxPool, whose padding differs."""

_ORDER_OF_EQUALS = frozenset(("TopK",))
"""Float operators that return equal values in another order, which a trial on random numbers does not detect."""

_PEEPHOLES = 7  # the place of an LSTM's peephole weights among its inputs

_INFINITY_LOST = frozenset(("Cast", "CastLike"))

_MAY_FUSE = frozenset(
    {
        *("Sigmoid", "Tanh", "Elu", "Selu", "Gelu", "Softplus", "Mish", "HardSwish", "Swish", "LeakyRelu", "PRelu"),
        *("ThresholdedRelu", "Erf", "Round"),
    }
)
"""Operators that OpenVINO fuses into the one before: a test of a single operator does not show how that treats NaN."""

_FLOAT32_HIGHEST = 3.4028234e38
_WITHIN_FLOAT32 = frozenset((TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.BOOL))

_PARAMETERS = {
    "Slice": (1, 2, 3, 4),
    "Reshape": (1,),
    "Expand": (1,),
    "Tile": (1,),
    "Pad": (1, 3),
    "Resize": (1, 2, 3),
    "Squeeze": (1,),
    "Unsqueeze": (1,),
    "Split": (1,),
    "ReduceSum": (1,),
    "ReduceMean": (1,),
    "ReduceMax": (1,),
}
"""Inputs that are axes, shapes and positions; constant ones may have any value, such as the end of a Slice."""


@cache
def table() -> Mapping[str, Mapping[str, str]]:
    """Return the tested behaviour of operators: operator, type, description."""
    found: dict[str, dict[str, str]] = json.loads(TABLE.read_text(encoding="utf-8"))["operators"]
    return found


@cache
def loses_nan() -> frozenset[str]:
    """Return the operators that replace NaN by numbers."""
    return frozenset(json.loads(TABLE.read_text(encoding="utf-8"))["loses_nan"])


def analysed(model: ModelProto) -> Guard:
    """Return the guard of a model, with the widest limits under which OpenVINO computes the same as ONNX Runtime."""
    try:
        plain = inliner.inline_local_functions(model) if model.functions else model
        graph = infer_shapes(plain).graph
    except (ModelError, RuntimeError, ValueError) as error:
        return Guard(f"its types cannot be inferred ({one_line(error)})")
    try:
        return _widest(_Model(graph))
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:  # for nodes with invalid inputs
        return Guard(f"its value ranges cannot be computed ({one_line(error)})")


def _widest(seen: _Model) -> Guard:
    widest = seen.judged(UNLIMITED, UNLIMITED)
    if not widest.problem:
        return widest.guard
    least = seen.judged(_LEAST_LONGEST, _LEAST_WHOLE)
    if least.problem:
        return Guard(least.problem)
    longest = _largest(_LEAST_LONGEST, lambda size: not seen.judged(size, _LEAST_WHOLE).problem)
    most = _largest(_LEAST_WHOLE, lambda value: not seen.judged(longest, value).problem)
    return seen.judged(longest, most).guard


def _largest(start: int, fits: Callable[[int], bool]) -> int:
    """Return the largest limit that fits, of a geometric sequence up to the largest int32."""
    every: list[int] = []
    while not every or every[-1] < UNLIMITED:
        every.append(min(UNLIMITED, round(start * 2 ** (len(every) / _STEPS_PER_OCTAVE))))
    low, high = 0, len(every)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(every[middle]) else (low, middle)
    return every[low]


@dataclass(frozen=True, slots=True)
class _Judged:
    """Result for given limits: the first problem, or the guard."""

    problem: str
    guard: Guard


class _Model:
    """A model that is analysed under one pair of limits after another."""

    def __init__(self, graph: GraphProto) -> None:
        self.graph = graph
        constants = {tensor.name for tensor in graph.initializer}
        self.inputs = [info for info in graph.input if info.name not in constants]
        self.rows = index_bounds(graph)
        self.reaching = _reaching(graph)

    def judged(self, longest: int, most: int) -> _Judged:
        """Analyse the model with dimensions up to ``longest`` and integers from ``-most`` to ``most``."""
        bounds: dict[str, tuple[int, int]] = {}
        for info in self.inputs:
            kind = info.type.tensor_type.elem_type
            if kind in WHOLE:
                bounds[info.name] = self._bound(info.name, kind, most)
        assumed = Assumed({name: Range(*bound) for name, bound in bounds.items()}, longest, most)
        found = steps(self.graph, assumed)
        problem = next(filter(None, map(_problem, found)), "") or self._wrong_output(found)
        probes: list[Probe] = []
        for step in found:
            wanted = list(self._probes(step, most))
            if wanted and step.inner and not problem:
                problem = f"{_named(step.node)} in a body may return values that OpenVINO changes (NaN, large numbers)"
            probes += wanted
        needed = {name: b for name, b in bounds.items() if b != WHOLE[self._kind(name)]}
        return _Judged(problem, Guard("", needed, longest, tuple(dict.fromkeys(probes))))

    def _kind(self, name: str) -> int:
        return int(next(i.type.tensor_type.elem_type for i in self.inputs if i.name == name))

    def _bound(self, name: str, kind: int, most: int) -> tuple[int, int]:
        low, high = WHOLE[kind]
        rows = self.rows.get(name)
        if rows is not None:
            return max(low, -rows), min(high, rows - 1)
        return max(low, -most), min(high, most)

    def _probes(self, step: Step, most: int) -> Iterator[Probe]:
        if step.casts:
            low, high = whole_range(step.kinds[0]).low, whole_range(step.kinds[0]).high
            yield Probe(step.node.input[0], float(max(low, -most)), float(min(high, most)))
        if step.makes_nan:
            for name in step.node.output:
                if (name and name in self.reaching) or (name and step.inner and self.reaching):
                    yield Probe(name)

    def _wrong_output(self, found: Sequence[Step]) -> str:
        """Return why an output of the model would differ: a constant or an input that OpenVINO narrows."""
        wanted = {info.name for info in self.graph.output}
        given = {name for step in found if step.node.op_type == "Constant" for name in step.node.output}
        constants = given | {tensor.name for tensor in self.graph.initializer}
        for info in self.graph.output:
            if info.name in wanted & constants and info.type.tensor_type.elem_type in _narrowed():
                return f"output {info.name!r} is a constant of a type that OpenVINO narrows"
        return _double_outputs(self.graph, found)


def _reaching(graph: GraphProto) -> set[str]:
    """Return the names of the tensors whose NaN or infinity a later operator replaces by a number."""
    reached: set[str] = set()
    for node in reversed(graph.node):
        if _hides(node) or reached.intersection(node.output):
            reached.update(used_names(node))
    return reached


def _hides(node: NodeProto) -> bool:
    if node.domain not in ("", "ai.onnx"):
        return True  # unknown
    inner = any(_hides(one) for graph in subgraphs(node) for one in graph.node)
    return inner or node.op_type in loses_nan() | _INFINITY_LOST | _MAY_FUSE


def _named(node: NodeProto) -> str:
    return f"the {node.op_type} {node.name or ''.join(node.output[:1])!r}"


def _problem(step: Step) -> str:
    """Return why OpenVINO may compute other values for a node, or ""."""
    node = step.node
    operands = [one for one in step.given.operands if one is not None]
    kinds = {one.kind for one in operands} | set(step.kinds)
    op = node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"
    first = step.given.operand(0)
    if op == "DequantizeLinear" and first is not None and first.kind == TensorProto.INT32 and first.constant is None:
        return f"{_named(node)} reads int32, whose differences OpenVINO saturates"
    if op in _QUANTISED:
        return ""
    if op == "Tile" and (repeats := step.given.operand(1)) is not None and repeats.constant is None:
        return f"{_named(node)} has repeats that are not constant, which OpenVINO gets wrong"
    if op == "LSTM" and any(node.input[_PEEPHOLES:]):
        return f"{_named(node)} has peephole weights, which OpenVINO ignores"
    if any(name and not kind for name, kind in zip(node.output, step.kinds, strict=True)):
        return f"the output type of {_named(node)} is unknown"
    if TensorProto.DOUBLE in kinds:
        return _problem_of_doubles(step)
    if op in _ORDER_OF_EQUALS and len(node.output) > 1 and node.output[1]:
        return f"{_named(node)} returns equal values in another order"
    if not kinds & WHOLE.keys() or node.op_type in ("If", "Loop", "Scan"):
        return ""
    return _problem_of_whole(step, op)


def _problem_of_doubles(step: Step) -> str:
    node = step.node
    first = step.given.operand(0)
    if node.op_type in _PASSING_DOUBLES:
        return ""
    if node.op_type == "Cast" and first is not None and not first.range.infinite:
        if first.kind == TensorProto.DOUBLE and step.kinds[0] == TensorProto.FLOAT:
            if first.constant is None or first.range.within(-_FLOAT32_HIGHEST, _FLOAT32_HIGHEST):
                return ""  # rounded once, as ONNX Runtime does
        elif first.kind in _WITHIN_FLOAT32 or (first.kind in WHOLE and first.range.within(-(2**24), 2**24)):
            return ""
    return f"{_named(node)} computes in double, which OpenVINO narrows to float32"


def _double_outputs(graph: GraphProto, found: Sequence[Step]) -> str:
    """Return which output of type double does not fit float32, or ""."""
    exact: set[str] = set()
    for step in found:
        doubles = [one.name for one in step.given.operands if one is not None and one.kind == TensorProto.DOUBLE]
        if step.node.op_type == "Cast" or (doubles and exact.issuperset(doubles)):
            exact.update(step.node.output)
    for info in graph.output:
        if info.type.tensor_type.elem_type == TensorProto.DOUBLE and info.name not in exact:
            return f"output {info.name!r} is double, which OpenVINO narrows to float32"
    return ""


def _problem_of_whole(step: Step, op: str) -> str:
    node = step.node
    skipped = _PARAMETERS.get(node.op_type, ()) if not node.domain else ()
    for place, one in enumerate(step.given.operands):
        if one is None or one.kind not in WHOLE or (place in skipped and one.constant is not None):
            continue
        if one.kind in _narrowed() and not one.range.within(*_INT32):
            return f"{_named(node)} reads {one.name!r}, whose values may not fit int32, to which OpenVINO narrows them"
    data = step.given.operand(1 if node.op_type == "Where" else 0)
    kind = data.kind if data is not None else 0
    words = table().get(op, {}).get(_type_name(kind), "") if kind in WHOLE else "equal"
    if node.op_type in ("Constant", "ConstantOfShape", "Range"):
        words = "equal"
    if not words.startswith("equal"):
        return f"{_named(node)} may compute other values for {_type_name(kind)} on OpenVINO"
    if node.op_type in ("Div", "Mod") and kind in WHOLE and step.given.range(1).low <= 0 <= step.given.range(1).high:
        return f"{_named(node)} may divide by 0, which ends the process"
    if kind in WHOLE and node.op_type in _ROUNDED:
        return f"{_named(node)} computes {_type_name(kind)} in float32 on OpenVINO"
    limit = _limit(node.op_type, words) if kind in WHOLE else 0
    read = [] if not limit or data is None else [data.range]
    for found, made in zip(step.outputs, step.kinds, strict=True):
        if made not in WHOLE:
            continue
        allowed = WHOLE[made] if made not in _narrowed() else (max(_INT32[0], WHOLE[made][0]), _INT32[1])
        if not found.within(*allowed) and not (node.op_type == "Constant" and made in _narrowed()):
            return f"{_named(node)} may return values that do not fit {_type_name(made)} on OpenVINO"
        read += [found] if limit else []
    if limit and not all(one.within(-(2**limit), 2**limit) for one in read):
        return f"{_named(node)} may read values over 2**{limit}, which OpenVINO rounds"
    return ""


def _limit(op: str, words: str) -> int:
    """Return the power of two below which an operator's integers are exact; 0 if all are."""
    limits = [int(words.rpartition("**")[2])] if "**" in words else []
    if limits or op not in _WHOLE_INSIDE:
        limits.append(_FLOAT_BITS)
    return min(limits, default=0)


@cache
def _narrowed() -> frozenset[int]:
    return frozenset((TensorProto.INT64, TensorProto.UINT64, TensorProto.UINT32))


def _type_name(kind: int) -> str:
    return str(TensorProto.DataType.Name(kind)).lower()
