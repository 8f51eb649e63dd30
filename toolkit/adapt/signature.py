"""What an ONNX file tells about its model, as JSON values: inputs, outputs, size, and the ends of its graph."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine import ConfigError, ModelError
from tecoinfer_modelzoo.text import did_you_mean
from utils.export.onnx_source import open_dimensions, with_names
from utils.stored import PREPROCESS, ModelMetadata

if TYPE_CHECKING:
    from onnx import ModelProto

SIDE, LENGTH = 224, 64
"""Size of a dynamic dimension that nothing tells: of an image, and of anything else."""

_SIDES = (2, 3)


def signature_of(file: Path) -> dict[str, Any]:
    """Return inputs and outputs (name, shape with symbols, dtype), number of weights, operators, metadata keys.

    Raises ModelError if the file cannot be read.
    """
    from math import prod

    from engine.onnx import dims, load_model, metadata, output_tails, signature

    model = load_model(file)
    inputs, outputs, shapes = signature(model)
    tails = output_tails(file)
    texts = metadata(model)
    return {
        "inputs": [
            {"name": spec.name, "shape": list(shape), "dtype": str(spec.dtype)}
            for spec, shape in zip(inputs, shapes, strict=True)
        ],
        "outputs": [
            {
                "name": spec.name,
                "shape": list(dims(info)),
                "dtype": str(spec.dtype),
                "kind": tails[spec.name].kind if spec.name in tails else None,
            }
            for spec, info in zip(outputs, model.graph.output, strict=True)
        ],
        "weights": sum(prod(tensor.dims) for tensor in model.graph.initializer),
        "nodes": len(model.graph.node),
        "operators": sorted({node.op_type for node in model.graph.node}),
        "opset": max((one.version for one in model.opset_import if one.domain in ("", "ai.onnx")), default=0),
        "metadata": sorted(texts),
        "labels": len(ModelMetadata(texts, file).labels or ()),
    }


def described(tensor: Mapping[str, Any]) -> str:
    """Return an input or output in words: ``images`` batch x 3 x 64 x 64, float32."""
    sizes = " x ".join("?" if size is None else str(size) for size in tensor["shape"]) or "scalar"
    return f"`{tensor['name']}` ({sizes}, {tensor['dtype']})"


def usual_sizes(model: ModelProto, given: Mapping[str, int], file: Path) -> dict[str, int]:
    """Return a size for every dynamic dimension other than the batch: as given, as the metadata tell, else the usual.

    Raises ConfigError if a given name is not such a dimension.
    """
    from engine.onnx import metadata
    from utils.stored import NAMES

    named = with_names(model)
    found = open_dimensions(named)
    unknown = next((name for name in given if name not in found), None)
    if unknown is not None:
        has = f"it has: {', '.join(found)}" if found else "it has none besides the batch"
        raise ConfigError(
            f"--dim {unknown}: {file.name} has no dynamic dimension {unknown!r};{did_you_mean(unknown, found)} {has}"
        )
    ranks = {info.name: len(info.type.tensor_type.shape.dim) for info in named.graph.input}
    texts = metadata(model)
    stored = ModelMetadata(texts, file)
    image = stored.image.crop if PREPROCESS in texts else _ultralytics(stored) if NAMES in texts else (SIDE, SIDE)
    sizes = {}
    for name, (where, axis) in found.items():
        usual = image[_SIDES.index(axis)] if ranks[where] == 4 and axis in _SIDES else LENGTH
        sizes[name] = given.get(name, usual)
    return sizes


def _ultralytics(stored: ModelMetadata) -> tuple[int, int]:
    """Return ``imgsz`` of an export of Ultralytics, a list of height and width as text; else the usual size."""
    try:
        found = stored.json("imgsz")
    except ModelError:  # another program's key may hold anything
        return SIDE, SIDE
    sides = found if isinstance(found, list) else [found, found]
    whole = len(sides) == 2 and all(isinstance(one, int) and one > 0 for one in sides)
    return (sides[0], sides[1]) if whole else (SIDE, SIDE)
