"""Local functions that ONNX Runtime takes for standard operators.

While it infers sizes, ONNX Runtime (seen in 1.31.1) goes by an operator's name and forgets its domain: a function
``own.Add`` of one input aborts the whole process. So a call of a function with a standard operator's name is replaced
by the function's body first. Importing ``onnx`` costs more than opening a small model, and models with functions are
few; whether one has any is read off the file's outermost level (https://protobuf.dev/programming-guides/encoding).
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from tecoinfer_modelzoo.errors import ModelError
from tecoinfer_modelzoo.text import one_line

if TYPE_CHECKING:
    from onnx import ModelProto

_FUNCTIONS = 25
"""Number of ``ModelProto.functions`` in onnx.proto."""

_MOST_FIELDS = 10_000
"""Fields of a model, at its outermost level, after which something is no model."""

_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5
"""Wire types."""


def clashing(model: Path | str | bytes) -> ModelProto | None:
    """Return a model without its functions that bear a standard operator's name; ``None`` where it has none of those.

    Args:
        model: a file or its bytes; what cannot be read is for the runtime to complain about.

    Raises:
        ModelError: it has functions, and is beyond what a model may hold (:mod:`engine.onnx.bounds`); or such
            functions, and weights that are missing.
    """
    try:
        with io.BytesIO(model) if isinstance(model, bytes) else Path(model).open("rb") as file:
            if not _has_functions(file):
                return None
    except OSError:
        return None
    import onnx
    from google.protobuf.message import DecodeError

    try:
        bare = onnx.ModelProto.FromString(model if isinstance(model, bytes) else Path(model).read_bytes())
    except DecodeError:
        return None
    from engine.onnx.bounds import check_bounds

    check_bounds(bare, "model" if isinstance(model, bytes) else Path(model))
    if not _standard_names(bare):
        return None
    if isinstance(model, bytes):
        return without_clashes(bare)
    from engine.onnx.load import load_model

    return without_clashes(load_model(Path(model)))


def without_clashes(model: ModelProto) -> ModelProto:
    """Return a model with the bodies of its functions that bear a standard operator's name in place of their calls."""
    names = _standard_names(model)
    return _inlined(model, names) if names else model


def inlined(model: ModelProto) -> ModelProto:
    """Return a model with the bodies of all its functions in place of their calls.

    Raises:
        ModelError: they cannot be.
    """
    return _inlined(model, None) if model.functions else model


def _inlined(model: ModelProto, names: list[tuple[str, str]] | None) -> ModelProto:
    from onnx import checker, inliner

    from engine.onnx.large import fits_message, given_back, taken_apart

    if not fits_message(model):
        light, apart = taken_apart(model)
        return given_back(_inlined(light, names), apart)
    try:
        if names is None:
            return inliner.inline_local_functions(model)
        return inliner.inline_selected_functions(model, names)
    except (checker.ValidationError, RuntimeError, ValueError, TypeError) as error:
        raise ModelError(f"the model's functions cannot be put in place of their calls: {one_line(error)}") from error


def _standard_names(model: ModelProto) -> list[tuple[str, str]]:
    """Return domain and name of the functions that bear a standard operator's name in another domain."""
    if not model.functions:
        return []
    from onnx import defs

    return [
        (one.domain, one.name) for one in model.functions if one.domain not in ("", "ai.onnx") and defs.has(one.name)
    ]


def _has_functions(file: BinaryIO) -> bool:
    """Say whether a serialised ``onnx.ModelProto`` has functions, skipping everything else by its length."""
    for _ in range(_MOST_FIELDS):
        tag = _varint(file)
        kind = tag & 7
        if tag >> 3 == _FUNCTIONS and kind == _LENGTH_DELIMITED:
            return True
        if kind not in (_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32):
            return False  # -1, the end, is among them
        if kind == _VARINT:
            _varint(file)
        else:
            size = {_FIXED64: 8, _FIXED32: 4}.get(kind) or _varint(file)
            file.seek(min(max(size, 0), 2**40), io.SEEK_CUR)
    return False


def _varint(file: BinaryIO) -> int:
    """Return a number of variable length, at most the ten bytes it may have; -1 at the end of the file."""
    value = 0
    for i in range(10):
        byte = file.read(1)
        if not byte:
            return -1
        value |= (byte[0] & 0x7F) << 7 * i
        if byte[0] < 0x80:
            return value
    return -1
