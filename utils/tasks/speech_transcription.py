"""Speech recognition by an encoder and an autoregressive decoder (Whisper)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, Engine, ModelError
from utils.datasets.base import Dataset
from utils.postprocess.text.sampling import Chooser, Sampling
from utils.preprocess.audio.features import Settings, features, settings_of
from utils.preprocess.audio.reading import Recording, quiet_parts, read_sound
from utils.preprocess.text.tokens import Tokens
from utils.tasks import Flag, Model, Prepared, at_least
from utils.tasks.common.generation import Continuation, Decoder, Limits, Plans, generate
from utils.tasks.common.outputs import outputs_of
from utils.tasks.common.transcription import METRICS, Heard, Transcription, text_flags

ENCODER, DECODER = "encoder", "decoder"
"""Names of the two models."""

NOTE = "transcription"
"""Metadata key of the decoder: an object with ``start``, ``end`` and ``no_timestamps`` (token numbers), ``languages``
and ``tasks`` (token numbers by name), ``suppress`` and ``begin_suppress`` (tokens that are never output, or not first),
and ``positions`` (tokens of the longest text)."""

AUTO = "auto"
"""Value of ``--language``: the language is detected by the model."""

CROSS = ("cross_keys", "cross_values")
"""Outputs of the encoder that are inputs of the decoder."""


class Spoken(NamedTuple):
    """Context of a recording: its number of windows, and its length in seconds."""

    windows: int
    seconds: float


class Notes(NamedTuple):
    """Metadata of a decoder; see :data:`NOTE`."""

    start: int
    end: int
    languages: Mapping[str, int]
    tasks: Mapping[str, int]
    no_timestamps: int | None
    suppress: tuple[int, ...]
    begin_suppress: tuple[int, ...]
    positions: int

    @classmethod
    def of(cls, model: Model) -> Notes:
        """Read the metadata. Raises ModelError if they are missing or invalid."""
        model = model.named.get(DECODER, model)
        stored = model.stored.json(NOTE)
        try:
            plain = stored["no_timestamps"]
            return cls(
                int(stored["start"]),
                int(stored["end"]),
                {str(name): int(number) for name, number in stored["languages"].items()},
                {str(name): int(number) for name, number in stored["tasks"].items()},
                None if plain is None else int(plain),
                tuple(int(one) for one in stored["suppress"]),
                tuple(int(one) for one in stored["begin_suppress"]),
                int(stored["positions"]),
            )
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise ModelError(
                f"{model.ckpt}: metadata {NOTE!r} cannot be used ({error}); export the model again"
            ) from error


class SpeechTranscription(Transcription):
    """Recognition in windows of 30 s by an encoder and a decoder."""

    name = "speech_transcription"
    models, listener = (ENCODER, DECODER), ENCODER
    flags = (
        Flag("--language", "spoken language, such as en; auto: detected by the model", "en"),
        Flag("--do", "transcribe, or translate into English", "transcribe", choices=("transcribe", "translate")),
        Flag("--max_new_tokens", "most tokens of a window's text", 444, int),
        Flag("--lengths", "planned sizes of the key/value cache", [64, 224, 448], int, nargs="+"),
        Flag("--tokenizer", "tokenizer.json, or its folder, where the model stores none", None, metavar="FILE"),
        *text_flags(METRICS[0]),
    )
    state: Any  # metadata of the decoder

    def check(self) -> None:
        """Check ``--lengths`` (the prompt has 4 tokens) and ``--max_new_tokens``."""
        at_least(self.options, lengths=5, max_new_tokens=1)

    @property
    def decoder(self) -> Model:
        """The decoder, which stores its tokens."""
        return self.model.named.get(DECODER, self.model)

    @property
    def plans(self) -> Plans:
        """Planned sizes by the flags; the prompt is fed in one call, then one token per call."""
        return Plans(tuple(sorted(set(self.options.lengths))), (1, 4))

    def open_sizes(self) -> dict[str, dict[tuple[int, int], tuple[int, ...]]]:
        """Return the sizes of the decoder's open dimensions: tokens of input 0, slots of the mask, input 2."""
        return {DECODER: {(0, 1): self.plans.chunks, (2, 1): self.plans.slots}}

    def prepare(self, samples: Sequence[Recording]) -> Prepared:
        """Read recordings; return the features of their windows, each as long as the encoder's input, W x bands x
        frames, and a :class:`Spoken` per recording. Raises DataError if a recording cannot be read."""
        settings = settings_of(self.acoustic_model.stored)
        frames = _frames(self.acoustic_model, settings)
        size = frames * settings.hop
        found, contexts = [], []
        for sample in samples:
            sound = read_sound(sample, settings.rate)
            filled = [np.pad(part, (0, size - len(part))) for part in quiet_parts(sound.samples, size)]
            found += [features(part, settings)[:frames].T for part in filled]
            contexts.append(Spoken(len(filled), sound.seconds))
        return Prepared([np.stack(found).astype(self.acoustic_model.float_dtype)], contexts)

    def setup(self, engines: Mapping[str, Engine], dataset: Dataset) -> Any:
        """Return the decoder's metadata, and check that both models and the flags fit. Raises ModelError if the models
        have other outputs or inputs. Raises ConfigError if the model lacks the language or the task."""
        encoder, decoder, options = self.acoustic_model, self.decoder, self.options
        notes = Notes.of(decoder)
        names = [spec.name for spec in encoder.outputs]
        if names != list(CROSS) or not set(CROSS) <= {spec.name for spec in decoder.inputs}:
            raise ModelError(
                f"{encoder.ckpt}: its outputs are {', '.join(names)}; expected {' and '.join(CROSS)}; export both again"
            )
        if notes.languages and options.language not in (*notes.languages, AUTO):
            known = ", ".join(sorted(notes.languages))
            raise ConfigError(f"--language {options.language}: {decoder.ckpt} has {known}; use one of them, or auto")
        if options.do == "translate" and "translate" not in notes.tasks:
            raise ConfigError(f"--do translate: {decoder.ckpt} has one language and only transcribes; leave it out")
        return notes

    def infer(self, engines: Mapping[str, Engine], arrays: Any, contexts: Sequence[Any]) -> list[Any]:
        """Generate the text of each window; return ``(score, windows)`` per recording, NaN if the model outputs NaN.
        With ``--skip_postprocess`` return the logits after the prompt, of each recording's first window."""
        windows = arrays[0]
        rows = self.acoustic_model.batch or self.options.batch_size
        raw = getattr(self.options, "skip_postprocess", False)
        made: list[Any] = []
        for start in range(0, len(windows), rows):
            part = windows[start : start + rows]
            cross = dict(zip(CROSS, outputs_of(engines[ENCODER], part, rows), strict=True))
            decoder = Decoder(engines[DECODER], self.decoder, self.plans, cross)
            prompts = [prompt(self.state, one, self.options.do) for one in self._languages(decoder, len(part))]
            made += list(decoder(prompts, None)[0]) if raw else self._written(engines[DECODER], decoder, prompts)
        ends = np.cumsum([one.windows for one in contexts]).tolist()
        if raw:
            return [np.stack([made[end - one.windows] for one, end in zip(contexts, ends, strict=True)])]
        own = [made[end - one.windows : end] for one, end in zip(contexts, ends, strict=True)]
        return [(_score(one), one) for one in own]

    def _languages(self, decoder: Decoder, count: int) -> list[int | None]:
        """Return the language token of each window: ``--language``, or the most likely one after the start token."""
        notes: Notes = self.state
        if not notes.languages:
            return [None] * count
        if self.options.language != AUTO:
            return [notes.languages[self.options.language]] * count
        logits, _ = decoder([np.array([notes.start], np.int64)] * count, None)
        known = np.array(sorted(notes.languages.values()))
        return [int(known[place]) for place in logits[:, known].argmax(axis=1).tolist()]

    def _written(self, engine: Engine, decoder: Decoder, prompts: Sequence[Array]) -> list[Continuation]:
        notes: Notes = self.state
        most = min(notes.positions, decoder.plans.slots[-1])
        new = [min(self.options.max_new_tokens, most - len(one)) for one in prompts]
        choose = SuppressedChooser(Chooser(Sampling()), notes, [len(one) for one in prompts])
        return generate(decoder, prompts, Limits(new, frozenset([notes.end])), choose, engine.timeline)

    def decode(self, outputs: Sequence[Any], contexts: Sequence[Any]) -> Sequence[Any]:
        """Return the text of every recording: the joined texts of its windows."""
        tokens = Tokens.of(self.decoder, self.options)
        texts = [" ".join(tokens.decode(one.ids).strip() for one in parts).strip() for _, parts in outputs]
        return [
            Heard(text, score, (), context.seconds)
            for text, (score, _), context in zip(texts, outputs, contexts, strict=True)
        ]


def _frames(encoder: Model, settings: Settings) -> int:
    shape = encoder.inputs[0].shape if len(encoder.inputs) == 1 else ()
    if len(shape) != 3 or shape[1] != settings.bands or shape[2] is None:
        shapes = ", ".join(str(list(one.shape)) for one in encoder.inputs)
        raise ConfigError(f"{encoder.ckpt}: takes {shapes}; expected N x {settings.bands} x frames, of a fixed length")
    return shape[2]


def _score(parts: Sequence[Continuation]) -> float:
    """Return the geometric mean of the tokens' probabilities."""
    return math.exp(sum(one.score for one in parts) / max(1, sum(one.counted for one in parts)))


def prompt(notes: Notes, language: int | None, do: str) -> Array:
    """Return the prompt tokens, int64: start, language, task and ``no_timestamps``, as far as the model has them."""
    task = notes.tasks.get(do) if language is not None else None
    found = [notes.start, language, task, notes.no_timestamps]
    return np.array([one for one in found if one is not None], np.int64)


class SuppressedChooser:
    """Choice of tokens without suppressed ones: ``suppress``, timestamps (all after ``no_timestamps``), and for the
    first token ``begin_suppress``.

    Args:
        choose: chooses among the allowed tokens. notes: metadata of the decoder. lengths: lengths of the prompts.
    """

    def __init__(self, choose: Chooser, notes: Notes, lengths: Sequence[int]) -> None:
        self._choose, self._notes, self._lengths = choose, notes, lengths

    def __call__(self, logits: Array, places: Sequence[int], texts: Sequence[Sequence[int]]) -> Array:
        """Return a token for each row."""
        allowed, notes = logits.copy(), self._notes
        size = logits.shape[1]
        allowed[:, [one for one in notes.suppress if 0 <= one < size]] = -np.inf
        if notes.no_timestamps is not None:
            allowed[:, notes.no_timestamps + 1 :] = -np.inf
        first = [row for row, place in enumerate(places) if len(texts[row]) == self._lengths[place]]
        allowed[np.ix_(first, [one for one in notes.begin_suppress if 0 <= one < size])] = -np.inf
        return self._choose(allowed, places, texts)
