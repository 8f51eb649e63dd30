"""Tokenizers of model folders, for scripts that name the folder.

Needs the package ``tokenizers`` but not transformers; token numbers equal those of transformers' fast tokenizers.
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
"""Files of a tokenizer; the first that exists is read."""

MOST_BYTES = 256 << 20
"""Maximum bytes of a tokenizer; the largest known ones have some 30 MB."""

OTHERS = ("sentencepiece.bpe.model", "spiece.model", "tokenizer.model", "vocab.json")
"""Unsupported files of tokenizers, which transformers converts to ``tokenizer.json``."""

PADS = ("[PAD]", "<pad>")
"""Default padding tokens."""


@contextmanager
def of_library(refusal: Callable[[str], Exception]) -> Iterator[None]:
    """Convert exceptions of the library ``tokenizers`` to that of ``refusal``.

    These are of the bare class ``Exception``, or, if its Rust code panics, such as on catastrophic backtracking of a
    regular expression, a PanicException, which is not an Exception and cannot be imported.
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
    """Return the tokenizer of a ``tokenizer.json``, or of a WordPiece ``vocab.txt`` with its configuration.

    ``tokenizer_config.json`` in the same folder as ``vocab.txt`` may have ``do_lower_case`` (default true),
    ``strip_accents`` and ``tokenize_chinese_chars`` (default true), as for BERT. Raises exceptions of the library, and
    DataError if ``tokenizer_config.json`` is not a JSON object.
    """
    content = read_regular(file, MOST_BYTES)  # the library would block on a pipe
    if file.name != "vocab.txt":
        from tokenizers import Tokenizer

        return Tokenizer.from_str(content.decode("utf-8-sig"))
    from tokenizers import BertWordPieceTokenizer

    config = _config(file.parent)
    made: Tokenizer = BertWordPieceTokenizer(
        str(file),
        lowercase=bool(config.get("do_lower_case", True)),
        strip_accents=config.get("strip_accents"),
        handle_chinese_chars=bool(config.get("tokenize_chinese_chars", True)),
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
        raise DataError(f"{file}: is not a JSON object; get the file again")
    return found


class FolderTokens:
    """Texts, or pairs of texts, as rows of token numbers of one length.

    The folder has ``tokenizer.json``, or a WordPiece ``vocab.txt``; or is such a file itself. Longer texts are
    truncated, of a pair the longer one first, and shorter ones padded. Raises DataError if the file is missing or
    cannot be read, and ConfigError if the length is invalid.
    """

    def __init__(self, folder: str | os.PathLike[str], length: int) -> None:
        if type(length) is not int or length < 4:
            raise ConfigError(f"length {length!r} must be a whole number of tokens of at least 4, such as 512")
        with extra("a tokenizer", "text"):
            import tokenizers  # noqa: F401
        self.file = _file(expanded(folder))
        try:
            with of_library(lambda reason: DataError(f"{self.file}: not a tokenizer ({reason}); get the file again")):
                self._tokenizer = read_tokenizer(self.file)
                pad, number = self._pad()
                self._tokenizer.enable_truncation(length)
                self._tokenizer.enable_padding(pad_id=number, pad_token=pad, length=length)
        except OSError as error:
            raise DataError(f"{self.file} cannot be read ({reason_of(error)}); check the path") from error

    def _pad(self) -> tuple[str, int]:
        """Return the padding token and its number."""
        own = self._tokenizer.padding
        if own:
            return own["pad_token"], own["pad_id"]
        pad = _config(self.file.parent).get("pad_token")
        named = pad.get("content") if isinstance(pad, dict) else pad
        for token in (named, *PADS):
            if not isinstance(token, str):
                continue
            number = self._tokenizer.token_to_id(token)
            if number is not None:
                return token, number
        raise DataError(
            f"{self.file}: has no padding token {' or '.join(PADS)}; set one as pad_token in "
            f"{self.file.parent / 'tokenizer_config.json'}"
        )

    def __call__(self, texts: Sequence[str] | Sequence[tuple[str, str]]) -> dict[str, Array]:
        """Return ``input_ids``, ``attention_mask``, ``token_type_ids`` (BERT's order in exports), N x length int64."""
        with of_library(lambda reason: DataError(f"{self.file}: a text cannot be tokenized ({reason}); correct it")):
            found = self._tokenizer.encode_batch(list(texts))
        rows = [(one.ids, one.attention_mask, one.type_ids) for one in found]
        ids, mask, types = np.array(rows, np.int64).reshape(len(rows), 3, -1).transpose(1, 0, 2)
        return {"input_ids": ids.copy(), "attention_mask": mask.copy(), "token_type_ids": types.copy()}


def _file(path: Path) -> Path:
    """Return the file of a folder's tokenizer."""
    found = next((path / name for name in FILES if (path / name).is_file()), path)
    if found.is_file():
        return found
    other = next((path / name for name in OTHERS if (path / name).is_file()), None)
    if other is not None:
        raise DataError(
            f"{other} is not supported; add a tokenizer.json, which transformers writes: "
            f"AutoTokenizer.from_pretrained({str(path)!r}).save_pretrained({str(path)!r})"
        )
    what = "is a folder without" if path.is_dir() else "does not exist; it would have"
    raise DataError(f"tokenizer {path} {what} {' or '.join(FILES)}; give a model's folder of configurations")
