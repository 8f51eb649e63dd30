"""Inlining of local functions that ONNX Runtime confuses with standard operators.

During shape inference, ONNX Runtime (as of 1.31.1) looks operators up by name without the domain: a function
``own.Add`` with one input aborts the process. Calls of such functions are therefore replaced by their bodies. Importing
``onnx`` takes longer than opening a small model, and few models have functions, so these are detected by scanning the
file's top-level fields (:mod:`engine.onnx.wire`).
"""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from engine.onnx.wire import BytesSource, FileSource, Source, fields
from tecoinfer_modelzoo.errors import ModelError
from tecoinfer_modelzoo.text import one_line

if TYPE_CHECKING:
    from onnx import ModelProto

_FUNCTIONS = 25  # number of ``ModelProto.functions`` in onnx.proto
_MOST_FIELDS = 10_000  # maximum number of top-level fields of a model


def clashing(model: Path | str | bytes) -> ModelProto | None:
    """Return a model (a file or bytes) without functions named like a standard operator; ``None`` if there are none.

    Errors of reading are left to the runtime. Raises ModelError if a model with functions exceeds the limits
    (:mod:`engine.onnx.bounds`), or its weights are missing.
    """
    try:
        if isinstance(model, bytes):
            found = _has_functions(BytesSource(model), len(model))
        else:
            with Path(model).open("rb") as file:
                found = _has_functions(FileSource(file.fileno()), os.fstat(file.fileno()).st_size)
    except OSError:
        return None
    if not found:
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
    """Return a model in which calls of functions named like a standard operator are replaced by their bodies."""
    names = _standard_names(model)
    return _inlined(model, names) if names else model


def inlined(model: ModelProto) -> ModelProto:
    """Return a model in which all calls of its functions are replaced by their bodies; raise ModelError on failure."""
    return _inlined(model, None) if model.functions else model


def _inlined(model: ModelProto, names: list[tuple[str, str]] | None) -> ModelProto:
    from onnx import checker, inliner

    from engine.onnx.large import fits_message, join_large_weights, split_large_weights

    if not fits_message(model):
        light, apart = split_large_weights(model)
        return join_large_weights(_inlined(light, names), apart)
    try:
        if names is None:
            return inliner.inline_local_functions(model)
        return inliner.inline_selected_functions(model, names)
    except (checker.ValidationError, RuntimeError, ValueError, TypeError) as error:
        raise ModelError(f"the model's functions cannot be inlined: {one_line(error)}") from error


def _standard_names(model: ModelProto) -> list[tuple[str, str]]:
    """Return domain and name of functions named like a standard operator in another domain."""
    if not model.functions:
        return []
    from onnx import defs

    return [(f.domain, f.name) for f in model.functions if f.domain not in ("", "ai.onnx") and defs.has(f.name)]


def _has_functions(source: Source, size: int) -> bool:
    """Return whether a serialized ``onnx.ModelProto`` has functions; other fields are skipped by their length."""
    return any(field.number == _FUNCTIONS and field.end for field in islice(fields(source, 0, size), _MOST_FIELDS))
