"""A model's name stands for its case: its file, its task and its data, in every tool; and one flag sets sizes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, strategies as st
from support import DIGITS, ROOT, SaveOnnx

from engine import ConfigError
from toolkit.arguments import _one_each
from toolkit.cli import execute
from toolkit.commands import compare, overflow
from toolkit.model_arguments import sample_request
from toolkit.own_samples import own_case, own_samples
from utils.tasks.classification.task import Classification

Report = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def report(tmp_path: Path) -> Report:
    """Run a command and return its exit code and its JSON."""

    def run(*words: str) -> tuple[int, dict[str, Any]]:
        file = tmp_path / "result.json"
        place = words.index("--") if "--" in words else len(words)  # what follows is for the task
        return execute([*words[:place], "--json", str(file), *words[place:]]), json.loads(
            file.read_text(encoding="utf-8")
        )

    return run


def write_zoo(root: Path, data: str, script: str = "") -> Path:
    """Write a repository of one model with the network of digits, whose case has this data path."""
    folder = root / "example" / "classification" / "tiny"
    folder.mkdir(parents=True)
    (folder / "tiny_dyn.onnx").symlink_to(DIGITS / "digits_dyn.onnx")
    lines = [
        "from utils.pipeline import cli",
        "from utils.tasks.classification.task import Classification",
        'if __name__ == "__main__":',
        '    cli.valid(Classification, ckpt="tiny_dyn.onnx", data_path="nothing", input_size=32)',
    ]
    (folder / "example_valid.py").write_text(script or "\n".join(lines) + "\n", encoding="utf-8")
    (root / "model_config").mkdir()
    params = {"ckpt": "tiny_dyn.onnx", "batch_size": 4, "data_path": data, "target": "sdaa", "dtype": "float16"}
    step = {"run_file": "example_valid.py", "params": {**params, "others": {"topk": 2}}}
    case: dict[str, Any] = {"case_name": "tiny", "run_dir": "TecoInference/example/classification/tiny"}
    (folder / "export_onnx.py").write_text("", encoding="utf-8")
    case["run_export"] = {"run_file": "export_onnx.py"}
    case |= {f"run_example_{name}": step for name in ("valid", "single", "multi")}
    (root / "model_config" / "model.yaml").write_text(yaml.safe_dump([case], sort_keys=False), encoding="utf-8")
    return folder


def test_the_case_gives_task_flags_and_data() -> None:
    found = own_case("digits")
    assert found is not None
    own = own_samples(*found, ["--topk", "3"])
    assert own.case == "digits"
    assert own.request.task is Classification
    assert [Path(path) for path in own.data] == [DIGITS / "data" / "val"]
    opt = own.request.options(DIGITS / "digits_dyn.onnx", own.data, 8, {})
    assert (opt.topk, opt.input_size, opt.batch_size) == (3, [32], 8)  # given, of the script and case, asked


def test_a_file_has_no_case() -> None:
    assert own_case(str(DIGITS / "digits_dyn.onnx")) is None
    assert own_case("nothing.onnx") is None


def test_a_script_that_fails_is_one_line(tmp_path: Path) -> None:
    write_zoo(tmp_path, "data", "import nothing_like_this\ncli.valid()\n")
    with pytest.raises(ConfigError, match=r"example_valid.py cannot be imported: ModuleNotFoundError"):
        sample_request(_arguments("tiny"), [], tmp_path)


def _arguments(model: str, **given: Any) -> Any:
    from argparse import Namespace

    empty = {"task": None, "data": [], "shape": [], "dim": [], "model_name": "", "ckpt": [], "samples": None}
    return Namespace(model=model, batch_size=2, **{**empty, **given})


@pytest.mark.parametrize("flag", ["model_name", "ckpt"])
def test_flags_of_a_task_still_need_it(flag: str) -> None:
    with pytest.raises(ConfigError, match=f"--{flag} needs a task"):
        sample_request(_arguments("digits", **{flag: ["a=b"]}), [], ROOT)


def test_overflow_reads_the_data_of_the_case(report: Report) -> None:
    code, found = report("overflow", "digits", "--samples", "6")
    assert code == 0
    assert Path(found["facts"]["data"]) == DIGITS / "data" / "val"
    assert found["rows"][0]["trigger"] in ("", None) or "random" not in found["rows"][0]["trigger"]


@pytest.mark.slow
def test_fix_needs_no_data_of_a_case(report: Report) -> None:
    code, found = report("fix", "digits", "--samples", "24", "--", "--topk", "2")
    assert (code, found["verdict"]) == (0, "passes")
    assert found["facts"]["metric"] == "top2"
    assert Path(found["facts"]["data"]) == DIGITS / "data" / "val"


def test_fix_of_a_file_needs_data() -> None:
    with pytest.raises(ConfigError, match="required: --data"):
        execute(["fix", str(DIGITS / "digits_dyn.onnx")])


def test_profile_takes_its_sizes_from_the_case(report: Report) -> None:
    code, found = report("profile", "language_id")
    assert (code, found["sizes"]) == (0, "samples")


def test_compare_and_dump_feed_the_first_sample(report: Report, tmp_path: Path) -> None:
    code, found = report("dump", "once", "digits", "--name", "node_linear", "--out", str(tmp_path / "dump"))
    assert code == 0
    assert found["facts"]["inputs"].startswith("the first call over the data of case digits")
    code, other = report(
        "dump", "once", "digits", "--name", "node_linear", "--out", str(tmp_path / "d2"), "--seed", "3"
    )
    assert other["facts"]["inputs"] == "random (standard normal, seed 3)"


def test_a_float16_file_is_compared_with_its_float32_file(report: Report) -> None:
    code, found = report("compare", "digits", "--no_isolated")
    assert code == 0
    assert found["facts"]["reference (a)"] == f"onnx float32 of {DIGITS / 'digits_dyn.onnx'}"
    worst = max(row["diff2"] for row in found["rows"] if row.get("diff2") is not None)
    assert 1e-4 < worst < 1e-2  # the rounding to float16, which a float16 reference shares


def test_a_float16_file_alone_is_compared_with_float32_computation(report: Report, tmp_path: Path) -> None:
    alone = tmp_path / "net.onnx"
    alone.write_bytes((DIGITS / "digits_float16_dyn.onnx").read_bytes())
    code, found = report("compare", str(alone), "--no_isolated")
    assert code == 0
    assert found["facts"]["reference (a)"] == "onnx float32 of net.onnx with float32 computation"
    worst = max(row["diff2"] for row in found["rows"] if row.get("diff2") is not None)
    assert 1e-5 < worst < 1e-2
    _, chosen = report("compare", str(alone), "--no_isolated", "--a_dtype", "float16")
    assert chosen["facts"]["reference (a)"] == "onnx float16"


def test_data_that_are_missing_are_reported_and_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_zoo(tmp_path, "not_there")
    assert compare.main(["tiny", "--b", "onnx"], tmp_path) == 0
    printed = capsys.readouterr().out
    assert "inputs are random" in printed
    assert "the samples of the case cannot be used" in printed
    assert overflow.main(["tiny"], tmp_path) == 0
    assert "the samples of case tiny cannot be used" in capsys.readouterr().out


TWO = "g (float[N,A] x, float[N,B] y) => (float[N,A] p, float[N,B] q) { p = Neg(x) q = Neg(y) }"


@pytest.mark.parametrize(
    "sizes",
    [
        ["--dim", "A=3", "B=5"],
        ["--dim", "A=3", "--dim", "B=5"],
        ["--dim", "x=1x3", "y=1*5"],
        ["--dim", "x=1x3", "--dim", "B=5"],
        ["--shape", "x=1,3", "--shape", "y=1,5"],
    ],
)
@pytest.mark.parametrize(
    "command", [["compare"], ["overflow"], ["profile"], ["ops"], ["dump", "full"]], ids=lambda words: words[0]
)
def test_one_flag_sets_sizes_everywhere(
    command: list[str], sizes: list[str], save_onnx: SaveOnnx, tmp_path: Path, report: Report
) -> None:
    path = str(save_onnx(TWO))
    more = ["--out", str(tmp_path / "dump")] if command[0] == "dump" else []
    code, found = report(*command, *sizes, path, *more)
    assert code == 0
    if command[0] == "profile":
        assert found["inputs"] == {"x": [1, 3], "y": [1, 5]}
    if command[0] == "ops":
        assert {row["shapes"] for row in found["rows"]} == {"1x3; 1x5"}


def test_a_missing_size_is_asked_for_by_the_flag(save_onnx: SaveOnnx) -> None:
    with pytest.raises(ConfigError, match=r"--dim x=1x128, or by name: --dim A=128"):
        execute(["compare", str(save_onnx(TWO))])


@pytest.mark.parametrize(("words", "message"), [(["--dim", "C=3"], "no dimension 'C'"), (["--dim", "z=1x2"], "'z'")])
def test_an_unknown_size_is_one_line(words: list[str], message: str, save_onnx: SaveOnnx) -> None:
    with pytest.raises(ConfigError, match=message):
        execute(["compare", str(save_onnx(TWO)), *words])


@given(st.lists(st.from_regex(r"[a-z]{1,3}=[0-9]{1,2}(,[0-9]{1,2})?", fullmatch=True), min_size=1, max_size=4))
def test_values_after_one_flag_are_those_of_several(values: list[str]) -> None:
    several = [word for value in values for word in ("--dim", value)]
    assert _one_each(["m.onnx", "--dim", *values, "--other"], "--dim") == ["m.onnx", *several, "--other"]
    assert _one_each(["--dim", *values, "m.onnx", values[0]], "--dim") == [*several, "m.onnx", values[0]]
    assert _one_each(several, "--dim") == several


def test_arrays_of_a_file_keep_their_meaning(save_onnx: SaveOnnx, tmp_path: Path, report: Report) -> None:
    np.savez(tmp_path / "data.npz", x=np.ones((2, 3), np.float32), y=np.ones((2, 5), np.float32))
    code, found = report("overflow", str(save_onnx(TWO)), "--data", str(tmp_path / "data.npz"))
    assert (code, found["facts"]["batch"]) == (0, "8")
