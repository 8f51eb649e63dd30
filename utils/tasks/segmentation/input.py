"""How an image becomes a segmentation model's input: what the flags and the export say of it."""

from __future__ import annotations

from typing import NamedTuple

from engine import ConfigError
from utils.datasets.image.coco_masks import OVERLAPS, UNLISTED
from utils.datasets.image.masks import FORMATS, IGNORE
from utils.postprocess.image.class_maps import View
from utils.preprocess.image.forms import PictureForm, picture_form
from utils.preprocess.image.letterbox import fit
from utils.tasks.base import Flag, Options
from utils.tasks.common.image_input import SIZE_FLAG
from utils.tasks.common.outputs import KIND_FLAG, LAYOUT_FLAG
from utils.tasks.model import Model

NOTE = "segmentation"
"""Key of what an export may store beside ``preprocess``: ``{"resize": one of RESIZES, "multiple": 32}``."""

STRETCH, LETTERBOX, SHORT_SIDE, KEEP = RESIZES = ("stretch", "letterbox", "short_side", "keep")
"""``stretch``: to the input, whatever the proportions. ``letterbox``: into it at the image's own proportions,
centred. ``short_side``: the short side to a length, as torchvision's ``SemanticSegmentation`` does; the input must have
free sizes. ``keep``: not at all."""

SHORT = 520
"""The usual short side in pixels: torchvision's."""

PLACES = ("picture", "model")
"""Where answers are compared: at the image's own size, or at the size it was resized to."""


class Geometry(NamedTuple):
    """How images are brought to the input.

    Attributes:
        mode: one of :data:`RESIZES`.
        canvas: height and width of the input; ``None``: every image has its own.
        short: length of the short side for ``short_side``, in pixels.
        multiple: sides of an input that is each image's own are padded to multiples of this.
    """

    mode: str
    canvas: tuple[int, int] | None
    short: int = SHORT
    multiple: int = 1

    def placed(self, height: int, width: int) -> View:
        """Return how an image of this height and width lies in the input; ``extent`` is what it is resized to."""
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
    """Return the size of an image whose short side is resized to a length; the long one is cut to whole pixels."""
    if width <= height:
        return int(length * height / width), length
    return length, int(length * width / height)


def geometry_of(model: Model, options: Options, given: tuple[int, int] | None) -> Geometry:
    """Return how images are brought to a model's input.

    ``--resize`` decides, else what the export stored, else ``stretch``. Where the input has one size (its own, or
    ``given`` by ``--input_size``), a stored ``short_side`` or ``keep`` cannot be followed, and images are stretched.

    Raises:
        ConfigError: the input takes no images, or its size is not known and the way needs it.
    """
    height, width = given or form_of(model).size
    canvas, notes = None if height is None or width is None else (height, width), model.stored.json(NOTE, {})
    stored, multiple = (notes.get("resize"), notes.get("multiple", 1)) if isinstance(notes, dict) else (None, 1)
    mode, stored = options.resize or stored or STRETCH, stored if stored in RESIZES else STRETCH
    free = mode in (SHORT_SIDE, KEEP)
    if canvas is None and not free:
        raise ConfigError(
            f"{model.ckpt}: its input may have any height and width; say which with --input_size, or use "
            f"--resize {SHORT_SIDE}"
        )
    if free and canvas is not None:
        return Geometry(STRETCH, canvas) if options.resize is None else Geometry(mode, None, _short(model, options))
    multiple = multiple if isinstance(multiple, int) and multiple > 0 else 1
    return Geometry(mode, None if free else canvas, _short(model, options), multiple)


def _short(model: Model, options: Options) -> int:
    stored = model.stored.picture.resize if model.stored.text("preprocess") is not None else SHORT
    return int(options.short_side or (stored if isinstance(stored, int) else SHORT))


def form_of(model: Model) -> PictureForm:
    """Return how the model's first input holds images.

    Raises:
        ConfigError: it takes none by its shape or its dtype.
    """
    return picture_form(model.inputs[0], model.ckpt, model.dtype)


FLAGS = (
    SIZE_FLAG,
    Flag("--resize", "how an image becomes the input (default: what the export stored)", None, choices=RESIZES),
    Flag("--short_side", f"pixels, for --resize {SHORT_SIDE} (default: what the export stored)", None, int),
    Flag("--data_format", "what masks hold (default: by the folders)", FORMATS[0], choices=FORMATS),
    Flag("--split", "part of a data set that has several", "val"),
    Flag(
        "--ignore_label",
        f"level of a mask that counts for nothing (default: {IGNORE}, unless masks hold only 0 and {IGNORE})",
        None,
        int,
    ),
    Flag("--overlap", "class of a pixel in several COCO regions", OVERLAPS[0], choices=OVERLAPS),
    Flag("--unlisted", "COCO categories that the model does not know", UNLISTED[0], choices=UNLISTED),
    KIND_FLAG,
    LAYOUT_FLAG,
    Flag("--threshold", "of a model with one output channel: least probability of the foreground", 0.5, float),
    Flag(
        "--evaluate_at",
        "compare at the size of the image, or at what it was resized to",
        PLACES[0],
        choices=PLACES,
        scripts=("valid",),
    ),
)
