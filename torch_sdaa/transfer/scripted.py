"""``torch.jit.script`` with CUDA redirected: CUDA's names in compiled functions become those of sdaa."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from torch_sdaa.transfer.words import COUNTS, Changes, redirected, refuse

_OF_TORCH = f'"{Path(torch.__file__).parent}'


_processed: set[str] = set()
"""Names of the processed functions of torch's compilation unit."""

_depth = 0


def begin(changes: Changes) -> None:
    """Process compiled functions, and modules loaded by ``torch.jit.load``, before they run."""
    from torch.jit import _recursive, _script, _serialization

    _processed.update(function.qualified_name for function in _compiled())
    script = _processing(_script.script, by_frame=True)
    for module in (_script, torch.jit):
        changes.set(module, "script", script)
        changes.set(module, "CompilationUnit", _processing_units(module.CompilationUnit))
    changes.set(_recursive, "create_script_module", _processing(_recursive.create_script_module))
    load = _processing_files(_serialization.load)
    for module in (_serialization, torch.jit):
        changes.set(module, "load", load)


def _compiled() -> list[Any]:
    """Return all functions and methods that ``torch.jit.script`` has compiled."""
    found: list[Any] = torch.jit._state._python_cu.get_functions()
    return found


def _one_frame_more(kwargs: dict[str, Any]) -> None:
    """Let the compiler look up names where its caller's code is, past the frame of a function of this module."""
    kwargs["_frames_up"] = kwargs.get("_frames_up", 0) + 1


def _processing(original: Callable[..., Any], by_frame: bool = False) -> Callable[..., Any]:
    @functools.wraps(original)
    def compiled(*args: Any, **kwargs: Any) -> Any:
        global _depth
        _depth += 1
        if by_frame:
            _one_frame_more(kwargs)
        try:
            made = original(*args, **kwargs)
        finally:
            _depth -= 1
        if _depth == 0:  # after the functions that it calls
            for function in _compiled():
                if function.qualified_name not in _processed:
                    _redirect_graph(function.graph)
                    _processed.add(function.qualified_name)
        return made

    return compiled


def _processing_files(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load(*args: Any, **kwargs: Any) -> Any:
        made = original(*args, **kwargs)
        for module in made.modules():
            for name in module._c._method_names():
                graph = module._c._get_method(name).graph
                _redirect_graph(graph)
        return made

    return load


def _processing_units(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def compilation_unit(*args: Any, **kwargs: Any) -> Any:
        _one_frame_more(kwargs)
        made = original(*args, **kwargs)
        for function in made.get_functions():
            _redirect_graph(function.graph)
        return made

    return compilation_unit


def _redirect_graph(graph: Any) -> None:
    _redirect(graph, graph)
    graph.setInsertPoint(graph.return_node())  # where passes of PyTorch begin; it may be a node that was removed


def _redirect(graph: Any, block: Any) -> None:
    for node in list(block.nodes()):
        for inner in node.blocks():
            _redirect(graph, inner)
        if _OF_TORCH in node.sourceRange():
            continue  # torch's own functions must see sdaa
        kind = node.kind()
        if kind == "prim::Constant":
            _constant(graph, node)
        elif kind == "prim::is_cuda":
            text = _before(graph, node, "prim::type", [_before(graph, node, "prim::device", [node.inputsAt(0)])])
            graph.setInsertPoint(node)
            _put(node, _before(graph, node, "aten::eq", [text, graph.insertConstant("sdaa")]))
        elif kind == "aten::cuda":
            graph.setInsertPoint(node)
            rest = [graph.insertConstant(value) for value in (torch.device("sdaa"), None, False, False)]
            _put(node, _before(graph, node, "aten::to", [node.inputsAt(0), *rest]))
        elif kind.startswith("cuda::"):
            shown = f"torch.cuda.{kind[6:].lstrip('_')} in a function of torch.jit.script"
            raise refuse(shown, "call it outside of the function, or do not use torch.jit.script")


_TYPES = {"prim::device": torch._C.DeviceObjType, "prim::type": torch._C.StringType, "aten::eq": torch._C.BoolType}


def _before(graph: Any, node: Any, kind: str, inputs: list[Any]) -> Any:
    """Insert an operator before a node; return its value."""
    added = graph.create(kind, inputs, 1)
    added.insertBefore(node)
    value = added.outputsAt(0)
    value.setType(_TYPES[kind].get() if kind in _TYPES else node.outputsAt(0).type())
    return value


def _put(node: Any, value: Any) -> None:
    """Replace the value of a node, and remove the node."""
    node.outputsAt(0).replaceAllUsesWith(value)
    node.destroy()
    COUNTS["torch.jit.script"] += 1


def _constant(graph: Any, node: Any) -> None:
    """Replace CUDA's device names in constants, including lists of strings."""
    if "value" not in node.attributeNames():
        return
    kind = node.kindOf("value")
    if kind == "s":
        text = node.s("value")
        if redirected(text) != text:
            node.s_("value", redirected(text))
            COUNTS["torch.jit.script"] += 1
        return
    found = node.outputsAt(0).toIValue() if kind in ("ival", "ss") else None
    if isinstance(found, list | tuple) and any(redirected(each) != each for each in found):
        graph.setInsertPoint(node)
        _put(node, graph.insertConstant(type(found)(map(redirected, found))))
