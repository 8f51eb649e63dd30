"""Token numbers of texts by a model's own ``tokenizer.json`` of Hugging Face's libraries.

Numbers, spans and windows equal those of transformers' fast tokenizers, which use the same library.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from engine import Array, ConfigError, DataError, ModelError
from tecoinfer_modelzoo.extra import extra
from tecoinfer_modelzoo.files import read_regular
from tecoinfer_modelzoo.json_values import plain_json
from tecoinfer_modelzoo.text import reason_of
from utils.preprocess.text.tokenizer_folder import FILES, MOST_BYTES, of_library, read_tokenizer

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

TOKENIZER, SIZE = "tokenizer", "vocabulary_size"
"""Metadata keys of an export: the text of its ``tokenizer.json``, and the size of the model's vocabulary."""

CUTS = ("longest_first", "only_first", "only_second")
"""Which of two texts is truncated if they are too long together."""

Given: TypeAlias = "str | tuple[str, str]"
"""A text, or a pair of texts."""

IDS, MASK, TYPES, PLACES = "ids", "mask", "type", "position"
"""Kinds of inputs: token numbers, 1 for every token, which text a token belongs to, its position in the text."""

_KINDS = (MASK, TYPES, PLACES)
MOST_CHARACTERS = 4_000_000
"""Maximum characters of a text: all tokens are computed before truncation, at some hundred bytes and 2 us each."""

_PADS = ("[PAD]", "<pad>", "<|pad|>")
_FEWER = 0.9
"""Minimum size of a tokenizer, relative to the model's vocabulary; a smaller one is another model's."""


def input_kind(name: str) -> str:
    """Return the kind of an input by its name: ``mask``, ``type`` (or ``segment``), ``position``, or else ``ids``."""
    low = name.lower().replace("segment", TYPES)
    return next((kind for kind in _KINDS if kind in low), IDS)


class Described(Protocol):
    """The part of a model's description used here."""

    @property
    def ckpt(self) -> Path:
        """The ONNX file."""

    @property
    def metadata(self) -> Mapping[str, str]:
        """Metadata stored by its export."""


class Encoded(NamedTuple):
    """A text, or a pair, or a window of them, as L tokens.

    Attributes:
        ids: token numbers, int64 [L].
        types: 0 in the first text, 1 in the second, as the tokenizer defines, int64 [L].
        spans: start and end of each token in its own text, in characters, int64 [L, 2]; 0, 0 for special ones.
        part: 0 in the first text, 1 in the second, -1 for special tokens, int64 [L].
        cut: number of tokens left out; 0 for windows, which together leave out none.
        source: index of its text.
        pad: number of the padding token.
    """

    ids: Array
    types: Array
    spans: Array
    part: Array
    cut: int = 0
    source: int = 0
    pad: int = 0


class Tokens:
    """A tokenizer from the content of a ``tokenizer.json``. Thread-safe.

    Raises ModelError if the text is not a tokenizer, and ConfigError if the package ``tokenizers`` is not installed.
    """

    def __init__(self, text: str, source: object) -> None:
        self.source = source
        self._plain = _parsed(text, source)
        truncation: dict[str, Any] = self._plain.truncation or {}
        padding: dict[str, Any] = self._plain.padding or {}
        self._direction = str(truncation.get("direction", "right"))
        self.usual_length: int | None = truncation.get("max_length")
        """Tokens that the tokenizer's own file cuts texts to; ``None`` where it does not."""
        known = [self._plain.token_to_id(token) for token in _PADS]
        self.pad = int(padding.get("pad_id", next((one for one in known if one is not None), 0)))
        """Number of the token that fills up short texts; 0 where there is none."""
        self._plain.no_padding()
        self._plain.no_truncation()
        self._cutting: dict[tuple[int, str, int], Tokenizer] = {}
        self._lock = threading.Lock()
        self.size = max(self._plain.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        """One more than the largest number of a token."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Tokens._again, (self._plain.to_str(), str(self.source), self.usual_length, self.pad, self._direction)

    @staticmethod
    def _again(text: str, source: str, usual: int | None, pad: int, direction: str) -> Tokens:
        made = Tokens(text, source)
        made.usual_length, made.pad, made._direction = usual, pad, direction
        return made

    @classmethod
    def of(cls, model: Described, options: object = None) -> Tokens:
        """Return a model's tokenizer: that of ``--tokenizer``, else the stored one, else that next to the model file.

        The last ones read are cached. Raises ModelError if the tokenizer is missing, cannot be read, or does not fit
        the model, and ConfigError if ``--tokenizer`` does not exist, or the package ``tokenizers`` is not installed.
        """
        found = cls.find(model, options)
        if found is None:
            raise ModelError(
                f"{model.ckpt}: it stores no tokenizer, and there is no {FILES[0]} in its folder; "
                "give the model's own with --tokenizer FILE"
            )
        return found

    @classmethod
    def find(cls, model: Described, options: object = None) -> Tokens | None:
        """Return the result of :meth:`of`, or ``None`` without a tokenizer."""
        given = getattr(options, "tokenizer", None)
        if given is not None:
            return _fitting(_of_file(str(given)), model)
        stored = model.metadata.get(TOKENIZER)
        if stored is not None:  # belongs to the model, so its weights need not be read
            return _fitting(_of_text(stored, str(model.ckpt)), model, SIZE in model.metadata)
        nearby = Path(model.ckpt).with_name(FILES[0])
        return _fitting(_of_file(str(nearby)), model) if nearby.is_file() else None

    def number(self, token: str) -> int | None:
        """Return a token's number, or ``None``."""
        found: int | None = self._plain.token_to_id(token)
        return found

    def token(self, number: int) -> str | None:
        """Return the token of a number, or ``None``."""
        found: str | None = self._plain.id_to_token(int(number))
        return found

    def decode(self, ids: Sequence[int] | Array, *, special: bool = False) -> str:
        """Return the text of tokens; ``special``: with the special ones (``[SEP]``)."""
        return str(self._plain.decode([int(one) for one in ids], skip_special_tokens=not special))

    def encode(
        self,
        texts: Sequence[Given],
        max_length: int | None = None,
        cut: str = CUTS[0],
        stride: int = 0,
        overflow: bool = False,
        special: bool = True,
    ) -> list[Encoded]:
        """Return the tokens of each text, or pair of texts.

        Args:
            texts: strings, or tuples of two.
            max_length: maximum tokens, with special ones; ``None`` or 0: no limit.
            cut: which text of a pair is truncated, one of :data:`CUTS`; ``longest_first`` makes them equally long.
            stride: tokens shared by consecutive windows.
            overflow: whether the rest of a long text becomes further windows, as entries after its first one.
            special: whether the tokens that begin and end a text are added.

        Raises DataError if a text has no token, is not text, or leaves no room for the other one of its pair, and
        ConfigError if the length, stride or ``cut`` is invalid.
        """
        limit = max_length or 0
        if cut not in CUTS or limit < 0 or stride < 0:
            raise ConfigError(f"max_length {limit}, stride {stride}: at least 0 each; cut {cut!r}: {', '.join(CUTS)}")
        found: list[Encoded] = []
        for place, given in enumerate(texts):
            pair = (given, None) if isinstance(given, str) else (given[0], given[1])
            for one in self._windows(pair, limit, cut if pair[1] is not None else CUTS[1], stride, special):
                found.append(one._replace(source=place, cut=0 if overflow else one.cut))
                if not overflow:
                    break
        return found

    def _windows(self, pair: tuple[str, str | None], limit: int, cut: str, stride: int, special: bool) -> list[Encoded]:
        whole = self._encoded(self._plain, pair, special)
        if not limit or len(whole.ids) <= limit:
            return [self._made(whole, 0)]
        self._refuse_no_room(whole, pair[1] is not None, limit, cut, stride, special)
        first = self._encoded(self._cut_to(limit, cut, stride), pair, special)
        lost = len(whole.ids) - len(first.ids)
        return [self._made(first, lost), *(self._made(window, 0) for window in first.overflowing)]

    def _encoded(self, tokenizer: Tokenizer, pair: tuple[str, str | None], special: bool) -> Encoding:
        if sum(map(len, filter(None, pair))) > MOST_CHARACTERS:
            raise DataError(
                f"the text has {sum(map(len, filter(None, pair)))} characters, more than {MOST_CHARACTERS}; "
                "check that the file's lines end where its texts do, or divide the text"
            )
        with of_library(lambda reason: DataError(f"the text cannot be tokenized ({reason}); correct it")):
            found = tokenizer.encode(pair[0], pair[1], add_special_tokens=special)
        if not len(found.ids):
            raise DataError("the text has no tokens; write something, or leave it out")
        return found

    def _made(self, found: Encoding, lost: int) -> Encoded:
        part = np.array([-1 if one is None else one for one in found.sequence_ids], np.int64)
        spans = np.array(found.offsets, np.int64).reshape(-1, 2)
        ids, types = np.array(found.ids, np.int64), np.array(found.type_ids, np.int64)
        return Encoded(ids, types, spans, part, lost, 0, self.pad)

    def _cut_to(self, limit: int, cut: str, stride: int) -> Tokenizer:
        """Return the tokenizer with these settings of truncation, which the library stores in the tokenizer."""
        with self._lock:
            if (limit, cut, stride) not in self._cutting:
                made = _parsed(self._plain.to_str(), self.source)
                made.enable_truncation(limit, stride=stride, strategy=cut, direction=self._direction)
                self._cutting[limit, cut, stride] = made
            return self._cutting[limit, cut, stride]

    def _refuse_no_room(self, whole: Encoding, pair: bool, limit: int, cut: str, stride: int, special: bool) -> None:
        """Raise an error for settings with which the library would abort the process."""
        added = self._plain.num_special_tokens_to_add(pair) if special else 0
        if limit <= added:
            raise ConfigError(f"{limit} tokens are too few: {added} of them are special ones; use a larger length")
        if pair and cut == CUTS[0]:
            if stride:
                raise ConfigError("windows of two texts move along one of them; cut only_first or only_second")
            return
        kept = sum(one == (0 if cut == CUTS[2] else 1) for one in whole.sequence_ids) if pair else 0
        room = limit - added - kept
        if room <= stride and not pair:
            raise ConfigError(f"a stride of {stride} tokens leaves nothing new in {limit}; use a smaller one")
        if room <= stride:
            which = "first" if cut == CUTS[2] else "second"
            raise DataError(
                f"its {which} text has {kept} tokens, which leaves {max(room, 0)} of {limit} for the other one, and "
                f"more than {stride} are needed; shorten it, or use a larger length"
            )


def tokenized(texts: Sequence[str], description: Any, length: int, ckpt: object) -> tuple[Array, Array]:
    """Return token numbers and attention mask of T texts, both T x ``length`` int64, 0 at padding.

    ``description`` is the tokenizer's JSON, as an object. Raises ConfigError if a text is empty or too long, or the
    package ``tokenizers`` is not installed, and ModelError if the description is not a tokenizer.
    """
    tokens = _of_text(json.dumps(description, sort_keys=True), str(ckpt))
    numbers, known = np.zeros((2, len(texts), length), np.int64)
    for i, text in enumerate(texts):
        if not text.strip():
            raise ConfigError(f"text {i} is empty; write what to look for")
        found = tokens.encode([text])[0].ids
        if len(found) > length:
            raise ConfigError(f"{text!r} has {len(found)} tokens, {ckpt} takes {length}; write a shorter text")
        numbers[i, : len(found)], known[i, : len(found)] = found, 1
    return numbers, known


@lru_cache(maxsize=8)
def _of_text(text: str, source: str) -> Tokens:
    return Tokens(text, source)


@lru_cache(maxsize=8)
def _of_file(name: str) -> Tokens:
    path = Path(name)
    file = next((path / one for one in FILES if os.path.isfile(path / one)), path)
    if not os.path.isfile(file):  # Path.is_file raises for a name that is too long
        what = "is a folder without" if os.path.isdir(path) else "does not exist; it would be"
        raise ConfigError(f"--tokenizer {name} {what} {' or '.join(FILES)}; give the model's own tokenizer.json")
    try:
        text = read_regular(file, MOST_BYTES).decode("utf-8-sig") if file.name != FILES[1] else _word_pieces(file)
    except (OSError, ValueError) as error:
        raise ModelError(f"tokenizer {file} cannot be read ({reason_of(error)}); give a tokenizer.json") from error
    return Tokens(text, file)


def _word_pieces(file: Path) -> str:
    """Return the JSON of a BERT tokenizer of a ``vocab.txt``, with the settings of ``tokenizer_config.json``."""
    with extra("a tokenizer", "text"):
        import tokenizers  # noqa: F401
    with of_library(lambda reason: ModelError(f"{file}: not a tokenizer ({reason}); give a tokenizer.json")):
        return str(read_tokenizer(file).to_str())


def _parsed(text: str, source: object) -> Tokenizer:
    with extra("a tokenizer", "text"):
        from tokenizers import Tokenizer
    with of_library(lambda reason: ModelError(f"{source}: its tokenizer cannot be read ({reason}); export it again")):
        return Tokenizer.from_str(text)


def _fitting(tokens: Tokens, model: Described, read_weights: bool = True) -> Tokens:
    """Return the tokenizer; raise ModelError if its size is not that of the model's vocabulary, or somewhat smaller."""
    known = _known(model) if read_weights else 0
    if known and not _FEWER * known <= tokens.size <= known:
        raise ModelError(
            f"{model.ckpt}: its vocabulary has {known} tokens, but the tokenizer of {tokens.source} has {tokens.size}; "
            "give the model's own with --tokenizer FILE"
        )
    return tokens


def _known(model: Described) -> int:
    """Return the size of a model's vocabulary; 0 if it is not known."""
    text = model.metadata.get(SIZE)
    if text is None:
        return _rows(str(model.ckpt))
    try:
        return int(plain_json(text))
    except (ValueError, TypeError) as error:
        raise ModelError(f"{model.ckpt}: metadata {SIZE!r}: {text!r} is not a number; export it again") from error


@lru_cache(maxsize=8)
def _rows(ckpt: str) -> int:
    """Return the number of rows of the table that a model's token numbers index; 0 if there is none."""
    if not ckpt.endswith(".onnx") or not os.path.isfile(ckpt):
        return 0
    from engine.onnx import load_model

    graph = load_model(Path(ckpt)).graph
    names = {one.name for one in graph.input if input_kind(one.name) == IDS}
    tables = {one.name: one.dims[0] for one in graph.initializer if len(one.dims) == 2}
    for node in graph.node:
        if node.op_type in ("Cast", "Identity") and node.input[0] in names:
            names.add(node.output[0])
        if node.op_type == "Gather" and node.input[0] in tables and node.input[1] in names:
            return int(tables[node.input[0]])
    return 0
