"""Files that hold a built engine and not a model: by which names and which first bytes they are known."""

from __future__ import annotations

import os
from pathlib import Path

from tecoinfer_modelzoo.files import open_regular

SUFFIX = ".tecoengine"
"""Ending of the engines the zoo saves for the simulated card."""

BUILT_SUFFIXES = (SUFFIX, ".engine")
"""Endings of files that are opened by themselves; the second is TensorRT's, and that of older zoos' saved engines."""

MAGIC = b"tecoengine "
"""What a saved engine begins with, whatever it is called."""


def is_built(ckpt: object) -> bool:
    """Say whether a path names a built engine: by its ending, or as a file that begins as saved engines do."""
    if not isinstance(ckpt, (str, os.PathLike)):
        return False
    path = Path(os.fsdecode(ckpt))
    if path.suffix in BUILT_SUFFIXES or path.suffix == ".onnx":
        return path.suffix != ".onnx"
    try:
        with open_regular(path) as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:  # who opens it says why it cannot be read
        return False
