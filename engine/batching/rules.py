"""Rules of all supported operators, and the inputs that are parameters rather than data."""

from __future__ import annotations

from engine.batching import control, elementwise, layers, movement, picking
from engine.batching.elementwise import Rule


def _names(text: str) -> list[str]:
    return text.split()


_ELEMENTWISE = _names("""
Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast Ceil Celu Clip Cos
Cosh Div Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Less
LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal Relu Round ScaledTanh Selu Shrink Sigmoid Sign
Sin Sinh Softplus Softsign Sqrt Sub Sum Swish Tan Tanh ThresholdedRelu Where Xor
""")

_REDUCTIONS = _names("L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare")

_LEADING = _names("""
Conv ConvInteger ConvTranspose DepthToSpace GroupNormalization InstanceNormalization LRN QLinearConv SpaceToDepth
""")
"""Operators on (batch, channels, ...) or (batch, ...) whose other inputs are weights, scales or similar."""

_LEADING_ANY_RANK = _names("Col2Im STFT")
_POOLS = _names("AveragePool GlobalAveragePool GlobalLpPool GlobalMaxPool LpPool MaxPool")

_TABLE_ROWS = _names("""
FeatureVectorizer LinearClassifier LinearRegressor Normalizer SVMClassifier SVMRegressor Scaler TreeEnsemble
TreeEnsembleClassifier TreeEnsembleRegressor Imputer
""")

RANDOM = frozenset(_names("Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike"))
"""Operators whose result differs between calls."""

RULES: dict[tuple[str, str], Rule] = {
    **{("", name): elementwise.broadcast for name in _ELEMENTWISE},
    **{("", f"Reduce{name}"): elementwise.reduce for name in _REDUCTIONS},
    **{("", name): layers.leading() for name in _LEADING},
    **{("", name): layers.leading_any_rank for name in _LEADING_ANY_RANK},
    **{("", name): layers.pool for name in _POOLS},
    **{("ai.onnx.ml", name): layers.table_rows for name in _TABLE_ROWS},
    **{("ai.onnx.ml", name): elementwise.same for name in ("Binarizer", "LabelEncoder")},
    **{("com.microsoft", name): elementwise.broadcast for name in ("BiasGelu", "FastGelu", "Gelu", "QuickGelu")},
    ("com.microsoft", "SkipLayerNormalization"): elementwise.skip_layer_norm,
    ("", "ArgMax"): elementwise.arg_reduce,
    ("", "ArgMin"): elementwise.arg_reduce,
    ("", "Attention"): layers.attention,
    ("", "BatchNormalization"): layers.batch_norm,
    ("", "CastLike"): elementwise.same,
    ("", "Compress"): layers.certain("selects elements by a list over the whole batch"),
    ("", "Concat"): movement.concat,
    ("", "ConstantOfShape"): movement.constant_of_shape,
    ("", "CumProd"): elementwise.cumulate,
    ("", "CumSum"): elementwise.cumulate,
    ("", "DequantizeLinear"): elementwise.quantize,
    ("", "Dropout"): elementwise.dropout,
    ("", "DynamicQuantizeLinear"): layers.certain("computes one scale for the whole batch"),
    ("", "Einsum"): elementwise.einsum,
    ("", "Expand"): movement.expand,
    ("", "EyeLike"): layers.certain("creates rows by their position in the batch"),
    ("", "Flatten"): movement.flatten,
    ("", "GRU"): layers.recurrent,
    ("", "Gather"): picking.gather,
    ("", "GatherElements"): picking.gather_elements,
    ("", "GatherND"): picking.gather_nd,
    ("", "Gemm"): elementwise.gemm,
    ("", "GridSample"): layers.grid_sample,
    ("", "Hardmax"): elementwise.along(-1, old=1),
    ("", "If"): control.if_,
    ("", "LSTM"): layers.recurrent,
    ("", "LayerNormalization"): elementwise.layer_norm,
    ("", "LogSoftmax"): elementwise.along(-1, old=1),
    ("", "Loop"): control.loop,
    ("", "LpNormalization"): elementwise.along(-1),
    ("", "MatMul"): elementwise.matmul,
    ("", "MatMulInteger"): elementwise.matmul_integer,
    ("", "MaxRoiPool"): layers.roi_align,
    ("", "MeanVarianceNormalization"): elementwise.mean_variance,
    ("", "NonMaxSuppression"): layers.certain("returns boxes of all samples in one list"),
    ("", "NonZero"): layers.certain("returns positions of all samples in one list"),
    ("", "OneHot"): picking.one_hot,
    ("", "Pad"): movement.pad,
    ("", "QLinearMatMul"): elementwise.qlinear_matmul,
    ("", "QuantizeLinear"): elementwise.quantize,
    ("", "RMSNormalization"): elementwise.layer_norm,
    ("", "RNN"): layers.recurrent,
    ("", "Range"): movement.range_,
    ("", "Reshape"): movement.reshape,
    ("", "Resize"): layers.resize,
    ("", "ReverseSequence"): picking.reverse_sequence,
    ("", "RoiAlign"): layers.roi_align,
    ("", "RotaryEmbedding"): layers.rotary,
    ("", "Scan"): control.scan,
    ("", "Scatter"): picking.scatter_elements,
    ("", "ScatterElements"): picking.scatter_elements,
    ("", "ScatterND"): picking.scatter_nd,
    ("", "Slice"): movement.slice_,
    ("", "Softmax"): elementwise.along(-1, old=1),
    ("", "Split"): movement.split,
    ("", "Squeeze"): movement.squeeze,
    ("", "Tile"): movement.tile,
    ("", "TopK"): elementwise.top_k,
    ("", "Transpose"): movement.transpose,
    ("", "Trilu"): elementwise.matrices,
    ("", "Unique"): layers.certain("compares elements across the whole batch"),
    ("", "Unsqueeze"): movement.unsqueeze,
    ("", "Upsample"): layers.resize,
}

_REDUCED = {f"Reduce{name}": (1,) for name in _REDUCTIONS}

PARAMETERS: dict[str, tuple[int, ...]] = {
    **_REDUCED,
    "ConstantOfShape": (0,),
    "CumProd": (1,),
    "CumSum": (1,),
    "Dropout": (1, 2),
    "Expand": (1,),
    "OneHot": (1, 2),
    "Pad": (1, 2, 3),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Trilu": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
}
"""Inputs that are parameters of an operator, and must not depend on the samples."""

SIZED = frozenset(_names("ConstantOfShape Expand Range Reshape Resize Slice Split Tile"))
"""Operators whose parameters may contain the number of samples: their rules check every element."""
