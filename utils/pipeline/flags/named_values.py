"""Parse flags with names: ``NAME=PATH`` of several models or paths, ``NAME=SIZE`` of symbolic dimensions.

Paths may be files in packages: ``fetch:NAME/path`` (docs/reference/data.md).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from engine import ConfigError
from utils.shapes import parse_dims
from utils.tasks.base import Task

_NAMED = r"(?s)([A-Za-z_]\w*)=(.+)"


def dims_of(words: Sequence[str], model: str, files: Mapping[str, Path]) -> dict[str, tuple[int, ...]]:
    """Return the sizes for one model: ``seq=128`` is for all with the symbol, ``det.seq=128`` for model ``det``."""
    found = parse_dims(words)  # the engine reports unknown symbols
    own = {key.partition(".")[2]: sizes for key, sizes in found.items() if key.startswith(f"{model}.")}
    # A symbol may contain dots, such as Paddle's p2o.DynamicDimension.0.
    common = {key: sizes for key, sizes in found.items() if key.partition(".")[0] not in files or "." not in key}
    if common and len(files) > 1:
        having = {name: _symbols(path) for name, path in files.items()}
        foreign = set().union(*having.values()) - having[model]
        common = {key: sizes for key, sizes in common.items() if key not in foreign}
    return common | own


def _symbols(path: Path) -> set[str]:
    """Return the symbols of an ONNX file's inputs; none for other files, which the engine reports."""
    if path.suffix != ".onnx" or not path.is_file():
        return set()
    from engine.onnx import load_model, signature

    inputs, _, _ = signature(load_model(path))
    return {symbol for tensor in inputs for symbol in tensor.symbols if symbol is not None}


def models_of(given: Any, task: type[Task]) -> Path | dict[str, Path]:
    """Parse ``--ckpt``: the model's path, or the paths of several models by name, in the task's order.

    Raises ConfigError if a model is missing or unknown.
    """
    found = named_paths(given, "--ckpt")
    needed = [name for name in task.models if name not in task.optional_models]
    wanted = " ".join(f"{name}=FILE" for name in needed) or "FILE"
    wanted += "".join(f" [{name}=FILE]" for name in task.optional_models)
    if found is None:
        raise ConfigError(f"no model given; pass --ckpt {wanted}")
    if isinstance(found, Path) and task.optional_models and len(needed) == 1:
        found = {needed[0]: found}
    have = " ".join(found) if isinstance(found, dict) else str(found)
    if not task.models:
        if isinstance(found, dict):
            raise ConfigError(f"--ckpt {have}: task {task.name} takes one model; pass --ckpt {wanted}")
        return found
    if not isinstance(found, dict) or not set(needed) <= set(found) <= set(task.models):
        raise ConfigError(f"--ckpt {have}: task {task.name} takes the models {', '.join(task.models)}; pass {wanted}")
    return {name: found[name] for name in task.models if name in found}


def named_paths(given: Any, flag: str) -> Path | dict[str, Path] | None:
    """Parse ``PATH`` or ``NAME=PATH NAME=PATH``; a default is returned unchanged.

    Raises ConfigError, with ``flag``, if one of several words has no name, or a name is given twice.
    """
    if given is None or isinstance(given, Path):
        return given
    if isinstance(given, Mapping):
        return {name: Path(path) for name, path in given.items()}
    words = [given] if isinstance(given, str) else list(given)
    if len(words) == 1 and (re.fullmatch(_NAMED, words[0]) is None or Path(words[0]).exists()):
        return Path(words[0])
    pairs = [_pair(word, flag) for word in words]
    names = [name for name, _ in pairs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"{flag}: {twice!r} is given twice; give each name once")
    return dict(pairs)


def _pair(word: str, flag: str) -> tuple[str, Path]:
    pair = re.fullmatch(_NAMED, word)
    if pair is None:
        raise ConfigError(f"{flag} {word!r}: several paths need names; write NAME=PATH")
    return pair[1], Path(pair[2])


Given = TypeVar("Given", bound="Path | dict[str, Path] | None")


def located(given: Given) -> Given:
    """Return a path, or several by name, with those in packages resolved; packages are downloaded if needed.

    Raises ConfigError: an unknown package; FetchError: the package cannot be downloaded, or lacks the file.
    """
    paths = list(given.values()) if isinstance(given, dict) else [given]
    if not any(str(path).startswith("fetch:") for path in paths):
        return given
    from utils.fetch import fetched_path  # imported only for such a path

    if isinstance(given, dict):
        return type(given)((name, fetched_path(path)) for name, path in given.items())
    return fetched_path(str(given))  # type: ignore[return-value]  # a Path for a Path
