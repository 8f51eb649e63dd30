"""Flags of translation, settings that depend on the model's training, and the decoder's metadata."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

from engine import ModelError
from utils.metrics.text.translation import METRICS, TOKENIZERS
from utils.preprocess.text.tokens import Tokens
from utils.tasks import ExportSetting, Flag, Model, Options, str2bool
from utils.tasks.common.checks import setting_in_use
from utils.tasks.common.generation import Plans
from utils.tasks.common.text_input import LENGTH_FLAGS, TEXT_FLAGS, longest

ENCODER, DECODER = "encoder", "decoder"
"""Names of the two models."""

NOTE = "translation"
"""Metadata key. Of the encoder, optional: the values that differ from :data:`USUAL`. Of the decoder: :class:`Notes`."""

KEPT, LOWER = CASES = ("kept", "lower")
USUAL = {"case": KEPT, "prefix": ""}

PREFIXES = (
    "",
    "translate English to German: ",
    "translate English to French: ",
    "translate German to English: ",
    ">>fra<< ",
    ">>deu<< ",
)
"""Prefixes that ``teco fix`` tries: T5's, and those of OPUS-MT's models of several languages."""

_VALID = ("valid",)

FLAGS = (
    TEXT_FLAGS[0],
    *LENGTH_FLAGS,
    Flag("--target_tokenizer", "tokenizer.json of the translations, where the decoder stores none", None,
         metavar="FILE"),
    Flag("--max_new_tokens", "most tokens of a translation", 128, int),
    Flag("--beam_width", "translations that a beam search keeps for each text; 1: greedy", 1, int),
    Flag("--length_penalty", "of a beam search: scores are divided by the number of tokens to this power (default: 1)",
         None, float),
    Flag("--prefix", "text before each source, such as 'translate English to French: '", None),
    Flag("--case", "case of the source's letters: kept, or lower", None, choices=CASES),
    Flag("--source_column", "column of the sources, or language within 'translation'", None, metavar="NAME"),
    Flag("--target_column", "column of the translations, or language within 'translation'", None, metavar="NAME"),
    Flag("--encoding", "of the files, such as latin-1", "utf-8"),
    Flag("--metric", "the metric of record; the other one is reported too", "bleu", choices=tuple(METRICS),
         scripts=_VALID),
    Flag("--tokenize", "sacrebleu's tokenizer for BLEU; zh for Chinese", TOKENIZERS[0], choices=TOKENIZERS,
         scripts=_VALID),
    Flag("--lowercase", "compare in lower case", False, str2bool, nargs="?", scripts=_VALID),
)  # fmt: skip


def encoder_of(model: Model) -> Model:
    """Return the encoder of a run's models."""
    return model.named.get(ENCODER, model)


def now(key: str, model: Model, options: Options) -> Any:
    """Return the value in use of a key of :data:`USUAL` (:func:`.setting_in_use`)."""
    what = f"one of {', '.join(CASES)}" if key == "case" else "a text"
    return setting_in_use(
        key,
        encoder_of(model),
        options,
        NOTE,
        USUAL,
        lambda _, value: value in CASES if key == "case" else isinstance(value, str),
        what,
    )


def _max_length(model: Model, options: Options) -> Any:
    encoder = encoder_of(model)
    return longest(encoder, options, Tokens.find(encoder, options))


EXPORT_SETTINGS = (
    ExportSetting("--case", CASES[::-1], "prepare", partial(now, "case")),
    ExportSetting("--prefix", PREFIXES, "prepare", partial(now, "prefix")),
    ExportSetting("--max_length", (128, 256, 512, 64), "prepare", _max_length, fine=True),
)


class Notes(NamedTuple):
    """Metadata of a decoder.

    Attributes:
        start: tokens that begin each translation: the start token, and that of a language, if any.
        end: token that ends it. suppress: tokens that are never output. positions: maximum tokens.
    """

    start: tuple[int, ...]
    end: int
    suppress: tuple[int, ...]
    positions: int

    @classmethod
    def of(cls, model: Model) -> Notes:
        """Read the metadata. Raises ModelError if they are missing or invalid."""
        stored = model.stored.json(NOTE)
        try:
            start = tuple(int(one) for one in stored["start"])
            suppress = tuple(int(one) for one in stored.get("suppress", ()))
            found = cls(start, int(stored["end"]), suppress, int(stored["positions"]))
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise ModelError(
                f"{model.ckpt}: metadata {NOTE!r} cannot be used ({error!r}); export it with start, end and positions"
            ) from error
        if not start or min(*start, found.end, *suppress) < 0 or found.positions <= len(start):
            raise model.unusable(NOTE, f"{stored!r} has no start token, a negative one, or too few positions")
        return found


def target_tokens(decoder: Model, options: Options) -> Tokens:
    """Return the tokenizer of translations: ``--target_tokenizer``, else the decoder's own."""
    return Tokens.of(decoder, SimpleNamespace(tokenizer=options.target_tokenizer))


def plans_of(options: Options) -> Plans:
    """Return the planned sizes of the decoder's cache; tokens are fed one at a time."""
    return Plans(tuple(sorted(set(options.lengths))), (1,))


def sizes_of(options: Options, source: Mapping[Any, tuple[int, ...]]) -> dict[str, dict[Any, tuple[int, ...]]]:
    """Return the planned sizes of both models; ``source``: the encoder's."""
    lengths = next(iter(source.values()), ())
    slots = plans_of(options).slots
    return {ENCODER: dict(source), DECODER: {"tokens": (1,), "slots": slots, "source": lengths}}
