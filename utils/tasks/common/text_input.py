"""What all tasks on texts share: their flags, texts on the command line, and tokens as a model's inputs."""

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
from utils.tasks.base import Flag, OpenSizes, Options, Task, str2bool
from utils.tasks.model import Model
from utils.tasks.prepared import Prepared

LENGTH_FLAGS = (
    Flag(
        "--max_length",
        "tokens of a text at most; left out: what model and plans take; 0: cut nothing",
        None,
        int,
    ),
    Flag("--tokenizer", "tokenizer.json, or its folder, where the model stores none", None, metavar="FILE"),
    Flag("--lengths", "lengths to pad to: the card has a plan for each", list(USUAL_LENGTHS), int, nargs="+"),
)
"""How texts become tokens, for every task that reads them so."""

TEXT_FLAGS = (
    Flag("--text", "texts to run instead of data", None, nargs="+", metavar="TEXT"),
    Flag(
        "--pair",
        "the second text of each --text, where a model takes two; one goes with all",
        None,
        nargs="+",
        metavar="TEXT",
    ),
)
"""Samples that stand on the command line. ``valid`` has the flags to refuse them: else they would abbreviate others."""


COLUMN_FLAGS = (
    Flag("--text_column", "column of the texts, where its name is not a usual one", None, metavar="NAME"),
    Flag("--pair_column", "column of the second texts", None, metavar="NAME"),
    Flag("--label_column", "column of the labels", None, metavar="NAME"),
    Flag("--columns", "names of all columns, where the file's first line has none", [], nargs="+", metavar="NAME"),
    Flag("--encoding", "of the files, such as latin-1", "utf-8"),
    Flag("--quoted", "fields of a .tsv may stand in double quotes", False, str2bool, nargs="?"),
)
"""How tables of texts are read."""


def columns_of(options: Options) -> Columns:
    """Return how tables are read, from :data:`COLUMN_FLAGS`; a flag that the options lack has its default."""
    said = {flag.key: getattr(options, flag.key, flag.default) for flag in COLUMN_FLAGS}
    given = (said["text_column"], said["pair_column"], said["label_column"])
    return Columns(*given, tuple(said["columns"]), said["encoding"], said["quoted"])


class TextTask(Task):
    """What tasks share whose texts become tokens by :data:`LENGTH_FLAGS`."""

    domain = "nlp"

    def selected(self, found: Dataset) -> Dataset:
        """Return the samples that the script runs: the one for one sample takes the first ones, a batch."""
        if self.options.script != "single":
            return found
        return found.select(range(min(len(found), self.options.batch_size)))

    def open_sizes(self) -> Mapping[str, OpenSizes]:
        """Return the planned lengths, for the second dimension of all inputs.

        With ``--max_length`` the longest is that, and longer ones are left out.
        """
        lengths, most = sorted(set(self.options.lengths or ())), self.options.max_length
        if lengths and most:
            most = min(most, lengths[-1])
            lengths = [*(length for length in lengths if length < most), most]
        return {"model": {(-1, 1): tuple(lengths)}} if lengths else {}

    def check(self) -> None:
        """Check the lengths."""
        most, lengths = self.options.max_length, self.options.lengths or ()
        if most is not None and most < 0:
            raise ConfigError(f"--max_length {most} must be at least 0; 0 truncates nothing")
        if any(length < 1 for length in lengths):
            raise ConfigError(f"--lengths {' '.join(map(str, lengths))} must be at least 1 each")


def longest(model: Model, options: Options, tokens: Tokens | None = None) -> int:
    """Return how many tokens a text may have; 0: any number.

    ``--max_length 0`` says any number. Else it is the least of ``--max_length`` (left out: what the export stored under
    ``max_length``, else the tokenizer's own), the fixed length of the model's input, and its longest plan.

    Raises:
        ModelError: what is stored is no length.
        ConfigError: ``--lengths`` goes beyond what is stored.
    """
    _refuse_beyond(stored_length(model), options)
    if options.max_length == 0:
        return 0
    spec = next((one for one in model.inputs if input_kind(one.name) == IDS), None)
    own = stored_length(model) or (None if tokens is None else tokens.usual_length)
    own = None if options.max_length is not None else own
    fixed: int | None = None
    plans: tuple[int, ...] = ()
    if spec is not None and len(spec.shape) == 2:
        fixed = spec.shape[1]
        plans = model.dims.get((spec.symbols or ("", ""))[1] or "", ())
    return shortest([options.max_length, own, fixed, max(plans, default=None)])


def _refuse_beyond(most: int | None, options: Options) -> None:
    """Refuse lengths for which the model has no places: the runtime would say so in words about its nodes."""
    given = options.lengths if "lengths" in getattr(options, "given", ()) else ()
    if most is not None and any(length > most for length in given or ()):
        shown = " ".join(map(str, given))
        raise ConfigError(f"--lengths {shown}: the model takes at most {most} tokens; leave out what is longer")


def stored_length(model: Model) -> int | None:
    """Return the tokens that the export says a text has at most; ``None`` where it says nothing."""
    found = model.stored.json(MAX_LENGTH)
    if found is not None and (not isinstance(found, int) or isinstance(found, bool) or found < 1):
        raise ModelError(f"{model.ckpt}: metadata {MAX_LENGTH!r}: {found!r} is no length; export the model again")
    return found


def fed(encoded: Sequence[Encoded], model: Model) -> Prepared:
    """Return tokens as a model's inputs, one array per text, for ``collate`` to pad; contexts are the tokens.

    Inputs go by name (:func:`~utils.preprocess.text.tokens.input_kind`): one with ``mask`` in it is 1 for every token,
    one with ``type`` or ``segment`` tells two texts apart, one with ``position`` counts from 0, the other one takes the
    numbers. These are padded with the tokenizer's own number, all else with 0.

    Raises:
        ModelError: two inputs take the same, or none takes the numbers.
    """
    kinds = [input_kind(spec.name) for spec in model.inputs]
    if kinds.count(IDS) != 1 or len(set(kinds)) != len(kinds):
        raise ModelError(
            f"{model.ckpt}: its inputs are {', '.join(spec.name for spec in model.inputs)}; texts are one input of "
            "numbers, and maybe one named ...mask..., ...type... and ...position... each; override prepare in the task"
        )
    columns = [[_filled(one, kind, spec) for one in encoded] for kind, spec in zip(kinds, model.inputs, strict=True)]
    pad = encoded[0].pad if encoded else 0
    return Prepared(columns, list(encoded), {model.inputs[kinds.index(IDS)].name: pad})


def _filled(one: Encoded, kind: str, spec: TensorSpec) -> Array:
    values = {IDS: one.ids, TYPES: one.types}.get(kind)
    if values is None:
        values = np.ones_like(one.ids) if kind == MASK else np.arange(len(one.ids), dtype=np.int64)
    return values if spec.dtype.kind in "iu" else values.astype(spec.dtype)


def typed_texts(options: Options) -> Dataset | None:
    """Return the texts that stand on the command line; ``None`` where none do.

    Samples are strings, with ``--pair`` tuples of two.

    Raises:
        ConfigError: a text is empty, there are not as many second ones, or an evaluation would need their labels.
    """
    texts: list[str] | None = getattr(options, "text", None)
    seconds: list[str] | None = getattr(options, "pair", None)
    if options.script == "valid" and (texts is not None or seconds is not None):
        raise ConfigError("--text has no labels to evaluate; use example_single_batch.py, or give --data_path")
    if texts is None:
        if seconds is not None:
            raise ConfigError("--pair gives the second text of each; give the first ones with --text")
        return None
    for flag, values in (("--text", texts), ("--pair", seconds or ())):
        if not all(value.strip() for value in values):
            raise ConfigError(f"{flag}: an empty text says nothing; write one, in quotes")
    if seconds is None:
        return ListDataset(list(texts), names=[short(text) for text in texts])
    if len(seconds) not in (1, len(texts)):
        raise ConfigError(f"--pair has {len(seconds)} texts and --text {len(texts)}; give as many, or one for all")
    seconds = seconds * len(texts) if len(seconds) == 1 else seconds
    samples: list[Any] = list(zip(texts, seconds, strict=True))
    return ListDataset(samples, names=[f"{short(one)} | {short(two)}" for one, two in samples])


def short(text: str) -> str:
    """Return a text as its name is shown: a line of 60 characters at most."""
    return shortened(one_line(text), 60, end=False)
