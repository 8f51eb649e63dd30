"""Speech recognition of sound as it comes: the words of a whole recording, each as soon as it is certain."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine import Array, ConfigError, Engine, ModelError
from utils.preprocess.audio.features import FeatureStream
from utils.preprocess.audio.resampling import Resampler
from utils.tasks.base import Options
from utils.tasks.model import Model
from utils.tasks.speech_recognition.input import alphabet_of, heard_by
from utils.tasks.speech_recognition.windows import Windows

CHUNK = 0.48
"""Seconds that are recognised at a time where no number is given."""


class WordStream:
    """Recognises sound that comes piece by piece, by the likeliest path; put together, what a whole recording gives.

    What is said is known when as much sound has come behind it as the model's answer hangs on (``reach``).

    Args:
        engine: the model, opened; it takes one recording at a time here.
        options: the flags of the task; ``--decoder`` must be greedy.
        rate: of the sound in Hz; ``None``: the model's. Another one is resampled as it comes.
        chunk: seconds that are recognised at a time; more need fewer calls, and come later.

    Raises:
        ModelError: the model's answer hangs on all of a recording, as attention's does.
        ConfigError: another decoder, or no chunk of that length.

    Attributes:
        chunks: how many have been recognised.
    """

    def __init__(self, engine: Engine, options: Options, rate: int | None = None, chunk: float = CHUNK) -> None:
        model = Model.of(engine)
        settings, way = heard_by(model)
        seconds = settings.hop / settings.rate
        self._windows = Windows(model, options, seconds)
        stride = self._windows.timing.stride
        if self._windows.timing.reach is None or not stride or way != "none":
            raise ModelError(
                f"{model.ckpt}: what it says of a moment hangs on all of a recording (its metadata store no reach, no "
                "stride, or a normalisation of the whole), so it cannot go along with a stream; feed it whole ones"
            )
        if options.decoder != "greedy":
            raise ConfigError(f"--decoder {options.decoder} looks at all of a text; a stream needs --decoder greedy")
        if not seconds * stride <= chunk < float("inf"):
            raise ConfigError(f"a chunk of {chunk:g} s must be at least a step of the model, {seconds * stride:g} s")
        self._engine, self._model, self._options = engine, model, options
        self._chunk = round(chunk / (seconds * stride)) * stride
        room = None if self._windows.most is None else self._windows.most - 2 * self._windows.beside
        if room is not None and self._chunk > room:
            raise ConfigError(
                f"a chunk of {chunk:g} s is {self._chunk} frames; the longest input of {model.ckpt} has room for "
                f"{max(0, room)}, with {self._windows.beside} more on each side; use {max(0, room) * seconds:g} s"
            )
        self._rate, self._resampler = settings.rate, Resampler(rate or settings.rate, settings.rate)
        self._features = FeatureStream(settings)
        self._frames: list[Array] = []
        self._begin = self._known = self._done = self._samples = 0
        self._last, self._open = -1, ""
        self.chunks = 0

    @property
    def seconds(self) -> float:
        """How much sound has come, in seconds."""
        return self._samples / self._rate

    @property
    def delay(self) -> float:
        """Seconds from a sound to when it is recognised, at most; what computing takes is not counted."""
        return (self._chunk + self._windows.beside) * self._windows.timing.seconds

    def feed(self, samples: Array) -> list[str]:
        """Take in the next samples (float32 [S], mono, any number); return the words that are certain now."""
        return self._take(self._resampler.feed(np.asarray(samples, np.float32)), last=False)

    def finish(self) -> list[str]:
        """Return the words that are left; the sound ends here."""
        words = self._take(self._resampler.feed(np.zeros(0, np.float32), last=True), last=True)
        left, self._open = self._open, ""
        return words + ([left] if left else [])

    def _take(self, samples: Array, last: bool) -> list[str]:
        self._samples += len(samples)
        found = self._features.feed(samples, last)
        self._known += len(found)
        self._frames.append(found.astype(self._model.float_dtype))
        words: list[str] = []
        while self._done + self._chunk + self._windows.beside <= self._known:
            words += self._recognise(self._done + self._chunk)
        while last and self._done < self._known:
            words += self._recognise(min(self._done + self._chunk, self._known))
        return words

    def _recognise(self, stop: int) -> list[str]:
        """Run the model on the frames up to ``stop``, and forget those that are not needed any more."""
        frames = np.concatenate(self._frames)
        steps = self._windows.steps(self._engine, frames, self._done - self._begin, stop - self._begin)
        self._done, self.chunks = stop, self.chunks + 1
        drop = max(0, stop - self._windows.beside - self._begin)
        drop -= drop % self._windows.timing.stride
        self._frames, self._begin = [frames[drop:]], self._begin + drop
        return self._written(steps.argmax(axis=-1).tolist(), steps.shape[-1])

    def _written(self, path: Sequence[int], classes: int) -> list[str]:
        """Go on with the likeliest path; return the words that are whole."""
        alphabet = alphabet_of(self._model, self._options, classes)
        for one in path:
            if one != self._last and one != alphabet.blank:
                self._open += alphabet.of(one)
            self._last = one
        *whole, self._open = self._open.split(" ")
        return [word for word in whole if word]
