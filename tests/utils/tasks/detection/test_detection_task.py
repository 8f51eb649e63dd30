"""Detection from data to metric: the template's model on both targets, decode, answers, and bad input."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from constructed_models import NAME, bound, described, evaluated, opened, options, written
from PIL import Image

from engine import ConfigError, DataError, InputError, ModelError, TensorSpec
from utils.postprocess.image.nms import Detections
from utils.preprocess.image.letterbox import fit
from utils.tasks.base import SCRIPTS
from utils.tasks.detection.task import SHOWN, Detection
from utils.tasks.model import Model

FLOAT = np.dtype(np.float32)
IMAGE = TensorSpec("input", FLOAT, (None, 3, 32, 64))
HEAD = (TensorSpec("boxes", FLOAT, (None, None, 4)), TensorSpec("scores", FLOAT, (None, None, 2)))
PLAIN = {"preprocess": json.dumps({"mean": [0, 0, 0], "std": [1, 1, 1]})}
MODEL = Model(Path("m.onnx"), (IMAGE,), HEAD, metadata={**PLAIN, "class_labels": '["cat", "dog"]'})


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(Detection, tmp_path_factory.mktemp("detection"))


@pytest.mark.slow
@pytest.mark.parametrize("target", ["onnx", "sdaa"])
@pytest.mark.parametrize("file", ["_dyn", "_float16_dyn"])
def test_the_constructed_model_finds_the_squares(tiny: Path, target: str, file: str) -> None:
    with opened(tiny / f"{NAME}{file}.onnx", target) as engine:
        metric, predictions = evaluated(
            Detection, engine, described(engine), tiny / "data" / "val.json", options(Detection)
        )
    assert 0.9 < metric.compute() < 1.0
    assert metric.secondary()["mAP50"] == 1.0
    assert len(predictions) == 24


def test_without_suppression_the_metric_falls(tiny: Path) -> None:
    """Every query in a square gives its box: the suppression has work to do, and the metric sees it."""
    with opened(tiny / f"{NAME}_dyn.onnx", "onnx") as engine:
        opt = options(Detection, iou_threshold=1.0)
        metric, _ = evaluated(Detection, engine, described(engine), tiny / "data" / "val.json", opt)
        wrong, _ = evaluated(Shifted, engine, described(engine), tiny / "data" / "val.json", options(Detection))
    assert metric.compute() < 0.8
    assert wrong.compute() < 0.5


class Shifted(Detection):
    """Decodes as always, with boxes that lie two pixels aside: what a wrong letterbox would do."""

    def decode(self, outputs: Any, contexts: Any) -> Any:
        return [one._replace(boxes=one.boxes + 2.0) for one in super().decode(outputs, contexts)]


def test_images_one_by_one_are_the_batch(tiny: Path) -> None:
    with opened(tiny / f"{NAME}_dyn.onnx", "onnx") as engine:
        task = bound(Detection, described(engine))
    samples = task.load({"data": tiny / "data"}).batch(range(5)).samples
    whole = task.prepare(samples)
    parts = [task.prepare([sample]) for sample in samples]
    np.testing.assert_array_equal(task.collate(parts)[0], whole.arrays[0])
    assert task.collate([whole])[0] is whole.arrays[0]
    assert whole.contexts == [context for part in parts for context in part.contexts or ()]


def test_prepare_letterboxes_into_the_array_it_is_given(tmp_path: Path) -> None:
    Image.new("RGB", (128, 32), (255, 0, 51)).save(tmp_path / "a.png")
    out = np.full((1, 3, 32, 64), 9, np.float16)
    found = bound(Detection, MODEL).prepare([tmp_path / "a.png"], out=out)
    assert found.arrays[0] is out
    assert found.contexts == [fit(128, 32, (32, 64))]
    np.testing.assert_allclose(out[0, :, 16, 0], [1, 0, 0.2], atol=1e-3)
    np.testing.assert_allclose(out[0, :, 0, 0], 114 / 255, atol=1e-3)
    noted = replace(MODEL, metadata={"preprocess": json.dumps({"mean": [0.5, 0, 0.2], "std": [0.5, 1, 2]})})
    (array,) = bound(Detection, noted, input_size=[16, 64]).prepare([tmp_path / "a.png"]).arrays
    assert array.shape == (1, 3, 16, 64)
    np.testing.assert_allclose(array[0, :, 8, 0], [1, 0, 0], atol=1e-6)


def test_decode_undoes_the_letterbox() -> None:
    contexts = [fit(128, 32, (32, 64)), fit(64, 32, (32, 64))]
    boxes = np.array([[[10, 8, 20, 24], [10, 8, 20, 23], [0, 0, 64, 32]]] * 2, np.float32)
    scores = np.array([[[0.9, 0.1], [0.8, 0.7], [np.nan, 0.05]]] * 2, np.float32)
    far, near = bound(Detection, MODEL, score_threshold=0.1).decode([boxes, scores], contexts)
    assert far.boxes.tolist() == [[20, 0, 40, 32], [20, 0, 40, 30]]
    assert near.boxes.tolist() == [[10, 8, 20, 24], [10, 8, 20, 23]]
    assert near.classes.tolist() == [0, 1]
    assert near.scores == pytest.approx([0.9, 0.7])
    swapped = replace(MODEL, outputs=HEAD[::-1])
    (again,) = bound(Detection, swapped, score_threshold=0.1).decode([scores[:1], boxes[:1]], contexts[:1])
    assert again.boxes.tolist() == far.boxes.tolist()


def test_scripts_have_separate_thresholds() -> None:
    boxes = np.array([[[0, 0, 5, 5], [20, 20, 30, 30]]], np.float32)
    scores = np.array([[[0.01, 0], [0.9, 0]]], np.float32)
    geometry = [fit(64, 32, (32, 64))]

    def count(**given: object) -> int:
        return len(bound(Detection, MODEL, **given).decode([boxes, scores], geometry)[0].scores)

    assert count(script="valid") == 2
    assert count(script="single") == count(script="multi") == 1
    assert count(script="single", score_threshold=0.005) == 2
    assert count(max_detections=1) == 1


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        ([(1, 5, 4)], r"its outputs \(output_0 \[1, 5, 4\], for 1 samples\) fit no known layout"),
        ([(1, 5, 4), (1, 6, 2)], r"boxes \[1, 5, 4\], scores \[1, 6, 2\], for 1 samples\) fit no known"),
        ([(1, 5, 3), (1, 5, 2)], "set --layout to one of boxes"),
        ([(2, 5, 4), (2, 5, 2)], "for 1 samples"),
        ([(1, 5, 4), (1, 5)], "no known layout"),
    ],
)
def test_outputs_of_another_shape(shapes: list[tuple[int, ...]], said: str) -> None:
    with pytest.raises(InputError, match=said):
        bound(Detection, MODEL).decode([np.zeros(shape, np.float32) for shape in shapes], [fit(4, 4, (32, 64))])


def test_answers(tmp_path: Path) -> None:
    Image.new("RGB", (100, 100)).save(tmp_path / "a.png")
    found = Detections(np.array([[12, 30, 80.4, 99], [1, 2, 3, 4]]), np.array([0.912, 0.5]), np.array([0, 1]))
    artifact = bound(Detection, MODEL, "single").show(tmp_path / "a.png", found)
    assert artifact.text == "2 objects: cat 0.91 at 12,30,80,99; dog 0.50 at 1,2,3,4"
    assert artifact.answer[0] == {"label": "cat", "score": 0.912, "box": [12, 30, 80.4, 99]}
    assert json.loads(json.dumps(artifact.answer)) == artifact.answer
    assert artifact.save is not None
    saved = artifact.save(tmp_path / "out")
    assert saved == tmp_path / "out" / "a.png"
    assert np.asarray(Image.open(saved))[3 * 40 : 3 * 90, 3 * 12 : 3 * 12 + 2].any()
    weak = Detections(np.zeros((2, 4)), np.array([0.25, 0.2]), np.array([0, 1]))  # valid finds them, for mAP
    counts = [len(bound(Detection, MODEL, script).show(tmp_path / "a.png", weak).answer) for script in SCRIPTS]
    assert counts == [1, 2, 2]
    nothing = Detections(np.empty((0, 4)), np.empty(0), np.empty(0, int))
    assert bound(Detection, MODEL).show(tmp_path / "a.png", nothing).text == "0 objects"
    many = Detections(np.zeros((SHOWN + 3, 4)), np.ones(SHOWN + 3), np.zeros(SHOWN + 3, int))
    assert bound(Detection, MODEL).show(tmp_path / "a.png", many).text.endswith("; and 3 more")
    unnamed = replace(MODEL, metadata=PLAIN)
    assert bound(Detection, unnamed).show(tmp_path / "a.png", found).answer[1]["label"] == "1"
    with pytest.raises(ModelError, match=r"1 labels .*class 1"):
        bound(Detection, replace(MODEL, metadata={"class_labels": '["cat"]'})).show(tmp_path / "a.png", found)


def test_sizes() -> None:
    assert bound(Detection, None).input_size() is None
    assert bound(Detection, None, input_size=64).input_size() == ((None, 3, 64, 64),)
    assert bound(Detection, None, input_size=[32, 64]).input_size() == ((None, 3, 32, 64),)
    free = replace(MODEL, inputs=(replace(IMAGE, shape=(None, 3, None, None)),))
    with pytest.raises(ConfigError, match="pass --input_size"):
        bound(Detection, free).prepare([])
    with pytest.raises(ConfigError, match="C x H x W"):
        bound(Detection, replace(MODEL, inputs=(replace(IMAGE, shape=(None, 7)),))).prepare([])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"score_threshold": 1.5}, "--score_threshold 1.5 must be from 0 to 1"),
        ({"iou_threshold": float("nan")}, "--iou_threshold nan must be from 0 to 1"),
        ({"max_detections": 0}, "--max_detections 0 must be at least 1"),
        ({"input_size": [1, 2, 3]}, "must be one or two positive numbers"),
        ({"input_size": 0}, "must be one or two positive numbers"),
    ],
)
def test_invalid_options(given: dict[str, object], said: str) -> None:
    bound(Detection, None).check()
    with pytest.raises(ConfigError, match=said):
        bound(Detection, None, **given).check()


def test_unreadable_image_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"a.png: is not an image"):
        bound(Detection, MODEL).prepare([tmp_path / "a.png"])
