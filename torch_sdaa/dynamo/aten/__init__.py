"""ATen operators in ONNX, one module per family; importing this package fills the table."""

from torch_sdaa.dynamo.aten import (
    batch_norm,
    convolutions,
    indexing,
    matrices,
    normalisation,
    pointwise,
    pooling,
    reductions,
    shapes,
    strided,
)
from torch_sdaa.dynamo.aten.table import TABLE, Meta

__all__ = [
    "TABLE",
    "Meta",
    "batch_norm",
    "convolutions",
    "indexing",
    "matrices",
    "normalisation",
    "pointwise",
    "pooling",
    "reductions",
    "shapes",
    "strided",
]
