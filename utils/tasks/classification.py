"""Task ``classification``: a picture in, classes out; top-k accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from engine import Array, ConfigError
from utils.datasets.base import Dataset
from utils.datasets.loading import load_dataset
from utils.metrics.classification import ClassFolders, TopK, refuse_trivial
from utils.outputs import refuse_topk
from utils.postprocess.pytorch.classification import answers, only_output, scores
from utils.preprocess.image.forms import picture_form
from utils.preprocess.image.modes import DECODES
from utils.preprocess.pytorch.classification import preprocess
from utils.tasks.base import Artifact, Flag, Hinter, Options, Task, Template, str2bool
from utils.tasks.model import Model
from utils.tasks.outputs import KIND_FLAG, class_rows
from utils.tasks.picture_input import report_form
from utils.tasks.prepared import Prepared

FLAGS = (
    Flag("--input_size", "height (and width) of the input in pixels", [224], int, nargs="+"),
    Flag("--topk", "answers per sample; the metric is top-k accuracy", 1, int),
    Flag("--skip_postprocess", "use the raw outputs", False, str2bool, nargs="?"),
    KIND_FLAG,
    Flag(
        "--decode",
        "exact, or a faster way that changes pixels a little",
        "exact",
        choices=DECODES,
        scripts=("valid",),
        exact="exact",
    ),
)


def size(options: Options) -> tuple[int, int]:
    """Return height and width of the model's input in pixels, as ``--input_size`` says."""
    return options.input_size[0], options.input_size[-1]


def input_size(options: Options) -> tuple[tuple[int | None, ...], ...]:
    """Return the shape of the one input: the batch and the channels are the model's."""
    return ((None, None, *size(options)),)


def load(paths: Mapping[str, Path], options: Options) -> Dataset:
    """Load a picture, a folder, class folders, a label file or an ``.npz``."""
    if set(paths) != {"data"}:
        raise ConfigError("classification takes one data path: --data_path PATH")
    return load_dataset(paths["data"])


def prepare(samples: Sequence[Any], model: Model, options: Options, *, out: Array | None = None) -> Prepared:
    """Decode, resize, crop and normalise as the export stored it; one array as the model takes it."""
    how = model.stored.picture.scaled(size(options))
    form = picture_form(model.inputs[0], model.ckpt, model.dtype) if model.inputs else None
    if form is None or form.plain:
        return Prepared([preprocess(samples, model.dtype, **how, out=out, decode=options.decode)])
    how |= form.scale(how["mean"], how["std"], model.ckpt)
    return Prepared([form.given(preprocess(form.opened(samples), "float32", **how, decode=options.decode))])


def decode(outputs: Any, contexts: Any, model: Model, options: Options) -> Any:
    """Return probabilities, N x C, for the metric; for people one list of answers per sample.

    Of logits the softmax is taken; what is a probability already, or a label, stays (:mod:`utils.outputs`).

    Raises:
        ConfigError: the metric would be 1 whatever the scores, as ``--topk`` takes all classes; or the model gives
            labels, and ``--topk`` asks for more.
    """
    if options.script == "valid" and options.skip_postprocess:
        found = np.asarray(outputs)
        if found.ndim == 2:  # anything else the metric refuses
            refuse_trivial(options.topk, found.shape[1], model.ckpt)
        return found
    rows = class_rows(only_output(outputs), model, options)
    if rows.are_labels:
        refuse_topk(options.topk, model.ckpt)
    if options.script != "valid":
        best = answers(rows.values, options.topk, model.stored.labels, are_logits=rows.are_logits)
        return [[{**one, "score": None} for one in each] for each in best] if rows.are_labels else best
    refuse_trivial(options.topk, rows.values.shape[1], model.ckpt)
    return scores(rows.values) if rows.are_logits else rows.values.astype(np.float32)


def metric(options: Options, dataset: Dataset, model: Model) -> TopK:
    """Return top-k accuracy; class folders are told by name where their order need not be the model's."""
    found = TopK(options.topk)
    names = dataset.notes.get("classes")
    if names is not None:
        found.folders = ClassFolders(names, model.stored.labels, model.stored.json("class_ids"))
    return found


def hinter(model: Model, options: Options) -> Hinter:
    """Return what looks for labels that are off by one (:mod:`utils.tasks.classification_hints`)."""
    from utils.tasks.classification_hints import ShiftedClasses

    return ShiftedClasses()


def show(sample: Any, prediction: Any, model: Model, options: Options) -> Artifact:
    """Return labels and scores, and the picture with them in a band below it."""
    lines = [
        answer["label"] if answer["score"] is None else f"{answer['label']}  {answer['score']:.3f}"
        for answer in prediction
    ]
    save = partial(_save, sample, lines) if isinstance(sample, Path) else None
    return Artifact("  ".join(lines), prediction, save)


def _save(sample: Path, lines: Sequence[str], folder: Path) -> Path:
    from utils.draw import save_drawn

    return save_drawn(sample, lines, folder)


def summary(predictions: Sequence[Any], model: Model, options: Options) -> str:
    """Return how often each class came first, the most frequent ones."""
    from collections import Counter

    found = Counter(answers[0]["label"] for answers in predictions).most_common()
    listed = ", ".join(f"{label} x {count}" for label, count in found[:_LISTED])
    return listed + (f", and {len(found) - _LISTED} more classes" if len(found) > _LISTED else "")


_LISTED = 5


def check(options: Options) -> None:
    """Refuse sizes and counts that cannot be.

    Raises:
        ConfigError: names the flag.
    """
    if options.topk < 1:
        raise ConfigError(f"--topk {options.topk} must be at least 1")
    if len(options.input_size) > 2 or min(options.input_size) < 1:
        raise ConfigError(f"--input_size {options.input_size} must be one or two positive numbers: height and width")


def fill(folder: Path) -> Mapping[str, str]:
    """Draw the sample pictures of a new model and return words for its templates."""
    from utils.tasks.templates import shapes  # only `teco new` draws

    return shapes.fill(folder)


CLASSIFICATION = Task(
    name="classification",
    domain="classification",
    load=load,
    prepare=prepare,
    decode=decode,
    metric=metric,
    show=show,
    summary=summary,
    setup=report_form,
    pictures=True,
    input_size=input_size,
    check=check,
    flags=FLAGS,
    template=Template(Path(__file__).with_name("templates") / "classification", fill),
    data_help="picture, folder, label file (val.txt) or .npz",
    hinter=hinter,
    advice={
        "disk": "keep the pictures on a faster disk, or in memory",
        "decode": "--decode reduced, or more cores",
        "preprocess": "--decode fused, or more cores",
    },
)
