from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from small_models import WEIGHT, X, linear

from engine import EngineSpec, ModelError, open_engine
from engine.onnx import large
from utils.export import onnx_files
from utils.export.forms import HALF
from utils.export.onnx_files import Expected, ExportError, ExportResult, ModelNotes, Variant, write_onnx_files
from utils.stored import ModelMetadata

FLOAT16_HARD = (
    "g (float[N,3] x) => (float[N,3] y) <float[3] w = {0.25, 0.5, 0.75}> { a = Max(x, w) y = Mul(a, w) }",
    "g (float[N,3] x) => (float[N,3] y) { a = Cast<to=10>(x) b = Add(a, a) c = Cast<to=1>(b) y = Mul(c, x) }",
    "g (float[N,3] x) => (float[N,3] y) { s = Shape(x) o = ConstantOfShape(s) a = Exp(o) y = Add(a, x) }",
    "g (float[N,3] x) => (float[N,3] y) { a = Neg(x) b = Max(a, x) c = Neg(b) d = Min(c, x) y = Add(b, d) }",
)
"""Graphs that the card runs in float16, but that onnxconverter-common alone converts incorrectly."""


def variant(
    model: onnx.ModelProto, wanted: np.ndarray = X @ WEIGHT, dtype: str = "float32", suffix: str = ""
) -> Variant:
    return Variant(suffix, model, [Expected([X], [wanted])], dtype)


def notes_of(path: Path) -> dict[str, str]:
    return {prop.key: prop.value for prop in onnx.load(path, load_external_data=False).metadata_props}


class TestWriting:
    def test_metadata(self, tmp_path: Path) -> None:
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

    def test_further_metadata(self, tmp_path: Path) -> None:
        further = {"blank": 0, "tokens": {"b": 2, "a": ["é"]}}
        notes = ModelNotes(vocabulary=["<pad>", "鱼"], sample_rate=16000, notes=further)
        [result] = write_onnx_files(tmp_path / "net", [variant(linear())], notes)
        found = notes_of(result.path)
        assert sorted(found) == ["blank", "max_relative_error", "provenance", "sample_rate", "tokens", "vocabulary"]
        assert found["tokens"] == '{"a": ["é"], "b": 2}'
        stored = ModelMetadata(found, result.path)
        assert (stored.vocabulary, stored.sample_rate, stored.json("blank")) == (["<pad>", "鱼"], 16000, 0)

    def test_exports_are_reproducible(self, tmp_path: Path) -> None:
        for name in ("a", "b"):
            write_onnx_files(tmp_path / name / "net", [variant(linear())], ModelNotes(["1"]))
        assert (tmp_path / "a" / "net.onnx").read_bytes() == (tmp_path / "b" / "net.onnx").read_bytes()

    def test_differing_form_is_not_written_and_the_others_are(self, tmp_path: Path) -> None:
        write_onnx_files(tmp_path / "net", [variant(linear()), variant(linear(), suffix="_dyn")], ModelNotes())
        old = (tmp_path / "net_dyn.onnx").read_bytes()
        wrong = variant(linear(WEIGHT * 1.01), suffix="_dyn")
        with pytest.raises(ExportError) as caught:
            write_onnx_files(tmp_path / "net", [variant(linear()), wrong], ModelNotes(["new"]))
        text = str(caught.value)
        assert text.startswith("net_dyn.onnx: output 'output': largest relative error 1.0e-02 (max|a - b| / max|b|) ")
        assert re.search(r" 1e-03; .*tolerances\['float32'\].*; written: net\.onnx; .*existing net_dyn\.onnx", text)
        passed, failed = caught.value.results
        assert (passed.error, failed.max_relative_error) == (None, None)
        assert str(failed).startswith(f"{tmp_path / 'net_dyn.onnx'}: not written: output 'output': largest relative")
        assert json.loads(notes_of(passed.path)["class_labels"]) == ["new"]
        assert failed.path.read_bytes() == old

    def test_form_without_a_graph_raises(self, tmp_path: Path) -> None:
        none = Variant("_dyn", ModelError("the tool cannot do it; use another"), [])
        with pytest.raises(ExportError) as caught:
            write_onnx_files(tmp_path / "net", [none], ModelNotes())
        assert str(caught.value) == "net_dyn.onnx: the tool cannot do it; use another; no file was written"
        assert not list(tmp_path.iterdir())

    def test_all_failed_forms_are_reported(self, tmp_path: Path) -> None:
        wrong = [variant(linear(WEIGHT * 1.01), suffix=suffix) for suffix in ("", "_dyn")]
        with pytest.raises(ExportError, match=r"^net.onnx, net_dyn.onnx: output .*; no file was written$"):
            write_onnx_files(tmp_path / "net", wrong, ModelNotes())
        assert not list(tmp_path.iterdir())

    def test_the_tolerance_can_be_raised(self, tmp_path: Path) -> None:
        [result] = write_onnx_files(tmp_path / "net", [variant(linear(WEIGHT * 1.01))], ModelNotes(), {"float32": 2e-2})
        assert result.max_relative_error == pytest.approx(1e-2, rel=1e-3)

    def test_checker_errors_raise(self, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match=r"net.onnx: onnx.checker rejects .*NoSuchOperator"):
            write_onnx_files(tmp_path / "net", [variant(linear(op="NoSuchOperator"))], ModelNotes())
        assert not list(tmp_path.iterdir())

    def test_unwritable_folder_raises(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(ModelError, match="cannot write the exported files"):
            write_onnx_files(tmp_path / "file" / "net", [variant(linear())], ModelNotes())

    def test_unsupported_operator_is_not_run(self, tmp_path: Path) -> None:
        [result] = write_onnx_files(tmp_path / "net", [variant(linear(op="Mine", domain="own"))], ModelNotes())
        assert result.max_relative_error is None
        assert str(result).endswith("checked, not run: ONNX Runtime does not support own::Mine")
        assert "max_relative_error" not in notes_of(result.path)

    def test_large_weights_are_external(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(large, "MOST_MESSAGE", 2000)
        monkeypatch.setattr(large, "APART", 1000)
        weight = np.linspace(-1, 1, 1200, dtype=np.float32).reshape(3, 400)
        model = linear(weight)
        model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 400
        [result] = write_onnx_files(tmp_path / "net", [variant(model, X @ weight)], ModelNotes(["1"]))
        assert sorted(path.name for path in tmp_path.iterdir()) == ["net.onnx", "net.onnx.data"]
        assert result.path.stat().st_size < 2000
        assert "class_labels" in notes_of(result.path)
        with open_engine("onnx", EngineSpec(ckpt=result.path)) as engine:
            np.testing.assert_allclose(engine(X), X @ weight, rtol=1e-5, atol=1e-6)

    @pytest.mark.parametrize("body", FLOAT16_HARD, ids=["a shared weight", "a cast inside", "a named type", "no names"])
    def test_float16_agrees_with_the_card(self, body: str, tmp_path: Path) -> None:
        model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]>\n{body}')
        onnx.save(model, tmp_path / "source.onnx")
        x = np.array([[0.5, -1.0, 2.0]], np.float32)
        with open_engine("onnx", EngineSpec(ckpt=tmp_path / "source.onnx")) as engine:
            wanted = engine(x)
        with open_engine("sdaa", EngineSpec(ckpt=tmp_path / "source.onnx")) as engine:
            on_card = engine(x.astype(np.float16))
        variants = onnx_files.variants_of(model, model, [Expected([x], [np.asarray(wanted)])], [HALF])
        *_, result = write_onnx_files(tmp_path / "net", variants, ModelNotes())
        with open_engine("onnx", EngineSpec(ckpt=result.path, dtype="float16")) as engine:
            found = engine(x.astype(np.float16))
        assert np.asarray(found).dtype == np.float16
        np.testing.assert_allclose(found, on_card, rtol=2e-3)
