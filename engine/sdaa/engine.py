"""Target ``sdaa``: a batch split over the SPA of a simulated card, values computed in its storage on the host."""

from __future__ import annotations

import logging
import warnings
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.base import Array, ConfigError, Engine, EngineSpec, ModelError, usable_cores
from engine.files import hash_files
from engine.ort import HostSession
from engine.passes.options import PassOptions
from engine.passes.runner import apply_passes
from engine.sdaa.card import load_card, visible_devices
from engine.sdaa.clock import CallTimes
from engine.sdaa.cost import ShardCost, price, shard_cost, shard_work
from engine.sdaa.device import Card
from engine.sdaa.faults import Fault, check_spas, faults_from_environment
from engine.sdaa.saved import Origin, Saved, read_model, read_saved, saved_path, write_saved
from engine.sdaa.status import DeviceStatus, Publisher
from engine.shard import run_sharded
from engine.signature import Dim, batch_of

if TYPE_CHECKING:
    from onnx import ModelProto

_log = logging.getLogger(__name__)

CHECK_BATCH = 2
"""Samples a pass is checked with: as telling as a full batch, and much quicker."""

KEPT_CALLS = 10_000

_checked_passes: set[tuple[Any, ...]] = set()


class SdaaEngine(Engine):
    """One engine instance per SPA of the card, each of a fixed batch.

    The batch of an instance is the model's own where that is fixed, else the first number of ``input_size``, else the
    card's batch divided over its SPA (rounded up). A call may carry any number of samples. Times in :attr:`calls`
    and :meth:`device_report` are simulated; ``run_time`` is host wall time.

    A ``ckpt`` that ends in ``.tecoengine`` is loaded as it is. One that lies beside an ONNX file is loaded in its place
    where it was made from exactly that; with ``save_engine`` it is written where it was not.

    Args:
        spec: the model and how to run it. With ``simulate_only`` nothing is computed and outputs are zeros.
        faults: what goes wrong on the card; ``None`` takes what ``TECO_SIM_FAULTS`` says.
        save_to: build from the ONNX file, and write the engine there.

    ``loaded`` says whether a saved engine was taken.

    Raises:
        DeviceOutOfMemory: the model does not fit a SPA's memory.
        ModelError: the saved engine given as ``ckpt`` is damaged or was made for something else.
        ConfigError: the engine is to be saved and cannot be.
    """

    default_dtype = "float16"
    simulated = True

    def __init__(self, spec: EngineSpec, faults: Sequence[Fault] | None = None, save_to: Path | None = None) -> None:
        super().__init__(spec)
        self.description = load_card()
        devices = visible_devices(spec.rank)[: None if spec.divided else 1]
        faults = faults_from_environment() if faults is None else list(faults)
        check_spas(faults, len(devices))
        saved = None if save_to else self._restore(len(devices))
        self.loaded = saved is not None
        if spec.save_engine and not self.loaded:
            save_to = save_to or saved_path(spec.ckpt)
        origin = Origin.of(spec, self.dtype) if save_to else None  # read first: a change while building is then seen
        model = self._build(len(devices)) if saved is None else saved
        side_by_side = min(len(devices), usable_cores())
        self._open_session(model, self._threads(side_by_side))
        self.cost = self._priced()
        self.card = Card(
            self.description,
            devices,
            self.cost,
            self._zeros if spec.simulate_only else self._session.run,
            faults,
            threads=side_by_side,
            largest_batch=self._largest_batch,
        )
        if save_to is not None and origin is not None:
            self._save(save_to, origin, model)
        self.calls: deque[CallTimes] = deque(maxlen=KEPT_CALLS)
        """Simulated times of the newest calls, oldest first."""
        self._samples = self._calls = 0
        self._latency = 0.0
        self._wait = True
        self._publisher = Publisher()
        self._publish(busy=0.0, force=True)

    # ------------------------------------------------------------------------------------------------------ building

    def _build(self, spa_count: int) -> ModelProto:
        """Bind the shapes, run the passes, and put the values into the card's storage."""
        from engine.onnx_graph import load_model, metadata, signature
        from engine.sdaa.float16 import float16_storage, widen

        self._options = PassOptions.load(self.spec.pass_path)
        model = load_model(self.spec.ckpt)
        self.metadata = metadata(model)
        inputs, outputs, dims = signature(model)
        self._dims: dict[str, list[Dim]] = dict(zip([t.name for t in inputs], dims, strict=True))
        self.bind(inputs, outputs, dims)
        self.shard_size = self.static_batch or self._shard_size(spa_count)
        self._batched_outputs = self._find_batched_outputs(model)
        shaped = self._shaped(model, self.shard_size, compare=True)
        self._work = shard_work(shaped, self._float16, self._options.keeps_float32)
        if self._float16:
            shaped = float16_storage(shaped, self._options.keeps_float32, self._options.skip_input_name)
        elif self._options.need_convert:
            shaped = widen(shaped)  # a float16 file asked to run in float32
        self._stored = signature(shaped)[:2]
        return shaped

    @property
    def _float16(self) -> bool:
        return self.dtype == "float16" and self._options.need_convert

    def _shard_size(self, spa_count: int) -> int:
        if self.spec.input_size and self.inputs[self.lead].batched:
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
        from engine.onnx_graph import bind_shapes, graph_inputs

        shapes = self._shapes(size)
        return bind_shapes(model, {info.name: shapes[info.name] for info in graph_inputs(model)})

    def _shaped(self, model: ModelProto, size: int, compare: bool) -> ModelProto:
        """Bind a shard's shapes and run the passes, which are compared with the original on a small batch, once."""
        # Two pass files may hold one function (resnet_pass and its blocked twin): that is one thing to compare.
        code = getattr(self._options.use_passes, "__code__", None)
        path = Path(code.co_filename) if code else self.spec.pass_path
        key = (self.spec.ckpt.resolve(), self.spec.ckpt.stat().st_mtime_ns, path, path and path.stat().st_mtime_ns)
        if compare and key not in _checked_passes:
            small = self.static_batch or min(size, CHECK_BATCH)
            apply_passes(self._bound(model, small), self._options, input_shapes=self._shapes(small))
            _checked_passes.add(key)
        return apply_passes(self._bound(model, size), self._options, compare=False)

    def _priced(self) -> ShardCost:
        cost = price(self._work, self.description, self.description.layout(self._options.layout))
        if cost.unknown:
            warnings.warn(
                f"{self.spec.ckpt}: {len(cost.unknown)} kernels work on data of a size not known beforehand "
                f"({', '.join(cost.unknown[:3])}, ...); the simulated time counts only their launch",
                stacklevel=4,
            )
        return cost

    def _largest_batch(self) -> int | None:
        """Return the largest batch of a shard that fits (0: none does); ``None`` where the model's batch is fixed."""
        if self.static_batch is not None or self.loaded:
            return None
        from engine.onnx_graph import load_model

        model, layout = load_model(self.spec.ckpt), self.description.layout(self._options.layout)
        fits, too_large = 0, self.shard_size
        while too_large - fits > 1:
            size = (fits + too_large) // 2
            shaped, keep = self._shaped(model, size, compare=False), self._options.keeps_float32
            cost = shard_cost(shaped, self.description, layout, self._float16, keep)
            fits, too_large = (size, too_large) if cost.memory <= self.description.memory_bytes else (fits, size)
        return fits

    def _find_batched_outputs(self, model: ModelProto) -> list[bool]:
        """Say which outputs have the batch first: a fixed first dimension that is the shard's by chance does not."""
        if self.static_batch is not None or not any(o.shape[:1] == (self.shard_size,) for o in self.outputs):
            return [True] * len(self.outputs)
        from engine.onnx_graph import signature

        _, one, _ = signature(self._bound(model, self.shard_size))
        _, other, _ = signature(self._bound(model, self.shard_size + 1))
        return [a.shape[:1] != b.shape[:1] for a, b in zip(one, other, strict=True)]

    def _threads(self, side_by_side: int) -> int | None:
        """Return the threads a shard gets, so that the shards of a usual call, side by side, take every core once.

        ``None`` stands for all: where the call is one shard, or its shards would leave cores idle in the last round.
        """
        shards = -(-self.spec.batch_size // self.shard_size)
        return usable_cores() // side_by_side if shards % side_by_side == 0 else None

    def _open_session(self, model: ModelProto | bytes, threads: int | None) -> None:
        """Open the host session that computes the values."""
        inputs, outputs = self._stored
        if not self.spec.simulate_only:
            try:
                self._session = HostSession(model, threads)
            except ModelError as error:
                raise ModelError(f"{self.spec.ckpt}: {error}") from error
            inputs, outputs = self._session.inputs, self._session.outputs
        dtypes = {tensor.name: tensor.dtype for tensor in inputs}
        self.inputs = [replace(tensor, dtype=dtypes[tensor.name]) for tensor in self.inputs]
        self.outputs = [replace(o, batched=b) for o, b in zip(outputs, self._batched_outputs, strict=True)]
        self._order = [[t.name for t in self.inputs].index(t.name) for t in inputs]

    def _zeros(self, _: Sequence[Array]) -> list[Array]:
        return [np.zeros([d or 0 for d in output.shape], output.dtype) for output in self.outputs]

    # ------------------------------------------------------------------------------------------------- saved engines

    def _restore(self, spa_count: int) -> bytes | None:
        """Take over the saved engine that is the ``ckpt``, or the one beside it where it fits; return its model."""
        path = saved_path(self.spec.ckpt)
        by_itself = path == self.spec.ckpt
        if not by_itself and not path.is_file():
            return None
        try:
            model = self._adopt(path, read_saved(path), spa_count)
        except ModelError as error:
            if by_itself:
                raise
            _log.info("%s; building from %s", error, self.spec.ckpt)
            return None
        _log.info("loaded %s", path)
        return model

    def _adopt(self, path: Path, saved: Saved, spa_count: int) -> bytes:
        """Become the engine that was saved, after checking that it is the one that would be built now."""
        if path == self.spec.ckpt:
            self.dtype = self.spec.dtype or saved.origin.dtype
            self.spec = saved.complete(self.spec, spa_count)
        saved.origin.check(self.spec, self.dtype)
        self.bind(saved.inputs, saved.outputs, list(saved.dims.values()))
        size = self.static_batch or self._shard_size(spa_count)
        saved.check_shapes(self.spec.ckpt, size, self._shapes(size), {t.name: t.batched for t in self.inputs})
        self._options = PassOptions(need_convert=saved.converted, layout=saved.layout)
        self.metadata, self.shard_size, self._work = saved.metadata, size, saved.work
        self._dims, self._stored = saved.dims, (saved.inputs, saved.outputs)
        self._batched_outputs = [tensor.batched for tensor in saved.outputs]
        return read_model(path, saved)

    def _save(self, path: Path, origin: Origin, model: ModelProto | bytes) -> None:
        saved = Saved(
            origin=origin,
            card=self.description.name,
            card_sha256=hash_files(self.description.source),
            shard_size=self.shard_size,
            shapes=self._shapes(self.shard_size),
            batched={tensor.name: tensor.batched for tensor in self.inputs},
            dims=self._dims,
            dtypes={self.inputs[i].name: self.inputs[i].dtype.name for i in self._order},
            outputs=self.outputs,
            metadata=dict(self.metadata),
            layout=self._options.layout,
            converted=self._options.need_convert,
            work=self._work,
        )
        write_saved(path, saved, model)

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
        before = self.card.elapsed
        results, call = self.card.run(shards, self._samples, wait=self._wait)
        self.calls.append(call)
        self._calls += 1
        self._latency += call.latency
        passed = call.completed - max(call.submitted, before)
        # Queued calls overlap: more computing than time may have passed, and after a lost SPA even no time at all.
        busy = 1.0 if passed <= call.compute else call.compute / passed
        self._publish(busy=busy, force=len(self.card.events) > events)
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
            "simulated_sps": self._samples / self.card.elapsed if self._calls else 0.0,
            "events": list(self.card.events),
        }

    def _publish(self, busy: float, force: bool = False) -> None:
        spas = self.card.spas
        self._publisher.publish(
            [DeviceStatus(s.device, s.health, s.used, busy if s.health == "OK" else 0.0) for s in spas], force=force
        )

    def cancel(self) -> None:
        """Stop what the host computes for the card at its next node."""
        if not self.spec.simulate_only:
            self._session.cancel()

    def close(self) -> None:
        """Free the devices, the engine instances and the weights they share."""
        self.card.close()
        self._publisher.close()
        if not self.spec.simulate_only:
            del self._session
