from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp
from onnx import TensorProto, helper, numpy_helper

from engine import ConfigError, EngineSpec, ModelError, open_engine
from utils.export import onnx_files
from utils.export.onnx_files import Expected, ExportResult, ModelNotes, Variant, write_onnx_files
from utils.stored import Stored

WEIGHT = np.linspace(-1.0, 1.0, 12, dtype=np.float32).reshape(3, 4)
X = np.array([[0.5, -1.0, 2.0]], np.float32)

FLOAT16_HARD = (
    "g (float[N,3] x) => (float[N,3] y) <float[3] w = {0.25, 0.5, 0.75}> { a = Max(x, w) y = Mul(a, w) }",
    "g (float[N,3] x) => (float[N,3] y) { a = Cast<to=10>(x) b = Add(a, a) c = Cast<to=1>(b) y = Mul(c, x) }",
    "g (float[N,3] x) => (float[N,3] y) { s = Shape(x) o = ConstantOfShape(s) a = Exp(o) y = Add(a, x) }",
    "g (float[N,3] x) => (float[N,3] y) { a = Neg(x) b = Max(a, x) c = Neg(b) d = Min(c, x) y = Add(b, d) }",
)
"""Graphs that the card takes in float16, with what onnxconverter-common by itself makes a wrong float16 graph of."""


def linear(weight: np.ndarray = WEIGHT, op: str = "MatMul", domain: str = "") -> onnx.ModelProto:
    node = helper.make_node(op, ["input", "weight"], ["output"], domain=domain)
    value = helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", 3])
    answer = helper.make_tensor_value_info("output", TensorProto.FLOAT, ["batch", 4])
    graph = helper.make_graph([node], "linear", [value], [answer], [numpy_helper.from_array(weight, "weight")])
    opsets = [helper.make_opsetid("", 18), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def variant(
    model: onnx.ModelProto, wanted: np.ndarray = X @ WEIGHT, dtype: str = "float32", suffix: str = ""
) -> Variant:
    return Variant(suffix, model, [Expected([X], [wanted])], dtype)


def notes_of(path: Path) -> dict[str, str]:
    return {prop.key: prop.value for prop in onnx.load(path, load_external_data=False).metadata_props}


class TestRelativeError:
    @pytest.mark.parametrize(
        ("got", "wanted", "error"),
        [
            ([1.0, 2.0], [1.0, 2.0], 0.0),
            ([1.0, 2.5], [1.0, 2.0], 0.25),
            ([0.0], [0.0], 0.0),
            ([1e-9], [0.0], np.inf),
            ([np.inf, np.nan, 1.0], [np.inf, np.nan, 2.0], 0.5),
            ([np.inf], [1.0], np.inf),
            ([1.0], [np.inf], np.inf),
            ([np.nan], [1.0], np.inf),
            ([1.0], [np.nan], np.inf),
            ([np.inf], [-np.inf], np.inf),
            ([], [], 0.0),
        ],
    )
    def test_formula(self, got: list[float], wanted: list[float], error: float) -> None:
        assert onnx_files.relative_error([np.array(got)], [np.array(wanted)]) == error

    def test_the_largest_over_the_outputs_counts(self) -> None:
        one = np.ones(2, np.float32)
        assert onnx_files.relative_error([one, one * 3], [one, one * 2]) == 0.5

    def test_another_shape_or_number_of_outputs_is_infinite(self) -> None:
        assert onnx_files.relative_error([np.ones((2, 1))], [np.ones(2)]) == np.inf
        assert onnx_files.relative_error([], [np.ones(2)]) == np.inf

    @given(hnp.arrays(np.float32, st.integers(1, 20), elements=st.floats(-1e6, 1e6, width=32)), st.floats(0, 10))
    def test_scaling_everything_by_1_plus_e_gives_e(self, wanted: np.ndarray, error: float) -> None:
        wanted = wanted.astype(np.float64)
        found = onnx_files.relative_error([wanted * (1 + error)], [wanted])
        assert found == pytest.approx(error if wanted.any() else 0.0, rel=1e-9, abs=1e-12)


class TestDynamicInputs:
    def test_batch_and_other_axes_are_tried(self) -> None:
        image, mask = np.arange(2 * 3 * 4).reshape(2, 3, 4), np.arange(2)
        tried = onnx_files.dynamic_inputs([image, mask], [{0: "batch", 2: "width"}, {0: "batch"}])
        assert [[x.shape for x in case] for case in tried] == [
            [(2, 3, 4), (2,)],
            [(5, 3, 4), (5,)],
            [(2, 3, 8), (2,)],
        ]

    def test_a_name_is_grown_alike_on_every_axis(self) -> None:
        tried = onnx_files.dynamic_inputs([np.zeros((2, 5)), np.zeros((5, 2))], [{0: "n"}, {1: "n"}])
        assert [x.shape for x in tried[1]] == [(5, 5), (5, 5)]

    def test_nothing_dynamic(self) -> None:
        assert len(onnx_files.dynamic_inputs([X], [{}])) == 1

    @given(hnp.arrays(np.int64, hnp.array_shapes(min_dims=1, max_dims=3, max_side=4), elements=st.integers(-9, 9)))
    def test_new_samples_hold_only_the_examples_values(self, x: np.ndarray) -> None:
        grown = onnx_files.dynamic_inputs([x], [{0: "batch"}])[1][0]
        assert grown.shape == (2 * len(x) + 1, *x.shape[1:])
        assert grown.dtype == x.dtype
        assert set(grown.ravel()) <= set(x.ravel())
        np.testing.assert_array_equal(grown[: len(x)], x)

    def test_axes_default_to_the_batch(self) -> None:
        assert onnx_files.dynamic_axes([X, np.float32(1)], ["x", "s"], ["y"], None) == [{0: "batch"}, {}]

    @pytest.mark.parametrize(
        ("names", "dynamic", "message"),
        [
            (["x", "y"], None, "1 example inputs and 2 input_names"),
            (["x"], {"z": {0: "batch"}}, r"dynamic names \['z'\]"),
            (["x"], {"x": {2: "width"}}, "axes 0 to 1"),
            (["x"], {"x": {-1: "width"}}, "axes 0 to 1"),
        ],
    )
    def test_axes_that_do_not_fit(self, names: list[str], dynamic: dict[str, dict[int, str]], message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            onnx_files.dynamic_axes([X], names, ["output"], dynamic)


class TestWithSizes:
    MODEL = """<ir_version: 9, opset_import: ["" : 18]>
        net (float[batch, 3] x, float[batch, length] y) => (float[batch, total] z)
        <float[batch, length] n> { n = Neg(y)  z = Concat<axis = 1>(x, n) }"""

    def dims(self, model: onnx.ModelProto) -> dict[str, list[int | str | None]]:
        return {
            value.name: [dim.dim_param or (dim.dim_value if dim.HasField("dim_value") else None) for dim in shape]
            for value in (*model.graph.input, *model.graph.output, *model.graph.value_info)
            for shape in [value.type.tensor_type.shape.dim]
        }

    def test_names_become_sizes_and_what_is_computed_is_left_open(self) -> None:
        model = onnx.parser.parse_model(self.MODEL)
        before = model.SerializeToString()
        fixed = onnx_files.with_sizes(model, [np.zeros((4, 3)), np.zeros((4, 5))])
        assert self.dims(fixed) == {"x": [4, 3], "y": [4, 5], "z": [4, None], "n": [4, 5]}
        assert model.SerializeToString() == before

    def test_inference_fills_in_what_is_computed(self) -> None:
        fixed = onnx_files.with_sizes(onnx.parser.parse_model(self.MODEL), [np.zeros((4, 3)), np.zeros((4, 5))])
        assert self.dims(onnx_files.simplify(fixed))["z"] == [4, 8]


class TestWriting:
    def test_notes_are_in_the_file(self, tmp_path: Path) -> None:
        notes = ModelNotes(["zero", "eins", "二", "3"], {"std": [1.0], "mean": [0.0]}, {"source": "a test"})
        [result] = write_onnx_files(tmp_path / "new" / "net", [variant(linear())], notes)
        assert result == ExportResult(tmp_path / "new" / "net.onnx", result.max_relative_error)
        found = notes_of(result.path)
        assert json.loads(found["class_labels"]) == ["zero", "eins", "二", "3"]
        assert found["preprocess"] == '{"mean": [0.0], "std": [1.0]}'
        assert json.loads(found["provenance"]) == {"source": "a test"}
        assert float(found["max_relative_error"]) == pytest.approx(result.max_relative_error, rel=0.1)
        assert "largest relative error" in str(result)
        assert "max|a - b| / max|b|" in str(result)

    def test_what_a_domain_needs_is_in_the_file(self, tmp_path: Path) -> None:
        further = {"blank": 0, "tokens": {"b": 2, "a": ["é"]}}
        notes = ModelNotes(vocabulary=["<pad>", "鱼"], sample_rate=16000, notes=further)
        [result] = write_onnx_files(tmp_path / "net", [variant(linear())], notes)
        found = notes_of(result.path)
        assert sorted(found) == ["blank", "max_relative_error", "provenance", "sample_rate", "tokens", "vocabulary"]
        assert found["tokens"] == '{"a": ["é"], "b": 2}'
        stored = Stored(found, result.path)
        assert (stored.vocabulary, stored.sample_rate, stored.json("blank")) == (["<pad>", "鱼"], 16000, 0)

    def test_the_same_export_gives_the_same_bytes(self, tmp_path: Path) -> None:
        for name in ("a", "b"):
            write_onnx_files(tmp_path / name / "net", [variant(linear())], ModelNotes(["1"]))
        assert (tmp_path / "a" / "net.onnx").read_bytes() == (tmp_path / "b" / "net.onnx").read_bytes()

    def test_a_file_that_answers_otherwise_leaves_every_old_file(self, tmp_path: Path) -> None:
        write_onnx_files(tmp_path / "net", [variant(linear()), variant(linear(), suffix="_dyn")], ModelNotes())
        old = {path: path.read_bytes() for path in tmp_path.iterdir()}
        wrong = variant(linear(WEIGHT * 1.01), suffix="_dyn")
        with pytest.raises(ModelError, match=r"net_dyn.onnx: largest relative error 1\.0e-02 .* tolerance 1e-03"):
            write_onnx_files(tmp_path / "net", [variant(linear()), wrong], ModelNotes(["new"]))
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == old

    def test_the_tolerance_can_be_raised(self, tmp_path: Path) -> None:
        [result] = write_onnx_files(tmp_path / "net", [variant(linear(WEIGHT * 1.01))], ModelNotes(), {"float32": 2e-2})
        assert result.max_relative_error == pytest.approx(1e-2, rel=1e-3)

    def test_the_checker_is_asked(self, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match=r"net.onnx: onnx.checker refuses .*NoSuchOperator"):
            write_onnx_files(tmp_path / "net", [variant(linear(op="NoSuchOperator"))], ModelNotes())
        assert not list(tmp_path.iterdir())

    def test_a_folder_that_cannot_be_written(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(ModelError, match="cannot write the exported files"):
            write_onnx_files(tmp_path / "file" / "net", [variant(linear())], ModelNotes())

    def test_an_unknown_operator_is_said_and_not_run(self, tmp_path: Path) -> None:
        [result] = write_onnx_files(tmp_path / "net", [variant(linear(op="Mine", domain="own"))], ModelNotes())
        assert result.max_relative_error is None
        assert str(result).endswith("checked, not run: ONNX Runtime does not know own::Mine")
        assert "max_relative_error" not in notes_of(result.path)

    def test_large_weights_lie_beside_the_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(onnx_files, "MAX_PROTOBUF", 2000)
        weight = np.linspace(-1, 1, 1200, dtype=np.float32).reshape(3, 400)
        model = linear(weight)
        model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 400
        [result] = write_onnx_files(tmp_path / "net", [variant(model, X @ weight)], ModelNotes(["1"]))
        assert sorted(path.name for path in tmp_path.iterdir()) == ["net.onnx", "net.onnx.data"]
        assert result.path.stat().st_size < 2000
        assert "class_labels" in notes_of(result.path)
        with open_engine("onnx", EngineSpec(ckpt=result.path)) as engine:
            np.testing.assert_allclose(engine(X), X @ weight, rtol=1e-5, atol=1e-6)


class TestGraph:
    def test_what_exporters_note_about_the_machine_is_removed(self) -> None:
        model = linear()
        model.graph.doc_string = model.graph.node[0].doc_string = "file /home/someone/net.py"
        for part in (model, model.graph, model.graph.node[0], model.graph.input[0]):
            part.metadata_props.add(key="trace", value="file /home/someone/net.py")
        assert b"someone" not in onnx_files.simplify(model).SerializeToString()

    def test_the_source_module_of_a_node_stays(self) -> None:
        model = linear()
        model.graph.node[0].metadata_props.add(key="pkg.torch.onnx.name_scopes", value="['', 'head', 'linear']")
        [kept] = onnx_files.simplify(model).graph.node
        assert [(note.key, note.value) for note in kept.metadata_props] == [
            ("pkg.torch.onnx.name_scopes", "['', 'head', 'linear']")
        ]

    def test_a_model_onnxsim_cannot_take_is_one_line(self) -> None:
        with pytest.raises(ModelError, match="onnxsim cannot simplify") as caught:
            onnx_files.simplify(onnx.ModelProto())
        assert "\n" not in str(caught.value)

    def test_float16_keeps_small_and_clamps_large_weights(self) -> None:
        weight = np.array([[1e-6, 1.0, 3e4, 1e6]] * 3, np.float32)
        half = onnx_files.to_float16(linear(weight))
        [stored] = [numpy_helper.to_array(w) for w in half.graph.initializer]
        np.testing.assert_array_equal(stored[0], np.array([1e-6, 1.0, 3e4, 65504.0], np.float16))
        assert half.graph.input[0].type.tensor_type.elem_type == TensorProto.FLOAT16

    def test_float16_twice_is_refused(self) -> None:
        with pytest.raises(ModelError, match="cannot convert the model to float16"):
            onnx_files.to_float16(onnx_files.to_float16(linear()))

    @pytest.mark.parametrize("body", FLOAT16_HARD, ids=["a shared weight", "a cast inside", "a named type", "no names"])
    def test_float16_takes_what_the_card_takes(self, body: str, tmp_path: Path) -> None:
        model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]>\n{body}')
        onnx.save(model, tmp_path / "source.onnx")
        x = np.array([[0.5, -1.0, 2.0]], np.float32)
        with open_engine("onnx", EngineSpec(ckpt=tmp_path / "source.onnx")) as engine:
            wanted = engine(x)
        with open_engine("sdaa", EngineSpec(ckpt=tmp_path / "source.onnx")) as engine:
            on_card = engine(x.astype(np.float16))
        variants = onnx_files.three_variants(model, model, [Expected([x], [np.asarray(wanted)])], float16=True)
        *_, result = write_onnx_files(tmp_path / "net", variants, ModelNotes())
        with open_engine("onnx", EngineSpec(ckpt=result.path, dtype="float16")) as engine:
            found = engine(x.astype(np.float16))
        assert np.asarray(found).dtype == np.float16
        np.testing.assert_allclose(found, on_card, rtol=2e-3)

    def test_a_function_inside_the_model_defines_its_operator(self) -> None:
        model = linear(op="Mine", domain="own")
        assert onnx_files.foreign_ops(model) == ("own::Mine",)
        body = [helper.make_node("MatMul", ["a", "b"], ["c"])]
        model.functions.append(helper.make_function("own", "Mine", ["a", "b"], ["c"], body, model.opset_import))
        assert onnx_files.foreign_ops(model) == ()

    def test_an_axis_that_became_constant_is_named(self) -> None:
        model = linear()
        onnx_files.check_dynamic(model, [{0: "batch"}])
        with pytest.raises(ModelError, match="axis 1 of input 'input' became the constant 3"):
            onnx_files.check_dynamic(model, [{0: "batch", 1: "width"}])


@pytest.mark.parametrize(
    ("text", "line"),
    [("one\ntwo", "one"), ("\n\n  one  \ntwo", "one"), ("one:\n\n - two\nthree", "one: - two"), ("one:", "one:")],
)
def test_first_line(text: str, line: str) -> None:
    assert onnx_files.first_line(RuntimeError(text)) == line


@pytest.mark.parametrize("make", [ValueError, KeyboardInterrupt])
def test_first_line_of_an_error_without_text(make: Callable[[], BaseException]) -> None:
    assert onnx_files.first_line(make()) == make.__name__
