"""Flags of token classification, and settings that depend on the model's training."""

from __future__ import annotations

from functools import partial
from typing import Any

from utils.metrics.text.entities import METRICS, MODES, SCHEMES
from utils.preprocess.text.tokens import Tokens
from utils.tasks import ExportSetting, Flag, Model, Options
from utils.tasks.common.checks import setting_in_use
from utils.tasks.common.outputs import KIND_FLAG, LAYOUT_FLAG
from utils.tasks.common.text_input import LENGTH_FLAGS, TEXT_FLAGS, longest
from utils.tasks.token_classification.words import SUBWORDS

NOTE = "token_classification"
"""Metadata key, optional: the values that differ from :data:`USUAL`."""

KEPT, LOWER = CASES = ("kept", "lower")
USUAL = {"case": KEPT, "subword": SUBWORDS[0]}

FLAGS = (
    TEXT_FLAGS[0],
    *LENGTH_FLAGS,
    KIND_FLAG,
    LAYOUT_FLAG,
    Flag("--tag_column", "column of the tags in a CoNLL file, from 1; -1 is the last one", -1, int),
    Flag("--encoding", "of the files, such as latin-1", "utf-8"),
    Flag("--metric", "the metric of record; the other one is reported too", "f1", choices=tuple(METRICS),
         scripts=("valid",)),
    Flag("--mode", "reading of tags: default, as conlleval.pl, or strict, as the scheme allows", MODES[0],
         choices=MODES),
    Flag("--scheme", "scheme of the model's tags for --mode strict; auto: by its labels", "auto",
         choices=("auto", *SCHEMES)),
    Flag("--case", "case of letters: kept, or lower", None, choices=CASES),
    Flag("--subword", "token of a word that has its tag", None, choices=SUBWORDS),
)  # fmt: skip


def now(key: str, model: Model, options: Options) -> Any:
    """Return the value in use of a key of :data:`USUAL` (:func:`.setting_in_use`)."""
    known = {"case": CASES, "subword": SUBWORDS}[key]
    return setting_in_use(
        key, model, options, NOTE, USUAL, lambda _, value: value in known, f"one of {', '.join(known)}"
    )


def _max_length(model: Model, options: Options) -> Any:
    return longest(model, options, Tokens.find(model, options))


EXPORT_SETTINGS = (
    ExportSetting("--case", CASES[::-1], "prepare", partial(now, "case")),
    ExportSetting("--subword", SUBWORDS[::-1], "prepare", partial(now, "subword")),
    ExportSetting("--max_length", (128, 256, 512, 64), "prepare", _max_length, fine=True),
)
