"""Post-training quantisation to int8 by ONNX Runtime's tools: float32 model and real samples in, QDQ model out.

Besides ``engine/backends/ort.py`` the only file that imports onnxruntime, and only its quantisation tools.

The settings were chosen by measurement (ResNet-50, batch 16, AVX-512 VNNI): unsigned activations with signed weights
run 3.5 times as fast as float32 on ONNX Runtime, signed activations no faster than float32; OpenVINO runs both equally
fast. Weights use all 8 bits, per output channel, or 7 if sums of their products would saturate
(:func:`reduced_range`). Ranges are the smallest and largest value seen: entropy and percentiles were no more accurate
on the zoo's models, and keep every activation in memory instead of two numbers per tensor and call.
"""

from __future__ import annotations

import hashlib
import logging
import platform
import tempfile
import traceback
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from engine.backends import smooth as smoothing
from engine.base import Array, EngineError, ModelError
from engine.host.cores import processor_line
from engine.measures import HALF_MAX
from tecoinfer_modelzoo.text import one_line

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

SETTINGS = "QDQ, per channel, uint8 activations, int8 weights, MinMax, 4"
"""Settings that determine a quantised file besides model, samples and packages; keep in step with the code below."""

OPERATORS = (
    *("Conv", "ConvTranspose", "Gemm", "MatMul"),
    *("Add", "Mul", "Clip", "Relu", "LeakyRelu"),
    *("AveragePool", "GlobalAveragePool", "MaxPool", "Resize", "Pad"),
    *("Concat", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"),
)
"""Operators computed in int8: those that become faster, and those between them that only move values.

Softmax, normalisations and the like stay float32: they would lose accuracy without becoming faster."""

WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")


@dataclass(frozen=True, slots=True)
class Recipe:
    """One way to quantise a model; outputs of convolutions are always int8, which makes them faster."""

    name: str  # in reports
    operators: tuple[str, ...] = (*WEIGHTED, "Relu", "Clip")  # in int8; MatMul and Gemm only with constant weights
    outputs: bool = False  # whether outputs of MatMul and Gemm are int8 as well
    smooth: bool = False  # whether outliers are moved into the weights first (:mod:`engine.backends.smooth`)


FULL = Recipe("full", OPERATORS, outputs=True)
WEIGHTS = Recipe("weights")
SMOOTH = Recipe("smooth", smooth=True)

CONVOLUTIONS, TRANSFORMERS = (FULL, WEIGHTS, SMOOTH), (SMOOTH, WEIGHTS)
"""Recipes for both kinds of models, the usual one first and fallbacks after it.

``full`` is the fastest for convolutions. For transformers it is too inaccurate (MiniLM: a cosine of 0.64), since
attention and sums before a normalisation have ranges too wide for 256 levels."""

INT8_RECIPES = {recipe.name: recipe for recipe in CONVOLUTIONS}  # all recipes by name
_LEVELS = 255  # steps of 8 bits between the smallest and the largest value
_OPSET, _MIN_OPSET = 17, 13  # scales per channel need opset 13; older models are converted
_PROTOBUF_LIMIT = 2**31 - 2**24


def reduced_range() -> bool:
    """Return whether weights get 7 bits: on an x86 processor without VNNI.

    There the sum of two products of bytes is kept in 16 bits, which -128 to 127 times 0 to 255 saturates (digits CNN on
    AVX2, recipe full: a cosine of 0.989 on ONNX Runtime and 0.998 on OpenVINO; 0.9999 on both with 7 bits, as fast).
    """
    flags = processor_line("flags").split()
    return platform.machine() in ("x86_64", "AMD64") and {"avx512_vnni", "avx_vnni"}.isdisjoint(flags)


def content_key(model_hash: str, samples: Sequence[Mapping[str, Array]], recipe: Recipe = FULL) -> str:
    """Return a hexadecimal hash of everything the quantised file is made from."""
    import onnx
    import onnxruntime

    facts = (model_hash, SETTINGS, reduced_range(), smoothing.ALPHA, recipe, onnxruntime.__version__, onnx.__version__)
    digest = hashlib.sha256(repr(facts).encode())
    for sample in samples:
        for name, array in sample.items():
            digest.update(repr((name, array.dtype.str, array.shape)).encode())
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def recipes(ckpt: Path) -> tuple[Recipe, ...]:
    """Return the recipes to try, in order; raise ModelError if the file cannot be read."""
    from engine.onnx.load import load_model

    model = load_model(ckpt)
    constants = _constants(model)
    attends = any(  # a model that multiplies activations uses attention
        node.op_type in ("Attention", "MultiHeadAttention")
        or (node.op_type == "MatMul" and not constants.intersection(node.input))
        for node in model.graph.node
    )
    return TRANSFORMERS if attends else CONVOLUTIONS


def quantize(ckpt: Path, samples: Sequence[Mapping[str, Array]], recipe: Recipe = FULL) -> bytes:
    """Return a float32 model quantised to int8, as the content of an ONNX file; its inputs and outputs stay float32.

    Args:
        ckpt: the float32 model. samples: inputs of the calibration calls: arrays by input name. recipe: how to
            quantise.

    Raises:
        ModelError: the model has nothing to quantise, or ONNX Runtime's tools fail.
        EngineError: temporary files cannot be written.
    """
    from onnxruntime.quantization.shape_inference import quant_pre_process

    from engine.backends.ort import ORT_ERRORS
    from engine.onnx.load import load_model, save_model

    model = _loaded(ckpt)
    failures: tuple[type[Exception], ...] = (*ORT_ERRORS, ValueError, TypeError, RuntimeError, KeyError, IndexError)
    with room_for(ckpt), tempfile.TemporaryDirectory(prefix="tecoinfer-int8-") as name, _quiet():
        folder = Path(name)
        save_model(model, folder / "source.onnx")
        del model
        try:
            # Folds constants and batch normalisation, which would otherwise be quantised separately.
            quant_pre_process(str(folder / "source.onnx"), str(folder / "prepared.onnx"), skip_symbolic_shape=True)
            prepared = load_model(folder / "prepared.onnx")
            _check(prepared, ckpt)
            _name_nodes(prepared)
            _flatten_biases(prepared)
            if recipe.smooth:
                smoothing.smooth(prepared, _largest(prepared, samples))
            return _static(prepared, samples, recipe, folder)
        except ModelError:
            raise  # names what cannot be quantised
        except failures as error:
            reason = one_line(error) if isinstance(error, ORT_ERRORS) else _place(error)
            raise ModelError(f"{ckpt} cannot be quantised to int8: {reason}; use --dtype float32") from error


def _place(error: BaseException) -> str:
    """Return where ONNX Runtime's tools failed: the text of such an error is about their variables, not the model."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" in {frames[-1].name}" if frames else ""
    return f"ONNX Runtime's quantisation tools fail at its graph ({type(error).__name__}{where})"


@contextmanager
def room_for(ckpt: Path) -> Iterator[None]:
    """Convert errors of temporary files into one line; raise EngineError if the temporary folder is missing or full."""
    try:
        yield
    except OSError as error:
        raise EngineError(
            f"{ckpt}: it cannot be quantised: the temporary folder is not writable "
            f"({error.strerror or error}); free some space, or set TMPDIR"
        ) from error


def _static(model: ModelProto, samples: Sequence[Mapping[str, Array]], recipe: Recipe, folder: Path) -> bytes:
    """Do the same as ``quantize_static``, but skip nodes by the ranges that calibration found."""
    import onnx
    from onnxruntime.quantization import CalibrationMethod, QuantType
    from onnxruntime.quantization.calibrate import create_calibrator
    from onnxruntime.quantization.qdq_quantizer import QDQQuantizer
    from onnxruntime.quantization.quant_utils import load_model_with_shape_infer

    path = folder / "named.onnx"
    onnx.save(model, str(path))
    del model
    operators = list(recipe.operators)
    augmented = str(folder / "augmented.onnx")
    calibrator = create_calibrator(
        path, operators, augmented_model_path=augmented, calibrate_method=CalibrationMethod.MinMax
    )
    calibrator.collect_data(_Reader(samples))
    ranges = calibrator.compute_data()
    del calibrator
    inferred = load_model_with_shape_infer(path)
    magnitudes = {name: float(np.abs(values.range_value).max()) for name, values in ranges.items()}
    quantizer = QDQQuantizer(
        inferred,
        per_channel=True,
        reduce_range=reduced_range(),
        weight_qType=QuantType.QInt8,
        activation_qType=QuantType.QUInt8,
        tensors_range=ranges,
        nodes_to_quantize=[],
        nodes_to_exclude=_left_out(inferred, magnitudes),
        op_types_to_quantize=operators,
        extra_options={"OpTypesToExcludeOutputQuantization": [] if recipe.outputs else ["MatMul", "Gemm"]},
    )
    quantizer.quantize_model()
    quantizer.model.save_model_to_file(str(folder / "int8.onnx"), False)
    return (folder / "int8.onnx").read_bytes()


def _left_out(model: ModelProto, magnitudes: Mapping[str, float]) -> list[str]:
    """Return the nodes that stay float32 in every recipe: products of activations, readers of masks, the last nodes.

    ``magnitudes``: the largest of each tensor during calibration. The -3.4e38 or -1e4 of a mask would set the range of
    all tensors it touches, with no levels left for other values.
    """
    from onnx import numpy_helper

    known = {t.name: np.abs(numpy_helper.to_array(t)).max(initial=0) for t in model.graph.initializer}
    sizes = {**magnitudes, **{name: float(size) for name, size in known.items() if size.dtype.kind == "f"}}
    products = [
        node
        for node in model.graph.node
        if node.op_type in ("MatMul", "Gemm") and (node.input[1] not in known or _has_rows_of_biases(node, model))
    ]
    found = {node.name for node in (*products, *(one for one in model.graph.node if _meets_a_mask(one, sizes)))}
    return sorted(found.union(_ends(model, known)))


def _ends(model: ModelProto, constants: Container[str]) -> list[str]:
    """Return the nodes that no layer with weights follows: they compute the answer from the last layers' outputs.

    A detector adds distances to image positions there: 256 levels of an image's width are coarser than its boxes, and
    little time would be saved, since the expensive layers come before.
    """
    found, heavy = list[str](), set[str]()
    for node in reversed(model.graph.node):
        is_layer = node.op_type in WEIGHTED and node.input[1] in constants
        if heavy.isdisjoint(node.output) and not is_layer:
            found.append(node.name)
        else:
            heavy.update(node.input)
    return found


def _meets_a_mask(node: NodeProto, sizes: Mapping[str, float]) -> bool:
    """Return whether a tensor exceeds float16's range, or one input of a sum is less than a level of the other one."""
    found = [sizes[name] for name in (*node.input, *node.output) if name in sizes]
    if any(size > HALF_MAX for size in found):
        return True
    summed = [sizes[name] for name in node.input if name in sizes] if node.op_type == "Add" else []
    return len(summed) == 2 and 0 < _LEVELS * min(summed) < max(summed)


def _largest(model: ModelProto, samples: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """Return the largest magnitude of each channel of the activations to smooth."""
    from onnx import ValueInfoProto

    from engine.backends.ort import HostSession
    from engine.onnx.large import copy_model

    names = list(smoothing.readers(model))
    shown = copy_model(model)
    have = {output.name for output in model.graph.output} | {given.name for given in model.graph.input}
    shown.graph.output.extend(ValueInfoProto(name=name) for name in names if name not in have)
    session = HostSession(shown)
    places = [output.name for output in session.outputs]
    found: dict[str, Array] = {}
    for sample in samples:
        values = {**sample, **dict(zip(places, session.run_named(dict(sample)), strict=True))}
        for name in names:
            highest = np.abs(values[name]).reshape(-1, values[name].shape[-1]).max(axis=0, initial=0)
            found[name] = np.maximum(found.get(name, 0), highest)
    return found


def _name_nodes(model: ModelProto) -> None:
    """Give every node a unique name, by which it can be excluded."""
    taken: set[str] = set()
    for index, node in enumerate(model.graph.node):
        if not node.name or node.name in taken:
            node.name = f"{node.op_type}/{index}"
        taken.add(node.name)


def _flatten_biases(model: ModelProto) -> None:
    """Give every Gemm with constant weights a bias of one number per column, in place.

    ONNX also allows a bias of 1 x N and a single number, at which ONNX Runtime's tools fail.
    """
    from onnx import numpy_helper

    known = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type != "Gemm" or len(node.input) < 3 or not {node.input[1], node.input[2]} <= known.keys():
            continue
        bias = numpy_helper.to_array(known[node.input[2]])
        columns = known[node.input[1]].dims[0 if _is_transposed(node) else 1]
        if bias.shape != (columns,) and bias.size in (1, columns):
            name = f"{node.input[2]}@{node.name}"
            flat = np.broadcast_to(bias.reshape(-1), (columns,))
            model.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(flat), name))
            node.input[2] = name


def _is_transposed(node: NodeProto) -> bool:
    return any(attribute.name == "transB" and attribute.i for attribute in node.attribute)


def _has_rows_of_biases(node: NodeProto, model: ModelProto) -> bool:
    """Return whether the constant bias of a Gemm has several rows, at which ONNX Runtime's tools fail."""
    if node.op_type != "Gemm" or len(node.input) < 3:
        return False
    bias = next((tensor for tensor in model.graph.initializer if tensor.name == node.input[2]), None)
    return bias is not None and len(bias.dims) == 2 and bias.dims[0] > 1


def _constants(model: ModelProto) -> set[str]:
    """Return the names of tensors that are constant, as far as the file shows."""
    found = {tensor.name for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant" or (node.input and found.issuperset(node.input)):
            found.update(node.output)
    return found


class _Reader:
    """Source of samples for ONNX Runtime's tools (the interface of ``CalibrationDataReader``)."""

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
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), None)
    if opset is None:
        raise ModelError(
            f"{ckpt} cannot be quantised to int8: it has no opset of ONNX's own operators; export it again"
        )
    if opset < _MIN_OPSET:
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
    """Suppress the tools' log messages; errors are raised."""
    import onnxruntime

    root, handler = logging.getLogger(), logging.NullHandler()
    root.addHandler(handler)  # or their first message would configure logging for the whole process
    before = root.manager.disable
    logging.disable(logging.ERROR)
    onnxruntime.set_default_logger_severity(4)
    try:
        yield
    finally:
        onnxruntime.set_default_logger_severity(2)
        logging.disable(before)
        root.removeHandler(handler)
