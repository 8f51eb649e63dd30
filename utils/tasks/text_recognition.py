"""Text recognition: a picture of one line in, its text out, read off CTC's outputs."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from engine import ConfigError
from utils.datasets.base import Dataset
from utils.metrics.base import Metric
from utils.outputs import LABELS
from utils.postprocess.text.ctc import Text, class_texts, greedy
from utils.preprocess.image.lines import line_input
from utils.tasks.base import Artifact, Flag, Hinter, Options, Saver, Task
from utils.tasks.model import Model
from utils.tasks.outputs import KIND_FLAG, are_logits, label_steps
from utils.tasks.prepared import Prepared
from utils.tasks.templates.bars import TEMPLATE
from utils.tasks.text_recognition_input import (
    CHOICES,
    FLAGS,
    NOTE,
    charset_of,
    check,
    form_of,
    input_size,
    lines_of,
    open_sizes,
    steps_of,
)

if TYPE_CHECKING:
    from PIL import Image

    from utils.postprocess.text.lexicon import Lexicon

DATA_HELP = "a label file (rec_gt.txt), a folder with one or with texts beside the pictures, or pictures"

METRICS = ("sequence_accuracy", "cer")
UNITS = ("line", "folder", "name")


class Context(NamedTuple):
    """What is kept of a line: how much of the input's width it takes, in pixels."""

    width: int


def load(paths: Mapping[str, Path], options: Options) -> Dataset:
    """Return the pictures, for ``valid`` with their texts (:func:`~utils.datasets.text_lines.load_text_lines`)."""
    from utils.datasets.text_lines import TextLines, load_text_lines

    if options.script != "valid":
        found = load_text_lines(paths)
        return TextLines(found.samples, None, found.files[0], found.rejected)
    return load_text_lines(paths, getattr(options, "units", UNITS[0]))


def prepare(samples: Sequence[Path | Image.Image], model: Model, options: Options) -> Prepared:
    """Bring lines to the model's height (:mod:`utils.preprocess.image.lines`), one array each, as wide as they are.

    Args:
        samples: paths of pictures, or pictures, such as lines cut out of a page.
        model: has one input, N x 1 or 3 x H x W.
        options: the flags of :mod:`utils.tasks.text_recognition_input`.

    Raises:
        DataError: a picture cannot be read. ModelError, ConfigError: the input is no such picture.
    """
    from utils.preprocess.image.images import open_image

    form = form_of(model, options)
    lines = [
        line_input(open_image(sample) if isinstance(sample, Path) else sample, form, model.float_dtype)
        for sample in samples
    ]
    return Prepared([[array for array, _ in lines]], [Context(width) for _, width in lines])


def decode(outputs: Any, contexts: Sequence[Any] | None, model: Model, options: Options) -> list[Text]:
    """Return the text of every line, with its score.

    Args:
        outputs: N x T x C, or T x N x C; probabilities, their logarithms or logits; or labels N x T. Of several outputs
            the first.
        contexts: one per line.
        model: stores the characters.
        options: ``--decoder`` says how.

    Raises:
        InputError: the output has another form. ConfigError: the characters do not fit.
    """
    form = model.form(options)
    if form.kind == LABELS:
        if options.decoder != "greedy":
            raise ConfigError(
                f"--decoder {options.decoder}: {model.ckpt} gives the label of one class per step and no scores; use "
                "--decoder greedy"
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


@lru_cache(maxsize=4)
def lexicon_of(file: Path, names: tuple[str, ...]) -> Lexicon:
    """Return the words of a file, one per line, as a tree over the classes; words that cannot be written warn once."""
    from utils.postprocess.text.lexicon import Lexicon

    found = Lexicon([word.strip() for word in lines_of(file, "--lexicon")], names)
    if found.unwritable:
        first = found.unwritable[0]
        warnings.warn(
            f"--lexicon {file}: {len(found.unwritable)} of its words hold characters that the model has not, such as "
            f"{first!r}; they are never read",
            stacklevel=2,
        )
    return found


def metric(options: Options, dataset: Dataset, model: Model) -> Metric:
    """Return the metric of record; the other one is beside it."""
    from utils.metrics.text import METRICS as KINDS

    return KINDS[options.metric](options.normalize)


def show(sample: Path, prediction: Text, model: Model, options: Options) -> Artifact:
    """Return the text with its score; saving draws the line with its text below it."""
    from utils.text import clean_line

    text, score = clean_line(prediction.text), round(float(prediction.score), 4)
    if model.form(options).kind == LABELS:
        answer = {"text": prediction.text, "score": None}
        return Artifact(text or "(nothing read)", answer, partial(_save, sample, text))
    words = f"{text}  {score:.2f}" if text else f"(nothing read)  {score:.2f}"
    return Artifact(words, {"text": prediction.text, "score": score}, partial(_save, sample, text))


def _save(picture: Path, text: str, folder: Path) -> Path:
    from utils.draw import save_drawn

    return save_drawn(picture, [text or "(nothing read)"], folder)


def hinter(model: Model, options: Options) -> Hinter:
    """Return what looks for characters that the model has not, and for a wrong blank."""
    from utils.tasks.text_recognition_results import TextHinter

    return TextHinter(model, options)


def saver(path: Path, dataset: Dataset, model: Model, options: Options) -> Saver:
    """Return what writes the texts that were read."""
    from utils.tasks.text_recognition_results import TextFile

    return TextFile(path)


def answers(file: Path, dataset: Dataset, model: Model, options: Options) -> Sequence[Text | None]:
    """Read the source framework's texts (:func:`~utils.tasks.text_recognition_results.read_answers`)."""
    from utils.tasks.text_recognition_results import read_answers

    return read_answers(file, dataset)


def agreement(one: Text, other: Text) -> float:
    """Return 1 where two texts are the same, 0 where they share nothing: 1 - edits over the longer one's length."""
    from utils.metrics.text import edit_distance

    longest = max(len(one.text), len(other.text))
    return 1.0 if not longest else 1 - edit_distance(one.text, other.text) / longest


OWN_FLAGS = (
    *FLAGS,
    KIND_FLAG,
    Flag(
        "--metric",
        "the metric of record; the other one is shown beside it",
        METRICS[0],
        choices=METRICS,
        scripts=("valid",),
    ),
    Flag(
        "--normalize",
        "Unicode form that texts are compared in",
        "NFC",
        choices=("NFC", "NFKC", "none"),
        scripts=("valid",),
    ),
    Flag(
        "--units",
        "what belongs together: a line, a folder, or lines page1_*.png",
        UNITS[0],
        choices=UNITS,
        scripts=("valid",),
    ),
)

TEXT_RECOGNITION = Task(
    name="text_recognition",
    domain="ocr",
    load=load,
    prepare=prepare,
    decode=decode,
    metric=metric,
    show=show,
    input_size=input_size,
    open_sizes=open_sizes,
    check=check,
    flags=OWN_FLAGS,
    template=TEMPLATE,
    first=True,
    data_help=DATA_HELP,
    choices=CHOICES,
    stored_under=NOTE,
    answers=answers,
    agreement=agreement,
    hinter=hinter,
    saver=saver,
    saves="what was read as a label file: path, tab, text",
)
"""Recognisers with CTC: N x C x H x W in, a distribution over the characters per step out."""
