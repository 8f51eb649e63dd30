"""Models named on the command line, as sources of :mod:`serve`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine import ConfigError
from model_config.cases.config import ROOT
from serve.source import ModelSource
from toolkit.zoo import find_model, load_zoo


def source_of(
    word: str, target: str, flags: Mapping[str, Any] | None = None, rows: int = 1, root: Path = ROOT
) -> ModelSource:
    """Return the source of ``[NAME=]MODEL``: a model of the zoo, by any name of it, or an ONNX file.

    Args:
        word: as given. target: the engine. flags: of the script. rows: most rows of a call. root: the repository.

    Raises ConfigError if there is no such model or file, or the name cannot be used.
    """
    name, equals, place = word.partition("=")
    name, place = (name, place) if equals else ("", word)
    common: dict[str, Any] = {"target": target, "flags": dict(flags or {}), "rows": rows}
    path = Path(place)
    if place.endswith(".onnx") or path.is_file():
        if not path.is_file():
            raise ConfigError(f"model file {path} does not exist; check the path")
        return ModelSource(name=name or path.stem, ckpt=str(path.absolute()), **common)
    model, _ = find_model(place, load_zoo(root).models)
    if "single" not in model.scripts:
        raise ConfigError(
            f"{model.path} has no script for a single sample, whose task would be used; give its ONNX file"
        )
    return ModelSource(name=name or model.name, script=str(model.folder / model.scripts["single"]), **common)
