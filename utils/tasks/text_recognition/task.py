"""Recognition of the text of line images, by CTC models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, InputError, ModelError
from utils.datasets.base import Dataset
from utils.metrics.base import Metric
from utils.outputs import LABELS
from utils.postprocess.text.ctc import Text, class_texts, greedy
from utils.preprocess.image.lines import FILTERS, OPENCV, ORDERS, PIXEL_VALUES, LineForm, line_input
from utils.tasks import ExportSetting, Flag, Model, Options, Prepared, Rendering, Task, at_least
from utils.tasks.common.checks import setting_in_use
from utils.tasks.common.image_input import SIZE_FLAG, given_sides, save_lines
from utils.tasks.common.outputs import KIND_FLAG, are_logits, label_steps
from utils.tasks.common.prediction_files import RowsWriter
from utils.tasks.common.recognised_text import TextAnswers, TextDiagnostics, lexicon_of, lines_of
from utils.tasks.templates import sample_images

NOTE = "text_recognition"
"""Metadata key, optional: the values that differ from :data:`USUAL`."""

PADDLE = "character"
"""Metadata key of PP-OCR's exports: characters, one per line, without the blank and the space."""

USUAL: dict[str, Any] = {
    "blank": 0,
    "channel_order": "BGR",
    "pixel_values": "-1..1",
    "interpolation": OPENCV,
    "height": 48,
    "min_width": 320,
    "max_width": 3200,
    "multiple": 1,
}
"""Defaults: those of PP-OCR, version 3 and later."""

_NAMES: dict[str, tuple[str, ...]] = {
    "channel_order": ORDERS,
    "pixel_values": tuple(PIXEL_VALUES),
    "interpolation": FILTERS,
}
_LARGEST = 1 << 16


class Charset(NamedTuple):
    """Characters of a model's classes in their order, without the blank, and the blank's class."""

    characters: tuple[str, ...]
    blank: int


def now(key: str, model: Model, options: Options) -> Any:
    """Return the value in use of a key of :data:`USUAL` (:func:`.setting_in_use`)."""
    what = "one of " + ", ".join(_NAMES[key]) if key in _NAMES else "a valid whole number"
    return setting_in_use(key, model, options, NOTE, USUAL, _is_one, what)


def _is_one(key: str, value: Any) -> bool:
    if key in _NAMES:
        return value in _NAMES[key]
    whole = isinstance(value, int) and not isinstance(value, bool)
    return whole and (-1 if key == "blank" else 1) <= value <= _LARGEST


def form_of(model: Model, options: Options) -> LineForm:
    """Return the preprocessing of lines; height, width and channels are those of the input, if fixed.
    Raises ModelError if the input is not an image, or the model has several inputs."""
    shape = model.inputs[0].shape
    if len(model.inputs) != 1 or len(shape) != 4 or shape[1] not in (1, 3, None):
        raise ModelError(
            f"{model.ckpt}: its inputs are {', '.join(f'{one.name} {list(one.shape)}' for one in model.inputs)}; "
            "expected one of N x 1 or 3 x H x W; replace prepare in the task"
        )
    height, width = given_size(options) or (None, None)
    height, width = height or shape[2] or now("height", model, options), width or shape[3]
    order = "GRAY" if shape[1] == 1 else now("channel_order", model, options)
    if shape[1] == 3 and order == "GRAY":
        raise ConfigError(f"{model.ckpt}: its input has 3 channels; --channel_order GRAY is for inputs of one")
    most = now("max_width", model, options)
    multiple = now("multiple", model, options)
    least = min(now("min_width", model, options), most)
    if width is not None:
        least = most = width
        multiple = 1
    rest = (order, now("pixel_values", model, options), now("interpolation", model, options))
    return LineForm(height, least, most, multiple, *rest)


def given_size(options: Options) -> tuple[int, int | None] | None:
    """Return height and optional width of the input by ``--input_size``."""
    sides = given_sides(options)
    return (sides[0], sides[1] if len(sides) > 1 else None) if sides else None


def charset_of(model: Model, options: Options, classes: int) -> Charset:
    """Return the characters of a model with ``classes`` classes.

    They are those of ``--charset FILE``, else the stored ones (``vocabulary``, or PP-OCR's ``character``). If there is
    one class more than characters and blank, the last one is a space, as PaddleOCR adds it (``use_space_char``).

    Raises:
        ConfigError: Characters are missing, or their number is not that of classes. DataError: The file cannot be read.
    """
    source, characters = _characters(model, options.charset)
    blank = now("blank", model, options)
    if not -classes <= blank < classes:
        raise ConfigError(f"--blank {blank}: {model.ckpt} has {classes} classes; use one of them, such as 0 or -1")
    if len(characters) == classes - 2:
        characters = (*characters, " ")
    elif len(characters) == classes:
        characters = tuple(one for place, one in enumerate(characters) if place != blank % classes)
    if len(characters) != classes - 1:
        raise ConfigError(
            f"{source} has {len(characters)} characters and {model.ckpt} {classes} classes, of which one is the blank; "
            "pass the model's characters with --charset FILE"
        )
    return Charset(characters, blank)


def _characters(model: Model, file: str | None) -> tuple[str, tuple[str, ...]]:
    """Return the source of a model's characters, and the characters."""
    if file is not None:
        return f"--charset {file}", tuple(lines_of(Path(file), "--charset"))
    if model.stored.vocabulary is not None:
        return f"the vocabulary of {model.ckpt}", tuple(model.stored.vocabulary)
    text = model.metadata.get(PADDLE)
    if text is None:
        raise ConfigError(
            f"{model.ckpt}: has no stored characters (metadata 'vocabulary', or PP-OCR's {PADDLE!r}); pass a file with "
            "one per line: --charset FILE"
        )
    return f"metadata {PADDLE!r} of {model.ckpt}", _split(text)


@lru_cache(maxsize=4)
def _split(text: str) -> tuple[str, ...]:
    return tuple(text.removesuffix("\n").split("\n"))


def steps_of(outputs: Any, count: int | None, model: Model) -> Array:
    """Return the first output as N x T x C; also of a T x N x C output, by the graph or the number of lines.
    Raises InputError if the output does not have three dimensions, or neither of the first two is the batch."""
    found = np.asarray(outputs[0] if isinstance(outputs, (list, tuple)) else outputs)
    if found.ndim != 3 or found.dtype.kind != "f":
        raise InputError(
            f"{model.ckpt}: its first output has shape {found.shape} and dtype {found.dtype}; expected samples x steps "
            "x classes, or steps x samples x classes"
        )
    axis = model.outputs[0].batch_axis if model.outputs else None
    if axis not in (0, 1) or (count is not None and found.shape[axis] != count):
        axis = 1 if count is not None and found.shape[0] != count else 0
    if count is not None and found.shape[axis] != count:
        raise InputError(f"{model.ckpt}: its first output has shape {found.shape}, without an axis of {count} lines")
    return found if axis == 0 else found.swapaxes(0, 1)


def _usual(key: str, text: str, type_: Any = None) -> Flag:
    return Flag(f"--{key}", f"{text} (default: as stored, or {USUAL[key]})", None, type_, _NAMES.get(key))


FLAGS = (
    SIZE_FLAG,
    Flag("--widths", "widths of an input of open width; the card has a plan for each", None, int, nargs="+"),
    _usual("max_width", "maximum width of a line in pixels; longer lines are squeezed", int),
    _usual("channel_order", "channels of the input"),
    _usual("pixel_values", "range of the input, or named mean and standard deviation"),
    _usual("interpolation", "filter of resizing; opencv is bilinear without antialiasing"),
    _usual("blank", "class of CTC's blank; -1 is the last", int),
    Flag("--charset", "file with a character per line, in the order of the classes (default: as stored)", None),
    Flag("--decoder", "most likely path (greedy), or beam search", "greedy", choices=("greedy", "beam")),
    Flag("--beam_width", "number of hypotheses of --decoder beam", 16, int),
    Flag("--lexicon", "file with a word per line; the only words of --decoder beam", None),
)
"""Flags of text recognition."""


def _setting(key: str, stage: str, *values: Any, fine: bool = False) -> ExportSetting:
    return ExportSetting(f"--{key}", values, stage, partial(now, key), fine)


EXPORT_SETTINGS = (
    _setting("blank", "decode", 0, -1),
    _setting("channel_order", "prepare", "BGR", "RGB"),
    _setting("pixel_values", "prepare", *PIXEL_VALUES),
    _setting("interpolation", "prepare", OPENCV, "bilinear", "bicubic", fine=True),
)
"""Settings that are often wrong after an export, cheap and likely ones first."""


if TYPE_CHECKING:
    from PIL import Image

METRICS = ("sequence_accuracy", "cer")
UNITS = ("line", "folder", "name")


class Context(NamedTuple):
    """Context of a line: its width in the input, in pixels."""

    width: int


class TextRecognition(TextAnswers, Task):
    """CTC models: N x C x H x W in, a distribution over the characters per step out."""

    name, domain, domain_default = "text_recognition", "ocr", True
    image_samples = True
    template = sample_images.TEXT_RECOGNITION
    data_help = "a label file (rec_gt.txt), a folder with one or with texts beside the images, or images"
    export_settings, metadata_key = EXPORT_SETTINGS, NOTE
    writes = "the texts as a label file: path, tab, text"
    flags = (
        *FLAGS,
        KIND_FLAG,
        Flag("--metric", "the metric of record; the other one is reported too", METRICS[0], choices=METRICS,
             scripts=("valid",)),
        Flag("--normalize", "Unicode form of texts for the comparison", "NFC", choices=("NFC", "NFKC", "none"),
             scripts=("valid",)),
        Flag("--units", "independent units: a line, a folder, or lines page1_*.png", UNITS[0], choices=UNITS,
             scripts=("valid",)),
    )  # fmt: skip

    def check(self) -> None:
        """Check sizes, widths, and that ``--lexicon`` goes with ``--decoder beam``."""
        options = self.options
        given_sides(options)  # raises ConfigError
        at_least(options, max_width=1, widths=1, beam_width=1)
        if options.lexicon is not None and options.decoder != "beam":
            raise ConfigError("--lexicon needs --decoder beam; add that, or leave the lexicon out")

    def load(self, paths: Mapping[str, Path]) -> Dataset:
        """Return the images, in ``valid`` with their texts (:func:`.load_text_lines`)."""
        from utils.datasets.image.text_lines import TextLines, load_text_lines

        if self.options.script == "valid":
            return load_text_lines(paths, self.options.units)
        found = load_text_lines(paths)
        return TextLines(found.samples, None, found.files[0], found.rejected)

    def input_size(self) -> tuple[tuple[int | None, ...], ...] | None:
        """Return the shape of the input by ``--input_size``, if given."""
        given = given_size(self.options)
        return None if given is None else ((None, None, *given),)

    def open_sizes(self) -> dict[str, dict[tuple[int, int], tuple[int, ...]]]:
        """Return the widths of ``--widths``, for an input of open width."""
        widths = tuple(sorted(set(self.options.widths or ())))
        return {"model": {(0, 3): widths}} if widths else {}

    def prepare(self, samples: Sequence[Path | Image.Image]) -> Prepared:
        """Resize lines to the model's height (:mod:`utils.preprocess.image.lines`); one array per line.

        Args:
            samples: paths of images, or images, such as lines cropped from a page.

        Raises:
            DataError: An image cannot be read. ModelError, ConfigError: The input does not take such images.
        """
        from utils.preprocess.image.images import open_image

        form = form_of(self.model, self.options)
        lines = [
            line_input(open_image(sample) if isinstance(sample, Path) else sample, form, self.model.float_dtype)
            for sample in samples
        ]
        return Prepared([[array for array, _ in lines]], [Context(width) for _, width in lines])

    def decode(self, outputs: Any, contexts: Sequence[Any] | None) -> list[Text]:
        """Return the text of every line, with its score.

        Args:
            outputs: N x T x C, or T x N x C; probabilities, their logarithms or logits; or labels N x T. Of several
                outputs the first.
            contexts: one per line.

        Raises:
            InputError: The output has another form. ConfigError: The number of characters is not that of classes.
        """
        model, options = self.model, self.options
        form = model.form(options)
        if form.kind == LABELS:
            if options.decoder != "greedy":
                raise ConfigError(
                    f"--decoder {options.decoder}: {model.ckpt} outputs labels, not scores; use --decoder greedy"
                )
            outputs = label_steps(outputs, form, model)
        steps = steps_of(outputs, None if contexts is None else len(contexts), model)
        charset = charset_of(model, options, steps.shape[-1])
        if options.decoder == "greedy":
            return greedy(steps, charset.characters, charset.blank, logits=are_logits(form))
        from utils.postprocess.text.beam import beam

        names = tuple(class_texts(steps, charset.characters, charset.blank))
        words = None if options.lexicon is None else lexicon_of(Path(options.lexicon), names)
        how: dict[str, Any] = {"width": options.beam_width, "lexicon": words, "logits": are_logits(form)}
        return beam(steps, charset.characters, charset.blank, **how)

    def metric(self, dataset: Dataset) -> Metric:
        """Return the metric of record."""
        from utils.metrics.text.edits import METRICS as KINDS

        return KINDS[self.options.metric](self.options.normalize)

    def show(self, sample: Path, prediction: Text) -> Rendering:
        """Return the text with its score; saving draws the line with its text below it."""
        from tecoinfer_modelzoo.formatting import clean_line

        shown, score = clean_line(prediction.text) or "(nothing read)", round(float(prediction.score), 4)
        save = partial(save_lines, sample, [shown])
        if self.model.form(self.options).kind == LABELS:
            return Rendering(shown, {"text": prediction.text, "score": None}, save)
        return Rendering(f"{shown}  {score:.2f}", {"text": prediction.text, "score": score}, save)

    def diagnostics(self) -> TextDiagnostics:
        """Return the check for characters that the model lacks, and for a wrong blank."""
        return TextDiagnostics(self._counted, str, "if it should have them, check --charset")

    def _counted(self, outputs: Any, contexts: Sequence[Any]) -> tuple[Array, frozenset[str], int]:
        steps = steps_of(outputs, len(contexts), self.model)
        charset = charset_of(self.model, self.options, steps.shape[-1])
        counts = np.bincount(steps.argmax(axis=-1).ravel(), minlength=steps.shape[-1])
        return counts, frozenset("".join(charset.characters)), charset.blank % steps.shape[-1]

    def prediction_writer(self, path: Path, dataset: Dataset) -> RowsWriter:
        """Return a writer of PaddleOCR's label file."""
        return RowsWriter(path, lambda name, target, one: [f"{name}\t{one.text}\n"])
