"""Recognition of the text of line images, by CTC models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from engine import Array, ConfigError
from utils.datasets.base import Dataset
from utils.metrics.base import Metric
from utils.outputs import LABELS
from utils.postprocess.text.ctc import Text, class_texts, greedy
from utils.preprocess.image.lines import line_input
from utils.tasks.base import Flag, Rendering, Task, old_name
from utils.tasks.common.checks import at_least
from utils.tasks.common.outputs import KIND_FLAG, are_logits, label_steps
from utils.tasks.common.prediction_files import RowsWriter
from utils.tasks.common.recognised_text import TextAnswers, TextDiagnostics, lexicon_of
from utils.tasks.prepared import Prepared
from utils.tasks.templates import template_of
from utils.tasks.text_recognition.input import (
    EXPORT_SETTINGS,
    FLAGS,
    NOTE,
    charset_of,
    form_of,
    given_size,
    steps_of,
)

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
    template = template_of("text_recognition", "bars")
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
        given, sides = options.input_size, given_size(options)
        several = isinstance(given, Sequence) and len(given) > 2
        if several or (sides is not None and min(side or 1 for side in sides) < 1):
            raise ConfigError(f"--input_size {given} must be one or two positive numbers: height and width")
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
        save = partial(_save, sample, shown)
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


def _save(image: Path, text: str, folder: Path) -> Path:
    from utils.draw import save_drawn

    return save_drawn(image, [text], folder)


__getattr__ = old_name("TEXT_RECOGNITION", TextRecognition)
