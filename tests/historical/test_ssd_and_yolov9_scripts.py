"""Historical scripts for SSD and YOLOv9 run unchanged from both places, with the metrics of the zoo's own scripts."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ssd_yolov9_scripts import scripts
from support import ROOT, RunPython
from test_historical_scripts import nothing_installed
from wrapped_detectors import HOME, save_ssd, save_yolo, write_voc, write_yolo

COUNT = 48
"""Number of evaluated scenes."""

BOXES = "source_image=None, conf_thres=0.001, iou_thres=0.7, max_det=300, device=cpu"
STATS = "images, preds, paths, shapes, stats, targets, niou, iouv, seen, device=cpu"
FACES = {
    "preprocess.pytorch.ssd.preprocess": "images, half=False, resize_shape=320",
    "postprocess.pytorch.ssd.postprocess": "prec, image_size=320, conf_thres=0.01",
    "postprocess.pytorch.ssd.get_metrics": "dataset, predictions, iteration=None",
    "datasets.ssd_dataset.VOCDataset": "root_dir, datashape=320, image_set=test",
    "datasets.ssd_dataset.collate_fn": "batch",
    "preprocess.pytorch.yolov9m.preprocess": "images, half=False, resize_shape=640",
    "postprocess.pytorch.yolov9m.postprocess": f"images, preds, data_config, targets=None, {BOXES}",
    "postprocess.pytorch.yolov9m.get_stats": STATS,
    "postprocess.pytorch.yolov9m.get_metrics": "stats, data_config",
    "preprocess.pytorch.detection.preprocess": "images, half=False, resize_shape=640",
    "postprocess.pytorch.detection.postprocess": f"images, preds, targets=None, {BOXES}",
    "postprocess.pytorch.detection.get_stats": STATS,
    "postprocess.pytorch.detection.get_metrics": "stats",
}
"""Positional arguments of the functions in ``utils`` that the scripts call."""


@pytest.mark.parametrize("name", FACES)
def test_functions_accept_arguments_of_scripts(name: str) -> None:
    module, _, function = f"utils.{name}".rpartition(".")
    parameters = inspect.signature(getattr(importlib.import_module(module), function)).parameters.values()
    taken = [
        one.name if one.default is one.empty else f"{one.name}={one.default}"
        for one in parameters
        if one.kind is not one.VAR_KEYWORD
    ]
    assert ", ".join(taken) == FACES[name]


@pytest.mark.parametrize("name", ["yolov9m_dataset", "object_detection_dataset"])
def test_loaders_accept_arguments_of_scripts(name: str) -> None:
    mine = inspect.signature(importlib.import_module(f"utils.datasets.{name}").create_dataloader).parameters
    theirs = inspect.signature(importlib.import_module("utils.datasets.yolo_pt_dataset").create_dataloader).parameters
    assert set(mine) == {*theirs, "min_items"}
    assert [mine[one].default for one in theirs] == [theirs[one].default for one in theirs]


RUN = """
import json, runpy, sys
for script, *arguments in json.loads(sys.argv[1]):
    sys.argv = [script, *arguments]
    print("==")
    runpy.run_path(script, run_name="__main__")
"""
"""Run several scripts in one interpreter, which imports torch once."""


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the zoo with the scripts in both places, models in their layouts, and scenes in theirs."""
    pytest.importorskip("torch")
    copy = tmp_path_factory.mktemp("zoo")
    for folder in ("engine", "tecoinfer_modelzoo", "utils", "contrib/engine", "contrib/utils"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for place in ("example", "contrib/example"):
        for family in ("ssd", "yolov9m", "detection"):
            home = copy / place / "detection" / family
            home.mkdir(parents=True)
            for name, text in scripts(family).items():
                (home / name).write_text(text)
    save_ssd(copy / "ssd.onnx")
    save_yolo(copy / "yolov9m.onnx", auxiliary=True)
    save_yolo(copy / "detection.onnx", auxiliary=False)
    write_voc(copy / "VOC2007", COUNT)
    write_yolo(copy / "coco", COUNT)
    (copy / "images").mkdir()
    for name in ("0300.jpg", "0301.jpg"):
        shutil.copy(HOME / "data" / "samples" / name, copy / "images")
    return copy


SSD_FLAGS = "--metric voc2007 --score_threshold 0.01 --iou_threshold 0.45 --max_detections 100"
YOLO_FLAGS = "--score_threshold 0.001 --iou_threshold 0.7 --max_detections 300"


@pytest.fixture(scope="module")
def wanted(zoo: Path) -> dict[str, float]:
    """Return the metrics that the zoo's own script gives for the same scenes, by the family's name."""
    own = zoo / "own"
    for part in ("images", "labels"):
        shutil.copytree(zoo / "coco" / part, own / part)
    (own / "classes.txt").write_text("\n".join("0123456789"))
    found = {}
    for family, data, flags in (("ssd", zoo / "VOC2007", SSD_FLAGS), ("yolov9m", own, YOLO_FLAGS)):
        command = [HOME / "example_valid.py", "--target", "onnx", "--data_path", data, *flags.split()]
        done = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found[family] = float(re.search(r"^eval_metric ([\d.]+)", done.stdout, re.MULTILINE)[1])
    return found | {"detection": found["yolov9m"]}


def run(zoo: Path, place: str, family: str, target: str, dtype: str, run_python: RunPython) -> list[str]:
    """Run the three scripts and return what each prints."""
    home = zoo / place / "detection" / family
    data = zoo / "VOC2007" if family == "ssd" else zoo / "coco" / "val2017.txt"
    common = ["--ckpt", zoo / f"{family}.onnx", "--target", target, "--dtype", dtype]
    common += ["--data_config", zoo / "coco" / "digits.yaml"]
    calls = [
        [home / "example_valid.py", "--data_path", data, *common],
        [home / "example_single_batch.py", "--data_path", zoo / "images" / "0300.jpg", "--batch_size", "1", *common],
        [home / "example_multi_batch.py", "--data_path", zoo / "images", "--batch_size", "1", *common],
    ]
    options, packages = nothing_installed()
    text = json.dumps([list(map(str, call)) for call in calls])
    done = run_python(*options, "-c", RUN, text, cwd=home, path=packages)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("==\n")[1:]


LINE = r"\d+: (\d) .*\((-?[\d.]+), (-?[\d.]+), (-?[\d.]+), (-?[\d.]+)\)"


@pytest.mark.long
@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("family", ["ssd", "yolov9m", "detection"])
@pytest.mark.parametrize(
    ("place", "target", "dtype"), [("example", "onnx", "float32"), ("contrib/example", "sdaa", "float16")]
)
def test_the_scripts_of_a_family(
    family: str, place: str, target: str, dtype: str, zoo: Path, wanted: dict[str, float], run_python: RunPython
) -> None:
    valid, single, multi = run(zoo, place, family, target, dtype, run_python)
    metric = float(re.search(r"mAP@0\.5~0\.95: +([\d.]+)", valid)[1])
    assert abs(metric - wanted[family]) < (1e-3 if dtype == "float32" else 0.01)
    assert metric > 0.8
    first, second = re.split(r"image \d: 030\d.jpg\n", multi)[1:]
    assert first == single != second
    found = re.findall(LINE, single)
    sides = 320 if family == "ssd" else 160  # of the pixels that boxes are in
    edges = [float(edge) for _, *box in found for edge in box]
    assert len(found) >= 2
    assert -0.1 * sides < min(edges)
    assert 0.5 * sides < max(edges) < 1.1 * sides
