from __future__ import annotations

import csv
import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from support import DIGITS, SaveOnnx

from engine import ConfigError, EngineSpec, TargetError, open_engine, registry
from engine.backends import HostSession
from toolkit.cli import execute
from toolkit.commands.ops import main
from toolkit.ops.judge import Judgement, judge_file, summary
from toolkit.ops.table import Table, load_table, targets
from toolkit.ops.trial import trial_of

SDAA = load_table("sdaa")
CUSTOM = """<ir_version: 8, opset_import: ["" : 17, "custom" : 1]>
g (float[N,4] x) => (float[N,4] y) { a = Relu(x)
 y = custom.Add <y = 1> (a) }"""
GELU = """<ir_version: 9, opset_import: ["" : 20]>
g (float[2,4] x) => (float[2,4] y) { y = Gelu(x) }"""


def judged(path: Path, own: Table = SDAA) -> dict[str, Judgement]:
    found, _ = judge_file(path, own, trial=trial_of(own.target))
    return {one.need.op: one for one in found}


def table(tmp_path: Path, operators: str, dtypes: str = "{}") -> Path:
    path = tmp_path / "own.yaml"
    path.write_text(f"schema_version: 1\ntarget: sdaa\noperators: {operators}\ndtypes: {dtypes}\n", encoding="utf-8")
    return path


def test_tables_are_valid_with_sources() -> None:
    assert targets() == ["cpu", "onnx", "sdaa"]
    for target in targets():
        found = load_table(target)
        assert all(entry.source for entry in (*found.operators.values(), *found.dtypes.values()))


def test_zoo_model_is_supported(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["ops", "digits"]) == 0
    text = capsys.readouterr().out
    assert "sdaa supports all operators" in text
    found = judged(DIGITS / "digits.onnx")
    assert found["Conv"].level == "stated"
    assert found["Conv"].need.attributes
    assert found["Conv"].need.shapes


def test_custom_operator_is_missing(save_onnx: SaveOnnx) -> None:
    found = judged(save_onnx(CUSTOM))
    assert found["Relu"].level == "stated"
    assert found["custom::Add"].level == "missing"
    assert "custom operator" in found["custom::Add"].fix
    assert found["custom::Add"].need.attributes == {"y": "1"}
    assert summary(list(found.values()), "sdaa").startswith("sdaa lacks custom::Add")


def test_missing_operator_is_rewritten(save_onnx: SaveOnnx, tmp_path: Path) -> None:
    own = load_table("sdaa", table(tmp_path, "{Gelu: {level: missing, source: us}}"))
    path = save_onnx(GELU)
    found = judged(path, own)["Gelu"]
    assert found.level == "missing"
    assert found.rewrite is not None
    assert "Erf" in found.rewrite.operators
    x = np.random.default_rng(5).standard_normal((2, 4)).astype(np.float32)
    for one, other in zip(HostSession(found.rewrite.model).run([x]), HostSession(path).run([x]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_rewrites_use_only_supported_operators(save_onnx: SaveOnnx, tmp_path: Path) -> None:
    own = load_table("sdaa", table(tmp_path, "{Gelu: {level: missing}, Erf: {level: missing}}"))
    found = judged(save_onnx(GELU), own)["Gelu"]
    assert found.rewrite is None
    assert "custom operator" in found.fix


def test_unsupported_dtype_is_computed_in_float32(save_onnx: SaveOnnx) -> None:
    path = save_onnx("g (double[1,2,5,5] x, double[1,2,3,3] w) => (double[1,1,3,3] y) { y = Conv(x, w) }")
    found = judged(path)["Conv"]
    assert found.level == "missing"
    assert found.need.reads == ("float64", "float64")
    assert found.rewrite is not None
    assert found.rewrite.operators == ("Cast", "Conv")
    assert found.rewrite.against == "ONNX's reference"


def test_definition_depending_on_weight_type(save_onnx: SaveOnnx, tmp_path: Path) -> None:
    own = load_table("sdaa", table(tmp_path, "{CastLike: {level: missing}}"))
    text = "g (float16[2] x) => (float16[2] y) <float c={1.5}> { a = CastLike(c, x)\n y = Add(a, x) }"
    rewrite = judged(save_onnx(text), own)["CastLike"].rewrite
    assert rewrite is not None
    assert rewrite.operators == ("Cast",)
    assert judged(save_onnx(text.replace("float16", "bfloat16")))["CastLike"].level == "missing"


def test_nms_is_for_the_host(save_onnx: SaveOnnx) -> None:
    path = save_onnx(
        """g (float[1,6,4] boxes, float[1,1,6] scores) => (int64[M,3] y)
        <int64 most={3}> { y = NonMaxSuppression(boxes, scores, most) }"""
    )
    found = judged(path)["NonMaxSuppression"]
    assert (found.level, found.dynamic) == ("host", True)
    assert "postprocessing" in found.fix


def test_bodies_sequences_and_strings(save_onnx: SaveOnnx) -> None:
    path = save_onnx(
        """g (bool c, float[2] x, string[2] s) => (float[2] y, string[2] t) {
        y = If (c) <then_branch = a () => (float[2] p) { p = Abs(x) },
            else_branch = b () => (float[2] q) { q = Neg(x) }>
        t = Identity(s) }"""
    )
    found = judged(path)
    assert {"If", "Abs", "Neg", "Identity"} <= found.keys()
    assert found["Identity"].level == "host"
    assert "/" in found["Abs"].need.nodes[0]
    sequence = save_onnx(
        "g (float[2] x) => (float[2] y) { s = SequenceConstruct(x, x)\n y = ConcatFromSequence <axis=0> (s) }"
    )
    assert judged(sequence)["SequenceConstruct"].need.writes == ("sequence",)


def test_output_files(save_onnx: SaveOnnx, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
        (["digits", "--table", "nothing.yaml"], "nothing.yaml does not exist"),
        (["digits", "--input_dtype", "x=int64"], "is for torch modules"),
        (["digits", "--shape", "other=1,2"], "no input 'other'"),
        (["net.py"], "net.py:NAME"),
        (["no.module:name"], "cannot import no.module"),
        (["json:loads"], "json:loads"),
        (["nothing.py:name"], "does not exist"),
    ],
)
def test_errors_are_one_line(arguments: list[str], message: str) -> None:
    pytest.importorskip("torch")
    with pytest.raises(Exception, match=message) as caught:
        main(arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "schema_version: 1\noperators: {Conv: {level: [stated]}}",
        "schema_version: 1\nnotes: 5",
        "a: &a [*a]",
        "[",
        "a: 1",
        "schema_version: 1\noperators: [1]",
        "schema_version: 1\noperators: {Conv: {level: good}}",
    ],
)
def test_invalid_table(text: str, tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"own\.yaml"):
        load_table("sdaa", path)


# ------------------------------------------------------------------------------------------------- what is looked at

STATED = {"Conv", "Relu", "MaxPool", "Add", "GlobalAveragePool", "Flatten", "Gemm"}
"""The operators of the ResNet50 that the guide has exported and run; of no others it says anything."""

BODIES = """<ir_version: 9, opset_import: ["" : 20, "custom" : 1]>
g (bool c, float[2,6] x) => (float[2,3,2] y) <int64[3] s={2,3,2}> {
    y = If (c) <
        then_branch = a () => (float[2,3,2] p) {
            p1 = If (c) <then_branch = aa () => (float[2,6] q) { q = Gelu(x) },
                         else_branch = ab () => (float[2,6] r) { r = custom.Op(x) }>
            p = Reshape(p1, s) },
        else_branch = b () => (float[2,3,2] n) { k = Constant<value = int64[3] {2,3,2}>()  n = Reshape(x, k) }> }"""


def test_stated_operators_are_those_of_resnet50() -> None:
    assert {name for name, entry in SDAA.operators.items() if entry.level == "stated"} == STATED
    assert {name for name, entry in SDAA.dtypes.items() if entry.level == "stated"} == {"float16", "float32"}
    known = [*SDAA.operators.values(), *SDAA.dtypes.values()]
    assert all(re.match(r"模型推理适配指南 \d(\.\d)+ \w", entry.source) for entry in known)


def test_every_node_of_a_body_is_tried(save_onnx: SaveOnnx) -> None:
    found = judge_file(save_onnx(BODIES), SDAA, trial=trial_of("sdaa"))[0]
    assert found[0].need.nodes == ["If_0", "If_0/If_0"]
    levels = {one.need.nodes[0]: one.level for one in found}
    assert levels == {
        "If_0": "simulated",
        "If_0/If_0/Gelu_0": "simulated",
        "If_0/If_0/Op_0": "missing",
        "If_0/Reshape_1": "simulated",
        "If_0/Constant_0": "simulated",
    }
    assert "custom" in next(one.source for one in found if one.need.op == "custom::Op")


def test_an_operator_in_a_body_is_rewritten_too(save_onnx: SaveOnnx, tmp_path: Path) -> None:
    own = load_table("sdaa", table(tmp_path, "{Gelu: {level: missing}}"))
    rewrite = judged(save_onnx(BODIES), own)["Gelu"].rewrite
    assert rewrite is not None
    assert "Erf" in rewrite.operators


def test_sequences_at_model_ends_are_for_the_host(save_onnx: SaveOnnx) -> None:
    inside = "g (float[2] x) => (float[4] y) { s = SequenceConstruct(x, x)\n y = ConcatFromSequence<axis=0>(s) }"
    path = save_onnx(inside)
    assert {one.level for one in judged(path).values()} == {"simulated"}
    with open_engine("sdaa", EngineSpec(path, dtype="float32", divided=False)) as engine:
        np.testing.assert_array_equal(engine(np.ones(2, np.float32)), np.ones(4))
    outside = "g (seq(float[2]) s, float[4] x) => (float[4] z) { y = ConcatFromSequence<axis=0>(s)\n z = Add(y, x) }"
    found = judged(save_onnx(outside))
    assert (found["ConcatFromSequence"].level, found["Add"].level) == ("host", "stated")
    assert "'s' is an input" in found["ConcatFromSequence"].source


def test_dynamic_sizes(save_onnx: SaveOnnx) -> None:
    path = save_onnx("g (float[N,C] x) => (float[N,C] y) { y = Sigmoid(x) }")
    assert "pass one: --dim x=1x1" in judge_file(path, SDAA)[1][0]
    assert judge_file(path, SDAA, shapes={"x": (1, 3)})[1] == []
    assert judge_file(path, SDAA, dims={"C": (3,)})[1] == []
    with pytest.raises(ConfigError, match="--dim D: "):
        judge_file(path, SDAA, dims={"D": (3,)})


def test_unknown_types(save_onnx: SaveOnnx) -> None:
    text = CUSTOM.replace("a = Relu(x)", "a = custom.Mul(x)").replace("custom.Add <y = 1>", "Sigmoid")
    found = judged(save_onnx(text))
    assert (found["custom::Mul"].level, found["Sigmoid"].level) == ("missing", "unknown")
    alone = [found["Sigmoid"]]
    assert summary(alone, "sdaa").endswith("unknown (1 unknown)")
    assert summary([], "sdaa") == "sdaa supports all operators of the model (it has none)"


def test_bfloat16_is_missing(save_onnx: SaveOnnx) -> None:
    found = judged(save_onnx("g (bfloat16[2] x) => (bfloat16[2] y) { y = Relu(x) }"))["Relu"]
    assert (found.level, found.fix) == ("missing", "export the model in float32 or float16")


# ------------------------------------------------------------------------------------------------------ other targets

VENDOR = """
from engine import Engine, ModelError
from engine.onnx import load_model, signature

class Acme(Engine):
    def __init__(self, spec):
        super().__init__(spec)
        model = load_model(spec.ckpt)
        if any(node.op_type == "Sigmoid" for node in model.graph.node):
            raise ModelError("the card has no Sigmoid")
        self.bind(*signature(model))

    def infer(self, inputs):
        return inputs
"""
TWO = "g (float[2,4] x) => (float[2,4] y) { a = Relu(x)\n y = Sigmoid(a) }"


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Register a third party's target ``acme``; return the folder of its module."""
    (tmp_path / "acme_for_ops.py").write_text(VENDOR, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("acme_for_ops")
    monkeypatch.setitem(registry._registered, "acme", module.Acme)
    yield tmp_path
    del sys.modules["acme_for_ops"]


@pytest.mark.parametrize("target", ["cpu", "onnx", "null"])
def test_target_without_table_is_tried(target: str, save_onnx: SaveOnnx) -> None:
    found = judged(save_onnx(TWO), load_table(target))
    assert {one.level for one in found.values()} == {"tried"}
    assert load_table(target).notes


def test_third_party_engine_is_tried(acme: Path, save_onnx: SaveOnnx) -> None:
    found = judged(save_onnx(TWO), load_table("acme"))
    assert (found["Relu"].level, found["Sigmoid"].level) == ("tried", "missing")
    assert "the card has no Sigmoid" in found["Sigmoid"].source


def test_third_party_table(acme: Path, save_onnx: SaveOnnx) -> None:
    (acme / "acme.ops.yaml").write_text(
        "schema_version: 1\noperators: {Relu: {level: stated, source: manual 3}, Abs: {level: missing}}\n"
        "dtypes: {float32: {level: stated}}\n",
        encoding="utf-8",
    )
    found = judged(save_onnx(TWO), load_table("acme"))
    assert (found["Relu"].level, found["Relu"].source) == ("stated", "manual 3")


def test_table_without_installed_target(
    save_onnx: SaveOnnx, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = table(tmp_path, "{Relu: {level: stated, source: us}}")
    assert main([str(save_onnx(TWO)), "--target", "not_here", "--table", str(own)]) == 0
    text = capsys.readouterr().out
    assert "judged by the table alone" in text
    assert "unknown (1 stated, 1 unknown)" in text
    with pytest.raises(TargetError, match="unknown target 'not_here'"):
        main([str(save_onnx(TWO)), "--target", "not_here"])
