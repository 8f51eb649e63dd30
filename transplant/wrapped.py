"""Access to the model through DistributedDataParallel: saved names and members remain those of a single card."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from transplant.script import Script, path_of

RULE = "several cards"
ON_MODEL = frozenset({"state_dict", "load_state_dict", "save_pretrained"})
_KNOWN = frozenset(
    [
        "parameters",
        "named_parameters",
        "buffers",
        "named_buffers",
        "modules",
        "named_modules",
        "children",
        "train",
        "eval",
        "zero_grad",
        "forward",
        "module",
        "no_sync",
        "to",
        "cuda",
        "sdaa",
        "cpu",
        "half",
        "float",
        "double",
        "bfloat16",
        "requires_grad_",
        "training",
        "apply",
        "register_comm_hook",
        "join",
    ]
)
_TAKE_IT_WHOLE = ("torch.save", "torch.jit.save", "copy.deepcopy")
_WHY = "the wrapped model"
_AROUND = ("DistributedDataParallel only averages gradients of calls of the model itself", "move the code to forward")


def is_model(node: cst.CSTNode, target: str) -> bool:
    """Return whether an expression is the model by its name: ``model``, ``self.model`` etc."""
    name = path_of(node)
    return name == target or name.endswith(f".{target}")


def through_wrapper(script: Script, target: str, home: cst.FunctionDef | None, start: int | None) -> None:
    """Access the model's members, and saved models, through the wrapper.

    Args:
        script: receives the edits. target: name of the model. home: function that wraps it; ``None``: the module.
        start: position where it is wrapped; ``None``: in another file.
    """
    for node in script.nodes:
        if isinstance(node, cst.Attribute) and is_model(node.value, target):
            _member(script, node, home, start)
        elif isinstance(node, cst.Subscript) and is_model(node.value, target) and start is not None:
            _reach(script, node.value, home, start)
        elif isinstance(node, cst.Call) and script.dotted(node.func) in (
            "torch.save",
            "copy.deepcopy",
            "torch.jit.save",
        ):
            for one in _whole(node, target):
                _reach(script, one, home, start)


def _member(script: Script, node: cst.Attribute, home: cst.FunctionDef | None, start: int | None) -> None:
    name, around = node.attr.value, script.parent(node)
    if name in _KNOWN or isinstance(around, cst.AssignTarget) or (start is None and name not in ON_MODEL):
        return
    called = isinstance(around, cst.Call) and around.func is node and bool(around.args)
    if _reach(script, node.value, home, start) and called and name not in ON_MODEL and _learns(script, node):
        script.todo(node, f"{_AROUND[0]}, not of .{name}()", _AROUND[1])


def _reach(script: Script, model: cst.BaseExpression, home: cst.FunctionDef | None, start: int | None) -> bool:
    """Insert ``.module`` if the model is always wrapped, else a check for it."""
    words = script.code(model)
    at = script.span(model)[0]
    if isinstance(model, cst.Name) and start is not None and function_of(script, model) is home:
        return at >= start and script.replace(model, f"{words}.module", RULE, _WHY)
    return script.replace(model, f'getattr({words}, "module", {words})', RULE, _WHY)


def _whole(call: cst.Call, target: str) -> Iterator[cst.BaseExpression]:
    """Yield the model in a call that saves or copies it, alone or in a dictionary."""
    for arg in call.args[:1]:
        if is_model(arg.value, target):
            yield arg.value
        elif isinstance(arg.value, cst.Dict):
            for one in arg.value.elements:
                if isinstance(one, cst.DictElement) and is_model(one.value, target):
                    yield one.value


def _learns(script: Script, node: cst.CSTNode) -> bool:
    """Return whether a call is in a loop, where a training step may depend on it."""
    return any(isinstance(one, (cst.For, cst.While)) for one in script.above(node))


def function_of(script: Script, node: cst.CSTNode) -> cst.FunctionDef | None:
    """Return the function around a node; ``None`` for the module level."""
    return next((one for one in script.above(node) if isinstance(one, cst.FunctionDef)), None)
