"""Options of pass files: a graph optimization, and parts of the model that stay float32.

A pass file is any Python file; the names that it may define are the fields of :class:`PassOptions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.base import PassError
from engine.spec import find_pass
from tecoinfer_modelzoo.source_file import import_file
from tecoinfer_modelzoo.text import shown_value, typed_reason

if TYPE_CHECKING:
    import onnx

FLOAT32_OPS: Mapping[str, str] = {
    "CumSum": "running sums exceed 2048, the limit of consecutive integers in float16; no float16 form before opset 14",
    "DequantizeLinear": "scales are float32 before opset 19",
    "DynamicQuantizeLinear": "input and scale are float32 only",
    "GridSample": "the grid contains positions; 11 bits are inexact for images wider than about 1000 pixels",
    "MaxRoiPool": "box corners are pixel positions; float16 represents integers exactly only up to 2048",
    "NonMaxSuppression": "boxes and scores are float32 only",
    "QuantizeLinear": "scales are float32 before opset 19",
    "Range": "positions; no float16 form before opset 27",
    "Resize": "scales and roi are positions, and `scales` is float32 only",
    "RoiAlign": "box corners are pixel positions; float16 represents integers exactly only up to 2048",
    "Upsample": "`scales` is float32 only",
}
"""Operators that stay float32 unless ``convert_all``, and the reasons; operators of ``ai.onnx.ml`` do as well."""

NORMALISATION_OPS = frozenset(
    (
        *("GroupNormalization", "InstanceNormalization", "LayerNormalization", "LpNormalization", "LRN"),
        *("MeanVarianceNormalization", "ReduceL2", "ReduceSumSquare", "RMSNormalization"),
        *("SimplifiedLayerNormalization", "SkipLayerNormalization"),
    )
)
"""Operators that square activations and overflow float16 first (maximum 65504, so for inputs from 256 on)."""


@dataclass(frozen=True)
class PassOptions:
    """Names that a pass file may define; other names are ignored.

    Attributes:
        use_passes: takes the model and returns the optimized one; ``None`` keeps the graph.
        need_convert: ``False`` keeps all nodes and inputs in their dtype if float16 is requested.
        skip_ops: operator types or node names that stay float32.
        skip_input_name: graph inputs that keep their dtype.
        convert_all: ``True`` also converts the operators of :data:`FLOAT32_OPS`.
        convert_judge: called with a node; ``False`` keeps it float32, ``True`` applies the other rules.
        normalized: ``True`` if inputs of normalization operators are in range, so that these are converted;
            ``False`` keeps :data:`NORMALISATION_OPS` in float32, because their squares overflow first.
        layout: data layout that the pass produces; one with rates in the card description.
        path: the pass file, for messages; ``None`` for options created in code.
    """

    use_passes: Callable[[onnx.ModelProto], onnx.ModelProto] | None = None
    need_convert: bool = True
    skip_ops: frozenset[str] = frozenset()
    skip_input_name: frozenset[str] = frozenset()
    convert_all: bool = False
    convert_judge: Callable[[onnx.NodeProto], bool] | None = None
    normalized: bool = True
    layout: str = "plain"
    path: Path | None = None

    @classmethod
    def load(cls, path: Path | None) -> PassOptions:
        """Read a pass file, given by any name that :func:`engine.spec.find_pass` accepts.

        ``None`` gives the defaults: no optimization, all convertible operators are converted.
        Raise PassError if the file is missing, cannot be imported, or defines a value of the wrong type.
        """
        path = find_pass(path)
        if path is None:
            return cls()
        found = vars(_import(path))
        names = [field.name for field in fields(cls) if field.name != "path" and field.name in found]
        return cls(**{name: _checked(path, name, found[name]) for name in names}, path=path)

    def keeps_float32(self, node: onnx.NodeProto) -> bool:
        """Return whether a node stays float32 in float16 storage; raise PassError if ``convert_judge`` fails."""
        if not self.need_convert or node.op_type in self.skip_ops or node.name in self.skip_ops:
            return True
        if not self.normalized and node.op_type in NORMALISATION_OPS:
            return True
        if not self.convert_all and (node.op_type in FLOAT32_OPS or node.domain == "ai.onnx.ml"):
            return True
        return not self._judge(node)

    def _judge(self, node: onnx.NodeProto) -> bool:
        if self.convert_judge is None:
            return True
        where = f"{self.path or 'pass'}: convert_judge, node {node.name!r} ({node.op_type})"
        try:
            verdict = self.convert_judge(node)
        except Exception as error:
            raise PassError(f"{where} failed: {short_reason(error)}; correct it, or remove convert_judge") from error
        if not isinstance(verdict, bool):
            raise PassError(f"{where} returned {shown_value(verdict)}; return True (convert) or False (keep float32)")
        return verdict


def short_reason(error: BaseException) -> str:
    """Return an exception's type and the first 300 characters of its text on one line."""
    return typed_reason(error, 300)


def _import(path: Path) -> Any:
    """Import a pass file under a unique name, so that files with the same name do not conflict."""
    if path.suffix != ".py":
        raise PassError(f"pass file {path} is not a Python file; rename it to end in .py")
    try:
        return import_file(path, f"_tecoinfer_pass_{sha256(str(path.resolve()).encode()).hexdigest()[:16]}")
    except (Exception, SystemExit) as error:
        line = f" line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        reason = f"cannot be imported: {short_reason(error)}; correct the file"
        raise PassError(f"pass file {path}{line} {reason}") from error


def _checked(path: Path, name: str, value: Any) -> Any:
    """Return a validated value of a pass file."""
    given = f"pass file {path}: {name} = {shown_value(value)}"
    if name in {"skip_ops", "skip_input_name"}:
        return _names(given, value)
    if name in {"use_passes", "convert_judge"}:
        if value is None or callable(value):
            return value
        raise PassError(f"{given} is not a function; write `def {name}(...)` or remove it")
    if name == "layout":
        if isinstance(value, str):
            return value
        raise PassError(f"{given} must be the name of a layout, such as 'plain'")
    if not isinstance(value, bool):
        raise PassError(f"{given} must be True or False")
    return value


def _names(given: str, value: Any) -> frozenset[str]:
    if value is None:
        return frozenset()
    if isinstance(value, str):
        return frozenset({value})
    if isinstance(value, (list, tuple, set, frozenset)) and all(isinstance(item, str) for item in value):
        return frozenset(value)
    raise PassError(f'{given} must be a list of names, such as ["Softmax"], or None')
