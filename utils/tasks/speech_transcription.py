"""Speech recognition by an encoder and a decoder: a recording in, its text out, written token by token (Whisper)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, Engine, ModelError, Timeline
from utils.datasets.base import Dataset
from utils.metrics.base import Metric
from utils.postprocess.text.sampling import Chooser, Sampling
from utils.preprocess.audio.features import Settings, features, settings_of
from utils.preprocess.audio.parts import quiet_parts
from utils.preprocess.audio.reading import Recording, read_sound
from utils.preprocess.text.tokens import Tokens
from utils.tasks.base import Artifact, Flag, Options, Task
from utils.tasks.fixed_rows import outputs_of
from utils.tasks.generation_steps import Continuation, Decoder, Limits, Plans, generate
from utils.tasks.model import Model
from utils.tasks.prepared import Prepared
from utils.tasks.sound_figures import sound_amounts, sound_figures
from utils.tasks.speech_recognition import (
    DATA_HELP,
    FORMS,
    METRICS,
    UNITS,
    Heard,
    agreement,
    answers,
    load,
    metric as transcripts,
    saver,
)

ENCODER, DECODER = "encoder", "decoder"
"""Names of the two models."""

NOTE = "transcription"
"""Key of what a decoder's export stores: an object with ``start``, ``end`` and ``no_timestamps`` (tokens' numbers),
``languages`` and ``tasks`` (by name), ``suppress`` and ``begin_suppress`` (tokens that are never written, or not as
the first), and ``positions`` (tokens of the longest text)."""

AUTO = "auto"
"""The language that the model hears."""

CROSS = ("cross_keys", "cross_values")
"""What the encoder gives and the decoder takes."""


class Spoken(NamedTuple):
    """A recording that was read: in how many windows, and its seconds."""

    windows: int
    seconds: float


class Notes(NamedTuple):
    """What a decoder stores; see :data:`NOTE`."""

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
        """Read them.

        Raises:
            ModelError: they are missing, or none.
        """
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


def prepare(samples: Sequence[Recording], model: Model, options: Options) -> Prepared:
    """Read recordings and compute the features of their windows, each as long as the encoder's input.

    Returns:
        The windows of all recordings, W x bands x frames, and a :class:`Spoken` per recording.

    Raises:
        DataError: a recording cannot be read.
    """
    encoder = model.named.get(ENCODER, model)
    settings = settings_of(encoder.stored)
    frames = _frames(encoder, settings)
    found, contexts = [], []
    for sample in samples:
        sound = read_sound(sample, settings.rate)
        size = frames * settings.hop
        filled = [
            np.pad(part, (0, size - len(part))) for part in quiet_parts(sound.samples, size)
        ]  # silence behind each
        found += [features(part, settings)[:frames].T for part in filled]
        contexts.append(Spoken(len(filled), sound.seconds))
    return Prepared([np.stack(found).astype(encoder.float_dtype)], contexts)


def _frames(encoder: Model, settings: Settings) -> int:
    shape = encoder.inputs[0].shape if len(encoder.inputs) == 1 else ()
    if len(shape) != 3 or shape[1] != settings.bands or shape[2] is None:
        told = ", ".join(str(list(one.shape)) for one in encoder.inputs)
        raise ConfigError(
            f"{encoder.ckpt}: takes {told}; an encoder takes N x {settings.bands} x frames, of a fixed length"
        )
    return shape[2]


def collate(parts: Sequence[Prepared], model: Model) -> list[Array]:
    """Put the windows of all parts one behind the other."""
    return [np.concatenate([np.asarray(part.arrays[0]) for part in parts])]


class Writer(NamedTuple):
    """What writes texts, set up once."""

    encoder: Model
    decoder: Model
    notes: Notes
    options: Options


def setup(engines: Mapping[str, Engine], dataset: Dataset, options: Options) -> Writer:
    """Return what is known of the models; what cannot go together is refused here.

    Raises:
        ModelError: the models are none of these. ConfigError: a language or a task that the model has not.
    """
    encoder, decoder = Model.of(engines[ENCODER]), Model.of(engines[DECODER])
    notes = Notes.of(decoder)
    names = [spec.name for spec in encoder.outputs]
    if names != list(CROSS) or not set(CROSS) <= {spec.name for spec in decoder.inputs}:
        raise ModelError(
            f"{encoder.ckpt}: gives {', '.join(names)}; an encoder gives {' and '.join(CROSS)}, as exported here"
        )
    if notes.languages and options.language not in (*notes.languages, AUTO):
        known = ", ".join(sorted(notes.languages))
        raise ConfigError(f"--language {options.language}: {decoder.ckpt} knows {known}; auto lets it choose")
    if options.do == "translate" and "translate" not in notes.tasks:
        raise ConfigError(f"--do translate: {decoder.ckpt} has one language and only transcribes; leave it out")
    return Writer(encoder, decoder, notes, options)


def infer(engines: Mapping[str, Engine], arrays: Any, contexts: Sequence[Spoken], state: Writer) -> list[Any]:
    """Write the text of each window; an entry per recording, its score first, which is NaN where the model's is.

    With ``--skip_postprocess`` the logits behind the prompt, of each recording's first window.
    """
    windows = arrays[0]
    rows = state.encoder.batch or state.options.batch_size
    raw = getattr(state.options, "skip_postprocess", False)
    made: list[Any] = []
    for start in range(0, len(windows), rows):
        part = windows[start : start + rows]
        cross = dict(zip(CROSS, outputs_of(engines[ENCODER], part, rows), strict=True))
        decoder = Decoder(engines[DECODER], state.decoder, plans(state.options), cross)
        prompts = _prompts(decoder, len(part), state)
        made += list(decoder(prompts, None)[0]) if raw else _written(engines[DECODER], decoder, prompts, state)
    ends = np.cumsum([one.windows for one in contexts]).tolist()
    if raw:
        return [np.stack([made[end - one.windows] for one, end in zip(contexts, ends, strict=True)])]
    own = [made[end - one.windows : end] for one, end in zip(contexts, ends, strict=True)]
    return [(_score(one), one) for one in own]


def _score(parts: Sequence[Continuation]) -> float:
    """Return the mean probability (geometric) of the tokens."""
    return math.exp(sum(one.score for one in parts) / max(1, sum(one.counted for one in parts)))


def _prompts(decoder: Decoder, count: int, state: Writer) -> list[Array]:
    languages = _languages(decoder, count, state.notes, state.options)
    return [prompt(state.notes, language, state.options) for language in languages]


def _written(engine: Engine, decoder: Decoder, prompts: Sequence[Array], state: Writer) -> list[Continuation]:
    notes, options = state.notes, state.options
    most = min(notes.positions, decoder.plans.slots[-1])
    limits = Limits([min(options.max_new_tokens, most - len(one)) for one in prompts], frozenset([notes.end]))
    choose = Forbidding(Chooser(Sampling()), notes, [len(one) for one in prompts])
    timeline: Timeline = engine.timeline
    return generate(decoder, prompts, limits, choose, timeline)


def _languages(decoder: Decoder, count: int, notes: Notes, options: Options) -> list[int | None]:
    """Return the language of each window: as said, or the likeliest behind the token that begins a text."""
    if not notes.languages:
        return [None] * count
    if options.language != AUTO:
        return [notes.languages[options.language]] * count
    logits, _ = decoder([np.array([notes.start], np.int64)] * count, None)
    known = np.array(sorted(notes.languages.values()))
    return [int(known[place]) for place in logits[:, known].argmax(axis=1).tolist()]


def prompt(notes: Notes, language: int | None, options: Options) -> Array:
    """Return what a text begins with, int64: start, language, task, and that there are no timestamps."""
    task = notes.tasks.get(options.do) if language is not None else None
    found = [notes.start, language, task, notes.no_timestamps]
    return np.array([one for one in found if one is not None], np.int64)


class Forbidding:
    """Chooses tokens of those that may be written.

    Never: ``suppress``, and all behind ``no_timestamps``, which are moments; as the first: ``begin_suppress``.

    Args:
        choose: of the others. notes: say which. lengths: of the prompts.
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


def decode(outputs: Sequence[Any], contexts: Sequence[Spoken], model: Model, options: Options) -> list[Heard]:
    """Return the text of every recording: those of its windows, one behind the other."""
    tokens = Tokens.of(model.named.get(DECODER, model), options)
    texts = [" ".join(tokens.decode(one.ids).strip() for one in parts).strip() for _, parts in outputs]
    return [
        Heard(text, score, (), context.seconds)
        for text, (score, _), context in zip(texts, outputs, contexts, strict=True)
    ]


def metric(options: Options, dataset: Dataset, model: Model) -> Metric:
    """Return word or character error rate."""
    return transcripts(options, dataset, model)


def show(sample: Recording, prediction: Heard, model: Model, options: Options) -> Artifact:
    """Return the text with its score; saving draws the recording's spectrogram above it."""
    from utils.text import clean_line

    shown = clean_line(prediction.text) or "(nothing recognised)"
    score = round(float(prediction.score), 4)
    answer = {"text": prediction.text, "score": score, "seconds": round(prediction.seconds, 3)}
    rate = settings_of(model.named.get(ENCODER, model).stored).rate
    return Artifact(f"{shown}  {score:.2f}", answer, partial(_save, sample, shown, rate))


def _save(sample: Recording, words: str, rate: int, folder: Path) -> Path:
    from utils.draw import save_drawn
    from utils.postprocess.audio.drawn_words import draw_words

    part = f"_{sample.start:g}s" if sample.start else ""
    own = sample.path.with_name(f"{sample.path.stem}{part}{sample.path.suffix}")
    return save_drawn(own, [words], folder, draw_words(read_sound(sample, rate).samples, rate, ()))


def plans(options: Options) -> Plans:
    """Return the planned sizes that the flags ask for; the prompt is fed at once, then one token at a time."""
    return Plans(tuple(sorted(set(options.lengths))), (1, 4))


def open_sizes(options: Options) -> dict[str, dict[tuple[int, int], tuple[int, ...]]]:
    """Return the sizes of what is open in the decoder: tokens of its first input, slots of the mask, its third."""
    asked = plans(options)
    return {DECODER: {(0, 1): asked.chunks, (2, 1): asked.slots}}


def check(options: Options) -> None:
    """Refuse settings that cannot be.

    Raises:
        ConfigError: names the flag.
    """
    if any(one < 5 for one in options.lengths):
        raise ConfigError(
            f"--lengths {' '.join(map(str, options.lengths))} must be at least 5 each: the prompt has 4 tokens"
        )
    if options.max_new_tokens < 1:
        raise ConfigError(f"--max_new_tokens {options.max_new_tokens} must be at least 1")


FLAGS = (
    Flag("--language", "what is spoken, such as en; auto: what the model hears", "en"),
    Flag("--do", "transcribe, or translate into English", "transcribe", choices=("transcribe", "translate")),
    Flag("--max_new_tokens", "most tokens of a window's text", 444, int),
    Flag("--lengths", "planned sizes of the key/value cache", [64, 224, 448], int, nargs="+"),
    Flag("--tokenizer", "tokenizer.json, or its folder, where the model stores none", None, metavar="FILE"),
    Flag(
        "--metric",
        "the metric of record; the other one is shown beside it",
        METRICS[0],
        choices=METRICS,
        scripts=("valid",),
    ),
    Flag(
        "--normalize",
        "what texts are compared in; plain: without case and punctuation",
        FORMS[0],
        choices=FORMS,
        scripts=("valid",),
    ),
    Flag("--units", "what belongs together", UNITS[0], choices=UNITS, scripts=("valid",)),
    Flag("--split", "part of an AISHELL folder, such as test", None, scripts=("valid",)),
)

SPEECH_TRANSCRIPTION = Task(
    name="speech_transcription",
    domain="speech",
    load=load,
    prepare=prepare,
    decode=decode,
    metric=metric,
    show=show,
    setup=setup,
    collate=collate,
    infer=infer,
    figures=sound_figures,
    amounts=sound_amounts,
    open_sizes=open_sizes,
    check=check,
    flags=FLAGS,
    models=(ENCODER, DECODER),
    watched=False,
    data_help=DATA_HELP,
    answers=answers,
    agreement=agreement,
    saver=saver,
    saves="what was recognised as JSON lines: audio_filepath, text, pred_text, score",
)
"""Recordings in windows of 30 s in, texts out, by an encoder and a decoder."""
