"""Tests of reading model.yaml: accepted values, and messages for invalid ones."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings, strategies as st

from engine import ConfigError
from model_config.cases import case as model_case
from model_config.cases.config import (
    PARAMETERS,
    REQUIRED,
    ROOT,
    STEPS,
    AccuracyRule,
    Case,
    Command,
    Problem,
    load_cases,
    read_cases,
    select_cases,
)
from utils.pipeline.flags import options

PARAMS = {"ckpt": "m.onnx", "batch_size": 4, "data_path": "data", "target": "onnx", "dtype": "float32"}


def good_case(name: str = "one") -> dict[str, Any]:
    steps = {key: {"run_file": "run.py", "params": dict(PARAMS)} for key in STEPS.values()}
    return {"case_name": name, "run_dir": "example/a/b", **steps, "run_export": {"run_file": "run.py"}}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "repo/example/a/b"
    folder.mkdir(parents=True)
    (folder / "run.py").touch()
    return tmp_path / "repo"


def load(root: Path, data: Any, name: str = "model.yaml") -> list[Any]:
    file = root / name
    file.write_text(data if isinstance(data, str) else yaml.safe_dump(data, sort_keys=False, allow_unicode=True))
    return load_cases([file], root)


def read(root: Path, text: str) -> tuple[list[Case], list[Problem]]:
    file = root / "model.yaml"
    file.write_text(text)
    return read_cases([file], root)


def problems(root: Path, data: Any) -> list[str]:
    """Return the problems of a file, one line each, without the file's name."""
    with pytest.raises(ConfigError) as caught:
        load(root, data)
    lines = str(caught.value).splitlines()
    assert all(re.match(r"model\.yaml(:\d+)?: model-yaml: .*; .", line) for line in lines), lines
    return [line.split(": model-yaml: ", 1)[1] for line in lines]


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return a valid case with one entry set; ``...`` removes it."""
    case = good_case()
    *above, last = path.split(".")
    entry = case
    for key in above:
        if not isinstance(entry[key], dict):
            entry[key] = {}
        entry = entry[key]
    if value is ...:
        del entry[last]
    else:
        entry[last] = value
    return case


def test_repository_files_are_valid() -> None:
    cases = load_cases([ROOT / "model_config/model.yaml", ROOT / "contrib/model_config/model.yaml"])
    assert {"digits", "resnet18_random"} <= {case.name for case in cases}
    folders = {path.parent.relative_to(ROOT).as_posix() for path in ROOT.glob("**/example/*/*/example_valid.py")}
    assert {case.run_dir for case in cases} == folders, "every model has a case"


def test_contrib_example_is_valid_except_run_dir(root: Path) -> None:
    text = (ROOT / "contrib/model_config/model.yaml").read_text().split("#\n", 1)[1]
    found = problems(root, "\n".join(line.removeprefix("# ") for line in text.splitlines()))
    assert len(found) == 1
    assert "run_dir: folder 'TecoInference/contrib/example/classification/googlenet' does not exist" in found[0]


def test_documented_example_is_valid() -> None:
    text = (
        (ROOT / "model_config/README.md")
        .read_text()
        .partition("## The format")[2]
        .split("```yaml\n", 1)[1]
        .split("```", 1)[0]
    )
    (shown,), known = yaml.safe_load(text), yaml.safe_load((ROOT / "model_config/model.yaml").read_text())
    assert shown == known[0]


def test_arguments_follow_the_files_order_and_spelling(root: Path) -> None:
    case = good_case()
    case["run_example_valid"]["params"]["others"] = {"skip_postprocess": True, "input_size": [224, 192], "topk": 1}
    case["run_export"]["params"] = {"arch": "resnet18"}
    (read,) = load(root, [case])
    by_name = {step.name: step for step in read.steps}
    assert list(by_name) == list(STEPS)
    assert by_name["export"].arguments == ["--arch", "resnet18"]
    expected = "--ckpt m.onnx --batch_size 4 --data_path data --target onnx --dtype float32"
    assert by_name["single"].arguments == expected.split()
    assert by_name["valid"].arguments == [
        *expected.split(), "--skip_postprocess", "True", "--input_size", "224", "192", "--topk", "1",
    ]  # fmt: skip


@pytest.mark.parametrize("run_dir", ["example/a/b", "TecoInference/example/a/b", "./example/a/b/"])
def test_run_dir_starts_at_the_root_with_or_without_the_historical_prefix(root: Path, run_dir: str) -> None:
    assert load(root, [changed("run_dir", run_dir)])[0].run_dir == "example/a/b"


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("case_name", ..., "case 1 of model.yaml: case_name: is missing"),
        ("case_name", "", "case 1 of model.yaml: case_name: is empty"),
        ("case_name", 7, "7: case_name: has the wrong type (int)"),
        ("case_name", {"a": 1}, "case 1 of model.yaml: case_name: has the wrong type (dict)"),
        ("case_name", "../up", "case_name: '../up' must consist of letters"),
        ("run_dir", ..., "one: run_dir: is missing"),
        ("run_dir", None, "run_dir: is empty"),
        ("run_dir", "/etc", "run_dir: '/etc' leaves the repository"),
        ("run_dir", "example/../..", "leaves the repository"),
        ("run_dir", "TecoInference/..", "leaves the repository"),
        ("run_dir", ".", "is the whole repository"),
        ("run_dir", "TecoInference", "is the whole repository"),
        ("run_dir", "example/a/c", "folder 'example/a/c' does not exist"),
        ("run_dir", "x" * 5000, "does not exist"),
        ("run_export", ..., "one: run_export: is missing"),
        ("run_export", "run.py", "run_export: has the wrong type (str)"),
        ("run_export.params", {}, "run_export.params: is empty"),
        ("run_export.params", {"--arch": 1}, "is not the name of a command-line flag"),
        ("run_export.params", {"arch": {"a": 1}}, "run_export.params.arch: has the wrong type (dict)"),
        ("run_exprot", {}, "run_exprot: is an unknown key; did you mean 'run_export'?"),
        ("run_example_valid.run_file", "../run.py", "run_example_valid.run_file: '../run.py' leaves run_dir"),
        ("run_example_valid.run_file", "/bin/sh", "leaves run_dir"),
        ("run_example_valid.run_file", "gone.py", "file 'gone.py' does not exist in run_dir"),
        ("run_example_valid.run_file", "a\0b", "has characters that cannot be used"),
        ("run_example_valid.params", ..., "run_example_valid.params: is missing"),
        ("run_example_valid.params", [1], "run_example_valid.params: has the wrong type (list)"),
        ("run_example_valid.params.topk", 1, "run_example_valid.params.topk: is an unknown key"),
        ("run_example_valid.params.batch_size", 0, "batch_size: 0 is not a whole number of at least 1"),
        ("run_example_valid.params.batch_size", True, "batch_size: True is not a whole number"),
        ("run_example_valid.params.batch_size", "64", "batch_size: '64' is not a whole number"),
        ("run_example_valid.params.batch_size", None, "batch_size: is empty"),
        (
            "run_example_valid.params.dtype",
            "fp16",
            "dtype: 'fp16' is unknown; use one of: float32, float16, bfloat16, int8",
        ),
        ("run_example_valid.params.ckpt", "../m.onnx", "params.ckpt: '../m.onnx' leaves run_dir 'example/a/b'"),
        ("run_example_valid.params.ckpt", "/m.onnx", "params.ckpt: '/m.onnx' leaves run_dir 'example/a/b'"),
        ("run_example_valid.params.data_path", "../../../../x", "data_path: '../../../../x' leaves the repository"),
        ("accuracy", {}, "accuracy: is empty; give some of tolerance, "),
        ("accuracy", [1], "accuracy: has the wrong type (list)"),
        ("accuracy", {"tolerence": 1}, "accuracy.tolerence: is an unknown key; did you mean 'tolerance'?"),
        ("accuracy", {"tolerance": 0}, "accuracy.tolerance: 0 is not between 0 and 1"),
        ("accuracy", {"tolerance": "0.1 %"}, "accuracy.tolerance: '0.1 %' is not a finite number"),
        ("accuracy", {"tolerance": True}, "accuracy.tolerance: True is not a finite number"),
        ("accuracy", {"reference": float("nan")}, "accuracy.reference: nan is not a finite number"),
        ("accuracy", {"reference": None}, "accuracy.reference: is empty"),
        ("accuracy", {"reference_source": ""}, "accuracy.reference_source: is empty"),
        ("accuracy", {"baseline_ckpt": "../m.onnx"}, "accuracy.baseline_ckpt: '../m.onnx' leaves run_dir"),
        ("accuracy", {"gate": "lenient"}, "accuracy.gate: 'lenient' is unknown; use one of: specification, strict"),
        ("accuracy", {"secondary_metrics": "top5"}, "accuracy.secondary_metrics: has the wrong type (str)"),
        ("run_example_valid.params.target", None, "target: is empty; the null engine is written 'null', in quotes"),
        ("run_example_valid.params.others", {}, "others: is empty"),
        ("run_example_valid.params.others", {"topk": None}, "others.topk: is empty"),
        ("run_example_valid.params.others", {"ckpt": "x"}, "others.ckpt: is a parameter of every step"),
        ("run_example_valid.params.others", {"data_path": "x"}, "others.data_path: is a parameter of every step"),
        ("run_example_valid.params.ckpt", {"det": "../m.onnx"}, "params.ckpt.det: '../m.onnx' leaves run_dir"),
        ("run_example_valid.params.ckpt", {"det": "a", "rec": ""}, "params.ckpt.rec: is empty; write a path"),
        ("run_example_valid.params.ckpt", {"det": 3}, "params.ckpt.det: has the wrong type (int)"),
        ("run_example_valid.params.ckpt", {"det": {"a": "b"}}, "params.ckpt.det: has the wrong type (dict)"),
        ("run_example_valid.params.ckpt", {"a b": "m.onnx"}, "params.ckpt: 'a b' is not a valid name; use letters"),
        ("run_example_valid.params.ckpt", {1: "m.onnx"}, "params.ckpt: 1 is not a valid name"),
        (
            "run_example_valid.params.ckpt",
            ["a", "b"],
            "(list); write a path, or a 'name: path' line",
        ),
        ("run_example_valid.params.data_path", {"q": "../../../../x"}, "data_path.q: '../../../../x' leaves the repo"),
        ("accuracy", {"baseline_ckpt": {"det": "/m"}}, "accuracy.baseline_ckpt.det: '/m' leaves run_dir"),
        ("run_example_valid.params.others", {1: "x"}, "others.1: is not the name of a command-line flag"),
    ],
)
def test_problem_message_has_file_case_and_key(root: Path, path: str, value: Any, expected: str) -> None:
    (line,) = problems(root, [changed(path, value)])
    assert expected in line
    assert "; " in line


@pytest.mark.parametrize("key", REQUIRED)
@pytest.mark.parametrize("value", [..., None, "", "  ", [], {}])
def test_parameters_are_required_and_never_empty(root: Path, key: str, value: Any) -> None:
    (line,) = problems(root, [changed(f"run_example_multi.params.{key}", value)])
    assert line.startswith(f"one: run_example_multi.params.{key}: is ")


@pytest.mark.parametrize("value", [None, "", "  ", [], {}])
def test_empty_data_path(root: Path, value: Any) -> None:
    (line,) = problems(root, [changed("run_example_multi.params.data_path", value)])
    assert line.startswith("one: run_example_multi.params.data_path: is empty; write a path, or a 'name: path' line")


def test_single_path_has_default_name(root: Path) -> None:
    (case,) = load(root, [good_case()])
    assert case.steps[1].ckpts == {"model": "m.onnx"}
    assert case.steps[1].data_paths == {"data": "data"}
    assert case.steps[0].ckpts == case.steps[0].data_paths == {}
    assert (model_case.MODEL, model_case.DATA) == (options.MODEL, options.DATA)


def test_several_models_and_data_sets_are_passed_by_name(root: Path) -> None:
    case = good_case()
    params = case["run_example_valid"]["params"]
    params |= {"ckpt": {"det": "a.onnx", "rec": "b.onnx"}, "data_path": {"queries": "q", "corpus": "/shared/corpus"}}
    step = load(root, [case])[0].steps[1]
    assert step.ckpts == {"det": "a.onnx", "rec": "b.onnx"}
    assert step.data_paths == {"queries": "q", "corpus": "/shared/corpus"}
    data = "--data_path queries=q corpus=/shared/corpus"
    expected = f"--ckpt det=a.onnx rec=b.onnx --batch_size 4 {data} --target onnx --dtype float32"
    assert step.arguments == expected.split()
    rule = {"baseline_ckpt": {"det": "a.onnx", "rec": "c.onnx"}}
    assert load(root, [case | {"accuracy": rule}])[0].accuracy == AccuracyRule(**rule)


def test_an_environment_has_no_data_path(root: Path) -> None:
    step = load(root, [changed("run_example_valid.params.data_path", ...)])[0].steps[1]
    assert step.data_paths == {}
    expected = "--ckpt m.onnx --batch_size 4 --target onnx --dtype float32"
    assert step.arguments == expected.split()


def test_line_of_named_path(root: Path) -> None:
    text = yaml.safe_dump([changed("run_example_valid.params.ckpt", {"det": "a", "rec": "../b"})], sort_keys=False)
    _, (problem,) = read(root, text)
    assert text.splitlines()[problem.finding.line - 1].strip() == "rec: ../b"


def test_all_problems_are_reported_at_once(root: Path) -> None:
    first, second = changed("run_dir", "nowhere"), changed("run_example_valid.params.ckpt", "")
    second["case_name"] = "two"
    second["run_example_single"]["params"]["dtype"] = "int3"
    bad = root / "bad.yaml"
    bad.write_text("a: [")
    text = yaml.safe_dump([first, second])
    (root / "model.yaml").write_text(text)
    numbered = list(enumerate(text.splitlines(), start=1))
    (ckpt,) = (number for number, line in numbered if line.endswith("ckpt: ''"))
    (dtype,) = (number for number, line in numbered if line.endswith("dtype: int3"))
    with pytest.raises(ConfigError) as caught:
        load_cases([root / "model.yaml", bad, root / "gone.yaml"], root)
    lines = [line.replace(": model-yaml: ", " ") for line in str(caught.value).splitlines()]
    assert [re.sub(r": .*", "", line) for line in lines] == [
        "model.yaml:2 one",
        f"model.yaml:{ckpt} two",
        f"model.yaml:{dtype} two",
        "bad.yaml:1 not YAML",
        "gone.yaml cannot be read",
    ]


def test_a_case_name_is_used_once_over_all_files(root: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (root / name).write_text(yaml.safe_dump([good_case()]))
    (case,), (problem,) = read_cases([root / "a.yaml", root / "b.yaml"], root)
    assert str(problem.finding) == (
        "b.yaml:1: model-yaml: one: case_name: is used twice, first in a.yaml:1; give each case its own name"
    )
    assert (case.name, case.steps, problem.case) == ("one", (), "one")


@pytest.mark.parametrize("text", ["", "# only a comment\n", "[]"])
def test_file_without_cases(root: Path, text: str) -> None:
    cases = load(root, text)
    assert cases == []
    with pytest.raises(ConfigError, match=r"teco new DOMAIN MODEL.*--config"):
        select_cases(cases, [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: [1", "not YAML: expected"),
        ("\tx: 1", "not YAML: found character"),
        ("one: 1", "holds a mapping, not a list of cases"),
        ("just words", "holds a single value, not a list"),
        ("- just words", "case 1 of model.yaml: case: has the wrong type (str)"),
        ("-\n", "case 1 of model.yaml: case: is empty"),
        ("- a: !!python/object/apply:os.system ['true']", "not YAML: could not determine a constructor"),
        ("- a: !!bool 5", "not YAML: a value cannot be read (KeyError"),
        ("- a: 2024-13-01", "not YAML: a value cannot be read (ValueError"),
        ("- a: &x [*x]", "not YAML: a value holds itself by an alias"),
        ("[" * 20000, "not YAML: lists and mappings are nested deeper than 100"),
        ("- case_name: a\n  case_name: b", "a: case_name: is given twice; keep one of the two"),
        ("a: 1\n---\nb: 2", "not YAML"),
    ],
)
def test_malformed_files_are_refused(root: Path, text: str, expected: str) -> None:
    assert any(expected in line for line in problems(root, text))


def test_a_file_that_is_not_utf8_is_refused(root: Path) -> None:
    (root / "model.yaml").write_bytes(b"- case_name: \xff\xfe")
    with pytest.raises(ConfigError, match="byte 13 is not UTF-8"):
        load_cases([root / "model.yaml"], root)


def test_links_out_of_the_repository_or_the_folder_are_refused(root: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/run.py").touch()
    (root / "example/out").symlink_to(tmp_path / "outside")
    (root / "example/a/b/out.py").symlink_to(tmp_path / "outside/run.py")
    (root / "example/a/b/loop.py").symlink_to("loop.py")
    assert "run_dir: 'example/out' leaves the repository" in problems(root, [changed("run_dir", "example/out")])[0]
    for name, reason in (("out.py", "leaves run_dir"), ("loop.py", "does not exist")):
        assert reason in problems(root, [changed("run_example_valid.run_file", name)])[0]


def test_an_unknown_name_is_refused_with_the_nearest_one(root: Path) -> None:
    cases = load(root, [good_case("digits"), good_case("resnet")])
    assert [case.name for case in select_cases(cases, ["resnet"])] == ["resnet"]
    with pytest.raises(
        ConfigError,
        match="unknown case 'digit'; did you mean 'digits'\\? pass a case, a model or its folder: digits, resnet",
    ):
        select_cases(cases, ["digit"])


def test_invalid_case_is_listed_and_others_are_read(root: Path) -> None:
    cases, found = read(root, yaml.safe_dump([good_case("one"), changed("run_dir", "gone") | {"case_name": "bad"}]))
    assert [(case.name, len(case.steps)) for case in cases] == [("one", 4), ("bad", 0)]
    assert [problem.case for problem in found] == ["bad"]


BROKEN = {
    "not YAML": "- case_name: two\n  run_dir: [a, b\n  run_export: {\n",
    "bad indent": "- case_name: two\n  run_dir: a\n run_export: b\n",
    "open quote": "- case_name: two\n  run_dir: 'example\n",
    "given twice": "- case_name: two\n  run_dir: a\n  run_dir: b\n",
    "bad date": "- case_name: two\n  run_dir: 2024-13-01\n",
    "tag": "- case_name: two\n  run_dir: !!python/name:os.system x\n",
    "text": "- case_name: two\n  just words\n",
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_invalid_yaml_entry_does_not_affect_others(root: Path, broken: str) -> None:
    good = [yaml.safe_dump([good_case(name)], sort_keys=False) for name in ("one", "three")]
    cases, found = read(root, "# cases\n" + good[0] + broken + good[1])
    assert [(case.name, len(case.steps)) for case in cases] == [("one", 4), ("two", 0), ("three", 4)]
    assert {problem.case for problem in found} == {"two"}
    first = ("# cases\n" + good[0]).count("\n") + 1
    assert all(first <= problem.finding.line <= first + 3 for problem in found)
    assert cases[2].line == first + broken.count("\n")


def test_the_line_is_that_of_the_key(root: Path) -> None:
    text = yaml.safe_dump([changed("run_example_valid.params.dtype", "half")], sort_keys=False)
    _, (problem,) = read(root, text)
    lines = text.splitlines()
    assert lines[problem.finding.line - 1] == "      dtype: half"
    _, (problem,) = read(root, yaml.safe_dump([changed("run_example_multi.params.ckpt", ...)], sort_keys=False))
    assert lines[problem.finding.line - 1] == "    params:"


def test_the_accuracy_rule_is_read_and_has_the_specifications_defaults(root: Path) -> None:
    rule = {"tolerance": 0.002, "reference": 0.75, "reference_source": "train.py", "baseline_ckpt": "m.onnx"}
    assert load(root, [good_case()])[0].accuracy == AccuracyRule(0.001, "", None, "", 0.01, None, (), "specification")
    assert load(root, [changed("accuracy", rule)])[0].accuracy == AccuracyRule(**rule)
    old = rule | {"accept_inconclusive": "all there is"}
    assert load(root, [changed("accuracy", old)])[0].accuracy == AccuracyRule(**rule)
    own = {"gate": "strict", "secondary_metrics": ["top5"]}
    assert load(root, [changed("accuracy", own)])[0].accuracy == AccuracyRule(
        gate="strict", secondary_metrics=("top5",)
    )
    run = {"run_reference": {"run_file": "run.py", "params": {"size": 3}}}
    step = load(root, [changed("accuracy", run)])[0].accuracy.run_reference
    assert step == Command("valid", "run.py", {"size": 3})


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16", "int8"])
def test_every_precision_an_engine_may_take_is_accepted(root: Path, dtype: str) -> None:
    assert load(root, [changed("run_example_valid.params.dtype", dtype)])


def test_data_may_be_absolute_but_not_a_link_out_of_the_repository(root: Path, tmp_path: Path) -> None:
    (root / "example/a/b/shared").symlink_to(tmp_path)
    (root / "example/a/b/m.onnx").symlink_to(tmp_path / "m.onnx")
    case = good_case()
    for step in ("valid", "single", "multi"):
        case[f"run_example_{step}"]["params"] |= {"ckpt": "own.onnx", "data_path": "/data/imagenet"}
    assert load(root, [case])
    case["run_example_single"]["params"] |= {"data_path": "../b"}
    assert load(root, [case])
    case["run_example_multi"]["params"]["data_path"] = "shared"
    case["run_example_valid"]["params"]["ckpt"] = "m.onnx"
    assert problems(root, [case]) == [
        "one: run_example_valid.params.ckpt: 'm.onnx' leaves run_dir 'example/a/b'; write a path inside it",
        "one: run_example_multi.params.data_path: 'shared' leaves the repository; write the data set's absolute path",
    ]


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.dates()
DATA = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SCALARS, inner, max_size=3), max_leaves=6
)


@settings(max_examples=150, deadline=None)
@given(
    path=st.sampled_from(
        ["case_name", "run_dir", *(f"{k}{s}" for k in STEPS.values() for s in ("", ".run_file"))]
        + [f"run_example_valid.params.{k}" for k in (*PARAMETERS, "others", "extra", "ckpt.one", "data_path.one")]
    ),
    value=DATA,
)
def test_arbitrary_values_are_read_or_reported(path: str, value: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.getbasetemp() / "any"
    (root / "example/a/b").mkdir(parents=True, exist_ok=True)
    (root / "example/a/b/run.py").touch()
    refusal = ""
    words = ["something"]
    try:
        (case,) = load(root, [changed(path, value)])
        words = [word for step in case.steps for word in [step.run_file, *step.arguments]]
    except ConfigError as error:
        refusal = str(error)
    assert all(word and "\0" not in word for word in words)
    assert all(line.startswith("model.yaml:") for line in refusal.split("\n") if refusal)


@settings(max_examples=150, deadline=None)
@given(text=st.text(alphabet="-:[]{}&*!|>'\"%@`#,? \n\tab0.", max_size=40))
def test_arbitrary_text_is_read_or_reported(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.getbasetemp()
    try:
        load(root, text)
    except ConfigError as error:
        refusal = str(error)
    else:
        refusal = "model.yaml:"
    assert all(line.startswith("model.yaml:") for line in refusal.split("\n"))


@settings(max_examples=100, deadline=None)
@given(text=st.text(alphabet="-:[]{}&*!|>'\"%@`#,? \n\tab0.", max_size=30), indent=st.sampled_from(["  ", " ", ""]))
def test_arbitrary_text_does_not_affect_other_cases(
    text: str, indent: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.getbasetemp() / "beside"
    (root / "example/a/b").mkdir(parents=True, exist_ok=True)
    (root / "example/a/b/run.py").touch()
    first, third = (yaml.safe_dump([good_case(name)], sort_keys=False) for name in ("one", "three"))
    bad = "- " + text.replace("\n", f"\n{indent}") + "\n"
    cases, _ = read(root, first + bad + third)
    by_name = {case.name: len(case.steps) for case in cases}
    assert (by_name["one"], by_name["three"]) == (4, 4)


@pytest.mark.parametrize(
    ("words", "chosen"),
    [
        (["vit"], ["vit_a", "vit_b"]),  # a model with several cases
        (["classification/vit"], ["vit_a", "vit_b"]),
        (["example/classification/vit/"], ["vit_a", "vit_b"]),
        (["example/nlp"], ["bert"]),
        (["example/nlp/bert/data/train.txt"], ["bert"]),
        (["bert", "vit_b"], ["vit_b", "bert"]),
        (["."], ["vit_a", "vit_b", "bert"]),
    ],
)
def test_cases_by_model_and_path(
    words: list[str], chosen: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = {"vit_a": "example/classification/vit", "vit_b": "example/classification/vit", "bert": "example/nlp/bert"}
    for folder in folders.values():
        (tmp_path / folder / "data").mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "data/train.txt").touch()
    cases = [Case(name, folder, (), tmp_path / "model.yaml", 1) for name, folder in folders.items()]
    monkeypatch.chdir(tmp_path)
    assert [case.name for case in select_cases(cases, words, tmp_path)] == chosen
    monkeypatch.chdir(tmp_path / "example/nlp/bert")
    assert [case.name for case in select_cases(cases, ["data"], tmp_path)] == ["bert"]
    with pytest.raises(ConfigError, match="unknown case 'example/cv'"):
        select_cases(cases, ["example/cv"], tmp_path)
