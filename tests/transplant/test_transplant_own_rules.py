"""User rules, from a JSON file in the format of seed 004's tool."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("libcst")

from engine import ConfigError
from transplant.edits import apply
from transplant.migrate import Options, migrate
from transplant.user_rules import read_rules


def written(tmp_path: Path, **rules: list[Any]) -> Path:
    file = tmp_path / "rules.json"
    file.write_text(json.dumps({"rules": rules}), encoding="utf-8")
    return file


def moved(tmp_path: Path, text: str, **rules: list[Any]) -> str:
    found = read_rules(written(tmp_path, **rules))
    assert found.wrong == ()
    return apply(text, migrate(text, Options(rules=found)).edits)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("foo.bar(1, 2)\n", "foo.bar(9, 2)\n"),
        ("from foo import bar\nbar( 1 , b=2)\n", "from foo import bar\nbar( 9 , b=2)\n"),
        ("bar(a=1)\n", "bar(a=9)\n"),
        ("bar()\nother(1)\n", "bar()\nother(1)\n"),
        ("bar(*args)\n", "bar(*args)\n"),
    ],
)
def test_arguments(tmp_path: Path, before: str, after: str) -> None:
    assert moved(tmp_path, before, ArgsModifyRule=[{"func_name": "bar", "arg_idx": 0, "arg_new": "9"}]) == after


def test_names_of_functions(tmp_path: Path) -> None:
    text = "from m import func\nimport n\nfunc(1)\nn.func(2)  # func\nfunctional(3)\n"
    rule = {"old_name": "func", "new_name": "new_func"}
    expected = "from m import new_func\nimport n\nnew_func(1)\nn.new_func(2)  # func\nfunctional(3)\n"
    assert moved(tmp_path, text, FuncNameModifyRule=[rule]) == expected


def test_names_of_modules(tmp_path: Path) -> None:
    text = "import torch\nfrom torch.cuda import amp\nfrom torch.cuda.amp import autocast\n"
    text += "s = torch.cuda.amp.GradScaler()\n"
    rule = {"old_name": "amp", "new_name": "mixed", "parent_module": "torch.cuda"}
    assert moved(tmp_path, text, ModuleNameModifyRule=[rule]) == (
        "import torch\nimport torch_sdaa\nfrom torch.sdaa import mixed as amp\nfrom torch.sdaa.mixed import autocast\n"
        "s = torch.sdaa.mixed.GradScaler()\n"
    )
    assert moved(tmp_path, "import a\na.f()\n", ModuleNameModifyRule=[{"old_name": "a", "new_name": "b"}]) == (
        "import b as a\na.f()\n"
    )


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({"ArgModifyRule": []}, "did you mean 'ArgsModifyRule'?"),
        ({"FuncNameModifyRule": [{"old_nam": "a", "new_name": "b"}]}, "did you mean 'old_name'?"),
        ({"FuncNameModifyRule": [{"old_name": "a"}]}, "lacks 'new_name'"),
        ({"FuncNameModifyRule": [{"old_name": "a", "new_name": "1b"}]}, "not a Python name"),
        ({"FuncNameModifyRule": {"old_name": "a"}}, "must be a list of rules"),
        ({"ArgsModifyRule": [{"func_name": "f", "arg_idx": "0", "arg_new": "a"}]}, "must be a number"),
        ({"ArgsModifyRule": [{"func_name": "f", "arg_idx": -1, "arg_new": "a"}]}, "the first argument is 0"),
        ({"ArgsModifyRule": [{"func_name": "f", "arg_idx": 0, "arg_new": "a b"}]}, "not an argument of a call"),
        ({"ArgsModifyRule": ["f"]}, "must be an object"),
    ],
)
def test_an_invalid_rule_is_skipped_and_reported(tmp_path: Path, rules: dict[str, Any], said: str) -> None:
    good = {"FuncNameModifyRule": [*([] if "FuncNameModifyRule" in rules else [{"old_name": "f", "new_name": "g"}])]}
    found = read_rules(written(tmp_path, **{**good, **rules}))
    assert len(found.wrong) == 1
    assert said in found.wrong[0]
    assert "\n" not in found.wrong[0]
    if "FuncNameModifyRule" not in rules:
        assert found.rules["FuncNameModifyRule"] == good["FuncNameModifyRule"]


def test_an_invalid_rule_file_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "rules.json"
    for text, said in (("{", "not JSON"), ('{"rule": {}}', "did you mean 'rule'"), ("[]", 'no "rules"')):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError, match=said):
            read_rules(file)
