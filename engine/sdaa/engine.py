"""Target ``sdaa``: a batch split over the SPA of a simulated card, values computed in its storage on the host."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.base import Array, ConfigError, Engine, EngineSpec, ModelError, usable_cores
from engine.onnx_graph import bind_shapes, graph_inputs, load_model, metadata, signature
from engine.ort import HostSession
from engine.passes.options import PassOptions
from engine.passes.runner import apply_passes
from engine.sdaa.card import load_card, visible_devices
from engine.sdaa.clock import CallTimes
from engine.sdaa.cost import ShardCost, shard_cost
from engine.sdaa.device import Card
from engine.sdaa.faults import Fault, check_spas, faults_from_environment
from engine.sdaa.float16 import float16_storage, widen
from engine.sdaa.status import DeviceStatus, Publisher
from engine.shard import run_sharded
from engine.signature import batch_of

if TYPE_CHECKING:
    from onnx import ModelProto

CHECK_BATCH = 2
"""Samples a pass is checked with: as telling as a full batch, and much quicker."""

KEPT_CALLS = 10_000

_checked_passes: set[tuple[Any, ...]] = set()


class SdaaEngine(Engine):
    """One engine instance per SPA of the card, each of a fixed batch.

    The batch of an instance is the model's own where that is fixed, else the first number of ``input_size``, else the
    card's batch divided over its SPA (rounded up). A call may carry any number of samples. Times in :attr:`calls`
    and :meth:`device_report` are simulated; ``run_time`` is host wall time.

    Args:
        spec: the model and how to run it. With ``simulate_only`` nothing is computed and outputs are zeros.
        faults: what goes wrong on the card; ``None`` takes what ``TECO_SIM_FAULTS`` says.

    Raises:
        DeviceOutOfMemory: the model does not fit a SPA's memory.
    """

    default_dtype = "float16"
    simulated = True

    def __init__(self, spec: EngineSpec, faults: Sequence[Fault] | None = None) -> None:
        super().__init__(spec)
        self.description = load_card()
        devices = visible_devices(spec.rank)[: None if spec.divided else 1]
        faults = faults_from_environment() if faults is None else list(faults)
        check_spas(faults, len(devices))
        self._options = PassOptions.load(spec.pass_path)
        self._float16 = self.dtype == "float16" and self._options.need_convert
        model = load_model(spec.ckpt)
        self.metadata = metadata(model)
        self.bind(*signature(model))
        self.shard_size = self.static_batch or self._shard_size(len(devices))
        self._batched_outputs = self._find_batched_outputs(model)
        shaped = self._shaped(model, self.shard_size, compare=True)
        self._open_session(shaped)
        self.cost = self._cost(shaped)
        if self.cost.unknown:
            warnings.warn(
                f"{spec.ckpt}: {len(self.cost.unknown)} kernels work on data of a size not known beforehand "
                f"({', '.join(self.cost.unknown[:3])}, ...); the simulated time counts only their launch",
                stacklevel=3,
            )
        self.card = Card(
            self.description,
            devices,
            self.cost,
            self._zeros if spec.simulate_only else self._session.run,
            faults,
            threads=min(len(devices), usable_cores()),
            largest_batch=lambda: self._largest_batch(model),
        )
        self.calls: deque[CallTimes] = deque(maxlen=KEPT_CALLS)
        """Simulated times of the newest calls, oldest first."""
        self._samples = self._calls = 0
        self._latency = 0.0
        self._wait = True
        self._publisher = Publisher()
        self._publish(busy=0.0, force=True)

    # ------------------------------------------------------------------------------------------------------ building

    def _shard_size(self, spa_count: int) -> int:
        if self.spec.input_size is not None and self.inputs[self.lead].batched:
            return self.spec.input_size[self.lead][0]
        return -(-self.spec.batch_size // spa_count)

    def _shapes(self, size: int) -> dict[str, tuple[int, ...]]:
        """Return the full shape of every input of a shard of ``size`` samples."""
        shapes = {}
        for tensor in self.inputs:
            if None in tensor.shape[1 if tensor.batched else 0 :]:
                shape = ["N" if d is None else str(d) for d in tensor.shape]
                raise ConfigError(
                    f"{self.spec.ckpt}: input {tensor.name!r} has dynamic dimensions ({', '.join(shape)}); pass "
                    "input_size with one full shape per input, such as [[16, 3, 224, 224]] (--input_size 224)"
                )
            fixed = tuple(d or 0 for d in tensor.shape)
            shapes[tensor.name] = (size, *fixed[1:]) if tensor.batched else fixed
        return shapes

    def _bound(self, model: ModelProto, size: int) -> ModelProto:
        shapes = self._shapes(size)
        return bind_shapes(model, {info.name: shapes[info.name] for info in graph_inputs(model)})

    def _shaped(self, model: ModelProto, size: int, compare: bool) -> ModelProto:
        """Bind a shard's shapes and run the passes, which are compared with the original on a small batch, once."""
        path, stat = self.spec.pass_path, self.spec.ckpt.stat()
        key = (self.spec.ckpt.resolve(), stat.st_mtime_ns, path, path and path.stat().st_mtime_ns)
        if compare and key not in _checked_passes:
            small = self.static_batch or min(size, CHECK_BATCH)
            apply_passes(self._bound(model, small), self._options, input_shapes=self._shapes(small))
            _checked_passes.add(key)
        return apply_passes(self._bound(model, size), self._options, compare=False)

    def _cost(self, shaped: ModelProto) -> ShardCost:
        return shard_cost(shaped, self.description, self.description.layout(self._options.layout), self._float16)

    def _largest_batch(self, model: ModelProto) -> int | None:
        """Return the largest batch of a shard that fits (0: none does); ``None`` where the model's batch is fixed."""
        if self.static_batch is not None:
            return None
        fits, too_large = 0, self.shard_size
        while too_large - fits > 1:
            size = (fits + too_large) // 2
            cost = self._cost(self._shaped(model, size, compare=False))
            fits, too_large = (size, too_large) if cost.memory <= self.description.memory_bytes else (fits, size)
        return fits

    def _find_batched_outputs(self, model: ModelProto) -> list[bool]:
        """Say which outputs have the batch first: a fixed first dimension that is the shard's by chance does not."""
        if self.static_batch is not None or not any(o.shape[:1] == (self.shard_size,) for o in self.outputs):
            return [True] * len(self.outputs)
        _, one, _ = signature(self._bound(model, self.shard_size))
        _, other, _ = signature(self._bound(model, self.shard_size + 1))
        return [a.shape[:1] != b.shape[:1] for a, b in zip(one, other, strict=True)]

    def _open_session(self, shaped: ModelProto) -> None:
        """Put the values into the card's storage and open the host session that computes them."""
        model = shaped
        if self._float16:
            model = float16_storage(shaped, self._options.keeps_float32, self._options.skip_input_name)
        elif self._options.need_convert:
            model = widen(shaped)  # a float16 file asked to run in float32
        if self.spec.simulate_only:
            inputs, outputs, _ = signature(model)
        else:
            try:
                self._session = HostSession(model)
            except ModelError as error:
                raise ModelError(f"{self.spec.ckpt}: {error}") from error
            inputs, outputs = self._session.inputs, self._session.outputs
        dtypes = {tensor.name: tensor.dtype for tensor in inputs}
        self.inputs = [replace(tensor, dtype=dtypes[tensor.name]) for tensor in self.inputs]
        self.outputs = [replace(o, batched=b) for o, b in zip(outputs, self._batched_outputs, strict=True)]
        self._order = [[t.name for t in self.inputs].index(t.name) for t in inputs]

    def _zeros(self, _: Sequence[Array]) -> list[Array]:
        return [np.zeros([d or 0 for d in output.shape], output.dtype) for output in self.outputs]

    # ------------------------------------------------------------------------------------------------------- running

    def describe(self) -> str:
        """Name the card, how many SPA, the precision, and that it is simulated."""
        storage = f"{self.dtype} storage"
        if not self._options.need_convert:
            storage = "stored as the model is (need_convert = False)"
        card = f"simulated T1 card: {len(self.card.spas)} SPA x batch {self.shard_size}"
        return f"{card}, {storage}; times are host wall time unless they say simulated"

    def infer(self, inputs: list[Array]) -> list[Array]:
        """Split the batch over the SPA and gather the results in order."""
        ordered = [inputs[i] for i in self._order]
        specs = [self.inputs[i] for i in self._order]
        results = run_sharded(
            lambda shard: self._on_card([shard])[0], ordered, specs, self.outputs, self.shard_size, self._on_card
        )
        self._samples += batch_of(inputs, self.inputs)
        return results

    def _on_card(self, shards: list[list[Array]]) -> list[list[Array]]:
        events = len(self.card.events)
        results, call = self.card.run(shards, self._samples, self.shard_size, wait=self._wait)
        self.calls.append(call)
        self._calls += 1
        self._latency += call.latency
        self._publish(busy=call.compute / call.latency, force=len(self.card.events) > events)
        return results

    def run_async(self, inputs: Array | Sequence[Array]) -> Future[Array | list[Array]]:
        """Queue a call; on the simulated clock its copies overlap the computing of the calls before it."""
        return self.queue.submit(self._overlapped, inputs)

    def _overlapped(self, inputs: Array | Sequence[Array]) -> Array | list[Array]:
        self._wait = False
        try:
            return self(inputs)
        finally:
            self._wait = True

    @property
    def events(self) -> list[str]:
        """What went wrong on the card so far."""
        return self.card.events

    def device_report(self) -> dict[str, Any]:
        """Return the card's side of a run; every time in it is simulated."""
        return {
            "card": self.description.name,
            "spas": len(self.card.spas),
            "healthy": len(self.card.healthy),
            "memory_per_spa": self.cost.memory,
            "simulated_latency": self._latency / max(self._calls, 1),
            "simulated_sps": self._samples / self._latency if self._latency else 0.0,
            "events": list(self.card.events),
        }

    def _publish(self, busy: float, force: bool = False) -> None:
        spas = self.card.spas
        self._publisher.publish(
            [DeviceStatus(s.device, s.health, s.used, busy if s.health == "OK" else 0.0) for s in spas], force=force
        )

    def close(self) -> None:
        """Free the devices, the engine instances and the weights they share."""
        self.card.close()
        self._publisher.close()
        if not self.spec.simulate_only:
            del self._session
