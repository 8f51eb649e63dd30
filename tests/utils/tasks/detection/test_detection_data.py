"""Detection's flags of data and metric: names that differ, classes that a model lacks, and whose rules are measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from constructed_models import NAME, bound, written
from PIL import Image

from engine import DataError
from utils.datasets.image.objects import Objects
from utils.datasets.renaming import read_renames
from utils.metrics.detection.metric import RULES
from utils.pipeline import valid
from utils.postprocess.image.nms import Detections
from utils.tasks.detection.task import METRICS, Detection
from utils.tasks.model import Model

COCO = ["__background__", "person", "bicycle", "airplane", "N/A", "tv", "N/A", "couch"]
MODEL = Model(Path("m.onnx"), (), (), metadata={"class_labels": json.dumps(COCO)})


def data(folder: Path, *names: str) -> Path:
    """Write an image with an object of each class, and one class that no object is of."""
    Image.new("RGB", (64, 64)).save(folder / "a.png")
    objects = [{"id": i, "image_id": 1, "category_id": i, "bbox": [i, 1, 9, 9]} for i in range(len(names))]
    classes = [{"id": i, "name": name} for i, name in enumerate([*names, "unused"])]
    content = {"images": [{"id": 1, "file_name": "a.png"}], "categories": classes, "annotations": objects}
    (folder / "val.json").write_text(json.dumps(content))
    return folder / "val.json"


def made(path: Path, known: list[str] | None = COCO, **given: Any) -> Any:
    model = replace(MODEL, metadata={} if known is None else {"class_labels": json.dumps(known)})
    task = bound(Detection, model, **given)
    return task.metric(task.load({"data": path}))


def perfect(real: Objects, *classes: int) -> Detections:
    return Detections(real.boxes, np.full(len(classes), 0.9), np.array(classes))


def test_names_are_found_among_91_labels(tmp_path: Path) -> None:
    found = made(data(tmp_path, "person", "couch", "bicycle"))
    (real,) = bound(Detection, None).load({"data": tmp_path / "val.json"}).batch([0]).targets or ()
    records = found.update([perfect(real, 1, 7, 2)], [real])
    assert sorted(set(records.values["label"].tolist())) == [1, 2, 7]
    assert found.compute() == 1.0
    assert list(found.per_class()) == ["person", "bicycle", "couch"]


def test_missing_classes_are_one_line_with_the_fix(tmp_path: Path) -> None:
    path = data(tmp_path, "person", "cow", "aeroplane", "tvmonitor")
    with pytest.raises(DataError) as caught:
        made(path)
    assert str(caught.value) == (
        "3 classes of the data set ('cow', 'aeroplane', 'tvmonitor') are not among the model's 8 labels ("
        "__background__, person, bicycle, airplane, N/A, ...); write lines such as 'aeroplane = airplane' into a file "
        "and pass --labels FILE, or leave them out with --common_classes"
    )
    names = tmp_path / "names.txt"
    names.write_text("# VOC's\n\naeroplane = airplane\ntvmonitor= tv\n")
    with pytest.raises(DataError, match=r"class 'cow' of the data set is not among .* 'cow = LABEL' into"):
        made(path, labels=names)
    with pytest.warns(UserWarning, match=r"1 of 4 .*: cow$"):
        found = made(path, labels=names, common_classes=True)
    (real,) = bound(Detection, None, labels=names).load({"data": path}).batch([0]).targets or ()
    found.update([perfect(real, 1, 0, 3, 5)], [real])
    assert found.compute() == 1.0
    assert list(found.per_class()) == ["person", "airplane", "tv"]
    with pytest.raises(DataError, match="1 labels"):
        made(path, ["zebra"], common_classes=True)  # nothing in common
    assert made(path, None).labels is None
    assert made(path, None).categories == ("person", "cow", "aeroplane", "tvmonitor", "unused")


def test_merged_classes(tmp_path: Path) -> None:
    path = data(tmp_path, "van", "person", "bus")
    (tmp_path / "names.json").write_text('{"van": "car", "bus": "car"}')
    found = bound(Detection, None, labels=tmp_path / "names.json").load({"data": path})
    (real,) = found.batch([0]).targets or ()
    assert real.categories == ("car", "person", "unused")
    assert real.classes.tolist() == [0, 1, 0]
    assert found.notes.items() >= {"categories": ("car", "person", "unused"), "objects": [2, 1, 0]}.items()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("aeroplane", "line 1: expected"),
        ("a = b\n= c", "line 2: expected"),
        ("a = b\na = c", "line 2: 'a'"),
        ("{", "is not JSON"),
        ('{"a": 1}', "must be a string"),
        ("\xff", "cannot be read"),
        ("persn = car", "'persn' .*val.json; .*'person'"),
        ("x = y", "'x' .*val.json; remove"),
    ],
)
def test_bad_files_of_names(text: str, said: str, tmp_path: Path) -> None:
    path = data(tmp_path, "person")
    (tmp_path / "names").write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match=said) as caught:
        made(path, labels=tmp_path / "names")
    assert "\n" not in str(caught.value)
    with pytest.raises(DataError, match="gone cannot be read"):
        read_renames(tmp_path / "gone")


def test_classes_without_names(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "a.txt").write_text("2 0.5 0.5 1 1\n")
    assert made(tmp_path).compute is not None
    with pytest.raises(DataError, match=r"class 2 .*2 labels.*data\.yaml"):
        made(tmp_path, ["a", "b"])


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(Detection, tmp_path_factory.mktemp("detection"))


def run(tiny: Path, folder: Path, *words: str) -> tuple[int, dict[str, Any]]:
    argv = ["--target", "onnx", "--json", str(folder / "r.json"), *words]
    code = valid.main(None, Detection, argv=argv, ckpt=tiny / f"{NAME}_dyn.onnx", data_path=tiny / "data/val.json")
    return code, json.loads((folder / "r.json").read_text())


@pytest.mark.slow
def test_the_classes_are_a_table_above_the_closing_lines(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = run(tiny, tmp_path)
    lines = capsys.readouterr().out.splitlines()
    assert code == 0
    assert lines[-2].startswith("eval_metric 0.9")
    assert lines[-1].startswith("summary: ")
    head = lines.index("class  objects      AP    AP50    AP75")
    rows = [line.split() for line in lines[head + 1 : head + 4]]
    assert [row[0] for row in rows] == list(found["per_class"]) == ["red", "green", "blue"]
    for name, objects, *figures in rows:
        stored = found["per_class"][name]
        assert int(objects) == stored["objects"]
        assert [float(figure) for figure in figures] == pytest.approx(list(stored.values())[1:], abs=1e-4)
    assert sum(row["AP"] for row in found["per_class"].values()) / 3 == pytest.approx(found["metric"])
    assert found["secondary"].keys() >= {"mAP50", "mAP75", "mAP_small", "mAP_medium", "AR1", "AR10", "AR100"}


@pytest.mark.parametrize("rules", ["voc2007", "voc2012"])
def test_voc_s_rules_by_a_flag(rules: str, tiny: Path, tmp_path: Path) -> None:
    code, found = run(tiny, tmp_path, "--metric", rules)
    assert (code, found["metric_name"], found["metric"]) == (0, f"{rules}_mAP", 1.0)
    assert found["metric_definition"]["options"]["rules"] == rules


def test_invalid_entries_are_reported_and_skipped(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.loads((tiny / "data" / "val.json").read_text())
    content["annotations"][0]["bbox"][2] = -1
    content["annotations"][-1]["category_id"] = 99
    content["images"].append({"id": 999, "file_name": "gone.png"})
    (tiny / "data" / "bad.json").write_text(json.dumps(content))
    code, found = run(tiny, tmp_path, "--data_path", str(tiny / "data" / "bad.json"))
    assert code == 1
    assert found["samples"] == len(content["images"]) - 3
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 4
    assert said[-1] == "3 samples could not be run"


MODES = ["L", "LA", "P", "CMYK", "I;16", "1", "RGBA"]


def test_images_of_any_mode_and_broken_ones(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Grey, CMYK, 16-bit and animated images, and turned ones, are evaluated; a broken one is named."""
    images, notes = [], []
    for i, mode in enumerate(MODES):
        name = f"{i}.tif" if mode == "CMYK" else f"{i}.png"
        Image.new(mode, (64, 48)).save(tmp_path / name)
        images.append(name)
    frames = [Image.new("RGB", (64, 48), (0, 0, level)) for level in (0, 99)]
    frames[0].save(tmp_path / "many.png", save_all=True, append_images=frames[1:])
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (64, 48)).save(tmp_path / "turned.jpg", exif=exif)
    (tmp_path / "broken.png").write_bytes((tmp_path / "0.png").read_bytes()[:60])
    for i, name in enumerate([*images, "many.png", "turned.jpg", "broken.png"]):
        images[i:] = [{"id": i, "file_name": name, "width": 64, "height": 48}]  # type: ignore[list-item]
        notes.append({"id": i, "image_id": i, "category_id": 0, "bbox": [1, 1, 9, 9]})
    content = {"images": images, "annotations": notes, "categories": [{"id": 0, "name": "red"}]}
    (tmp_path / "val.json").write_text(json.dumps(content))
    with pytest.warns(UserWarning, match=r"val\.json: .*size .*: 1 "):
        code, found = run(tiny, tmp_path, "--data_path", str(tmp_path / "val.json"))
    assert (code, found["samples"]) == (1, len(MODES) + 2)
    assert [Path(one["name"]).name for one in found["failures"]] == ["broken.png"]
    assert "1 samples could not be run" in capsys.readouterr().err


def test_the_flag_lists_the_rules() -> None:
    assert tuple(RULES) == METRICS


def test_data_without_objects_is_an_error(tiny: Path, tmp_path: Path) -> None:
    content = json.loads((tiny / "data" / "val.json").read_text()) | {"annotations": []}
    (tiny / "data" / "empty.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"^mAP: "):
        run(tiny, tmp_path, "--data_path", str(tiny / "data" / "empty.json"))


def test_the_metric_is_made_again_from_its_definition(tmp_path: Path) -> None:
    from utils.metrics import metric_from_json, metric_to_json

    found = made(data(tmp_path, "person"))
    again = metric_from_json(metric_to_json(found), tmp_path)
    assert (again.labels, again.categories, again.rules) == (tuple(COCO), ("person", "unused"), "coco")


@pytest.mark.slow
def test_first_reason_is_reported_if_all_samples_fail(tmp_path: Path) -> None:
    model = written(Detection, tmp_path)
    (listed,) = (model / "data").glob("*.json")
    content = json.loads(listed.read_text())
    for one in content["images"]:
        one["id"] = str(one["id"])  # and the objects' image_id are numbers
    listed.write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"annotations\[0\]: image_id"):
        valid.main(
            None, Detection, argv=["--target", "onnx"], ckpt=model / f"{NAME}_dyn.onnx", data_path=model / "data"
        )
