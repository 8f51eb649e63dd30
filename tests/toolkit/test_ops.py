from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from support import DIGITS, SaveOnnx

from engine.base import ConfigError
from engine.ort import HostSession
from toolkit.cli import execute
from toolkit.commands.ops import main
from toolkit.ops.judge import Finding, judge_file, summary
from toolkit.ops.table import load_table, targets

SDAA = load_table("sdaa")
CUSTOM = """<ir_version: 8, opset_import: ["" : 17, "custom" : 1]>
g (float[N,4] x) => (float[N,4] y) { a = Relu(x)
 y = custom.Add <y = 1> (a) }"""
GELU = """<ir_version: 9, opset_import: ["" : 20]>
g (float[2,4] x) => (float[2,4] y) { y = Gelu(x) }"""


def by_op(found: list[Finding]) -> dict[str, Finding]:
    return {one.need.op: one for one in found}


def table(tmp_path: Path, operators: str, dtypes: str = "{}") -> Path:
    path = tmp_path / "own.yaml"
    path.write_text(f"schema_version: 1\ntarget: sdaa\noperators: {operators}\ndtypes: {dtypes}\n", encoding="utf-8")
    return path


def test_the_tables_can_be_read_and_say_where_each_entry_is_from() -> None:
    assert targets() == ["onnx", "sdaa"]
    for target in targets():
        found = load_table(target)
        assert all(entry.source for entry in (*found.operators.values(), *found.dtypes.values()))


def test_a_model_of_the_zoo_runs_as_stated_or_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["ops", "digits"]) == 0
    text = capsys.readouterr().out
    assert "sdaa has everything the model needs" in text
    found = by_op(judge_file(DIGITS / "digits.onnx", SDAA))
    assert found["Conv"].level == "stated"
    assert found["Conv"].need.attributes
    assert found["Conv"].need.shapes


def test_a_custom_operator_is_missing_and_named_with_its_remedy(save_onnx: SaveOnnx) -> None:
    found = by_op(judge_file(save_onnx(CUSTOM), SDAA))
    assert found["Relu"].level == "stated"
    assert found["custom::Add"].level == "missing"
    assert "custom operator" in found["custom::Add"].fix
    assert found["custom::Add"].need.attributes == {"y": "1"}
    assert summary(list(found.values()), "sdaa").startswith("sdaa lacks custom::Add")


def test_an_operator_the_table_lacks_is_rewritten_and_the_rewrite_is_true(save_onnx: SaveOnnx, tmp_path: Path) -> None:
    own = load_table("sdaa", table(tmp_path, "{Gelu: {level: missing, source: us}}"))
    path = save_onnx(GELU)
    found = by_op(judge_file(path, own))["Gelu"]
    assert found.level == "missing"
    assert found.rewrite is not None
    assert "Erf" in found.rewrite.operators
    x = np.random.default_rng(5).standard_normal((2, 4)).astype(np.float32)
    for one, other in zip(HostSession(found.rewrite.model).run([x]), HostSession(path).run([x]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_no_rewrite_leads_to_another_operator_that_is_missing(save_onnx: SaveOnnx, tmp_path: Path) -> None:
    own = load_table("sdaa", table(tmp_path, "{Gelu: {level: missing}, Erf: {level: missing}}"))
    found = by_op(judge_file(save_onnx(GELU), own))["Gelu"]
    assert found.rewrite is None
    assert "custom operator" in found.fix


def test_a_dtype_without_a_kernel_is_computed_in_float32(save_onnx: SaveOnnx) -> None:
    path = save_onnx("g (double[1,2,5,5] x, double[1,2,3,3] w) => (double[1,1,3,3] y) { y = Conv(x, w) }")
    found = by_op(judge_file(path, SDAA))["Conv"]
    assert found.level == "missing"
    assert found.need.reads == ("float64", "float64")
    assert found.rewrite is not None
    assert found.rewrite.operators == ("Cast", "Conv")
    assert found.rewrite.against == "ONNX's reference"


def test_nms_stays_on_the_host_and_sizes_that_follow_from_data_are_named(save_onnx: SaveOnnx) -> None:
    path = save_onnx(
        """g (float[1,6,4] boxes, float[1,1,6] scores) => (int64[M,3] y)
        <int64 most={3}> { y = NonMaxSuppression(boxes, scores, most) }"""
    )
    found = by_op(judge_file(path, SDAA))["NonMaxSuppression"]
    assert (found.level, found.dynamic) == ("host", True)
    assert "postprocessing" in found.fix


def test_bodies_sequences_and_strings_are_looked_into(save_onnx: SaveOnnx) -> None:
    path = save_onnx(
        """g (bool c, float[2] x, string[2] s) => (float[2] y, string[2] t) {
        y = If (c) <then_branch = a () => (float[2] p) { p = Abs(x) },
            else_branch = b () => (float[2] q) { q = Neg(x) }>
        t = Identity(s) }"""
    )
    found = by_op(judge_file(path, SDAA))
    assert {"If", "Abs", "Neg", "Identity"} <= found.keys()
    assert found["Identity"].level == "host"
    assert "/" in found["Abs"].need.nodes[0]
    sequence = save_onnx(
        "g (float[2] x) => (float[2] y) { s = SequenceConstruct(x, x)\n y = ConcatFromSequence <axis=0> (s) }"
    )
    assert by_op(judge_file(sequence, SDAA))["SequenceConstruct"].need.writes == ("sequence",)


def test_files_hold_the_table(save_onnx: SaveOnnx, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {form: tmp_path / f"out.{form}" for form in ("json", "csv", "html")}
    flags = [text for form, file in files.items() for text in (f"--{form}", str(file))]
    own = table(tmp_path, "{Gelu: {level: missing, source: us}}")
    rewrites = ["--rewrites", str(tmp_path / "rewrites"), "--table", str(own)]
    assert main([str(save_onnx(GELU)), *flags, *rewrites]) == 1
    written = json.loads(files["json"].read_text(encoding="utf-8"))
    assert written["schema_version"] == 1
    assert written["rows"][0]["support"] == "missing"
    assert next(iter(csv.DictReader(files["csv"].read_text(encoding="utf-8").splitlines())))["op"] == "Gelu"
    assert "Gelu" in files["html"].read_text(encoding="utf-8")
    onnx.checker.check_model(onnx.load(tmp_path / "rewrites" / "Gelu_0.onnx"))
    assert "Gelu_0.onnx" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["x.onnx"], "does not exist"),
        (["digits", "--target", "sda"], "did you mean 'sdaa'"),
        (["digits", "--table", "nothing.yaml"], "no support table"),
        (["no.module:name"], "cannot import no.module"),
        (["json:loads"], "json:loads"),
        (["nothing.py:name"], "does not exist"),
    ],
)
def test_bad_input_is_one_clear_line(arguments: list[str], message: str) -> None:
    pytest.importorskip("torch")
    with pytest.raises(Exception, match=message) as caught:
        main(arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["[", "a: 1", "schema_version: 1\noperators: [1]", "schema_version: 1\noperators: {Conv: {level: good}}"]
)
def test_a_broken_table_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"own\.yaml"):
        load_table("sdaa", path)


MODULE = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.act = torch.nn.Conv2d(3, 4, 3), torch.nn.GELU()
    def forward(self, x):
        return self.act(self.conv(x))
@torch.library.custom_op("opstest::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2
@twice.register_fake
def _(x):
    return torch.empty_like(x)
class Odd(torch.nn.Module):
    def forward(self, x):
        return torch.ops.opstest.twice(torch.relu(x))
"""


@pytest.mark.torch
def test_a_torch_module_before_its_export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    file = tmp_path / "net.py"
    file.write_text(MODULE, encoding="utf-8")
    assert main([f"{file}:Net"]) == 0
    assert "Conv (nn.Conv2d)" in capsys.readouterr().out
    out = tmp_path / "out.json"
    assert main([f"{file}:Net", "--shape", "x=1,3,8,8", "--json", str(out)]) == 0
    written = json.loads(out.read_text(encoding="utf-8"))
    assert {row["op"] for row in written["rows"]} >= {"Conv", "Gelu"}
    assert any("convolution" in one["name"] or "conv2d" in one["name"] for one in written["torch_operators"])
    assert main([f"{file}:Odd", "--shape", "x=1,3,8,8"]) == 1
    text = capsys.readouterr().out
    assert "opstest.twice.default" in text
    assert "lacks opstest.twice.default" in text
