"""Asking a target itself: does it take a model of a single node?"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from engine import ConfigError, EngineSpec, TargetError, TecoInferError, engine_class, open_engine, provider

if TYPE_CHECKING:
    from onnx import ModelProto

Trial: TypeAlias = "Callable[[ModelProto], str | None]"
"""Returns why a target cannot run a model, "" where it can, and ``None`` where that cannot be told."""

_ON_HOST = ("cpu", "onnx", "sdaa")
"""Built-in targets that have every kernel ONNX Runtime has: they compute on it, or (``cpu``) may."""


def trial_of(target: str) -> Trial:
    """Return what asks a target.

    Raises:
        TargetError: there is no such target, or it cannot be loaded.
    """
    engine_class(target)
    if target in _ON_HOST and provider(target) == "built-in":
        from engine import refusal

        return refusal
    return lambda model: _opened(target, model)


def _opened(target: str, model: ModelProto) -> str | None:
    """Open a model on a target's engine.

    Raises:
        TargetError: the target's packages or its device are missing.
    """
    from engine.onnx import save_model

    with tempfile.TemporaryDirectory(prefix="tecoinfer-") as folder:
        path = Path(folder) / "model.onnx"
        try:
            save_model(model, path)
            open_engine(target, EngineSpec(path, input_size=_fixed(model), divided=False)).release()
        except TargetError:
            raise
        except ConfigError:
            return None  # an open size
        except TecoInferError as error:
            return str(error).replace(f"{path}: ", "")  # a file that nobody else knows
    return ""


def _fixed(model: ModelProto) -> tuple[tuple[int, ...], ...] | None:
    """Return the shapes of a model's inputs; ``None`` where it has none, or one of them has an open size."""
    from engine.onnx import graph_inputs, signature

    shapes = [spec.shape for spec in signature(model)[0]]
    fixed = tuple(tuple(size for size in shape if size) for shape in shapes)
    whole = all(len(found) == len(shape) for found, shape in zip(fixed, shapes, strict=True))
    return fixed if whole and graph_inputs(model) else None
