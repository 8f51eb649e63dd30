"""Export settings of a CTC recogniser: features, timing of steps, and tokens.

They are stored in the metadata ``features``, ``vocabulary`` and ``speech_recognition``, a JSON object with the keys of
:data:`USUAL`; flags override them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from engine import ConfigError
from utils.preprocess.audio.features import Settings, settings_of
from utils.tasks import ExportSetting, Flag, Model, Options
from utils.tasks.common.checks import setting_in_use
from utils.tasks.common.recognised_text import lines_of

NOTE = "speech_recognition"
"""Metadata key, optional: the values that differ from :data:`USUAL`."""

NORMS = ("none", "bands")
"""Normalisation of a recording's features: none, or each band to mean 0 and deviation 1 (NeMo's ``per_feature``)."""

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
"""Defaults.

``blank``: class of CTC's blank. ``stride``: frames per step; 0: by the output's length. ``reach``: frames on each side
of a step that it depends on; ``None``: the whole recording. ``margin``: frames on each side of the input without a
step. ``padding``: value of frames outside of the recording. ``normalize``: one of :data:`NORMS`. ``delimiter``: token
between words. ``silent``: tokens without text.
"""

PIECE = "▁"
"""SentencePiece's character for a space."""

_WHOLE = {"blank": -(1 << 20), "stride": 0, "margin": 0}


@dataclass(frozen=True)
class Timing:
    """Timing of steps."""

    stride: int  # this and the next three: see USUAL
    reach: int | None
    margin: int
    padding: float
    seconds: float  # of a frame


@dataclass(frozen=True)
class Alphabet:
    """Tokens of a model's classes."""

    tokens: tuple[str, ...]  # of all classes except the blank, in their order, with plain spaces
    blank: int  # class of CTC's blank, 0 or more

    def text(self, classes: Sequence[int]) -> str:
        """Return the text of classes, with single spaces between words."""
        return " ".join("".join(self.of(one) for one in classes).split())

    def of(self, number: int) -> str:
        """Return the token of a class; empty for the blank."""
        return "" if number == self.blank else self.tokens[number - (number > self.blank)]


def note(key: str, model: Model, options: Options | None = None) -> Any:
    """Return the value in use of a key of :data:`USUAL` (:func:`.setting_in_use`)."""
    return setting_in_use(key, model, options, NOTE, USUAL, _is_one, "a valid value (docs/reference/speech.md)")


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
    """Return the timing of a model's steps; ``seconds``: of a frame.
    Raises ModelError if the stored values contradict each other."""
    stride, reach, margin = (note(key, model) for key in ("stride", "reach", "margin"))
    if margin and (not stride or reach is None or reach < margin or (reach - margin) % stride):
        what = f"a margin of {margin} frames needs a stride, and a reach of the margin plus a multiple of the stride"
        raise model.unusable(NOTE, f"{what}; they are {stride} and {reach}")
    return Timing(stride, reach, margin, float(note("padding", model)), seconds)


def alphabet_of(model: Model, options: Options, classes: int) -> Alphabet:
    """Return the tokens of a model with ``classes`` classes.

    Tokens are those of ``--alphabet FILE``, else the stored ``vocabulary``; with or without one for the blank. The
    characters for a space of SentencePiece and wav2vec 2.0 become spaces.

    Raises:
        ConfigError: Tokens are missing, or their number is not that of classes. DataError: The file cannot be read.
    """
    if options.alphabet is not None:
        source, tokens = f"--alphabet {options.alphabet}", lines_of(Path(options.alphabet), "--alphabet")
    elif model.stored.vocabulary is not None:
        source, tokens = f"the vocabulary of {model.ckpt}", list(model.stored.vocabulary)
    else:
        raise ConfigError(
            f"{model.ckpt}: has no stored tokens (metadata 'vocabulary'); pass a file with one per line, in the order "
            "of the classes: --alphabet FILE"
        )
    blank = note("blank", model, options)
    if not -classes <= blank < classes:
        raise ConfigError(f"--blank {blank}: {model.ckpt} has {classes} classes; use one of them, such as 0 or -1")
    blank %= classes
    if len(tokens) == classes:
        del tokens[blank]
    if len(tokens) != classes - 1:
        raise ConfigError(
            f"{source} has {len(tokens)} tokens and {model.ckpt} {classes} classes, of which one is the blank; pass "
            "the model's tokens with --alphabet FILE"
        )
    delimiter, silent = note("delimiter", model), set(note("silent", model))
    written = ("" if one in silent else " " if one == delimiter else one.replace(PIECE, " ") for one in tokens)
    return Alphabet(tuple(written), blank)


def feature_settings(model: Model) -> tuple[Settings, str]:
    """Return the settings of a model's features, and their normalisation."""
    return settings_of(model.stored), note("normalize", model)


FLAGS = (
    Flag("--lengths", "frames of an input of open length, each with a plan", [400, 800, 1600], int, nargs="+"),
    Flag("--time_axis", "time dimension of the input", 1, int, choices=(1, 2)),
    Flag("--window", "maximum seconds of a window (default: the largest of --lengths)", None, float),
    Flag("--overlap", "seconds that windows overlap on each side, if the model stores no reach", 2.0, float),
    Flag("--blank", "class of CTC's blank; -1 is the last (default: as stored, or 0)", None, int),
    Flag("--alphabet", "file with a token per line, in the order of the classes (default: as stored)", None),
    Flag("--decoder", "most likely path (greedy), or beam search", "greedy", choices=("greedy", "beam")),
    Flag("--beam_width", "number of hypotheses of --decoder beam", 32, int),
    Flag("--lexicon", "file with a word per line; the only words of --decoder beam", None),
    Flag("--language_model", "n-gram model of words for --decoder beam, an ARPA file", None),
    Flag("--lm_weight", "weight of the language model", 0.5, float),
    Flag("--word_bonus", "added to a text's logarithm per word, with a language model", 0.5, float),
)  # fmt: skip
"""Flags of speech recognition."""

EXPORT_SETTINGS = (ExportSetting("--blank", (0, -1), "decode", partial(note, "blank")),)
"""Settings that are often wrong after an export."""
