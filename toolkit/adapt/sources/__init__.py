"""Where a model comes from: :data:`SOURCES`, a class per kind of MODEL."""

from __future__ import annotations

from collections.abc import Sequence

from engine import ConfigError
from tecoinfer_modelzoo.text import did_you_mean
from toolkit.adapt.sources.base import Export, Source, Taken
from toolkit.adapt.sources.factories import Factory
from toolkit.adapt.sources.image_folders import ImageFolder
from toolkit.adapt.sources.networks import Timm, Torchvision
from toolkit.adapt.sources.onnx_files import FetchedFile, OnnxFile, PipFile
from toolkit.adapt.sources.text_folders import TextFolder

__all__ = ["FORMS", "SOURCES", "Export", "Source", "Taken", "find_source"]

SOURCES: Sequence[type[Source]] = (FetchedFile, PipFile, Torchvision, Timm, Factory, ImageFolder, TextFolder, OnnxFile)
"""Every kind; the first that takes a word is meant."""

FORMS = ", ".join(dict.fromkeys(source.form for source in SOURCES))
"""The forms of MODEL, for help and errors."""


def find_source(model: str) -> Source:
    """Return the source of a model. Raises ConfigError if no kind takes the word, or it lacks a part."""
    for kind in SOURCES:
        if kind.takes(model):
            return kind(model)
    prefixes = [f"{source.prefix}:" for source in SOURCES if source.prefix]
    hint = did_you_mean(f"{model.partition(':')[0]}:", prefixes) if ":" in model else ""
    raise ConfigError(f"MODEL {model!r}: no such file or folder;{hint} MODEL is one of: {FORMS}")
