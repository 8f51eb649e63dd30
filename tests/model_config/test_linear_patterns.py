"""Tests that regular expressions over contributed text take linear time."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest
from linear_patterns import mark_top, trouble, uses
from support import ROOT

READERS = (
    *(
        "model_config/**/*.py",
        "utils/stored.py",
        "tecoinfer_modelzoo/formatting.py",
        "utils/plain*.py",
        "utils/pages/*.py",
    ),
    *("utils/fetch/table.py", "utils/fetch/located.py", "toolkit/zoo.py", "toolkit/scorecard.py"),
)
"""Files that read contributed text: READMEs, scripts, YAML, and outputs of steps."""

FILES = sorted({path.relative_to(ROOT).as_posix() for pattern in READERS for path in ROOT.glob(pattern)})


def found(name: str) -> list[str]:
    """Return every pattern of a file that may take more than linear time or is not a literal."""
    tree = ast.parse((ROOT / name).read_text(encoding="utf-8"))
    mark_top(tree)
    module = importlib.import_module(name.removesuffix(".py").replace("/", ".").removesuffix(".__init__"))
    wrong = []
    for use in uses(tree, module):
        if isinstance(use, int):
            wrong.append(f"{name}:{use}: a pattern that is put together at run time; write it at the top of the file")
        elif why := trouble(use.pattern.pattern, use.pattern.flags, use.method):
            wrong.append(f"{name}: {use.method} of {use.pattern.pattern!r} is {why}")
    return wrong


@pytest.mark.slow
def test_no_pattern_over_contributed_text_takes_more_than_linear_time() -> None:
    names = [name for name in FILES if re.search(r"\bre\b", (ROOT / name).read_text(encoding="utf-8"))]
    assert len(names) > 15
    assert [wrong for name in names for wrong in found(name)] == []


@pytest.mark.parametrize(
    ("pattern", "method", "linear"),
    [
        ("a+b", "search", False),
        ("a+b", "match", True),
        ("a+", "search", True),
        ("(a*)*b", "match", False),
        ("(a|ab?)*c", "match", True),
        ("(a|aa)*b", "match", False),
        ("a*a*b", "match", False),
        (r"\d+\.?\d*x", "match", False),
        (r"\d+(\.\d*)?x", "match", True),
        (r"\]\(\s*<?([^)\s>]+)>?[^)]*\)", "search", False),  # this pattern once made the check hang
        ("`[^`]*`", "search", True),
        ("(?s)<!--.*?-->", "search", False),
        (r"\s+$", "search", False),
        (r"^\s+x", "search", True),
        (r"(?m)^\s+x", "search", False),
        (".*x.*y", "match", False),
        (r"(x+x+)+y", "match", False),
        (r"(\w+)*", "fullmatch", False),
        (r"\w[\w.+-]*", "fullmatch", True),
        (r"a(?:,[0-9]{1,9})*", "fullmatch", True),
        (r"(^|\s)#.*$", "search", False),
        (r"(^|\s)#.*", "search", True),
        ("a{0,5}b", "search", True),
        ("a{0,1000}b", "search", False),
        ("(?=a+b)c", "search", False),
        (r"(a)\1*", "match", False),
        (r'"(?:[^"\\]|\\.)*"', "search", False),
        (r'"(?:[^"\\]|\\.)*"?', "search", True),
        ("(?i)A+[a]+b", "match", False),
        (r"[^\W\d]+\w+!", "match", False),
        (rb"[\r\n]+", "search", True),
    ],
)
def test_linear_patterns_are_recognized(pattern: str | bytes, method: str, linear: bool) -> None:
    assert (trouble(pattern, re.compile(pattern).flags, method) == "") is linear


def test_every_use_of_a_pattern_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "import re\nSLOW = re.compile('a+b')\nFAST = re.compile('a+b')\nTABLE = {'x': (re.compile('(c+)*d'), 1)}\n"
        "NAMED = '(e+)*f'\n\n\ndef use(text, word):\n    SLOW.search(text)\n    FAST.match(text)\n"
        "    re.sub('g+h', '', text)\n    re.match(NAMED, text)\n    re.match(word, text)\n"
        "    for pattern, _ in TABLE.values():\n        pattern.match(text)\n    return re.compile('(i*)*j')\n"
    )
    (tmp_path / "patterns_of_a_test.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("patterns_of_a_test")
    tree = ast.parse(text)
    mark_top(tree)
    seen = list(uses(tree, module))
    assert [one for one in seen if isinstance(one, int)] == [13]
    slow = {
        one.pattern.pattern
        for one in seen
        if not isinstance(one, int) and trouble(one.pattern.pattern, one.pattern.flags, one.method)
    }
    assert slow == {"a+b", "(c+)*d", "(e+)*f", "g+h", "(i*)*j"}
