"""Where ``import torch_sdaa`` goes: after the first import of torch, and before the first name of the card."""

from __future__ import annotations

import libcst as cst

from transplant.edits import line_end
from transplant.script import Script, module_path, path_of

LINE = "import torch_sdaa"
CHOSEN = "SDAA_CALCULATE_DEVICE"
"""The variable of ``-s``: which device a run takes."""

_ROOTS = frozenset({"torch", "torchvision", "torchaudio", "torchtext"})
_APEX = frozenset({"apex"})
"""What the card gives where it is not installed; it is there behind the card's import only."""

_RULE, _WHY = "import torch_sdaa", "makes sdaa a device of PyTorch"


def has_import(script: Script) -> bool:
    """Return whether a script imports ``torch_sdaa`` already."""
    return any("torch_sdaa" in _roots(node) for node in script.nodes)


def imports_torch(script: Script) -> bool:
    """Return whether a script imports torch, or a package that stands for it."""
    return any(_ROOTS & _roots(node) for node in script.nodes)


def needs_card(script: Script) -> bool:
    """Return whether a script imports what the card's import gives, and nothing in it need change for that."""
    return any(_APEX & _roots(node) for node in script.nodes)


def place_import(script: Script, entry: bool, choose: bool) -> None:
    """Write the import where it belongs, once.

    Args:
        script: its edits are made already.
        entry: whether it is run, and not only imported: then the import stands there in any case.
        choose: whether ``-s`` was given: the entry takes the device of a variable.
    """
    more = _chosen() if choose and entry and CHOSEN not in script.text else []
    if has_import(script):
        return
    found = [node for node in script.nodes if (_ROOTS | _APEX) & _roots(node) and not _for_types(script, node)]
    outside = [node for node in found if not _in_function(script, node)]
    if outside:
        _beside(script, outside[0], more)
    elif entry:
        _on_top(script, more)
    else:
        for node in found:
            _beside(script, node, [])


def insert_line(script: Script, statement: cst.CSTNode, lines: list[str], before: bool, rule: str, why: str) -> None:
    """Write lines before or after the line of a statement, at its depth."""
    start, end = script.span(statement)
    at = script.lines.offset(script.lines.place(start)[0], 0)
    depth = script.text[at:start]
    newline = line_end(script.text, start)
    depth = depth if not depth.strip() else depth[: len(depth) - len(depth.lstrip())]
    text = "".join(f"{depth}{line}{newline}" for line in lines)
    if before:
        script.insert(at, text, rule, why)
        return
    after = script.lines.place(end)[0]
    if after < len(script.lines.starts):
        script.insert(script.lines.starts[after], text, rule, why)
    else:
        script.insert(len(script.text), newline + text.removesuffix(newline), rule, why)


def top_statement(script: Script) -> cst.CSTNode | None:
    """Return the first statement after the documentation and the imports from the future."""
    for statement in script.module.body:
        small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
        told = isinstance(small, cst.Expr) and isinstance(small.value, (cst.SimpleString, cst.ConcatenatedString))
        if not told and not (isinstance(small, cst.ImportFrom) and module_path(small) == "__future__"):
            return statement
    return None


def _chosen() -> list[str]:
    return ["import os", "import torch", f'torch.sdaa.set_device(int(os.environ.get("{CHOSEN}", "0")))']


def _roots(node: cst.CSTNode) -> frozenset[str]:
    """Return the packages that an import is from."""
    if isinstance(node, cst.Import):
        return frozenset(path_of(alias.name).split(".")[0] for alias in node.names)
    if isinstance(node, cst.ImportFrom) and not node.relative:
        return frozenset({module_path(node).split(".")[0]})
    return frozenset()


def _in_function(script: Script, node: cst.CSTNode) -> bool:
    return any(isinstance(one, (cst.FunctionDef, cst.ClassDef, cst.Lambda)) for one in script.above(node))


def _for_types(script: Script, node: cst.CSTNode) -> bool:
    tests = (one.test for one in script.above(node) if isinstance(one, cst.If))
    return any("TYPE_CHECKING" in script.code(test) for test in tests)


def _beside(script: Script, node: cst.CSTNode, more: list[str]) -> None:
    """Write the import after an import of torch, or before it where that one needs it."""
    line = script.parent(node)
    first, last = script.span(node)
    changed = any(edit.old and first <= edit.start < last for edit in script.edits)
    needs = changed or bool(_APEX & _roots(node))
    if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1:
        insert_line(script, line, [LINE, *more], needs, _RULE, _WHY)
        return
    start, end = script.span(node)
    words = "; ".join([LINE, *more])
    script.insert(start if needs else end, f"{words}; " if needs else f"; {words}", _RULE, _WHY)


def _on_top(script: Script, more: list[str]) -> None:
    statement = top_statement(script)
    if statement is not None:
        insert_line(script, statement, [LINE, *more], True, _RULE, _WHY)
        return
    newline = line_end(script.text, 0)
    text = script.text and not script.text.endswith(("\n", "\r"))
    script.insert(len(script.text), (newline if text else "") + newline.join([LINE, *more]) + newline, _RULE, _WHY)
