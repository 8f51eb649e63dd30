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
    from engine.onnx import graph_inputs, save_model, signature

    try:
        shapes = [spec.shape for spec in signature(model)[0]]
        fixed = tuple(tuple(d for d in shape if d) for shape in shapes)
        whole = bool(graph_inputs(model)) and all(len(a) == len(b) for a, b in zip(fixed, shapes, strict=True))
        with tempfile.TemporaryDirectory(prefix="tecoinfer-") as folder:
            path = Path(folder) / "model.onnx"
            save_model(model, path)
            open_engine(target, EngineSpec(path, input_size=fixed if whole else None, divided=False)).release()
    except TargetError:
        raise
    except ConfigError:
        return None  # an open size
    except TecoInferError as error:
        return str(error)
    return ""
