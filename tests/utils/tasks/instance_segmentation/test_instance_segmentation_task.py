"""The task of instance segmentation: what the template's network finds, draws, writes and refuses; other outputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from constructed_models import NAME, bound, described, evaluated, opened, options, written
from PIL import Image

from engine import ConfigError, InputError, ModelError, TensorSpec
from utils.pipeline import answers, valid
from utils.preprocess.image.letterbox import fit
from utils.tasks.instance_segmentation.heads import BOX_MASKS, PROTOTYPES, layout_of
from utils.tasks.instance_segmentation.task import Context, InstanceSegmentation
from utils.tasks.model import Model

SIZE = 64
FLOAT, WHOLE = np.dtype(np.float32), np.dtype(np.int64)
MASK_RCNN = {"boxes": (None, 4), "labels": (None,), "scores": (None,), "masks": (None, 1, SIZE, SIZE)}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(InstanceSegmentation, tmp_path_factory.mktemp("squares"))


def model(outputs: dict[str, tuple[int | None, ...]], **metadata: Any) -> Model:
    """A model with these outputs."""
    image = TensorSpec("input", FLOAT, (None, 3, SIZE, SIZE))
    specs = tuple(TensorSpec(name, WHOLE if name == "labels" else FLOAT, one) for name, one in outputs.items())
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in metadata.items()}
    return Model(Path("seg.onnx"), (image,), specs, metadata=texts)


YOLO = model({"rows": (None, 8, None), "maps": (None, 2, 16, 16)}, class_labels=["a", "b"])


@pytest.mark.parametrize(("target", "file"), [("onnx", "dyn"), ("sdaa", "float16_dyn")])
def test_the_constructed_model_finds_the_drawn_squares(tiny: Path, target: str, file: str) -> None:
    with opened(tiny / f"{NAME}_{file}.onnx", target) as engine:
        opt = options(InstanceSegmentation)
        metric, found = evaluated(InstanceSegmentation, engine, described(engine), tiny / "data", opt)
    assert metric.compute() > 0.9
    assert metric.secondary()["mAP50"] > 0.95
    assert sum(len(one.scores) for one in found) > 24


def test_whole_runs(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The saved masks, and the golden answers of an equal model, give what the run gives."""
    where: dict[str, Any] = {"ckpt": tiny / f"{NAME}_dyn.onnx", "batch_size": 8}
    words = ["--target", "onnx", "--json", str(tmp_path / "r.json"), "--save_predictions", str(tmp_path / "p.json")]
    assert valid.main(None, InstanceSegmentation, argv=words, data_path=tiny / "data", **where) == 0
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["metric_name"] == "mask_mAP"
    found = json.loads((tmp_path / "p.json").read_text())
    assert {"image_id", "category_id", "segmentation", "score"} == set(found[0])
    words = ["--target", "onnx", "--resume", str(tmp_path / "state"), "--json", str(tmp_path / "s.json")]
    for _ in range(2):  # the second run reads the journal
        assert valid.main(None, InstanceSegmentation, argv=words, data_path=tiny / "data", **where) == 0
        assert json.loads((tmp_path / "s.json").read_text())["metric"] == result["metric"]
    words = ["--target", "onnx", "--json", str(tmp_path / "m.json"), "--save", str(tmp_path / "drawn")]
    capsys.readouterr()
    assert answers.main(None, InstanceSegmentation, "multi", argv=words, data_path=tiny / "data", **where) == 0
    assert "squares_00.png  " in capsys.readouterr().out
    with Image.open(tmp_path / "drawn" / "squares_00.png") as drawn:
        assert drawn.size[0] > SIZE
    with opened(tiny / f"{NAME}_dyn.onnx", "onnx") as engine:
        known, opt = described(engine), options(InstanceSegmentation)
        task = bound(InstanceSegmentation, known)
        golden = task.reference_answers(tmp_path / "p.json", task.load({"data": tiny / "data"}))
        _, made = evaluated(InstanceSegmentation, engine, known, tiny / "data", opt)
    pairs = [(one, other) for one, other in zip(made, golden, strict=True) if other is not None]
    assert len(pairs) > 12
    assert all(task.agreement(one, other) == pytest.approx(1) for one, other in pairs)
    one = next(one for one, _ in pairs if len(one.scores))
    moved = one._replace(masks=tuple(mask._replace(left=mask.left + 3) for mask in one.masks))
    assert 0.3 < task.agreement(moved, one) < 0.95


def test_an_invalid_region_skips_its_image(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = json.loads((tiny / "data" / "val.json").read_text())
    for image in (tiny / "data").glob("*.png"):
        (tmp_path / image.name).symlink_to(image)
    data["annotations"][0]["segmentation"] = [[1, 2, 3]]
    data["annotations"][-1]["segmentation"] = None
    (tmp_path / "val.json").write_text(json.dumps(data))
    where: dict[str, Any] = {"ckpt": tiny / f"{NAME}_dyn.onnx", "batch_size": 8}
    assert valid.main(None, InstanceSegmentation, argv=["--target", "onnx"], data_path=tmp_path, **where) == 1
    told = "".join(capsys.readouterr())
    assert "its polygon has 3 numbers" in told
    assert "must be a list of polygons or an RLE" in told
    assert "eval_metric" in told


def test_prototypes_are_combined_in_the_image() -> None:
    """A 128 x 64 image letterboxed to 64 x 64, two prototypes: the left half, and all. The mask ends at the box."""
    rows = np.zeros((1, 8, 20), np.float32)
    rows[0, :, 0] = [24, 32, 16, 16, 0.9, 0, 1, 0]  # the box is 32 to 64 across and 16 to 48 down in the image
    rows[0, :, 1] = [24, 32, 16, 16, 0.8, 0, 0, 1]  # a worse box at the same place
    rows[0, :, 2] = [48, 32, 16, 16, 0, 0.7, 0, 1]
    rows[0, :, 3] = [48, 20, 8, 4, 0.6, 0, 1, 0]  # no pixel
    maps = np.ones((1, 2, 16, 16), np.float32)
    maps[0, 0, :, 6:] = -1
    task = bound(InstanceSegmentation, YOLO)
    (found,) = task.decode([rows, maps], [Context(fit(128, 64, (SIZE, SIZE)))])
    assert found.size == (64, 128)
    assert found.classes.tolist() == [0, 1]
    np.testing.assert_allclose(found.boxes, [[32, 16, 64, 48], [80, 16, 112, 48]])
    first, second = (mask.whole(found.size) for mask in found.masks)
    assert first[16:48, 32:48].all()  # prototype cells 0 to 5 are 48 pixels of the image
    assert first.sum() == 32 * 16
    assert second.sum() == 32 * 32
    (swapped,) = task.decode([maps, rows], [Context(fit(128, 64, (SIZE, SIZE)))])
    np.testing.assert_array_equal(swapped.boxes, found.boxes)


def test_threshold_of_masks() -> None:
    rows, maps = np.zeros((1, 8, 20), np.float32), np.full((1, 2, 16, 16), 1.0, np.float32)
    rows[0, :, 0] = [24, 32, 16, 16, 0.9, 0, 1, 0]  # logit 1: a probability of 0.73
    contexts = [Context(fit(SIZE, SIZE, (SIZE, SIZE)))]
    assert len(bound(InstanceSegmentation, YOLO).decode([rows, maps], contexts)[0].scores) == 1
    strict = bound(InstanceSegmentation, YOLO, mask_threshold=0.75)
    assert len(strict.decode([rows, maps], contexts)[0].scores) == 0


@pytest.mark.parametrize("sized", [True, False], ids=["of_input", "of_box"])
@pytest.mark.parametrize("named", [True, False])
def test_mask_rcnn(sized: bool, named: bool) -> None:
    """Masks as torchvision pastes them, or 28 x 28 within their boxes; one image without a batch axis, or named."""
    boxes = np.array([[8, 8, 24, 40], [30, 30, 50, 50], [0, 0, 10, 10]], np.float32)
    scores, labels = np.array([0.6, 0.9, 1e-5], np.float32), np.array([1, 2, 1])
    masks = np.zeros((3, 1, SIZE, SIZE) if sized else (3, 1, 28, 28), np.float32)
    if sized:
        masks[0, 0, 8:40, 8:16] = masks[1, 0, 30:50, 30:50] = 1
    else:
        masks[0, 0, :, :14] = masks[1] = 1
    names = MASK_RCNN if named else {f"output_{i}": shape for i, shape in enumerate(MASK_RCNN.values())}
    task = bound(InstanceSegmentation, model(names, class_labels=["a", "b"], detection={"class_offset": 1}))
    arrays = [boxes, labels, scores, masks]
    if named:
        arrays = [one[None] for one in arrays]
    (found,) = task.decode(arrays, [Context(fit(SIZE, SIZE, (SIZE, SIZE)))])
    assert found.classes.tolist() == [1, 0]
    np.testing.assert_allclose(found.scores, [0.9, 0.6])
    assert [mask.area for mask in found.masks] == [400, 256]
    assert found.masks[1].whole(found.size)[8:40, 8:16].all()


@pytest.mark.parametrize(
    ("known", "layout"),
    [
        (YOLO, PROTOTYPES),
        (model(MASK_RCNN), BOX_MASKS),
        (model({"maps": (None, 2, 16, 16), "rows": (None, 8, None)}), PROTOTYPES),
        (model(MASK_RCNN, detection={"layout": PROTOTYPES}), PROTOTYPES),
    ],
)
def test_layout_by_outputs(known: Model, layout: str) -> None:
    assert layout_of(known, options(InstanceSegmentation)) == layout


ROWS, MAPS = np.zeros((1, 8, 20), np.float32), np.zeros((1, 2, 16, 16), np.float32)


@pytest.mark.parametrize(
    ("known", "outputs", "wanted"),
    [
        (YOLO, [ROWS[:, :7], MAPS], InputError),
        (YOLO, [ROWS + 2, MAPS], InputError),
        (YOLO, [ROWS], InputError),
        (model({"a": (None, 3)}), [ROWS], ModelError),
        (model({"a": (None, 3)}, detection={"layout": "yolo"}), [ROWS], ModelError),
        (model(MASK_RCNN), [ROWS, ROWS, ROWS, ROWS], InputError),
        (model(MASK_RCNN), [np.zeros((1, 3, 4)), np.zeros((1, 2), int), np.zeros((1, 3)), MAPS], InputError),
    ],
)
def test_other_outputs_are_refused(known: Model, outputs: Any, wanted: type[Exception]) -> None:
    with pytest.raises(wanted):
        bound(InstanceSegmentation, known).decode(outputs, [Context(fit(SIZE, SIZE, (SIZE, SIZE)))])


@pytest.mark.parametrize("given", [{"mask_threshold": 0.0}, {"iou_threshold": 2.0}])
def test_invalid_flags(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        InstanceSegmentation(options(InstanceSegmentation, **given)).check()
