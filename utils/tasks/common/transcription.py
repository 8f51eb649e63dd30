"""Recordings in, texts out: what all such tasks share, however their models write."""

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
from utils.tasks.base import Flag, Rendering, Task
from utils.tasks.common.prediction_files import RowsWriter
from utils.tasks.common.recognised_text import TextAnswers
from utils.tasks.common.sound_figures import SoundNotes
from utils.tasks.model import Model
from utils.tasks.prepared import Prepared

METRICS = ("wer", "cer")
UNITS = ("recording", "speaker", "file")
FORMS = ("plain", "NFC", "NFKC", "none")


class Word(NamedTuple):
    """A word, and from when to when it is said, in seconds."""

    text: str
    start: float
    end: float


class Heard(NamedTuple):
    """What was recognised.

    Attributes:
        text: words with single blanks between them; empty where nothing is said.
        score: 0 to 1. Greedy: the mean probability of the steps that gave a token. Beam: the probability of the text,
            per token (its root of as many tokens as there are), so that long texts can be compared with short ones.
            0 of an empty text of greedy decoding; NaN: the model's outputs hold NaN.
        words: with their times, where they were asked for.
        seconds: how long the recording is.
    """

    text: str
    score: float
    words: tuple[Word, ...] = ()
    seconds: float = 0.0


class Transcription(TextAnswers, SoundNotes, Task):
    """A task from recordings to texts. Its contexts have ``seconds``, its answers are :class:`Heard`.

    Attributes:
        listener: name of the model that is fed features, where there are several.
    """

    domain = "speech"
    data_help = "a recording, a folder, or a list with texts (JSON lines, Kaldi, LibriSpeech, AISHELL)"
    writes = "what was recognised as JSON lines: audio_filepath, text, pred_text, score"
    listener: ClassVar[str] = ""

    def load(self, paths: Mapping[str, Path]) -> Dataset:
        """Return the recordings, for ``valid`` with their texts (:func:`.load_sounds`)."""
        from utils.datasets.audio.recordings import load_sounds

        if self.options.script != "valid":
            return load_sounds(paths, target=None)
        return load_sounds(paths, units=self.options.units, split=self.options.split)

    @property
    def hearing(self) -> Model:
        """The model that is fed features, which stores how they are made."""
        return self.model.named.get(self.listener, self.model)

    def collate(self, parts: Sequence[Prepared]) -> list[Array]:
        """Put what was made of all parts one behind the other; ``infer`` cuts it."""
        return [np.concatenate([np.asarray(part.arrays[0]) for part in parts])]

    def metric(self, dataset: Dataset) -> Metric:
        """Return the metric of record; the other one is beside it."""
        from utils.metrics.text.transcripts import METRICS as KINDS

        return KINDS[self.options.metric](self.options.normalize)

    def show(self, sample: Recording, prediction: Heard) -> Rendering:
        """Return the text with its score; saving draws the recording's spectrogram with the words at their times."""
        from tecoinfer_modelzoo.formatting import clean_line

        shown = clean_line(prediction.text) or "(nothing recognised)"
        score = round(float(prediction.score), 4)
        answer = {"text": prediction.text, "score": score, "seconds": round(prediction.seconds, 3)}
        rate = settings_of(self.hearing.stored).rate
        return Rendering(f"{shown}  {score:.2f}", answer, partial(_save, sample, shown, rate, prediction.words))

    def prediction_writer(self, path: Path, dataset: Dataset) -> RowsWriter:
        """Return what writes JSON lines, as NeMo's tools read them."""
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
    """Return the flags of data and metric; ``metric``: the one of record where no flag says so."""
    valid = ("valid",)
    return (
        Flag(
            "--metric",
            "the metric of record; the other one is shown beside it",
            metric,
            choices=METRICS,
            scripts=valid,
        ),
        Flag(
            "--normalize",
            "what texts are compared in; plain: without case and punctuation",
            FORMS[0],
            choices=FORMS,
            scripts=valid,
        ),
        Flag("--units", "what belongs together", UNITS[0], choices=UNITS, scripts=valid),
        Flag("--split", "part of an AISHELL folder, such as test", None, scripts=valid),
    )
