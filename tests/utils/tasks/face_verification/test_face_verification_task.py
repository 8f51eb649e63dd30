"""Face verification: two constructed models, which find a marked face and describe it, through the three scripts."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from constructed_models import NAME, options, written
from marked_faces import SIDE, photograph, with_detector
from PIL import Image

from engine import ConfigError, DataError, ModelError
from utils.pipeline import answers, valid
from utils.preprocess.image.alignment import TEMPLATE
from utils.tasks.face_verification.embedding import Notes
from utils.tasks.face_verification.task import FaceVerification
from utils.tasks.model import Model


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The template's folder, with a detector, and photographs of its people beside its portraits."""
    return with_detector(written(FaceVerification, tmp_path_factory.mktemp("faces")))


def ckpt(tiny: Path, *, both: bool = True) -> dict[str, Path]:
    found = {"descriptor": tiny / f"{NAME}_dyn.onnx"}
    return {"detector": tiny / "detector.onnx", **found} if both else found


def run(script: str, result: Path, *argv: str, **how: Any) -> tuple[int, dict[str, Any]]:
    how = {"batch_size": 16, "argv": [*argv, "--target", "onnx", "--json", str(result)], **how}
    main = valid.main if script == "valid" else lambda *a, **k: answers.main(*a, script, **k)
    code = main(None, FaceVerification, **how)
    return code, json.loads(result.read_text())


def test_the_pipeline_finds_the_text_of_the_crops(tiny: Path, tmp_path: Path) -> None:
    """All people are told apart, at any place in the image, and each image is described once."""
    code, found = run("valid", tmp_path / "r.json", ckpt=ckpt(tiny), data_path=tiny / "photographs", input_size=SIDE)
    assert (code, found["metric"], found["samples"]) == (0, 1.0, 144)
    assert found["secondary"]["auc"] == 1.0
    assert found["failures"] == []
    code, alone = run("valid", tmp_path / "a.json", ckpt=ckpt(tiny, both=False), data_path=tiny / "data")
    assert (code, alone["metric"]) == (0, 1.0)
    # the mark hides the same place of every face
    assert found["secondary"]["threshold"] == pytest.approx(alone["secondary"]["threshold"], abs=0.1)


def test_every_image_pairs(tiny: Path, tmp_path: Path) -> None:
    words = ("--pairs", "all", "--metric", "auc", "--far", "0.01", "--workers", "2", "--streams", "2")
    code, found = run("valid", tmp_path / "r.json", *words, ckpt=ckpt(tiny, both=False), data_path=tiny / "data")
    assert (code, found["metric_name"], found["samples"]) == (0, "auc", 48 * 47 // 2)
    assert found["metric"] > 0.999
    assert found["secondary"]["accuracy"] == 1.0
    assert {"tar_at_far_0.01", "tar_at_far_0.01_low", "tar_at_far_0.01_high"} <= set(found["secondary"])
    assert "tar_at_far_0.001" not in found["secondary"]


def test_no_face_and_several(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An image without a face costs its pairs, by name; of several faces a rule takes one, and says so."""
    data = tmp_path / "data"
    for person in ("ada", "ben", "cleo", "dora"):
        for number in (1, 2):
            face = tiny / "data" / person / f"{person}_{number:04d}.png"
            photograph(face, 8, 8, data / person / f"{person}_{number:04d}.png", (56, 56) if person == "ben" else None)
    Image.new("RGB", (SIDE, SIDE)).save(data / "ada" / "ada_0002.png")
    how: dict[str, Any] = {"ckpt": ckpt(tiny), "data_path": data, "input_size": SIDE}
    code, found = run("valid", tmp_path / "r.json", **how)
    assert code == 1
    assert all("ada_0002.png: no face with a score of 0.5 or more" in one["reason"] for one in found["failures"])
    assert found["samples"] + len(found["failures"]) == 8
    assert len(found["failures"]) >= 1
    out = "".join(capsys.readouterr())
    assert "2 images show (ben/ben_0001.png, ben/ben_0002.png) several faces; the largest" in out
    code, found = run("valid", tmp_path / "r.json", "--no_face", "center", **how)
    assert (code, found["failures"]) == (0, [])
    assert "1 image shows (ada/ada_0002.png) no detected face" in "".join(capsys.readouterr())


def test_the_answer_to_two_images(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (tiny / "photographs" / who for who in ("ada/ada_0001.png", "ada/ada_0002.png"))
    how: dict[str, Any] = {"ckpt": ckpt(tiny), "input_size": SIDE, "batch_size": 1}
    data = {"first": first, "second": second}
    code, found = run("single", tmp_path / "r.json", "--save", str(tmp_path / "out"), data_path=data, **how)
    (answer,) = (one["answer"] for one in found["answers"])
    assert (code, answer["same"], answer["threshold"]) == (0, True, 0.8)
    assert answer["similarity"] == answer["score"] > 0.9
    left, top, right, bottom = answer["first"]["box"]
    assert (right - left, bottom - top) == (32, 32)
    assert np.array(answer["first"]["landmarks"]) == pytest.approx(np.array(TEMPLATE) * 32 + (left, top), abs=0.02)
    (file,) = (tmp_path / "out").iterdir()
    drawn = np.asarray(Image.open(file).convert("RGB")).astype(int)
    assert drawn.shape[1] >= 640
    assert (np.abs(drawn - (255, 210, 0)).max(axis=-1) < 3).sum() > 500  # two boxes
    assert "same person: similarity 0.9" in capsys.readouterr().out
    data["second"] = tiny / "photographs" / "kira" / "kira_0001.png"
    code, found = run("single", tmp_path / "r.json", data_path=data, **how)
    assert (code, found["answers"][0]["answer"]["same"]) == (0, False)


def test_all_pairs_of_images_of_a_folder(tiny: Path, tmp_path: Path) -> None:
    how: dict[str, Any] = {"ckpt": ckpt(tiny, both=False)["descriptor"], "data_path": tiny / "data" / "ada"}
    code, found = run("multi", tmp_path / "r.json", "--save", str(tmp_path / "out"), **how)
    assert (code, len(found["answers"])) == (0, 6)
    assert len(list((tmp_path / "out").iterdir())) == 6
    with pytest.raises(DataError, match="pass data with targets"):
        run("valid", tmp_path / "r.json", **how)


def test_other_models_are_rejected(tiny: Path, tmp_path: Path) -> None:
    wrong = {"detector": tiny / "detector.onnx", "descriptor": tiny / "detector.onnx"}
    how: dict[str, Any] = {"data_path": tiny / "photographs" / "ben", "input_size": SIDE}
    with pytest.raises(ModelError, match=r"\[4, 1, 56, 56\] .*D"):
        run("multi", tmp_path / "r.json", ckpt=wrong, **how)


def test_unreadable_image_fails_its_pairs(tiny: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    for person in ("ada", "ben", "cleo", "dora"):
        (data / person).mkdir(parents=True)
        for number in (1, 2):
            face = Image.open(tiny / "data" / person / f"{person}_{number:04d}.png")
            face.save(data / person / f"{number}.png")
    (data / "cleo" / "2.png").write_bytes(b"no image")
    code, found = run("valid", tmp_path / "r.json", ckpt=ckpt(tiny, both=False), data_path=data)
    assert code == 1
    assert all("cleo/2.png" in one["reason"] for one in found["failures"])
    assert found["samples"] + len(found["failures"]) == 8


@pytest.mark.parametrize("target", ["onnx", "sdaa"])
@pytest.mark.parametrize("batch", [1, 16])
def test_score_is_independent_of_the_batch(target: str, batch: int, tiny: Path, tmp_path: Path) -> None:
    names = ("--target", target, "--dtype", "float32")
    found = [
        run("multi", tmp_path / f"{size}.json", ckpt=ckpt(tiny), data_path=tiny / "photographs" / "ben",
            argv=[*names, "--json", str(tmp_path / f"{size}.json")], batch_size=size, input_size=SIDE)[1]
        for size in (batch, 3)
    ]  # fmt: skip
    scores = [[one["answer"]["score"] for one in result["answers"]] for result in found]
    assert scores[0] == pytest.approx(scores[1], abs=1e-6)


def test_nan_affects_only_its_pairs(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A card that loses rows 4 to 7 of the first call: those images, in whatever pair, have no answer."""
    monkeypatch.setenv("TECO_SIM_FAULTS", "nan:spa=1,step=0")
    argv = ["--json", str(tmp_path / "r.json"), "--workers", "0"]
    how: dict[str, Any] = {"argv": argv, "ckpt": ckpt(tiny, both=False), "data_path": tiny / "data"}
    code, found = run("valid", tmp_path / "r.json", **how)
    dataset = FaceVerification(options(FaceVerification)).load({"data": tiny / "data"})
    first = dataset.batch(range(16))
    images = list(dict.fromkeys(path for pair in first.samples for path in pair))
    lost = set(images[4:8])
    whole = dataset.batch(range(len(dataset)))
    wanted = [name for name, pair in zip(whole.names, whole.samples, strict=True) if lost & set(pair)]
    assert (code, found["nan_outputs"]) == (1, wanted)
    assert 0 < len(wanted) < len(dataset)


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        ([], "not a JSON object"),
        ({"compare": "best"}, "compare 'best' must be one of euclid, cosine"),
        ({"threshold": "1"}, "threshold '1' must be a number"),
        ({"points": [[0, 0]]}, "points must be 5 pairs"),
        ({"points": "x"}, "points must be 5 pairs"),
    ],
)
def test_invalid_metadata(stored: Any, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        Notes.of(Model(Path("x.onnx"), metadata={"verification": json.dumps(stored)}), options(FaceVerification))


def test_flags_override_metadata() -> None:
    model = Model(Path("x.onnx"), metadata={"verification": '{"compare": "euclid", "threshold": 0.6}'})
    one, other = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    plain = Notes.of(model, options(FaceVerification))
    assert plain.score(one, other) == pytest.approx(-math.sqrt(2))
    assert (plain.same(-0.6), plain.same(-0.61), plain.same(math.nan)) == (True, False, None)
    cosine = Notes.of(model, options(FaceVerification, compare="cosine"))
    assert (cosine.score(one, other), cosine.threshold, cosine.same(1.0)) == (0.0, None, None)
    assert math.isnan(cosine.score(one, np.zeros(2)))
    assert Notes.of(model, options(FaceVerification, threshold=0.3)).threshold == 0.3


@pytest.mark.parametrize(
    ("flag", "value", "words"),
    [
        ("input_size", [0], "--input_size"),
        ("input_size", [1, 2, 3], "--input_size"),
        ("score_threshold", 1.0, "--score_threshold 1.0"),
        ("folds", 1, "--folds 1"),
        ("seed", -1, "--seed -1"),
        ("threshold", math.inf, "--threshold inf"),
        ("far", [0.1, 1.0], "--far 1.0"),
    ],
)
def test_invalid_flags(flag: str, value: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        FaceVerification(options(FaceVerification, **{flag: value})).check()


def test_missing_paths(tmp_path: Path) -> None:
    task = FaceVerification(options(FaceVerification))
    with pytest.raises(DataError, match="does not exist"):
        task.load({"data": tmp_path / "none"})
    Image.new("L", (2, 2)).save(tmp_path / "one.png")
    with pytest.raises(DataError, match="pass --data_path first="):
        task.load({"data": tmp_path / "one.png"})
    (tmp_path / "one.png").unlink()
    with pytest.raises(DataError, match="is empty"):
        task.load({"data": tmp_path})
