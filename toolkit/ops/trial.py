"""Trial of a model of a single node on a target."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from engine import ConfigError, EngineSpec, TargetError, TecoInferError, engine_class, open_engine, provider

if TYPE_CHECKING:
    from onnx import ModelProto

Trial: TypeAlias = "Callable[[ModelProto], str | None]"
"""Function that returns the error of a model on a target, "" if it runs, and ``None`` if that is unknown."""

_ON_HOST = ("cpu", "onnx", "sdaa")
"""Built-in targets with every kernel of ONNX Runtime, since they run on it (``cpu``: may run on it)."""


def trial_of(target: str) -> Trial:
    """Return the trial function of a target; raise TargetError if the target is unknown or cannot be loaded."""
    engine_class(target)
    if target in _ON_HOST and provider(target) == "built-in":
        from engine.backends import refusal

        return refusal
    return lambda model: _opened(target, model)


def _opened(target: str, model: ModelProto) -> str | None:
    """Open a model on a target's engine; raise TargetError if the target's packages or its device are missing."""
    from engine.onnx import save_model

    with tempfile.TemporaryDirectory(prefix="tecoinfer-") as folder:
        path = Path(folder) / "model.onnx"
        try:
            save_model(model, path)
            open_engine(target, EngineSpec(path, input_size=_fixed(model), divided=False)).release()
        except TargetError:
            raise
        except ConfigError:
            return None  # a dynamic size
        except TecoInferError as error:
            return str(error).replace(f"{path}: ", "")  # without the temporary path
    return ""


def _fixed(model: ModelProto) -> tuple[tuple[int, ...], ...] | None:
    """Return the shapes of a model's inputs; ``None`` without inputs or with a dynamic size."""
    from engine.onnx import graph_inputs, signature

    shapes = [spec.shape for spec in signature(model)[0]]
    fixed = tuple(tuple(size for size in shape if size) for shape in shapes)
    whole = all(len(found) == len(shape) for found, shape in zip(fixed, shapes, strict=True))
    return fixed if whole and graph_inputs(model) else None
