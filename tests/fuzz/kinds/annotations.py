"""Annotations of images, sentences and sounds: changed values, structure, text and bytes, and no files at all."""

from __future__ import annotations

import functools
import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import tests.fuzz.makers.sets_of_domains as domains
import tests.fuzz.makers.sets_of_images as sets
from tests.fuzz.case import ROOT, Case, Outcome
from tests.fuzz.kept_files import with_files
from tests.fuzz.makers.bytes_of import mutated
from tests.fuzz.makers.tables_of import changed_lines
from tests.fuzz.makers.values_of import changed
from tests.fuzz.names import not_a_file_reason, odd_name
from tests.fuzz.runner import run

WARM = (
    *("numpy", "onnx", "onnxruntime", "PIL.Image", "engine", "yaml", "utils.pipeline.cli", "tests.fuzz.loads"),
    *(
        "utils.tasks.classification.task",
        "utils.tasks.detection.task",
        "utils.tasks.segmentation.task",
        "utils.tasks.text_recognition.task",
    ),
    *(
        "utils.tasks.keypoints.task",
        "utils.tasks.instance_segmentation.task",
        "utils.tasks.dense_regression.task",
        "utils.tasks.image_restoration.task",
    ),
    *(
        "utils.tasks.sound_classification.task",
        "utils.tasks.image_text.task",
        "utils.tasks.token_classification.task",
        "utils.tasks.translation.task",
    ),
    *(
        "utils.datasets.image.voc",
        "utils.datasets.image.yolo",
        "utils.datasets.image.wider_face",
        "utils.datasets.image.coco_masks",
    ),
)

EXAMPLES = ROOT / "example"


class Shape(NamedTuple):
    """A kind of annotations.

    Attributes:
        write: writes images and annotations into a folder, and returns the annotations' files, the first one first.
        words: the reader: a script of ``example/``, or a loader of :mod:`tests.fuzz.loads`.
        given: the part of the folder that is passed as the path.
    """

    write: Callable[[Path], list[Path]]
    words: str
    given: str = ""


DETECTOR, SEGMENTER = "detection/digit_detector", "segmentation/digit_unet"
STEREO, SPOKEN = "segmentation/planes_stereo", "speech/keypad_words"
SHAPES = {
    "coco": Shape(sets.coco, DETECTOR, "val.json"),
    "voc": Shape(sets.voc, DETECTOR),
    "yolo": Shape(sets.yolo, DETECTOR, "data.yaml"),
    "masks": Shape(sets.masks, SEGMENTER),
    "regions": Shape(sets.regions, SEGMENTER, "val.json"),
    "labels": Shape(sets.labels, "classification/digits"),
    "lines": Shape(sets.lines, "ocr/digit_crnn"),
    "wider": Shape(sets.wider, "boxes"),
    "retina": Shape(sets.retina, "boxes", "label.txt"),
    "coco_api": Shape(sets.coco, "coco_api", "val.json"),
    "pages": Shape(sets.pages, "pages", "Label.txt"),
    "icdar": Shape(sets.icdar, "pages"),
    "pairs": Shape(sets.pairs, "pairs", "pairs.txt"),
    "kaggle": Shape(sets.kaggle, "images"),
    "kit": Shape(sets.kit, "images"),
    "renames": Shape(sets.renames, "renames", "names.txt"),
    "key_points": Shape(domains.key_points, "detection/digit_pose", "val.json"),
    "instances": Shape(domains.instances, "segmentation/digit_instances", "val.json"),
    "disparity": Shape(domains.disparity, STEREO),
    "arrays_of_disparity": Shape(domains.arrays_of_disparity, STEREO),
    "restored": Shape(domains.restored, "restoration/espcn_x2"),
    "spoken_words": Shape(domains.spoken_words, SPOKEN),
    "sounds_of_classes": Shape(domains.sounds_of_classes, SPOKEN),
    "captions": Shape(domains.captions, "classification/digit_clip"),
    "tags": Shape(domains.tags, "nlp/bert_ner", "val.conll"),
    "translations": Shape(domains.translations, "nlp/tiny_marian", "val.tsv"),
}

SPECIAL: dict[str, Callable[[Path, random.Random], str]] = {
    **sets.SPECIAL,
    "disparity": domains.odd_map,
    "arrays_of_disparity": domains.odd_array,
    **dict.fromkeys(("key_points", "instances"), sets.SPECIAL["coco"]),
    **dict.fromkeys(("captions", "tags", "translations"), sets.SPECIAL["labels"]),
}
"""Attacks on the whole file by shape."""

TEXTS = (".txt", ".xml", ".yaml", ".csv", ".tsv", ".conll")
"""Suffixes of files whose lines are changed."""

_clean: dict[str, str | None] = {}
"""Metric of the unchanged annotations by shape."""


def make(rng: random.Random, folder: Path, number: int) -> Case:
    """Write an image set, change its annotations, and run a script that reads them."""
    name = rng.choice(list(SHAPES))
    shape = SHAPES[name]
    if name not in _clean:
        _clean[name] = _measured(name, folder)
    data = folder / "data"
    data.mkdir()
    files = shape.write(data)
    file = rng.choice(files[:1] * 2 + files)
    same, what = False, ""
    if rng.random() < 0.15:
        what, same = _the_same(file, rng), True
    elif rng.random() < 0.1:
        file.unlink()
        what = not_a_file_reason(rng, file)
    elif rng.random() < 0.12 and name in SPECIAL:
        what = SPECIAL[name](file, rng)
    else:
        what = "; ".join(_changed(file, rng) for _ in range(rng.choice((1, 1, 2, 3))))
    judge = functools.partial(_judge, name) if same else lambda outcome: None
    return with_files(rng, folder, Case(_words(shape, data), f"{name}: {file.name}: {what}", judge))


def _words(shape: Shape, data: Path) -> tuple[str, ...]:
    given = str(data / shape.given)
    if "/" not in shape.words:
        return (str(ROOT / "tests" / "fuzz" / "loads.py"), shape.words, given)
    return (str(EXAMPLES / shape.words / "example_valid.py"), "--data_path", given, "--target", "onnx")


def _measured(name: str, folder: Path) -> str | None:
    """Return the metric of the unchanged data set."""
    data = folder / "clean"
    data.mkdir()
    SHAPES[name].write(data)
    outcome = run(Case(_words(SHAPES[name], data), ""), data, {}, 60)
    found = _said(outcome)
    if found is None and name != "kit":  # its table takes MATLAB's own format
        raise RuntimeError(f"{name}: the clean set gives {outcome.code}: {outcome.err[-1000:]}")
    for path in (data.with_name("clean.stdout"), data.with_name("clean.stderr")):
        path.unlink()
    shutil.rmtree(data)
    return found


def _said(outcome: Outcome) -> str | None:
    """Return the metric of a run, or the counts of a loader; ``None`` on failure."""
    found = re.search(r"^(eval_metric .*|\d+ samples, .*)$", outcome.out, re.MULTILINE)
    return found[1] if found else "loaded" if outcome.code == 0 else None


def _judge(name: str, outcome: Outcome) -> str | None:
    said = _said(outcome)
    return None if said == _clean[name] else f"means the same, and gives {said!r} in place of {_clean[name]!r}"


def _the_same(file: Path, rng: random.Random) -> str:
    """Write an equivalent file in another form."""
    content = file.read_bytes()
    if file.suffix == ".json":
        tree = _shuffled(json.loads(content), rng)
        text = json.dumps(tree, indent=rng.choice((None, 1, "\t")), ensure_ascii=rng.random() < 0.5)
        encoding = rng.choice(("utf-8", "utf-8-sig", "utf-16", "utf-32"))
        file.write_text(text, encoding=encoding, newline=rng.choice(("\n", "\r\n")))
        return f"in another order, as {encoding}"
    if file.suffix == ".xml":
        text = content.decode()
        text = text.replace("<object>", "<!-- a note --><object><pose>\u00fc</pose>").replace(">\n<", ">\r\n\t <")
        file.write_bytes(b'<?xml version="1.0" encoding="UTF-8"?>\n' + text.encode())
        return "with notes and blanks"
    if file.suffix in (".txt", ".yaml", ".csv", ".tsv", ".conll"):
        text = content.decode().replace("\n", "\r\n")
        file.write_bytes(b"\xef\xbb\xbf" * (file.suffix != ".csv") + text.encode())
        return "with line ends of Windows"
    return "as it is"


def _shuffled(tree: Any, rng: random.Random) -> Any:
    """Return objects with reordered and additional unused keys; lists are not changed."""
    if isinstance(tree, dict):
        entries = [(key, _shuffled(value, rng)) for key, value in tree.items()]
        rng.shuffle(entries)
        return dict(entries) | ({"licence_of": [1, {"x": None}]} if rng.random() < 0.3 else {})
    return [_shuffled(value, rng) for value in tree] if isinstance(tree, list) else tree


def _changed(file: Path, rng: random.Random) -> str:
    """Change the content of a file."""
    if not file.is_file():
        return "gone"
    content = file.read_bytes()
    if rng.random() < 0.05:
        file.write_bytes(rng.choice((b"", b"\0", b"\xff\xfe", b"\n", content.decode("latin-1").encode("utf-16"))))
        return "nothing, or nearly"
    if file.suffix == ".json" and rng.random() < 0.8:
        try:
            tree, what = changed(json.loads(content), rng, 1)
        except ValueError:  # what an earlier change left
            return "no JSON"
        file.write_bytes(json.dumps(tree).encode())
        return what
    if file.suffix in TEXTS and rng.random() < 0.8:
        text, what = changed_lines(content.decode("utf-8", "surrogateescape"), rng)
        file.write_bytes(text.encode("utf-8", "surrogateescape"))
        return what
    if file.suffix == ".json" and rng.random() < 0.3:
        odd = odd_name(rng, ".jpg")
        file.write_bytes(content.replace(b"0000.jpg", json.dumps(odd)[1:-1].encode(), 1))
        first = next(iter(sorted(file.parent.rglob("0000.jpg"))), None)
        if first is not None:
            first.rename(first.with_name(odd))
        return f"an image is called {odd!r}"
    data, what = mutated(content, rng)
    file.write_bytes(data)
    return what
