"""Captions of grounding detectors: class names joined to one text, and the tokens of each name."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from engine import Array, DataError, InputError
from tecoinfer_modelzoo import expanded
from tecoinfer_modelzoo.extra import extra
from tecoinfer_modelzoo.text import reason_of
from utils.preprocess.text.tokenizer_folder import FILES, of_library, read_tokenizer
from utils.torch_array import of_the_script

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SEPARATOR, END = " . ", " ."
"""Text between two names of a caption, and after the last one (Liu et al. 2023, arXiv:2303.05499)."""


class CaptionTokenizer:
    """A tokenizer with the call of transformers' tokenizers; other attributes are those of ``tokenizers``."""

    def __init__(self, tokenizer: Tokenizer, source: object) -> None:
        self.tokenizer, self.source = tokenizer, source
        tokenizer.no_padding()
        tokenizer.no_truncation()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "tokenizer":  # during a copy it does not exist yet
            raise AttributeError(name)
        return getattr(self.tokenizer, name)

    def __call__(
        self,
        text: str | Sequence[str],
        *,
        padding: bool | str = False,
        return_tensors: str | None = None,
        return_offsets_mapping: bool = False,
        add_special_tokens: bool = True,
    ) -> dict[str, Any]:
        """Return ``input_ids``, ``token_type_ids`` and ``attention_mask``.

        Args:
            text: one text, for which each value is a list of integers, or several, for lists of such lists.
            padding: whether shorter texts are padded with zeros to the longest (``True`` or ``"longest"``).
            return_tensors: ``"np"`` or ``"pt"``: T x L int64 instead of lists.
            return_offsets_mapping: also return ``offset_mapping``: per token its start and end in its text.
            add_special_tokens: whether the tokens that begin and end a text are added.

        Raises InputError if the padding or kind of tensors is unknown, or texts of several lengths are to be one
        tensor.
        """
        if padding not in (False, True, "longest") or return_tensors not in (None, "np", "pt"):
            raise InputError(
                f"padding {padding!r} with return_tensors {return_tensors!r} is not supported; "
                "use padding='longest' and return_tensors None, 'np' or 'pt'"
            )
        texts = [text] if isinstance(text, str) else list(text)
        found = self.tokenizer.encode_batch(texts, add_special_tokens=add_special_tokens)
        columns: dict[str, list[Any]] = {
            "input_ids": [list(one.ids) for one in found],
            "token_type_ids": [list(one.type_ids) for one in found],
            "attention_mask": [list(one.attention_mask) for one in found],
        }
        longest = max((len(one.ids) for one in found), default=0)
        if padding:
            columns = {name: [row + [0] * (longest - len(row)) for row in rows] for name, rows in columns.items()}
        if return_offsets_mapping:
            columns["offset_mapping"] = [list(one.offsets) for one in found]
        if return_tensors is not None:
            if len({len(row) for row in columns["input_ids"]}) > 1:
                raise InputError("texts of several lengths cannot be one tensor; pass padding='longest'")
            arrays = {name: np.array(rows, np.int64) for name, rows in columns.items()}
            return arrays if return_tensors == "np" else {name: of_the_script(array) for name, array in arrays.items()}
        return {name: rows[0] for name, rows in columns.items()} if isinstance(text, str) else dict(columns)


def get_tokenlizer(source: str | os.PathLike[str]) -> CaptionTokenizer:
    """Return the tokenizer of a text encoder. (The name's spelling is that of existing scripts.)

    The source is a folder with ``tokenizer.json`` or with a WordPiece ``vocab.txt`` (lower-cased unless its
    ``tokenizer_config.json`` says otherwise), such a file itself, or a name on the Hugging Face Hub such as
    ``bert-base-uncased``, which is downloaded to its cache. Raises DataError if the tokenizer is missing or cannot be
    read, and ConfigError if the package ``tokenizers`` is not installed.
    """
    with extra("a tokenizer", "text"):
        import tokenizers
    path = expanded(source)
    file = next((path / name for name in FILES if os.path.isfile(path / name)), path)
    kind = "cannot be read" if os.path.isfile(file) else "is not a folder here, and cannot be fetched from the hub"
    fix = f"give a folder with {' or '.join(FILES)}"

    def refusal(reason: str) -> DataError:
        return DataError(f"tokenizer {source} {kind} ({reason}); {fix}")

    try:
        with of_library(refusal):
            if os.path.isfile(file):  # Path.is_file raises for a name that is too long
                return CaptionTokenizer(read_tokenizer(file), source)
            is_path = path.is_absolute() or str(source).startswith((".", "~")) or str(source).count("/") > 1
            if is_path or os.path.exists(path):
                problem = "is a folder without" if os.path.isdir(path) else "does not exist; it would have"
                raise DataError(f"{source} {problem} {' or '.join(FILES)}; give a tokenizer's folder")
            return CaptionTokenizer(tokenizers.Tokenizer.from_pretrained(str(source)), source)
    except OSError as error:
        raise refusal(reason_of(error)) from error


def caption_of(names: Sequence[str]) -> str:
    """Return the caption for class names: ``"cat . dog ."``."""
    return SEPARATOR.join(names) + END


def encoded(tokenizer: Any, caption: str) -> tuple[Array, Array, Array]:
    """Return a grounding detector's inputs for a caption of L tokens: token numbers, types and mask, int64 [L] each.

    The tokenizer is the result of :func:`get_tokenlizer`, or one of transformers. Raises InputError if the caption is
    empty, or ``tokenizer`` is not a tokenizer.
    """
    if not isinstance(caption, str) or not caption.strip():
        raise InputError(f"caption {caption!r} is empty; write class names as in {caption_of(('cat', 'dog'))!r}")
    if not callable(tokenizer):
        raise InputError(f"tokenizer is a {type(tokenizer).__name__}; pass the result of get_tokenlizer")
    found = tokenizer(caption)
    numbers = np.array(found["input_ids"], np.int64)
    kinds = np.array(found["token_type_ids"], np.int64) if "token_type_ids" in found else np.zeros_like(numbers)
    return numbers, kinds, np.array(found["attention_mask"], np.int64)


def tokens_of(tokenizer: Any, names: Sequence[str]) -> list[Array]:
    """Return the indices of each class's tokens in the caption of all classes.

    A tokenizer of transformers must be a fast one, which returns offsets. Raises DataError if a name has no token, and
    InputError if the tokenizer does not return offsets.
    """
    try:
        spans = np.array(tokenizer(caption_of(names), return_offsets_mapping=True)["offset_mapping"]).reshape(-1, 2)
    except (NotImplementedError, KeyError) as error:
        raise InputError("the tokenizer does not return token offsets; pass a fast one") from error
    real, found, begin = spans[:, 1] > spans[:, 0], [], 0
    for name in names:
        end = begin + len(name)
        places = np.flatnonzero(real & (spans[:, 0] >= begin) & (spans[:, 1] <= end))
        if not len(places):
            raise DataError(f"class {name!r} has no token in the caption; give it a name of letters")
        found.append(places)
        begin = end + len(SEPARATOR)
    return found
