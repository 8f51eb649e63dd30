"""The historical engine class for models exported from PyTorch; existing scripts run unchanged."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from engine.base import PASS_PATH, Array, ConfigError, Engine, EngineSpec, ModelError
from engine.batching.card_sizes import mixed_batches_message
from engine.built import SUFFIX, is_built
from engine.historical.declared import declare_shapes
from engine.historical.keywords import Timing, as_arrays, batch_of_call, card_of, names_of, shapes_of
from engine.registry import open_engine

BACKENDS = {"onnx": "onnxruntime", "cuda": "trt"}
"""``TecoInferEngine.backend`` by target; every other target has ``"tvm"``."""

ALIASES = {"gpu": "cuda"}  # historical target names, as in ``gpu:0`` of the Paddle scripts


class TecoInferEngine:
    """A model on a target, with the historical keywords.

    Args:
        task, model, model_name: labels of older versions; ``model`` is used as ``ckpt`` if that is missing.
        backend: accepted and ignored; ``target`` selects it.
        ckpt: path of the ONNX file, or of a built engine (``.tecoengine``, ``.engine``), whose precision is used then.
        batch_size: samples in one call to the whole card.
        input_size: a list of shapes, one per input, per SPA; required for dynamic dimensions.
        input_name: names of all inputs in the order a call lists them. Other names warn and are ignored.
        target: ``"sdaa"``, ``"onnx"``, ``"cuda"``, ... optionally with a device index (``"cuda:1"``).
        dtype: ``"float32"`` or ``"float16"``.
        save_engine: save the built engine beside the model, if the target builds one.
        devide, divided: split a call over every SPA of the card; ``False`` uses one.
        rank: index of the card.
        pass_path: file with optimisation passes; ``None`` uses ``default_pass.py``, or those of a saved engine.
        card_bs1: the call has one sample for the whole card, so one SPA is used.

    Positional arguments after ``card_bs1`` are ignored.

    ``run_time`` is the wall time in seconds of the last call; ``backend`` is ``"tvm"``, ``"onnxruntime"`` or ``"trt"``.
    """

    _caller: ClassVar[int] = 2  # stack level of the constructor's caller, for warnings

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
        *ignored: object,
        **unknown: object,
    ) -> None:
        if unknown:
            warnings.warn(
                f"TecoInferEngine ignores unknown keywords: {', '.join(sorted(unknown))}", stacklevel=self._caller
            )
        path = ckpt or model
        if path is None or path == "":
            raise ConfigError("TecoInferEngine needs ckpt, the path of an ONNX file")
        name, _, index = target.partition(":")
        self.task, self.model, self.model_name, self.input_name = task, model, model_name, input_name
        self.target = ALIASES.get(name, name)
        self.backend = BACKENDS.get(self.target, "tvm")
        self.model_path = str(path)
        built = is_built(path)
        if pass_path and built and not self.model_path.endswith(SUFFIX):
            text = f"{path} is a built engine with its passes applied; pass_path {pass_path} is ignored"
            warnings.warn(text, stacklevel=self._caller)
            pass_path = None
        self.spec = EngineSpec(
            ckpt=path,
            batch_size=batch_of_call(batch_size),
            input_size=shapes_of(input_size),
            input_name=names_of(input_name),
            dtype=None if built else dtype,
            pass_path=pass_path or (None if built else PASS_PATH / "default_pass.py"),
            rank=card_of(index or rank),
            save_engine=save_engine,
            divided=devide and divided and not card_bs1,
        )
        self._open(self.spec)
        if built and dtype != self.engine.dtype:
            warnings.warn(
                f"{path} is a built engine in {self.engine.dtype}; dtype {dtype} is ignored", stacklevel=self._caller
            )

    def _open(self, spec: EngineSpec) -> None:
        self.engine: Engine = _opened(self.target, spec)
        self.module = Timing(self.engine.device_seconds, self.engine.simulated)
        """Times of each SPA, by ``start_timing()`` and ``get_infer_time()``; simulated on the simulated card."""
        declare_shapes(spec.input_size)

    @property
    def run_time(self) -> float:
        """Wall time of the last call in seconds."""
        return self.engine.run_time

    @property
    def input_names(self) -> list[str]:
        """Names of the model's inputs, in the order a call lists them."""
        return [tensor.name for tensor in self.engine.inputs]

    @property
    def input_size(self) -> list[list[int | None]]:
        """Shapes of the inputs per SPA: those given, else the model's own with ``None`` for dynamic dimensions."""
        given = self.engine.spec.input_size or [tensor.shape for tensor in self.engine.inputs]
        return [list(shape) for shape in given]

    @property
    def batch_size(self) -> int:
        """Samples in one call to the whole card."""
        return self.engine.spec.batch_size

    @property
    def dtype(self) -> str:
        """Precision the engine computes in."""
        return self.engine.dtype

    @property
    def rank(self) -> int:
        """Index of the card."""
        return self.spec.rank

    @property
    def session(self) -> Any:
        """The ONNX Runtime session on target ``onnx``; ``None`` elsewhere, and after :meth:`release`."""
        return self.engine.session

    def __call__(self, inputs: Array | Sequence[Array], *_: object, **__: object) -> Array | list[Array]:
        """Run the model: one array for a model with one output, else a list in the model's output order.

        Args:
            inputs: an array, or one per input; or tensors of torch or Paddle. Other arguments are ignored.
        """
        return self.engine(as_arrays(inputs))

    def init_module(self, card: int = 0) -> None:
        """Open the engine on a card; reopen one that is open on another card, or was released.

        Raises:
            ConfigError: the card does not exist; an open engine stays open.
        """
        spec = replace(self.spec, rank=card_of(card))
        if spec.rank != self.rank or self.engine.released:
            before = self.engine
            self._open(spec)
            self.spec = spec
            before.release()

    def release(self) -> None:
        """Free the engine's resources; a second call does nothing."""
        self.engine.release()


def _opened(target: str, spec: EngineSpec) -> Engine:
    """Open an engine; replace the runtime's error if the script confused sizes."""
    try:
        return open_engine(target, spec)
    except ModelError as error:
        mixed = mixed_batches_message(spec)
        if mixed is None or "ShapeInferenceError" not in str(error):
            raise
        raise ConfigError(f"{spec.ckpt}: {mixed}") from error
