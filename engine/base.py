"""The contract of a backend: arrays in, arrays out.

A backend subclasses :class:`Engine`, calls :meth:`Engine.bind` in its constructor and writes :meth:`Engine.infer`;
checking, timing and the context manager live here.
"""

from __future__ import annotations

import os
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from engine.cores import usable_cores
from engine.errors import (
    ConfigError,
    DataError,
    EngineError,
    InputError,
    ModelError,
    PassError,
    TargetError,
    TecoInferError,
)
from engine.signature import Array, Dim, TensorSpec, batch_flags, batch_of, bind_sizes, fits, input_order
from engine.timeline import Timeline

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from typing_extensions import Self

__all__ = [
    "ALL_DTYPES",
    "DTYPES",
    "PASS_PATH",
    "Array",
    "ConfigError",
    "DataError",
    "Engine",
    "EngineError",
    "EngineSpec",
    "InputError",
    "ModelError",
    "PassError",
    "TargetError",
    "TecoInferError",
    "TensorSpec",
    "engine_nums",
    "usable_cores",
]

PASS_PATH = Path(__file__).resolve().parent / "passes"
"""Folder of the optimisation passes a model can choose (``PASS_PATH / "default_pass.py"``)."""

DTYPES = ("float32", "float16")
"""Precisions every target understands."""

ALL_DTYPES = (*DTYPES, "bfloat16", "int8")
"""Precisions any target understands; :attr:`Engine.dtypes` says which a target takes."""

MAX_SPA = 8
"""Largest accepted ``MAX_ENGINE_NUMS``; real cards are configured with 3 or 4."""


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """What to open: the model and how it is to run.

    Attributes:
        ckpt: path of the ONNX file.
        batch_size: samples in one call to the whole card.
        input_size: one shape per model input, *per SPA*, to bind dynamic dimensions; ``None`` keeps the model's own.
        input_name: names of the inputs in the order the caller passes them; empty keeps the model's order.
        dtype: ``"float32"`` or ``"float16"``, and where the target takes them ``"bfloat16"`` or ``"int8"``; ``None``
            takes the target's own default.
        pass_path: Python file with optimisation passes; ``None`` runs the model as it is.
        rank: index of the card (device) to use.
        save_engine: keep the built engine beside the model, where the target builds one.
        divided: split a call over every SPA of the card; ``False`` uses a single one.
        streams: calls that may compute side by side (:meth:`Engine.run_async`), on targets that can; an engine on the
            host then computes each call with its share of the cores. 1 gives every call all of them.
        calibration: real samples from which an ``"int8"`` engine chooses its ranges (:meth:`Engine.calibrate`).
        simulate_only: on a simulated device, compute no values (outputs are zeros), only what they would cost.
    """

    ckpt: Path
    batch_size: int = 1
    input_size: tuple[tuple[int, ...], ...] | None = None
    input_name: tuple[str, ...] = ()
    dtype: str | None = None
    pass_path: Path | None = None
    rank: int = 0
    save_engine: bool = False
    divided: bool = True
    streams: int = 1
    calibration: int = 128
    simulate_only: bool = False

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ConfigError(f"batch_size {self.batch_size} must be at least 1")
        if self.streams < 1:
            raise ConfigError(f"streams {self.streams} must be at least 1")
        if self.calibration < 1:
            raise ConfigError(f"calibration {self.calibration} must be at least 1 sample")
        if self.dtype is not None and self.dtype not in ALL_DTYPES:
            raise ConfigError(f"unknown dtype {self.dtype!r}; use one of: {', '.join(ALL_DTYPES)}")
        for shape in self.input_size or ():
            if any(not isinstance(d, int) or d < 0 for d in shape):  # whether a 0 fits is for the model to say
                raise ConfigError(f"input_size {list(shape)} must hold positive whole numbers")
        if self.pass_path is not None and not self.pass_path.is_file():
            known = sorted(str(p.relative_to(PASS_PATH)) for p in PASS_PATH.rglob("*_pass.py"))
            raise PassError(
                f"pass file {self.pass_path} does not exist; the zoo's own are in {PASS_PATH}: {', '.join(known)}"
            )


def engine_nums() -> int:
    """Return how many SPA a card has, from ``MAX_ENGINE_NUMS`` (default 4; 1 to 8).

    Raises:
        ConfigError: the variable is not a whole number from 1 to 8.
    """
    text = os.environ.get("MAX_ENGINE_NUMS", "4")
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MAX_SPA:
        raise ConfigError(
            f"environment variable MAX_ENGINE_NUMS={text!r} must be a whole number from 1 to {MAX_SPA} "
            "(real cards: 3 or 4)"
        )
    return int(text)


class Engine(ABC):
    """One loaded model on one target.

    Subclasses call :meth:`bind` and, where they know it, set ``metadata`` before returning from their constructor.
    ``inputs`` are in the caller's order. ``lead`` is the index of the input that sets the batch, ``static_batch`` the
    batch the model is fixed to (``None``: any). ``run_time`` is the wall time in seconds of the last call. Engines are
    context managers; :meth:`release` is idempotent.
    """

    default_dtype: ClassVar[str] = "float32"
    dtypes: ClassVar[tuple[str, ...]] = DTYPES
    """Precisions this target takes."""
    simulated: ClassVar[bool] = False

    def __init__(self, spec: EngineSpec) -> None:
        if spec.dtype is not None and spec.dtype not in self.dtypes:
            raise ConfigError(
                f"{type(self).__name__} does not compute in {spec.dtype}; use one of: {', '.join(self.dtypes)}"
            )
        self.spec = spec
        self.dtype: str = spec.dtype or self.default_dtype
        self.inputs: list[TensorSpec] = []
        self.outputs: list[TensorSpec] = []
        self.lead = 0
        self.static_batch: int | None = None
        self.metadata: Mapping[str, str] = {}
        self.run_time = 0.0
        self.streams = 1
        """Calls that :meth:`run_async` computes side by side; a backend that can sets what its spec asks for."""
        self.timeline = Timeline()
        self._queue: ThreadPoolExecutor | None = None
        self._released = False
        self._warned: set[str] = set()

    @abstractmethod
    def infer(self, inputs: list[Array]) -> list[Array]:
        """Run the model on already checked arrays, one per input in model order; outputs come in the model's order."""

    def bind(
        self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], shapes: Sequence[Sequence[Dim]]
    ) -> None:
        """Take over the model's signature, in the caller's order of inputs, with dynamic dimensions bound.

        Args:
            inputs, outputs: the model's tensors, in the model's order.
            shapes: declared input shapes in the same order, dynamic dimensions by their symbol.

        Raises:
            ConfigError: ``input_name`` or ``input_size`` of the spec does not fit the model.
        """
        if self.spec.input_size is not None and len(self.spec.input_size) != len(inputs):
            raise ConfigError(
                f"{self.spec.ckpt}: input_size has {len(self.spec.input_size)} shapes, "
                f"the model takes {len(inputs)} inputs"
            )
        order = input_order([spec.name for spec in inputs], self.spec.input_name, self.spec.ckpt)
        sizes = self.spec.input_size and [self.spec.input_size[order.index(i)] for i in range(len(inputs))]
        flags = batch_flags(shapes, sizes)  # in the model's order: how the caller lists the inputs says nothing
        bound = [replace(inputs[i], batched=flags[i]) for i in order]
        if self.spec.input_size is not None:
            bound = bind_sizes(bound, self.spec.input_size, self.spec.ckpt)
        self.inputs, self.outputs = bound, list(outputs)
        self.lead = order.index(flags.index(True)) if any(flags) else 0
        self.static_batch = bound[self.lead].shape[0] if any(flags) else None

    @property
    def input_dtype(self) -> str:
        """Dtype that preprocessing should give the batched input, such as ``"float16"``."""
        return self.inputs[self.lead].dtype.name

    def describe(self) -> str:
        """Return one line that says what computes, for reports."""
        return f"{type(self).__name__} {self.dtype}"

    def close(self) -> None:  # noqa: B027 -- most backends hold nothing that needs freeing
        """Free what the backend holds; called once by :meth:`release`."""

    def release(self) -> None:
        """Free the engine's resources; a second call does nothing."""
        if not self._released:
            self._released = True
            if self._queue is not None:
                self._queue.shutdown(cancel_futures=True)
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __call__(self, inputs: Array | Sequence[Array]) -> Array | list[Array]:
        """Run the model on one array, or on one array per input.

        Args:
            inputs: arrays whose first dimension is the batch of the whole card, any number of samples.

        Returns:
            One array where the model has one output, a list of arrays in the model's output order otherwise.

        Raises:
            InputError: wrong number, shape or dtype of inputs, or an empty batch.
            EngineError: the backend failed, or the engine was released.
        """
        if self._released:
            raise EngineError(f"{type(self).__name__} was used after release(); open a new engine")
        arrays = self._checked([inputs] if isinstance(inputs, np.ndarray) else _as_list(inputs))
        start = time.perf_counter()
        results = self.infer(arrays)
        end = time.perf_counter()
        self.run_time = end - start
        self.timeline.add("engine", start, end, batch_of(arrays, self.inputs))
        return results[0] if len(results) == 1 else results

    @property
    def queue(self) -> ThreadPoolExecutor:
        """The threads that run queued calls, one per stream, started on first use."""
        from concurrent.futures import ThreadPoolExecutor

        if self._queue is None:
            self._queue = ThreadPoolExecutor(self.streams, thread_name_prefix="engine")
        return self._queue

    def run_async(self, inputs: Array | Sequence[Array]) -> Future[Array | list[Array]]:
        """Queue a call and return at once; calls start in the order they were queued, each as in :meth:`__call__`.

        With more than one stream they may end in another order. Do not mix with plain calls from other threads while
        queued ones are under way.
        """
        return self.queue.submit(self, inputs)

    def cancel(self) -> None:  # noqa: B027 -- a backend whose calls cannot be stopped lets them end
        """Stop the calls that are under way as soon as possible; they raise, and the engine is only good for release.

        Called from another thread when the user interrupts a run.
        """

    @property
    def calibration_samples(self) -> int:
        """How many real samples the engine still needs (:meth:`calibrate`) before it can run; 0 for most engines."""
        return 0

    def calibrate(self, samples: Iterable[list[Array]]) -> None:
        """Take in real inputs, as an int8 engine needs them to choose its ranges.

        Args:
            samples: for every batch of samples one float array per input, as :meth:`__call__` takes them; together
                :attr:`calibration_samples` samples, or all there are.
        """
        raise EngineError(f"{type(self).__name__} needs no calibration; do not call calibrate()")

    def device_report(self) -> dict[str, Any]:
        """Return what a device has to say of a run beyond the host's times; empty where there is none."""
        return {}

    def _checked(self, arrays: list[Array]) -> list[Array]:
        """Return the arrays in the dtypes the model takes; raise on a count, shape or dtype that cannot fit."""
        if len(arrays) != len(self.inputs):
            names = ", ".join(spec.name for spec in self.inputs)
            raise InputError(
                f"{self.spec.ckpt}: got {len(arrays)} input arrays, the model takes {len(self.inputs)}: {names}"
            )
        batch = 0
        for index, spec in enumerate(self.inputs):
            array = arrays[index]
            if not isinstance(array, np.ndarray):
                raise InputError(
                    f"input {spec.name!r} is a {type(array).__name__}, not a numpy array; use np.asarray(...)"
                )
            if array.dtype != spec.dtype:
                arrays[index] = array = self._cast(array, spec)
            shape = array.shape
            if not fits(shape, spec):
                self._refuse_shape(array, spec)
            if spec.batched:
                if batch and shape[0] != batch:
                    raise InputError(f"input {spec.name!r} has {shape[0]} samples, the inputs before it have {batch}")
                batch = shape[0]
        return arrays

    def _cast(self, array: Array, spec: TensorSpec) -> Array:
        """Cast within a kind of dtype; narrowing floats warns once per input, another kind is an error."""
        if array.dtype.kind != spec.dtype.kind or (spec.dtype.kind != "f" and not np.can_cast(array.dtype, spec.dtype)):
            raise InputError(
                f"input {spec.name!r} has dtype {array.dtype}, the model takes {spec.dtype}; "
                f"use array.astype(np.{spec.dtype})"
            )
        if not np.can_cast(array.dtype, spec.dtype) and spec.name not in self._warned:
            self._warned.add(spec.name)
            warnings.warn(
                f"input {spec.name!r}: {array.dtype} cast to the model's {spec.dtype}; "
                f"preprocess to {spec.dtype} to save the copy",
                stacklevel=4,
            )
        with np.errstate(over="ignore"):  # a value beyond the narrower range becomes inf, as on the device
            return array.astype(spec.dtype)

    def _refuse_shape(self, array: Array, spec: TensorSpec) -> None:
        want = "x".join("N" if d is None else str(d) for d in spec.shape) or "scalar"
        got = "x".join(map(str, array.shape)) or "scalar"
        if 0 in array.shape:
            raise InputError(
                f"input {spec.name!r} has shape {got}: an empty batch cannot be run; pass at least one sample"
            )
        raise InputError(
            f"input {spec.name!r} has shape {got}, the model takes {want}; check the preprocessing or input_size"
        )


def _as_list(inputs: Sequence[Array]) -> list[Array]:
    """Take a list or tuple of arrays; iterating over anything else (a torch tensor, say) would take it apart."""
    if not isinstance(inputs, (list, tuple)):
        raise InputError(f"inputs are a {type(inputs).__name__}, not numpy arrays; use np.asarray(...) or .numpy()")
    return list(inputs)
