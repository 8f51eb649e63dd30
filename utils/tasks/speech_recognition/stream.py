"""Streaming speech recognition: words are output as soon as they are final."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine import Array, ConfigError, Engine, ModelError
from utils.preprocess.audio.features import FeatureStream
from utils.preprocess.audio.resampling import Resampler
from utils.tasks import Model, Options
from utils.tasks.speech_recognition.input import alphabet_of, feature_settings
from utils.tasks.speech_recognition.windows import Windows

CHUNK = 0.48
"""Default seconds per call."""


class WordStream:
    """Greedy recognition of a stream; the result equals that of the whole recording.

    A step is final once the frames that it depends on (``reach``) have arrived.

    Args:
        engine: the opened model, used for one recording at a time.
        options: the flags of the task; ``--decoder`` must be greedy.
        rate: of the samples in Hz; ``None``: the model's. Other rates are resampled.
        chunk: seconds per call; longer chunks need fewer calls and increase the delay.

    Raises:
        ModelError: The model depends on the whole recording, such as by attention.
        ConfigError: Another decoder, or an invalid chunk length.

    Attributes:
        chunks: number of recognised chunks.
    """

    def __init__(self, engine: Engine, options: Options, rate: int | None = None, chunk: float = CHUNK) -> None:
        model = Model.of(engine)
        settings, way = feature_settings(model)
        seconds = settings.hop / settings.rate
        self._windows = Windows(model, options, seconds)
        stride = self._windows.timing.stride
        if self._windows.timing.reach is None or not stride or way != "none":
            raise ModelError(
                f"{model.ckpt}: depends on the whole recording (its metadata has no reach, no stride, or a "
                "normalisation of the whole recording), so streaming is not supported; pass whole recordings"
            )
        if options.decoder != "greedy":
            raise ConfigError(f"--decoder {options.decoder} needs the whole text; use --decoder greedy for a stream")
        if not seconds * stride <= chunk < float("inf"):
            raise ConfigError(f"a chunk of {chunk:g} s must be at least a step of the model, {seconds * stride:g} s")
        self._engine, self._model, self._options = engine, model, options
        self._chunk = round(chunk / (seconds * stride)) * stride
        room = None if self._windows.most is None else self._windows.most - 2 * self._windows.beside
        if room is not None and self._chunk > room:
            raise ConfigError(
                f"a chunk of {chunk:g} s has {self._chunk} frames; the longest input of {model.ckpt} holds "
                f"{max(0, room)}, plus {self._windows.beside} on each side; use {max(0, room) * seconds:g} s"
            )
        self._rate, self._resampler = settings.rate, Resampler(rate or settings.rate, settings.rate)
        self._features = FeatureStream(settings)
        self._frames: list[Array] = []
        self._begin = self._known = self._done = self._samples = 0
        self._last, self._open = -1, ""
        self.chunks = 0

    @property
    def seconds(self) -> float:
        """Seconds of received audio."""
        return self._samples / self._rate

    @property
    def delay(self) -> float:
        """Maximum delay of recognition in seconds, without computing time."""
        return (self._chunk + self._windows.beside) * self._windows.timing.seconds

    def feed(self, samples: Array) -> list[str]:
        """Add samples (float32 [S], mono, any number), and return the words that are final now."""
        return self._take(self._resampler.feed(np.asarray(samples, np.float32)), last=False)

    def finish(self) -> list[str]:
        """End the stream, and return the remaining words."""
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
        """Run the model on the frames up to ``stop``, and drop those not needed for later steps."""
        frames = np.concatenate(self._frames)
        steps = self._windows.steps(self._engine, frames, self._done - self._begin, stop - self._begin)
        self._done, self.chunks = stop, self.chunks + 1
        drop = max(0, stop - self._windows.beside - self._begin)
        drop -= drop % self._windows.timing.stride
        self._frames, self._begin = [frames[drop:]], self._begin + drop
        return self._written(steps.argmax(axis=-1).tolist(), steps.shape[-1])

    def _written(self, path: Sequence[int], classes: int) -> list[str]:
        """Extend the path by steps; return the completed words."""
        alphabet = alphabet_of(self._model, self._options, classes)
        for one in path:
            if one != self._last and one != alphabet.blank:
                self._open += alphabet.of(one)
            self._last = one
        *whole, self._open = self._open.split(" ")
        return [word for word in whole if word]
