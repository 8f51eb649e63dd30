"""PassOptions: valid and invalid pass files."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import helper

from engine.base import PASS_PATH, PassError
from engine.passes.options import FLOAT32_OPS, NORMALISATION_OPS, PassOptions


def write(folder: Path, text: str, name: str = "my_pass.py") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_no_file_gives_defaults() -> None:
    options = PassOptions.load(None)
    assert options == PassOptions()
    assert options.use_passes is None
    assert options.need_convert


def test_every_name_is_read(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "from engine.base import PASS_PATH\n"
        "def use_passes(model): return model\n"
        "def convert_judge(node): return node.op_type != 'Softmax'\n"
        "need_convert, convert_all, normalized = False, True, False\n"
        "skip_ops = ['Exp', 'Log']\nskip_input_name = 'ids'\nsomething_else = 3\n",
    )
    options = PassOptions.load(path)
    assert options.use_passes is not None
    assert options.use_passes("same") == "same"  # type: ignore[arg-type]
    assert options.convert_judge is not None
    assert (options.need_convert, options.convert_all, options.normalized) == (False, True, False)
    assert options.skip_ops == {"Exp", "Log"}
    assert options.skip_input_name == {"ids"}
    assert options.path == path


@pytest.mark.parametrize("value", ["None", "[]", "()", "set()"])
def test_empty_lists(tmp_path: Path, value: str) -> None:
    assert PassOptions.load(write(tmp_path, f"skip_ops = {value}")).skip_ops == frozenset()


def test_two_files_with_the_same_name_do_not_conflict(tmp_path: Path) -> None:
    for folder, op in (("a", "Exp"), ("b", "Log")):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder, f"skip_ops = {op!r}")
    assert PassOptions.load(tmp_path / "a" / "my_pass.py").skip_ops == {"Exp"}
    assert PassOptions.load(tmp_path / "b" / "my_pass.py").skip_ops == {"Log"}


def test_a_pass_file_may_define_a_dataclass(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass A:\n    b: int = 1\n",
    )
    assert PassOptions.load(path).need_convert


def test_all_passes_of_the_zoo_load() -> None:
    for path in PASS_PATH.rglob("*_pass.py"):
        assert PassOptions.load(path).use_passes is not None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def use_passes(:", ("line 1", "SyntaxError")),
        ("import no_such_package_at_all", ("ModuleNotFoundError", "no_such_package_at_all")),
        ("1 / 0", ("ZeroDivisionError",)),
        ("use_passes = 3", ("use_passes = 3", "def use_passes")),
        ("convert_judge = 'yes'", ("convert_judge = 'yes'",)),
        ("need_convert = 'no'", ("need_convert = 'no'", "True or False")),
        ("normalized = 1", ("normalized = 1",)),
        ("skip_ops = 5", ("skip_ops = 5", "list of names")),
        ("skip_input_name = [1]", ("skip_input_name = [1]",)),
        ("layout = 10 ** 5000", ("layout = a number of thousands of digits",)),
        ("x = ['x']\nfor _ in range(200):\n    x = [x] * 9\nuse_passes = x", ("use_passes = [[[",)),
        ("import sys\nsys.exit(5)", ("cannot be imported: SystemExit: 5",)),
    ],
)
def test_invalid_files_raise_one_line(tmp_path: Path, text: str, words: tuple[str, ...]) -> None:
    path = write(tmp_path, text)
    with pytest.raises(PassError) as caught:
        PassOptions.load(path)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    assert all(word in message for word in words), message


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(PassError, match="does not exist"):
        PassOptions.load(tmp_path / "none.py")


def test_not_python(tmp_path: Path) -> None:
    with pytest.raises(PassError, match=r"my_pass\.txt .*\.py"):
        PassOptions.load(write(tmp_path, "skip_ops = 'Exp'", "my_pass.txt"))


RELU = helper.make_node("Relu", ["x"], ["y"], name="relu_1")


def test_default_float32_operators() -> None:
    options = PassOptions()
    assert not options.keeps_float32(RELU)
    assert all(options.keeps_float32(helper.make_node(op, ["x"], ["y"])) for op in FLOAT32_OPS)
    assert not any(options.keeps_float32(helper.make_node(op, ["x"], ["y"])) for op in NORMALISATION_OPS)
    assert options.keeps_float32(helper.make_node("Scaler", ["x"], ["y"], domain="ai.onnx.ml"))


def test_convert_all_only_ignores_the_default_operators() -> None:
    options = PassOptions(convert_all=True, skip_ops=frozenset({"Resize"}), normalized=False)
    assert not options.keeps_float32(helper.make_node("CumSum", ["x"], ["y"]))
    assert options.keeps_float32(helper.make_node("Resize", ["x"], ["y"]))
    assert options.keeps_float32(helper.make_node("LayerNormalization", ["x"], ["y"]))


def test_skip_ops_accepts_types_and_names() -> None:
    assert PassOptions(skip_ops=frozenset({"Relu"})).keeps_float32(RELU)
    assert PassOptions(skip_ops=frozenset({"relu_1"})).keeps_float32(RELU)
    assert not PassOptions(skip_ops=frozenset({"relu_2"})).keeps_float32(RELU)


def test_need_convert_false_keeps_everything() -> None:
    assert PassOptions(need_convert=False, convert_judge=lambda _: True).keeps_float32(RELU)


def test_convert_judge_decides() -> None:
    options = PassOptions(convert_judge=lambda n: n.name != "relu_1")
    assert options.keeps_float32(RELU)
    assert not options.keeps_float32(helper.make_node("Relu", ["x"], ["y"], name="relu_2"))


def test_invalid_judges() -> None:
    with pytest.raises(PassError, match="returned None; return True"):
        PassOptions(convert_judge=lambda _: None).keeps_float32(RELU)  # type: ignore[arg-type,return-value]
    with pytest.raises(PassError, match=r"relu_1.*KeyError"):
        PassOptions(convert_judge=lambda _: {}["a"]).keeps_float32(RELU)
