"""ONNX Runtime: target ``onnx`` (the accuracy baseline) and the host compute behind the simulated card.

The only file that imports onnxruntime.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime as ort

from engine.base import Array, Engine, EngineError, EngineSpec, ModelError, TargetError, TensorSpec, usable_cores
from engine.host.cores import host_slots
from engine.onnx.functions import clashing, without_clashes
from engine.signature import NO_TENSOR, Dim, batch_axes, sizes_of, symbols_of
from tecoinfer_modelzoo import telemetry
from tecoinfer_modelzoo.process.native_calls import native
from tecoinfer_modelzoo.text import one_line

if TYPE_CHECKING:
    import onnx

CPU = ("CPUExecutionProvider",)
CUDA = ("CUDAExecutionProvider", "CPUExecutionProvider")

_DTYPES = {
    "tensor(float16)": np.float16,
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(int8)": np.int8,
    "tensor(int16)": np.int16,
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
    "tensor(uint8)": np.uint8,
    "tensor(uint16)": np.uint16,
    "tensor(uint32)": np.uint32,
    "tensor(uint64)": np.uint64,
    "tensor(bool)": np.bool_,
    "tensor(string)": np.object_,
}

# If onnxruntime was imported before the zoo, the environment variable came too late.
if not telemetry.allowed():
    ort.disable_telemetry_events()

# Errors are raised; ONNX Runtime's logger would repeat them on stderr.
ort.set_default_logger_severity(4)

# ONNX Runtime's exceptions have no common base class.
_state = ort.capi.onnxruntime_pybind11_state
ORT_ERRORS: tuple[type[Exception], ...] = tuple(
    getattr(_state, name)
    for name in (
        *("Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf", "NoSuchFile", "NoModel", "NotImplemented"),
        *("RuntimeException", "EPFail", "EngineError"),
    )
    if hasattr(_state, name)
)

WRONG_FUSIONS = (
    *("LayerNormFusion", "LayerNormFusionL1", "SimplifiedLayerNormFusion", "DivMulFusion", "Pad_Fusion"),
    "MatmulTransposeFusion",
)
"""Optimisations of ONNX Runtime (1.31.1) that change what a model computes, disabled in every session.

A layer norm written as single operators is fused by operator types alone: ``x - mean`` or ``mean - x``, any exponent,
and an epsilon that is not a float32 constant after its ``Add`` becomes 1e-5. ``1 / x * y`` becomes ``y / x`` for
integers too. ``Pad`` with 0 becomes the padding of a ``MaxPool``, which is minus infinity, and a padding as wide as the
kernel is then refused. ``Transpose`` fused into a ``MatMul`` of a float16 file (torchvision's ViT-B/16) leaves a graph
that ends the process with a segmentation fault in the next optimisation. Single operators such as
``LayerNormalization`` are as fast as before."""

_NO_SLOT = contextlib.nullcontext()

_CODE = re.compile(r"^ONNX Runtime .*\[ONNXRuntimeError\] : \d+ : \w+ : (Fatal error: )?")
"""Prefix of ONNX Runtime's messages, with the zoo's own."""

_NOT_TEXT = "names or texts in it are not UTF-8, so the file is damaged; export it again"


def _options(threads: int | None, profile_prefix: Path | str | None = None) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads or usable_cores()
    options.inter_op_num_threads = 1
    # Spinning workers would occupy the cores that decode the next batch.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 4  # errors are raised
    if profile_prefix is not None:
        options.enable_profiling, options.profile_file_prefix = True, str(profile_prefix)
    return options


_MANY_WEIGHTS = 2**24  # bytes of a model from which its large weights are handed over apart


class HostSession:
    """One ONNX Runtime session: a model loaded once, run from any number of threads.

    Args:
        model: path of an ONNX file, its bytes, or a loaded ``onnx.ModelProto``.
        threads: intra-op threads; ``None`` uses every core this process may use.
        providers: execution providers in order of preference.
        profile_prefix: path prefix of the files of ONNX Runtime's profiler, written by :meth:`end_profiling`; ``None``
            does not profile.
        weights: arrays for weights that the model declares external, by name; they are not copied.
        optimised: ``False`` runs every node as written.
        source: file that the model was made from, for messages.
    """

    def __init__(
        self,
        model: Path | str | bytes | onnx.ModelProto,
        threads: int | None = None,
        providers: Sequence[str] = CPU,
        profile_prefix: Path | str | None = None,
        weights: Mapping[str, Array] | None = None,
        optimised: bool = True,
        source: Path | None = None,
    ) -> None:
        self._source = "" if source is None else f"{source}: "
        if not isinstance(model, (str, Path, bytes)):
            model, weights = serialisable(model, weights or {})
        options = _options(threads, profile_prefix)
        if not optimised:
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        self._weights = {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in (weights or {}).items()}
        if self._weights:
            options.add_external_initializers(list(self._weights), list(self._weights.values()))
        self._session = _session(model, options, providers)
        try:
            self._take_signature()
        except UnicodeDecodeError as error:
            raise ModelError(_NOT_TEXT) from error
        self._one_thread = threads == 1
        self._run_options = ort.RunOptions()
        self._compute = native.marking(self._session.run)

    def _take_signature(self) -> None:
        self.providers: list[str] = self._session.get_providers()
        self.raw_shapes: list[list[Dim]] = [list(node.shape) for node in self._session.get_inputs()]
        axes = batch_axes(self.raw_shapes)
        self.inputs = [_tensor_spec(node, axis) for node, axis in zip(self._session.get_inputs(), axes, strict=True)]
        self.outputs = [_tensor_spec(node, 0) for node in self._session.get_outputs()]
        self.metadata: dict[str, str] = dict(self._session.get_modelmeta().custom_metadata_map)
        self._names = [spec.name for spec in self.inputs]
        self._outputs = [spec.name for spec in self.outputs]

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """Run the model on one array per input, in the model's order; raise EngineError if ONNX Runtime fails."""
        return self.run_named(dict(zip(self._names, arrays, strict=True)))

    def run_named(self, feed: dict[str, Array]) -> list[Array]:
        """Run the model on arrays by input name; raise EngineError if ONNX Runtime fails.

        A session of one thread computes in the calling thread, which takes one of the host's slots.
        """
        try:
            with host_slots().taken(urgent=True) if self._one_thread else _NO_SLOT:
                results: list[Array] = self._compute(self._outputs, feed, self._run_options)
        except ORT_ERRORS as error:
            raise EngineError(f"{self._source}ONNX Runtime failed while computing: {one_line(error)}") from error
        except UnicodeDecodeError as error:
            raise EngineError(
                f"{self._source}an output has texts that are not UTF-8 ({one_line(error)}); export the model again, "
                "with its strings in UTF-8"
            ) from error
        return results

    def run_into(self, arrays: Sequence[Array], results: Sequence[Array]) -> None:
        """Run the model on one contiguous array per input, into one of the right shape and dtype per output.

        A result may be the memory of an input that no node reads after the result is written. Raise EngineError if ONNX
        Runtime fails.
        """
        binding = self._session.io_binding()
        for bind, names, given in (
            (binding.bind_input, self._names, arrays),
            (binding.bind_output, self._outputs, results),
        ):
            for name, array in zip(names, given, strict=True):
                bind(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        try:
            with native:
                self._session.run_with_iobinding(binding, self._run_options)
        except ORT_ERRORS as error:
            raise EngineError(f"{self._source}ONNX Runtime failed while computing: {one_line(error)}") from error

    def cancel(self) -> None:
        """Stop running calls at the next node; they and all later calls raise."""
        self._run_options.terminate = True

    @property
    def session(self) -> ort.InferenceSession:
        """The ``onnxruntime.InferenceSession``."""
        return self._session

    def end_profiling(self) -> Path:
        """Stop the profiler, once; return the JSON file it wrote (Chrome trace, times in microseconds)."""
        return Path(self._session.end_profiling())


def _tensor_spec(node: Any, batch_axis: int | None) -> TensorSpec:
    if node.type not in _DTYPES:
        fix = "export it as float32 or float16" if node.type.startswith("tensor") else NO_TENSOR
        raise ModelError(f"{node.name!r} has type {node.type}, which numpy arrays cannot hold; {fix}")
    shape, symbols = sizes_of(node.shape), symbols_of(node.shape)
    return TensorSpec(node.name, np.dtype(_DTYPES[node.type]), shape, batch_axis, symbols)


def _session(
    model: Path | str | bytes | onnx.ModelProto, options: ort.SessionOptions, providers: Sequence[str]
) -> ort.InferenceSession:
    try:
        if isinstance(model, (str, Path, bytes)):
            safe = clashing(model)
            return _start(model, options, providers) if safe is None else _session_from_proto(safe, options, providers)
        return _session_from_proto(without_clashes(model), options, providers)
    except ORT_ERRORS as error:
        raise ModelError(f"ONNX Runtime {ort.__version__} cannot load the model: {one_line(error)}") from error
    except UnicodeDecodeError as error:  # in a message that quotes the model
        raise ModelError(_NOT_TEXT) from error


def _start(model: Path | str | bytes, options: ort.SessionOptions, providers: Sequence[str]) -> ort.InferenceSession:
    if not isinstance(model, bytes):
        try:
            str(model).encode()
        except UnicodeEncodeError as error:
            raise ModelError("ONNX Runtime cannot open a file whose name is not UTF-8; rename it") from error
    with native:
        return ort.InferenceSession(
            model if isinstance(model, bytes) else str(model),
            options,
            providers=list(providers),
            disabled_optimizers=list(WRONG_FUSIONS),
        )


def _session_from_proto(
    model: onnx.ModelProto, options: ort.SessionOptions, providers: Sequence[str]
) -> ort.InferenceSession:
    return _start(model.SerializeToString(), options, providers)


def serialisable(model: onnx.ModelProto, weights: Mapping[str, Array]) -> tuple[onnx.ModelProto, Mapping[str, Array]]:
    """Return a model without its large weights if they are many, and these; raise ModelError if it is still too large.

    Weights beside a model are copied once; in it, once more to be serialised and once more to be read.
    """
    from engine.onnx.large import arrays_of, fits_message, message_bytes, split_large_weights

    if fits_message(model) and message_bytes(model) <= _MANY_WEIGHTS:
        return model, weights
    light, apart = split_large_weights(model)
    if not fits_message(light):
        raise ModelError("the model without its weights is larger than 2 GB, which ONNX Runtime cannot open")
    return light, {**arrays_of({name: tensor for name, tensor in apart.items() if name not in weights}), **weights}


def open_session(path: Path, threads: int | None = None) -> HostSession:
    """Load a file; if ONNX Runtime refuses it, explain why or repair it.

    A valid file is loaded without importing ``onnx``, which takes longer than opening a small model.
    Raise ModelError if the file is missing, empty, damaged, or uses something this ONNX Runtime cannot run.
    """
    if not os.path.isfile(path) or not os.path.getsize(path):
        from engine.onnx.load import load_model

        load_model(path)  # raises with the reason
    try:
        session = HostSession(path, threads, source=path)
        if not session.outputs:
            raise ModelError("it has no outputs")
        return session
    except ModelError as refused:
        from engine.onnx.load import load_model

        model = load_model(path)  # raises with the reason, or repairs the order of the nodes
        try:
            return HostSession(model, threads, source=path)
        except ModelError:
            raise ModelError(f"{path}: {refused}") from refused


def refusal(model: onnx.ModelProto) -> str:
    """Return why the CPU provider cannot run a model, or "" if it can."""
    try:
        _session(model, _options(1), CPU)
    except ModelError as error:
        return _CODE.sub("", str(error))
    return ""


def cuda_session(path: Path | onnx.ModelProto) -> HostSession:
    """Open a model on ONNX Runtime's CUDA provider; raise TargetError if it is missing or could not start."""
    if CUDA[0] not in ort.get_available_providers():
        raise TargetError(f"onnxruntime {ort.__version__} has no CUDA provider")
    # Loads CUDA and cuDNN of PyPI packages, and prints what it cannot find.
    with contextlib.redirect_stdout(sys.stderr):
        ort.preload_dlls()
    session = HostSession(path, None, CUDA)
    if session.providers[0] != CUDA[0]:
        raise TargetError(
            "onnxruntime-gpu is installed but its CUDA provider could not start: no GPU, driver or CUDA libraries"
        )
    return session


class OnnxRuntimeEngine(Engine):
    """Target ``onnx``: the unchanged model on ONNX Runtime's CPU provider.

    This is the accuracy baseline, so passes of ``pass_path`` are not applied. ``dtype="float16"`` converts a float32
    model to float16; ONNX Runtime's CPU kernels then still compute in float32.
    """

    default_dtype = "float32"
    outputs_owned = inputs_untouched = concurrent_calls = True
    graph = "file"

    def __init__(self, spec: EngineSpec) -> None:
        super().__init__(spec)
        self.streams = min(spec.streams, usable_cores())
        threads = None if self.streams == 1 else usable_cores() // self.streams
        self._host = open_session(spec.ckpt, threads)
        if spec.dtype == "float16" and not self._takes_float16():
            from engine.onnx.float16 import to_float16
            from engine.onnx.load import load_model

            try:
                self._host = HostSession(to_float16(load_model(spec.ckpt)), threads, source=spec.ckpt)
            except ModelError as error:
                raise ModelError(f"{spec.ckpt}: as float16: {error}; use --dtype float32") from error
        elif self._takes_float16():
            self.dtype = "float16"  # of the model, for any requested dtype
        self.bind(self._host.inputs, self._host.outputs, self._host.raw_shapes)
        self.metadata = self._host.metadata
        self._names = [tensor.name for tensor in self.inputs]
        self.session = self._host.session

    def _takes_float16(self) -> bool:
        """Return whether every float input is float16; a model without float inputs may hold float32 weights."""
        floats = [tensor.dtype for tensor in self._host.inputs if tensor.dtype.kind == "f"]
        return bool(floats) and all(dtype == np.float16 for dtype in floats)

    def describe(self) -> str:
        """Return the runtime, its version, device and dtype."""
        return f"ONNX Runtime {ort.__version__} CPU, {self.dtype}"

    def infer(self, inputs: list[Array]) -> list[Array]:
        """Run any batch: whole if the model's batch is dynamic, else in pieces of the static batch."""
        known, size = self.batching, self.batching.static_batch
        if size is None or inputs[known.lead].shape[known.batch_axis] == size:
            return self._host.run_named(dict(zip(self._names, inputs, strict=True)))
        return known.in_pieces(self, self._run_shard, inputs, size)

    def _run_shard(self, arrays: list[Array]) -> list[Array]:
        return self._host.run_named(dict(zip(self._names, arrays, strict=True)))

    def cancel(self) -> None:
        """Stop running calls at their next node; after the engine was released, do nothing."""
        host = getattr(self, "_host", None)
        if host is not None:
            host.cancel()

    def close(self) -> None:
        """Free the session and its weights."""
        self.session = None
        del self._host


__all__ = ["CPU", "CUDA", "HostSession", "OnnxRuntimeEngine", "cuda_session", "open_session", "refusal"]
