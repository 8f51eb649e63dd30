"""The base class of every backend: numpy arrays in, numpy arrays out.

A backend subclasses :class:`Engine`, calls :meth:`Engine.bind` in its constructor and implements :meth:`Engine.infer`;
checks, timing, queued calls, release and the context manager are implemented here.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from engine.batching.batch import Ask, Batching, Run, batch_of
from engine.foreign import complete_subclass, compute, compute_shards, lasting_results, name_of, raise_failure
from engine.host.cores import usable_cores
from engine.signature import Array, Dim, TensorSpec
from engine.spec import ALL_DTYPES, DTYPES, PASS_PATH, EngineSpec, engine_nums
from engine.timeline import Timeline
from tecoinfer_modelzoo.errors import (
    ConfigError,
    DataError,
    EngineError,
    InputError,
    ModelError,
    PassError,
    TargetError,
    TecoInferError,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future, ThreadPoolExecutor

    from typing_extensions import Self

    from engine.agreement import Agreement

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


def _of_batching(name: str) -> Any:
    """Return the property of an engine that is this attribute of its :class:`Batching`."""
    return property(attrgetter(f"batching.{name}"), lambda self, value: setattr(self.batching, name, value))


class Engine(ABC):
    """One loaded model on one target; subclasses :meth:`bind` and set ``metadata``, if any, in their constructor.

    ``inputs`` are in the caller's order. ``lead`` is the index of the input that sets the batch, ``batch_axis`` its
    batch dimension, ``static_batch`` the batch the model is fixed to (``None``: any). ``run_time`` is the wall time in
    seconds of the last call. Engines are context managers; :meth:`release` is idempotent.

    ``independent`` is whether a sample's outputs depend on that sample alone: ``True``, ``False``, or ``None`` if
    unknown, as on targets that do not split a call. Treat ``None`` as ``True``, which nearly all models are; an engine
    that splits calls determines it first.
    """

    default_dtype: ClassVar[str] = "float32"
    dtypes: ClassVar[tuple[str, ...]] = DTYPES  # precisions supported by this target
    simulated: ClassVar[bool] = False
    outputs_owned: ClassVar[bool] = False
    """Promise: arrays returned by ``infer`` are not written to again. If ``False``, outputs are copied."""
    inputs_untouched: ClassVar[bool] = False
    """Promise: ``infer`` neither writes to its inputs nor reads them after returning. If ``False``, it gets copies."""
    concurrent_calls: ClassVar[bool] = False
    """Promise: any number of threads may be in ``infer`` at once. If ``False``, at most ``streams`` are."""
    _foreign, _alone = True, False  # set by engine.foreign for each class
    inputs: list[TensorSpec] = _of_batching("inputs")
    outputs: list[TensorSpec] = _of_batching("outputs")
    lead: int = _of_batching("lead")
    batch_axis: int = _of_batching("batch_axis")
    static_batch: int | None = _of_batching("static_batch")
    independent: bool | None = _of_batching("independent")
    session: Any = None  # the ONNX Runtime session of target ``onnx``, for scripts that read names and shapes from it
    graph: ClassVar[Literal["", "file", "lowered", "marked"]] = ""
    """Which graph is computed, for tools that show its nodes: ``"file"`` (that of the file, on ONNX Runtime),
    ``"lowered"`` (that of :mod:`engine.sdaa.lower`), ``"marked"`` (that of the file, on this engine: tools open a copy
    with more outputs), or ``""`` (unknown). Not inherited: a subclass may compute another graph."""

    def __init__(self, spec: EngineSpec) -> None:
        if spec.dtype is not None and spec.dtype not in self.dtypes:
            raise ConfigError(
                f"{type(self).__name__} does not compute in {spec.dtype}; use one of: {', '.join(self.dtypes)}"
            )
        self.spec = spec
        self.dtype: str = spec.dtype or self.default_dtype
        self.batching = Batching(spec)  # which dimensions are the batch, and whether a call may be split along them
        self.metadata: Mapping[str, str] = {}
        self.run_time = 0.0
        self.streams = 1
        """Calls that :meth:`run_async` computes concurrently; set by backends that support ``spec.streams``."""
        self.timeline = Timeline()
        self._running = Calls(type(self).__name__)
        self._target = ""  # the name it was opened by, for errors
        _opened[id(self)] = self
        self.agreement: Agreement | None = None
        """Agreement of calibrated int8 with float32; set by :func:`engine.open_engine` if the engine does not."""

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        complete_subclass(cls)

    @classmethod
    def opened(cls, spec: EngineSpec) -> Engine:
        """Return the engine for a spec: of this class, or of another class of the same target that supports it."""
        return cls(spec)

    @abstractmethod
    def infer(self, inputs: list[Array]) -> list[Array]:
        """Run the model on checked arrays, one per input in model order; return one array per output in model order."""

    def bind(
        self,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        shapes: Sequence[Sequence[Dim]],
        ask: Ask | None = None,
    ) -> None:
        """Set the model's signature, in the caller's order of inputs, with dynamic dimensions bound.

        Args:
            inputs, outputs: the model's tensors, in the model's order.
            shapes: declared input shapes in the same order, dynamic dimensions by their symbol.
            ask: returns the batch axes and whether samples are independent, given the batch axes that the caller knows,
                by input (:func:`engine.batching.independence.batching_of`); ``None`` guesses the axes from the shapes.

        Raise ConfigError if ``input_name``, ``input_size`` or ``dims`` of the spec does not fit the model.
        """
        self.batching = Batching(self.spec)
        self.spec = self.batching.bind(inputs, outputs, shapes, ask)

    @property
    def input_dtype(self) -> str:
        """Dtype that preprocessing should give the batched input, such as ``"float16"``."""
        return self.inputs[self.lead].dtype.name

    def describe(self) -> str:
        """Return one line that describes the engine, for reports."""
        return f"{type(self).__name__} {self.dtype}" + (f"; {self.agreement.text}" if self.agreement else "")

    def close(self) -> None:  # noqa: B027 -- most backends hold nothing that needs freeing
        """Free the backend's resources; called once by :meth:`release`."""

    @property
    def released(self) -> bool:
        """Whether :meth:`release` was called."""
        return self._running.released

    @property
    def under_way(self) -> tuple[str, float] | None:
        """Name of the engine and start (``perf_counter``) of its oldest running call; ``None`` if there is none."""
        since = self._running.oldest
        return None if since is None else (name_of(self), since)

    def release(self) -> None:
        """Free the engine's resources after the running calls; a second call does nothing.

        Running calls of other threads complete, sooner after :meth:`cancel`; queued and later ones raise
        :class:`EngineError`.
        """
        if self._running.release():
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __call__(self, inputs: Array | Sequence[Array]) -> Array | list[Array]:
        """Run the model on one array, or on one array per input.

        Args:
            inputs: arrays whose batch dimension is the batch of the whole card, any number of samples.

        Returns:
            One array if the model has one output, else a list of arrays in the model's output order.

        Raises:
            InputError: wrong number, shape or dtype of inputs, or an empty batch.
            EngineError: the backend failed, or the engine was released.
        """
        with self._running:
            arrays = self.batching.checked([inputs] if isinstance(inputs, np.ndarray) else inputs)
            if self._foreign:
                results, start, end = compute(self, arrays)
            else:
                start = time.perf_counter()
                try:
                    results = self.infer(arrays)
                except BaseException as error:  # noqa: BLE001 - native runtimes raise types of their own
                    raise_failure(self, error)
                end = time.perf_counter()
            samples = batch_of(arrays, self.batching.inputs)
        self.run_time = end - start
        self.timeline.add("engine", start, end, samples)
        return results[0] if len(results) == 1 else results

    @property
    def queue(self) -> ThreadPoolExecutor:
        """The threads that run queued calls, one per stream, started on first use."""
        return self._running.queue(self.streams)

    def call_shards(self, shards: Sequence[Sequence[Array]]) -> list[list[Array]]:
        """Run shards made by the caller, one per SPA, for models whose samples cannot be split by rows.

        Args:
            shards: each a list of one array per input, as a call takes them: graphs packed into one, ragged batches. On
                the simulated card each has the shape of a plan for one SPA.

        Returns:
            For each shard one array per output, in the model's order; nothing is trimmed or concatenated.

        Raises:
            InputError: no shards, or one whose arrays do not fit.
            EngineError: the backend failed, or the engine was released.
        """
        if not isinstance(shards, (list, tuple)) or not shards:
            raise InputError("call_shards() got no shards; pass a list of shards, each a list of one array per input")
        with self._running:
            checked = [self._checked_shard(i, shard) for i, shard in enumerate(shards)]
            results, start, end = compute_shards(self, checked)
        self.run_time = end - start
        self.timeline.add("engine", start, end, sum(batch_of(shard, self.inputs) for shard in checked))
        return results

    def _checked_shard(self, index: int, shard: Sequence[Array]) -> list[Array]:
        try:
            return self.batching.checked(shard)
        except InputError as error:
            raise InputError(f"shard {index}: {error}") from error

    def _lasting(self, run: Run) -> Run:
        """Return a function of the backend that computes one piece of a call, its results copied where necessary."""
        return lasting_results(self, run)

    def infer_shards(self, shards: list[list[Array]]) -> list[list[Array]]:
        """Run checked shards, here in sequence; a card runs them in parallel."""
        infer = self._lasting(self.infer)
        return [infer(shard) for shard in shards]

    def run_async(self, inputs: Array | Sequence[Array]) -> Future[Array | list[Array]]:
        """Queue a call and return at once; calls start in the order they were queued, each as in :meth:`__call__`.

        With several streams they may complete in another order. Do not mix them with plain calls of other threads.
        """
        return self.queue.submit(self, inputs)

    def cancel(self) -> None:  # noqa: B027 -- a backend whose calls cannot be stopped lets them complete
        """Stop running calls from another thread; they raise, and the engine can only be released afterwards."""

    @property
    def calibration_samples(self) -> int:
        """Number of real samples :meth:`calibrate` needs before the engine can run; 0 for most engines."""
        return 0

    def calibrate(self, samples: Iterable[list[Array]]) -> None:
        """Choose the ranges of an int8 engine from real inputs.

        Args:
            samples: for every batch of samples one float array per input, as :meth:`__call__` takes them; together
                :attr:`calibration_samples` samples, or all there are.
        """
        raise EngineError(f"{type(self).__name__} needs no calibration; do not call calibrate()")

    def device_seconds(self) -> list[float]:
        """Return the seconds each SPA worked in calls so far (simulated); elsewhere one entry, the wall time."""
        return [self.timeline.seconds("engine")]

    def device_report(self) -> dict[str, Any]:
        """Return figures of a device beyond wall times; empty for targets without a device."""
        return {}


class Calls:
    """The running and queued calls of one engine (``name``: its class, for errors); each call is a ``with`` block."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()
        self._depth: dict[int, int] = {}  # nested running calls by thread
        self._since: dict[int, float] = {}  # start of the outermost of them, in seconds of ``time.perf_counter``
        self._queue: ThreadPoolExecutor | None = None
        self._slots: threading.Semaphore | None = None
        self._refusal = ""  # why no further call may start; empty while calls may
        self.released = False  # whether :meth:`release` was called
        self.inherited = False  # whether the engine was opened in a process of which this one is a fork

    def __enter__(self) -> None:
        """Start a call; raise EngineError if the engine was released, or was in use when this process was forked."""
        mine = threading.get_ident()
        with self._changed:
            if self._refusal:
                raise EngineError(self._refusal)
            depth = self._depth.get(mine, 0)
            if not depth:
                self._since[mine] = time.perf_counter()
            self._depth[mine] = depth + 1

    def __exit__(self, *_: object) -> None:
        mine = threading.get_ident()
        with self._changed:
            self._depth[mine] -= 1
            if not self._depth[mine]:
                del self._depth[mine], self._since[mine]
                self._changed.notify_all()

    @property
    def oldest(self) -> float | None:
        """Start of the call that has been running longest (``time.perf_counter``); ``None`` if there is none."""
        return min(self._since.copy().values(), default=None)

    @contextmanager
    def computing(self, most: int) -> Iterator[None]:
        """Wait until fewer than ``most`` calls of other threads compute, and count as one; nested ones do not wait."""
        if self._depth[threading.get_ident()] > 1:
            yield
            return
        with self._changed:
            if self._slots is None:
                self._slots = threading.Semaphore(max(1, most))
            slots = self._slots
        with slots:
            yield

    def queue(self, threads: int) -> ThreadPoolExecutor:
        """Return the threads of queued calls, started on first use; raise EngineError, as submitting then does."""
        from concurrent.futures import ThreadPoolExecutor

        calls = self

        class Queue(ThreadPoolExecutor):
            def submit(self, call: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
                try:
                    return super().submit(call, *args, **named)
                except RuntimeError as error:  # it is shut down
                    raise EngineError(calls._refusal or f"{calls._name}: the interpreter ends") from error

        with self._changed:
            if self._refusal:
                raise EngineError(self._refusal)
            if self._queue is None:
                self._queue = Queue(threads, thread_name_prefix="engine")
            return self._queue

    def release(self) -> bool:
        """Refuse further calls, cancel queued ones, and wait for those of other threads.

        Return whether resources may be freed: first release, and not opened by the parent of a fork.
        """
        mine = threading.get_ident()
        with self._changed:
            if self.released:
                return False
            self.released = True
            self._refusal = f"{self._name} was used after release(); open a new engine"
            calling = mine in self._depth  # a call that releases its own engine does not wait for itself
        if self._queue is not None:
            self._queue.shutdown(wait=not calling, cancel_futures=True)
        with self._changed:
            self._changed.wait_for(lambda: not self._depth.keys() - {mine})
        return not self.inherited

    def forked(self) -> None:
        """Remove, in a forked child, calls of threads it lacks; if any, refuse others: its state is unknown."""
        mine = threading.get_ident()
        self._changed, self._queue, self._slots, self.inherited = threading.Condition(), None, None, True
        if self._depth.keys() - {mine} and not self.released:
            self._refusal = (
                f"{self._name} was computing in another thread when this process was forked; open it again here"
            )
        self._depth = {mine: self._depth[mine]} if mine in self._depth else {}
        self._since = {mine: self._since[mine]} if mine in self._since else {}


_opened: weakref.WeakValueDictionary[int, Engine] = weakref.WeakValueDictionary()
"""Engines of this process, by id: their class may not be hashable."""


def _in_child() -> None:
    """Make the engines usable in a child of a fork, unless another thread was computing on them."""
    engines = list(_opened.values())
    for engine in engines:
        engine._running.forked()
        engine.timeline.forked()
    if engines:
        import ctypes

        # Destructors of native runtimes wait for threads that the child does not have, at its exit at the latest.
        for engine in engines:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(engine))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
