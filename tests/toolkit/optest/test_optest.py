from __future__ import annotations

import importlib.util
import json
import re
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
from support import DIGITS, ROOT, RunPython, SaveOnnx

from engine import ConfigError, DataError, ModelError, TecoInferError, registry
from engine.backends.ort import OnnxRuntimeEngine
from toolkit.cli import execute
from toolkit.commands.optest import main
from toolkit.optest import TARGETS, run_case, runs_of, worst_error, write_case

MODEL = """g (float[N,4] x) => (float[N,4] y) <float[4,4] w={1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7}> {
    a = MatMul(x, w)
    b = Exp(a)
    y = Relu(b) }"""


def case_of(save_onnx: SaveOnnx, node: str, tmp_path: Path, scale: float = 0.01) -> Path:
    x = np.full((2, 4), scale, np.float32)
    return write_case(save_onnx(MODEL), node, tmp_path / "case", [x], batch=2).folder


@pytest.mark.parametrize("wanted", ["Exp_1", "b", "1", "#1"])
def test_node_by_name_tensor_or_index(wanted: str, save_onnx: SaveOnnx, tmp_path: Path) -> None:
    folder = case_of(save_onnx, wanted, tmp_path)
    cut = onnx.load(folder / "model.onnx")
    assert [node.op_type for node in cut.graph.node] == ["Exp"]
    onnx.checker.check_model(cut, full_check=True)


def test_case_has_weights_and_inputs(save_onnx: SaveOnnx, tmp_path: Path) -> None:
    folder = case_of(save_onnx, "MatMul_0", tmp_path)
    cut = onnx.load(folder / "model.onnx")
    assert ([t.name for t in cut.graph.initializer], [i.name for i in cut.graph.input]) == (["w"], ["x"])
    with np.load(folder / "data.npz") as data:
        np.testing.assert_array_equal(data["in0"], np.full((2, 4), 0.01, np.float32))
        assert data["out0"].shape == (2, 4)


def test_overflow_fails_in_float16_only(save_onnx: SaveOnnx, tmp_path: Path) -> None:
    case = write_case(save_onnx(MODEL), "b", tmp_path / "case", [np.full((1, 4), 0.6, np.float32)])
    found = {(one.target, one.dtype): one for one in run_case(case)}
    assert found["onnx", "float32"].passed
    assert found["sdaa", "float32"].passed
    assert not found["sdaa", "float16"].passed


def test_case_runs_outside_repository(tmp_path: Path, run_python: RunPython) -> None:
    out, result = tmp_path / "case", tmp_path / "out.json"
    node = onnx.load(DIGITS / "digits.onnx").graph.node[0].output[0]
    assert execute(["optest", "digits", node, "--out", str(out), "--json", str(result)]) == 0
    assert [row["result"] for row in json.loads(result.read_text(encoding="utf-8"))["rows"]] == ["pass"] * 3
    done = run_python("-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=out, path=(ROOT,))
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


def test_body_inputs_are_included(save_onnx: SaveOnnx, tmp_path: Path) -> None:
    path = save_onnx(
        """g (bool c, float[2] x) => (float[2] y) { z = Abs(x)
        y = If (c) <then_branch = a () => (float[2] p) { p = Abs(z) },
            else_branch = b () => (float[2] q) { q = Neg(z) }> }"""
    )
    case = write_case(path, "y", tmp_path / "case", [np.asarray(False), np.asarray([1.5, -2], np.float32)])
    assert set(case.inputs) == {"c", "z"}
    assert run_case(case)[0].passed


LOOP = """g (int64 n, bool c, float[2] x, float[2] z) => (float[2] y) {
    y = Loop <body = b (int64 i, bool go, float[2] a) => (bool on, float[2] o) <float k={0.5}> {
        on = Identity(go)
        h = Mul(a, k)
        o = If (go) <then_branch = t () => (float[2] u) { u = Add(h, z) },
                     else_branch = e () => (float[2] v) { v = Neg(a) }> }> (n, c, x) }"""


def test_names_defined_in_body_are_not_inputs(save_onnx: SaveOnnx, tmp_path: Path) -> None:
    given = [np.asarray(2), np.asarray(True), np.ones(2, np.float32), np.ones(2, np.float32)]
    case = write_case(save_onnx(LOOP), "y", tmp_path / "case", given)
    assert set(case.inputs) == {"n", "c", "x", "z"}
    assert all(one.passed for one in run_case(case))


@pytest.mark.parametrize("wanted", ["Loop_0/Mul_1", "h", "Loop_0/If_2/Add_0", "u"])
def test_node_in_body_is_an_error(wanted: str, save_onnx: SaveOnnx) -> None:
    with pytest.raises(ConfigError, match="in the body of 'Loop_0'"):
        main([str(save_onnx(LOOP)), wanted])


@pytest.mark.parametrize(
    ("text", "wanted", "inputs"),
    [
        ("g (float[2] x, float m) => (float[2] y) { y = Clip(x, , m) }", "y", 2),
        (
            f"""g (float[5,1,4] x) => (float[1,1,6] h)
            <float[1,24,4] w={{{",".join(["0.1"] * 96)}}}, float[1,24,6] r={{{",".join(["0.1"] * 144)}}}>
            {{ , h = LSTM<hidden_size=6>(x, w, r) }}""",
            "h",
            1,
        ),
    ],
)
def test_omitted_inputs_and_outputs(text: str, wanted: str, inputs: int, save_onnx: SaveOnnx, tmp_path: Path) -> None:
    out = tmp_path / "case"
    assert main([str(save_onnx(text)), wanted, "--out", str(out)]) == 0
    with np.load(out / "data.npz") as data:
        assert len([name for name in data.files if name.startswith("in")]) == inputs


@pytest.mark.parametrize(
    "text",
    [
        """<ir_version: 10, opset_import: ["" : 21]> g (float[1,4,3] x) => (float[1,4,3] y)
        <float[4] s={1,2,3,4}, float[4] b={0,0,0,1}> { y = GroupNormalization<num_groups=2>(x, s, b) }""",
        """<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
        g (float[2,4] x) => (float[2,4] y) { y = com.microsoft.Gelu(x) }""",
    ],
)
def test_operator_without_type_inference(text: str, save_onnx: SaveOnnx, tmp_path: Path) -> None:
    out = tmp_path / "case"
    assert main([str(save_onnx(text)), "0", "--out", str(out)]) == 0
    assert onnx.load(out / "model.onnx").graph.output[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT


def ran(folder: Path, target: str, dtype: str, tolerance: float) -> bool:
    """Run the test of a case; return whether it passed."""
    (file,) = folder.glob("test_*.py")
    spec = importlib.util.spec_from_file_location("written_case", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (target, dtype, tolerance) in module.RUNS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            module.test_node(target, dtype, tolerance)
        except AssertionError:
            return False
    return True


SEARCH = "g (float[2,4] x) => (int64[2,1] y) { y = ArgMax<axis=1>(x) }"


@pytest.mark.parametrize("run", runs_of([*TARGETS, "cpu"]))
@pytest.mark.parametrize("text", [MODEL, SEARCH])
def test_wrong_value_fails_on_every_engine(
    text: str, run: tuple[str, str, float], save_onnx: SaveOnnx, tmp_path: Path
) -> None:
    case = write_case(
        save_onnx(text), "0", tmp_path / "case", [np.eye(2, 4, dtype=np.float32)], batch=2, targets=run[:1]
    )
    assert ran(case.folder, *run)
    assert all(one.passed for one in run_case(case))
    with np.load(case.folder / "data.npz") as data:
        arrays = dict(data)
    arrays["out0"][0] = arrays["out0"][0] + 1  # one of many: of a position, off by one
    np.savez(case.folder / "data.npz", **arrays)
    assert not ran(case.folder, *run)
    arrays["out0"] = arrays["out0"][:1]
    np.savez(case.folder / "data.npz", **arrays)
    assert not ran(case.folder, *run)


def test_exit_code_1_if_an_engine_fails(save_onnx: SaveOnnx, tmp_path: Path) -> None:
    x = tmp_path / "x.npy"
    np.save(x, np.full((1, 4), 0.6, np.float32))
    path, out = str(save_onnx(MODEL)), str(tmp_path / "case")
    assert main([path, "b", "--data", str(x), "--out", out]) == 1
    with pytest.raises(DataError, match=r"another case \(test_exp_1\.py\)"):
        main([path, "MatMul_0", "--data", str(x), "--out", out])


def test_size_limit(save_onnx: SaveOnnx, tmp_path: Path) -> None:
    text = """g (float[1] x) => (float y) <int64[2] s={20000,20000}> {
        e = Expand(x, s)
        y = ReduceSum<keepdims=0>(e) }"""
    with pytest.raises(ModelError, match=r"'Expand_0' reads and writes 1526 MiB, .* 1024"):
        main([str(save_onnx(text)), "e", "--out", str(tmp_path / "case")])
    assert not (tmp_path / "case").exists()


def test_duplicate_names_are_distinguished(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { a = Abs(x)\n y = Neg(a) }'
    )
    for node in model.graph.node:
        node.name = "same"
    path = tmp_path / "same.onnx"
    onnx.save(model, path)
    with pytest.raises(ConfigError, match=r"2 nodes are named 'same'; .*: same#0, same#1"):
        main([str(path), "same"])
    assert main([str(path), "same#1", "--out", str(tmp_path / "case")]) == 0


@pytest.mark.parametrize(
    ("text", "wanted", "message"),
    [
        ("g (string[2] s) => (string[2] t) { t = Identity(s) }", "t", "'s' of type string"),
        ("g (seq(float[2]) s) => (float[N] y) { y = ConcatFromSequence<axis=0>(s) }", "y", "sequence"),
        ("g (optional(float[2]) s) => (float[2] y) { y = OptionalGetElement(s) }", "y", "optional"),
        ("g (float[N,C] x) => (float[N,C] y) { y = Abs(x) }", "y", "pass one: --dim x=1x1"),
        (MODEL, "3", "has no node '3'; .* 0 to 2"),
        (MODEL, "", "has no node ''"),
        ("g (float[2] x) => (float[2] y) { y = own.Op(x) }", "y", "own:Op.* a case needs the baseline's values"),
    ],
)
def test_extraction_errors_are_one_line(
    text: str, wanted: str, message: str, save_onnx: SaveOnnx, tmp_path: Path
) -> None:
    header = '<ir_version: 8, opset_import: ["" : 17, "own" : 1]>\n'
    path = save_onnx(header + text)
    with pytest.raises(TecoInferError, match=message) as caught:
        main([str(path), wanted, "--out", str(tmp_path / "case")])
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "case").exists()


def test_errors_are_one_line(save_onnx: SaveOnnx, tmp_path: Path) -> None:
    path = save_onnx(MODEL)
    with pytest.raises(ConfigError, match="did you mean 'Exp_1'"):
        main([str(path), "Exp_2"])
    sequence = save_onnx(
        "g (float[2] x) => (float[4] y) { s = SequenceConstruct(x, x)\n y = ConcatFromSequence <axis=0> (s) }", "s.onnx"
    )
    with pytest.raises(ModelError, match="sequence"):
        write_case(sequence, "s", tmp_path / "case", [np.zeros(2, np.float32)])
    with pytest.raises(Exception, match="cannot be written"):
        write_case(path, "b", path, [np.zeros((1, 4), np.float32)])


def test_error_with_infinities_and_nan() -> None:
    inf, one = np.asarray([np.inf, 1.0]), np.asarray([1.0, 1.0])
    assert worst_error([inf], [inf]) == 0
    assert worst_error([inf], [one]) == np.inf
    assert worst_error([np.asarray([np.nan, 1.0])], [one]) == np.inf
    assert worst_error([np.zeros(3)], [np.zeros(2)]) == np.inf
    assert worst_error([np.asarray([10**6])], [np.asarray([10**6 + 1])]) == np.inf
    assert worst_error([np.asarray([np.nan, 1.0])], [np.asarray([np.nan, 1.0])]) == 0
    assert worst_error([np.asarray([np.inf, 1.1])], [inf]) == pytest.approx(0.1)
    assert worst_error([np.asarray([110.0])], [np.asarray([100.0])]) == pytest.approx(0.1)
    assert worst_error([one, np.zeros(1)], [one, np.ones(1)]) == 1
    assert worst_error([one], [np.zeros(2)]) == 1


class Doubling(OnnxRuntimeEngine):
    """Engine that doubles its inputs, with default precision float16."""

    default_dtype = "float16"

    def infer(self, inputs: list[np.ndarray]) -> list[np.ndarray]:
        return [2 * one for one in super().infer(inputs)]


def test_target_flag(
    save_onnx: SaveOnnx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(registry._registered, "doubling", Doubling)
    path, out = str(save_onnx(MODEL)), tmp_path / "case"
    assert main([path, "0", "--target", "doubling", "--target", "onnx", "--out", str(out)]) == 1
    assert "fails on doubling float32, doubling float16; run: pytest" in capsys.readouterr().out
    assert [ran(out, *run) for run in runs_of(["doubling", "onnx"])] == [False, False, True]
    assert main([path, "0", "--target", "cpu", "--out", str(tmp_path / "cpu")]) == 0
    with pytest.raises(TecoInferError, match="unknown target 'doublin'; did you mean 'doubling'"):
        main([path, "0", "--target", "doublin", "--out", str(tmp_path / "none")])
    assert not (tmp_path / "none").exists()


def test_default_targets() -> None:
    assert runs_of(TARGETS) == [("onnx", "float32", 1e-5), ("sdaa", "float32", 1e-5), ("sdaa", "float16", 1e-2)]
    assert {limit for *_, limit in runs_of(TARGETS, [np.zeros(1, np.float16)])} == {1e-2}


NARROW = r"due to float16: .*\("
SOFTMAX = "g (float[1,4] x) => (float[1,4] y) { y = Softmax(x) }"


@pytest.mark.parametrize(
    ("text", "values", "reason"),
    [
        (SOFTMAX, [10000.0, 10003.0, 10001.0, 9999.0], NARROW),
        (SOFTMAX, [1.0, 2.0, 3.0, 4.0], "^$"),
        ("g (float[1,4] x) => (float[1,4] y) <float w={70000}> { y = Mul(x, w) }", [1e-3, 2e-3, 3e-3, 4e-3], NARROW),
        ("g (float[1,4] x) => (float[1,4] y) { y = Exp(x) }", [1.0, 2.0, 3.0, 12.0], NARROW),
    ],
)
def test_reason_if_float16_is_too_narrow(
    text: str, values: list[float], reason: str, save_onnx: SaveOnnx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong engine has no such reason."""
    path = save_onnx(text)
    monkeypatch.setitem(registry._registered, "doubling", Doubling)
    case = write_case(path, "0", tmp_path / "case", [np.asarray([values], np.float32)], targets=["doubling"])
    wide, narrow = run_case(case)
    assert not wide.passed
    assert wide.reason == ""
    assert not narrow.passed
    assert re.search(reason, narrow.reason)


def test_case_includes_functions_and_constants(save_onnx: SaveOnnx, tmp_path: Path) -> None:
    """Its function, a constant node, and weights that an old file lists among the inputs."""
    function = save_onnx(
        """<ir_version: 8, opset_import: ["" : 17, "own" : 1]> g (float[2] x) => (float[2] y) { y = own.Op(x) }
        <domain: "own", opset_import: ["" : 17]> Op (a) => (b) { b = Neg(a) }"""
    )
    constant = save_onnx(
        "g (float[2,3] x) => (float[3,2] y) { s = Constant<value = int64[2] {3,2}>()\n y = Reshape(x, s) }", "c.onnx"
    )
    old = save_onnx(
        """<ir_version: 3, opset_import: ["" : 7]> g (float[2,2] x, float[2,2] w) => (float[2,2] y)
        <float[2,2] w={1,2,3,4}> { y = MatMul(x, w) }""",
        "old.onnx",
    )
    for path in (function, constant, old):
        out = tmp_path / path.stem
        assert main([str(path), "y", "--out", str(out)]) == 0
        onnx.checker.check_model(out / "model.onnx")
        assert [info.name for info in onnx.load(out / "model.onnx").graph.input] == ["x"]
