"""Tasks whose models are not committed, on small graphs: graphs, faces, pages, rankings, set detectors, policies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from constructed_models import bound, options
from extended_models import small_model

from engine import ConfigError, EngineSpec, InputError, ModelError, TensorSpec, open_engine
from utils.environments import Actions
from utils.metrics.graph_labels import GraphClasses, GraphLabels
from utils.postprocess.image.box_forms import USUAL
from utils.postprocess.image.layouts.base import sigmoid, softmax
from utils.preprocess.image.letterbox import fit
from utils.tasks.classification.task import Classification
from utils.tasks.common.embedding import Notes, vectors
from utils.tasks.common.outputs import class_rows
from utils.tasks.detection.choices import now as detection_choice
from utils.tasks.detection.heads import detections
from utils.tasks.detection.task import Detection
from utils.tasks.face_detection import FaceDetection
from utils.tasks.graph_prediction.task import GraphPrediction
from utils.tasks.model import Model

RNG = np.random.default_rng(5)
SCORES = (RNG.standard_normal((6, 5)) * 3).astype(np.float32)
GEMM = {"w": np.ones((4, 5), np.float32), "half": np.float32(0.5)}
ENDS = {
    "logits": "y = MatMul(x, w)",
    "probabilities": "h = MatMul(x, w) y = Softmax<axis = -1>(h)",
    "log_probabilities": "h = MatMul(x, w) y = LogSoftmax<axis = -1>(h)",
    "sigmoid": "h = MatMul(x, w) y = Sigmoid(h)",
    "labels": "h = MatMul(x, w) a = ArgMax<axis = -1, keepdims = 0>(h) y = Cast<to = 1>(a)",
    "yes": "h = MatMul(x, w) s = Sigmoid(h) g = GreaterOrEqual(s, half) y = Cast<to = 1>(g)",
}


def given(kind: str) -> Any:
    """Return what a model of that end gives where its logits are SCORES."""
    found = {
        "logits": SCORES,
        "probabilities": softmax(SCORES),
        "log_probabilities": np.log(softmax(SCORES)),
        "sigmoid": sigmoid(SCORES),
        "labels": SCORES.argmax(axis=1).astype(np.float32),
        "yes": (SCORES >= 0).astype(np.float32),
    }
    return found[kind]


def model_of(folder: Path, kind: str, y: str | None = None, **notes: Any) -> Model:
    shape = y or ("float[N] y" if kind == "labels" else "float[N, 5] y")
    path = small_model(folder / "m.onnx", ENDS[kind], shape, weights=GEMM, **notes)
    with open_engine("onnx", EngineSpec(ckpt=path)) as engine:
        return Model.of(engine)


@pytest.mark.parametrize("kind", ["logits", "probabilities", "log_probabilities", "labels"])
def test_classes_of_graphs(kind: str, tmp_path: Path) -> None:
    model = model_of(tmp_path, kind)
    assert bound(GraphPrediction, model).kind == ("regression" if kind == "logits" else "classes")
    said = bound(GraphPrediction, model, kind="classes")
    found = np.array(said.decode(given(kind), None))
    assert found.argmax(axis=1).tolist() == SCORES.argmax(axis=1).tolist()
    if kind != "labels":
        np.testing.assert_allclose(found, softmax(SCORES), atol=1e-6)
    else:
        assert show_of(found[0], said) == {f"class {SCORES[0].argmax()}": None}


def show_of(prediction: Any, task: Any) -> Any:
    class Sample:
        name = "one"

    return task.show(Sample(), prediction).answer  # nothing is drawn


@pytest.mark.parametrize("kind", ["logits", "sigmoid", "yes"])
def test_properties_of_graphs(kind: str, tmp_path: Path) -> None:
    found = np.array(bound(GraphPrediction, model_of(tmp_path, kind), kind="binary").decode(given(kind), None))
    assert ((found >= 0.5) == (SCORES >= 0)).all()
    if kind != "yes":
        np.testing.assert_allclose(found, sigmoid(SCORES), atol=1e-6)


class Nothing:
    """A data set without notes."""

    notes: dict[str, Any] = {}  # noqa: RUF012


@pytest.mark.parametrize(("kind", "end"), [("classes", "labels"), ("binary", "yes")])
def test_labels_have_no_roc_curve(kind: str, end: str, tmp_path: Path) -> None:
    model = model_of(tmp_path, end)
    found = bound(GraphPrediction, model, kind=kind).metric(Nothing())
    assert isinstance(found, (GraphClasses, GraphLabels))
    assert found.name == "accuracy"
    answers = np.eye(2)[[0, 1, 1]] if kind == "classes" else np.array([[0.0], [1.0], [1.0]])
    found.update(answers, [0, 1, 0] if kind == "classes" else [[0], [1], [0]])
    assert found.compute() == pytest.approx(2 / 3)
    assert "roc_auc" not in found.secondary()
    with pytest.raises(ConfigError, match="roc_auc"):
        bound(GraphPrediction, model, kind=kind, metric="roc_auc").metric(Nothing())


@pytest.mark.parametrize("labels", [None, ["no", "yes"]])
def test_one_score_of_two_classes(labels: list[str] | None, tmp_path: Path) -> None:
    weights = {"w": np.ones((4, 1), np.float32)}
    notes = {} if labels is None else {"class_labels": labels}
    column = SCORES[:, :1]

    def rows(body: str, values: Any, shape: str = "float[N, 1] y", **flags: Any) -> Any:
        path = small_model(tmp_path / "m.onnx", body, shape, weights=weights, **notes)
        with open_engine("onnx", EngineSpec(ckpt=path)) as engine:
            model = Model.of(engine)
        return class_rows(values, model, options(Classification, **flags)).values

    want = np.concatenate([1 - sigmoid(column), sigmoid(column)], axis=1)
    np.testing.assert_allclose(rows("h = MatMul(x, w) y = Sigmoid(h)", sigmoid(column)), want, atol=1e-6)
    flat = "h = MatMul(x, w) s = Sigmoid(h) i = Constant<value_ints = [1]>() y = Squeeze(s, i)"
    np.testing.assert_allclose(rows(flat, sigmoid(column)[:, 0], "float[N] y"), want, atol=1e-6)
    said = {"output_kind": "logits"} if labels is None else {}
    np.testing.assert_allclose(rows("y = MatMul(x, w)", column, **said), want, atol=1e-6)
    if labels is None:
        with pytest.raises(ModelError, match="--output_kind"):
            rows("y = MatMul(x, w)", column)


def test_three_labels_and_one_score(tmp_path: Path) -> None:
    body, weights = "h = MatMul(x, w) y = Sigmoid(h)", {"w": np.ones((4, 1), np.float32)}
    path = small_model(tmp_path / "m.onnx", body, "float[N, 1] y", weights=weights, class_labels=["a", "b", "c"])
    with open_engine("onnx", EngineSpec(ckpt=path)) as engine:
        model = Model.of(engine)
    with pytest.raises(ModelError, match="3 labels"):
        class_rows(sigmoid(SCORES[:, :1]), model, options(Classification))


def test_sorted_scores_and_invalid_labels(tmp_path: Path) -> None:
    body = "h = MatMul(x, w) k = Constant<value_ints = [5]>() y, i = TopK(h, k)"
    path = small_model(tmp_path / "m.onnx", body, "float[N, 5] y", weights=GEMM)
    with open_engine("onnx", EngineSpec(ckpt=path)) as engine:
        sorted_model = Model.of(engine)
    with pytest.raises(ModelError, match="TopK"):
        bound(Classification, sorted_model).decode(SCORES, None)
    model = model_of(tmp_path, "labels")
    for wrong in ([0, 9], [0, 0.5], [-1, 0]):
        with pytest.raises(InputError):
            bound(Classification, model).decode(np.array(wrong, np.float32), None)
    lost = bound(Classification, model).decode(np.array([1, np.nan], np.float32), None)
    assert lost[0].tolist() == [0, 1, 0, 0, 0]
    assert np.isnan(lost[1]).all()


@pytest.mark.parametrize(("layout", "end"), [("detr", "Softmax<axis = -1>"), ("rtdetr", "Sigmoid")])
def test_an_activation_is_applied_once(layout: str, end: str, tmp_path: Path) -> None:
    """A detector of sets whose graph ends in the activation that its layout applies finds the same."""
    x, outputs = "float[N, 6, 4] x", "float[N, 6, 5] logits, float[N, 6, 4] pred_boxes"
    boxes = "pred_boxes = Sigmoid(x)"
    raw = SCORES[None]
    shares = softmax(raw) if layout == "detr" else sigmoid(raw)
    places = np.full((1, 6, 4), 0.4, np.float32)
    opt = options(Detection, layout=layout, given=set())
    found = []
    for body, values in (("logits = MatMul(x, w)", raw), (f"h = MatMul(x, w) logits = {end}(h)", shares)):
        path = small_model(tmp_path / "m.onnx", f"{body} {boxes}", outputs, x, weights=GEMM)
        with open_engine("onnx", EngineSpec(ckpt=path)) as engine:
            model = Model.of(engine)
        (one,) = detections([values, places], [fit(64, 64, (64, 64))], model, opt, (64, 64), USUAL)
        found.append(one)
    assert len(found[0].scores) > 0
    np.testing.assert_allclose(found[0].scores, found[1].scores, atol=1e-5)
    assert found[0].classes.tolist() == found[1].classes.tolist()


@pytest.mark.parametrize(("end", "form"), [("Identity", "logit"), ("Sigmoid", "probability")])
def test_scores_of_boxes(end: str, form: str, tmp_path: Path) -> None:
    outputs = "float[N, 6, 4] boxes, float[N, 6, 5] scores"
    body = f"boxes = Relu(x) h = MatMul(x, w) scores = {end}(h)"
    path = small_model(tmp_path / "m.onnx", body, outputs, "float[N, 6, 4] x", weights=GEMM)
    with open_engine("onnx", EngineSpec(ckpt=path)) as engine:
        model = Model.of(engine)
    assert detection_choice("score_form", model, options(Detection)) == form
    assert detection_choice("score_form", model, options(Detection, score_form="twice")) == "twice"


def test_faces_by_logits(tmp_path: Path) -> None:
    weights = {"k": np.ones((1, 3, 1, 1), np.float32)}
    maps = "float[N, 1, 8, 8] heatmap, float[N, 3, 8, 8] scale, float[N, 3, 8, 8] offset, float[N, 3, 8, 8] landmarks"
    rest = "scale = Relu(x) offset = Relu(x) landmarks = Relu(x)"
    heat = np.full((1, 1, 8, 8), -4, np.float32)
    heat[0, 0, 3, 4] = 2
    others = [np.zeros((1, count, 8, 8), np.float32) for count in (2, 2, 10)]
    scores = []
    for body, values in (("heatmap = Conv(x, k)", heat), ("h = Conv(x, k) heatmap = Sigmoid(h)", sigmoid(heat))):
        path = small_model(tmp_path / "m.onnx", f"{body} {rest}", maps, "float[N, 3, 8, 8] x", weights=weights)
        with open_engine("onnx", EngineSpec(ckpt=path)) as engine:
            model = Model.of(engine)
        (one,) = bound(FaceDetection, model, "multi").decode([values, *others], [fit(32, 32, (32, 32))])
        scores.append(one.scores.tolist())
    assert scores[0] == pytest.approx(scores[1], abs=1e-6)
    assert scores[0] == pytest.approx([1 / (1 + np.exp(-2))], abs=1e-6)


def test_labels_are_rejected_as_embedding(tmp_path: Path) -> None:
    body = "h = MatMul(x, w) a = ArgMax<axis = -1>(h) y = Cast<to = 1>(a)"
    path = small_model(tmp_path / "m.onnx", body, "float[N, 1] y", weights=GEMM)
    with open_engine("onnx", EngineSpec(ckpt=path)) as engine:
        model = Model.of(engine)
    with pytest.raises(ModelError, match="embedding"):
        vectors(np.ones((2, 1), np.float32), [3, 3], model, options(Classification), Notes())


def test_numbers_of_actions() -> None:
    nothing = np.zeros(0)
    actions = Actions("several", 5, (2,), (2, 3), np.array([0, 1]), nothing, nothing, np.dtype(np.int64))
    rows = actions.rows_of(np.array([[1, 2], [0, 0]], np.float32))
    assert [one.tolist() for one in actions.chosen(rows)] == [[1, 3], [0, 1]]
    assert np.isnan(actions.rows_of(np.array([[1, np.nan]], np.float32))).all()
    with pytest.raises(ModelError, match="action 3"):
        actions.rows_of(np.array([[0, 3]], np.float32))


def test_an_output_that_no_graph_declares() -> None:
    spec = TensorSpec("logits", np.dtype(np.float32), (None, 5))
    found = class_rows(SCORES, Model(Path("absent.onnx"), (), (spec,)), options(Classification))
    assert found.are_logits
    np.testing.assert_array_equal(found.values, SCORES)
