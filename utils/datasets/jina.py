"""Data loader of Jina embedders for existing scripts: questions in words, and code that answers them (CodeSearchNet).

The data set is that of Husain et al. 2019, arXiv:1909.09436; scripts evaluate the test split of Python functions.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine import ConfigError
from tecoinfer_modelzoo import expanded
from utils.datasets.text.pair_rows import CODE, Pair, read_pairs, read_rows, split_of
from utils.preprocess.text.tokenizer_folder import FolderTokens
from utils.torch_array import like

__all__ = ["LENGTH", "CodeLoader", "create_dataloader"]

LENGTH = 1024
"""Default tokens per text."""


class CodeLoader:
    """Batches of questions and code, in order, iterable any number of times; the last one may be shorter."""

    def __init__(self, pairs: list[Pair], tokens: FolderTokens, batch_size: int) -> None:
        self.pairs, self._tokens, self.batch_size = pairs, tokens, batch_size

    def __len__(self) -> int:
        return -(-len(self.pairs) // self.batch_size)

    def __iter__(self) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        for start in range(0, len(self.pairs), self.batch_size):
            questions, codes = zip(*self.pairs[start : start + self.batch_size], strict=True)
            yield self._inputs(questions), self._inputs(codes)

    def _inputs(self, texts: tuple[str, ...]) -> dict[str, Any]:
        found = self._tokens(texts)
        return {name: like(found[name]) for name in ("input_ids", "attention_mask")}


def create_dataloader(
    data_path: str | os.PathLike[str],
    config_path: str | os.PathLike[str],
    batch_size: int,
    max_length: int = LENGTH,
    **_: object,
) -> CodeLoader:
    """Return the loader of an evaluation, which has a length.

    It yields two dicts per batch, of questions and of code: ``input_ids`` and ``attention_mask``, in this order, each N
    x max_length int64 (:class:`~utils.torch_array.TorchArray`). Longer texts are cut, shorter ones padded.

    ``data_path`` is a file of JSON lines (also ``.gz``) with a question and its code per line; or a folder of such
    files or of CodeSearchNet's archives, read for the split ``test`` and Python where the names state these.
    ``config_path`` is the folder of the tokenizer. Raises ConfigError if the batch size or length is invalid, and
    DataError if the data or the tokenizer cannot be read.
    """
    if type(batch_size) is not int or batch_size < 1:
        raise ConfigError(f"batch_size {batch_size!r} must be an integer of at least 1")
    tokens, path = FolderTokens(config_path, max_length), expanded(data_path)
    rows = split_of(path) if path.is_dir() else read_rows(path, _kind(path))
    return CodeLoader(read_pairs(rows, CODE, path), tokens, batch_size)


def _kind(path: Path) -> str:
    """Return the format of a file by its name."""
    kind = path.name.removesuffix(".gz").rpartition(".")[2].lower()
    return kind if kind in ("csv", "tsv", "txt") else "json"
