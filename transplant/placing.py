"""Position of ``import torch_sdaa``: after the first import of torch, before the first use of the card."""

from __future__ import annotations

import libcst as cst

from transplant.compiling import uses_accelerator
from transplant.edits import line_end
from transplant.script import Script, module_path, path_of

LINE = "import torch_sdaa"
CHOSEN = "SDAA_CALCULATE_DEVICE"
"""Environment variable of ``-s`` with the device of a run."""

_ROOTS = frozenset({"torch", "torchvision", "torchaudio", "torchtext"})
_APEX = frozenset({"apex"})
"""Package that torch_sdaa provides if it is not installed, available after its import."""

_CHOOSING = frozenset({"accelerate", "deepspeed"})
"""Packages that use the card once it is registered: their scripts need the import, and no other change."""

_TRAINERS = frozenset({"Trainer", "TrainingArguments", "Seq2SeqTrainer", "Seq2SeqTrainingArguments"})
"""Names of transformers that use the card once it is registered."""

_RULE, _WHY = "import torch_sdaa", "registers the device sdaa in PyTorch"


def has_import(script: Script) -> bool:
    """Return whether a script already imports ``torch_sdaa``."""
    return any("torch_sdaa" in _roots(node) for node in script.nodes)


def imports_torch(script: Script) -> bool:
    """Return whether a script imports torch, or a package that implies it."""
    return any(_ROOTS & _roots(node) for node in script.nodes)


def needs_card(script: Script) -> bool:
    """Return whether a script uses the card once it is registered, or a package that torch_sdaa provides."""
    return uses_accelerator(script) or any(
        (_APEX | _CHOOSING) & _roots(node) or _imports_trainer(node) for node in script.nodes
    )


def place_import(script: Script, entry: bool, choose: bool) -> None:
    """Insert the import once, at its position.

    Args:
        script: with its edits.
        entry: whether it is executed, not only imported: then the import is always inserted.
        choose: whether ``-s`` was given: the entry selects the device of a variable.
    """
    more = _chosen() if choose and entry and CHOSEN not in script.text else []
    if has_import(script):
        return
    roots = _ROOTS | _APEX
    if not any(roots & _roots(node) for node in script.nodes):
        roots = _CHOOSING | {"transformers"}
    found = [node for node in script.nodes if roots & _roots(node) and not _for_types(script, node)]
    outside = [node for node in found if not _in_function(script, node)]
    if outside:
        _next_to(script, outside[0], more)
    elif entry:
        _on_top(script, more)
    else:
        for node in found:
            _next_to(script, node, [])


def insert_line(script: Script, statement: cst.CSTNode, lines: list[str], before: bool, rule: str, why: str) -> None:
    """Insert lines before or after the line of a statement, with its indentation."""
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
    """Return the first statement after the docstring and the ``__future__`` imports."""
    for statement in script.module.body:
        small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
        is_text = isinstance(small, cst.Expr) and isinstance(small.value, (cst.SimpleString, cst.ConcatenatedString))
        if not is_text and not (isinstance(small, cst.ImportFrom) and module_path(small) == "__future__"):
            return statement
    return None


def _chosen() -> list[str]:
    return ["import os", "import torch", f'torch.sdaa.set_device(int(os.environ.get("{CHOSEN}", "0")))']


def _roots(node: cst.CSTNode) -> frozenset[str]:
    """Return the top-level packages of an import."""
    if isinstance(node, cst.Import):
        return frozenset(path_of(alias.name).split(".")[0] for alias in node.names)
    if isinstance(node, cst.ImportFrom) and not node.relative:
        return frozenset({module_path(node).split(".")[0]})
    return frozenset()


def _in_function(script: Script, node: cst.CSTNode) -> bool:
    return any(isinstance(one, (cst.FunctionDef, cst.ClassDef, cst.Lambda)) for one in script.above(node))


def _imports_trainer(node: cst.CSTNode) -> bool:
    """Return whether an import is of a class of transformers that trains."""
    if not isinstance(node, cst.ImportFrom) or isinstance(node.names, cst.ImportStar):
        return False
    return _roots(node) == {"transformers"} and any(path_of(alias.name) in _TRAINERS for alias in node.names)


def _for_types(script: Script, node: cst.CSTNode) -> bool:
    tests = (one.test for one in script.above(node) if isinstance(one, cst.If))
    return any("TYPE_CHECKING" in script.code(test) for test in tests)


def _next_to(script: Script, node: cst.CSTNode, more: list[str]) -> None:
    """Insert the import after an import of torch, or before it if that depends on it."""
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
