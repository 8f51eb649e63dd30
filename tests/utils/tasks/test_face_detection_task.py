"""The task of faces: what a constructed network finds, draws, writes and refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from constructed_models import NAME, bound, described, evaluated, opened, options, written
from PIL import Image

from engine import ConfigError, DataError, InputError
from utils.pipeline import answers, valid
from utils.preprocess.image.letterbox import fit
from utils.tasks.face_detection import SURE, FaceDetection, as_detections
from utils.tasks.model import Model

SIZE = 64


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(FaceDetection, tmp_path_factory.mktemp("faces"))


def model_of(tiny: Path, **metadata: str) -> Model:
    with opened(tiny / f"{NAME}_dyn.onnx", "onnx") as engine:
        found = described(engine)
    return replace(found, metadata={**found.metadata, **metadata})


@pytest.mark.parametrize(("target", "file"), [("onnx", "dyn"), ("sdaa", "float16_dyn")])
def test_the_constructed_model_finds_the_drawn_faces(tiny: Path, target: str, file: str) -> None:
    with opened(tiny / f"{NAME}_{file}.onnx", target) as engine:
        opt = options(FaceDetection, input_size=SIZE)
        metric, found = evaluated(FaceDetection, engine, described(engine), tiny / "data", opt)
    assert metric.compute() > 0.95
    figures = metric.secondary()
    assert figures["precision"] == 1
    assert figures["recall"] > 0.95
    assert figures["landmark_error"] < 0.15
    assert (figures["false_alarms"], figures["faceless_pictures"]) == (0, 4)
    assert sum(map(len, found)) >= 20


def test_whole_runs(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where: dict[str, Any] = {"ckpt": tiny / f"{NAME}_dyn.onnx", "batch_size": 8, "input_size": SIZE}
    words = ["--target", "onnx", "--json", str(tmp_path / "r.json"), "--save_predictions", str(tmp_path / "p.json")]
    assert valid.main(None, FaceDetection, argv=words, data_path=tiny / "data", **where) == 0
    assert "false_alarms 0, faceless_pictures 4" in capsys.readouterr().out
    found = json.loads((tmp_path / "p.json").read_text())
    assert {"image_id", "category_id", "bbox", "score"} == set(found[0])
    words = ["--target", "onnx", "--json", str(tmp_path / "s.json"), "--show", "0", "--save", str(tmp_path / "shown")]
    assert valid.main(None, FaceDetection, argv=words, data_path=tiny / "data", **where) == 0
    (shown,) = json.loads((tmp_path / "s.json").read_text())["answers"]
    assert min((face["score"] for face in shown["answer"]), default=1) >= SURE
    assert (tmp_path / "shown" / shown["file"]).is_file()
    capsys.readouterr()
    words = ["--target", "onnx", "--json", str(tmp_path / "m.json"), "--save", str(tmp_path / "drawn")]
    assert answers.main(None, FaceDetection, "multi", argv=words, data_path=tiny / "data" / "images", **where) == 0
    said = capsys.readouterr().out
    assert "faces_05.png  no face\n" in said
    assert " face" in said
    with Image.open(tmp_path / "drawn" / "faces_00.png") as drawn:
        assert drawn.size[0] > SIZE
    result = json.loads((tmp_path / "m.json").read_text())
    one = next(row["answer"] for row in result["answers"] if row["answer"]) if "answers" in result else None
    assert one is None or np.shape(one[0]["landmarks"]) == (5, 2)


def test_invalid_line_skips_its_image(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (tiny / "data" / "label.txt").read_text()
    (tmp_path / "images").symlink_to(tiny / "data" / "images")
    (tmp_path / "label.txt").write_text(text.replace(" 0\n", " nan\n", 1) + "# gone.png\n1 2 3 4\n")
    code = valid.main(
        None, FaceDetection, argv=["--target", "onnx"], ckpt=tiny / f"{NAME}_dyn.onnx", data_path=tmp_path,
        batch_size=8, input_size=SIZE,
    )  # fmt: skip
    told = "".join(capsys.readouterr())
    assert code == 1
    assert "a number is NaN, infinite or" in told
    assert "gone.png" in told
    assert "eval_metric" in told


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"input_size": 65}, "--input_size 65 must be a multiple of 32; use 64"),
        ({"input_size": [64, 10]}, "--input_size 10 must be a multiple of 32; use 32"),
        ({"sure_score": 2.0}, "--sure_score 2.0 must be from 0 to 1"),
        ({"score_threshold": 0.7}, "--score_threshold 0.7 .*--sure_score 0.5"),
        ({"iou_threshold": -1.0}, "--iou_threshold -1.0 must be from 0 to 1"),
        ({"fill": 256}, "--fill 256 must be"),
    ],
)
def test_invalid_options(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        bound(FaceDetection, None, **given).check()
    assert "--layout" not in {flag.name for flag in FaceDetection.flags}


def test_maps_by_their_names_or_their_order(tiny: Path) -> None:
    model, opt = model_of(tiny), options(FaceDetection, "single")
    chance = np.random.default_rng(0)
    maps = [chance.random((1, channels, 4, 4)).astype(np.float32) for channels in (1, 2, 2, 10)]
    geometry = fit(16, 16, (16, 16))
    (found,) = FaceDetection(opt).bind(model).decode(maps, [geometry])
    swapped = replace(model, outputs=tuple(model.outputs[place] for place in (3, 1, 0, 2)))
    (again,) = FaceDetection(opt).bind(swapped).decode([maps[place] for place in (3, 1, 0, 2)], [geometry])
    bare = replace(model, outputs=tuple(replace(spec, name=f"o{i}") for i, spec in enumerate(model.outputs)))
    (third,) = FaceDetection(opt).bind(bare).decode(tuple(maps), [geometry])
    assert len(found)
    for other in (again, third):
        assert np.array_equal(found.landmarks, other.landmarks)
    assert np.array_equal(as_detections(found).boxes, found.boxes)
    with pytest.raises(InputError, match=rf"{NAME}_dyn\.onnx: .*\[1, 1, 4, 4\] "):
        FaceDetection(opt).bind(bare).decode(maps[0], [geometry])


def test_stored_thresholds_are_used_and_flags_take_precedence(tiny: Path) -> None:
    maps = [np.zeros((1, channels, 4, 4), np.float32) for channels in (1, 2, 2, 10)]
    maps[0][0, 0, 0] = (0.9, 0.45, 0.3, 0.02)
    stored = {"detection": json.dumps({"score_threshold": 0.4, "iou_threshold": 1.0, "max_detections": 1})}
    geometry = fit(16, 16, (16, 16))

    def count(model: Model, script: str = "valid", **given: Any) -> int:
        return len(bound(FaceDetection, model, script, **given).decode(maps, [geometry])[0])

    assert count(model_of(tiny)) == 3
    assert count(model_of(tiny), "single") == 1
    assert count(model_of(tiny, **stored)) == 1
    assert count(model_of(tiny, **stored), max_detections=9) == 2
    assert count(model_of(tiny, **stored), max_detections=9, score_threshold=0.01) == 4


def test_other_classes_are_reported_or_left_out(tiny: Path, tmp_path: Path) -> None:
    image = tiny / "data" / "images" / "faces_00.png"
    (tmp_path / "faces_00.png").write_bytes(image.read_bytes())
    entry = {"image_id": 1, "bbox": [1, 1, 9, 9]}
    content = {
        "images": [{"id": 1, "file_name": "faces_00.png"}],
        "categories": [{"id": 1, "name": "dog"}, {"id": 2, "name": "face"}],
        "annotations": [{"id": 1, "category_id": 1, **entry}, {"id": 2, "category_id": 2, **entry}],
    }
    (tmp_path / "val.json").write_text(json.dumps(content))
    model, opt = model_of(tiny), options(FaceDetection)
    dataset = FaceDetection(opt).load({"data": tmp_path})
    with pytest.raises(DataError, match="dog"):
        FaceDetection(opt).bind(model).metric(dataset)
    opt.common_classes = True
    with pytest.warns(UserWarning, match="1 of 2 classes"):
        metric = FaceDetection(opt).bind(model).metric(dataset)
    assert metric.name == "AP50"
