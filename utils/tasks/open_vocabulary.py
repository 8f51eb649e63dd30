"""Detection of what texts name: OWL-ViT and its like, whose classes are the queries of a run."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from engine import Array, ConfigError, ModelError
from utils.datasets.base import Dataset
from utils.metrics.base import Metric
from utils.postprocess.image.nms import Detections
from utils.preprocess.image.letterbox import Geometry
from utils.preprocess.text.tokens import tokenized
from utils.stored import LABELS
from utils.tasks import detection
from utils.tasks.base import Artifact, Flag, Options, Task
from utils.tasks.model import Model
from utils.tasks.prepared import Prepared

TOKENIZER = "tokenizer"
"""The key under which an export stores its ``tokenizer.json``."""

TEMPLATE = "a photo of a {}"
"""What the names of a data set's classes are put into."""


def load(paths: Mapping[str, Path], options: Options) -> Dataset:
    """Return the pictures and their objects; where no queries are given, the data set's classes become the queries."""
    dataset = detection.load(paths, options)
    if options.queries is None and dataset.targets:
        options.queries = None if not dataset.targets[0].categories else list(dataset.targets[0].categories)
        options.asked = [options.template.format(name) for name in options.queries or ()]
    return dataset


def names(model: Model, options: Options) -> list[str]:
    """Return what each query is called in the answers.

    Raises:
        ConfigError: there are no queries.
    """
    if not options.queries:
        raise ConfigError(f'{model.ckpt}: nothing to look for; say it with --queries "a cat" "a dog"')
    return list(options.queries)


def texts(model: Model, options: Options) -> list[str]:
    """Return the queries as the model reads them."""
    return list(getattr(options, "asked", None) or names(model, options))


def with_labels(model: Model, options: Options) -> Model:
    """Return the model with the queries as its classes."""
    return replace(model, metadata={**model.metadata, LABELS: json.dumps(names(model, options))})


def prepare(samples: Sequence[Path], model: Model, options: Options) -> Prepared:
    """Put pictures into the first input, and the queries' tokens into ``input_ids`` and ``attention_mask``.

    The queries are the same for all pictures, so these two have no batch: Q x L. Where the engine has plans for some
    numbers of queries, rows of 0 are added up to the smallest that is large enough; the model leaves them out.

    Raises:
        DataError: a picture cannot be read.
        ConfigError: there are no queries, too many, or one is too long.
        ModelError: the export stored no tokenizer, or the model has other inputs.
    """
    pictures = detection.prepare(samples, replace(model, inputs=model.inputs[:1]), options)
    tokens = _tokens(model, options)
    return pictures._replace(arrays=[*pictures.arrays, *tokens])


def _tokens(model: Model, options: Options) -> list[Array]:
    """Return the inputs that hold the queries, in the model's order."""
    description = model.stored.json(TOKENIZER)
    if not isinstance(description, dict):
        raise ModelError(f"{model.ckpt}: stores no tokenizer; export it with --tokenizer tokenizer.json")
    specs = {spec.name: spec for spec in model.inputs[1:]}
    if not {"input_ids"} <= set(specs) <= {"input_ids", "attention_mask"} or len(specs["input_ids"].shape) != 2:
        raise ModelError(f"{model.ckpt}: takes {', '.join(specs)} beside pictures; this task fills Q x L input_ids")
    asked = texts(model, options)
    count, length = specs["input_ids"].shape
    if length is None:
        raise ModelError(f"{model.ckpt}: the length of its texts is open; export it with a fixed one")
    symbol = (specs["input_ids"].symbols or ("", ""))[0]
    plans = (count,) if count is not None else model.dims.get(symbol or "", ())
    if plans and len(asked) > plans[-1]:
        fix = f"give fewer, or --dim {symbol}={len(asked)}" if count is None else "give fewer"
        raise ConfigError(f"{model.ckpt}: {len(asked)} queries, and it takes {plans[-1]} at most; {fix}")
    rows = plans[bisect_left(plans, len(asked))] if plans else len(asked)
    found = dict(zip(("input_ids", "attention_mask"), tokenized(asked, description, length, model.ckpt), strict=True))
    empty = rows - len(asked)
    return [np.pad(found[name], ((0, empty), (0, 0))).astype(spec.dtype) for name, spec in specs.items()]


def decode(outputs: Any, contexts: Sequence[Geometry], model: Model, options: Options) -> list[Detections]:
    """Return what was found in each picture; rows of 0 among the queries find nothing."""
    found = detection.decode(outputs, contexts, model, options)
    known = len(names(model, options))
    kept = [one.classes < known for one in found]
    return [Detections(*(column[some] for column in one)) for one, some in zip(found, kept, strict=True)]


def metric(options: Options, dataset: Dataset, model: Model) -> Metric:
    """Return COCO's mAP; the queries are the classes."""
    return detection.metric(options, dataset, with_labels(model, options))


def show(sample: Path, prediction: Detections, model: Model, options: Options) -> Artifact:
    """Return the objects in words and as data, and the picture with their boxes drawn."""
    return detection.show(sample, prediction, with_labels(model, options), options)


def _check(options: Options) -> None:
    detection.DETECTION.check(options)
    if "{}" not in options.template:
        raise ConfigError(f"--template {options.template!r} must hold {{}} where the class's name goes")


OPEN_VOCABULARY = Task(
    name="open_vocabulary",
    domain="detection",
    load=load,
    prepare=prepare,
    decode=decode,
    metric=metric,
    show=show,
    input_size=detection.DETECTION.input_size,
    check=_check,
    flags=(
        *detection.FLAGS,
        Flag(
            "--queries", "texts of what to look for (default: the data set's classes)", None, nargs="+", metavar="TEXT"
        ),
        Flag("--template", "text that the data set's classes are put into", TEMPLATE),
    ),
    data_help=detection.DETECTION.data_help,
)
"""Detection with text inputs; the engine computes the queries' part with every batch."""
