"""The task of key points: what the template's network finds, draws, writes and refuses, and rows of a detector."""

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
from utils.datasets.image.coco_keypoints import Posed
from utils.pipeline import answers, valid
from utils.postprocess.image.poses import Poses
from utils.preprocess.image.letterbox import fit
from utils.tasks.keypoints.heads import ENDS, HEATMAPS, ROWS, SIMCC, layout_of
from utils.tasks.keypoints.results import pose_overlaps
from utils.tasks.keypoints.task import Keypoints
from utils.tasks.model import Model

SIZE = 64


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(Keypoints, tmp_path_factory.mktemp("figures"))


def model(*outputs: tuple[int | None, ...], size: tuple[int, int] = (SIZE, SIZE), **metadata: Any) -> Model:
    """A model with these shapes of outputs, whose names are output_0, output_1, ..."""
    image = TensorSpec("input", np.dtype(np.float32), (None, 3, *size))
    specs = tuple(TensorSpec(f"output_{i}", np.dtype(np.float32), one) for i, one in enumerate(outputs))
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in metadata.items()}
    return Model(Path("pose.onnx"), (image,), specs, metadata=texts)


@pytest.mark.parametrize(("target", "file"), [("onnx", "dyn"), ("sdaa", "float16_dyn")])
def test_the_constructed_model_finds_the_drawn_joints(tiny: Path, target: str, file: str) -> None:
    with opened(tiny / f"{NAME}_{file}.onnx", target) as engine:
        metric, found = evaluated(Keypoints, engine, described(engine), tiny / "data", options(Keypoints))
    assert metric.compute() > 0.9
    assert metric.secondary()["AR"] > 0.9
    assert sum(len(one.scores) for one in found) > 16


def test_whole_runs(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where: dict[str, Any] = {"ckpt": tiny / f"{NAME}_dyn.onnx", "batch_size": 4}
    words = ["--target", "onnx", "--json", str(tmp_path / "r.json"), "--save_predictions", str(tmp_path / "p.json")]
    assert valid.main(None, Keypoints, argv=words, data_path=tiny / "data", **where) == 0
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["metric_name"] == "OKS_AP"
    found = json.loads((tmp_path / "p.json").read_text())
    assert {"image_id", "category_id", "keypoints", "score"} == set(found[0])
    assert len(found[0]["keypoints"]) == 9
    words = ["--target", "onnx", "--resume", str(tmp_path / "state"), "--json", str(tmp_path / "s.json")]
    for _ in range(2):  # the second run reads the journal
        assert valid.main(None, Keypoints, argv=words, data_path=tiny / "data", **where) == 0
        assert json.loads((tmp_path / "s.json").read_text())["metric"] == result["metric"]
    words = ["--target", "onnx", "--json", str(tmp_path / "m.json"), "--save", str(tmp_path / "drawn")]
    capsys.readouterr()
    assert answers.main(None, Keypoints, "multi", argv=words, data_path=tiny / "data", **where) == 0
    assert "figures_00.png  " in capsys.readouterr().out
    with Image.open(tmp_path / "drawn" / "figures_00.png") as drawn:
        assert drawn.size[0] > SIZE


def test_without_boxes_the_image_is_the_object(tiny: Path, tmp_path: Path) -> None:
    data = json.loads((tiny / "data" / "val.json").read_text())
    one = data["annotations"][0]
    left, top, width, height = one["bbox"]
    with Image.open(tiny / "data" / data["images"][0]["file_name"]) as image:
        image.crop((left, top, left + width, top + height)).save(tmp_path / "one.png")
    with opened(tiny / f"{NAME}_dyn.onnx", "onnx") as engine:
        known, opt = described(engine), options(Keypoints, "multi")
        (found,) = evaluated(Keypoints, engine, known, tmp_path, opt)[1]
    wanted = np.array(one["keypoints"], float).reshape(3, 3)
    seen = wanted[:, 2] > 0
    away = np.abs(found.points[0] + (left, top) - wanted[:, :2])[seen]
    assert away.max() < 3
    assert (found.sure[0] > 0.3).tolist() == seen.tolist()


def test_an_image_without_objects_has_no_answer(tmp_path: Path) -> None:
    Image.new("RGB", (SIZE, SIZE)).save(tmp_path / "a.png")
    task = bound(Keypoints, model((None, 3, 16, 16)))
    prepared = task.prepare([Posed(tmp_path / "a.png", np.zeros((0, 4)))])
    assert prepared.arrays[0].shape == (1, 3, SIZE, SIZE)
    (found,) = task.decode(np.ones((1, 3, 16, 16), np.float32), prepared.contexts)
    assert found.points.shape == (0, 3, 2)


@pytest.mark.parametrize(
    ("shapes", "metadata", "layout"),
    [
        (((None, 17, 64, 48),), {}, HEATMAPS),
        (((None, 17, 384), (None, 17, 512)), {}, SIMCC),
        (((None, 56, 8400),), {}, ROWS),
        (((None, 56, 84),), {"kpt_shape": [17, 3]}, ROWS),
        (((None, 300, 57),), {"kpt_shape": [17, 3]}, ENDS),
        (((None, 300, 57),), {}, ENDS),
        (((None, 23, 400),), {"class_labels": [str(i) for i in range(10)]}, ROWS),
        (((None, 300, 57),), {"detection": {"layout": ROWS}}, ROWS),
    ],
)
def test_layout_by_shapes(shapes: Any, metadata: Any, layout: str) -> None:
    assert layout_of(model(*shapes, **metadata), options(Keypoints)) == layout


def rows_of(boxes: Any, scores: Any, points: Any, cells: int = 20) -> np.ndarray:
    """YOLO's rows (4 + C + 3 K) x A with some objects in the first cells."""
    boxes, scores, points = (np.asarray(one, np.float32) for one in (boxes, scores, points))
    table = np.concatenate([boxes, scores, points.reshape(len(boxes), -1)], axis=1)
    return np.concatenate([table, np.zeros((cells - len(table), table.shape[1]), np.float32)]).T


def test_rows_are_decoded_into_the_image() -> None:
    """A box in the left half of a 128 x 64 image, letterboxed to 64 x 64; a worse box of its place is dropped."""
    geometry = fit(128, 64, (SIZE, SIZE))
    points = [[[10, 20, 0.9], [12, 30, 0.8]], [[0, 0, 0], [0, 0, 0]], [[50, 30, 0.5], [40, 20, 0.1]]]
    made = rows_of([[10, 26, 8, 8], [10.5, 26, 8, 8], [45, 30, 10, 6]], [[0.9, 0.1], [0.8, 0.1], [0.2, 0.6]], points)
    task = bound(Keypoints, model((None, 12, None), class_labels=["a", "b"], kpt_shape=[2, 3]))
    (found,) = task.decode(made[None], [geometry])
    assert found.classes.tolist() == [0, 1]
    np.testing.assert_allclose(found.scores, [0.9, 0.6], rtol=1e-6)
    np.testing.assert_allclose(found.boxes[0], [12, 12, 28, 28])
    np.testing.assert_allclose(found.points[0], [[20, 8], [24, 28]])
    np.testing.assert_allclose(found.sure[1], [0.5, 0.1], rtol=1e-6)
    ends = np.zeros((1, 5, 12), np.float32)
    ends[0, :2] = [[6, 22, 14, 30, 0.3, 1, 1, 2, 1, 3, 4, 1], [6, 22, 14, 30, 0.7, 0, 10, 20, 0.9, 12, 30, 0.8]]
    task = bound(Keypoints, model((None, 5, 12), class_labels=["a", "b"], kpt_shape=[2, 3]))
    (found,) = task.decode(ends, [geometry])
    np.testing.assert_allclose(found.scores, [0.7, 0.3], rtol=1e-6)
    np.testing.assert_allclose(found.points[0], [[20, 8], [24, 28]])


def test_nan_rows_are_dropped() -> None:
    made = rows_of([[10, 26, 8, 8], [40, 26, 8, 8]], [[0.9], [0.8]], [[[np.nan, 1, 1]], [[1, 2, 1]]])
    task = bound(Keypoints, model((None, 8, None), kpt_shape=[1, 3]))
    (found,) = task.decode(made[None], [fit(SIZE, SIZE, (SIZE, SIZE))])
    np.testing.assert_allclose(found.scores, [0.8], rtol=1e-6)


@pytest.mark.parametrize(
    ("alignment", "wanted"), [("corner", (20, 12)), ("centre", (21.5, 13.5)), ("ends", (21, 12.6))]
)
def test_alignment_of_heat_maps(alignment: str, wanted: tuple[float, float], tmp_path: Path) -> None:
    """A maximum in cell (5, 3) of 16 x 16 cells for 64 x 64 pixels, and a crop that is the image."""
    Image.new("RGB", (SIZE, SIZE)).save(tmp_path / "a.png")
    task = bound(Keypoints, model((None, 1, 16, 16)), alignment=alignment, box_scale=1.0, refine="none")
    contexts = task.prepare([Posed(tmp_path / "a.png")]).contexts
    maps = np.zeros((1, 1, 16, 16), np.float32)
    maps[0, 0, 3, 5] = 0.7
    (found,) = task.decode(maps, contexts)
    np.testing.assert_allclose(found.points[0, 0], wanted)
    np.testing.assert_allclose(found.scores, [0.7], rtol=1e-6)
    quarter = bound(Keypoints, model((None, 1, 16, 16)), box_scale=1.0)
    maps[0, 0, 3, 6] = maps[0, 0, 2, 5] = 0.1
    np.testing.assert_allclose(quarter.decode(maps, contexts)[0].points[0, 0], (21, 11))


def test_simcc_vectors(tmp_path: Path) -> None:
    """Two bins per pixel; the score is the smaller maximum."""
    Image.new("RGB", (48, 64)).save(tmp_path / "a.png")
    task = bound(Keypoints, model((None, 1, 96), (None, 1, 128), size=(64, 48)), box_scale=1.0)
    contexts = task.prepare([Posed(tmp_path / "a.png")]).contexts
    across, down = np.zeros((1, 1, 96), np.float32), np.zeros((1, 1, 128), np.float32)
    across[0, 0, 21], down[0, 0, 90] = 0.9, 0.6
    (found,) = task.decode([across, down], contexts)
    np.testing.assert_allclose(found.points[0, 0], (10.5, 45))
    np.testing.assert_allclose(found.sure[0], [0.6], rtol=1e-6)
    with pytest.raises(InputError, match="bins per pixel"):
        task.decode([across, down[..., :100]], contexts)


@pytest.mark.parametrize(
    ("known", "outputs", "wanted"),
    [
        (model((None, 9, None), kpt_shape=[2, 3]), np.zeros((1, 9, 20), np.float32), InputError),
        (model((None, 11, None), kpt_shape=[2, 3]), np.full((1, 11, 20), 5, np.float32), InputError),
        (model((None, 11, None), kpt_shape=[2, 4]), np.zeros((1, 11, 20), np.float32), ModelError),
        (model((None, 11)), np.zeros((1, 11), np.float32), ModelError),
        (model((None, 11, None), detection={"layout": "pose"}), np.zeros((1, 11, 20), np.float32), ModelError),
    ],
)
def test_other_outputs_are_refused(known: Model, outputs: np.ndarray, wanted: type[Exception]) -> None:
    with pytest.raises(wanted):
        bound(Keypoints, known).decode(outputs, [fit(SIZE, SIZE, (SIZE, SIZE))])


@pytest.mark.parametrize("given", [{"box_scale": 9.0}, {"sigmas": [0.0]}, {"score_threshold": 2.0}])
def test_invalid_flags(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Keypoints(options(Keypoints, **given)).check()


def test_other_points_than_the_data_sets(tiny: Path) -> None:
    task = bound(Keypoints, model((None, 17, 16, 16), kpt_shape=[17, 3]))
    with pytest.raises(DataError, match="17 key points"):
        task.metric(task.load({"data": tiny / "data"}))


def test_agreement_of_poses(tiny: Path, tmp_path: Path) -> None:
    """Golden answers are read back as they were written, and a moved pose agrees less."""
    task = bound(Keypoints, model((None, 3, 16, 16)))
    dataset = task.load({"data": tiny / "data"})
    batch = dataset.batch(range(2))
    points = np.array([[[3.0, 4.0], [20, 30], [40, 50]]])
    one = Poses(np.array([[0, 0, 50, 60.0]]), np.array([0.5]), np.array([0]), points, np.ones((1, 3)))
    writer = task.prediction_writer(tmp_path / "g.json", dataset)
    writer.see(batch, [one, one])
    writer.close()
    found = task.reference_answers(tmp_path / "g.json", dataset)
    np.testing.assert_array_equal(found[1].points, points)
    assert found[2] is None
    assert task.agreement(one, found[0]) == pytest.approx(1)
    assert 0.3 < task.agreement(one._replace(points=points + 8), found[0]) < 0.999
    assert pose_overlaps(one, one._replace(points=points[:, :2])).tolist() == [[0]]
    (tmp_path / "g.json").write_text('[{"image_id": 1, "category_id": 1, "keypoints": [1, 2], "score": 1}]')
    with pytest.raises(DataError, match="keypoints"):
        task.reference_answers(tmp_path / "g.json", dataset)


def test_shown_points_and_lines(tmp_path: Path) -> None:
    names = {"point_names": ["x", "y", "z"], "skeleton": [[0, 1], [1, 2]]}
    task = bound(Keypoints, model((None, 14, None), detection=names, class_labels=["cat"]), "single")
    Image.new("RGB", (SIZE, SIZE)).save(tmp_path / "a.png")
    points = np.array([[[3.0, 4.0], [20, 30], [40, 50]]])
    one = Poses(np.array([[0, 0, 50, 60.0]]), np.array([0.5]), np.array([0]), points, np.array([[0.9, 0.8, 0.1]]))
    shown = task.show(Posed(tmp_path / "a.png"), one)
    assert shown.answer[0]["points"] == {"x": [3.0, 4.0, 0.9], "y": [20.0, 30.0, 0.8], "z": [40.0, 50.0, 0.1]}
    assert shown.save is not None
    with Image.open(shown.save(tmp_path / "drawn")) as image:
        pixels = np.asarray(image.convert("RGB"))
    assert pixels[87, 59].any()  # on the line from x to y, enlarged five times
    assert not pixels[205, 152].any()  # on the line to z, which is not shown
    with pytest.raises(ModelError):
        bound(Keypoints, replace(model((None, 14, None)), metadata={"detection": '{"sigmas": [-1]}'})).show(
            Posed(tmp_path / "a.png"), one
        )


def test_classes_are_renamed(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "names").write_text("figure = person\n")
    task = bound(Keypoints, model((None, 14, None), class_labels=["person"]), labels=tmp_path / "names")
    dataset = task.load({"data": tiny / "data"})
    assert dataset.targets[0].categories == ("person",)
    assert dataset.samples[0].boxes.shape[1] == 4
    assert task.metric(dataset).labels == ("person",)
    plain = bound(Keypoints, model((None, 14, None), class_labels=["person"]))
    with pytest.raises(DataError, match="figure"):
        plain.metric(plain.load({"data": tiny / "data"}))
