"""The historical face of the engines for models exported from PyTorch, kept so that existing scripts run unchanged."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from numbers import Integral
from typing import Any

from engine.base import PASS_PATH, Array, ConfigError, Engine, EngineSpec
from engine.declared import declare_shapes
from engine.registry import open_engine

BACKENDS = {"onnx": "onnxruntime", "cuda": "trt"}
"""What ``TecoInferEngine.backend`` says for a target; every other target says ``"tvm"``."""

ALIASES = {"gpu": "cuda"}
"""Historical target names, as in ``gpu:0`` of the Paddle scripts."""


class TecoInferEngine:
    """A model on a target, by the historical keywords.

    Args:
        task, model, model_name: labels of older versions; ``model`` serves as ``ckpt`` where that is missing.
        backend: accepted and ignored: the target decides.
        ckpt: path of the ONNX file.
        batch_size: samples in one call to the whole card.
        input_size: a list of shapes, one per input, per SPA; needed where the model has dynamic dimensions.
        input_name: name of the input, or a list of names.
        target: ``"sdaa"``, ``"onnx"``, ``"cuda"``, ... optionally with a device index (``"cuda:1"``).
        dtype: ``"float32"`` or ``"float16"``.
        save_engine: keep the built engine beside the model, where the target builds one.
        devide, divided: split a call over every SPA of the card; ``False`` uses one.
        rank: index of the card.
        pass_path: file with optimisation passes; ``None`` takes ``default_pass.py``, and for a saved engine its own.
        card_bs1: the call carries one sample for the whole card, so one SPA is used.

    ``run_time`` is the wall time in seconds of the last call; ``backend`` is ``"tvm"``, ``"onnxruntime"`` or ``"trt"``.
    """

    def __init__(
        self,
        task: str | None = None,
        model: str | os.PathLike[str] | None = None,
        backend: str | None = None,
        ckpt: str | os.PathLike[str] | None = None,
        batch_size: int | None = None,
        input_size: Sequence[Any] | None = None,
        input_name: str | Sequence[str] | None = "",
        target: str = "sdaa",
        dtype: str = "float32",
        save_engine: bool = False,
        devide: bool = True,
        rank: int = 0,
        pass_path: str | os.PathLike[str] | None = None,
        model_name: str | None = None,
        divided: bool = True,
        card_bs1: bool = False,
        **unknown: object,
    ) -> None:
        if unknown:
            warnings.warn(f"TecoInferEngine ignores unknown keywords: {', '.join(sorted(unknown))}", stacklevel=2)
        path = ckpt or model
        if path is None or path == "":
            raise ConfigError("TecoInferEngine needs ckpt, the path of an ONNX file")
        name, _, index = target.partition(":")
        self.task, self.model, self.model_name = task, model, model_name
        self.target = ALIASES.get(name, name)
        self.backend = BACKENDS.get(self.target, "tvm")
        self.model_path = str(path)
        self.spec = EngineSpec(
            ckpt=path,
            batch_size=batch_size or 1,
            input_size=_shapes(input_size),
            input_name=_names(input_name),
            dtype=dtype,
            pass_path=_pass(pass_path, path),
            rank=int(index) if index.isdigit() else max(rank, 0),
            save_engine=save_engine,
            divided=devide and divided and not card_bs1,
        )
        self.engine: Engine = open_engine(self.target, self.spec)
        declare_shapes(self.spec.input_size)

    @property
    def run_time(self) -> float:
        """Wall time of the last call in seconds."""
        return self.engine.run_time

    def __call__(self, inputs: Array | Sequence[Array], *_: object, **__: object) -> Array | list[Array]:
        """Run the model: one array for a model with one output, a list in the model's output order otherwise."""
        return self.engine(inputs)

    def release(self) -> None:
        """Free the engine's resources; a second call does nothing."""
        self.engine.release()


def _shapes(input_size: Sequence[Any] | None) -> tuple[tuple[int | None, ...], ...] | None:
    """Accept a list of shapes and, for one input, a bare shape; ``None`` in a shape leaves it to the model."""
    if not input_size:
        return None
    shapes = [input_size] if input_size[0] is None or isinstance(input_size[0], Integral) else input_size
    return tuple(tuple(None if d is None else int(d) for d in shape) for shape in shapes)


def _pass(pass_path: str | os.PathLike[str] | None, ckpt: object) -> str | os.PathLike[str] | None:
    if pass_path:
        return pass_path
    return None if str(ckpt).endswith(".tecoengine") else PASS_PATH / "default_pass.py"


def _names(input_name: str | Sequence[str] | None) -> tuple[str, ...]:
    if not input_name:
        return ()
    return (input_name,) if isinstance(input_name, str) else tuple(input_name)
