"""Rules for ``torch.compile`` and ``torch.accelerator``: the backend of the card, and scripts without CUDA's name."""

from __future__ import annotations

import libcst as cst

from transplant.script import Script

COMPILE, OPTIMIZE, ACCELERATOR = "torch.compile", "torch._dynamo.optimize", "torch.accelerator"
_PARTIAL = "functools.partial"
_INDUCTOR = "inductor"

_RULE, _WHY = "torch.compile", "its default backend, inductor, generates no code for the card"
_BACKEND = 'backend="sdaa"'
_ARGUMENTS = frozenset({"fullgraph", "dynamic", "backend", "mode", "options", "disable"})
"""Keyword arguments of ``torch.compile``, by which a module's method ``compile`` is recognized."""


def uses_accelerator(script: Script) -> bool:
    """Return whether a script selects its device by ``torch.accelerator``, which finds the card once registered."""
    return any(
        isinstance(node, (cst.Attribute, cst.Name)) and _begins(script.dotted(node), ACCELERATOR)
        for node in script.nodes
    )


def choose_backend(script: Script) -> None:
    """Let ``torch.compile`` use the card's backend; add findings for arguments that belong to inductor."""
    for node in script.nodes:
        if isinstance(node, cst.Call) and _compiles(script, node):
            _call(script, node)
        elif isinstance(node, cst.Call) and script.dotted(node.func) == OPTIMIZE:
            _optimize(script, node)
        elif isinstance(node, (cst.Attribute, cst.Name)) and script.dotted(node) == COMPILE:
            _reference(script, node)


def _begins(name: str | None, package: str) -> bool:
    return name is not None and (name == package or name.startswith(f"{package}."))


def _compiles(script: Script, node: cst.Call) -> bool:
    """Return whether a call is of ``torch.compile``, stores its arguments, or is a module's method with them."""
    if script.dotted(node.func) == COMPILE or _stores(script, node):
        return True
    words = {arg.keyword.value for arg in node.args if arg.keyword is not None}
    return (
        isinstance(node.func, cst.Attribute)
        and node.func.attr.value == "compile"
        and not any(arg.keyword is None for arg in node.args)
        and bool(words)
        and words <= _ARGUMENTS
    )


def _stores(script: Script, node: cst.CSTNode | None) -> bool:
    """Return whether a call is ``functools.partial(torch.compile, ...)``."""
    return (
        isinstance(node, cst.Call)
        and script.dotted(node.func) == _PARTIAL
        and bool(node.args)
        and script.dotted(node.args[0].value) == COMPILE
    )


def _optimize(script: Script, node: cst.Call) -> None:
    """Let the older form of ``torch.compile`` use the card's backend: its first argument."""
    backend = next((arg for arg in node.args if arg.keyword is None or arg.keyword.value == "backend"), None)
    if any(arg.star for arg in node.args):
        script.todo(node, "its backend is chosen at run time", f"pass {_BACKEND} on the card")
    elif backend is not None:
        _named(script, backend)
    else:
        _add(script, node)


def _call(script: Script, node: cst.Call) -> None:
    given = {arg.keyword.value: arg for arg in node.args if arg.keyword is not None}
    backend, mode = given.get("backend"), given.get("mode")
    if any(arg.star == "**" for arg in node.args):
        script.todo(node, "its backend is chosen at run time", f"pass {_BACKEND} on the card")
    elif backend is not None:
        _named(script, backend)
    elif "options" in given:
        script.todo(node, "options= of inductor", f"remove them, and pass {_BACKEND}")
    elif mode is not None and not _is_literal(mode.value):
        script.todo(node, "mode= belongs to inductor", f"remove it, and pass {_BACKEND}")
    elif mode is not None and mode.keyword is not None:
        span = (script.span(mode.keyword)[0], script.span(mode.value)[1])
        script.edit(*span, _BACKEND, _RULE, f"{_WHY}, and modes belong to it")
    else:
        _add(script, node)


def _named(script: Script, backend: cst.Arg) -> None:
    """Replace inductor by name; other names, which run the graph with PyTorch's operators, stay.

    A backend of a variable, an argument or a configuration is replaced where the script names it.
    """
    if isinstance(backend.value, cst.SimpleString):
        _replace_name(script, backend.value)
        return
    named = [node for node in script.nodes if isinstance(node, cst.SimpleString) and _is_backend(node)]
    for node in named:
        _replace_name(script, node)
    if not named:
        script.todo(backend.value, "its backend is chosen at run time", "choose sdaa on the card instead of inductor")


def _is_backend(node: cst.SimpleString) -> bool:
    return node.evaluated_value in (_INDUCTOR, "sdaa")


def _replace_name(script: Script, node: cst.SimpleString) -> None:
    if node.evaluated_value == _INDUCTOR:
        quote = script.code(node)[-1]
        script.replace(node, f"{quote}sdaa{quote}", _RULE, _WHY)


def _add(script: Script, node: cst.Call) -> None:
    if node.args:
        script.insert(script.span(node.args[-1].value)[1], f", {_BACKEND}", _RULE, _WHY)
    else:
        script.insert(script.span(node)[1] - 1, _BACKEND, _RULE, _WHY)


def _reference(script: Script, node: cst.Attribute | cst.Name) -> None:
    """Process the function where it is not called: as a decorator, or as a value."""
    around = script.parent(node)
    if isinstance(around, cst.Decorator):
        script.insert(script.span(node)[1], f"({_BACKEND})", _RULE, _WHY)
        return
    called = isinstance(around, cst.Call) and around.func is node
    called = called or (isinstance(around, cst.Arg) and _stores(script, script.parent(around)))
    inside = isinstance(around, (cst.Attribute, cst.ImportAlias, cst.AsName, cst.Assign, cst.AssignTarget))
    label = isinstance(around, cst.Arg) and around.value is not node
    imported = any(isinstance(one, (cst.Import, cst.ImportFrom)) for one in script.above(node))
    if not (called or inside or label or imported):
        script.todo(node, "it is not called here", f"pass {_BACKEND} where it is called")


def _is_literal(value: cst.BaseExpression) -> bool:
    return isinstance(value, cst.SimpleString) or (isinstance(value, cst.Name) and value.value == "None")
