"""Recognition of strings that name a device or a backend, by their form and position."""

from __future__ import annotations

import re
from dataclasses import dataclass

import libcst as cst

from transplant.script import Script, path_of

SURE = re.compile(r"cuda:(\d+|%[ds]|\{[^{}]*\})?|(cpu:gloo,)?cuda:nccl|torch\.cuda\.\w+(Tensor|Storage)")
"""Strings that name a device in any position, except in text for users."""

PLAIN = re.compile(r"cuda|nccl")
"""Strings that may name a device or a backend, depending on their position."""

_WORDS = re.compile(
    r"(cuda|cpu|mps|xpu|xla|meta|hpu|npu|mlu|musa|sdaa|auto|gpu|ipu|vulkan)(:\d*)?|nccl|tccl|gloo|mpi|ucc|hccl|xccl"
)
_TEXT = re.compile(
    r"print|warn(ing)?|info|debug|error|exception|critical|log|log_\w+|write|fail|skip\w*|deprecated|echo|secho|\w*Error"
    r"|\w*Exception|\w*Warning|section|add_argument_group|add_parser|ArgumentParser|subTest|assertRaisesRegex"
)
_PRINTED = re.compile(r"help|description|epilog|msg|message|reason|title|label|usage|metavar|name|desc")


@dataclass(frozen=True, slots=True)
class Kind:
    """Patterns for positions of a kind of string: names of variables and keywords, flags, and functions."""

    names: re.Pattern[str]
    flags: re.Pattern[str]
    functions: frozenset[str]


DEVICE = Kind(
    re.compile(r"(?i)dev(ice)?s?(_|\b|\d)|device|(^|[_.])dev|_dev\b|map_location|accelerator|placement|hardware"),
    re.compile(r"(?i)-(.*[-_])?(dev(ice)?s?|gpus?|cuda|accelerator|hardware|platform)\b"),
    frozenset(
        [
            "to",
            "to_empty",
            "autocast",
            "GradScaler",
            "Generator",
            "init_device_mesh",
            "DeviceMesh",
            "get_autocast_dtype",
            "is_autocast_enabled",
            "set_autocast_enabled",
            "set_autocast_dtype",
            "autocast_decorator",
            "custom_fwd",
            "custom_bwd",
            "fork_rng",
        ]
    ),
)
BACKEND = Kind(
    re.compile(r"(?i)backend|dist_type|comm"),
    re.compile(r"(?i)-(.*[-_])?(backend|dist)"),
    frozenset({"init_process_group", "new_group", "Backend", "is_backend_available"}),
)


def is_text(script: Script, node: cst.CSTNode) -> bool:
    """Return whether a string is text for users: documentation, output, an error message."""
    below = node
    for above in script.above(node):
        if isinstance(above, (cst.Expr, cst.Raise)):
            return True
        if isinstance(above, cst.Assert):
            return below is above.msg
        if isinstance(above, cst.Arg):
            if above.keyword is not None and _PRINTED.fullmatch(above.keyword.value):
                return True
        elif isinstance(above, cst.Call):
            return isinstance(below, cst.Arg) and bool(_TEXT.fullmatch(_last(above.func)))
        elif not isinstance(
            above,
            (
                cst.BinaryOperation,
                cst.ConcatenatedString,
                cst.FormattedString,
                cst.FormattedStringExpression,
                cst.IfExp,
            ),
        ):
            return False
        below = above
    return False


def names_one(script: Script, node: cst.CSTNode, kind: Kind) -> bool:
    """Return whether ``"cuda"`` or ``"nccl"`` is in the position of a device or a backend."""
    below = node
    for above in script.above(node):
        found = _decide(script, above, below, kind)
        if found is not None:
            return found
        below = above
    return False


def _decide(script: Script, above: cst.CSTNode, below: cst.CSTNode, kind: Kind) -> bool | None:
    """Judge a string by one level around it; ``None``: continue with the next level."""
    if isinstance(above, cst.Call):
        return _of_call(script, above, below, kind)
    if isinstance(above, cst.Comparison):
        return _of_comparison(script, above, below, kind)
    if isinstance(above, (cst.List, cst.Tuple, cst.Set)):
        return _siblings([element.value for element in above.elements]) or None
    if isinstance(above, cst.IfExp):
        branches = _siblings([above.body, above.orelse]) or "is_available" in script.code(above.test)
        return True if branches and below is not above.test else None
    if isinstance(above, cst.DictElement):
        return _of_entry(script, above, below, kind)
    if isinstance(above, cst.Subscript):
        return bool(kind.names.search(script.code(above.value)))
    if isinstance(above, cst.Return):
        return _of_return(script, above, kind)
    if isinstance(above, cst.MatchCase):
        return _of_case(script, above, kind)
    return _of_binding(script, above, below, kind)


def _of_binding(script: Script, above: cst.CSTNode, below: cst.CSTNode, kind: Kind) -> bool | None:
    """Judge a string by the name that it is bound to."""
    if isinstance(above, cst.Assign):
        return any(kind.names.search(script.code(target.target)) for target in above.targets)
    if isinstance(above, (cst.AnnAssign, cst.NamedExpr)):
        return bool(kind.names.search(script.code(above.target)))
    if isinstance(above, cst.Param):
        return bool(kind.names.search(above.name.value))
    if isinstance(above, (cst.BaseStatement, cst.BaseSmallStatement, cst.Attribute, cst.FormattedString)):
        return False
    return None


def _of_call(script: Script, call: cst.Call, below: cst.CSTNode, kind: Kind) -> bool | None:
    if not isinstance(below, cst.Arg):
        return False
    name = _last(call.func)
    first = _text(call.args[0].value)
    if name == "add_argument" or (isinstance(first, str) and first.startswith("-")):  # click.option, an alias
        flags = " ".join(str(text) for text in map(_text, (arg.value for arg in call.args)) if text)
        return bool(kind.flags.search(flags)) or _siblings([arg.value for arg in call.args])
    if below.keyword is not None:
        if below.keyword.value == "type" and script.dotted(call.func) == "torch.device":
            return True
        return bool(kind.names.search(below.keyword.value))
    if name in ("startswith", "endswith", "index", "find", "add", "append", "remove", "discard", "count", "get"):
        return isinstance(call.func, cst.Attribute) and _is_kind(script, call.func.value, kind)
    if name == "load" and script.dotted(call.func) == "torch.load":
        return call.args.index(below) == 1
    if name in ("str", "list", "tuple", "set", "frozenset", "sorted"):
        return None
    return name in kind.functions or bool(kind.names.search(name))


def _of_comparison(script: Script, above: cst.Comparison, below: cst.CSTNode, kind: Kind) -> bool:
    sides = [above.left, *(target.comparator for target in above.comparisons)]
    return any(side is not below and not _holds(script, side, below) and _is_kind(script, side, kind) for side in sides)


def _holds(script: Script, side: cst.CSTNode, below: cst.CSTNode) -> bool:
    return isinstance(below, cst.ComparisonTarget) and below.comparator is side


def _is_kind(script: Script, node: cst.CSTNode, kind: Kind) -> bool:
    """Return whether the text of an expression indicates a device or a backend."""
    text = script.code(node)
    return bool(kind.names.search(text)) or (kind is DEVICE and text.endswith((".type", "_type", "get_backend()")))


def _of_entry(script: Script, entry: cst.DictElement, below: cst.CSTNode, kind: Kind) -> bool | None:
    if below is entry.value and (_text(entry.key) is not None or isinstance(entry.key, cst.Name)):
        return True if kind.names.search(script.code(entry.key)) else None
    whole = script.parent(entry)
    if below is not entry.key or not isinstance(whole, cst.Dict):
        return None
    keys = [one.key for one in whole.elements if isinstance(one, cst.DictElement)]
    return _siblings(keys)


def _of_return(script: Script, node: cst.Return, kind: Kind) -> bool:
    function = next((one for one in script.above(node) if isinstance(one, cst.FunctionDef)), None)
    if function is None:
        return False
    first, last = script.span(function)
    inside = [
        one.value
        for one in script.nodes
        if isinstance(one, cst.Return) and one.value is not None and first <= script.span(one)[0] < last
    ]
    return bool(kind.names.search(function.name.value)) or _siblings(inside)


def _of_case(script: Script, case: cst.MatchCase, kind: Kind) -> bool:
    match = script.parent(case)
    if not isinstance(match, cst.Match):
        return False
    values = [one.pattern.value for one in match.cases if isinstance(one.pattern, cst.MatchValue)]
    return _is_kind(script, match.subject, kind) or _siblings(values)


def _siblings(nodes: list[cst.BaseExpression]) -> bool:
    """Return whether other strings next to it are devices or backends, with at least two different ones."""
    texts = [text for node in nodes for text in _texts(node)]
    words = {text for text in texts if _WORDS.fullmatch(text)}
    return len({word.split(":")[0] for word in words}) > 1


def _texts(node: cst.CSTNode) -> list[str]:
    if isinstance(node, (cst.List, cst.Tuple, cst.Set)):
        return [text for element in node.elements for text in _texts(element.value)]
    text = _text(node)
    return [text] if text is not None else []


def _text(node: cst.CSTNode | None) -> str | None:
    """Return the value of a plain string, or ``None``."""
    value = node.evaluated_value if isinstance(node, cst.SimpleString) else None
    return value if isinstance(value, str) else None


def _last(node: cst.CSTNode) -> str:
    """Return the last name of a called expression."""
    if isinstance(node, cst.Attribute):
        return node.attr.value
    return path_of(node)
