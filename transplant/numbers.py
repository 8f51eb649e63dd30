"""Device numbers: ``-s`` and ``distributed`` replace them by the current device."""

from __future__ import annotations

import libcst as cst

from transplant.names import CUDA
from transplant.script import Script, path_of

FIXED, EVERY = "fixed", "every"
"""Which numbers: literals only, or also computed ones."""

_RULE = "device number"
_WHY = "the current device instead of a fixed number"


def take_current(script: Script, node: cst.Call, which: str) -> None:
    """Use the current device instead of a number in a call: ``.cuda(0)``, ``torch.device("cuda", 0)``."""
    last = node.func.attr.value if isinstance(node.func, cst.Attribute) else path_of(node.func)
    if last == "cuda" and isinstance(node.func, cst.Attribute):
        _without(script, node, which)
    elif script.dotted(node.func) in (f"{CUDA}.set_device", f"{CUDA}.device") and len(node.args) == 1:
        value = node.args[0].value
        module = script.code(node.func.value) if isinstance(node.func, cst.Attribute) else ""
        if module.endswith("cuda") and _numbered(value, which):
            script.replace(value, f"{module[:-4]}sdaa.current_device()", _RULE, _WHY)
    elif script.dotted(node.func) == "torch.device" and len(node.args) == 2:
        first, second = node.args
        if _numbered(second.value, which) and "cuda" in script.code(first.value):
            script.edit(script.span(first.value)[1], script.span(second.value)[1], "", _RULE, _WHY)


def _without(script: Script, call: cst.Call, which: str) -> None:
    """Remove the device from ``.cuda(device, ...)``."""
    for index, arg in enumerate(call.args):
        if arg.star or not (arg.keyword.value == "device" if arg.keyword else index == 0):
            continue
        if not _numbered(arg.value, which):
            return
        start = script.span(arg.keyword or arg.value)[0]
        behind = call.args[index + 1 :]
        end = script.span(behind[0].keyword or behind[0].value)[0] if behind else script.span(arg.value)[1]
        if not index and all(one.keyword for one in behind):
            script.edit(start, end, "", _RULE, _WHY)
        elif not behind:
            before = call.args[index - 1]
            script.edit(script.span(before.value)[1], end, "", _RULE, _WHY)
        return


def _numbered(value: cst.BaseExpression, which: str) -> bool:
    fixed = isinstance(value, cst.Integer)
    return fixed or (which == EVERY and not isinstance(value, (cst.SimpleString, cst.FormattedString)))


def whole(script: Script, node: cst.BaseExpression) -> cst.BaseExpression | None:
    """Return the expression that creates a device from a string and a number: ``"cuda:%d" % i``, ``"cuda:" +
    str(i)``.
    """
    around = script.parent(node)
    if isinstance(around, cst.BinaryOperation) and around.left is node:
        return around if isinstance(around.operator, (cst.Modulo, cst.Add)) else None
    if isinstance(around, cst.Attribute) and around.attr.value == "format":
        call = script.parent(around)
        return call if isinstance(call, cst.Call) and call.func is around else None
    return None
