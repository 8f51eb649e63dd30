"""ATen's operators in ONNX, one file a family; what they put into the table is there once this is imported."""

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
