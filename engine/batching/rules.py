"""Rules of all supported operators, and the inputs that are parameters rather than data."""

from __future__ import annotations

from engine.batching import control, elementwise, layers, movement, picking
from engine.batching.elementwise import Rule


def _each(names: str, rule: Rule, domain: str = "") -> dict[tuple[str, str], Rule]:
    return {(domain, name): rule for name in names.split()}


_ELEMENTWISE = """
Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast Ceil Celu Clip Cos
Cosh Div Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Less
LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal Relu Round ScaledTanh Selu Shrink Sigmoid Sign
Sin Sinh Softplus Softsign Sqrt Sub Sum Swish Tan Tanh ThresholdedRelu Where Xor
"""

_REDUCTIONS = ["L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"]

_LEADING = """
Conv ConvInteger ConvTranspose DepthToSpace GroupNormalization InstanceNormalization LRN QLinearConv SpaceToDepth
"""
"""Operators on (batch, channels, ...) or (batch, ...) whose other inputs are weights, scales or similar."""

_TABLE_ROWS = """
FeatureVectorizer LinearClassifier LinearRegressor Normalizer SVMClassifier SVMRegressor Scaler TreeEnsemble
TreeEnsembleClassifier TreeEnsembleRegressor Imputer
"""

RULES: dict[tuple[str, str], Rule] = {
    **_each(_ELEMENTWISE, elementwise.broadcast),
    **{("", f"Reduce{name}"): elementwise.reduce for name in _REDUCTIONS},
    **_each(_LEADING, layers.leading()),
    **_each("Col2Im STFT", layers.leading_any_rank),
    **_each("AveragePool GlobalAveragePool GlobalLpPool GlobalMaxPool LpPool MaxPool", layers.pool),
    **_each(_TABLE_ROWS, layers.table_rows, "ai.onnx.ml"),
    **_each("Binarizer LabelEncoder", elementwise.same, "ai.onnx.ml"),
    **_each("BiasGelu FastGelu Gelu QuickGelu", elementwise.broadcast, "com.microsoft"),
    **_each("ArgMax ArgMin", elementwise.arg_reduce),
    **_each("CumProd CumSum", elementwise.cumulate),
    **_each("DequantizeLinear QuantizeLinear", elementwise.quantize),
    **_each("GRU LSTM RNN", layers.recurrent),
    **_each("Hardmax LogSoftmax Softmax", elementwise.along(-1, old=1)),
    **_each("LayerNormalization RMSNormalization", elementwise.layer_norm),
    **_each("MaxRoiPool RoiAlign", layers.roi_align),
    **_each("Resize Upsample", layers.resize),
    **_each("Scatter ScatterElements", picking.scatter_elements),
    ("com.microsoft", "SkipLayerNormalization"): elementwise.skip_layer_norm,
    ("", "Attention"): layers.attention,
    ("", "BatchNormalization"): layers.batch_norm,
    ("", "CastLike"): elementwise.same,
    ("", "Compress"): layers.certain("selects elements by a list over the whole batch"),
    ("", "Concat"): movement.concat,
    ("", "ConstantOfShape"): movement.constant_of_shape,
    ("", "Dropout"): elementwise.dropout,
    ("", "DynamicQuantizeLinear"): layers.certain("computes one scale for the whole batch"),
    ("", "Einsum"): elementwise.einsum,
    ("", "Expand"): movement.expand,
    ("", "EyeLike"): layers.certain("creates rows by their position in the batch"),
    ("", "Flatten"): movement.flatten,
    ("", "Gather"): picking.gather,
    ("", "GatherElements"): picking.gather_elements,
    ("", "GatherND"): picking.gather_nd,
    ("", "Gemm"): elementwise.gemm,
    ("", "GridSample"): layers.grid_sample,
    ("", "If"): control.if_,
    ("", "Loop"): control.loop,
    ("", "LpNormalization"): elementwise.along(-1),
    ("", "MatMul"): elementwise.matmul,
    ("", "MatMulInteger"): elementwise.matmul_integer,
    ("", "MeanVarianceNormalization"): elementwise.mean_variance,
    ("", "NonMaxSuppression"): layers.certain("returns boxes of all samples in one list"),
    ("", "NonZero"): layers.certain("returns positions of all samples in one list"),
    ("", "OneHot"): picking.one_hot,
    ("", "Pad"): movement.pad,
    ("", "QLinearMatMul"): elementwise.qlinear_matmul,
    ("", "Range"): movement.range_,
    ("", "Reshape"): movement.reshape,
    ("", "ReverseSequence"): picking.reverse_sequence,
    ("", "RotaryEmbedding"): layers.rotary,
    ("", "Scan"): control.scan,
    ("", "ScatterND"): picking.scatter_nd,
    ("", "Slice"): movement.slice_,
    ("", "Split"): movement.split,
    ("", "Squeeze"): movement.squeeze,
    ("", "Tile"): movement.tile,
    ("", "TopK"): elementwise.top_k,
    ("", "Transpose"): movement.transpose,
    ("", "Trilu"): elementwise.matrices,
    ("", "Unique"): layers.certain("compares elements across the whole batch"),
    ("", "Unsqueeze"): movement.unsqueeze,
}

PARAMETERS: dict[str, tuple[int, ...]] = {
    **{f"Reduce{name}": (1,) for name in _REDUCTIONS},
    **dict.fromkeys(("CumProd", "CumSum", "Expand", "Reshape", "Split", "Squeeze"), (1,)),
    **dict.fromkeys(("Tile", "TopK", "Trilu", "Unsqueeze", "Upsample"), (1,)),
    **dict.fromkeys(("Pad", "Resize"), (1, 2, 3)),
    "ConstantOfShape": (0,),
    "Dropout": (1, 2),
    "OneHot": (1, 2),
    "Range": (0, 1, 2),
    "Slice": (1, 2, 3, 4),
}
"""Inputs that are parameters of an operator, and must not depend on the samples."""

SIZED = frozenset(["ConstantOfShape", "Expand", "Range", "Reshape", "Resize", "Slice", "Split", "Tile"])
"""Operators whose parameters may contain the number of samples: their rules check every element."""
