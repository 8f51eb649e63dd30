"""From texts to what a language model continues or scores: prompts, their tokens, and how much of them fits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, DataError, ModelError
from utils.datasets.base import Dataset, ListDataset
from utils.preprocess.text.tokens import Tokens
from utils.tasks.base import Options
from utils.tasks.generation_steps import CHUNKS, SLOTS, Plans
from utils.tasks.model import Model
from utils.tasks.prepared import Prepared

STORED = "generation"
"""Key of what an export stores as JSON: ``positions`` (tokens of a text at most), ``begin`` and ``end`` (tokens that a
text begins and ends with, or null), ``begins`` (whether the model was trained on texts with ``begin`` before them)."""


class Prompt(NamedTuple):
    """A text, and how many equal ones stand before it in the data, so that each goes on its own way."""

    text: str
    again: int = 0


class Text(NamedTuple):
    """What is known of a text while it is computed.

    Attributes:
        prompt: the text. ids: its tokens, int64, with the one that begins a text where that is wanted.
        size: bytes of UTF-8 of what is predicted: of all characters but those of the first token.
    """

    prompt: Prompt
    ids: Array
    size: int


class Notes(NamedTuple):
    """What an export stored of its texts (:data:`STORED`); ``None``: nothing."""

    positions: int | None = None
    begin: int | None = None
    end: int | None = None
    begins: bool = False


def notes(model: Model) -> Notes:
    """Read what the export stored.

    Raises:
        ModelError: it is not what an export writes.
    """
    found = model.stored.json(STORED)
    if found is None:
        return Notes()
    fields = {key: found.get(key) for key in ("positions", "begin", "end")} if isinstance(found, dict) else {}
    good = all(one is None or (isinstance(one, int) and not isinstance(one, bool)) for one in fields.values())
    if not fields or not good:
        raise ModelError(f"{model.ckpt}: metadata {STORED!r}: {found!r} cannot be read; export the model again")
    return Notes(**fields, begins=bool(found.get("begins", False)))


def load(paths: Mapping[str, Path], options: Options) -> Dataset:
    """Return the texts of a file or folder (:func:`~utils.datasets.text.load_texts`), as prompts.

    The script for one sample takes the first of them, a batch. What is right about a text is the text itself.
    """
    from utils.datasets.text import Columns, load_texts

    found = load_texts(paths["data"], Columns(text=options.text_column))
    made = _prompts(found)
    return made if options.script != "single" else made.select(range(min(len(made), options.batch_size)))


def typed(options: Options) -> Dataset | None:
    """Return the prompts of ``--text``; ``None`` where there is none."""
    from utils.tasks.text_input import typed_texts

    found = typed_texts(options)
    return None if found is None else _prompts(found)


def _prompts(found: Any) -> ListDataset:
    """Return texts as prompts; of pairs, which a table may have, the first text."""
    seen: Counter[str] = Counter()
    prompts = []
    for one in found.samples:
        text = one if isinstance(one, str) else one[0]
        prompts.append(Prompt(text, seen[text]))
        seen[text] += 1
    texts = [one.text for one in prompts]
    return ListDataset(prompts, texts, names=found.names, files=found.files, rejected=found.rejected)


def prepare(samples: Sequence[Prompt], model: Model, options: Options) -> Prepared:
    """Return how many tokens each text has, N int64; the tokens themselves are in the contexts.

    Raises:
        DataError: a text has no token, or a prompt and what is to follow it do not fit into the model.
        ConfigError: a text is to begin with a token that the model does not name.
    """
    tokens, stored = Tokens.of(model, options), notes(model)
    begins = stored.begins if options.begin is None else options.begin
    if begins and stored.begin is None:
        raise ConfigError(f"{model.ckpt}: it names no token that begins a text; leave --begin out")
    before = np.array([stored.begin] if begins else [], np.int64)
    made = []
    for sample in samples:
        encoded = tokens.encode([sample.text], special=False)[0]
        after = 0 if begins else int(encoded.spans[0, 1])
        ids = np.concatenate([before, encoded.ids])
        made.append(Text(sample, ids, len(sample.text[after:].encode("utf-8", "surrogatepass"))))
    refuse = _refuse_unscored if options.script == "valid" else _refuse_long
    for one in made:
        refuse(one, stored, model, options)
    return Prepared([np.array([len(one.ids) for one in made], np.int64)], made)


def collate(parts: Sequence[Prepared], model: Model) -> list[Array]:
    """Return the lengths of a batch's texts."""
    return [np.concatenate([np.asarray(part.arrays[0]) for part in parts])]


def _refuse_unscored(one: Text, stored: Notes, model: Model, options: Options) -> None:
    if len(one.ids) < 2:
        raise DataError("the text is a single token, so there is none to predict; write more")


def _refuse_long(one: Text, stored: Notes, model: Model, options: Options) -> None:
    """Refuse what would not fit: the last new token is never fed."""
    most, what = room(model, options)
    count, new = len(one.ids), options.max_new_tokens
    if count > most:
        raise DataError(f"the prompt has {count} tokens, {what} {most}; shorten it")
    if count + new - 1 > most:
        raise DataError(
            f"the prompt has {count} tokens, {what} {most}, so {most + 1 - count} more are possible and "
            f"--max_new_tokens asks for {new}; ask for fewer, or shorten the prompt"
        )


def room(model: Model, options: Options) -> tuple[int, str]:
    """Return how many tokens can be fed in all, and what says so."""
    cache = max(_planned(model, options), default=0)
    positions = notes(model).positions
    if positions is not None and positions <= cache:
        return positions, "the model takes"
    return cache, "the largest planned cache (--lengths) holds"


def _planned(model: Model, options: Options) -> tuple[int, ...]:
    """Return the sizes of a cache: the model's own, those of ``--dim``, or ``--lengths``."""
    past = next((one for one in model.inputs if "past" in one.name.lower() and len(one.shape) > 2), None)
    if past is None:
        return plans(options).slots
    free = [axis for axis, size in enumerate(past.shape) if size is None and axis != past.batch_axis]
    axis = free[0] if len(free) == 1 else len(past.shape) - 2
    fixed, symbol = past.shape[axis], past.symbols[axis] if past.symbols else None
    return (fixed,) if fixed else model.dims.get(symbol or "") or plans(options).slots


def plans(options: Options) -> Plans:
    """Return the planned sizes that the flags ask for; a chunk of one token is always among them."""
    return Plans(tuple(sorted(set(options.lengths or SLOTS))), tuple(sorted({1, *(options.chunks or CHUNKS)})))


def open_sizes(options: Options) -> dict[str, dict[tuple[int, int], tuple[int, ...]]]:
    """Return the sizes of what is open: tokens are the second dimension of the first input, slots that of the mask."""
    asked = plans(options)
    return {"model": {(0, 1): asked.chunks, (2, 1): asked.slots}}
