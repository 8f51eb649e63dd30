"""Tests of malicious case files: rejected quickly in a few lines, and no value leads a step out of its folder."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from model_config.cases.case_file import MOST_TROUBLES
from model_config.cases.config import read_cases
from model_config.cases.reach import leaving

PARAMS = {"ckpt": "m.onnx", "batch_size": 4, "data_path": "data", "target": "onnx", "dtype": "float32"}
CASE: dict[str, Any] = {
    "case_name": "one",
    "run_dir": "model",
    "run_export": {"run_file": "s.py", "params": {"forms": "dyn"}},
    **{
        f"run_example_{name}": {"run_file": "s.py", "params": {**PARAMS, "others": {"topk": 1}}}
        for name in ("valid", "single", "multi")
    },
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "zoo"
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "s.py").write_text("")
    (folder / "model" / "out").symlink_to(tmp_path)
    return folder


def lines(root: Path, text: str) -> list[str]:
    (root / "model.yaml").write_text(text)
    return [str(problem.finding) for problem in read_cases([root / "model.yaml"], root)[1]]


def of_case(root: Path, **others: Any) -> list[str]:
    case = copy.deepcopy(CASE)
    case["run_example_valid"]["params"]["others"] = others
    return lines(root, yaml.safe_dump([case]))


def test_base_case_is_valid(root: Path) -> None:
    others = {"topk": 1, "queries": "a cat, a dog", "arch": "timm/x", "pass_path": "resnet/resnet_pass.py"}
    assert of_case(root, **others) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("resume", "/nowhere/x"),
        ("json", "../x.json"),
        ("save_predictions", "out/x"),
        ("pass_path", "/nowhere/evil.py"),
        ("save", "~/x"),
        ("verbose", "--resume=/nowhere/x"),
        ("input_name", ["x", "--save=../y"]),
        ("labels", "a=b,/etc/passwd"),
    ],
)
def test_no_value_leaves_its_folder(key: str, value: object, root: Path) -> None:
    (line,) = of_case(root, **{key: value})
    assert line.startswith("model.yaml:")
    assert f"one: run_example_valid.params.others.{key}: " in line
    assert line.endswith("leaves run_dir 'model'; write a path inside it")


def test_no_export_value_leaves_its_folder(root: Path) -> None:
    case = copy.deepcopy(CASE)
    case["run_export"]["params"] = {"output": "/nowhere/x"}
    (line,) = lines(root, yaml.safe_dump([case]))
    assert "one: run_export.params.output: '/nowhere/x' leaves run_dir 'model'" in line


def test_non_path_values_are_kept(tmp_path: Path) -> None:
    for text in ("1e-3", "-1", "a..b", "a cat .. a dog", "x=y", "ids:N*128", "~5", "fetch:minilm/model.onnx", 5, True):
        assert leaving(text, str(tmp_path)) is None


def test_surrogate_is_not_a_path(root: Path) -> None:
    (line,) = lines(root, yaml.safe_dump([CASE]).replace("topk: 1", 'topk: "\\ud800"', 1))
    assert "has characters that cannot be used" in line


def test_thousands_of_unknown_keys_are_a_few_lines(root: Path) -> None:
    found = lines(root, "- case_name: one\n" + "".join(f"  key{n}: {n}\n" for n in range(300)))
    assert len(found) == MOST_TROUBLES + 1
    assert found[-1].endswith("has more problems than are shown; correct those first")
    twice = lines(root, "- case_name: one\n" + "  a: 1\n" * 300)
    assert len(twice) == MOST_TROUBLES


def test_a_name_of_thousands_of_letters_is_refused(root: Path) -> None:
    (line,) = lines(root, yaml.safe_dump([CASE | {"case_name": "n" * 5000}]))
    assert "case_name: 'nnn" in line
    assert "has 5000 characters; at most 100 are allowed" in line
    assert len(line) < 300


@pytest.mark.parametrize("value", [2**31, 10**90])
def test_a_batch_has_a_limit(value: int, root: Path) -> None:
    case = copy.deepcopy(CASE)
    case["run_example_multi"]["params"]["batch_size"] = value
    (line,) = lines(root, yaml.safe_dump([case]))
    assert "is not a whole number of at most 2147483647" in line


def test_alias_bomb_does_not_affect_other_entries(root: Path) -> None:
    bomb = "- case_name: two\n  b0: &b0 [x, x, x, x, x, x, x, x, x]\n"
    bomb += "".join(f"  b{n}: &b{n} [{', '.join([f'*b{n - 1}'] * 9)}]\n" for n in range(1, 12))
    (root / "model.yaml").write_text(yaml.safe_dump([CASE]) + bomb)
    cases, (problem,) = read_cases([root / "model.yaml"], root)
    assert [(case.name, bool(case.steps)) for case in cases] == [("one", True), ("two", False)]
    assert "its aliases stand for more than" in str(problem.finding)


def test_thousands_of_entries_are_read_quickly(root: Path) -> None:
    (line,) = lines(root, "- a\n" * 2001)
    assert line == "model.yaml: model-yaml: has 2001 cases; 2000 are read; split the file"
    found = lines(root, "- a: [\n" * 100 + yaml.safe_dump([CASE]))
    assert len(found) == 100
    assert found[7].startswith("model.yaml:")


def test_a_command_line_has_a_limit(root: Path) -> None:
    (line,) = of_case(root, names=["n" * 7000] * 15)
    assert "others: has more than 100000 characters, more than a command line takes" in line


def test_pipe_is_rejected_as_case_file(root: Path) -> None:
    import os

    os.mkfifo(root / "pipe")
    _, (problem,) = read_cases([root / "pipe"], root)
    assert "cannot be read: it is a pipe" in str(problem.finding)
