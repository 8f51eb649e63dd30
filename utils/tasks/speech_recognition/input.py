"""What a recogniser's training and export decided: how sound goes in, how steps lie in time, what a class writes.

The export stores it (metadata ``features``, ``vocabulary`` and ``speech_recognition``, a JSON object with the keys of
:data:`USUAL`); a flag says otherwise where there is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from engine import ConfigError, ModelError
from utils.preprocess.audio.features import Settings, settings_of
from utils.tasks.base import ExportSetting, Flag, Options
from utils.tasks.common.recognised_text import lines_of
from utils.tasks.model import Model

NOTE = "speech_recognition"
"""Key of what an export may store: the values of :data:`USUAL` that differ."""

NORMS = ("none", "bands")
"""What is done to a recording's features as a whole: nothing, or each band to mean 0 and deviation 1 (NeMo's
``per_feature``)."""

USUAL: dict[str, Any] = {
    "blank": 0,
    "stride": 0,
    "reach": None,
    "margin": 0,
    "padding": 0.0,
    "normalize": NORMS[0],
    "delimiter": " ",
    "silent": [],
}
"""What holds where an export says nothing.

``blank``: class of CTC's blank. ``stride``: frames of a step; 0: as the output's length says. ``reach``: frames on each
side of a step that its answer hangs on; ``None``: all of the recording. ``margin``: frames on each side of the input
that have no step of their own. ``padding``: value of a frame outside of the recording. ``normalize``: one of
:data:`NORMS`. ``delimiter``: token that parts words. ``silent``: tokens that write nothing.
"""

PIECE = "▁"
"""What SentencePiece has for a blank."""

_WHOLE = {"blank": -(1 << 20), "stride": 0, "margin": 0}


@dataclass(frozen=True)
class Timing:
    """How steps lie in time; see :data:`USUAL`.

    Attributes:
        stride, reach, margin, padding: as there. seconds: of a frame.
    """

    stride: int
    reach: int | None
    margin: int
    padding: float
    seconds: float


@dataclass(frozen=True)
class Alphabet:
    """What a model's classes write.

    Attributes:
        tokens: of all classes but the blank, in their order, blanks in them as blanks.
        blank: class of CTC's blank, 0 or more.
    """

    tokens: tuple[str, ...]
    blank: int

    def text(self, classes: Sequence[int]) -> str:
        """Return what classes write, with single blanks between words."""
        return " ".join("".join(self.of(one) for one in classes).split())

    def of(self, number: int) -> str:
        """Return what a class writes; nothing for the blank."""
        return "" if number == self.blank else self.tokens[number - (number > self.blank)]


def note(key: str, model: Model, options: Options | None = None) -> Any:
    """Return the value in use of a key of :data:`USUAL`.

    Raises:
        ModelError: the export stored something else.
    """
    given = getattr(options, key, None)
    if given is not None:
        return given
    notes = model.stored.json(NOTE, {})
    if not isinstance(notes, dict):
        raise ModelError(f"{model.ckpt}: metadata {NOTE!r}: {notes!r} is no JSON object; export the model again")
    value = notes.get(key, USUAL[key])
    if not _is_one(key, value):
        raise ModelError(f"{model.ckpt}: metadata {NOTE!r}: {key} {value!r} cannot be; export the model again")
    return value


def _is_one(key: str, value: Any) -> bool:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if key in _WHOLE:
        return whole and _WHOLE[key] <= value < 1 << 20
    if key == "reach":
        return value is None or (whole and 0 <= value < 1 << 20)
    if key == "padding":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if key == "silent":
        return isinstance(value, list) and all(isinstance(one, str) for one in value)
    return value in NORMS if key == "normalize" else isinstance(value, str)


def timing_of(model: Model, seconds: float) -> Timing:
    """Return how a model's steps lie in time, given a frame's seconds.

    Raises:
        ModelError: what is stored does not go together.
    """
    stride, reach, margin = (note(key, model) for key in ("stride", "reach", "margin"))
    if margin and (not stride or reach is None or reach < margin or (reach - margin) % stride):
        raise ModelError(
            f"{model.ckpt}: metadata {NOTE!r}: with a margin of {margin} frames there must be a stride, and a reach "
            f"that is the margin and a multiple of it; they are {stride} and {reach}; export the model again"
        )
    return Timing(stride, reach, margin, float(note("padding", model)), seconds)


def alphabet_of(model: Model, options: Options, classes: int) -> Alphabet:
    """Return what a model of so many classes writes.

    Tokens are those of ``--alphabet FILE``, or those the export stored (``vocabulary``); either with or without one for
    the blank. SentencePiece's and wav2vec 2.0's signs for a blank become blanks.

    Raises:
        ConfigError: there are none, or not as many as the model has classes. DataError: the file cannot be read.
    """
    if options.alphabet is not None:
        source, tokens = f"--alphabet {options.alphabet}", lines_of(Path(options.alphabet), "--alphabet")
    elif model.stored.vocabulary is not None:
        source, tokens = f"the vocabulary of {model.ckpt}", list(model.stored.vocabulary)
    else:
        raise ConfigError(
            f"{model.ckpt}: no tokens are stored in it (metadata 'vocabulary'); give a file with one per line, in the "
            "order of the classes: --alphabet FILE"
        )
    blank = note("blank", model, options)
    if not -classes <= blank < classes:
        raise ConfigError(f"--blank {blank}: {model.ckpt} has {classes} classes; use one of them, such as 0 or -1")
    blank %= classes
    if len(tokens) == classes:
        del tokens[blank]
    if len(tokens) != classes - 1:
        raise ConfigError(
            f"{source} has {len(tokens)} tokens and {model.ckpt} {classes} classes, of which one is the blank; give "
            "the model's own tokens with --alphabet FILE"
        )
    delimiter, silent = note("delimiter", model), set(note("silent", model))
    written = ("" if one in silent else " " if one == delimiter else one.replace(PIECE, " ") for one in tokens)
    return Alphabet(tuple(written), blank)


def heard_by(model: Model) -> tuple[Settings, str]:
    """Return how a model's features are made, and what is done to them of a recording as a whole."""
    return settings_of(model.stored), note("normalize", model)


FLAGS = (
    Flag(
        "--lengths",
        "frames that the input may have, where it is open; each has a plan on the card",
        [400, 800, 1600],
        int,
        nargs="+",
    ),
    Flag("--time_axis", "which dimension of the input is time", 1, int, choices=(1, 2)),
    Flag(
        "--window",
        "seconds beyond which a recording is read in windows (default: what the largest of --lengths holds)",
        None,
        float,
    ),
    Flag(
        "--overlap",
        "seconds that windows share on each side, where the model does not say what its answers hang on",
        2.0,
        float,
    ),
    Flag("--blank", "class of CTC's blank; -1 is the last (default: what is stored, or 0)", None, int),
    Flag("--alphabet", "file with a token per line, in the order of the classes (default: those stored)", None),
    Flag("--decoder", "the likeliest path, or the likeliest text of a search", "greedy", choices=("greedy", "beam")),
    Flag("--beam_width", "beginnings that --decoder beam keeps", 32, int),
    Flag("--lexicon", "file with a word per line; --decoder beam recognises nothing else", None),
    Flag("--language_model", "n-gram model of words, an ARPA file; --decoder beam goes by it too", None),
    Flag("--lm_weight", "how much the language model counts beside the recogniser", 0.5, float),
    Flag("--word_bonus", "what every word adds to a text's logarithm, with a language model", 0.5, float),
)
"""The flags on the way from a recording to a text."""

EXPORT_SETTINGS = (ExportSetting("--blank", (0, -1), "decode", partial(note, "blank")),)
"""What people get wrong after an export."""
