"""``torch.compile`` for a script: the backend of the device, and answers about devices with CUDA's names."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch

from torch_sdaa import dynamo
from torch_sdaa.loading import late_imports
from torch_sdaa.patches import device_interface
from torch_sdaa.sdaa.devices import is_available
from torch_sdaa.transfer.words import COUNTS, Changes

_FILTER = "guard_filter_fn"
"""Option of ``torch.compile`` itself, not of inductor."""


def begin(changes: Changes) -> None:
    """Change the default backend, and dynamo's answers, now or when it is imported; drop earlier compilations."""
    changes.set(torch, "compile", _for_the_card(torch.compile))
    changes.set(device_interface, "instead_of_inductor", _in_place_of_inductor)  # torch._dynamo.optimize("inductor")
    changes.later(_reset_dynamo)
    _reset_dynamo()
    changes.later(late_imports.when_imported("torch._dynamo", lambda: _answers(changes)))


def _reset_dynamo() -> None:
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()


def _for_the_card(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``torch.compile`` with backend ``sdaa`` instead of inductor.

    Modes, and options, of inductor have no effect: they select kernels, and the results are the same.
    """

    @functools.wraps(original)
    def compile(model: Any = None, **kwargs: Any) -> Any:
        if kwargs.get("backend", "inductor") == "inductor" and is_available():
            COUNTS["torch.compile"] += 1
            filters = {name: value for name, value in (kwargs.pop("options", None) or {}).items() if name == _FILTER}
            kwargs.pop("mode", None)
            kwargs |= {"backend": "sdaa", "options": filters} if filters else {"backend": "sdaa"}
        return original(model, **kwargs)

    return compile


def _in_place_of_inductor(graph: Any, inputs: Any) -> Callable[..., Any]:
    """Compile a graph on the device for which inductor was called by another way than ``torch.compile``."""
    COUNTS["torch._inductor"] += 1
    return dynamo.aot_backend(graph, inputs)


def _answers(changes: Changes) -> None:
    from torch._dynamo.variables.builtin import BuiltinVariable
    from torch._dynamo.variables.constant import ConstantVariable
    from torch._dynamo.variables.script_object import TorchScriptObjectVariable
    from torch._dynamo.variables.tensor import TensorVariable

    changes.set(TensorVariable, "method_attr_is_cuda", _is_cuda(TensorVariable.method_attr_is_cuda, ConstantVariable))
    changes.set(TensorVariable, "method_type", _kind(TensorVariable.method_type, ConstantVariable))
    changes.set(ConstantVariable, "const_getattr", _attribute(ConstantVariable.const_getattr))
    mesh = _mesh(TorchScriptObjectVariable.var_getattr, ConstantVariable)
    changes.set(TorchScriptObjectVariable, "var_getattr", mesh)
    changes.set(BuiltinVariable, "call_function", _text(BuiltinVariable.call_function, ConstantVariable))


def _asked_by_script(tracer: Any) -> bool:
    package = str(tracer.f_globals.get("__name__")).partition(".")[0]
    return package not in ("torch", "torch_sdaa")


def _on_card(device: Any) -> bool:
    return isinstance(device, torch.device) and device.type == "sdaa"


def _is_cuda(original: Callable[..., Any], constant: Any) -> Callable[..., Any]:
    @functools.wraps(original)
    def method_attr_is_cuda(self: Any, tx: Any) -> Any:
        if _on_card(self.device) and _asked_by_script(tx):
            return constant.create(True)
        return original(self, tx)

    return method_attr_is_cuda


def _kind(original: Callable[..., Any], constant: Any) -> Callable[..., Any]:
    @functools.wraps(original)
    def method_type(self: Any, tx: Any, *args: Any, **kwargs: Any) -> Any:
        found = original(self, tx, *args, **kwargs)
        if isinstance(found, constant) and _asked_by_script(tx) and str(found.value).startswith("torch.sdaa."):
            return constant.create(found.value.replace("sdaa", "cuda", 1))
        return found

    return method_type


def _attribute(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def const_getattr(self: Any, tx: Any, name: str) -> Any:
        if name == "type" and _on_card(self.value) and _asked_by_script(tx):
            return "cuda"
        return original(self, tx, name)

    return const_getattr


def _mesh(original: Callable[..., Any], constant: Any) -> Callable[..., Any]:
    """Return the attributes of a mesh, with its device type as a constant.

    A guard on that attribute would fail, because it is evaluated by PyTorch's code, which gets ``sdaa``.
    """

    @functools.wraps(original)
    def var_getattr(self: Any, tx: Any, name: str) -> Any:
        if name == "device_type" and _asked_by_script(tx):
            kind = getattr(self.as_python_constant(), "_device_type", None)
            if kind == "sdaa":
                return constant.create("cuda")
        return original(self, tx, name)

    return var_getattr


def _text(original: Callable[..., Any], constant: Any) -> Callable[..., Any]:
    """Return a call of Python's built-in functions that formats a device with CUDA's name."""

    def named(tracer: Any, value: Any) -> Any:
        if value.is_python_constant() and _on_card(device := value.as_python_constant()) and _asked_by_script(tracer):
            return constant.create(str(device).replace("sdaa", "cuda", 1))
        return value

    @functools.wraps(original)
    def call_function(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        if self.fn in (str, format, str.format):
            args = [named(tx, value) for value in args]
            kwargs = {name: named(tx, value) for name, value in kwargs.items()}
        return original(self, tx, args, kwargs)

    return call_function
