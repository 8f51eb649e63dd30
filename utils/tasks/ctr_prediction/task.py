"""Click-through prediction: rows of features in, the probability of a click (a like, a purchase) out."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, DataError, Engine, InputError, ModelError
from tecoinfer_modelzoo.files import text_of
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
from utils.tasks.base import ExportSetting, Flag, Options, Rendering, Task
from utils.tasks.legacy import LegacyTask
from utils.tasks.model import Model
from utils.tasks.prepared import Prepared
from utils.tasks.templates.snacks import TEMPLATE

if TYPE_CHECKING:
    from onnx import ModelProto

OUTPUTS = ("probability", "logits")
"""What a model may give."""

NOTE = "ctr_prediction"
"""Key of what an export may store: an object with ``output``, one of :data:`OUTPUTS`."""

MOST = 64 << 20
"""Bytes of a file whose tables are looked at: more would take longer than the first call. Weights beside it are not
read."""

TOLD, BEST = 4, 5
"""Values that name a row without a title; rows that a summary names."""


class Context(NamedTuple):
    """What is kept of a row: what people call it, and the fields whose value the training did not know."""

    title: str
    unknown: tuple[str, ...]


class Likely(NamedTuple):
    """A prediction: the probability of a click, and of what."""

    score: float
    title: str = ""


def output_of(model: Model, options: Options) -> str:
    """Return what the output means, one of :data:`OUTPUTS`: what the flag says, else what is stored, else what the
    graph ends in, else a probability.

    Raises:
        ModelError: the export stored something else, or what contradicts the graph.
    """
    if options.output is not None:
        return str(options.output)
    notes, form = model.stored.json(NOTE, {}), model.forms.of(0)
    usual = OUTPUTS[1] if form.kind == LOGITS and form.source != DEFAULT else OUTPUTS[0]
    stored = notes.get("output", usual) if isinstance(notes, dict) else notes
    if stored == OUTPUTS[1] and form.kind == PROBABILITIES and form.source == GRAPH:
        raise ModelError(
            f"{model.ckpt}: metadata {NOTE!r}: output {stored!r}, and the graph ends in {form.operator}; correct the "
            "metadata, or say which it is with --output"
        )
    if stored not in OUTPUTS:
        raise ModelError(
            f"{model.ckpt}: metadata {NOTE!r}: output {stored!r} must be one of {', '.join(OUTPUTS)}; export it again"
        )
    return str(stored)


class CtrPrediction(Task):
    """Rows of features in, one probability each out."""

    name, domain, domain_default = "ctr_prediction", "recommendation", True
    template = TEMPLATE
    data_help = "ratings in a layout of MovieLens (a folder or a file), Criteo's logs, or a .csv, .tsv or .jsonl table"
    flags = (
        Flag("--metric", "the metric of record; the others are shown beside it", "auc", choices=METRICS),
        Flag("--split", "how ratings are divided into training and test", "random", choices=HOWS),
        Flag("--split_seed", "of the random split", 0, int),
        Flag("--part", "the part of the ratings to run", "test", choices=(*PARTS, EVERY)),
        Flag("--positive", "the lowest rating that counts as a click", 4.0, float),
        Flag("--label", "column of a table that says 0 or 1 (default: label, click, ...)", None, metavar="COLUMN"),
        Flag(
            "--user_column",
            "column of a table that says whose row it is (default: user_id, ...)",
            None,
            metavar="COLUMN",
        ),
        Flag("--encoding", "of the text of a table", ENCODING),
        Flag("--user", "rows of this user alone (ratings: the first one)", None, scripts=("single", "multi")),
        Flag("--output", "what the model gives (default: as stored, or a probability)", None, choices=OUTPUTS),
    )
    export_settings = (ExportSetting("--output", OUTPUTS[::-1], "decode", output_of),)
    metadata_key = NOTE

    def check(self) -> None:
        """Refuse a rating or a seed that cannot be.

        Raises:
            ConfigError: names the flag.
        """
        if not np.isfinite(self.options.positive):
            raise ConfigError(f"--positive {self.options.positive} must be a finite rating, such as 4")
        if self.options.split_seed < 0:
            raise ConfigError(f"--split_seed {self.options.split_seed} must be at least 0")

    def load(self, paths: Mapping[str, Path]) -> Dataset:
        """Return rows of ratings in a layout of MovieLens, of Criteo's logs, or of a table with named columns.

        The scripts for one sample and for many show rows of one user of the ratings: ``--user``, or the first one.

        Raises:
            DataError: there is neither. ConfigError: there is no such user, or nothing in that part.
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
                raise ConfigError(
                    f"{path}: lines of Criteo's layout do not say whose they are; leave out --user {user}"
                )
            found = CriteoRows(path)
        elif path.is_file() and path.suffix.lower() not in ENDINGS:
            what = "its first lines are none of Criteo's (label, 13 counts, 26 categories, with tabs between)"
            raise DataError(
                f"{path}: {what if path.stat().st_size else 'it is empty'}, and its name is not that of ratings and "
                f"ends in none of {' '.join(ENDINGS)}; correct the file, or its name"
            )
        elif path.is_dir():
            raise DataError(
                f"{path}: neither ratings (MovieLens' files) nor a table; give a folder or a file with some"
            )
        else:
            found = load_table(path, options.label, options.user_column, user, options.encoding)
        return found.select(range(min(len(found), options.batch_size))) if options.script == "single" else found

    def setup(self, engines: Mapping[str, Engine], dataset: Dataset) -> None:
        """Compare what the model needs with what the data set has, before anything is computed.

        Raises:
            ModelError: the model stores no features, or some that need more rows than a table has.
            DataError: the data set lacks a field. ConfigError: the rows are such as the model was trained on.
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
        """Encode rows as the model's metadata says (:mod:`utils.preprocess.features`); contexts are :class:`Context`.

        Raises:
            DataError: a value is no number where it must be one, or does not fit into the input's dtype.
        """
        features = Features.of(self.model)
        arrays = features.encoded(samples)
        unknown = features.unknown(arrays)
        fed = [_as(arrays[tensor.name], tensor.dtype, tensor.name) for tensor in self.model.inputs]
        return Prepared(fed, [Context(title(row), lost) for row, lost in zip(samples, unknown, strict=True)])

    def decode(self, outputs: Any, contexts: Sequence[Context]) -> list[Likely]:
        """Return a probability per row, of an output of N or N x 1 floats, or N x 2 where the graph ends in classes.

        Raises:
            InputError: the output is not one number per row, or no probability where it should be one.
        """
        model, form = self.model, self.model.forms.of(0)
        found = outputs[0] if isinstance(outputs, (list, tuple)) else outputs
        if self.options.output is None:
            refuse_labels(form, model.ckpt, "a click needs its probability", "--output")
        are_logits = output_of(model, self.options) == "logits"
        if found.ndim == 2 and found.shape[1] == 2 and found.dtype.kind == "f" and form.source == GRAPH:
            found = found[:, 1] - found[:, 0] if are_logits else found[:, 1]  # of no click, and of a click
        if found.dtype.kind != "f" or found.size != len(found) or found.ndim > 2:
            raise InputError(
                f"{model.ckpt}: its first output has shape {found.shape} and dtype {found.dtype}; click prediction "
                "takes one floating-point number per row, N or N x 1"
            )
        scores = found.reshape(-1).astype(np.float64)
        if are_logits:
            scores = 0.5 * (1 + np.tanh(scores / 2))  # no overflow on either side
        elif np.any((scores < 0) | (scores > 1)):
            raise InputError(
                f"{model.ckpt}: gives {scores[(scores < 0) | (scores > 1)][0]:g}, which is no probability; use "
                "--output logits, or export the model with its sigmoid"
            )
        return [Likely(score, context.title) for score, context in zip(scores.tolist(), contexts, strict=True)]

    def metric(self, dataset: Dataset) -> Metric:
        """Return the metric of record; the others are told beside it."""
        return Clicks(self.options.metric)

    def show(self, sample: Row, prediction: Likely) -> Rendering:
        """Return the probability, and of what; drawn as a card with the row's fields and a bar."""
        answer = {"probability": round(prediction.score, 6), "title": prediction.title, "row": dict(sample)}
        text = f"{prediction.score:.3f}  {prediction.title}"
        return Rendering(text, answer, partial(_save, sample, prediction))

    def summary(self, predictions: Sequence[Likely]) -> str:
        """Return the rows with the highest probabilities, the best first."""
        best = sorted(predictions, key=lambda one: -one.score)[:BEST]
        mean = float(np.mean([one.score for one in predictions]))
        told = "; ".join(f"{one.title} {one.score:.3f}" for one in best)
        return f"best of {len(predictions)}: {told}; mean probability {mean:.3f}"

    def warning_counts(self, contexts: Sequence[Context] | None) -> Mapping[str, int]:
        """Count the rows with a value that the training did not know, by field."""
        return Counter(f"unknown {name}" for context in contexts or () for name in context.unknown)

    def format_warnings(self, counts: Mapping[str, int], samples: int) -> list[str]:
        """Say how many rows have such a value."""
        return [
            f"{key.removeprefix('unknown ')}: {count} of {samples} rows have a value that the training did not know, "
            "or none; these share one row of the model's table"
            for key, count in sorted(counts.items())
            if count and key.startswith("unknown ")
        ]

    def reference_answers(self, file: Path, dataset: Dataset) -> list[float]:
        """Read probabilities: a JSON list, or a number per line, in the order of the rows.

        Raises:
            DataError: they are no numbers, or not as many as rows.
        """
        try:
            text = text_of(file)
            found = json.loads(text) if text.lstrip().startswith("[") else text.split()
            numbers = [float(one) for one in found]
        except (OSError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise DataError(
                f"{file}: no list of probabilities ({error}); write one per line, or a JSON list"
            ) from error
        if len(numbers) != len(dataset):
            raise DataError(f"{file} has {len(numbers)} probabilities for {len(dataset)} rows; write one for each")
        return numbers

    def agreement(self, prediction: Likely, answer: float) -> float:
        """Return 1 where two probabilities are equal, less what they differ by."""
        return max(0.0, 1.0 - abs(prediction.score - answer))


def refuse_trained_rows(trained: Any, dataset: Dataset, ckpt: Path) -> None:
    """Refuse a test of rows that may have been in the training: those of another split, or of other ratings.

    Args:
        trained: what the model stores of its training's split (the keys of :attr:`RatedRows.notes`' ``split``); where
            it stores nothing, nobody can tell, which a warning says.
        dataset: of ratings. ckpt: the model, for messages.

    Raises:
        ConfigError: they may have been, or another rating counted as a click.
    """
    asked, part = dataset.notes["split"], dataset.notes["part"]
    if not isinstance(trained, dict):
        warnings.warn(
            f"{ckpt}: does not store the split that it was trained by, so it may have seen these ratings in its "
            "training; store it under 'features' (docs/recommendation.md)",
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
        what = f"it was not trained for {_told(asked)}, part {part}"
        fix = f"use {_told(own)} --part test"
    raise ConfigError(f"{ckpt}: {what}, so it may know these answers; {fix}, or a model of this split")


def _told(split: Mapping[str, Any]) -> str:
    """Return a split as flags."""
    return f"--split {split['how']} --split_seed {split['seed']} --positive {split['positive']}"


def refuse_short_tables(features: Features, ckpt: Path) -> None:
    """Refuse a model that looks up an input's numbers in a table with fewer rows than its fields need.

    Only tables that are read by a whole input, as it comes, are told of; of others the runtime tells at the first
    number that is too large.

    Raises:
        ModelError: it names the table, its rows, the field and the fix.
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
                f"needs {most} (offset and size); store the size that the model was trained with, and export it again"
            )


def _read(path: Path) -> ModelProto | None:
    """Return a model without its external data; ``None`` where it is no ONNX file, or a large one."""
    import onnx  # the engines have read the file
    from google.protobuf.message import DecodeError

    try:
        if path.stat().st_size > MOST:
            return None
        return onnx.load(str(path), format="protobuf", load_external_data=False)
    except (DecodeError, OSError):  # a saved engine
        return None


def _as(array: Array, dtype: np.dtype[Any], name: str) -> Array:
    """Return an array in an input's dtype."""
    with np.errstate(over="ignore"):
        found = array.astype(dtype, copy=False)
    if found.dtype.kind == "f" and not np.isfinite(found).all():
        worst = float(np.abs(array).max())
        raise DataError(f"input {name!r}: {worst:g} is more than {dtype} can hold; scale the field in the export")
    return found


def title(row: Row) -> str:
    """Return what people call the item of a row: its title and year, else its number, else the first few values."""
    name, year = row.get("title", ""), row.get("year", "")
    if name:
        return f"{name} ({year})" if year else name
    if row.get("item_id"):
        return str(row["item_id"])
    told = [f"{key} {value}" for key, value in row.items() if value]
    return ", ".join(told[:TOLD]) or "a row without a value"


def _save(sample: Row, prediction: Likely, folder: Path) -> Path:
    from utils.postprocess.image.cards import save_card

    told = {name: value.replace("|", ", ") for name, value in sample.items() if value and name not in ("title", "year")}
    fields = [f"{name}: {value}" for name, value in told.items()]
    return save_card(folder, prediction.title, prediction.score, fields, sample.get("user_id", ""))


CTR_PREDICTION = LegacyTask.view(CtrPrediction)
"""The same in the form before, for scripts that use ``dataclasses.replace``."""
