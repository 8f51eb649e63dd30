"""An engine that computes with the PyTorch module that an ONNX file was exported from.

An example's ``eval_pytorch.py`` evaluates with it, which gives the metric of the source framework on the data of the
example: ``accuracy.reference`` in ``model.yaml``. Data, preprocessing, postprocessing and metric are those of
``example_valid.py``; names, shapes and metadata are those of the ONNX file, whose weights are not used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch

from engine import Array, Engine, EngineError, EngineSpec, ModelError, register
from engine.onnx import load_model, metadata, signature

TARGET = "pytorch"
"""Name of the target in the process that calls :func:`pytorch_target`."""


class TorchEngine(Engine):
    """Calls a module with one tensor per input of the ONNX file, in its order; float32, on the CPU.

    Attributes:
        make: returns the module with its weights; called once per engine.

    Raises:
        ModelError: the file has float16 inputs; the module computes in float32.
    """

    make: ClassVar[Callable[[], torch.nn.Module]]
    dtypes = ("float32",)

    def __init__(self, spec: EngineSpec) -> None:
        super().__init__(spec)
        model = load_model(spec.ckpt)
        inputs, outputs, shapes = signature(model)
        if any(one.dtype == "float16" for one in inputs):
            raise ModelError(
                f"{spec.ckpt}: has float16 inputs, and the PyTorch module takes float32; use the float32 file"
            )
        self.bind(inputs, outputs, shapes)
        self.metadata = metadata(model)
        self._module = type(self).make().eval()

    def infer(self, inputs: list[Array]) -> list[Array]:
        """Return the module's outputs; raise EngineError if their number differs from that of the ONNX file."""
        with torch.no_grad():
            found = self._module(*map(torch.from_numpy, inputs))
        tensors = [found] if isinstance(found, torch.Tensor) else list(found)
        if len(tensors) != len(self.outputs):
            raise EngineError(
                f"{self.spec.ckpt}: has {len(self.outputs)} outputs, and the PyTorch module returns {len(tensors)}; "
                "use the file that was exported from it"
            )
        return [tensor.numpy() for tensor in tensors]

    def describe(self) -> str:
        """Return the framework, its version, device and dtype."""
        return f"PyTorch {torch.__version__}, {self.dtype}"


def pytorch_target(module: Callable[[], torch.nn.Module]) -> str:
    """Register a target of this process that computes with a module, and return its name.

    Args:
        module: returns the module with its weights.
    """
    register(TARGET, type("ModuleEngine", (TorchEngine,), {"make": staticmethod(module)}))
    return TARGET
