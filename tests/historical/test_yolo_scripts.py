"""Scripts for YOLO detectors in the historical style run unchanged, from ``example/`` and from ``contrib/example/``."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import shutil
import site
from pathlib import Path

import pytest
from support import ROOT, RunPython
from yolo_models import DETECTOR, SIDE, V5, V8, save_detector, save_scenes

from utils.coco_classes import NAMES

SCENES = 48

# What such scripts do, call by call, with every keyword that any of them passes. Nothing here is to be modernised.
ENGINE = """
import argparse, os, sys, time
from pathlib import Path
sys.path.append(str(Path(__file__).resolve().parent.parent.parent.parent))
from engine.tecoinfer_pytorch import TecoInferEngine

MAX_ENGINE_NUMS = int(os.getenv("MAX_ENGINE_NUMS", 4))

def options(**defaults):
    parser = argparse.ArgumentParser()
    parser.add_argument("--ckpt", type=str)
    parser.add_argument("--data-path", type=str)
    parser.add_argument("--target", default="sdaa")
    parser.add_argument("--input_name", default="images")
    parser.add_argument("--batch-size", type=int, default=1)
    parser.add_argument("--shape", type=int, default=640)
    parser.add_argument("--half", action="store_true")
    for name, value in defaults.items():
        parser.add_argument("--" + name, type=type(value), default=value)
    return parser.parse_args()

def build(opt, **more):
    input_size = [[max(opt.batch_size // MAX_ENGINE_NUMS, 1), 3, opt.shape, opt.shape]]
    return TecoInferEngine(ckpt=opt.ckpt, input_name=opt.input_name, target=opt.target, model_name="yolov5",
                           batch_size=opt.batch_size, input_size=input_size,
                           dtype="float16" if opt.half else "float32", pass_path=None, **more)
"""

VALID = (
    """
import json
from tqdm import tqdm
import numpy as np
import torch
"""
    + ENGINE
    + """
from utils.datasets.yolo_pt_dataset import create_dataloader
from utils.preprocess.pytorch.yolo_pt import preprocess
from utils.postprocess.pytorch.yolo_pt import (LOGGER, colorstr, increment_path, scale_boxes, xywh2xyxy, xyxy2xywh,
    print_args, box_iou, ap_per_class, postprocess, TQDM_BAR_FORMAT, CLASSES, CLASSES_ANIMAL)

def with_objects(pred):
    # what people do with the layout of YOLOv8 and later
    pred = torch.from_numpy(pred) if isinstance(pred, np.ndarray) else pred
    pred = pred.transpose(1, 2)
    there = torch.ones((*pred.shape[:2], 1), dtype=pred.dtype, device=pred.device)
    return torch.cat([pred[..., :4], there, pred[..., 4:]], dim=-1)

def matched(found, wanted, levels):
    right = np.zeros((found.shape[0], levels.shape[0])).astype(bool)
    overlap = box_iou(wanted[:, 1:], found[:, :4])
    same = wanted[:, 0:1] == found[:, 5]
    for i in range(len(levels)):
        at = torch.where((overlap >= levels[i]) & same)
        if at[0].shape[0]:
            pairs = torch.cat((torch.stack(at, 1), overlap[at[0], at[1]][:, None]), 1).cpu().numpy()
            if at[0].shape[0] > 1:
                pairs = pairs[pairs[:, 2].argsort()[::-1]]
                pairs = pairs[np.unique(pairs[:, 1], return_index=True)[1]]
                pairs = pairs[np.unique(pairs[:, 0], return_index=True)[1]]
            right[pairs[:, 1].astype(int), i] = True
    return torch.tensor(right, dtype=torch.bool, device=levels.device)

def measure(im, preds, targets, paths, shapes, stats, rows, single_cls):
    levels = torch.linspace(0.5, 0.95, 10)
    for si, pred in enumerate(preds):
        labels = targets[targets[:, 0] == si, 1:]
        nl, npr = labels.shape[0], pred.shape[0]
        path, shape = Path(paths[si]), shapes[si][0]
        correct = torch.zeros(npr, levels.numel(), dtype=torch.bool)
        if npr == 0:
            if nl:
                stats.append((correct, *torch.zeros((2, 0)), labels[:, 0]))
            continue
        if single_cls:
            pred[:, 5] = 0
        predn = pred.clone()
        scale_boxes(im[si].shape[1:], predn[:, :4], shape, shapes[si][1])
        if nl:
            tbox = xywh2xyxy(labels[:, 1:5])
            scale_boxes(im[si].shape[1:], tbox, shape, shapes[si][1])
            correct = matched(predn, torch.cat((labels[:, 0:1], tbox), 1), levels)
        stats.append((correct, pred[:, 4], pred[:, 5], labels[:, 0]))
        box = xyxy2xywh(predn[:, :4])
        box[:, :2] -= box[:, 2:] / 2
        for p, b in zip(predn.tolist(), box.tolist()):
            rows.append({"image_id": path.stem, "category_id": int(p[5]), "bbox": [round(x, 3) for x in b],
                         "score": round(p[4], 5)})

if __name__ == "__main__":
    opt = options(adapt=0, first=0, rect=0, single=0, workers=2)
    print_args(vars(opt))
    pipeline = build(opt, save_engine=False, card_bs1=False)
    val_path = os.path.join(opt.data_path, "val2017.txt")
    dataloader = create_dataloader(val_path, opt.shape, opt.batch_size, 32, bool(opt.single), pad=0.0,
                                   rect=bool(opt.rect), workers=opt.workers, prefix=colorstr("val: "))[0]
    save_dir = increment_path(Path(opt.data_path) / "runs" / "exp", exist_ok=False)
    heading = ("%22s" + "%11s" * 6) % ("Class", "Images", "Instances", "P", "R", "mAP50", "mAP50-95")
    pbar = tqdm(dataloader, desc=heading, bar_format=TQDM_BAR_FORMAT)
    stats, rows, run_time = [], [], []
    for batch_i, (im, targets, paths, shapes) in enumerate(pbar):
        nb, _, height, width = im.shape
        start_time = time.time()
        dealed_im, padding_shape, _ = preprocess(im.numpy(), opt.batch_size, (height, width), half=opt.half)
        preds = pipeline(dealed_im, conf_thres=0.001, iou_thres=0.65, max_det=300, batch_padding=True,)
        if opt.adapt:
            preds = with_objects(preds)
        if opt.first:
            preds = [preds, None]
        preds = postprocess(preds, padding_shape, 0.001, 0.65, labels=[], multi_label=True, max_det=300)
        run_time.append(pipeline.run_time)
        assert 0 < pipeline.run_time <= time.time() - start_time
        targets[:, 2:] *= torch.tensor((width, height, width, height))
        measure(im, preds, targets, paths, shapes, stats, rows, bool(opt.single))
    if "sdaa" in opt.target:
        pipeline.release()
    names = dict(enumerate(CLASSES))
    assert len(names) == 80 and len(CLASSES_ANIMAL) == 10
    stats = [torch.cat(x, 0).cpu().numpy() for x in zip(*stats)]
    if len(stats) and stats[0].any():
        tp, fp, p, r, f1, ap, ap_class = ap_per_class(*stats, plot=False, save_dir=save_dir, names=names)
        ap50, ap = ap[:, 0], ap.mean(1)
    nt = np.bincount(stats[3].astype(int), minlength=len(names))
    line = "%22s" + "%11i" * 2 + "%11.3g" * 4
    LOGGER.info(line % ("all", len(dataloader.dataset.im_files), nt.sum(), p.mean(), r.mean(), ap50.mean(), ap.mean()))
    for i, c in enumerate(ap_class):
        LOGGER.info(line % (names[c], 0, nt[c], p[i], r[i], ap50[i], ap[i]))
    os.makedirs(save_dir)
    with open(save_dir / "predictions.json", "w") as f:
        json.dump(rows, f)
    print("eval_metric", ap.mean())
"""
)

SINGLE = (
    ENGINE
    + """
from utils.preprocess.pytorch.yolo_pt import preprocess
from utils.postprocess.pytorch.yolo_pt import postprocess

if __name__ == "__main__":
    opt = options()
    pipeline = build(opt)
    im, padding_shape, image0_shapes = preprocess(opt.data_path, opt.batch_size, (opt.shape, opt.shape), half=opt.half)
    results = pipeline(im)
    results = postprocess(results, padding_shape, image=im, image0_shapes=image0_shapes, class_name=None)
    if len(results) == 0:
        print(f"{os.path.basename(opt.data_path)}: no detections")
    else:
        for i in range(len(results)):
            for k, v in results[i].items():
                print(k, v)
    if "sdaa" in opt.target:
        pipeline.release()
"""
)

MULTI = (
    ENGINE
    + """
from utils.preprocess.pytorch.yolo_pt import preprocess, IMG_FORMATS
from utils.postprocess.pytorch.yolo_pt import postprocess

if __name__ == "__main__":
    opt = options()
    pipeline = build(opt)
    for filename in sorted(os.listdir(opt.data_path)):
        filepath = os.path.join(opt.data_path, filename)
        if filepath.split(".")[-1].lower() not in IMG_FORMATS:
            continue
        im, padding_shape, image0_shapes = preprocess(filepath, opt.batch_size, (opt.shape, opt.shape), half=opt.half)
        results = pipeline(im)
        results = postprocess(results, padding_shape, image=im, image0_shapes=image0_shapes)
        if len(results) == 0:
            print(f"{filename}: no detections")
            continue
        print(f"{filename}:")
        for detection in results:
            for class_name, boxes in detection.items():
                for bbox in boxes:
                    x1, y1, x2, y2 = map(int, bbox)
                    print(class_name, x1, y1, x2, y2)
    if "sdaa" in opt.target:
        pipeline.release()
"""
)

SCRIPTS = {"example_valid": VALID, "example_single_batch": SINGLE, "example_multi_batch": MULTI}
PLACES = ("example", "contrib/example")


FACES: dict[str, tuple[str, list[object]]] = {
    "preprocess.pytorch.yolo_pt.preprocess": (
        "inputs batch_size input_size batch_padding half kw",
        [True, False],
    ),
    "postprocess.pytorch.yolo_pt.postprocess": (
        "prediction padding_shape conf_thres iou_thres classes agnostic multi_label labels max_det nm image "
        "image0_shapes class_name card_num max_nms",
        [0.25, 0.45, None, False, False, (), 300, 0, None, [], NAMES, 0, 30000],
    ),
    "datasets.yolo_pt_dataset.create_dataloader": (
        "path imgsz batch_size stride single_cls hyp augment cache pad rect rank workers image_weights quad prefix "
        "shuffle",
        [False, None, False, False, 0.0, False, -1, 8, False, False, "", False],
    ),
}
"""What scripts call, in ``utils``: the arguments in their order, and the defaults of the last ones."""


@pytest.mark.parametrize("name", FACES)
def test_functions_have_the_parameters_of_scripts(name: str) -> None:
    module, _, function = f"utils.{name}".rpartition(".")
    parameters = inspect.signature(getattr(importlib.import_module(module), function)).parameters
    names, defaults = FACES[name]
    assert " ".join(parameters) == names
    assert [one.default for one in parameters.values() if one.default is not one.empty] == defaults


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the zoo with the scripts at both places, two models and some scenes."""
    copy = tmp_path_factory.mktemp("yolo")
    for folder in ("engine", "tecoinfer_modelzoo", "utils", "contrib/engine", "contrib/utils"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for place in PLACES:
        home = copy / place / "detection" / "yolov5"
        home.mkdir(parents=True)
        for name, text in SCRIPTS.items():
            (home / f"{name}.py").write_text(text)
    for layout in (V5, V8):
        save_detector(copy / f"{layout}.onnx", layout)
    save_scenes(copy / "digits", SCENES)
    return copy


def run(run_python: RunPython, copy: Path, place: str, script: str, layout: str, data: Path, *more: str) -> str:
    """Run a script where packages are there but no zoo is installed, and return what it printed."""
    packages = [Path(folder) for folder in site.getsitepackages()]
    if any((folder / "engine").is_dir() for folder in packages):
        pytest.skip("the zoo is installed here as a copy, which cannot be left out")
    path = copy / place / "detection" / "yolov5" / f"{script}.py"
    done = run_python(
        *("-S", path, "--ckpt", copy / f"{layout}.onnx", "--data-path", data, "--shape", SIDE, *more),
        cwd=path.parent,
        path=packages,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "arning" not in done.stderr
    return done.stdout


def objects_in(scene: str) -> list[tuple[int, list[float]]]:
    """Return classes and boxes of a scene."""
    content = json.loads((DETECTOR / "data" / "val.json").read_text())
    (image,) = (one for one in content["images"] if one["file_name"].endswith(scene))
    found = []
    for one in content["annotations"]:
        if one["image_id"] == image["id"]:
            left, top, width, height = one["bbox"]
            found.append((one["category_id"] - 1, [left, top, left + width, top + height]))
    return found


@pytest.mark.parametrize(("place", "layout"), [("example", V5), ("contrib/example", V8)])
def test_a_single_image(place: str, layout: str, copy: Path, run_python: RunPython) -> None:
    image = copy / "digits" / "images" / "val2017" / "0000.jpg"
    printed = run(run_python, copy, place, "example_single_batch", layout, image, "--target", "onnx")
    answers = {int(k): ast.literal_eval(v) for k, v in (line.split(" ", 1) for line in printed.splitlines())}
    wanted = objects_in("0000.jpg")
    assert {label for label, _ in wanted} <= set(answers)
    for label, box in wanted:
        assert any(max(abs(a - b) for a, b in zip(found, box, strict=True)) < 6 for found in answers[label])


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("layout", [V5, V8])
def test_a_folder(place: str, layout: str, copy: Path, run_python: RunPython, tmp_path: Path) -> None:
    for name in ("0001.jpg", "0002.jpg", "0003.jpg"):
        shutil.copyfile(copy / "digits" / "images" / "val2017" / name, tmp_path / name)
    (tmp_path / "notes.txt").write_text("no image")
    from PIL import Image

    Image.new("RGB", (300, 120)).save(tmp_path / "black.PNG")
    more = ("--batch-size", "4", "--half", "--target", "sdaa")
    printed = run(run_python, copy, place, "example_multi_batch", layout, tmp_path, *more)
    assert printed.endswith("black.PNG: no detections\n")
    parts = re.split(r"^(\d+\.jpg):\n", printed.removesuffix("black.PNG: no detections\n"), flags=re.MULTILINE)[1:]
    assert parts[::2] == ["0001.jpg", "0002.jpg", "0003.jpg"]
    right = total = 0
    names = ("person", "bicycle", "car", "motorcycle", "airplane", "bus", "train", "truck", "boat", "traffic light")
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        lines = [line.rsplit(" ", 4) for line in text.splitlines()]
        found = [(names.index(label), [int(number) for number in box]) for label, *box in lines]
        for label, box in objects_in(name):
            total += 1
            right += any(
                label == other and max(abs(a - b) for a, b in zip(own, box, strict=True)) < 8 for other, own in found
            )
    assert right >= 0.8 * total


def metric(printed: str) -> float:
    """Return the metric that a script printed."""
    return float(re.fullmatch(r"eval_metric (0\.[0-9]+)", printed.splitlines()[-1]).group(1))


@pytest.fixture(scope="module")
def own_metric(copy: Path, tmp_path_factory: pytest.TempPathFactory) -> float:
    """Return the mAP that the zoo's own script measures on the scenes."""
    import os
    import subprocess
    import sys

    out = tmp_path_factory.mktemp("own") / "report.json"
    command = [sys.executable, DETECTOR / "example_valid.py", "--data_path", copy / "digits", "--json", out]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    return float(json.loads(out.read_text())["metric"])


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.torch
@pytest.mark.parametrize(
    ("place", "layout", "more"),
    [
        ("example", V5, ["--target", "onnx", "--batch-size", "16"]),
        ("contrib/example", V5, ["--target", "sdaa", "--batch-size", "20", "--half", "--first", "1"]),
        ("example", V8, ["--target", "onnx", "--batch-size", "5", "--rect", "1", "--workers", "0"]),
        ("contrib/example", V8, ["--target", "onnx", "--batch-size", "16", "--adapt", "1"]),
    ],
)
def test_the_metric(
    place: str, layout: str, more: list[str], own_metric: float, copy: Path, run_python: RunPython
) -> None:
    pytest.importorskip("torch")
    printed = run(run_python, copy, place, "example_valid", layout, copy / "digits", *more)
    assert metric(printed) == pytest.approx(own_metric, abs=0.01)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.torch
def test_the_metric_of_a_single_class(own_metric: float, copy: Path, run_python: RunPython) -> None:
    pytest.importorskip("torch")
    more = ("--target", "onnx", "--batch-size", "16", "--single", "1")
    printed = run(run_python, copy, "example", "example_valid", V5, copy / "digits", *more)
    assert own_metric - 0.15 < metric(printed) < 1  # digits that lie over each other compete within no class
