"""Images: changed bytes, odd names, other objects than files, unsupported formats, wrong headers."""

from __future__ import annotations

import functools
import io
import json
import os
import random
from pathlib import Path

from tests.fuzz.case import ROOT, Case, Outcome
from tests.fuzz.makers.bytes_of import mutated
from tests.fuzz.makers.odd_images import odd_image
from tests.fuzz.names import not_a_file_reason, odd_name

WARM = (
    *("numpy", "onnx", "onnxruntime", "PIL.Image", "PIL.ImageDraw", "engine", "engine.sdaa.engine"),
    *("utils.pipeline.cli", "utils.draw", "utils.postprocess.image.drawn_boxes"),
    *(
        "utils.tasks.classification.task",
        "utils.tasks.detection.task",
        "utils.tasks.segmentation.task",
        "utils.tasks.text_recognition.task",
    ),
)

FOLDERS = tuple(
    ROOT / "example" / name
    for name in ("classification/digits", "detection/digit_detector", "segmentation/digit_unet", "ocr/digit_crnn")
)
FORMATS = {".png": "PNG", ".jpg": "JPEG", ".bmp": "BMP", ".webp": "WEBP", ".tif": "TIFF", ".gif": "GIF", ".ppm": "PPM"}
ENDINGS = (".png", ".jpg", ".bmp", ".webp", ".tif", ".ppm")
"""Suffixes of image files."""

LABELS = (
    *(
        "%d\neval_metric 9.9",
        "\x1b[31m%d\u202e",
        "<b>%d</b>",
        "%d" + "x" * 100,
        "%d" + "x" * 3000,
        "same",
        "",
        " %d ",
        "\ud800%d",
    ),
    "../%d",
)
"""Names of classes that a model may store; ``%d`` is the number of the class."""

GS = '#!/bin/sh\ntouch "$(dirname "$0")/gs-was-here"\nexec sleep 60\n'
"""Fake program on ``PATH`` that Pillow would start for an EPS."""


def make(rng: random.Random, folder: Path, number: int) -> Case:
    """Write images, and run a script of a task with images."""
    images = folder / "images"
    images.mkdir()
    own = folder / "bin"
    own.mkdir()
    (own / "gs").write_text(GS)
    (own / "gs").chmod(0o755)
    env = {"PATH": f"{own}{os.pathsep}{os.environ.get('PATH', '')}"}
    same = rng.random() < 0.1
    done = [_the_same(images, rng)] if same else [_write(rng, images) for _ in range(rng.randint(1, 4))]
    if not same and rng.random() < 0.5:
        (images / "good.png").write_bytes(_image(rng, "PNG", (28, 28)))
    script = "multi" if same else rng.choice(("single", "multi", "multi", "valid"))
    given = next(iter(sorted(images.iterdir()))) if script == "single" else images
    task = rng.choice(FOLDERS)
    name = "example_valid.py" if script == "valid" else f"example_{script}_batch.py"
    words = [str(task / name), "--data_path", str(given), "--target", rng.choice(("onnx", "onnx", "sdaa"))]
    if script == "valid" and rng.random() < 0.5:
        _label(rng, task.name, images)
    if script != "valid" and rng.random() < 0.4:
        words += ["--save", str(folder / "out")]
    if rng.random() < 0.15:
        (folder / "model.onnx").write_bytes(_labelled(task, rng.choice(LABELS)))
        words += ["--ckpt", str(folder / "model.onnx")]
    words += ["--json", str(folder / "answers.json")]
    return Case(tuple(words), "; ".join(done), functools.partial(_judge, folder, script, same), env=env)


@functools.cache
def _labelled(task: Path, label: str) -> bytes:
    """Return the task's model with other class names, or unchanged if it has none."""
    import onnx

    model = onnx.load(next(path for path in sorted(task.glob("*_dyn.onnx")) if "float16" not in path.name))
    for entry in model.metadata_props:
        if entry.key == "class_labels":
            count = len(json.loads(entry.value))
            entry.value = json.dumps([label.replace("%d", str(place)) for place in range(count)])
    return bytes(model.SerializeToString())


def _write(rng: random.Random, images: Path) -> str:
    ending = rng.choice(ENDINGS)
    if rng.random() < 0.1:
        return not_a_file_reason(rng, images / f"none{rng.randrange(1000)}{ending}")
    if rng.random() < 0.5:
        content, ending, what = odd_image(rng)
        ending = rng.choice(ENDINGS) if ending not in ENDINGS or rng.random() < 0.1 else ending
    else:
        size = (rng.choice((1, 2, 28, 300)), rng.choice((1, 3, 28, 200)))
        content, what = _image(rng, FORMATS[rng.choice((ending, ending, ".gif"))], size), f"{size[0]}x{size[1]}"
    if rng.random() < 0.4:
        content, changes = mutated(content, rng)
        what = f"{what}: {changes}"
    name = odd_name(rng, ending) if rng.random() < 0.2 else f"image{rng.randrange(1000)}{ending}"
    if (images / name).exists() or (images / name).is_symlink():
        return "the same name twice"
    (images / name).write_bytes(content)
    return f"{name!r}: {what}"


def _the_same(images: Path, rng: random.Random) -> str:
    """Write an image in several lossless formats, with equal results."""
    from PIL import Image

    mode = rng.choice(("L", "RGB"))
    image = Image.frombytes(mode, (40, 40), rng.randbytes(1600 * len(mode)))
    image.save(images / "a.png")
    image.save(images / "b.bmp")
    image.save(images / "c.ppm")
    image.save(images / "d.tif", compression="tiff_lzw")
    image.convert("RGB").save(images / "e.webp", lossless=True)
    image.convert("RGBA").save(images / "f.png")
    image.transpose(Image.Transpose.ROTATE_90).save(images / "g.tif", exif=_turned(6))
    (images / "h.jpg").write_bytes((images / "b.bmp").read_bytes())
    return "the same image eight times"


def _turned(orientation: int) -> object:
    from PIL import Image

    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def _label(rng: random.Random, task: str, images: Path) -> None:
    """Write labels of the images for an evaluation."""
    names = [path.name for path in sorted(images.iterdir()) if path.name.isascii() and path.name.isprintable()]
    if task == "digits":
        rows = "".join(f"{name} {rng.randrange(10)}\n" for name in names)
        (images / "val.txt").write_text(rows)
    elif task == "digit_crnn":
        (images / "rec_gt.txt").write_text("".join(f"{name}\t{rng.randrange(99)}\n" for name in names))
    elif task == "digit_detector":
        content = {
            "images": [{"id": place, "file_name": name} for place, name in enumerate(names)],
            "categories": [{"id": place, "name": str(place)} for place in range(10)],
            "annotations": [{"image_id": p, "category_id": 3, "bbox": [1, 2, 9, 12]} for p in range(len(names))],
        }
        (images / "val.json").write_text(json.dumps(content))


def _judge(folder: Path, script: str, same: bool, outcome: Outcome) -> str | None:
    """Return the finding of the written files and results."""
    if (folder / "bin" / "gs-was-here").exists():
        return "gs was started"
    known = {"images", "bin", "out", "answers.json", "answers.samples.csv", "answers.samples.npz", "model.onnx"}
    others = sorted(entry.name for entry in os.scandir(folder) if entry.name not in known)
    if others:
        return f"wrote {others[0]!r}, which was not requested"
    written = folder / "answers.json"
    if outcome.code == 0 and not written.is_file():
        return "exit code 0 without the JSON that was asked for"
    if not written.is_file():
        return None
    answers = json.loads(written.read_text(encoding="utf-8")).get("answers")
    if script == "valid" or answers is None:
        return None
    names = {os.fsencode(path) for path in (folder / "images").iterdir()}
    wrong = [answer["name"] for answer in answers if os.fsencode(answer["name"]) not in names]
    if wrong:
        return f"the JSON names {wrong[0]!r}, which is not an image"
    if (folder / "out").is_dir():
        drawn = [path for path in (folder / "out").iterdir() if path.is_file()]
        if len(drawn) != len(answers) and outcome.code in (0, 1):
            return f"{len(answers)} answers and {len(drawn)} drawn images"
    if outcome.code not in (0, 1):
        return None  # refused, by its line: the name of a class has 3001 characters, say
    if same and len({json.dumps(answer["answer"]).replace("masks", "") for answer in answers}) != 1:
        said = [(Path(answer["name"]).name, answer["answer"]) for answer in answers]
        texts = {json.dumps(_without_paths(answer)) for _, answer in said}
        if len(texts) != 1 or len(answers) != 8:
            return f"the same image has {len(texts)} answers in {len(answers)} files"
    return None


def _without_paths(answer: object) -> object:
    return {key: value for key, value in answer.items() if key != "mask"} if isinstance(answer, dict) else answer


def _image(rng: random.Random, form: str, size: tuple[int, int]) -> bytes:
    from PIL import Image

    modes = {"JPEG": ("RGB", "L", "CMYK"), "PPM": ("RGB", "L"), "BMP": ("RGB", "L", "1"), "WEBP": ("RGB", "RGBA")}
    mode = rng.choice(modes.get(form, ("RGB", "L", "RGBA", "P", "1", "LA") if form != "GIF" else ("P", "L")))
    image = Image.frombytes("L", size, rng.randbytes(size[0] * size[1])).convert(mode)
    out = io.BytesIO()
    image.save(out, form)
    return out.getvalue()
