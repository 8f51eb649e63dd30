"""Preprocessing of a segmentation model by flags and metadata."""

from __future__ import annotations

from typing import NamedTuple

from engine import ConfigError
from utils.datasets.image.coco_masks import OVERLAPS, UNLISTED
from utils.datasets.image.masks import FORMATS, IGNORE
from utils.postprocess.image.class_maps import View
from utils.preprocess.image.forms import ImageForm, image_form
from utils.preprocess.image.letterbox import fit
from utils.tasks import Flag, Model, Options
from utils.tasks.common.image_input import SIZE_FLAG
from utils.tasks.common.outputs import KIND_FLAG, LAYOUT_FLAG

NOTE = "segmentation"
"""Metadata key, optional, in addition to ``preprocess``: ``{"resize": one of RESIZES, "multiple": 32}``."""

STRETCH, LETTERBOX, SHORT_SIDE, KEEP = RESIZES = ("stretch", "letterbox", "short_side", "keep")
"""``stretch``: to the input size. ``letterbox``: into the input with the image's aspect ratio, centred. ``short_side``:
the short side to a length, as torchvision's ``SemanticSegmentation``; the input size must be open. ``keep``: no
resizing."""

SHORT = 520
"""Default of the short side in pixels: torchvision's."""

PLACES = ("picture", "model")
"""Size at which predictions are compared: the image's, or the one that it was resized to."""


class Geometry(NamedTuple):
    """Settings of resizing."""

    mode: str  # one of RESIZES
    canvas: tuple[int, int] | None  # height and width of the input; None: they differ by image
    short: int = SHORT  # length of the short side for short_side, in pixels
    multiple: int = 1  # without a canvas, sides are padded to multiples of this

    def placed(self, height: int, width: int) -> View:
        """Return the placement of an image in the input; ``extent`` is the size that it is resized to."""
        size = height, width
        if self.canvas is not None:
            if self.mode == STRETCH:
                return View(size, (0, 0), self.canvas, self.canvas)
            found = fit(width, height, self.canvas)
            extent = round(height * found.down), round(width * found.across)
            return View(size, (found.top, found.left), extent, self.canvas)
        extent = size if self.mode == KEEP else short_side(height, width, self.short)
        canvas = tuple(-(-side // self.multiple) * self.multiple for side in extent)
        return View(size, (0, 0), extent, (canvas[0], canvas[1]))


def short_side(height: int, width: int, length: int) -> tuple[int, int]:
    """Return the size of an image with its short side resized to a length; the long side is rounded down."""
    if width <= height:
        return int(length * height / width), length
    return length, int(length * width / height)


def geometry_of(model: Model, options: Options, given: tuple[int, int] | None) -> Geometry:
    """Return the settings of resizing: ``--resize``, else the stored mode, else ``stretch``.

    If the input has one size (fixed, or ``given`` by ``--input_size``), a stored ``short_side`` or ``keep`` is replaced
    by ``stretch``.

    Raises:
        ConfigError: The input does not take images, or the mode needs a size and it is unknown.
    """
    height, width = given or form_of(model).size
    canvas, notes = None if height is None or width is None else (height, width), model.stored.json(NOTE, {})
    stored, multiple = (notes.get("resize"), notes.get("multiple", 1)) if isinstance(notes, dict) else (None, 1)
    mode, stored = options.resize or stored or STRETCH, stored if stored in RESIZES else STRETCH
    free = mode in (SHORT_SIDE, KEEP)
    if canvas is None and not free:
        raise ConfigError(
            f"{model.ckpt}: height and width of its input are open; pass --input_size, or --resize {SHORT_SIDE}"
        )
    if free and canvas is not None:
        return Geometry(STRETCH, canvas) if options.resize is None else Geometry(mode, None, _short(model, options))
    multiple = multiple if isinstance(multiple, int) and multiple > 0 else 1
    return Geometry(mode, None if free else canvas, _short(model, options), multiple)


def _short(model: Model, options: Options) -> int:
    stored = model.stored.image.resize if model.stored.text("preprocess") is not None else SHORT
    return int(options.short_side or (stored if isinstance(stored, int) else SHORT))


def form_of(model: Model) -> ImageForm:
    """Return the image format of the model's first input.
    Raises ConfigError if its shape or dtype does not fit images."""
    return image_form(model.inputs[0], model.ckpt, model.dtype)


FLAGS = (
    SIZE_FLAG,
    Flag("--resize", "mode of resizing (default: as stored)", None, choices=RESIZES),
    Flag("--short_side", f"pixels, for --resize {SHORT_SIDE} (default: as stored)", None, int),
    Flag("--data_format", "format of masks (default: by the folders)", FORMATS[0], choices=FORMATS),
    Flag("--split", "part of a data set that has several", "val"),
    Flag("--ignore_label", f"mask level that is ignored (default: {IGNORE}, unless masks have only 0 and {IGNORE})",
         None, int),
    Flag("--overlap", "class of a pixel in several COCO regions", OVERLAPS[0], choices=OVERLAPS),
    Flag("--unlisted", "treatment of COCO categories that the model lacks", UNLISTED[0], choices=UNLISTED),
    KIND_FLAG,
    LAYOUT_FLAG,
    Flag("--threshold", "of a model with one output channel: least probability of the foreground", 0.5, float),
    Flag("--evaluate_at", "compare at the size of the image, or at the size that it was resized to", PLACES[0],
         choices=PLACES, scripts=("valid",)),
)  # fmt: skip
