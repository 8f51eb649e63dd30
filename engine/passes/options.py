"""What a pass file says: an optimisation of the graph, and which parts of the model stay float32.

A pass file is a Python file anywhere on the disk; the names it may define are the fields of :class:`PassOptions`.
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
    "CumSum": "a running sum soon passes 2048, float16's last whole number in a row; no float16 form before opset 14",
    "DequantizeLinear": "scales are float32 before opset 19",
    "DynamicQuantizeLinear": "input and scale are float32 only",
    "GridSample": "the grid holds positions; 11 bits miss the pixel in pictures wider than about 1000",
    "MaxRoiPool": "box corners are pixel positions; float16 holds whole numbers exactly only up to 2048",
    "NonMaxSuppression": "boxes and scores are float32 only",
    "QuantizeLinear": "scales are float32 before opset 19",
    "Range": "a list of positions; no float16 form before opset 27",
    "Resize": "scales and roi are positions, and `scales` is float32 only",
    "RoiAlign": "box corners are pixel positions; float16 holds whole numbers exactly only up to 2048",
    "Upsample": "`scales` is float32 only",
}
"""Operators that stay float32 unless ``convert_all``, and why; those of ``ai.onnx.ml`` (trees, scalers) do too."""

NORMALISATION_OPS = frozenset(
    {
        "GroupNormalization",
        "InstanceNormalization",
        "LayerNormalization",
        "LpNormalization",
        "LRN",
        "MeanVarianceNormalization",
        "ReduceL2",
        "ReduceSumSquare",
        "RMSNormalization",
        "SimplifiedLayerNormalization",
        "SkipLayerNormalization",
    }
)
"""Operators that square activations: the first to overflow float16 (largest value 65504, so inputs from 256 up)."""


@dataclass(frozen=True)
class PassOptions:
    """The names a pass file may define; every other name in it is its own business.

    Attributes:
        use_passes: takes the model and returns the optimised one; ``None`` leaves the graph alone.
        need_convert: ``False`` leaves every node and input in its own dtype when float16 is asked for.
        skip_ops: operator types or node names that stay float32.
        skip_input_name: graph inputs that keep their dtype.
        convert_all: ``True`` also converts the operators of :data:`FLOAT32_OPS`.
        convert_judge: called with a node; ``False`` keeps that node float32, ``True`` leaves it to the other rules.
        normalized: ``True`` says that what enters normalisation operators is in range, so these are converted like any
            other; ``False`` keeps :data:`NORMALISATION_OPS` in float32, since their squares overflow first.
        layout: name of the data layout the pass brings about, one the card's description has rates for.
        path: the pass file, for messages; ``None`` for options made in code.
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
        """Read a pass file, by any name :func:`engine.spec.find_pass` takes.

        ``None`` gives the defaults: no optimisation, everything convertible is converted.

        Raises:
            PassError: the file is missing, cannot be imported, or gives a name a value of the wrong type.
        """
        path = find_pass(path)
        if path is None:
            return cls()
        found = vars(_import(path))
        names = [field.name for field in fields(cls) if field.name != "path" and field.name in found]
        return cls(**{name: _checked(path, name, found[name]) for name in names}, path=path)

    def keeps_float32(self, node: onnx.NodeProto) -> bool:
        """Say whether a node stays float32 when the model is converted to float16 storage.

        Raises:
            PassError: ``convert_judge`` failed or did not return a bool.
        """
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
    """Run a pass file as a module under a name of its own, so that two files called alike do not meet."""
    if path.suffix != ".py":
        raise PassError(f"pass file {path} is not a Python file; give it the ending .py")
    try:
        return import_file(path, f"_tecoinfer_pass_{sha256(str(path.resolve()).encode()).hexdigest()[:16]}")
    except (Exception, SystemExit) as error:
        line = f" line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise PassError(
            f"pass file {path}{line} cannot be imported: {short_reason(error)}; correct the file"
        ) from error


def _checked(path: Path, name: str, value: Any) -> Any:
    """Return a pass file's value in the field's own type."""
    if name in {"skip_ops", "skip_input_name"}:
        return _names(path, name, value)
    if name in {"use_passes", "convert_judge"}:
        if value is None or callable(value):
            return value
        raise PassError(
            f"pass file {path}: {name} = {shown_value(value)} is not a function; write `def {name}(...)` or remove it"
        )
    if name == "layout":
        if isinstance(value, str):
            return value
        raise PassError(
            f"pass file {path}: layout = {shown_value(value)} must be the name of a layout, such as 'plain'"
        )
    if not isinstance(value, bool):
        raise PassError(f"pass file {path}: {name} = {shown_value(value)} must be True or False")
    return value


def _names(path: Path, name: str, value: Any) -> frozenset[str]:
    if value is None:
        return frozenset()
    if isinstance(value, str):
        return frozenset({value})
    if isinstance(value, (list, tuple, set, frozenset)) and all(isinstance(item, str) for item in value):
        return frozenset(value)
    raise PassError(
        f'pass file {path}: {name} = {shown_value(value)} must be a list of names, such as ["Softmax"], or None'
    )
