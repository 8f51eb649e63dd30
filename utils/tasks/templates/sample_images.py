"""Sample images of ``teco new``, drawn with fixed seeds; each ``fill_*`` returns words for the templates."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from engine import Array
from utils.tasks import Template
from utils.tasks.base import PublishedTemplate

COLOURS = {"red": (225, 45, 40), "green": (40, 215, 60), "blue": (45, 60, 230)}
"""Classes of squares and discs, and their colours; grey ones are no objects."""

LETTERS = {name[0]: colour for name, colour in COLOURS.items()}
"""Letters, and the colours of the bars that stand for them."""

GREY = (170, 170, 170)

SIZE = 64
"""Height and width of the input of the tiny networks for squares, discs and drawn faces."""

SIZES = ((64, 64), (64, 96), (48, 64), (96, 128))
"""Heights and widths of images of squares and discs, in turn."""

SQUARES, DISCS, LINES, PAGES, FACES = 24, 16, 16, 6, 24
"""Numbers of images."""


def _ground(height: int, width: int, chance: np.random.Generator) -> Array:
    """Return a dark image, H x W x 3 uint8, of few levels: noise makes large files."""
    pixels = np.empty((height, width, 3), np.uint8)
    pixels[...] = 15 + 8 * chance.integers(0, 4, (height, width, 1))
    return pixels


def _texts(**words: object) -> dict[str, str]:
    return {name: str(value) for name, value in words.items()}


# --------- classification: one drawn shape

SHAPES, SHAPE_SIZE = ("circle", "cross", "square"), 32
"""Classes, and height and width of the images and of the tiny network's input."""


def fill_shapes(folder: Path) -> Mapping[str, str]:
    """Draw two images of each shape into ``images/`` with their label file."""
    (folder / "images").mkdir(parents=True)
    labels = [_draw(folder / "images", shape, label) for label, shape in enumerate(SHAPES)]
    text = "# Images drawn by `teco new` and their classes: path and class index.\n" + "".join(labels)
    (folder / "images" / "val.txt").write_text(text, encoding="utf-8")
    return _texts(shapes=", ".join(SHAPES), size=SHAPE_SIZE, labels=json.dumps(SHAPES))


def published_words(name: str) -> Mapping[str, str]:
    """Return the words for a network of torchvision or timm; raise ConfigError for an unknown name."""
    from utils.export.networks.published import published_classifier

    found = published_classifier(name)
    return _texts(arch=found.arch, stem=found.name, package=found.package, packages="\n".join(found.packages))


def _draw(folder: Path, shape: str, label: int) -> str:
    """Draw two images of a shape and return their lines of the label file."""
    from PIL import Image, ImageDraw

    lines = []
    for index, (edge, ink) in enumerate([(6, (200, 60, 40)), (9, (40, 90, 200))]):
        image = Image.new("RGB", (SHAPE_SIZE, SHAPE_SIZE), (240, 240, 240))
        pen, far = ImageDraw.Draw(image), SHAPE_SIZE - 1 - edge
        if shape == "circle":
            pen.ellipse((edge, edge, far, far), fill=ink)
        elif shape == "square":
            pen.rectangle((edge, edge, far, far), fill=ink)
        else:
            pen.line((edge, edge, far, far), fill=ink, width=4)
            pen.line((edge, far, far, edge), fill=ink, width=4)
        name = f"{shape}_{index}.png"
        image.save(folder / name, optimize=True)
        lines.append(f"{name} {label}\n")
    return "".join(lines)


# --------- image and text: squares, and the words of their colours

PATCHES = 6
"""Images per colour."""


def fill_patches(folder: Path) -> Mapping[str, str]:
    """Draw a square on a dark ground into ``data/COLOUR/0.png``."""
    from PIL import Image

    chance = np.random.default_rng(4)
    for name, colour in COLOURS.items():
        (folder / "data" / name).mkdir(parents=True)
        for index in range(PATCHES):
            pixels = _ground(SHAPE_SIZE, SHAPE_SIZE, chance)
            side = int(chance.integers(10, 24))
            top, left = chance.integers(0, SHAPE_SIZE - side + 1, 2)
            pixels[top : top + side, left : left + side] = colour
            Image.fromarray(pixels).save(folder / "data" / name / f"{index}.png", optimize=True)
    return _texts(size=SHAPE_SIZE, classes=json.dumps(list(COLOURS)), images=PATCHES * len(COLOURS))


# --------- detection: squares, and where they lie


def fill_squares(folder: Path, *, regions: bool = False) -> Mapping[str, str]:
    """Draw images into ``data/`` with their boxes, and with ``regions`` their polygons, in ``data/val.json``."""
    from PIL import Image

    (folder / "data").mkdir(parents=True)
    chance = np.random.default_rng(0)
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for index in range(SQUARES):
        height, width = SIZES[index % len(SIZES)]
        pixels, boxes = _squares(height, width, chance)
        name = f"squares_{index:02}.png"
        Image.fromarray(pixels).save(folder / "data" / name, optimize=True)
        images.append({"id": index + 1, "file_name": name, "height": height, "width": width})
        annotations += [
            {"id": len(annotations) + i, "image_id": index + 1, "category_id": 1 + label, "bbox": box}
            | ({"segmentation": [_corners(*box)]} if regions else {})
            for i, (box, label) in enumerate(boxes, start=1)
        ]
    categories = [{"id": number, "name": name} for number, name in enumerate(COLOURS, start=1)]
    content = {"images": images, "categories": categories, "annotations": annotations}
    (folder / "data" / "val.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return _texts(size=SIZE, labels=json.dumps(list(COLOURS)), images=SQUARES)


def _corners(left: int, top: int, width: int, height: int) -> list[int]:
    """Return x and y of a rectangle's corners."""
    right, bottom = left + width, top + height
    return [left, top, right, top, right, bottom, left, bottom]


def _squares(height: int, width: int, chance: np.random.Generator) -> tuple[Array, list[tuple[list[int], int]]]:
    """Return an image, H x W x 3 uint8, and the boxes (left, top, width, height) of its squares with their classes."""
    unit = max(height, width) / SIZE
    pixels, free = _ground(height, width, chance), np.ones((height, width), bool)
    paints = [*COLOURS.values(), GREY]
    boxes = []
    for _ in range(int(chance.integers(2, 6))):
        side = round(int(chance.integers(9, 19)) * unit)
        top, left = (int(chance.integers(0, length - side + 1)) for length in (height, width))
        gap = round(3 * unit)
        around = (slice(max(0, top - gap), top + side + gap), slice(max(0, left - gap), left + side + gap))
        if not free[around].all():
            continue
        free[around] = False
        label = int(chance.integers(0, len(paints)))
        shade = 4 * chance.integers(-3, 4, (side, 1, 1))
        pixels[top : top + side, left : left + side] = np.clip(np.array(paints[label]) + shade, 0, 255)
        if label < len(COLOURS):
            boxes.append(([left, top, side, side], label))
    return pixels, boxes


# --------- key points: figures of three joints, each of which has its colour

FIGURES, JOINT = 16, 0.09
"""Number of images, and the radius of a joint as a share of the figure's side."""

SKELETON = ((0, 1), (1, 2))
"""Connected joints."""


def fill_figures(folder: Path) -> Mapping[str, str]:
    """Draw images into ``data/`` with the joints of their figures in ``data/val.json``."""
    from PIL import Image

    (folder / "data").mkdir(parents=True)
    chance = np.random.default_rng(0)
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for index in range(FIGURES):
        height, width = SIZES[index % len(SIZES)]
        pixels, found = _figures(height, width, chance)
        name = f"figures_{index:02}.png"
        Image.fromarray(pixels).save(folder / "data" / name, optimize=True)
        images.append({"id": index + 1, "file_name": name, "height": height, "width": width})
        annotations += [
            {"id": len(annotations) + i, "image_id": index + 1, "category_id": 1, **one}
            for i, one in enumerate(found, start=1)
        ]
    pairs = [[a + 1, b + 1] for a, b in SKELETON]
    categories = [{"id": 1, "name": "figure", "keypoints": list(COLOURS), "skeleton": pairs}]
    content = {"images": images, "categories": categories, "annotations": annotations}
    (folder / "data" / "val.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return _texts(size=SIZE, points=json.dumps(list(COLOURS)), skeleton=json.dumps(SKELETON), images=FIGURES)


def _figures(height: int, width: int, chance: np.random.Generator) -> tuple[Array, list[dict[str, Any]]]:
    """Return an image, H x W x 3 uint8, and the annotations of its figures; every fifth joint is missing."""
    pixels, boxes = _ground(height, width, chance), list[tuple[int, int, int]]()
    rows, columns = np.mgrid[:height, :width]
    found = []
    for _ in range(int(chance.integers(3, 7))):
        side = round(int(chance.integers(20, 34)) * max(height, width) / SIZE)
        if side > min(height, width):
            continue
        top, left = (int(chance.integers(0, length - side + 1)) for length in (height, width))
        if any(abs(left - x) < max(side, s) and abs(top - y) < max(side, s) for x, y, s in boxes):
            continue
        boxes.append((left, top, side))
        radius = JOINT * side
        shares = [0.15, 0.5, 0.85], chance.uniform(0.15, 0.85, 3)
        places = [(round(left + x * side), round(top + y * side)) for x, y in zip(*shares, strict=True)]
        present = chance.random(3) < 0.8
        present[int(chance.integers(0, 3))] = True
        for (x, y), colour, there in zip(places, COLOURS.values(), present, strict=True):
            if there:
                pixels[np.hypot(columns - x, rows - y) <= radius] = colour
        seen = zip(places, present.tolist(), strict=True)
        values = [number for (x, y), there in seen for number in ((x, y, 2) if there else (0, 0, 0))]
        box = {"bbox": [left, top, side, side], "area": side * side, "iscrowd": 0}
        found.append({**box, "keypoints": values, "num_keypoints": int(present.sum())})
    return pixels, found


# --------- segmentation: discs and rings, and which pixels are theirs

DISC_LABELS = ("background", *COLOURS)


def fill_discs(folder: Path) -> Mapping[str, str]:
    """Draw images into ``data/images`` with their masks in ``data/masks``."""
    from PIL import Image

    from utils.palette import palette

    images, masks = folder / "data" / "images", folder / "data" / "masks"
    images.mkdir(parents=True)
    masks.mkdir()
    chance = np.random.default_rng(0)
    colours = [level for colour in palette() for level in colour]
    for index in range(DISCS):
        pixels, classes = _discs(*SIZES[index % len(SIZES)], chance)
        name = f"discs_{index:02}.png"
        Image.fromarray(pixels).save(images / name, optimize=True)
        mask = Image.fromarray(classes)
        mask.putpalette(colours)
        mask.save(masks / name, optimize=True)
    return _texts(size=SIZE, labels=json.dumps(DISC_LABELS), images=DISCS)


def _discs(height: int, width: int, chance: np.random.Generator) -> tuple[Array, Array]:
    """Return an image, H x W x 3 uint8, and the class of each pixel, H x W uint8."""
    pixels, classes = _ground(height, width, chance), np.zeros((height, width), np.uint8)
    rows, columns = np.mgrid[:height, :width]
    paints = [*COLOURS.values(), GREY]
    for _ in range(int(chance.integers(3, 6))):
        radius = int(chance.integers(8, 16)) * max(height, width) / SIZE
        far = np.hypot(rows - chance.integers(0, height), columns - chance.integers(0, width))
        inside = (far <= radius) & (far >= chance.choice([0.0, 0.4]) * radius)
        paint = int(chance.integers(0, len(paints)))
        shade = 4 * chance.integers(-3, 4, (height, 1, 1))
        pixels[inside] = np.clip(np.array(paints[paint]) + np.broadcast_to(shade, pixels.shape), 0, 255)[inside]
        classes[inside] = (paint + 1) % len(paints)  # grey is the background
    return pixels, classes


# --------- text recognition and page reading: bars, each of which is a letter

LINE_HEIGHT, LINE_WIDTH, STEP = 16, 96, 4
"""Of the tiny recognisers' input in pixels, and the pixels of one of their steps; the dark ground is CTC's blank."""

PAGE_SIZE, TALL, BAR, GAP = 320, 32, (28, 40), 28
"""Pixels of a page's height and width, of a line's height, of a bar's width, and between two bars."""


def fill_lines(folder: Path) -> Mapping[str, str]:
    """Draw images into ``data/images`` with their texts in ``data/rec_gt.txt``."""
    from PIL import Image

    (folder / "data" / "images").mkdir(parents=True)
    chance = np.random.default_rng(0)
    rows = []
    for index in range(LINES):
        pixels, text = _line(1 + index % 3, chance)
        name = f"images/bars_{index:02}.png"
        Image.fromarray(pixels).save(folder / "data" / name, optimize=True)
        rows.append(f"{name}\t{text}\n")
    (folder / "data" / "rec_gt.txt").write_text("".join(rows), encoding="utf-8", newline="\n")
    letters = json.dumps(list(LETTERS))
    return _texts(height=LINE_HEIGHT, width=LINE_WIDTH, step=STEP, images=LINES, letters=letters)


def _line(scale: int, chance: np.random.Generator) -> tuple[Array, str]:
    """Return an image of bars, H x W x 3 uint8, with ``scale`` pixels per pixel of the input, and their letters."""
    letters = [str(one) for one in chance.choice(list(LETTERS), int(chance.integers(2, 6)))]
    columns = [[20, 20, 24]] * (2 * STEP)
    for letter in letters:
        columns += [list(LETTERS[letter])] * (STEP * int(chance.integers(1, 3)))
        columns += [[20, 20, 24]] * (STEP * int(chance.integers(1, 3)))
    line = np.array(columns, np.uint8)[None].repeat(LINE_HEIGHT, axis=0)
    line[:2] = line[-2:] = 20
    return line.repeat(scale, axis=0).repeat(scale, axis=1), "".join(letters)


def fill_pages(folder: Path) -> Mapping[str, str]:
    """Draw pages into ``data`` with their ``Label.txt``, the last one empty."""
    from PIL import Image

    data = folder / "data"
    data.mkdir(parents=True)
    chance = np.random.default_rng(0)
    rows = []
    for index in range(PAGES):
        pixels, lines = _page(chance, 0 if index == PAGES - 1 else 3)
        name = f"page_{index}.png"
        Image.fromarray(pixels).save(data / name, optimize=True)
        rows.append(f"{name}\t{json.dumps(lines)}\n")
    (data / "Label.txt").write_text("".join(rows), encoding="utf-8", newline="\n")
    letters = json.dumps(list(LETTERS))
    return _texts(size=PAGE_SIZE, height=LINE_HEIGHT, step=STEP, pages=PAGES, tall=TALL, gap=GAP, letters=letters)


def _page(chance: np.random.Generator, count: int) -> tuple[Array, list[dict[str, object]]]:
    """Return a page, H x W x 3 uint8, and its lines as a label file has them."""
    pixels = np.full((PAGE_SIZE, PAGE_SIZE, 3), 20, np.uint8)
    lines: list[dict[str, object]] = []
    for row in range(count):
        top, left = 40 + 90 * row, int(chance.integers(20, 50))
        letters = [str(one) for one in chance.choice(list(LETTERS), int(chance.integers(2, 5)))]
        right = left
        for letter in letters:
            width = int(chance.choice(BAR))
            pixels[top : top + TALL, right : right + width] = LETTERS[letter]
            right += width + GAP
        right -= GAP
        points = [[left, top], [right, top], [right, top + TALL], [left, top + TALL]]
        lines.append({"transcription": "".join(letters), "points": points})
    return pixels, lines


# --------- face detection: drawn yellow faces and their points

SIDE = 16
"""Diameter of a face in pixels of the input."""

POINTS = ((0.3, 0.35), (0.7, 0.35), (0.5, 0.55), (0.35, 0.75), (0.65, 0.75))
"""Eyes, nose and corners of the mouth as shares of the box: x, y."""

FACE, OTHERS = (240, 205, 50), ((70, 90, 220), GREY)
"""Colour of a face, and of other discs."""

FACE_SIZES = ((64, 64), (64, 64), (48, 64), (128, 128))
"""Heights and widths of the images, in turn."""


def fill_faces(folder: Path) -> Mapping[str, str]:
    """Draw images into ``data/images`` with their faces in ``data/label.txt``."""
    from PIL import Image

    (folder / "data" / "images").mkdir(parents=True)
    chance = np.random.default_rng(0)
    lines = []
    for index in range(FACES):
        image, boxes = _faces(*FACE_SIZES[index % len(FACE_SIZES)], chance, with_faces=index % 6 != 5)
        name = f"faces_{index:02}.png"
        Image.fromarray(image).save(folder / "data" / "images" / name, optimize=True)
        lines.append(f"# {name}")
        for left, top, side in boxes:
            points = [(left + x * side, top + y * side) for x, y in POINTS]
            lines.append(" ".join([f"{left} {top} {side} {side}", *(f"{x:.1f} {y:.1f} 0" for x, y in points)]))
    (folder / "data" / "label.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return _texts(size=SIZE, side=SIDE, points=POINTS, images=FACES)


def _faces(
    height: int, width: int, chance: np.random.Generator, with_faces: bool
) -> tuple[Array, list[tuple[int, int, int]]]:
    """Return an image, H x W x 3 uint8, and left, top and side of its faces."""
    side = SIDE * (max(height, width) // SIZE)
    pixels = _ground(height, width, chance)
    rows, columns = np.mgrid[:height, :width]
    taken: list[tuple[int, int]] = []
    boxes = []
    for number in range(6):
        left, top = (int(chance.integers(0, length - side + 1)) for length in (width, height))
        if any(abs(left - x) < 1.5 * side and abs(top - y) < 1.5 * side for x, y in taken):
            continue
        taken.append((left, top))
        disc = np.hypot(columns + 0.5 - left - side / 2, rows + 0.5 - top - side / 2) <= side / 2
        real = with_faces and number % 3 != 2
        pixels[disc] = FACE if real else OTHERS[number % 2]
        if not real:
            continue
        boxes.append((left, top, side))
        for x, y in POINTS:
            near = np.hypot(columns + 0.5 - left - x * side, rows + 0.5 - top - y * side) <= 0.08 * side
            pixels[near & disc] = (40, 30, 20)
    return pixels, boxes


# --------- face verification: colours of hair, skin, eyes and clothes, by person

PORTRAIT_SIZE = 32
"""Height and width of the images and of the tiny network's input."""

PEOPLE = ("ada", "ben", "cleo", "dora", "emil", "finn", "gina", "hugo", "ines", "jan", "kira", "luca")

PORTRAITS = 4
"""Images per person; odd ones have one more row of hair."""


def fill_portraits(folder: Path) -> Mapping[str, str]:
    """Draw images into ``data/NAME/NAME_0001.png``."""
    from PIL import Image

    chance = np.random.default_rng(1)
    for name in PEOPLE:
        (folder / "data" / name).mkdir(parents=True)
        colours = 24 * chance.integers(1, 10, (4, 3))
        for number in range(1, PORTRAITS + 1):
            face = _portrait(colours, number % 2, 8 * int(chance.integers(-1, 2)))
            Image.fromarray(face).save(folder / "data" / name / f"{name}_{number:04d}.png", optimize=True)
    return _texts(size=PORTRAIT_SIZE, people=len(PEOPLE), images=PORTRAITS)


def _portrait(colours: Array, lower: int, light: int) -> Array:
    """Return a face, H x W x 3 uint8: hair above, skin, eyes, a mouth, and clothes below."""
    hair, skin, eyes, clothes = colours
    pixels = np.empty((PORTRAIT_SIZE, PORTRAIT_SIZE, 3), np.int64)
    pixels[...] = hair
    pixels[8 + lower : 26] = skin
    pixels[26:] = clothes
    for left in (8, 20):
        pixels[13 + lower : 16 + lower, left : left + 4] = eyes
    pixels[21 + lower : 23 + lower, 11:21] = (160, 40, 40)
    found: Array = np.clip(pixels + light, 0, 255).astype(np.uint8)
    return found


_HERE = Path(__file__).parent
CLASSIFICATION = Template(
    _HERE / "classification",  # compares the ink on two pairs of lines
    fill_shapes,
    published=PublishedTemplate(_HERE / "classification_published", published_words),
)
IMAGE_TEXT = Template(_HERE / "image_text", fill_patches)  # describes images and texts by colours
DETECTION = Template(_HERE / "detection", fill_squares)  # detects coloured squares by convolution and pooling
INSTANCE_SEGMENTATION = Template(_HERE / "instance_segmentation", partial(fill_squares, regions=True))
KEYPOINTS = Template(_HERE / "keypoints", fill_figures)  # heat maps of three colours in a cropped figure
SEGMENTATION = Template(_HERE / "segmentation", fill_discs)  # a pooling and a convolution that tell colours apart
TEXT_RECOGNITION = Template(_HERE / "text_recognition", fill_lines)  # likewise, for bars
PAGE_READING = Template(_HERE / "page_reading", fill_pages)  # finds rows of bars, predicts upright, tells colours apart
FACE_DETECTION = Template(_HERE / "face_detection", fill_faces)  # detects yellow faces of one size
FACE_VERIFICATION = Template(_HERE / "face_verification", fill_portraits)  # describes faces by their colours
"""Templates by task; the tiny networks have fixed weights."""
