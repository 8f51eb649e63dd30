"""Small image sets from the committed examples, with annotations in each supported format."""

from __future__ import annotations

import functools
import io
import json
import random
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.fuzz.case import ROOT

SCENES = ROOT / "example" / "detection" / "digit_detector" / "data"
SEGMENTS = ROOT / "example" / "segmentation" / "digit_unet" / "data" / "val"
LINES = ROOT / "example" / "ocr" / "digit_crnn" / "data" / "val"
DIGITS = ROOT / "example" / "classification" / "digits" / "data" / "val"
COUNT = 3
SIDE = 160
"""Pixels of a scene's side."""


@functools.cache
def _scenes() -> dict[str, Any]:
    """Return COCO's JSON of the first scenes."""
    content: dict[str, Any] = json.loads((SCENES / "val.json").read_bytes())
    kept = content["images"][:COUNT]
    ids = {image["id"] for image in kept}
    return {
        "images": kept,
        "categories": content["categories"],
        "annotations": [one for one in content["annotations"] if one["image_id"] in ids],
    }


def _copied(data: Path, below: str = "") -> list[str]:
    """Copy the scenes, and return their names."""
    names = [Path(image["file_name"]).name for image in _scenes()["images"]]
    (data / below).mkdir(parents=True, exist_ok=True)
    for name in names:
        shutil.copyfile(SCENES / "val" / name, data / below / name)
    return names


def coco(data: Path) -> list[Path]:
    """Write scenes with boxes in COCO's format."""
    _copied(data, "val")
    (data / "val.json").write_text(json.dumps(_scenes()))
    return [data / "val.json"]


def _boxes(name: str) -> list[tuple[int, list[float]]]:
    """Return the places of classes and the boxes of a scene."""
    content = _scenes()
    key = next(image["id"] for image in content["images"] if Path(image["file_name"]).name == name)
    places = {one["id"]: place for place, one in enumerate(content["categories"])}
    return [(places[one["category_id"]], one["bbox"]) for one in content["annotations"] if one["image_id"] == key]


def voc(data: Path) -> list[Path]:
    """Write scenes with an XML file each in Pascal VOC's format."""
    names, files = [one["name"] for one in _scenes()["categories"]], []
    for name in _copied(data):
        rows = [
            f"<annotation><filename>{name}</filename>",
            f"<size><width>{SIDE}</width><height>{SIDE}</height></size>",
        ]
        for place, (left, top, wide, tall) in _boxes(name):
            corners = (
                f"<xmin>{left + 1}</xmin><ymin>{top + 1}</ymin><xmax>{left + wide}</xmax><ymax>{top + tall}</ymax>"
            )
            rows.append(f"<object>\n<name>{names[place]}</name>\n<bndbox>{corners}</bndbox>\n</object>")
        file = (data / name).with_suffix(".xml")
        file.write_text("\n".join([*rows, "</annotation>"]))
        files.append(file)
    return files


def yolo(data: Path) -> list[Path]:
    """Write scenes with a text file each, and data.yaml, in Ultralytics' format."""
    (data / "labels" / "val").mkdir(parents=True)
    files = [data / "data.yaml"]
    names = [one["name"] for one in _scenes()["categories"]]
    files[0].write_text("path: .\nval: images/val\nnames:\n" + "".join(f'- "{name}"\n' for name in names))
    for name in _copied(data, "images/val"):
        rows = [
            f"{place} {(x + w / 2) / SIDE} {(y + h / 2) / SIDE} {w / SIDE} {h / SIDE}\n"
            for place, (x, y, w, h) in _boxes(name)
        ]
        files.append(data / "labels" / "val" / f"{Path(name).stem}.txt")
        files[-1].write_text("".join(rows))
    return files


def masks(data: Path) -> list[Path]:
    """Write scenes with a mask each."""
    files = []
    for below in ("images", "masks"):
        (data / below).mkdir()
        for file in sorted((SEGMENTS / below).iterdir())[:COUNT]:
            shutil.copyfile(file, data / below / file.name)
            files += [data / below / file.name] * (below == "masks")
    return files


def regions(data: Path) -> list[Path]:
    """Write scenes with polygons and run lengths in COCO's format."""
    _copied(data, "val")
    content = json.loads(json.dumps(_scenes()))
    for place, one in enumerate(content["annotations"]):
        x, y, w, h = one["bbox"]
        one["segmentation"] = [[x, y, x + w, y, x + w, y + h, x, y + h]]
        if place % 2:
            left, top, wide, tall = (int(side) for side in (x, y, max(1, w), max(1, h)))
            counts = [left * SIDE + top, *([tall, SIDE - tall] * wide)]
            counts[-1] += SIDE * SIDE - sum(counts)
            one["segmentation"] = {"counts": counts, "size": [SIDE, SIDE]}
    (data / "val.json").write_text(json.dumps(content))
    return [data / "val.json"]


def labels(data: Path) -> list[Path]:
    """Write digits, and val.txt with their labels."""
    rows = []
    for digit in range(4):
        name = sorted((DIGITS / str(digit)).iterdir())[0].name
        shutil.copyfile(DIGITS / str(digit) / name, data / name)
        rows.append(f"{name} {digit}\n")
    (data / "val.txt").write_text("".join(rows))
    return [data / "val.txt"]


def lines(data: Path) -> list[Path]:
    """Write images of text lines, and rec_gt.txt with their text."""
    rows = (LINES / "rec_gt.txt").read_text().split("\n")[:COUNT]
    (data / "images").mkdir()
    for row in rows:
        name = row.partition("\t")[0]
        shutil.copyfile(LINES / name, data / name)
    (data / "rec_gt.txt").write_text("".join(f"{row}\n" for row in rows))
    return [data / "rec_gt.txt"]


def wider(data: Path) -> list[Path]:
    """Write scenes in WIDER FACE's format."""
    rows = []
    for name in _copied(data):
        boxes = _boxes(name)
        rows += [name, str(len(boxes)), *(" ".join(map(str, box)) + " 0 0 0 0 0 0" for _, box in boxes)]
    (data / "wider_face_val_bbx_gt.txt").write_text("\n".join(rows) + "\n")
    return [data / "wider_face_val_bbx_gt.txt"]


def retina(data: Path) -> list[Path]:
    """Write scenes with points in RetinaFace's format."""
    rows = []
    for name in _copied(data):
        rows += [f"# {name}", *(" ".join(map(str, box)) + " 1.0 2.0 0.0" * 5 + " 0.9" for _, box in _boxes(name))]
    (data / "label.txt").write_text("\n".join(rows) + "\n")
    return [data / "label.txt"]


def pages(data: Path) -> list[Path]:
    """Write scenes as pages in PaddleOCR's format."""
    entry = [
        {"transcription": "a b", "points": [[1, 1], [50, 1], [50, 20], [1, 20]]},
        {"transcription": "###", "points": [[1, 30], [9, 30], [9, 40]]},
    ]
    (data / "Label.txt").write_text("".join(f"{name}\t{json.dumps(entry)}\n" for name in _copied(data)))
    return [data / "Label.txt"]


def icdar(data: Path) -> list[Path]:
    """Write scenes as pages in the format of ICDAR 2015."""
    files = []
    for name in _copied(data):
        files.append(data / f"gt_{Path(name).stem}.txt")
        files[-1].write_text("1,1,50,1,50,20,1,20,a, b\n1,30,9,30,9,40,1,40,###\n")
    return files


def pairs(data: Path) -> list[Path]:
    """Write images of people, and pairs of them in LFW's format."""
    source = SCENES / "val" / "0000.jpg"
    for person in ("ann", "bob", "cy"):
        (data / person).mkdir()
        for number in (1, 2, 3):
            shutil.copyfile(source, data / person / f"{person}_{number:04}.jpg")
    rows = ["2 2", "ann 1 2", "ann 2 3", "ann 1 bob 1", "bob 2 ann 3", "cy 1 2", "cy 1 3", "cy 1 bob 2", "bob 1 cy 3"]
    (data / "pairs.txt").write_text("\n".join(rows) + "\n")
    return [data / "pairs.txt"]


def kaggle(data: Path) -> list[Path]:
    """Write ImageNet's images in Kaggle's layout."""
    folder = data / "ILSVRC" / "Data" / "CLS-LOC" / "val"
    folder.mkdir(parents=True)
    rows = ["ImageId,PredictionString"]
    for number in range(1, COUNT + 1):
        shutil.copyfile(SCENES / "val" / "0000.jpg", folder / f"ILSVRC2012_val_{number:08}.JPEG")
        rows.append(f"ILSVRC2012_val_{number:08},n01440764 1 2 3 4 ")
    (data / "LOC_val_solution.csv").write_text("\n".join(rows) + "\n")
    return [data / "LOC_val_solution.csv"]


def kit(data: Path) -> list[Path]:
    """Write ImageNet's images with a development kit with an invalid table."""
    for number in range(1, COUNT + 1):
        shutil.copyfile(SCENES / "val" / "0000.jpg", data / f"ILSVRC2012_val_{number:08}.JPEG")
    kaggle(data)
    file = data / "ILSVRC2012_devkit_t12.tar.gz"
    with tarfile.open(file, "w:gz") as archive:
        for name, content in (
            ("meta.mat", b"MATLAB 5.0" + bytes(200)),
            ("ILSVRC2012_validation_ground_truth.txt", b"1\n2\n3\n"),
        ):
            entry = tarfile.TarInfo(f"ILSVRC2012_devkit_t12/data/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return [file]


def renames(data: Path) -> list[Path]:
    """Write a list of names."""
    (data / "names.txt").write_text("# names\naeroplane = airplane\ntvmonitor = tv\n")
    return [data / "names.txt"]


# ------------------------------------------------------------------------------------------------------- whole attacks

_LAUGHS = (
    '<!DOCTYPE a [<!ENTITY l0 "lol">' + "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10)) + "]>"
)


def _xml(file: Path, rng: random.Random) -> str:
    head = rng.choice(
        (
            _LAUGHS,
            '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]>',
            '<!DOCTYPE a SYSTEM "http://127.0.0.1:9/x.dtd">',
            '<?xml version="1.0" encoding="utf-7"?>',
            '<?xml version="1.0" encoding="utf-16"?>',
            '<?xml version="1.1"?>',
            "<a>" * 200_000,
            f"<!--{'-' * 10 + 'x' * 100_000}-->",
            '<?xml-stylesheet href="x"?>' * 1000,
        )
    )
    text = file.read_text().replace("<name>", rng.choice(("<name>&l9;", "<name>&x;", "<name>")))
    file.write_text(head + text)
    return head[:60]


def _yaml(file: Path, rng: random.Random) -> str:
    if file.suffix != ".yaml":
        return _many(file, rng)
    aliases = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 30))
    merges = "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n}\n  <<: [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 30))
    extra = rng.choice(
        (
            aliases + "names: *a29\n",
            aliases + "val: *a29\n",
            merges,
            "names: [" + ", ".join(f"n{n}" for n in range(50_000)) + "]\n",
            "x: !!python/object/apply:os.system [id]\n",
            *(
                f"x: !!{tag} {value}\n"
                for tag, value in (("int", '""'), ("bool", "x"), ("timestamp", "x"), ("float", "x"))
            ),
            "x: 2001-01-01 00:00:00 +99:99\n",
            "x: 0x" + "f" * 5000 + "\nnames: 0x" + "f" * 5000 + "\n",
            "x: " + "[" * 3000 + "\n",
            "? [a, b]\n: c\n",
            "names: 1:" + ":".join(["59"] * 20_000) + "\n",
            "path: /etc\n",
            "val: ../../../../etc\n",
            "val: [images/val, images/val]\n",
            "nc: -1\n",
        )
    )
    file.write_text(file.read_text() + extra)
    return extra[:60]


def _many(file: Path, rng: random.Random) -> str:
    """Repeat the last line a million times, as lines or within the line."""
    text = file.read_text()
    last = text.rstrip("\n").rpartition("\n")[2] or "x"
    last = f"none-{last}" if file.name == "val.txt" else last  # there an image counts as often as it is listed
    count = rng.choice((1000, 200_000 if len(last) < 60 else 20_000))
    file.write_text(text + (rng.choice(("\n", " ", "\t")).join([last] * count)))
    return f"its last line {count} times"


def _json(file: Path, rng: random.Random) -> str:
    content = file.read_text()
    how = rng.choice(("deep", "digits", "twice", "nan", "outside", "link", "pipe", "runs"))
    if how == "deep":
        content = content[:-1] + ',"x":' + "[" * 100_000 + "]" * 100_000 + "}"
    elif how == "digits":
        content = content.replace('"id": 0', f'"id": {"9" * rng.choice((400, 5000))}', 1)
    elif how == "twice":
        content = content[:-1] + ',"images":[],"images":' + json.dumps(json.loads(content)["images"]) + "}"
    elif how == "nan":
        content = content.replace('"bbox": [', '"bbox": [NaN, -Infinity, 1e999, ', 1)
    elif how == "outside":
        content = content.replace(
            "val/0000.jpg", rng.choice(("/etc/passwd", "../" * 20 + "etc/passwd", "val/../../x.jpg")), 1
        )
    elif how == "runs":
        content = content.replace(
            '"counts": [', f'"counts": [{rng.choice(("9" * 4299 + ", " + "9" * 4299, "1e3", "-1", "true"))}, ', 1
        )
        content = content.replace(
            '"segmentation": [[', f'"segmentation": [[{rng.choice(("9" * 400, "1e300", "NaN", "true", "1"))}, ', 1
        )
    else:
        image = file.parent / "val" / "0000.jpg"
        image.unlink()
        if how == "link":
            image.symlink_to("/etc/passwd")
        else:
            import os

            os.mkfifo(image)
    file.write_text(content)
    return how


def _bomb(file: Path, rng: random.Random) -> str:
    """Make the kit's table 400 MB of zeros."""
    with tarfile.open(file, "w:gz", compresslevel=1) as archive:
        entry = tarfile.TarInfo("x/meta.mat")
        entry.size = 400 << 20
        with Path("/dev/zero").open("rb") as zeros:
            archive.addfile(entry, zeros)
    return "400 MB of zeros"


SPECIAL: dict[str, Callable[[Path, random.Random], str]] = {
    "voc": _xml,
    "yolo": _yaml,
    "coco": _json,
    "coco_api": _json,
    "regions": _json,
    "kit": _bomb,
    **dict.fromkeys(("labels", "lines", "wider", "retina", "pages", "icdar", "pairs", "kaggle", "renames"), _many),
}
"""Attacks on the whole file by shape."""
