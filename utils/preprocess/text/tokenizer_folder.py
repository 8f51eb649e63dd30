"""A tokenizer out of a model's folder, for scripts that name the folder, and rows of numbers by it.

Needs the package ``tokenizers`` and not transformers; the numbers are those that transformers' fast tokenizers give.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine import Array, ConfigError, DataError, TecoInferError
from tecoinfer_modelzoo import expanded
from tecoinfer_modelzoo.extra import extra
from tecoinfer_modelzoo.files import read_regular
from tecoinfer_modelzoo.text import reason_of

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FILES = ("tokenizer.json", "vocab.txt")
"""What a tokenizer is read from, the first one that is there."""

MOST_BYTES = 256 << 20
"""Bytes of a tokenizer at most; the largest known ones have some 30 MB."""

OTHERS = ("sentencepiece.bpe.model", "spiece.model", "tokenizer.model", "vocab.json")
"""What a folder may hold in their place; transformers makes a ``tokenizer.json`` of these."""

PADS = ("[PAD]", "<pad>")
"""The token that fills up, where the folder does not say."""


@contextmanager
def of_library(refusal: Callable[[str], Exception]) -> Iterator[None]:
    """Raise what a reason makes in place of whatever the library ``tokenizers`` raises.

    That is the bare class, and where its Rust code gives up, such as on a regular expression that goes back over a text
    for ever, a PanicException, which is no Exception and has no name to import.
    """
    try:
        yield
    except (TecoInferError, OSError):
        raise
    except Exception as error:
        raise refusal(reason_of(error)) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise refusal(reason_of(error)) from error


def read_tokenizer(file: Path) -> Tokenizer:
    """Return the tokenizer of a ``tokenizer.json``, or of a WordPiece ``vocab.txt`` with what lies beside it.

    ``tokenizer_config.json`` beside ``vocab.txt`` may say ``do_lower_case`` (true), ``strip_accents`` and
    ``tokenize_chinese_chars`` (true), as BERT's has them.

    Raises:
        Exception: whatever the library raises; DataError: ``tokenizer_config.json`` is no JSON object.
    """
    content = read_regular(file, MOST_BYTES)  # the library would wait for a pipe
    if file.name != "vocab.txt":
        from tokenizers import Tokenizer

        return Tokenizer.from_str(content.decode("utf-8-sig"))
    from tokenizers import BertWordPieceTokenizer

    told = _config(file.parent)
    made: Tokenizer = BertWordPieceTokenizer(
        str(file),
        lowercase=bool(told.get("do_lower_case", True)),
        strip_accents=told.get("strip_accents"),
        handle_chinese_chars=bool(told.get("tokenize_chinese_chars", True)),
    )
    return made


def _config(folder: Path) -> Mapping[str, Any]:
    file = folder / "tokenizer_config.json"
    if not file.is_file():
        return {}
    try:
        found = json.loads(read_regular(file, MOST_BYTES).decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{file}: cannot be read as JSON ({reason_of(error)}); get the file again") from error
    if not isinstance(found, dict):
        raise DataError(f"{file}: holds no JSON object; get the file again")
    return found


class FolderTokens:
    """Texts, or pairs of texts, as rows of numbers of one length.

    Args:
        folder: holds ``tokenizer.json``, or a WordPiece ``vocab.txt``; or such a file itself.
        length: numbers per row; longer texts are cut, of a pair the longer one first, and shorter ones filled up.

    Raises:
        DataError: there is no such file, or it cannot be read. ConfigError: an impossible length.
    """

    def __init__(self, folder: str | os.PathLike[str], length: int) -> None:
        if type(length) is not int or length < 4:
            raise ConfigError(f"length {length!r} must be a whole number of tokens of at least 4, such as 512")
        with extra("a tokenizer", "text"):
            import tokenizers  # noqa: F401
        self.file = _file(expanded(folder))
        try:
            with of_library(lambda reason: DataError(f"{self.file}: no tokenizer ({reason}); get the file again")):
                self._tokenizer = read_tokenizer(self.file)
                pad, number = self._pad()
                self._tokenizer.enable_truncation(length)
                self._tokenizer.enable_padding(pad_id=number, pad_token=pad, length=length)
        except OSError as error:
            raise DataError(f"{self.file} cannot be read ({reason_of(error)}); check the path") from error

    def _pad(self) -> tuple[str, int]:
        """Return the token that fills up and its number."""
        own = self._tokenizer.padding
        if own:
            return own["pad_token"], own["pad_id"]
        told = _config(self.file.parent).get("pad_token")
        named = told.get("content") if isinstance(told, dict) else told
        for token in (named, *PADS):
            if not isinstance(token, str):
                continue
            number = self._tokenizer.token_to_id(token)
            if number is not None:
                return token, number
        raise DataError(
            f"{self.file}: has no token {' or '.join(PADS)} to fill up with; name one as pad_token in "
            f"{self.file.parent / 'tokenizer_config.json'}"
        )

    def __call__(self, texts: Sequence[str] | Sequence[tuple[str, str]]) -> dict[str, Array]:
        """Return ``input_ids``, ``attention_mask`` and ``token_type_ids``, each N x length int64.

        The order is that in which exporters list a BERT's inputs.
        """
        with of_library(lambda reason: DataError(f"{self.file}: a text cannot be tokenized ({reason}); correct it")):
            found = self._tokenizer.encode_batch(list(texts))
        rows = [(one.ids, one.attention_mask, one.type_ids) for one in found]
        ids, mask, types = np.array(rows, np.int64).reshape(len(rows), 3, -1).transpose(1, 0, 2)
        return {"input_ids": ids.copy(), "attention_mask": mask.copy(), "token_type_ids": types.copy()}


def _file(path: Path) -> Path:
    """Return the file that a folder's tokenizer is read from."""
    found = next((path / name for name in FILES if (path / name).is_file()), path)
    if found.is_file():
        return found
    other = next((path / name for name in OTHERS if (path / name).is_file()), None)
    if other is not None:
        raise DataError(
            f"{other} is not read; add a tokenizer.json, which transformers writes: "
            f"AutoTokenizer.from_pretrained({str(path)!r}).save_pretrained({str(path)!r})"
        )
    what = "is a folder without" if path.is_dir() else "does not exist; it would have"
    raise DataError(f"tokenizer {path} {what} {' or '.join(FILES)}; give a model's folder of configurations")
