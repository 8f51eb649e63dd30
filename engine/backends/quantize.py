"""Post-training quantisation to int8 by ONNX Runtime's tools: float32 model and real samples in, QDQ model out.

Besides ``engine/backends/ort.py`` the only file that imports from onnxruntime, and only its quantisation tools.

Chosen by measurement (ResNet-50, batch 16, AVX-512 VNNI): unsigned activations with signed weights run 3.5 times as
fast as float32 on ONNX Runtime, signed activations no faster than float32; OpenVINO runs both alike. Weights use all 8
bits, per output channel. Ranges are the smallest and largest value seen: entropy and percentiles gave no better answers
on the zoo's models, and hold every activation in memory where these hold two numbers per tensor and call.
"""

from __future__ import annotations

import hashlib
import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from engine.base import Array, ModelError
from engine.text import one_line

if TYPE_CHECKING:
    from onnx import ModelProto

SETTINGS = "QDQ, per channel, uint8 activations, int8 weights, MinMax, 1"
"""What a quantised file depends on besides model, samples and packages; to be changed with what is below."""

OPERATORS = (
    *("Conv", "ConvTranspose", "Gemm", "MatMul"),
    *("Add", "Mul", "Clip", "Relu", "LeakyRelu"),
    *("AveragePool", "GlobalAveragePool", "MaxPool", "Resize", "Pad"),
    *("Concat", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"),
)
"""Operators computed in int8: those that gain by it, and those between them that only move values.

Softmax, normalisations and the like stay float32, as they lose accuracy and gain nothing.
"""

WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")

_OPSET, _MIN_OPSET = 17, 13
"""Scales per channel came with opset 13; older models are converted."""

_PROTOBUF_LIMIT = 2**31 - 2**24


def content_key(model_hash: str, samples: Sequence[Mapping[str, Array]]) -> str:
    """Return a hash, in hexadecimal, of everything the quantised file is made from."""
    import onnx
    import onnxruntime

    digest = hashlib.sha256(repr((model_hash, SETTINGS, OPERATORS, onnxruntime.__version__, onnx.__version__)).encode())
    for sample in samples:
        for name, array in sample.items():
            digest.update(repr((name, array.dtype.str, array.shape)).encode())
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def quantize(ckpt: Path, samples: Sequence[Mapping[str, Array]]) -> bytes:
    """Return a float32 model quantised to int8, as the content of an ONNX file; its inputs and outputs stay float32.

    Args:
        ckpt: the float32 model.
        samples: what calibration calls the model with: arrays by input name, of shapes the model takes.

    Raises:
        ModelError: the model has nothing to quantise, or ONNX Runtime's tools cannot do it.
    """
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    from engine.backends.ort import ORT_ERRORS
    from engine.onnx.load import load_model

    model = _loaded(ckpt)
    failures: tuple[type[Exception], ...] = (*ORT_ERRORS, ValueError, TypeError, RuntimeError, KeyError, IndexError)
    with tempfile.TemporaryDirectory(prefix="tecoinfer-int8-") as folder, _quiet():
        source, prepared, target = (str(Path(folder) / f"{name}.onnx") for name in ("source", "prepared", "int8"))
        Path(source).write_bytes(model.SerializeToString())
        del model
        try:
            # Folds constants and batch normalisation, which else would be quantised apart from its convolution.
            quant_pre_process(source, prepared, skip_symbolic_shape=True)
            _check(load_model(Path(prepared)), ckpt)
            quantize_static(
                prepared,
                target,
                _Reader(samples),
                quant_format=QuantFormat.QDQ,
                op_types_to_quantize=list(OPERATORS),
                per_channel=True,
                reduce_range=False,
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
                calibrate_method=CalibrationMethod.MinMax,
                extra_options={"MatMulConstBOnly": True},
            )
        except failures as error:
            reason = one_line(error)
            raise ModelError(f"{ckpt} cannot be quantised to int8: {reason}; use --dtype float32") from error
        return Path(target).read_bytes()


class _Reader:
    """What ONNX Runtime's tools read samples from (their ``CalibrationDataReader``, by shape)."""

    def __init__(self, samples: Sequence[Mapping[str, Array]]) -> None:
        self._samples = iter(samples)

    def get_next(self) -> Mapping[str, Array] | None:
        return next(self._samples, None)


def _loaded(ckpt: Path) -> ModelProto:
    import onnx

    from engine.onnx.load import load_model

    model = load_model(ckpt)
    if any(node.op_type in ("QuantizeLinear", "DequantizeLinear") for node in model.graph.node):
        raise ModelError(f"{ckpt} is quantised already; use --dtype float32, which runs it as it is")
    if sum(len(tensor.raw_data) for tensor in model.graph.initializer) > _PROTOBUF_LIMIT:
        raise ModelError(f"{ckpt} cannot be quantised to int8: it holds more than 2 GiB of weights")
    if next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx")) < _MIN_OPSET:
        try:
            return onnx.version_converter.convert_version(model, _OPSET)
        except (RuntimeError, onnx.version_converter.ConvertError) as error:
            reason = one_line(error)
            raise ModelError(
                f"{ckpt} cannot be quantised to int8: {reason}; export it with opset_version={_OPSET}"
            ) from error
    return model


def _check(model: ModelProto, ckpt: Path) -> None:
    """Refuse a model without weights that int8 could make faster."""
    weights = {tensor.name for tensor in model.graph.initializer}
    if not any(node.op_type in WEIGHTED and node.input[1] in weights for node in model.graph.node):
        raise ModelError(
            f"{ckpt} cannot be quantised to int8: it has no {', '.join(WEIGHTED[:-1])} or {WEIGHTED[-1]} with constant "
            "weights; use --dtype float32"
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the tools' advice to their own developers off the terminal; what fails is raised."""
    import onnxruntime

    root, nobody = logging.getLogger(), logging.NullHandler()
    root.addHandler(nobody)  # else their first message would set up logging for the whole process
    before = root.manager.disable
    logging.disable(logging.ERROR)
    onnxruntime.set_default_logger_severity(4)
    try:
        yield
    finally:
        onnxruntime.set_default_logger_severity(2)
        logging.disable(before)
        root.removeHandler(nobody)
