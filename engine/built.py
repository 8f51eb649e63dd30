"""Names and leading bytes of files that hold a built engine instead of a model."""

from __future__ import annotations

import os
from pathlib import Path

from tecoinfer_modelzoo.files import open_regular

SUFFIX = ".tecoengine"  # suffix of engines saved for the simulated card

BUILT_SUFFIXES = (SUFFIX, ".engine", ".so")
"""Suffixes of files that are opened without a model: the second is that of TensorRT and of older saved engines, the
third that of plans of TVM."""

MAGIC = b"tecoengine "  # first bytes of a saved engine, whatever its name


def is_built(ckpt: object) -> bool:
    """Return whether a path names a built engine: by its suffix, or by its first bytes."""
    if not isinstance(ckpt, (str, os.PathLike)):
        return False
    path = Path(os.fsdecode(ckpt))
    if path.suffix in BUILT_SUFFIXES or path.suffix == ".onnx":
        return path.suffix != ".onnx"
    try:
        with open_regular(path) as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:  # opening it reports the reason
        return False
