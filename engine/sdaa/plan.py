"""Plans: a model lowered for one number of samples and one size of each symbolic dimension.

A SPA runs fixed shapes. Other shapes need another plan, with its own bound shapes, passes, values in the card's
storage, host session and cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.backends.ort import HostSession, serialisable
from engine.base import Array, ConfigError, EngineSpec, ModelError, TensorSpec
from engine.batching.dims import how_to_bind, open_cache, shown_shape
from engine.passes.options import PassOptions
from engine.sdaa.card import CardDescription, spa_count
from engine.sdaa.cost import ShardCost, ShardWork, price
from engine.sdaa.lower import Lowered, bound, lowered
from engine.sdaa.tables import FIXED, tables_of, too_large
from engine.signature import with_batch

if TYPE_CHECKING:
    from onnx import ModelProto

    from engine.sdaa.device import Compute

CHECK_BATCH = 2  # samples a pass is checked with: as reliable as a full batch, and much faster

_checked_passes: set[tuple[Any, ...]] = set()


@dataclass(frozen=True, slots=True)
class PlanKey:
    """Key of a plan: samples of a shard, and the sizes of its symbolic dimensions."""

    rows: int
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """A lowered model for shards of one shape; inputs and outputs, with ``batch_axis``, are as stored, in order."""

    key: PlanKey  # of the shape
    inputs: list[TensorSpec]
    outputs: list[TensorSpec]
    work: ShardWork  # of one shard
    cost: ShardCost  # of one shard
    weights: Mapping[str, int]  # bytes of every constant by name; plans share equal constants
    session: HostSession | None  # computes the values; ``None`` with ``simulate_only``
    run: Compute  # computes one shard; zeros without a session
    stored: ModelProto | bytes | None = None  # the model as a SPA runs it, to be saved

    def closed(self) -> Plan:
        """Return the plan without the session and its weights."""
        return replace(self, session=None, run=partial(_zeros, self.outputs))


def _zeros(outputs: Sequence[TensorSpec], _: Sequence[Array]) -> list[Array]:
    return [np.zeros([d or 0 for d in output.shape], output.dtype) for output in outputs]


class Lowering:
    """Lowers one model for any number of samples and sizes.

    Args:
        spec: the model and how to run it.
        options: of its pass file. dtype: the requested precision. description: the card.
        inputs: of the model, in the caller's order, with batch axes and known sizes.
        outputs: in the model's order.
        symbols: those with sizes in ``dims``, in the order of :attr:`PlanKey.sizes`.
        static_batch: the batch the model is fixed to, or ``None``.

    The model is loaded on first use, unless :meth:`keep` set it.
    """

    def __init__(
        self,
        spec: EngineSpec,
        options: PassOptions,
        dtype: str,
        description: CardDescription,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        symbols: Iterable[str],
        static_batch: int | None,
    ) -> None:
        self.spec, self.options, self.description = spec, options, description
        self._half = dtype == "float16"
        self._inputs, self._outputs, self._symbols = list(inputs), list(outputs), list(symbols)
        self._static_batch = static_batch
        self._model: ModelProto | None = None
        self._weights: dict[str, Array] = {}
        self._spent = False  # whether the weights of the model were given to a plan

    @property
    def model(self) -> ModelProto:
        """The model as in its file, without :attr:`weights`."""
        if self._model is None:
            from engine.onnx.load import load_apart

            self.keep(*load_apart(self.spec.ckpt))
            assert self._model is not None  # noqa: S101 -- for the type checker
        return self._model

    @property
    def weights(self) -> dict[str, Array]:
        """The model's weights that are held apart from it, as in its file (:mod:`engine.onnx.apart`)."""
        if self._spent:
            self.forget()
        _ = self.model
        return self._weights

    def keep(self, model: ModelProto, weights: dict[str, Array]) -> None:
        """Set the loaded model, and the weights that are held apart from it."""
        self._model, self._weights, self._spent = model, weights, False

    def forget(self) -> None:
        """Free the model; it is read again if another plan is needed."""
        self._model, self._weights, self._spent = None, {}, False

    # ------------------------------------------------------------------------------------------------------- shapes

    def shapes(self, key: PlanKey) -> dict[str, tuple[int, ...]]:
        """Return the full shape of every input of a shard; raise ConfigError if a dimension has no size."""
        sizes = dict(zip(self._symbols, key.sizes, strict=True))
        growing = open_cache(self._inputs, self.spec.dims)
        if growing is not None:
            raise ConfigError(f"{self.spec.ckpt}: {growing}")
        return {tensor.name: self._shape(tensor, key.rows, sizes) for tensor in self._inputs}

    def _shape(self, tensor: TensorSpec, rows: int, sizes: Mapping[str, int]) -> tuple[int, ...]:
        symbols = tensor.symbols or (None,) * len(tensor.shape)
        shape = [sizes.get(s or "") if d is None else d for s, d in zip(symbols, tensor.shape, strict=True)]
        if any(d is None and axis != tensor.batch_axis for axis, d in enumerate(shape)):
            raise ConfigError(
                f"{self.spec.ckpt}: input {tensor.name!r} has dynamic dimensions ({shown_shape(tensor)}); "
                f"{how_to_bind(self._inputs, self.spec.dims)}"
            )
        return with_batch(shape, tensor.batch_axis, rows)

    def _bound(self, key: PlanKey) -> ModelProto:
        return bound(self.model, self.shapes(key))

    # ------------------------------------------------------------------------------------------------------ lowering

    def plan(self, key: PlanKey, threads: int | None, keep_stored: bool = False, last: bool = False) -> Plan:
        """Bind the shapes, run the passes, put the values into the card's storage, and open the host session.

        ``keep_stored``: the plan keeps the model, to be saved. ``last``: no other plan is expected, so that the plan
        takes the weights of the model; they are read again for another one.
        Raise ConfigError if a dimension has no size, ModelError if the model cannot have these shapes, or be run.
        """
        from engine.onnx.apart import joined
        from engine.onnx.view import signature

        given = self.weights  # read again if the last plan took them
        made = self._check_passes(key) or self._lowered(key)
        (work, weights), stored = made.weighed, made.stored
        arrays: Mapping[str, Array] = {}
        if keep_stored or not self.spec.simulate_only:
            arrays = made.arrays(given if last else None)
            self._spent = last and bool(arrays)
        if keep_stored:
            stored, arrays = joined(stored, arrays), {}
        del made, given  # and their weights
        inputs, outputs, _ = signature(stored)
        axes = self._output_axes(key)
        outputs = [replace(tensor, batch_axis=axis) for tensor, axis in zip(outputs, axes, strict=True)]
        if not (keep_stored or self.spec.simulate_only):
            stored, arrays = serialisable(stored, arrays)  # the session copies the weights: one reference less to them
        plan = self.open(key, stored, inputs, outputs, work, weights, threads, arrays=arrays)
        return plan if keep_stored else replace(plan, stored=None)

    def open(
        self,
        key: PlanKey,
        stored: ModelProto | bytes,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        work: ShardWork,
        weights: Mapping[str, int],
        threads: int | None,
        check: Callable[[Path, Sequence[TensorSpec], Sequence[TensorSpec]], None] | None = None,
        arrays: Mapping[str, Array] | None = None,
    ) -> Plan:
        """Open a lowered or saved model; arguments as the fields of :class:`Plan`.

        ``arrays`` are weights that are not in ``stored`` (:func:`serialisable`). ``check`` refuses a model whose inputs
        and outputs are not those that were saved.
        """
        session = None
        if not self.spec.simulate_only:
            try:
                session = HostSession(stored, threads, weights=arrays, source=self.spec.ckpt)
            except ModelError as error:
                raise ModelError(f"{self.spec.ckpt}: {error}") from error
            if check is not None:
                check(self.spec.ckpt, session.inputs, session.outputs)
            axes = [tensor.batch_axis for tensor in outputs]
            inputs = session.inputs
            outputs = [replace(o, batch_axis=a) for o, a in zip(session.outputs, axes, strict=True)]
        cost = price(work, self.description, self.description.layout(self.options.layout))
        run = partial(_zeros, outputs) if session is None else session.run
        return Plan(key, list(inputs), list(outputs), work, cost, weights, session, run, stored)

    def _lowered(self, key: PlanKey, compare: bool = False) -> Lowered:
        shapes, half = self.shapes(key), self._half
        model, weights = self.model, self._weights
        given = (model, self.options, shapes)
        return lowered(*given, float16=half, batch=key.rows, compare=compare, weights=weights)

    def _check_passes(self, key: PlanKey) -> Lowered | None:
        """Compare the passes' result with the original on a small batch, once; return it if it is for this key."""
        # Two pass files may contain the same function (resnet_pass and its blocked twin), which is compared once.
        code = getattr(self.options.use_passes, "__code__", None)
        path = Path(code.co_filename) if code else self.spec.pass_path
        stamp = (self.spec.ckpt.resolve(), self.spec.ckpt.stat().st_mtime_ns, path, path and path.stat().st_mtime_ns)
        seen = (*stamp, key.sizes)
        if seen not in _checked_passes:
            small = PlanKey(self._static_batch or min(key.rows, CHECK_BATCH), key.sizes)
            made = self._lowered(small, compare=True)
            _checked_passes.add(seen)
            return made if small == key else None
        return None

    def _output_axes(self, key: PlanKey) -> list[int | None]:
        """Return the outputs' batch axes, without fixed dimensions that equal the shard's size by chance."""
        axes = [tensor.batch_axis for tensor in self._outputs]
        both = zip(axes, self._outputs, strict=True)
        chance = any(axis is not None and tensor.shape[axis : axis + 1] == (key.rows,) for axis, tensor in both)
        if self._static_batch is not None or not chance:
            return axes
        from engine.onnx.view import signature

        _, one, _ = signature(self._bound(key))
        _, other, _ = signature(self._bound(PlanKey(key.rows + 1, key.sizes)))
        return [
            None if axis is None or a.shape[axis : axis + 1] == b.shape[axis : axis + 1] else axis
            for axis, a, b in zip(axes, one, other, strict=True)
        ]

    # ---------------------------------------------------------------------------------------------------------- cost

    def remedy(self, key: PlanKey, cost: ShardCost) -> str:
        """Return how to make a plan fit: a smaller batch, or other weights; as the end of an error message."""
        if cost.weights > self.description.memory_bytes:
            return self._too_large(cost.weights)
        if self._static_batch is not None:
            return FIXED
        largest = self._largest_batch(key)
        return f"the largest batch per SPA that fits is {largest}" if largest else "not even one sample fits"

    def _too_large(self, weights: int) -> str:
        """Return the advice for weights, in bytes, that do not fit at any batch."""
        memory, tables = self.description.memory_bytes, tables_of(self.model, self._half)
        if 2 * sum(table.size for table in tables) > weights:
            return too_large(tables, self._half, memory, spa_count(self.spec))
        half = "use --dtype float16" if not self._half and weights / 2 < memory else "a smaller model is needed"
        return f"the weights alone are too large at any batch: {half}"

    def _largest_batch(self, key: PlanKey) -> int:
        """Return the largest batch of a shard that fits (0 if none does)."""
        fits, too_many = 0, key.rows
        while too_many - fits > 1:
            rows = (fits + too_many) // 2
            work = self._lowered(PlanKey(rows, key.sizes)).work
            cost = price(work, self.description, self.description.layout(self.options.layout))
            fits, too_many = (rows, too_many) if cost.memory <= self.description.memory_bytes else (fits, rows)
        return fits


def shared_cost(plans: Iterable[Plan]) -> ShardCost:
    """Return the first plan's cost with the memory of all plans on one SPA.

    Each constant counts once, as plans share constants of the same name and size; activations and input and output
    buffers are those of the largest plan, as a SPA runs one shard at a time.
    """
    plans = list(plans)
    constants = {constant for plan in plans for constant in plan.weights.items()}
    return replace(
        plans[0].cost,
        weights=sum(size for _, size in constants),
        activations=max(plan.cost.activations for plan in plans),
        io=max(plan.cost.io for plan in plans),
    )


def plan_report(plans: Mapping[PlanKey, Plan], symbols: Iterable[str]) -> list[dict[str, Any]]:
    """Return shapes and cost of each plan for one shard: simulated seconds, and bytes without other plans."""
    names = list(symbols)
    return [
        {
            "batch": plan.key.rows,
            **dict(zip(names, plan.key.sizes, strict=True)),
            "simulated_compute": plan.cost.compute,
            "memory": plan.cost.memory,
        }
        for plan in plans.values()
    ]
