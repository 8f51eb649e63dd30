"""Click-through rate prediction: the probability of a click (a like, a purchase) for each row of features."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, DataError, Engine, InputError, ModelError
from utils.datasets.base import Dataset
from utils.datasets.tabular.clicks import EVERY, RatedRows, Wanted, load_table
from utils.datasets.tabular.criteo import CriteoRows, is_criteo
from utils.datasets.tabular.ratings import is_ratings, read_ratings
from utils.datasets.tabular.splits import HOWS, PARTS
from utils.datasets.text.tables import ENCODING, ENDINGS
from utils.metrics.base import Metric
from utils.metrics.clicks import METRICS, Clicks
from utils.outputs import DEFAULT, GRAPH, LOGITS, PROBABILITIES, refuse_labels
from utils.preprocess.features import NOTE as FEATURES, NUMBERED, Features, Row
from utils.tasks import ExportSetting, Flag, Model, Options, Prepared, Rendering, Task, at_least
from utils.tasks.common.class_scores import ScoreAnswers
from utils.tasks.templates import sample_tables

if TYPE_CHECKING:
    from onnx import ModelProto

OUTPUTS = ("probability", "logits")
"""Kinds of model outputs."""

NOTE = "ctr_prediction"
"""Metadata key, optional: an object with ``output``, one of :data:`OUTPUTS`."""

MOST = 64 << 20
"""Maximum bytes of a model file whose tables are checked: larger files would take longer than the first call. External
weights are not read."""

SHOWN, BEST = 4, 5
"""Number of values in the title of a row without one, and of rows in the summary."""


class Context(NamedTuple):
    """Context of a row: its title, and the fields with a value that is not in the training data."""

    title: str
    unknown: tuple[str, ...]


class Likely(NamedTuple):
    """Prediction: the probability of a click, and the title of the row."""

    score: float
    title: str = ""


def output_of(model: Model, options: Options) -> str:
    """Return the kind of the output: the flag's, else the stored one, else by the graph's last node, else a
    probability. Raises ModelError if the stored kind is invalid or contradicts the graph."""
    if options.output is not None:
        return str(options.output)
    notes, form = model.stored.json(NOTE, {}), model.forms.of(0)
    usual = OUTPUTS[1] if form.kind == LOGITS and form.source != DEFAULT else OUTPUTS[0]
    stored = notes.get("output", usual) if isinstance(notes, dict) else notes
    if stored == OUTPUTS[1] and form.kind == PROBABILITIES and form.source == GRAPH:
        raise ModelError(
            f"{model.ckpt}: metadata {NOTE!r}: output {stored!r}, but the graph ends in {form.operator}; correct the "
            "metadata, or pass --output"
        )
    if stored not in OUTPUTS:
        raise ModelError(
            f"{model.ckpt}: metadata {NOTE!r}: output {stored!r} must be one of {', '.join(OUTPUTS)}; export it again"
        )
    return str(stored)


class CtrPrediction(ScoreAnswers, Task):
    """Models from rows of features to one probability each."""

    name, domain, domain_default = "ctr_prediction", "recommendation", True
    template = sample_tables.CTR_PREDICTION
    data_help = "ratings in a layout of MovieLens (a folder or a file), Criteo's logs, or a .csv, .tsv or .jsonl table"
    flags = (
        Flag("--metric", "the metric of record; the others are reported too", "auc", choices=METRICS),
        Flag("--split", "how ratings are divided into training and test", "random", choices=HOWS),
        Flag("--split_seed", "of the random split", 0, int),
        Flag("--part", "the part of the ratings to run", "test", choices=(*PARTS, EVERY)),
        Flag("--positive", "the lowest rating that counts as a click", 4.0, float),
        Flag("--label", "column of a table with 0 or 1 (default: label, click, ...)", None, metavar="COLUMN"),
        Flag("--user_column", "column of a table with the user (default: user_id, ...)", None, metavar="COLUMN"),
        Flag("--encoding", "of the text of a table", ENCODING),
        Flag("--user", "rows of this user alone (ratings: the first one)", None, scripts=("single", "multi")),
        Flag("--output", "kind of the output (default: as stored, or a probability)", None, choices=OUTPUTS),
    )
    export_settings = (ExportSetting("--output", OUTPUTS[::-1], "decode", output_of),)
    metadata_key = NOTE
    score_name = "probabilities"

    def check(self) -> None:
        """Check ``--positive`` and ``--split_seed``."""
        if not np.isfinite(self.options.positive):
            raise ConfigError(f"--positive {self.options.positive} must be a finite rating, such as 4")
        at_least(self.options, split_seed=0)

    def load(self, paths: Mapping[str, Path]) -> Dataset:
        """Return rows of ratings in a layout of MovieLens, of Criteo's logs, or of a table with named columns.

        ``single`` and ``multi`` show rows of one user of the ratings: ``--user``, or the first one.

        Raises:
            DataError: The data has none of these formats. ConfigError: The user is unknown, or the part is empty.
        """
        path, options = paths["data"], self.options
        if not path.exists():
            raise DataError(f"data path {path} does not exist; check the path")
        user = getattr(options, "user", None)
        if is_ratings(path):
            if options.script != "valid":
                user = user or ""
            wanted = Wanted(options.split, options.split_seed, options.part, options.positive, user)
            found: Dataset = RatedRows(read_ratings(path), wanted)
        elif is_criteo(path):
            if user:
                raise ConfigError(f"{path}: Criteo's layout has no users; leave out --user {user}")
            found = CriteoRows(path)
        elif path.is_file() and path.suffix.lower() not in ENDINGS:
            what = "its first lines are not Criteo's (label, 13 counts, 26 categories, separated by tabs)"
            raise DataError(
                f"{path}: {what if path.stat().st_size else 'it is empty'}, and its name is not that of ratings and "
                f"does not end in {' '.join(ENDINGS)}; correct the file, or its name"
            )
        elif path.is_dir():
            raise DataError(f"{path}: has neither ratings (MovieLens' files) nor a table; give such a folder or file")
        else:
            found = load_table(path, options.label, options.user_column, user, options.encoding)
        return self.selected(found)

    def setup(self, engines: Mapping[str, Engine], dataset: Dataset) -> None:
        """Check that the data set has the model's fields, and that ``valid`` does not run on training data.

        Raises:
            ModelError: Features are missing, or need more rows than the model's table has.
            DataError: The data set lacks a field. ConfigError: The rows may be part of the training data.
        """
        ckpt, features = self.model.ckpt, Features.of(self.model)
        columns = dataset.notes.get("columns", ())
        missing = features.missing(columns)
        if missing:
            needs = f"needs the fields {', '.join(missing)}, and the data set has {', '.join(columns)}"
            raise DataError(f"{ckpt}: {needs}; add them")
        if self.options.script == "valid" and dataset.notes.get("split") is not None:
            refuse_trained_rows(features.notes.get("split"), dataset, ckpt)
        refuse_short_tables(features, ckpt)

    def prepare(self, samples: Sequence[Row]) -> Prepared:
        """Encode rows by the model's metadata (:mod:`utils.preprocess.features`); contexts are :class:`Context`.
        Raises DataError if a value is not a number, or exceeds the input's dtype."""
        features = Features.of(self.model)
        arrays = features.encoded(samples)
        unknown = features.unknown(arrays)
        fed = [_as(arrays[tensor.name], tensor.dtype, tensor.name) for tensor in self.model.inputs]
        return Prepared(fed, [Context(title(row), lost) for row, lost in zip(samples, unknown, strict=True)])

    def decode(self, outputs: Any, contexts: Sequence[Context]) -> list[Likely]:
        """Return a probability per row, from N or N x 1 floats, or N x 2 if the graph ends in classes.
        Raises InputError if the output is not one number per row, or a probability is not from 0 to 1."""
        model, form = self.model, self.model.forms.of(0)
        found = outputs[0] if isinstance(outputs, (list, tuple)) else outputs
        if self.options.output is None:
            refuse_labels(form, model.ckpt, "click prediction needs probabilities", "--output")
        are_logits = output_of(model, self.options) == "logits"
        if found.ndim == 2 and found.shape[1] == 2 and found.dtype.kind == "f" and form.source == GRAPH:
            found = found[:, 1] - found[:, 0] if are_logits else found[:, 1]  # of no click, and of a click
        if found.dtype.kind != "f" or found.size != len(found) or found.ndim > 2:
            raise InputError(
                f"{model.ckpt}: its first output has shape {found.shape} and dtype {found.dtype}; expected one "
                "floating-point number per row, N or N x 1"
            )
        scores = found.reshape(-1).astype(np.float64)
        if are_logits:
            scores = 0.5 * (1 + np.tanh(scores / 2))  # no overflow on either side
        elif np.any((scores < 0) | (scores > 1)):
            raise InputError(
                f"{model.ckpt}: outputs {scores[(scores < 0) | (scores > 1)][0]:g}, which is not a probability; pass "
                "--output logits, or export the model with its sigmoid"
            )
        return [Likely(score, context.title) for score, context in zip(scores.tolist(), contexts, strict=True)]

    def metric(self, dataset: Dataset) -> Metric:
        """Return the metric of record."""
        return Clicks(self.options.metric)

    def show(self, sample: Row, prediction: Likely) -> Rendering:
        """Return the probability and the title; saving draws a card with the row's fields and a bar."""
        answer = {"probability": round(prediction.score, 6), "title": prediction.title, "row": dict(sample)}
        text = f"{prediction.score:.3f}  {prediction.title}"
        return Rendering(text, answer, partial(_save, sample, prediction))

    def summary(self, predictions: Sequence[Likely]) -> str:
        """Return the rows with the highest probabilities, the best first."""
        best = sorted(predictions, key=lambda one: -one.score)[:BEST]
        mean = float(np.mean([one.score for one in predictions]))
        listed = "; ".join(f"{one.title} {one.score:.3f}" for one in best)
        return f"best of {len(predictions)}: {listed}; mean probability {mean:.3f}"

    def warning_counts(self, contexts: Sequence[Context] | None) -> Mapping[str, int]:
        """Count the rows with a value that is not in the training data, by field."""
        return Counter(f"unknown {name}" for context in contexts or () for name in context.unknown)

    def format_warnings(self, counts: Mapping[str, int], samples: int) -> list[str]:
        """Return a line per field with unknown values."""
        return [
            f"{key.removeprefix('unknown ')}: {count} of {samples} rows have an empty value or one that is not in the "
            "training data; these share one row of the model's table"
            for key, count in sorted(counts.items())
            if count and key.startswith("unknown ")
        ]


def refuse_trained_rows(trained: Any, dataset: Dataset, ckpt: Path) -> None:
    """Check that the rows cannot be part of the training data: the split and the ratings must be the same.

    Args:
        trained: the stored split of the training (the keys of :attr:`RatedRows.notes`' ``split``); a warning is given
            if it is missing.
        dataset: of ratings. ckpt: the model, for messages.

    Raises:
        ConfigError: Split, ratings or the lowest rating of a click differ.
    """
    asked, part = dataset.notes["split"], dataset.notes["part"]
    if not isinstance(trained, dict):
        warnings.warn(
            f"{ckpt}: does not store the split of its training, so these ratings may be part of its training data; "
            "store it under 'features' (docs/reference/recommendation.md)",
            stacklevel=2,
        )
        return
    own = {key: trained.get(key, value) for key, value in asked.items()}
    if part in ("valid", "test") and own == asked:
        return
    if own["ratings"] != asked["ratings"]:
        what = f"it was trained on a split of {own['ratings']} ratings, and these are {asked['ratings']}"
        fix = "use the ratings that it was trained on"
    else:
        what = f"it was not trained for {_as_flags(asked)}, part {part}"
        fix = f"use {_as_flags(own)} --part test"
    raise ConfigError(f"{ckpt}: {what}, so these rows may be training data; {fix}, or a model of this split")


def _as_flags(split: Mapping[str, Any]) -> str:
    """Return a split as flags."""
    return f"--split {split['how']} --split_seed {split['seed']} --positive {split['positive']}"


def refuse_short_tables(features: Features, ckpt: Path) -> None:
    """Check that the tables that inputs are looked up in have as many rows as the fields need.

    Only tables that a whole input indexes directly are checked; for others the runtime raises at the first index that
    is too large.

    Raises:
        ModelError: A table is too small.
    """
    needed = {
        name: max(((one.offset + one.rows, one.name) for one in fields if one.kind in NUMBERED), default=(0, ""))
        for name, fields in features.inputs.items()
    }
    model = _read(ckpt)
    if model is None:
        return
    rows = {tensor.name: tensor.dims[0] for tensor in model.graph.initializer if len(tensor.dims) > 1}
    for node in model.graph.node:
        if node.op_type != "Gather" or len(node.input) != 2 or any(one.i for one in node.attribute):
            continue
        table, given = node.input
        most, field = needed.get(given, (0, ""))
        if table in rows and most > rows[table]:
            raise ModelError(
                f"{ckpt}: table {table!r} has {rows[table]} rows, and field {field!r} of its metadata {FEATURES!r} "
                f"needs {most} (offset and size); store the size of the training, and export it again"
            )


def _read(path: Path) -> ModelProto | None:
    """Return a model without its external data; ``None`` if it is not an ONNX file, or larger than :data:`MOST`."""
    import onnx  # already imported by the engines
    from google.protobuf.message import DecodeError

    try:
        if path.stat().st_size > MOST:
            return None
        return onnx.load(str(path), format="protobuf", load_external_data=False)
    except (DecodeError, OSError):  # such as a saved engine
        return None


def _as(array: Array, dtype: np.dtype[Any], name: str) -> Array:
    """Return an array in an input's dtype."""
    with np.errstate(over="ignore"):
        found = array.astype(dtype, copy=False)
    if found.dtype.kind == "f" and not np.isfinite(found).all():
        worst = float(np.abs(array).max())
        raise DataError(f"input {name!r}: {worst:g} exceeds {dtype}; scale the field in the export")
    return found


def title(row: Row) -> str:
    """Return the title of a row: title and year of the item, else its id, else the first values."""
    name, year = row.get("title", ""), row.get("year", "")
    if name:
        return f"{name} ({year})" if year else name
    if row.get("item_id"):
        return str(row["item_id"])
    values = [f"{key} {value}" for key, value in row.items() if value]
    return ", ".join(values[:SHOWN]) or "a row without a value"


def _save(sample: Row, prediction: Likely, folder: Path) -> Path:
    from utils.postprocess.image.cards import save_card

    shown = {key: value.replace("|", ", ") for key, value in sample.items() if value and key not in ("title", "year")}
    fields = [f"{name}: {value}" for name, value in shown.items()]
    return save_card(folder, prediction.title, prediction.score, fields, sample.get("user_id", ""))
