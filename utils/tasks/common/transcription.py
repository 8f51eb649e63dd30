"""Base class of speech recognition tasks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from engine import Array
from utils.datasets.base import Dataset
from utils.metrics.base import Metric
from utils.preprocess.audio.features import settings_of
from utils.preprocess.audio.reading import Recording, read_sound
from utils.tasks import Flag, Model, Prepared, Rendering, Task
from utils.tasks.common.prediction_files import RowsWriter
from utils.tasks.common.recognised_text import TextAnswers
from utils.tasks.common.sound_figures import SoundNotes

METRICS = ("wer", "cer")
UNITS = ("recording", "speaker", "file")
FORMS = ("plain", "NFC", "NFKC", "none")


class Word(NamedTuple):
    """A word with its start and end in seconds."""

    text: str
    start: float
    end: float


class Heard(NamedTuple):
    """Recognised text of a recording.

    Attributes:
        text: words separated by single spaces; empty if nothing is recognised.
        score: 0 to 1. Greedy: mean probability of the steps that output a token, 0 for an empty text. Beam: geometric
            mean of the tokens' probabilities, which makes long and short texts comparable. NaN: the outputs have NaN.
        words: words with their times, if requested.
        seconds: length of the recording.
    """

    text: str
    score: float
    words: tuple[Word, ...] = ()
    seconds: float = 0.0


class Transcription(TextAnswers, SoundNotes, Task):
    """Task from recordings to texts; contexts have ``seconds``, predictions are :class:`Heard`."""

    domain = "speech"
    data_help = "a recording, a folder, or a list with texts (JSON lines, Kaldi, LibriSpeech, AISHELL)"
    writes = "the texts as JSON lines: audio_filepath, text, pred_text, score"
    listener: ClassVar[str] = ""  # name of the model that takes features, if there are several

    def load(self, paths: Mapping[str, Path]) -> Dataset:
        """Return the recordings, in ``valid`` with their texts (:func:`.load_sounds`)."""
        from utils.datasets.audio.recordings import load_sounds

        if self.options.script != "valid":
            return load_sounds(paths, target=None)
        return load_sounds(paths, units=self.options.units, split=self.options.split)

    @property
    def acoustic_model(self) -> Model:
        """The model that takes features, which stores their settings."""
        return self.model.named.get(self.listener, self.model)

    def collate(self, parts: Sequence[Prepared]) -> list[Array]:
        """Concatenate the features of all parts; ``infer`` splits them."""
        return [np.concatenate([np.asarray(part.arrays[0]) for part in parts])]

    def metric(self, dataset: Dataset) -> Metric:
        """Return the metric of record."""
        from utils.metrics.text.transcripts import METRICS as KINDS

        return KINDS[self.options.metric](self.options.normalize)

    def show(self, sample: Recording, prediction: Heard) -> Rendering:
        """Return the text with its score; saving draws the spectrogram with the words at their times."""
        from tecoinfer_modelzoo.formatting import clean_line

        shown = clean_line(prediction.text) or "(nothing recognised)"
        score = round(float(prediction.score), 4)
        answer = {"text": prediction.text, "score": score, "seconds": round(prediction.seconds, 3)}
        rate = settings_of(self.acoustic_model.stored).rate
        return Rendering(f"{shown}  {score:.2f}", answer, partial(_save, sample, shown, rate, prediction.words))

    def prediction_writer(self, path: Path, dataset: Dataset) -> RowsWriter:
        """Return a writer of JSON lines in NeMo's format."""
        return RowsWriter(path, _row)


def _save(sample: Recording, shown: str, rate: int, words: tuple[Word, ...], folder: Path) -> Path:
    from utils.draw import save_drawn
    from utils.postprocess.audio.drawn_words import draw_words

    return save_drawn(sample.own_path, [shown], folder, draw_words(read_sound(sample, rate).samples, rate, words))


def _row(name: str, target: Any, one: Heard) -> list[str]:
    row = {"audio_filepath": name} | ({} if target is None else {"text": target})
    row |= {"pred_text": one.text, "score": round(float(one.score), 4)}
    return [json.dumps(row, ensure_ascii=False) + "\n"]


def text_flags(metric: str) -> tuple[Flag, ...]:
    """Return the flags of data and metric; ``metric``: the default metric of record."""
    valid = ("valid",)
    return (
        Flag("--metric", "the metric of record; the other one is reported too", metric, choices=METRICS, scripts=valid),
        Flag("--normalize", "form of texts for the comparison; plain: without case and punctuation", FORMS[0],
             choices=FORMS, scripts=valid),
        Flag("--units", "independent units of the data set", UNITS[0], choices=UNITS, scripts=valid),
        Flag("--split", "part of an AISHELL folder, such as test", None, scripts=valid),
    )  # fmt: skip
