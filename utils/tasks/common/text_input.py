"""Shared by text tasks: flags, texts on the command line, and tokens as a model's inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engine import Array, ConfigError, ModelError, TensorSpec
from tecoinfer_modelzoo.text import one_line, shortened
from utils.datasets.base import Dataset, ListDataset
from utils.datasets.text.texts import Columns
from utils.preprocess.text.lengths import MAX_LENGTH, USUAL_LENGTHS, shortest
from utils.preprocess.text.tokens import IDS, MASK, TYPES, Encoded, Tokens, input_kind
from utils.tasks import Flag, Model, OpenSizes, Options, Prepared, Task, at_least, str2bool

LENGTH_FLAGS = (
    Flag("--max_length", "maximum tokens of a text; left out: as model and plans allow; 0: no truncation", None, int),
    Flag("--tokenizer", "tokenizer.json, or its folder, where the model stores none", None, metavar="FILE"),
    Flag("--lengths", "lengths to pad to: the card has a plan for each", list(USUAL_LENGTHS), int, nargs="+"),
)
"""Flags of tokenization."""

TEXT_FLAGS = (
    Flag("--text", "texts to run instead of data", None, nargs="+", metavar="TEXT"),
    Flag("--pair", "second text of each --text, for models of pairs; one for all", None, nargs="+", metavar="TEXT"),
)
"""Samples on the command line. ``valid`` has the flags, to reject them: else argparse takes them as abbreviations."""


COLUMN_FLAGS = (
    Flag("--text_column", "column of the texts, if its name is not a usual one", None, metavar="NAME"),
    Flag("--pair_column", "column of the second texts", None, metavar="NAME"),
    Flag("--label_column", "column of the labels", None, metavar="NAME"),
    Flag("--columns", "names of all columns, if the file has no header line", [], nargs="+", metavar="NAME"),
    Flag("--encoding", "of the files, such as latin-1", "utf-8"),
    Flag("--quoted", "fields of a .tsv may be in double quotes", False, str2bool, nargs="?"),
)
"""Flags of tables of texts."""


def columns_of(options: Options) -> Columns:
    """Return the settings of tables by :data:`COLUMN_FLAGS`; a flag that the options lack has its default."""
    values = {flag.key: getattr(options, flag.key, flag.default) for flag in COLUMN_FLAGS}
    given = (values["text_column"], values["pair_column"], values["label_column"])
    return Columns(*given, tuple(values["columns"]), values["encoding"], values["quoted"])


class TextTask(Task):
    """Base class of tasks with :data:`LENGTH_FLAGS`."""

    domain = "nlp"

    def open_sizes(self) -> Mapping[str, OpenSizes]:
        """Return the planned lengths, for dimension 1 of all inputs; none is longer than ``--max_length``."""
        lengths, most = sorted(set(self.options.lengths or ())), self.options.max_length
        if lengths and most:
            most = min(most, lengths[-1])
            lengths = [*(length for length in lengths if length < most), most]
        return {"model": {(-1, 1): tuple(lengths)}} if lengths else {}

    def check(self) -> None:
        """Check ``--max_length`` and ``--lengths``."""
        at_least(self.options, max_length=0, lengths=1)


def longest(model: Model, options: Options, tokens: Tokens | None = None) -> int:
    """Return the maximum number of tokens of a text; 0: unlimited.

    ``--max_length 0`` means unlimited. Otherwise the minimum of ``--max_length`` (left out: the stored ``max_length``,
    else the tokenizer's), the fixed length of the model's input, and its longest plan.

    Raises:
        ModelError: The stored length is invalid.
        ConfigError: ``--lengths`` exceeds the stored length.
    """
    _refuse_beyond(stored_length(model), options)
    if options.max_length == 0:
        return 0
    own = stored_length(model) or (None if tokens is None else tokens.usual_length)
    own = None if options.max_length is not None else own
    return shortest([options.max_length, own, max(lengths_of(model), default=None)])


def lengths_of(model: Model) -> tuple[int, ...]:
    """Return the lengths that the input of token ids may have: the fixed one, or the planned ones; empty: any."""
    places = [place for place, one in enumerate(model.inputs) if input_kind(one.name) == IDS and len(one.shape) == 2]
    return model.sizes(places[0], 1) if places else ()


def _refuse_beyond(most: int | None, options: Options) -> None:
    """Raise ConfigError if ``--lengths`` exceeds the model's positions: the runtime's message would not name the
    flag."""
    given = options.lengths if "lengths" in getattr(options, "given", ()) else ()
    if most is not None and any(length > most for length in given or ()):
        shown = " ".join(map(str, given))
        raise ConfigError(f"--lengths {shown}: the model takes at most {most} tokens; leave out longer ones")


def stored_length(model: Model) -> int | None:
    """Return the stored maximum number of tokens; ``None`` if not stored."""
    found = model.stored.json(MAX_LENGTH)
    if found is not None and (not isinstance(found, int) or isinstance(found, bool) or found < 1):
        raise model.unusable(MAX_LENGTH, f"{found!r} is not a length")
    return found


def fed(encoded: Sequence[Encoded], model: Model) -> Prepared:
    """Return tokens as a model's inputs, one array per text, for ``collate`` to pad; contexts are the tokens.

    Inputs are matched by name (:func:`~utils.preprocess.text.tokens.input_kind`): ``mask`` is 1 for every token,
    ``type`` or ``segment`` is the number of the text in a pair, ``position`` counts from 0, and the other input takes
    the token ids. Ids are padded with the tokenizer's padding id, other inputs with 0.

    Raises:
        ModelError: Two inputs have the same kind, or the input of token ids is missing.
    """
    kinds = [input_kind(spec.name) for spec in model.inputs]
    if kinds.count(IDS) != 1 or len(set(kinds)) != len(kinds):
        raise ModelError(
            f"{model.ckpt}: its inputs are {', '.join(spec.name for spec in model.inputs)}; expected one of token ids, "
            "and optionally ...mask..., ...type... and ...position...; override prepare in the task"
        )
    columns = [[_filled(one, kind, spec) for one in encoded] for kind, spec in zip(kinds, model.inputs, strict=True)]
    pad = encoded[0].pad if encoded else 0
    return Prepared(columns, list(encoded), {model.inputs[kinds.index(IDS)].name: pad})


def _filled(one: Encoded, kind: str, spec: TensorSpec) -> Array:
    values = {IDS: one.ids, TYPES: one.types}.get(kind)
    if values is None:
        values = np.ones_like(one.ids) if kind == MASK else np.arange(len(one.ids), dtype=np.int64)
    return values if spec.dtype.kind in "iu" else values.astype(spec.dtype)


def inline_texts(options: Options) -> Dataset | None:
    """Return the texts of ``--text``; ``None`` if not given. Samples are strings, or with ``--pair`` tuples of two.

    Raises:
        ConfigError: A text is empty, the numbers of texts differ, or the script is ``valid``, which needs labels.
    """
    texts: list[str] | None = getattr(options, "text", None)
    seconds: list[str] | None = getattr(options, "pair", None)
    if options.script == "valid" and (texts is not None or seconds is not None):
        raise ConfigError("--text has no labels to evaluate; use example_single_batch.py, or give --data_path")
    if texts is None:
        if seconds is not None:
            raise ConfigError("--pair has the second texts; give the first ones with --text")
        return None
    for flag, values in (("--text", texts), ("--pair", seconds or ())):
        if not all(value.strip() for value in values):
            raise ConfigError(f"{flag}: a text is empty; write one, in quotes")
    if seconds is None:
        return ListDataset(list(texts), names=[short(text) for text in texts])
    if len(seconds) not in (1, len(texts)):
        raise ConfigError(f"--pair has {len(seconds)} texts and --text {len(texts)}; give as many, or one for all")
    seconds = seconds * len(texts) if len(seconds) == 1 else seconds
    samples: list[Any] = list(zip(texts, seconds, strict=True))
    return ListDataset(samples, names=[f"{short(one)} | {short(two)}" for one, two in samples])


def short(text: str) -> str:
    """Return a text as one line of at most 60 characters."""
    return shortened(one_line(text), 60, end=False)
