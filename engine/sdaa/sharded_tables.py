"""Target ``sdaa`` with tables whose rows are split over all SPA: each SPA looks up its rows, the host adds them.

A call takes two rounds on the card. First every SPA gets all lookup inputs of the call, and returns for each index its
row or zeros; their sum on the host is exactly the row. Then the call continues as usual, its samples split over the
SPA, with the rows as inputs. Memory, copies and time of both rounds are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from engine.backends.ort import HostSession
from engine.base import Array, ConfigError, Engine, EngineSpec
from engine.batching.batch import along, batch_of
from engine.passes.options import PassOptions
from engine.sdaa.card import load_card, spa_count
from engine.sdaa.cost import ShardCost, price
from engine.sdaa.device import Card, Instance
from engine.sdaa.lower import lowered
from engine.sdaa.tables import check_tables
from engine.signature import TensorSpec, with_batch

if TYPE_CHECKING:
    from onnx import ModelProto


class _Lookup(NamedTuple):
    """Session and cost of one SPA in the first round."""

    session: HostSession
    cost: ShardCost

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        return self.session.run(arrays)


class ShardedTables(Engine):
    """An engine of the simulated card that holds some of each table's rows on every SPA.

    Otherwise as :class:`~engine.sdaa.engine.SdaaEngine`, which computes the second round. The rows of a lost SPA are
    lost: the next call is refused.

    Args:
        spec: with ``shard_tables``. spas: opens the engine that computes the second round.

    Raises:
        ConfigError: the model has no table to split, a fixed batch, samples that depend on one another, or dynamic
        sizes;
            or the engine is to be saved. DeviceOutOfMemory: it does not fit even so.
    """

    default_dtype = "float16"
    simulated = True
    outputs_owned = inputs_untouched = concurrent_calls = True

    def __init__(self, spec: EngineSpec, spas: Callable[[EngineSpec], Any]) -> None:
        super().__init__(spec)
        from engine.batching.independence import batching_of
        from engine.onnx.load import load_model, save_model
        from engine.onnx.view import metadata, signature
        from engine.sdaa.split_tables import split_tables

        self.description, count = load_card(), spa_count(spec)
        self._half = self.dtype == "float16"
        self._refuse(spec.save_engine, "a saved engine cannot hold them; do not save it")
        self._refuse(bool(spec.dims), "this cannot be combined with --dim")
        model = load_model(
            spec.ckpt, partial(check_tables, half=self._half, card=self.description, count=count, split=True)
        )
        self.metadata = metadata(model)
        inputs, outputs, dims = signature(model)
        self.bind(inputs, outputs, dims, partial(batching_of, model))
        self._refuse(self.static_batch is not None, "its batch is fixed; export it with a dynamic batch")
        self._refuse(self.independent is not True, f"its samples depend on one another ({self.batching.why_dependent})")
        self._refuse(
            any(size is None and axis != one.batch_axis for one in self.inputs for axis, size in enumerate(one.shape)),
            "a dimension other than the batch is dynamic; fix it in the export",
        )
        parts = split_tables(model, count, spec.ckpt)
        self.tables = parts.tables  # names of the tables that are split
        self._rows_of = parts.rows
        self._size = -(-spec.batch_size // count) * count
        del model
        self._folder = TemporaryDirectory(prefix="teco-tables-")
        rest = Path(self._folder.name) / spec.ckpt.name
        save_model(parts.rest, rest)
        self._spas = spas(replace(spec, ckpt=rest, input_name=(), input_size=None, shard_tables=False))
        self._axes = {one.name: one.batch_axis for one in self._spas.inputs}
        self._needs = [info.name for info in parts.lookups[0].graph.input]
        self._lookups = [self._opened(one) for one in parts.lookups]
        self.card: Card = self._spas.card
        self.card.reserve(max((one.cost for one in self._lookups), key=lambda cost: cost.memory))
        kinds = {one.name: one.dtype for one in self._spas.inputs}
        self.inputs = [replace(one, dtype=kinds.get(one.name, one.dtype)) for one in self.inputs]
        self.outputs = self._spas.outputs
        self._latency, self._calls, self._samples = 0.0, 0, 0

    def _refuse(self, wrong: bool, why: str) -> None:
        if wrong:
            raise ConfigError(f"{self.spec.ckpt}: its tables cannot be split over SPA: {why}")

    def _opened(self, model: ModelProto) -> _Lookup:
        shapes = {
            one.name: with_batch(one.shape, one.batch_axis, self._size)
            for one in self.inputs
            if one.name in self._needs
        }
        made = lowered(model, PassOptions(), shapes, float16=self._half, batch=self._size)
        cost = price(made.work, self.description, self.description.layout("plain"))
        return _Lookup(HostSession(made.stored, threads=1), cost)

    def infer(self, inputs: list[Array]) -> list[Array]:
        """Look up rows on all SPA, then compute the samples."""
        named = {one.name: array for one, array in zip(self.inputs, inputs, strict=True)}
        total = batch_of(inputs, self.inputs)
        parts = [self._looked_up(named, start) for start in range(0, total, self._size)]
        for place, name in enumerate(self._rows_of):
            axis = self._axes[name]
            whole = np.concatenate([part[place] for part in parts], axis or 0)
            named[name] = whole if axis is None else whole[along(axis, None, total)]
        self._calls, self._samples = self._calls + 1, self._samples + total
        found = self._spas([named[one.name] for one in self._spas.inputs])
        return found if isinstance(found, list) else [found]

    def _looked_up(self, named: dict[str, Array], start: int) -> list[Array]:
        """Return the rows of the usual number of samples from ``start`` on."""
        fed = [self._padded(named[one.name], one, start) for one in self._in_order()]
        instances = [Instance(one.cost, one.run) for one in self._lookups]
        results, call = self.card.run([fed] * len(instances), self._samples, instances=instances, pinned=True)
        self._latency += call.latency
        return [reduce(np.add, some) for some in zip(*results, strict=True)]

    def _in_order(self) -> list[TensorSpec]:
        known = {one.name: one for one in self.inputs}
        return [known[name] for name in self._needs]

    def _padded(self, array: Array, spec: TensorSpec, start: int) -> Array:
        """Return some samples of an input, padded by the last one."""
        if spec.batch_axis is None:
            return array
        part = array[along(spec.batch_axis, start, start + self._size)]
        left = self._size - part.shape[spec.batch_axis]
        return np.concatenate([part, np.repeat(part[along(spec.batch_axis, -1, None)], left, spec.batch_axis)])

    def describe(self) -> str:
        """Return the description of the card, with the number of split tables."""
        return f"{self._spas.describe()}; rows of {len(self.tables)} tables split over {len(self._lookups)} SPA"

    def device_seconds(self) -> list[float]:
        """Return the simulated seconds in which each SPA had a shard, of either round."""
        seconds: list[float] = self._spas.device_seconds()
        return seconds

    def device_report(self) -> dict[str, Any]:
        """Return the card's figures of a run; a call's latency is that of both rounds."""
        report = self._spas.device_report()
        both = report["simulated_latency"] + self._latency / max(self._calls, 1)
        return {**report, "simulated_latency": both, "split_tables": list(self.tables)}

    def cancel(self) -> None:
        """Stop what the host computes for the card at its next node."""
        for one in self._lookups:
            one.session.cancel()
        self._spas.cancel()

    def close(self) -> None:
        """Free the devices and the parts of the model."""
        self._spas.release()
        self._lookups = []
        self._folder.cleanup()
