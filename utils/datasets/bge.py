"""Data loader of BGE embedders and rerankers for existing scripts: pairs of sentences.

The models are those of Xiao et al. 2023, arXiv:2309.07597. Scripts pass their parsed options, with ``file_type`` in an
evaluation and without it for a few sentences.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine import Array, ConfigError, DataError
from tecoinfer_modelzoo import expanded
from tecoinfer_modelzoo.files import not_a_file_reason, utf8_text
from utils.datasets.text.pair_rows import SENTENCES, Pair, Skipped, literal, read_pairs, read_rows, wrong_text
from utils.preprocess.pytorch.bge import is_reranker
from utils.preprocess.text.tokenizer_folder import FolderTokens
from utils.torch_array import like

__all__ = ["BATCH", "LENGTH", "PairLoader", "create_dataloader"]

BATCH, LENGTH = 1, 512
"""Default pairs per batch and tokens per sentence."""


class PairLoader:
    """The batches of an evaluation, in order, iterable any number of times; the last one may be shorter.

    With ``joined``, both texts of a pair form one row, as a reranker needs them.
    """

    def __init__(self, pairs: list[Pair], tokens: FolderTokens, batch_size: int, joined: bool) -> None:
        self.pairs, self._tokens, self.batch_size, self._joined = pairs, tokens, batch_size, joined

    def __len__(self) -> int:
        return -(-len(self.pairs) // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, len(self.pairs), self.batch_size):
            some = self.pairs[start : start + self.batch_size]
            if self._joined:
                yield _arrays(self._tokens(some), 2)
            else:
                yield [_arrays(self._tokens(texts), 3) for texts in zip(*some, strict=True)]


def create_dataloader(opt: Any) -> Any:
    """Return the data for a BGE script.

    The options ``opt`` have ``model_name`` (a reranker if it contains ``reranker``), ``config_path`` (folder of the
    tokenizer), ``data_path``, ``batch_size``, ``shape`` (tokens per row); in an evaluation also ``file_type``.

    In an evaluation, returns a loader with a length: a batch is a list of two dicts, of first and second sentences, for
    an embedder, or one dict for a reranker. Otherwise a dict from a line of ``data_path`` to its inputs: two rows for
    an embedder, one for a reranker. Inputs are dicts of ``input_ids``, ``attention_mask`` and, for an embedder,
    ``token_type_ids``, each N x shape int64 (:class:`~utils.torch_array.TorchArray`). Raises ConfigError if an option
    is missing or invalid, and DataError if the data or the tokenizer cannot be read.
    """
    tokens = FolderTokens(_option(opt, "config_path"), _number(opt, "shape", LENGTH))
    path, joined = expanded(_option(opt, "data_path")), is_reranker(_option(opt, "model_name"))
    kind = getattr(opt, "file_type", None)
    if kind is None:
        return _few(path, tokens, joined)
    pairs = read_pairs(read_rows(path, str(kind)), SENTENCES, path)
    return PairLoader(pairs, tokens, _number(opt, "batch_size", BATCH), joined)


def _option(opt: Any, name: str) -> str:
    value = getattr(opt, name, None)
    if not value:
        flag = name if name == "model_name" else name.replace("_", "-")
        raise ConfigError(f"option {name} is missing; pass --{flag}")
    return str(value)


def _number(opt: Any, name: str, usual: int) -> int:
    value = getattr(opt, name, usual)
    if type(value) is not int or value < 1:
        raise ConfigError(f"{name} {value!r} must be an integer of at least 1")
    return value


def _arrays(rows: dict[str, Array], count: int) -> dict[str, Any]:
    """Return the first ``count`` inputs, as arrays that torch's functions accept."""
    return {name: like(rows[name]) for name in list(rows)[:count]}


def _few(path: Path, tokens: FolderTokens, joined: bool) -> dict[str, dict[str, Any]]:
    """Return the inputs of each line; lines that cannot be used are skipped with a warning."""
    if not path.is_file():
        raise DataError(
            f"data path {path} {not_a_file_reason(path)}; pass a file with a list of two sentences per line"
        )
    skipped, found = Skipped(path, "lines are"), dict[str, dict[str, Any]]()
    for number, line in enumerate(utf8_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        where, pairs = f"{path}:{number}", _pairs(line)
        for pair in pairs:
            why = wrong_text(pair)
            if why:
                skipped.add(where, why)
                continue
            key = line.strip() if len(pairs) == 1 else str([list(pair)])
            found[key] = _arrays(tokens([pair]), 2) if joined else _arrays(tokens(list(pair)), 3)
        if not pairs:
            skipped.add(where, 'not a list of two sentences; write one as in ["A cat sits.", "A dog runs."]')
    if not found:
        raise DataError(f"{path}: no line can be used ({skipped.first or 'it is empty'}); correct the file")
    skipped.warn()
    return found


def _pairs(line: str) -> list[tuple[Any, Any]]:
    """Return the pairs of a line: one, or a list of them; empty if the line has another form."""
    value = literal(line)
    value = line.strip().split("\t") if value is None else value
    if not isinstance(value, (list, tuple)):
        return []
    several = value if value and all(isinstance(one, (list, tuple)) for one in value) else [value]
    return [(one[0], one[1]) for one in several] if all(len(one) == 2 for one in several) else []
