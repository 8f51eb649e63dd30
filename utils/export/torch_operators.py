"""The operators of a torch module before anything is exported: what it asks for, and whether it can become ONNX."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from engine import ModelError
from utils.export.onnx_files import first_line


@dataclass(slots=True)
class TorchOperator:
    """One operator of a traced module.

    Attributes:
        name: such as ``aten.convolution.default``. dtypes, shapes: of what it writes, each once.
        modules: dotted names of the modules that use it.
        exportable: whether the exporter knows how to write it; ``None`` where that cannot be told.
    """

    name: str
    dtypes: list[str] = field(default_factory=list)
    shapes: list[str] = field(default_factory=list)
    modules: list[str] = field(default_factory=list)
    exportable: bool | None = None


def module_classes(model: torch.nn.Module) -> dict[str, list[str]]:
    """Return class name -> dotted names, for every module that has no children; needs no input."""
    found: dict[str, list[str]] = {}
    for name, module in model.named_modules():
        if not any(True for _ in module.children()):
            found.setdefault(type(module).__name__, []).append(name or "(itself)")
    return found


def example(shapes: Sequence[Sequence[int]]) -> tuple[torch.Tensor, ...]:
    """Return one float32 tensor per shape, the same ones every time."""
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(*shape, generator=generator) for shape in shapes)


def torch_operators(model: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> list[TorchOperator]:
    """Trace a module and return its operators, in the order of first use.

    Raises:
        ModelError: torch.export cannot trace it.
    """
    with _quiet():
        try:
            program = torch.export.export(model.eval(), tuple(inputs)).run_decompositions()
        except Exception as error:  # the tracer raises whatever the module, or any layer of torch, raises
            raise ModelError(f"torch.export cannot trace {type(model).__name__}: {first_line(error)}") from error
    found: dict[str, TorchOperator] = {}
    for node in program.graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        one = found.setdefault(str(node.target), TorchOperator(str(node.target), exportable=_known(node.target)))
        for tensor in _tensors(node.meta.get("val")):
            _add(one.dtypes, str(tensor.dtype).removeprefix("torch."))
            _add(one.shapes, "x".join(map(str, tensor.shape)) or "scalar")
        stack = list(node.meta.get("nn_module_stack", {}).values())
        _add(one.modules, stack[-1][0] if stack and stack[-1][0] else "(itself)")
    return list(found.values())


def to_onnx(model: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> Any:
    """Return the module as an ``onnx.ModelProto``, written nowhere.

    Raises:
        ModelError: the exporter refuses it.
    """
    with _quiet():
        try:
            program = torch.onnx.export(model.eval(), tuple(inputs), dynamo=True, verbose=False)
        except torch.onnx.OnnxExporterError as error:
            reason = first_line(error.__cause__ or error)
            raise ModelError(f"torch.onnx cannot export {type(model).__name__}: {reason}") from error
    assert program is not None  # noqa: S101 - it is, without a file name
    return program.model_proto


def is_module(found: object) -> bool:
    """Say whether something is a torch module."""
    return isinstance(found, torch.nn.Module)


def _known(target: Any) -> bool | None:
    """Ask the exporter's registry, which torch keeps to itself: where it has moved, nothing is told."""
    try:
        from torch.onnx._internal.exporter._registration import ONNXRegistry
    except ImportError:
        return None
    registry = _registries.setdefault("torchlib", None) or ONNXRegistry.from_torchlib()
    _registries["torchlib"] = registry
    return bool(registry.is_registered(target))


_registries: dict[str, Any] = {}


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors(one)


def _add(to: list[str], word: str) -> None:
    if word not in to:
        to.append(word)


@contextmanager
def _quiet() -> Iterator[None]:
    """Leave out what torch's exporter warns of about itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
