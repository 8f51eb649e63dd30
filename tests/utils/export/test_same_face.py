"""Equal signatures of both exporters, read from their source, as no environment has both frameworks."""

from __future__ import annotations

import ast
from pathlib import Path

EXPORT = Path(__file__).resolve().parents[3] / "utils" / "export"


def signature(file: str, function: str) -> tuple[list[str], dict[str, str]]:
    """Return the names of the arguments by position, and the defaults of the others in order."""
    tree = ast.parse((EXPORT / file).read_text(encoding="utf-8"))
    [found] = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function]
    given = found.args
    assert not [*given.defaults, *filter(None, (given.vararg, given.kwarg))]
    assert found.returns is not None
    named = {
        one.arg: ast.unparse(default)
        for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
        if default is not None
    }
    return [one.arg for one in given.args], named | {"->": ast.unparse(found.returns)}


def test_signatures_are_equal() -> None:
    torch, paddle = signature("torch_export.py", "export_onnx"), signature("paddle_export.py", "export_paddle_onnx")
    assert torch == paddle
    assert list(torch[1]) == list(paddle[1])
    assert torch[1]["float16"] == "True"
