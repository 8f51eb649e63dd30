"""Classification of sounds, such as keywords or events; metrics: accuracy, macro F1, and mAP for several classes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, Engine
from utils.datasets.audio.labelled import SPLITS, load_labelled
from utils.datasets.audio.recordings import UNITS
from utils.datasets.base import Dataset
from utils.metrics.base import Metric
from utils.metrics.classification import check_topk
from utils.outputs import LABELS, refuse_topk
from utils.preprocess.audio.reading import Recording, read_sound
from utils.preprocess.audio.windows import FILLS
from utils.tasks import Flag, Prepared, Rendering, Task, at_least, str2bool
from utils.tasks.common.class_scores import ClassAnswers, label_of, most_frequent, softmax
from utils.tasks.common.outputs import KIND_FLAG, class_rows, in_words, outputs_of, sigmoid
from utils.tasks.common.prediction_files import RowsWriter
from utils.tasks.common.sound_figures import SoundNotes
from utils.tasks.sound_classification.input import EXPORT_SETTINGS, NORMS, NOTE, Layout, note
from utils.tasks.templates import sample_sounds

METRICS, POOLS, LISTED = ("accuracy", "macro_f1", "map"), ("mean", "max"), 5


class Heard(NamedTuple):
    """Context of a recording."""

    windows: int  # windows of the model
    seconds: float  # length of the recording


class SoundClassification(ClassAnswers, SoundNotes, Task):
    """Models from a window of sound, or its features, to one score per class."""

    name, domain = "sound_classification", "speech"
    template = sample_sounds.SOUND_CLASSIFICATION
    data_help = (
        "ESC-50, Speech Commands, a folder per class, a table or JSON list with labels, or list=FILE audio=FOLDER"
    )
    writes = "JSON lines: audio_filepath, label, predicted, score"
    export_settings, metadata_key = EXPORT_SETTINGS, NOTE
    flags = (
        Flag("--seconds", "length of a window, for an input of any length (default: as stored)", None, float),
        Flag("--hop", "seconds from one window of a long recording to the next (default: half a window)", None, float),
        Flag("--pool", "how the scores of several windows are combined", POOLS[0], choices=POOLS),
        Flag("--fill", "what fills the window of a short recording (default: as stored)", None, choices=FILLS),
        Flag("--normalize", "normalisation of features (default: as stored, or none)", None, choices=NORMS),
        Flag("--full_scale", "factor of samples in -1..1, such as 32768 (default: as stored, or 1)", None, float),
        Flag("--time_axis", "axis of time in the features: 1 or 2 (default: by the shape)", None, int, choices=(1, 2)),
        Flag("--multi_label", "a sound may have several classes (default: as stored)", None, str2bool, nargs="?"),
        KIND_FLAG,
        Flag("--topk", "answers per sound; accuracy is top-k accuracy", 1, int),
        Flag("--threshold", "probability from which a class is an answer, with --multi_label", 0.5, float),
        Flag("--metric", "metric of record (default: accuracy; map with --multi_label)", None, choices=METRICS,
             scripts=("valid",)),
        Flag("--unknown", "the model's class for labels that it does not have, such as _unknown_", None,
             scripts=("valid",)),
        Flag("--fold", "numbers of the folds of ESC-50 or UrbanSound8K (default: all)", [], int, nargs="*"),
        Flag("--split", "part of Speech Commands", SPLITS[0], choices=SPLITS),
        Flag("--units", "independent units, for the gate (default: speaker or source file, if known)", None,
             choices=UNITS, scripts=("valid",)),
    )  # fmt: skip

    def check(self) -> None:
        """Check numbers, and that the metric fits."""
        opt = self.options
        at_least(opt, topk=1)
        for key in ("seconds", "hop", "full_scale"):
            value = getattr(opt, key)
            if value is not None and not 0 < value < np.inf:
                raise ConfigError(f"--{key} {value:g} must be a number above 0")
        if not 0 <= opt.threshold <= 1:
            raise ConfigError(f"--threshold {opt.threshold:g} must be a probability, 0 to 1")

    def load(self, paths: Mapping[str, Path]) -> Dataset:
        """Return the recordings, with their classes if known (:func:`.load_labelled`)."""
        opt = self.options
        return self.selected(load_labelled(paths, folds=opt.fold, split=opt.split, units=getattr(opt, "units", None)))

    def prepare(self, samples: Sequence[Recording]) -> Prepared:
        """Return the windows of all recordings, joined, and a :class:`Heard` for each; raise DataError if one cannot
        be read."""
        layout, opt = Layout.of(self.model, self.options), self.options
        hop = layout.length // 2 if opt.hop is None else round(opt.hop * layout.rate)
        arrays, contexts = [], []
        for one in samples:
            sound = read_sound(one, layout.rate)
            arrays.append(layout.windows(sound.samples, max(1, hop), self.model.float_dtype))
            contexts.append(Heard(len(arrays[-1]), sound.seconds))
        return Prepared([np.concatenate(arrays)], contexts)

    def collate(self, parts: Sequence[Prepared]) -> list[Array]:
        """Join the windows of all parts."""
        return [np.concatenate([np.asarray(part.arrays[0]) for part in parts])]

    def infer(self, engines: Mapping[str, Engine], arrays: Any, contexts: Sequence[Heard]) -> Array:
        """Return the probabilities of each recording, N x C float32: of its windows, combined by ``--pool``."""
        (engine,) = engines.values()
        rows = class_rows(outputs_of(engine, arrays[0], self.options.batch_size)[:1], self.model, self.options)
        values = rows.values.astype(np.float32)
        if rows.are_logits:
            values = sigmoid(values) if self._several else softmax(values)
        combined = np.mean if self.options.pool == POOLS[0] else np.max
        ends = np.cumsum([heard.windows for heard in contexts])
        parts = np.split(values, ends[:-1])
        return np.stack([part[0] if len(part) == 1 else combined(part, axis=0) for part in parts])

    @property
    def _several(self) -> bool:
        """Whether a sound may have several classes."""
        return bool(note("multi_label", self.model, self.options))

    def decode(self, outputs: Array, contexts: Any) -> list[Array]:
        """Return the probabilities of each recording. Raises ConfigError if ``--topk`` is the number of classes, or
        above 1 for a model that gives labels."""
        if self.model.form(self.options).kind == LABELS:
            refuse_topk(self.options.topk, self.model.ckpt)
        if self.options.script == "valid":
            check_topk(self.options.topk, outputs.shape[1], self.model.ckpt)
        return list(outputs)

    def metric(self, dataset: Dataset) -> Metric:
        """Return the metric of record. Without stored labels the data set's classes are those of the outputs."""
        from utils.metrics.f1 import Accuracy, MacroF1
        from utils.metrics.multi_label import MeanAveragePrecision

        kind, labels = self.options.metric, self.model.stored.labels or dataset.notes.get("classes")
        if self._several or kind == METRICS[2]:
            if kind not in (None, METRICS[2]):
                raise ConfigError(
                    f"--metric {kind} is for one class per sound; use --metric map, or --multi_label false"
                )
            return MeanAveragePrecision(labels)
        unknown = self.options.unknown
        if unknown is not None and unknown not in (labels or ()):
            raise ConfigError(f"--unknown {unknown} is not a class of {self.model.ckpt}; use one of its labels")
        return (MacroF1 if kind == METRICS[1] else Accuracy)(self.options.topk, labels, other=unknown)

    def show(self, sample: Recording, prediction: Array) -> Rendering:
        """Return the best classes with their scores; saving draws the spectrogram with them below it."""
        names, opt = self.model.stored.labels, self.options
        order = np.argsort(-prediction, kind="stable").tolist()
        best = [place for place in order if prediction[place] >= opt.threshold] if self._several else order[: opt.topk]
        scored = self.model.form(opt).kind != LABELS
        answer = [
            {"label": label_of(names, place), "score": round(float(prediction[place]), 4) if scored else None}
            for place in best
        ]
        words = list(map(in_words, answer))
        text = "   ".join(words) or f"(nothing from {opt.threshold:g})"
        return Rendering(text, answer, partial(_save, sample, text, words, Layout.of(self.model, opt).rate))

    def summary(self, predictions: Sequence[Array]) -> str:
        """Return how often each class came first."""
        return most_frequent(predictions, self.model.stored.labels, LISTED)

    def prediction_writer(self, path: Path, dataset: Dataset) -> RowsWriter:
        """Return a writer of JSON lines, one per recording, with its best class."""
        return RowsWriter(path, partial(_row, self.model.stored.labels or dataset.notes.get("classes")))


def _save(sample: Recording, text: str, words: Sequence[str], rate: int, folder: Path) -> Path:
    from utils.draw import save_drawn
    from utils.postprocess.audio.drawn_words import draw_words

    samples = read_sound(sample, rate).samples
    image = draw_words(samples, rate, [(word, 0.0, len(samples) / rate) for word in words])
    return save_drawn(sample.own_path, [text], folder, image)


def _row(labels: Sequence[str] | None, name: str, target: Any, scores: Array) -> list[str]:
    best = int(np.argmax(scores))
    row = {"audio_filepath": name} | ({} if target is None else {"label": target})
    row |= {"predicted": label_of(labels, best), "score": round(float(scores[best]), 4)}
    return [json.dumps(row, ensure_ascii=False) + "\n"]
