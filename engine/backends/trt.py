"""TensorRT: plans built from models, and plans run, for target ``cuda``; needs an NVIDIA GPU.

The only file that imports tensorrt and polygraphy, and only inside its functions.
"""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from engine.backends.trt_plan import Shapes
from engine.base import Array, EngineError, ModelError, TargetError, TensorSpec
from engine.signature import Dim
from tecoinfer_modelzoo import install_command
from tecoinfer_modelzoo.text import one_line

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["Session", "TensorRT"]

Feed: TypeAlias = dict[str, Array]  # arrays by tensor name

Signature: TypeAlias = tuple[list[TensorSpec], list[TensorSpec], list[list[Dim]], Shapes]
"""Inputs, outputs, input shapes with symbols, and the profile."""


@dataclass(frozen=True)
class Session:
    """A loaded plan: compute, free, and read the plan's signature."""

    run: Callable[[Feed], Feed]
    close: Callable[[], None]
    signature: Callable[[], Signature]


class TensorRT:
    """TensorRT on GPU ``device``: build and run plans.

    Raise TargetError if the NVIDIA driver or the GPU is missing, or TensorRT is older than 10.
    """

    def __init__(self, device: int) -> None:
        self.gpu = _gpu_name(device)
        import tensorrt
        from polygraphy.logger import G_LOGGER

        self.version: str = tensorrt.__version__
        if int(self.version.partition(".")[0]) < 10:
            raise TargetError(
                f"TensorRT {self.version} is too old for target 'cuda', which needs 10 or later; "
                f"run: {install_command('tensorrt')}"
            )
        G_LOGGER.module_severity = G_LOGGER.ERROR  # progress lines would go to the standard output
        self._device = device

    def build(self, model: ModelProto, shapes: Shapes) -> bytes:
        """Build a strongly typed plan (tensors keep their precision); raise ModelError if TensorRT cannot."""
        import tensorrt
        from polygraphy.backend.trt import CreateConfig, Profile, engine_bytes_from_network, network_from_onnx_path
        from polygraphy.exception import PolygraphyException

        from engine.onnx.load import save_model

        self._select()
        profile = Profile()
        for name, (smallest, typical, largest) in shapes.items():
            profile.add(name, min=tuple(smallest), opt=tuple(typical), max=tuple(largest))
        # Later versions without this flag type every network strongly.
        strongly_typed = hasattr(tensorrt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED")
        with tempfile.TemporaryDirectory(prefix="tecoinfer-") as folder:
            path = Path(folder) / "model.onnx"
            save_model(model, path)
            try:
                network = network_from_onnx_path(str(path), strongly_typed=strongly_typed)
                config = CreateConfig(profiles=[profile] if shapes else None)
                return bytes(engine_bytes_from_network(network, config))
            except (PolygraphyException, RuntimeError) as error:
                raise ModelError(f"TensorRT {self.version} cannot build the model: {one_line(error)}") from error

    def open(self, plan: bytes) -> Session:
        """Load a plan; raise ModelError if this TensorRT cannot load the plan."""
        from polygraphy.backend.trt import TrtRunner, engine_from_bytes
        from polygraphy.exception import PolygraphyException

        self._select()
        try:
            engine = engine_from_bytes(plan)
            runner = TrtRunner(engine)
            runner.activate()
        except (PolygraphyException, RuntimeError) as error:
            raise ModelError(f"TensorRT {self.version} cannot load the plan: {one_line(error)}; rebuild it") from error

        def run(feed: Feed) -> Feed:
            self._select()
            try:
                results = runner.infer({k: np.ascontiguousarray(v) for k, v in feed.items()}, check_inputs=False)
            except (PolygraphyException, RuntimeError) as error:
                raise EngineError(f"TensorRT failed while computing: {one_line(error)}") from error
            return {name: np.array(value) for name, value in results.items()}  # the runner reuses its buffers

        return Session(run, runner.deactivate, lambda: _engine_signature(engine))

    def _select(self) -> None:
        """Make the GPU current; CUDA stores that per thread."""
        from polygraphy import cuda

        cuda.wrapper().check(cuda.wrapper().handle.cudaSetDevice(ctypes.c_int(self._device)))


def _gpu_name(device: int) -> str:
    """Return a GPU's name from the driver; raise TargetError if the driver or the GPU is missing."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise TargetError(
            "target 'cuda': TensorRT is installed, but this machine has no NVIDIA driver (libcuda.so.1); "
            "install the driver, or use target 'onnx'"
        ) from error
    handle, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    status = (
        driver.cuInit(0)
        or driver.cuDeviceGet(ctypes.byref(handle), device)
        or driver.cuDeviceGetName(name, len(name), handle)
    )
    if status:
        raise TargetError(f"target 'cuda': the NVIDIA driver has no GPU {device} (CUDA error {status}); check rank")
    return name.value.decode()


def _engine_signature(engine: Any) -> Signature:
    """Read inputs, outputs, input shapes and profile from a plan without a record."""
    import tensorrt

    inputs: list[TensorSpec] = []
    outputs: list[TensorSpec] = []
    shapes: Shapes = {}
    for name in (engine.get_tensor_name(i) for i in range(engine.num_io_tensors)):
        dims = list(engine.get_tensor_shape(name))
        is_input = engine.get_tensor_mode(name) == tensorrt.TensorIOMode.INPUT
        if is_input and -1 in dims:
            shapes[name] = [list(shape) for shape in engine.get_tensor_profile_shape(name, 0)]
            dims = [low if low == high else -1 for low, _, high in zip(*shapes[name], strict=True)]
        shape = tuple(None if d == -1 else d for d in dims)
        tensor = TensorSpec(name, np.dtype(tensorrt.nptype(engine.get_tensor_dtype(name))), shape)
        (inputs if is_input else outputs).append(tensor)
    return inputs, outputs, [list(tensor.shape) for tensor in inputs], shapes
