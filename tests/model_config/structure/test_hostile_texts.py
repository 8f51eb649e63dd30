"""Tests of texts designed to take long or to break a parser: the time of checking is bounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from stub_model import README, Stub, write_zoo

from model_config.cases.config import read_cases
from model_config.cases.imports import Imports
from model_config.results import Finding
from model_config.structure import check_structure
from model_config.structure.source import MAX_WRITTEN, MOST_FOUND
from model_config.syntax import LONGEST_LINE, parsed

SIZE = MAX_WRITTEN - len(README.encode()) - 100


def filled(part: str, line: int = LONGEST_LINE - 100) -> str:
    """Return lines of a repeated text that fill a file."""
    row = part * max(1, line // len(part))
    return f"{row}\n" * (SIZE // (len(row.encode()) + 1))


READMES = {
    "links that do not end, in one line": "[a](" * (SIZE // 4),
    "links that do not end": filled("[a]("),
    "links of spaces": filled("](" + " " * 50),
    "links that end late": filled("](a") + ")",
    "links to nowhere": filled("[a](b) "),
    "deep links": filled("[a](" + "b/" * 9000 + ")"),
    "comments that do not end": filled("<!--"),
    "comments": filled("<!---->"),
    "marks of code": filled("`"),
    "fences": filled("```\n", 4),
    "headings": filled("# a\n", 4),
    "long headings": filled("# " + "a" * 9000 + "\n"),
    "commands": "```bash\n" + filled("python example_valid.py --x\n", 20) + "```\n",
    "continued commands": "```bash\n" + filled("a\\\n", 3) + "```\n",
    "words without end": "```bash\n" + filled("'a"),
    "brackets": filled("[") + filled("]"),
    "curl": "```bash\n" + filled("curl -") + "```\n",
}


def deep(part: str, count: int, end: str = "1") -> str:
    return part * count + end + "\n"


SCRIPTS = {
    "brackets": deep("(", 100_000),
    "closed brackets": deep("(", 190, "1" + ")" * 190),
    "unary operators": deep("-", 900_000),
    "not": deep("not ", 200_000),
    "attributes": "a" + ".a" * 400_000 + "\n",
    "sums": "1" + "+1" * 400_000 + "\n",
    "calls": "a" + "()" * 400_000 + "\n",
    "lambdas": deep("lambda:", 100_000),
    "conditions": deep("1 if 1 else ", 80_000),
    "branches": "if 1:\n pass\n" + "elif 1:\n pass\n" * 60_000,
    "a null byte": "\0",
    "digits": "1" * 10_000,
    "a broken escape": "'\\N{'",
    "an import of many parts": "import " + ".".join("a" * 100_000) + "\n",
    "imports": "import a\n" * 60_000,
    "runs": "from utils.pipeline import cli\nT = 1\n" + "cli.valid(1, T)\n" * 30_000,
    "names": "T = T\n" * 80_000,
    "texts": "x = '" + "curl -" * 150_000 + "'\n",
    "too much": "x = 1\n" * 200_000,
}

REQUIREMENTS = {
    "continued lines": "\\\n" * 400_000,
    "brackets": "numpy; " + "(" * 1500,
    "many brackets": "numpy; " + "(" * 900_000,
    "a long name": "a" * 900_000,
    "commas": "numpy" + ">=1," * 400,
    "comments": "numpy " + "# " * 9000,
    "too much": "numpy\n" * 400_000,
    "many lines": "x/y\n" * 100_000,
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path


def check(root: Path, **files: str) -> list[Finding]:
    """Return the findings of a model's folder that is valid except for some files."""

    def change(stub: Stub) -> None:
        stub.files |= {name.replace("__", "."): text for name, text in files.items()}

    file = write_zoo(root, {"stub": change})
    (case,), _ = read_cases([file], root)
    found = check_structure(case, root)
    counts = Counter((one.rule, one.file) for one in found)
    assert not counts or max(counts.values()) <= MOST_FOUND
    assert all(len(str(one)) < 10_000 for one in found)
    assert Imports(root).of_case(case)
    return found


LONG = (pytest.mark.slow, pytest.mark.long)
QUICK = {
    *("links that do not end", "links that end late", "comments that do not end", "brackets", "unary operators"),
    *("attributes", "an import of many parts", "many brackets"),
}


def some(table: Mapping[str, str]) -> list[Any]:
    """Return the names of a table; all but the quick ones are marked as slow tests."""
    return [name if name in QUICK else pytest.param(name, marks=LONG) for name in table]


@pytest.mark.parametrize("name", some(READMES))
def test_a_readme(root: Path, name: str) -> None:
    found = check(root, README__md=README + READMES[name])
    lines = [one for one in found if one.rule == "text"]
    assert bool(lines) is any(len(line) > LONGEST_LINE for line in READMES[name].split("\n"))


@pytest.mark.parametrize("name", some(SCRIPTS))
def test_a_script(root: Path, name: str) -> None:
    found = check(root, more__py=SCRIPTS[name])
    assert len([one for one in found if one.rule == "syntax"]) <= 1
    if name in ("brackets", "unary operators", "attributes", "sums", "a null byte", "a broken escape", "digits"):
        assert [one.rule for one in found if one.file.endswith("more.py") and one.rule != "text"] == ["syntax"]
    if name == "too much":
        assert "readable" in {one.rule for one in found}


@pytest.mark.parametrize("name", some(REQUIREMENTS))
def test_requirements(root: Path, name: str) -> None:
    found = check(root, requirements__txt=REQUIREMENTS[name])
    if name not in ("continued lines", "commas", "comments"):
        assert {"requirements-lines", "readable"} & {one.rule for one in found}


@pytest.mark.parametrize("joint", ["", "\\\n", "\\\r\n"])
def test_a_name_of_many_parts_is_refused_before_it_is_parsed(joint: str) -> None:
    part = f"a{joint}."
    text = f"import {part * LONGEST_LINE}a\n"
    for source in (text, text.encode()):
        with pytest.raises(ValueError, match="longer"):
            parsed(source)
    assert parsed("x = 1\n" * (LONGEST_LINE // 2)).body
