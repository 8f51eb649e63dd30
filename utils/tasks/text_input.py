"""What all tasks on texts share: their flags, texts on the command line, and tokens as a model's inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engine import Array, ConfigError, Engine, ModelError, TensorSpec
from utils.datasets.base import Dataset, ListDataset
from utils.datasets.text import Columns
from utils.preprocess.text.lengths import MAX_LENGTH, USUAL_LENGTHS, count_cut, say_cut, shortest
from utils.preprocess.text.tokens import IDS, MASK, TYPES, Encoded, Given, Tokens, input_kind
from utils.tasks.base import Flag, Options, str2bool
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


def check_lengths(options: Options) -> None:
    """Refuse lengths that cannot be.

    Raises:
        ConfigError: names the flag.
    """
    if options.max_length is not None and options.max_length < 0:
        raise ConfigError(f"--max_length {options.max_length} must be at least 0; 0 truncates nothing")
    if any(length < 1 for length in options.lengths or ()):
        raise ConfigError(f"--lengths {' '.join(map(str, options.lengths))} must be at least 1 each")


def open_lengths(options: Options) -> dict[str, dict[tuple[int, int], tuple[int, ...]]]:
    """Return the planned lengths, as :attr:`Task.open_sizes` takes them: those of the second dimension of all inputs.

    With ``--max_length`` the longest is that, and longer ones are left out.
    """
    lengths = sorted(set(options.lengths or ()))
    if lengths and options.max_length:
        most = min(options.max_length, lengths[-1])
        lengths = [*(length for length in lengths if length < most), most]
    return {"model": {(-1, 1): tuple(lengths)}} if lengths else {}


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
    kinds = input_kinds(model)
    columns = [[_filled(one, kind, spec) for one in encoded] for kind, spec in zip(kinds, model.inputs, strict=True)]
    pad = encoded[0].pad if encoded else 0
    return Prepared(columns, list(encoded), {model.inputs[kinds.index(IDS)].name: pad})


def input_kinds(model: Model) -> list[str]:
    """Return what each input takes; ModelError where two take the same, or none takes the numbers."""
    kinds = [input_kind(spec.name) for spec in model.inputs]
    if kinds.count(IDS) != 1 or len(set(kinds)) != len(kinds):
        raise ModelError(
            f"{model.ckpt}: its inputs are {', '.join(spec.name for spec in model.inputs)}; texts are one input of "
            "numbers, and maybe one named ...mask..., ...type... and ...position... each; replace prepare in the task"
        )
    return kinds


def _filled(one: Encoded, kind: str, spec: TensorSpec) -> Array:
    values = {IDS: one.ids, TYPES: one.types}.get(kind)
    if values is None:
        values = np.ones_like(one.ids) if kind == MASK else np.arange(len(one.ids), dtype=np.int64)
    return values if spec.dtype.kind in "iu" else values.astype(spec.dtype)


def check_tokens(engines: Mapping[str, Engine], dataset: Dataset, options: Options) -> None:
    """Refuse a tokenizer that is no model's once, before any text: as :attr:`Task.setup` of a task without a state.

    Raises:
        ModelError, ConfigError: as :meth:`Tokens.of`, but where there is none.
    """
    for engine in engines.values():
        Tokens.find(Model.of(engine), options)


def remark_cut(counts: Mapping[str, int], samples: int) -> list[str]:
    """Say once what was cut, as :attr:`Task.remarks` does; with :func:`~utils.preprocess.text.lengths.count_cut`."""
    said = say_cut(counts, samples)
    return [said] if said else []


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
        return ListDataset(list(texts), names=[_short(text) for text in texts])
    if len(seconds) not in (1, len(texts)):
        raise ConfigError(f"--pair has {len(seconds)} texts and --text {len(texts)}; give as many, or one for all")
    seconds = seconds * len(texts) if len(seconds) == 1 else seconds
    samples: list[Any] = list(zip(texts, seconds, strict=True))
    return ListDataset(samples, names=[f"{_short(one)} | {_short(two)}" for one, two in samples])


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else line[: _SHOWN - 3] + "..."


_SHOWN = 60

__all__ = [
    "COLUMN_FLAGS",
    "LENGTH_FLAGS",
    "TEXT_FLAGS",
    "Encoded",
    "Given",
    "Tokens",
    "check_lengths",
    "check_tokens",
    "columns_of",
    "count_cut",
    "fed",
    "input_kinds",
    "longest",
    "open_lengths",
    "remark_cut",
    "typed_texts",
]
