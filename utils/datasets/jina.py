"""The historical face of Jina's data: questions in words, and code that answers them (CodeSearchNet).

The data set is that of Husain et al. 2019, arXiv:1909.09436; scripts evaluate the part of Python's functions for tests.
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
"""Tokens per text where the script does not say."""


class CodeLoader:
    """Batches of questions and code, in order; the last one is short. It can be gone through any number of times.

    Args:
        pairs: a question and its code each. tokens: numbers them. batch_size: pairs per batch.

    Attributes:
        pairs: as they were read, in the order of the batches.
    """

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
    """Return the loader of an evaluation.

    Args:
        data_path: a file of JSON lines (also ``.gz``) with a question and its code per line; or a folder of such, or of
            CodeSearchNet's archives: of its files those of the split ``test`` and of Python, where names say so.
        config_path: the folder of the tokenizer.
        batch_size: pairs per batch.
        max_length: tokens per text; longer ones are cut, shorter ones filled up.

    Returns:
        Yields two dicts per batch, of questions and of code: ``input_ids`` and ``attention_mask``, in this order, each
        N x max_length int64 (:class:`~utils.torch_array.TorchArray`). It has a length.

    Raises:
        ConfigError: an impossible batch size or length. DataError: data or tokenizer cannot be read.
    """
    if type(batch_size) is not int or batch_size < 1:
        raise ConfigError(f"batch_size {batch_size!r} must be a whole number of at least 1")
    tokens, path = FolderTokens(config_path, max_length), expanded(data_path)
    rows = split_of(path) if path.is_dir() else read_rows(path, _kind(path))
    return CodeLoader(read_pairs(rows, CODE, path), tokens, batch_size)


def _kind(path: Path) -> str:
    """Return how a file is read, by its name."""
    kind = path.name.removesuffix(".gz").rpartition(".")[2].lower()
    return kind if kind in ("csv", "tsv", "txt") else "json"
