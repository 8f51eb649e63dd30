"""Speech recognition by an encoder and a decoder that outputs all tokens in one call (Paraformer).

Between the two models the host integrates and fires: the encoder outputs a weight per frame, and a token is complete
where the summed weights reach 1 (:func:`~utils.postprocess.audio.integrate.integrated`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, Engine, ModelError
from utils.datasets.base import Dataset
from utils.preprocess.audio.features import Settings, features, settings_of
from utils.preprocess.audio.frames import shifted, stacked
from utils.preprocess.audio.reading import Recording, quiet_parts, read_sound
from utils.tasks import Flag, Model, NoAnswer, Prepared, at_least
from utils.tasks.common.transcription import METRICS, Heard, text_flags
from utils.tasks.speech_transcription import DECODER, ENCODER, SpeechTranscription

NOTE = "parallel_transcription"
"""Metadata key of both exports. Encoder: ``together`` (frames per stack), ``step`` (frames between stacks), ``shift``
and ``scale`` (per number of a stack; lists, or missing), ``tail`` (weight after the last frame), ``positions`` (maximum
number of stacks). Decoder: ``silent`` (tokens without text); its tokens are in ``vocabulary``."""

LENGTHS, TOKENS = (32, 64, 128, 256, 512), (16, 32, 64, 128, 256, 512)


class Spoken(NamedTuple):
    """Context of a recording: the number of frames of each of its windows, and its length in seconds."""

    frames: tuple[int, ...]
    seconds: float


class Notes(NamedTuple):
    """Metadata of the encoder; see :data:`NOTE`."""

    settings: Settings
    together: int
    step: int
    shift: Array | None
    scale: Array | None
    tail: float
    positions: int

    @classmethod
    def of(cls, model: Model) -> Notes:
        """Read the metadata. Raises ModelError if they are missing or invalid."""
        model = model.named.get(ENCODER, model)
        stored = model.stored.json(NOTE)
        try:
            means = (stored.get("shift"), stored.get("scale"))
            shift, scale = (None if one is None else np.array(one, np.float32) for one in means)
            return cls(
                settings_of(model.stored),
                int(stored["together"]),
                int(stored["step"]),
                shift,
                scale,
                float(stored["tail"]),
                int(stored["positions"]),
            )
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise ModelError(
                f"{model.ckpt}: metadata {NOTE!r} cannot be used ({error}); export the model again"
            ) from error


class Sizes(NamedTuple):
    """Input sizes of both models: planned frames and tokens, rising; rows per call; weight after the last frame."""

    lengths: tuple[int, ...]
    tokens: tuple[int, ...]
    rows: int
    tail: float


class ParallelTranscription(SpeechTranscription):
    """Recognition by an encoder that weights its frames and a decoder that outputs all tokens in one call."""

    name = "parallel_transcription"
    flags = (
        Flag("--lengths", "planned sizes of a window, in frames of the encoder (60 ms)", list(LENGTHS), int, nargs="+"),
        Flag("--tokens", "planned sizes of a window's text, in tokens", list(TOKENS), int, nargs="+"),
        *text_flags(METRICS[1]),
    )
    state: Sizes  # input sizes of both models

    def check(self) -> None:
        """Check ``--lengths`` and ``--tokens``."""
        at_least(self.options, lengths=1, tokens=1)

    def open_sizes(self) -> dict[str, dict[tuple[int, int], tuple[int, ...]]]:
        """Return the sizes of open dimensions: frames of the encoder, tokens and frames of the decoder."""
        lengths, tokens = (tuple(sorted(set(one))) for one in (self.options.lengths, self.options.tokens))
        return {ENCODER: {(0, 1): lengths}, DECODER: {(0, 1): tokens, (2, 1): lengths}}

    def prepare(self, samples: Sequence[Recording]) -> Prepared:
        """Read recordings; return the concatenated frames of all windows of all recordings as the encoder's features,
        and a :class:`Spoken` per recording.

        Raises:
            DataError: A recording cannot be read. ModelError: The export stores no feature settings.
        """
        notes = Notes.of(self.acoustic_model)
        most = notes.step * notes.settings.hop * _sizes(self.acoustic_model, self.options.lengths)[-1]
        found, contexts = [], []
        for sample in samples:
            sound = read_sound(sample, notes.settings.rate)
            own = [_heard(part, notes) for part in quiet_parts(sound.samples, most)]
            found += own
            contexts.append(Spoken(tuple(map(len, own)), sound.seconds))
        return Prepared([np.concatenate(found).astype(self.acoustic_model.float_dtype)], contexts)

    def setup(self, engines: Mapping[str, Engine], dataset: Dataset) -> Sizes:
        """Return the input sizes of the models, and check that both fit. Raises ModelError if inputs or outputs are not
        those of such models. Raises ConfigError if ``--lengths`` exceeds the encoder."""
        encoder, decoder = self.acoustic_model, self.decoder
        frames, both = "frames and their mask", "tokens, frames and the mask of each"
        for model, takes, ranks, outputs in ((encoder, frames, (3, 2), 2), (decoder, both, (3, 2, 3, 2), 1)):
            if tuple(len(one.shape) for one in model.inputs) != ranks or len(model.outputs) != outputs:
                given = ", ".join(f"{one.name} {list(one.shape)}" for one in model.inputs)
                raise ModelError(f"{model.ckpt}: takes {given}, expected {takes}; export both models again")
        notes, lengths = Notes.of(encoder), _sizes(encoder, self.options.lengths)
        if lengths[-1] > notes.positions:
            raise ConfigError(
                f"--lengths {lengths[-1]}: {encoder.ckpt} has {notes.positions} positions; use at most this number"
            )
        rows = encoder.batch or decoder.batch or self.options.batch_size
        return Sizes(lengths, _sizes(decoder, self.options.tokens), rows, notes.tail)

    def infer(self, engines: Mapping[str, Engine], arrays: Any, contexts: Sequence[Spoken]) -> list[Any]:
        """Return an entry per recording: score (NaN if the model outputs NaN), tokens of each window, excess tokens.
        With ``--skip_postprocess`` return the logits of each recording, padded with zeros at the end."""
        counts = [count for context in contexts for count in context.frames]
        heard = np.split(arrays[0], np.cumsum(counts)[:-1])
        written: list[Array] = [np.zeros((0, 1))] * len(heard)
        rows = self.state.rows
        for room, places in grouped(counts, self.state.lengths):
            for start in range(0, len(places), rows):
                some = places[start : start + rows]
                for place, logits in zip(some, self._logits(engines, [heard[i] for i in some], room), strict=True):
                    written[place] = logits
        ends = np.cumsum([len(context.frames) for context in contexts]).tolist()
        own = [written[end - len(one.frames) : end] for one, end in zip(contexts, ends, strict=True)]
        if getattr(self.options, "skip_postprocess", False):
            return [_packed(own)]
        return [_said(logits, self.state.tokens[-1]) for logits in own]

    def _logits(self, engines: Mapping[str, Engine], parts: Sequence[Array], room: int) -> list[Array]:
        """Return the logits of each window's tokens, L x vocabulary; L x 0 for a window with too many tokens."""
        rows = self.state.rows
        frames, mask = _filled(parts, room, rows)
        states, weights = (np.asarray(one) for one in _called(engines[ENCODER], self.acoustic_model, [frames, mask]))
        tokens = [
            _tokens(row[: len(part)], weight[: len(part)], self.state.tail)
            for row, weight, part in zip(states, weights, parts, strict=False)
        ]
        found = [np.zeros((len(one), 0), np.float32) for one in tokens]
        for size, places in grouped([len(one) for one in tokens], self.state.tokens):
            if not any(len(tokens[place]) for place in places):
                continue
            embedded, held = _filled([tokens[place] for place in places], size, rows)
            heard = places + places[-1:] * (rows - len(places))
            (logits,) = _called(engines[DECODER], self.decoder, [embedded, held, states[heard], mask[heard]])
            for row, place in zip(np.asarray(logits), places, strict=False):
                found[place] = row[: len(tokens[place])].astype(np.float32)
        return found

    def decode(self, outputs: Sequence[Any], contexts: Sequence[Spoken]) -> list[Heard | NoAnswer]:
        """Return the text of every recording: the concatenated texts of its windows.
        Raises ModelError if the decoder stores no tokens, or fewer than it outputs."""
        vocabulary = self.decoder.stored.vocabulary
        if vocabulary is None:
            raise ModelError(f"{self.decoder.ckpt}: stores no vocabulary; export the model again")
        silent = _silent(self.decoder)
        return [
            self._text(found, vocabulary, silent, context.seconds)
            for found, context in zip(outputs, contexts, strict=True)
        ]

    def _text(
        self,
        found: tuple[float, list[list[int]], int],
        vocabulary: Sequence[str],
        silent: frozenset[str],
        seconds: float,
    ) -> Heard | NoAnswer:
        from utils.postprocess.text.pieces import joined

        score, windows, excess = found
        if excess:
            return NoAnswer(
                f"has {excess} tokens in a window, more than the largest planned size; use --tokens {excess}"
            )
        written = [number for numbers in windows for number in numbers]
        largest = max(written, default=0)
        if largest >= len(vocabulary):
            raise ModelError(
                f"{self.decoder.ckpt}: outputs token {largest}, and its vocabulary has {len(vocabulary)}; export the "
                "model again"
            )
        pieces = [vocabulary[number] for number in written]
        return Heard(joined([one for one in pieces if one not in silent]), score, (), seconds)


def _heard(samples: Array, notes: Notes) -> Array:
    filled = np.pad(samples, (0, max(0, notes.settings.window - len(samples))))  # a frame at least
    found = stacked(features(filled, notes.settings), notes.together, notes.step)
    return found if notes.shift is None or notes.scale is None else shifted(found, notes.shift, notes.scale)


def _sizes(model: Model, asked: Sequence[int]) -> tuple[int, ...]:
    """Return the sizes that dimension 1 of the first input may have: the fixed one, the planned ones, or ``asked``."""
    return model.sizes(0, 1) or tuple(sorted(set(asked)))


def grouped(counts: Sequence[int], sizes: Sequence[int]) -> list[tuple[int, list[int]]]:
    """Group counts by the smallest planned size that holds them; return ``(size, places)`` pairs by rising size.
    Counts above the largest size are left out."""
    groups: dict[int, list[int]] = {}
    for place, count in enumerate(counts):
        if count <= sizes[-1]:
            groups.setdefault(sizes[bisect_left(sizes, count)], []).append(place)
    return sorted(groups.items())


def _tokens(states: Array, weights: Array, tail: float) -> Array:
    """Return the tokens' embeddings; one NaN token if a weight is not finite, so that the NaN reaches the score."""
    from utils.postprocess.audio.integrate import integrated

    if not np.isfinite(weights).all():
        return np.full((1, states.shape[1]), np.nan)
    return integrated(states, weights, tail)


def _filled(parts: Sequence[Array], room: int, rows: int) -> tuple[Array, Array]:
    """Return parts of one width as an array, rows x room x D, and their mask; missing rows repeat the last part.
    Behind a part its last row is repeated (0 if it is empty): these values are masked, but must be finite."""
    batch = np.zeros((rows, room, parts[0].shape[1]), parts[0].dtype)
    mask = np.zeros((rows, room), np.float32)
    for place in range(rows):
        part = parts[min(place, len(parts) - 1)]
        batch[place, : len(part)] = part
        batch[place, len(part) :] = part[-1] if len(part) else 0
        mask[place, : len(part)] = 1
    return batch, mask


def _called(engine: Engine, model: Model, arrays: Sequence[Array]) -> list[Array]:
    outputs = engine([np.ascontiguousarray(a, spec.dtype) for a, spec in zip(arrays, model.inputs, strict=True)])
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]


def _packed(own: Sequence[Sequence[Array]]) -> Array:
    """Return the logits of recordings as one array, padded with zeros at the end."""
    whole = [[part for part in parts if part.shape[1]] for parts in own]
    longest = max(sum(map(len, parts)) for parts in whole)
    width = max((part.shape[1] for parts in whole for part in parts), default=1)
    found = np.zeros((len(own), longest, width), np.float32)
    for row, kept in zip(found, whole, strict=True):
        if kept:
            joined = np.concatenate(kept)
            row[: len(joined)] = joined
    return found


def _said(parts: Sequence[Array], most: int) -> tuple[float, list[list[int]], int]:
    """Return the geometric mean of the tokens' probabilities, the tokens per window, and the largest excess length."""
    excess = max((len(part) for part in parts if len(part) > most), default=0)
    total, count, numbers = 0.0, 0, list[list[int]]()
    for part in parts:
        if not part.size:
            numbers.append([])
            continue
        values = part.astype(np.float64)
        best = values.max(axis=1)
        total += float(-np.log(np.exp(values - best[:, None]).sum(axis=1)).sum())
        count += len(part)
        numbers.append(part.argmax(axis=1).tolist())
    return (float(np.exp(total / count)) if count else 0.0), numbers, excess


def _silent(decoder: Model) -> frozenset[str]:
    """Return the tokens without text."""
    stored = decoder.stored.json(NOTE, {})
    found = stored.get("silent", []) if isinstance(stored, dict) else None
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise decoder.unusable(NOTE, "silent must be a list of text")
    return frozenset(found)
