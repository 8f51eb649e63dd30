"""Operators of a PyTorch module, and whether they can be exported to ONNX."""

from __future__ import annotations

import io
import logging
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch

from engine import ModelError
from tecoinfer_modelzoo.text import shape_text
from utils.export.graphs import first_line


@dataclass(slots=True)
class TorchOperator:
    """One operator of a traced module.

    Attributes:
        name: such as ``aten.convolution.default``. dtypes, shapes: of its outputs, each once.
        modules: dotted names of the modules that use it.
        exportable: whether the exporter supports it; ``None`` if unknown.
    """

    name: str
    dtypes: list[str] = field(default_factory=list)
    shapes: list[str] = field(default_factory=list)
    modules: list[str] = field(default_factory=list)
    exportable: bool | None = None


def module_classes(model: torch.nn.Module) -> dict[str, list[str]]:
    """Return the dotted names by class name of all modules without children; a class of torch.nn, or a subclass with
    the same ``forward``, is named ``nn.Linear``, others by their class name.
    """
    found: dict[str, list[str]] = {}
    for name, module in model.named_modules():
        if not any(True for _ in module.children()):
            found.setdefault(_class_name(type(module)), []).append(name or "(itself)")
    return found


def _class_name(kind: type[torch.nn.Module]) -> str:
    for base in kind.__mro__[: kind.__mro__.index(torch.nn.Module)]:
        if getattr(torch.nn, base.__name__, None) is base and base.forward is kind.forward:
            return f"nn.{base.__name__}"
    return kind.__name__


def example(shapes: Mapping[str, Sequence[int]], dtypes: Mapping[str, str]) -> dict[str, torch.Tensor]:
    """Return a seeded tensor per shape: normally distributed floats, 0 or 1 for other dtypes (default: float32)."""
    generator = torch.Generator().manual_seed(0)
    found = {}
    for name, size in shapes.items():
        dtype: torch.dtype = getattr(torch, dtypes.get(name, "float32"))
        if dtype.is_floating_point:
            found[name] = torch.randn(*size, generator=generator).to(dtype)
        else:
            found[name] = torch.randint(0, 2, tuple(size), generator=generator).to(dtype)
    return found


def torch_operators(
    model: torch.nn.Module, args: Sequence[torch.Tensor], named: Mapping[str, torch.Tensor]
) -> list[TorchOperator]:
    """Trace a module and return its operators in the order of first use; raise ModelError if tracing fails."""
    with quiet():
        try:
            program = torch.export.export(model.eval(), tuple(args), dict(named)).run_decompositions()
        except Exception as error:  # the tracer raises any error of the module or of torch
            raise ModelError(f"torch.export cannot trace {type(model).__name__}: {tracing_reason(error)}") from error
    found: dict[str, TorchOperator] = {}
    for node in program.graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        registry = _registry()
        known = None if registry is None else bool(registry.is_registered(node.target))
        one = found.setdefault(str(node.target), TorchOperator(str(node.target), exportable=known))
        for tensor in _tensors(node.meta.get("val")):
            _add(one.dtypes, str(tensor.dtype).removeprefix("torch."))
            _add(one.shapes, shape_text(tensor.shape))
        stack = list(node.meta.get("nn_module_stack", {}).values())
        _add(one.modules, stack[-1][0] if stack and stack[-1][0] else "(itself)")
    return list(found.values())


def tracing_reason(error: BaseException) -> str:
    """Return why a module cannot be traced, in plain words for value-dependent branches."""
    if "See the stack trace" in str(error) and error.__cause__ is not None:
        return f"{first_line(error).partition(' : ')[0]}: {tracing_reason(error.__cause__)}"
    if "data-dependent" not in str(error):
        return f"{type(error).__name__}: {first_line(error)}"
    place = re.search(r'raised this error:\s+File "([^"]+)", line (\d+)', str(error))
    where = f" ({Path(place[1]).name}, line {place[2]})" if place else ""
    return (
        f"the control flow depends on values{where}; write such an if or while with torch.where or torch.cond, or "
        "move that part out of the model"
    )


def to_onnx(model: torch.nn.Module, args: Sequence[torch.Tensor], named: Mapping[str, torch.Tensor]) -> Any:
    """Return the module as an ``onnx.ModelProto`` in memory; raise ModelError if the export fails."""
    with quiet():
        try:
            program = torch.onnx.export(model.eval(), tuple(args), kwargs=dict(named), dynamo=True, verbose=False)
        except torch.onnx.OnnxExporterError as error:
            reason = first_line(error.__cause__ or error)
            raise ModelError(f"torch.onnx cannot export {type(model).__name__}: {reason}") from error
    assert program is not None  # noqa: S101 - without a file name
    return program.model_proto


def is_module(found: object) -> bool:
    """Return whether an object is a PyTorch module."""
    return isinstance(found, torch.nn.Module)


@cache
def _registry() -> Any:
    """Return the exporter's private registry of operators; ``None`` if torch has moved it."""
    try:
        from torch.onnx._internal.exporter._registration import ONNXRegistry
    except ImportError:
        return None
    return ONNXRegistry.from_torchlib()


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
def quiet() -> Iterator[None]:
    """Suppress the warnings, output and logs of torch's exporter."""
    level = logging.root.manager.disable
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(level)
