"""The contract of a backend: arrays in, arrays out.

A backend subclasses :class:`Engine`, calls :meth:`Engine.bind` in its constructor and writes :meth:`Engine.infer`;
checking, timing and the context manager live here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn

import numpy as np

from engine.border import compute, compute_shards, each, name_of, settle
from engine.calls import Calls, follow_forks
from engine.card_sizes import per_spa
from engine.dims import Places, call_sizes, check_dims, wrong_shape
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
from engine.host.cores import usable_cores
from engine.signature import (
    Array,
    BatchAxes,
    Dim,
    Signature,
    TensorSpec,
    as_list,
    batch_axes,
    batch_of,
    cast_to,
    fits,
    input_order,
)
from engine.spec import ALL_DTYPES, DTYPES, PASS_PATH, EngineSpec, engine_nums
from engine.timeline import Timeline

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from typing_extensions import Self

    from engine.agreement import Agreement
    from engine.shard import Run

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
        self.inputs: list[TensorSpec] = []
        self.outputs: list[TensorSpec] = []
        self.lead = self.batch_axis = 0
        self.static_batch: int | None = None
        self.independent: bool | None = None
        self.metadata: Mapping[str, str] = {}
        self.run_time = 0.0
        self.streams = 1
        """Calls that :meth:`run_async` computes side by side; a backend that can sets what its spec asks for."""
        self.timeline = Timeline()
        self._running = Calls(type(self).__name__)
        self._target = ""  # the name it was opened by, for errors
        follow_forks(self)
        self._warned: set[str] = set()
        self.batching: BatchAxes | None = None
        """What the graph says of the batch, where it was asked."""
        self._signature: Signature | None = None
        self._places: Places = {}
        self._asked = False
        self.why_dependent = ""
        """Why samples depend on one another, or why that is not known."""
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
        ask: Callable[[Mapping[str, int]], BatchAxes] | None = None,
    ) -> None:
        """Take over the model's signature, in the caller's order of inputs, with dynamic dimensions bound.

        Args:
            inputs, outputs: the model's tensors, in the model's order.
            shapes: declared input shapes in the same order, dynamic dimensions by their symbol.
            ask: says where the batch is and whether samples are independent, given the batch axes that the caller
                knows, by input (:func:`engine.independence.batching_of`); ``None`` guesses the former from the shapes.

        Raises:
            ConfigError: ``input_name``, ``input_size`` or ``dims`` of the spec does not fit the model.
        """
        order = input_order([spec.name for spec in inputs], self.spec.input_name, self.spec.ckpt)
        found = [shapes[i] for i in order]
        self.spec = self.spec.with_shapes([len(shape) for shape in found]).with_pictures(found).with_open_sizes(found)
        self.spec = per_spa(self.spec, found)
        self._signature = Signature(inputs, outputs, shapes, order)
        if ask is not None:
            self.take_batching(ask(self._known_axes()))
        else:
            self._take_axes(batch_axes(shapes, self._sizes_in_order(), self.spec.dims), None)

    def _sizes_in_order(self) -> Sequence[Sequence[int | None]] | None:
        """Return ``input_size`` in the model's order: how the caller lists the inputs says nothing of the batch."""
        if self.spec.input_size is None or self._signature is None:
            return None
        order = self._signature.order
        return [self.spec.input_size[order.index(i)] for i in range(len(order))]

    def _known_axes(self) -> dict[str, int]:
        """Return the batch axes that ``input_size`` tells: dimensions of several symbols bound to one size."""
        if self._signature is None:
            return {}
        shapes = self._signature.shapes
        told = batch_axes(shapes, self._sizes_in_order(), self.spec.dims)
        if told == batch_axes(shapes, None, self.spec.dims):
            return {}
        both = zip(self._signature.inputs, told, strict=True)
        return {tensor.name: axis for tensor, axis in both if axis is not None}

    def _take_axes(self, axes: Sequence[int | None], output_axes: Sequence[int | None] | None) -> None:
        """Set inputs and outputs for these batch axes, which are in the model's order."""
        if self._signature is None:
            return
        self.inputs, self.outputs, lead = self._signature.bound(axes, output_axes, self.spec)
        self.lead, self.batch_axis = lead or (0, 0)
        self.static_batch = self.inputs[self.lead].shape[self.batch_axis] if lead else None
        self._places = check_dims(self.spec.dims, self.inputs, self.spec.ckpt)

    def learn_batching(self) -> None:
        """Ask the graph which dimensions are the batch and whether samples are independent; it is read once.

        That takes as long as reading the model does, so engines ask only where the answer matters. A file that is no
        ONNX model (a plan of TensorRT's) says nothing.

        Raises:
            ConfigError: ``input_size`` or ``dims`` of the spec does not fit what was found.
        """
        if self._asked or self._signature is None:
            return
        self._asked = True  # also where nothing is found
        from engine.independence import batching_of
        from engine.onnx.load import load_model

        try:
            model = load_model(self.spec.ckpt)
        except ModelError:
            return
        dtypes = {tensor.name: tensor.dtype for tensor in (*self.inputs, *self.outputs)}
        self.take_batching(batching_of(model, self._known_axes()))
        self.inputs = [replace(tensor, dtype=dtypes[tensor.name]) for tensor in self.inputs]
        self.outputs = [replace(tensor, dtype=dtypes[tensor.name]) for tensor in self.outputs]

    def take_batching(self, found: BatchAxes) -> None:
        """Take over what a graph says of the batch of its inputs and outputs, in the model's order."""
        if self._signature is not None:
            found = found.without(self._signature.shapes, self.spec.dims)
        self._asked, self.batching = True, found
        self._take_axes(found.inputs, found.outputs)
        # With a batch of 1 a sample never meets another one.
        self.independent = True if self.static_batch == 1 else found.independent
        self.why_dependent = found.reason

    def in_pieces(self, run: Run, inputs: list[Array], size: int) -> list[Array]:
        """Run a call on a model, or a plan, of exactly ``size`` samples: in padded pieces, if its samples allow it.

        Args:
            run: computes ``size`` samples. inputs: a checked call of another number of samples.

        Raises:
            EngineError: the samples depend on one another.
        """
        from engine.independence import compare_with_changed, tells
        from engine.shard import run_sharded

        if not self._asked:
            self.learn_batching()
            return self.infer(self._checked(inputs))  # another dimension may be the batch than was guessed
        run = each(self, run)
        if self.independent is None and size > 1 and tells(inputs, self.inputs):
            self.why_dependent = compare_with_changed(run, inputs, self.inputs, self.outputs, size)
            self.independent = not self.why_dependent
        if self.independent is False:
            self._refuse_pieces(batch_of(inputs, self.inputs), size)
        return run_sharded(run, inputs, self.inputs, self.outputs, size, owned=True)

    def _refuse_pieces(self, total: int, size: int) -> NoReturn:
        if self.static_batch is None:
            limit, fix = f"a run takes at most {size} samples", f"open it with batch_size {total}"
        else:
            limit = f"its batch is fixed to {size}"
            fix = f"call it with exactly {size} samples, or export the model with a dynamic batch"
        raise EngineError(
            f"{self.spec.ckpt}: {limit} and its samples depend on one another ({self.why_dependent}), so a call of "
            f"{total} can be neither padded nor split; {fix}"
        )

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
            arrays = self._checked([inputs] if isinstance(inputs, np.ndarray) else as_list(inputs))
            results, start, end = compute(self, arrays)
        self.run_time = end - start
        self.timeline.add("engine", start, end, batch_of(arrays, self.inputs))
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
            return self._checked(as_list(shard))
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
                arrays[index] = array = cast_to(array, spec, self._warned)
            shape = array.shape
            guessed = self._signature is not None and not self._asked
            if not fits(shape, spec) or (0 in shape and guessed):  # a guess does not say whose size is 0
                return self._checked_again(arrays, spec, array)
            axis = spec.batch_axis
            if axis is not None:
                if batch and shape[axis] != batch:
                    return self._checked_again(arrays, spec, array, batch)
                batch = shape[axis]
        if self._places:
            call_sizes(arrays, self._places, self.spec.dims, self.inputs)
        return arrays

    def _checked_again(self, arrays: list[Array], spec: TensorSpec, array: Array, batch: int = 0) -> list[Array]:
        """Refuse an array that does not fit, unless the graph says that the guessed batch dimension was another one.

        Args:
            arrays: of the call. spec, array: what does not fit. batch: samples of the inputs before it, if these clash.
        """
        if not self._asked:
            self.learn_batching()
            if self._signature is not None:
                return self._checked(arrays)
        if batch and spec.batch_axis is not None:
            raise InputError(
                f"input {spec.name!r} has {array.shape[spec.batch_axis]} samples, the inputs before it have {batch}"
            )
        raise wrong_shape(array, spec)
