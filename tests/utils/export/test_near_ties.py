"""Rankings that differ among nearly equal values are not errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from engine import EngineSpec, open_engine
from utils.export.graphs import to_float16
from utils.export.near_ties import answers, ranking_nodes, with_picks
from utils.export.onnx_files import Expected, ExportError, ExportResult, ModelNotes, Variant, write_onnx_files

HEAD = '<ir_version: 9, opset_import: ["" : 18]>\n'
TOPK = "g (float[N,64] x) => (float[N,9] v, int64[N,9] i) <int64[1] k = {9}> { v, i = TopK<axis=1>(x, k) }"
LATER = """g (float[N,64] x) => (float[N,3] v, int32[N,9] j, float[N,9] b) <int64[1] k = {9}, int64[1] few = {3}> {
    s = Sigmoid(x) u, i = TopK<axis=1>(s, k) m = Neg(x) b = GatherElements<axis=1>(m, i)
    v, l = TopK<axis=1, largest=0>(b, few) j = Cast<to=6>(i)
}"""
CLASS = "g (float[N,64] x) => (int64[N] i, int64[1,64] l) { i = ArgMax<axis=1, keepdims=0>(x) l = ArgMin<axis=0>(x) }"


def near(step: float) -> np.ndarray:
    """Return four rows of 64 numbers from 1 on; float16 resolves steps of 1e-3 there."""
    order = np.random.default_rng(0).permuted(np.tile(np.arange(64), (4, 1)), axis=1)
    return (1 + step * order).astype(np.float32)


def forms(text: str, x: np.ndarray) -> tuple[onnx.ModelProto, list[Expected]]:
    model = parser.parse_model(HEAD + text)
    return model, [Expected([x], answers(model, [x], "float32"))]


def half(text: str, x: np.ndarray, folder: Path) -> ExportResult:
    """Write the float16 form of a model, checked on these inputs."""
    model, cases = forms(text, x)
    [result] = write_onnx_files(folder / "m", [Variant("", to_float16(model), cases, "float16", model)], ModelNotes())
    return result


@pytest.mark.parametrize("text", [TOPK, LATER, CLASS], ids=["top-k", "after two top-k", "classes"])
def test_near_ties_are_not_errors(text: str, tmp_path: Path) -> None:
    x = near(1e-4)
    result = half(text, x, tmp_path)
    assert result.max_relative_error is not None
    assert 0 < result.max_relative_error < 1e-2
    _, [case] = forms(text, x)
    with open_engine("onnx", EngineSpec(ckpt=result.path, dtype="float16")) as engine:
        found = engine(x.astype(np.float16))
    numbers = [i for i, array in enumerate(case.wanted) if array.dtype.kind == "i"]
    assert any((found[i] != case.wanted[i]).any() for i in numbers), "no rank changed, so nothing is tested"


def test_wrong_ranks_of_distinct_values_raise(tmp_path: Path) -> None:
    model, [case] = forms(TOPK, near(1e-1))
    values, index = case.wanted
    wrong = Expected(case.inputs, [values, index[:, ::-1].copy()])
    with pytest.raises(ExportError, match=r"output 'i': largest relative error \d"):
        write_onnx_files(tmp_path / "m", [Variant("", to_float16(model), [wrong], "float16", model)], ModelNotes())


def test_a_mask_does_not_hide_a_wrong_rank() -> None:
    """Relative to -3.4e38 all values are nearly equal."""
    x = near(1e-1)
    x[:, ::2] = np.finfo(np.float32).min
    model, [case] = forms(TOPK.replace("9", "40"), x)
    made = ranking_nodes(model)
    right = with_picks(model, made, [x], {"i": case.wanted[1]})[1]
    swapped = case.wanted[1].copy()
    swapped[:, [0, 9]] = swapped[:, [9, 0]]
    assert (right, with_picks(model, made, [x], {"i": swapped})[1] > 0.05) == (0, True)


@pytest.mark.parametrize("pick", [-1, 7], ids=["out of range", "duplicate"])
def test_invalid_indices_give_infinity(pick: int) -> None:
    x = near(0)
    model, _ = forms(TOPK, x)
    picks = np.tile(np.arange(9), (4, 1))
    assert with_picks(model, ranking_nodes(model), [x], {"i": picks})[1] == 0
    picks[2, 3] = pick
    assert with_picks(model, ranking_nodes(model), [x], {"i": picks})[1] == np.inf


def test_framework_with_another_order_of_ties(tmp_path: Path) -> None:
    """The float32 file may also pick another of two equal values than the source model."""
    x = np.maximum(near(1e-2) - 1.5, 0).astype(np.float32)
    model = parser.parse_model(HEAD + TOPK.replace("9", "60"))
    values, order = answers(model, [x], "float32")
    order = order.copy()
    order[:, [-1, -2]] = order[:, [-2, -1]]  # both of value 0
    assert (values[:, -2:] == 0).all()
    [result] = write_onnx_files(tmp_path / "m", [Variant("", model, [Expected([x], [values, order])])], ModelNotes())
    assert result.max_relative_error == 0
    order[:, [0, -1]] = order[:, [-1, 0]]
    with pytest.raises(ExportError, match="output 'i': largest relative error"):
        write_onnx_files(tmp_path / "m", [Variant("", model, [Expected([x], [values, order])])], ModelNotes())
