"""The contract of a backend: arrays in, arrays out.

A backend subclasses :class:`Engine`, calls :meth:`Engine.bind` in its constructor and writes :meth:`Engine.infer`;
checking, timing and the context manager live here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from engine.batching.batch import Ask, Batching
from engine.border import compute, compute_shards, each, name_of, settle
from engine.calls import Calls, follow_forks
from engine.host.cores import usable_cores
from engine.signature import Array, Dim, TensorSpec, as_list, batch_of
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
    """One loaded model on one target; subclasses :meth:`bind` and set ``metadata``, if known, in their constructor.

    ``inputs`` are in the caller's order. ``lead`` is the index of the input that sets the batch, ``batch_axis`` the
    dimension of it that is the batch, ``static_batch`` the batch the model is fixed to (``None``: any). ``run_time`` is
    the wall time in seconds of the last call. Engines are context managers; :meth:`release` is idempotent.

    ``independent`` says whether a sample's outputs depend on that sample alone: ``True``, ``False``, or ``None`` where
    it is not known yet or was never asked, as on targets that do not split a call. Who has to decide takes ``None`` for
    ``True``, which nearly all models are: an engine that splits asks before it does.
    """

    default_dtype: ClassVar[str] = "float32"
    dtypes: ClassVar[tuple[str, ...]] = DTYPES
    """Precisions this target takes."""
    simulated: ClassVar[bool] = False
    outputs_owned: ClassVar[bool] = False
    """Promise of ``infer``: what it returned is not written to again. Without it outputs are copied."""
    inputs_untouched: ClassVar[bool] = False
    """Promise: ``infer`` neither writes to its inputs nor reads them once it has returned. Else it gets copies."""
    concurrent_calls: ClassVar[bool] = False
    """Promise: any number of threads may be in ``infer`` at once; else at most ``streams`` are."""
    _foreign, _alone = True, False  # set by engine.border for each class
    inputs: list[TensorSpec] = _of_batching("inputs")
    outputs: list[TensorSpec] = _of_batching("outputs")
    lead: int = _of_batching("lead")
    batch_axis: int = _of_batching("batch_axis")
    static_batch: int | None = _of_batching("static_batch")
    independent: bool | None = _of_batching("independent")
    session: Any = None
    """The ONNX Runtime session of target ``onnx``, for scripts that ask it for names and shapes."""
    graph: ClassVar[Literal["", "file", "lowered"]] = ""
    """Which graph computes, for tools that show what is inside: the ``"file"``'s own, ``"lowered"`` onto the card
    (:mod:`engine.sdaa.lower`), or not known. Not inherited: a subclass may compute something else."""

    def __init__(self, spec: EngineSpec) -> None:
        if spec.dtype is not None and spec.dtype not in self.dtypes:
            raise ConfigError(
                f"{type(self).__name__} does not compute in {spec.dtype}; use one of: {', '.join(self.dtypes)}"
            )
        self.spec = spec
        self.dtype: str = spec.dtype or self.default_dtype
        self.batching = Batching(spec)
        """Which dimensions are the batch, and whether a call may be cut along them."""
        self.metadata: Mapping[str, str] = {}
        self.run_time = 0.0
        self.streams = 1
        """Calls that :meth:`run_async` computes side by side; a backend that can sets what its spec asks for."""
        self.timeline = Timeline()
        self._running = Calls(type(self).__name__)
        self._target = ""  # the name it was opened by, for errors
        follow_forks(self)
        self.agreement: Agreement | None = None
        """How near calibrated int8 is to float32; :func:`engine.open_engine` sees to it for engines that do not."""

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        settle(cls)

    @classmethod
    def opened(cls, spec: EngineSpec) -> Engine:
        """Return the engine for a spec: of this class, or of another one of its target that does what is asked for."""
        return cls(spec)

    @abstractmethod
    def infer(self, inputs: list[Array]) -> list[Array]:
        """Run the model on already checked arrays, one per input in model order; outputs come in the model's order."""

    def bind(
        self,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        shapes: Sequence[Sequence[Dim]],
        ask: Ask | None = None,
    ) -> None:
        """Take over the model's signature, in the caller's order of inputs, with dynamic dimensions bound.

        Args:
            inputs, outputs: the model's tensors, in the model's order.
            shapes: declared input shapes in the same order, dynamic dimensions by their symbol.
            ask: says where the batch is and whether samples are independent, given the batch axes that the caller
                knows, by input (:func:`engine.batching.independence.batching_of`); ``None`` guesses the former from the
                shapes.

        Raises:
            ConfigError: ``input_name``, ``input_size`` or ``dims`` of the spec does not fit the model.
        """
        self.batching = Batching(self.spec)
        self.spec = self.batching.bind(inputs, outputs, shapes, ask)

    @property
    def input_dtype(self) -> str:
        """Dtype that preprocessing should give the batched input, such as ``"float16"``."""
        return self.inputs[self.lead].dtype.name

    def describe(self) -> str:
        """Return one line that says what computes, for reports."""
        return f"{type(self).__name__} {self.dtype}" + (f"; {self.agreement.text}" if self.agreement else "")

    def close(self) -> None:  # noqa: B027 -- most backends hold nothing that needs freeing
        """Free what the backend holds; called once by :meth:`release`."""

    @property
    def released(self) -> bool:
        """Whether :meth:`release` was called."""
        return self._running.released

    @property
    def under_way(self) -> tuple[str, float] | None:
        """What messages call this engine, and when its oldest call began (``perf_counter``); ``None``: it has none."""
        since = self._running.oldest
        return None if since is None else (name_of(self), since)

    def release(self) -> None:
        """Free the engine's resources, after the calls under way; a second call does nothing.

        Calls in other threads end as they would have, after :meth:`cancel` sooner; queued ones are cancelled, and
        whoever calls from now on gets an :class:`EngineError`.
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
            inputs: arrays whose first dimension is the batch of the whole card, any number of samples.

        Returns:
            One array where the model has one output, a list of arrays in the model's output order otherwise.

        Raises:
            InputError: wrong number, shape or dtype of inputs, or an empty batch.
            EngineError: the backend failed, or the engine was released.
        """
        with self._running:
            arrays = self.batching.checked([inputs] if isinstance(inputs, np.ndarray) else as_list(inputs))
            results, start, end = compute(self, arrays)
        self.run_time = end - start
        self.timeline.add("engine", start, end, batch_of(arrays, self.batching.inputs))
        return results[0] if len(results) == 1 else results

    @property
    def queue(self) -> ThreadPoolExecutor:
        """The threads that run queued calls, one per stream, started on first use."""
        return self._running.queue(self.streams)

    def call_shards(self, shards: Sequence[Sequence[Array]]) -> list[list[Array]]:
        """Run what each SPA is to get, made by the caller, where samples cannot be split by rows.

        Args:
            shards: for each one array per input, as a call takes them: graphs packed into one, ragged batches. On the
                simulated card each has exactly the shape of a plan, one SPA's.

        Returns:
            For each shard one array per output, in the model's order; nothing is trimmed or put together.

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
            return self.batching.checked(as_list(shard))
        except InputError as error:
            raise InputError(f"shard {index}: {error}") from error

    def infer_shards(self, shards: list[list[Array]]) -> list[list[Array]]:
        """Run already checked shards, here one after another; a card runs them side by side."""
        infer = each(self, self.infer)
        return [infer(shard) for shard in shards]

    def run_async(self, inputs: Array | Sequence[Array]) -> Future[Array | list[Array]]:
        """Queue a call and return at once; calls start in the order they were queued, each as in :meth:`__call__`.

        With more than one stream they may end in another order. Do not mix them with plain calls of other threads.
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

    def device_seconds(self) -> list[float]:
        """Return the seconds each SPA has worked in calls so far: simulated on a simulated device.

        Elsewhere the list has one entry, the host's wall time in calls.
        """
        return [self.timeline.seconds("engine")]

    def device_report(self) -> dict[str, Any]:
        """Return what a device has to say of a run beyond the host's times; empty where there is none."""
        return {}
