"""Page reading by three models: lines of text of an image; the metric is the character error rate."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from engine import Array, ConfigError, Engine
from utils.datasets.base import Dataset
from utils.metrics.base import Metric
from utils.postprocess.text.reading_order import reading_order
from utils.postprocess.text.rectangles import smallest_rectangle
from utils.preprocess.image.images import open_image
from utils.preprocess.image.lines import PIXEL_VALUES
from utils.preprocess.image.tiles import Tiles
from utils.tasks import Flag, Prepared, Rendering, Task, str2bool
from utils.tasks.common.prediction_files import RowsWriter
from utils.tasks.page_reading.steps import Context, Line, Reader
from utils.tasks.templates import sample_images

SHOWN = 4
"""Number of lines on the answer's line; the JSON has all."""

TOGETHER = 0.95
"""Lines have one direction if the sum of their vectors has this share of the sum of lengths: within 18 degrees."""

STRIDE = 32
"""The detector's input sides must be multiples of this."""


class PageReading(Task):
    """PP-OCR's pipeline: a detector (DB), a classifier of directions, and a recogniser (CTC)."""

    name, domain = "page_reading", "ocr"
    image_samples = True
    template = sample_images.PAGE_READING
    models = ("det", "cls", "rec")
    data_help = "a page, a folder of pages, Label.txt, gt_*.txt or texts beside them"
    writes = "what was read as PaddleOCR's Label.txt"
    flags = (
        Flag("--det_side", "height and width of the detector's input; larger pages are cut into tiles", 960, int),
        Flag("--det_overlap", "pixels by which tiles overlap at least", 160, int),
        Flag("--det_limit", "longer side that larger pages are reduced to; 0: no reduction, but tiles", 0, int),
        Flag("--det_enlarge", "maximum factor of enlarging smaller pages", 1.5, float),
        Flag("--det_pixel_values", "range of the detector's input, or named mean and std", "-1..1",
             choices=tuple(PIXEL_VALUES)),
        Flag("--threshold", "probability above which a pixel is part of a line", 0.3, float),
        Flag("--box_threshold", "least mean probability of a line", 0.6, float),
        Flag("--unclip", "distance by which a line is expanded: area * unclip / perimeter", 1.5, float),
        Flag("--bent", "follow bent lines", True, str2bool, nargs="?"),
        Flag("--turn", "rotate upside-down lines", True, str2bool, nargs="?"),
        Flag("--crop_margin", "margin above and below a cropped line, as a share of its height", 0.2, float),
        Flag("--rec_widths", "widths of the recogniser's input; the card has a plan for each", [320, 640, 1280, 2560],
             int, nargs="+"),
        Flag("--text_score", "lines with a lower score are dropped", 0.5, float),
        Flag("--charset", "file with a character per line, in the order of the classes (default: as stored)", None),
        Flag("--blank", "class of CTC's blank (default: as stored, or 0)", None, int),
        Flag("--font", "font file for drawn answers (default: one that has the characters)", None,
             scripts=("single", "multi")),
        Flag("--normalize", "Unicode form of texts for the comparison", "NFC", choices=("NFC", "NFKC", "none"),
             scripts=("valid",)),
    )  # fmt: skip
    state: Reader  # reader of pages

    def check(self) -> None:
        """Check the options."""
        options = self.options
        if options.det_side < STRIDE or options.det_side % STRIDE:
            raise ConfigError(f"--det_side {options.det_side} must be a multiple of {STRIDE}, such as 960")
        if not 0 <= options.det_overlap <= options.det_side // 2:
            raise ConfigError(
                f"--det_overlap {options.det_overlap} must be from 0 to {options.det_side // 2}, half of --det_side"
            )
        if options.det_limit < 0:
            raise ConfigError(f"--det_limit {options.det_limit} must be a number of pixels, or 0")
        if not options.rec_widths or min(options.rec_widths) < 16:
            raise ConfigError(f"--rec_widths {options.rec_widths} must be numbers of pixels of at least 16")
        if not options.det_enlarge >= 1:  # NaN too
            raise ConfigError(f"--det_enlarge {options.det_enlarge} must be at least 1")
        for name in ("threshold", "box_threshold", "text_score", "crop_margin"):
            if not 0 <= getattr(options, name) <= 1:
                raise ConfigError(f"--{name} {getattr(options, name)} must be from 0 to 1")
        if not 0 < options.unclip <= 10:
            raise ConfigError(f"--unclip {options.unclip} must be above 0 and at most 10; 1.5 is usual")
        if options.font:  # before anything is computed, not when the first page is drawn
            from utils.fonts import font_for

            font_for("", 12, options.font)

    def load(self, paths: Mapping[str, Path]) -> Dataset:
        """Return the pages (:func:`~utils.datasets.image.pages.load_pages`)."""
        from utils.datasets.image.pages import load_pages

        return load_pages(paths)

    def open_sizes(self) -> dict[str, dict[tuple[int, int], tuple[int, ...]]]:
        """Return the sizes of open dimensions of the three models' inputs."""
        side = (self.options.det_side,)
        return {
            "det": {(0, 2): side, (0, 3): side},
            "cls": {(0, 2): (48,), (0, 3): (192,)},
            "rec": {(0, 2): (48,), (0, 3): tuple(sorted(set(self.options.rec_widths)))},
        }

    def prepare(self, samples: Sequence[Path]) -> Prepared:
        """Return the tiles of all pages, N x 3 x H x W, for the detector, and a :class:`.Context` per page.

        A page larger than the input is divided into overlapping tiles, so that small print stays legible, and reduced
        only to ``--det_limit``. A smaller page is enlarged by at most ``--det_enlarge``.

        Raises:
            DataError: An image cannot be read. ConfigError: The input's size is not a multiple of 32.
        """
        found = [self._tiled(path) for path in samples]
        return Prepared([np.concatenate([tiles for tiles, _ in found])], [context for _, context in found])

    def _tiled(self, path: Path) -> tuple[Array, Context]:
        options, shape = self.options, self.model.inputs[0].shape
        side = shape[2] or options.det_side, shape[3] or options.det_side
        image = open_image(path)
        fits = min(side[0] / image.height, side[1] / image.width)
        scale = min(fits, options.det_enlarge) if fits >= 1 else 1.0
        if options.det_limit:
            scale = min(scale, options.det_limit / max(image.size))
        width, height = (max(1, round(size * scale)) for size in image.size)
        seen = image if (width, height) == image.size else image.resize((width, height), Image.Resampling.BILINEAR)
        mean, std = (np.array(values, np.float32) for values in PIXEL_VALUES[options.det_pixel_values])
        factor, offset = 1 / (255 * std[::-1]), mean[::-1] / std[::-1]
        pixels = np.asarray(seen)[:, :, ::-1].transpose(2, 0, 1).astype(np.float32) * factor[:, None, None]
        pixels -= offset[:, None, None]
        tiles = Tiles.over((height, width), side, options.det_overlap)
        return tiles.cut(pixels.astype(self.model.float_dtype)), Context(np.asarray(image), tiles)

    def setup(self, engines: Mapping[str, Engine], dataset: Dataset) -> Reader:
        """Return the reader."""
        return Reader(self.model.named, self.options)

    def infer(self, engines: Mapping[str, Engine], arrays: Any, contexts: Sequence[Context]) -> list[list[Line]]:
        """Detect, crop, rotate and read the lines of each page."""
        return self.state.read(engines, arrays[0], contexts)

    def decode(self, outputs: list[list[Line]], contexts: Any) -> list[list[Line]]:
        """Return the lines of each page in reading order, without empty ones and those below ``--text_score``."""
        least = self.options.text_score
        return [_in_order([line for line in lines if line.text.strip() and line.score >= least]) for lines in outputs]

    def metric(self, dataset: Dataset) -> Metric:
        """Return the character error rate of pages."""
        from utils.metrics.text.page_reading import PageErrorRate

        return PageErrorRate(self.options.normalize)

    def show(self, sample: Path, prediction: list[Line]) -> Rendering:
        """Return the lines with scores and corners; saving draws them on the page, with the texts next to it."""
        lines = [_plain(line) for line in prediction]
        first = " | ".join(line.text for line in prediction[:SHOWN])
        more = f" | and {len(lines) - SHOWN} more" if len(lines) > SHOWN else ""
        count = f"{len(lines)} line{'' if len(lines) == 1 else 's'}"
        text = f"{count}: {first}{more}" if lines else "no lines"
        return Rendering(text, {"lines": lines}, partial(_save, sample, lines, self.options.font))

    def summary(self, predictions: Sequence[list[Line]]) -> str:
        """Return the numbers of lines, pages, and pages without text."""
        empty = sum(not lines for lines in predictions)
        return f"{sum(map(len, predictions))} lines on {len(predictions)} pages, {empty} of them without text"

    def prediction_writer(self, path: Path, dataset: Dataset) -> RowsWriter:
        """Return a writer of PaddleOCR's ``Label.txt``: the image, a tab, and its lines as JSON."""
        return RowsWriter(path, _label)


def _in_order(lines: list[Line]) -> list[Line]:
    """Return lines in reading order, also of rotated pages."""
    turn = _uprighting(lines)
    return [lines[place] for place in reading_order([line.outline @ turn for line in lines])]


def _uprighting(lines: Sequence[Line]) -> Array:
    """Return the 2 x 2 matrix that rotates points (x, y) so that a page's lines run to the right.
    If lines have several directions, the page is rotated by 180 degrees if most lines are upside down."""
    runs = np.array([_run(line) for line in lines]).reshape(-1, 2)
    x, y = runs.sum(axis=0).tolist()
    length = math.hypot(x, y)
    if length < TOGETHER * float(np.hypot(runs[:, 0], runs[:, 1]).sum()) or not length:
        return np.eye(2) * (-1 if 2 * sum(line.turned for line in lines) > len(lines) else 1)
    return np.array([[x, -y], [y, x]]) / length


def _run(line: Line) -> Array:
    """Return the vector of a line's reading direction."""
    run: Array = line.outline[len(line.outline) // 2 - 1] - line.outline[0]
    return -run if line.turned else run


def _plain(line: Line) -> dict[str, Any]:
    """Return a line as plain data; for a bent line ``points`` are the corners of the smallest rectangle around it."""
    outline = line.outline.round(1).tolist()
    bent = len(outline) > 4
    points = smallest_rectangle(line.outline).corners().round(1).tolist() if bent else outline
    found = {"text": line.text, "score": round(line.score, 4), "points": points, "box_score": round(line.box_score, 4)}
    return found | ({"outline": outline} if bent else {}) | ({"turned": True} if line.turned else {})


def _save(image: Path, lines: Sequence[Mapping[str, Any]], font: str | None, folder: Path) -> Path:
    from utils.draw import save_drawn
    from utils.postprocess.text.drawn_page import draw_page

    return save_drawn(image, [], folder, draw_page(open_image(image), lines, font))


def _label(name: str, target: Any, lines: Sequence[Line]) -> list[str]:
    entries = [
        {"transcription": line.text, "points": line.outline.round(1).tolist(), "score": round(line.score, 4)}
        for line in lines
    ]
    return [f"{name}\t{json.dumps(entries, ensure_ascii=False)}\n"]
