"""Target ``sdaa``: a batch split over the SPA of a simulated card, values computed on the host."""

from __future__ import annotations

import logging
import os
import warnings
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from engine.base import Array, ConfigError, Engine, EngineError, EngineSpec, InputError, ModelError, usable_cores
from engine.batching.batch import batch_of, run_sharded, samples_differ
from engine.passes.options import PassOptions
from engine.sdaa.card import load_card, visible_devices
from engine.sdaa.cost import ShardCost
from engine.sdaa.device import CallTimes, Card, Instance
from engine.sdaa.faults import Fault, check_spas, faults_from_environment
from engine.sdaa.pace import Pace, paced_by_environment
from engine.sdaa.plan import Lowering, Plan, PlanKey, plan_report, shared_cost
from engine.sdaa.proof import prove, tried_apart
from engine.sdaa.saved import Origin, Saved, read_model, read_saved, saved_path, write_saved
from engine.sdaa.status import Publisher
from engine.sdaa.tables import FIXED, check_tables
from engine.signature import Dim
from tecoinfer_modelzoo.files import hash_files
from tecoinfer_modelzoo.text import user_stacklevel

_log = logging.getLogger(__name__)

KEPT_CALLS = 10_000
KEPT_WHOLE = 16  # number of plans kept for batch sizes of calls that cannot be split; the oldest is removed first


class SdaaEngine(Engine):
    """One engine instance per SPA of the card, each of a fixed batch.

    The batch of an instance is the model's own if that is fixed, else the batch in ``input_size``, else the card's
    batch divided by its SPA (rounded up). A call may have any number of samples. Times in :attr:`calls` and
    :meth:`device_report` are simulated; ``run_time`` is host wall time.

    Samples that depend on one another are not split: the whole call runs on one SPA, with a plan for its batch, and a
    warning is issued once. If the graph does not decide it, the first call whose samples differ is computed both whole
    and in parts, in float32 on the host.

    With ``dims`` there is a plan for each combination of sizes that occurs, beginning with the largest. On each SPA all
    plans share their constants, and one set of buffers for activations, inputs and outputs, as large as the largest
    plan's (:func:`engine.sdaa.plan.shared_cost`).

    A ``ckpt`` that is a saved engine (``.tecoengine``, ``.engine``) is loaded directly. A saved engine beside an ONNX
    file is loaded if it was made from the same inputs; with ``save_engine`` it is written otherwise.

    Args:
        spec: the model and how to run it. With ``simulate_only`` nothing is computed and outputs are zeros.
        faults: faults to inject; ``None`` reads ``TECO_SIM_FAULTS``.
        save_to: build from the ONNX file, and save the engine there.

    ``loaded`` is whether a saved engine was loaded, ``paced`` whether calls take their simulated time on the wall
    clock.

    Raises:
        DeviceOutOfMemory: the model does not fit a SPA's memory.
        ModelError: the saved engine given as ``ckpt`` is damaged or was made for something else.
        ConfigError: the engine cannot be saved.
    """

    default_dtype = "float16"
    simulated = True
    outputs_owned = inputs_untouched = concurrent_calls = True
    graph = "lowered"

    def __init__(self, spec: EngineSpec, faults: Sequence[Fault] | None = None, save_to: Path | None = None) -> None:
        super().__init__(spec)
        self.description = load_card()
        devices = visible_devices(spec.rank)[: None if spec.divided else 1]
        self._spa_count = len(devices)
        self._side_by_side = min(len(devices), usable_cores())
        self._plans: dict[PlanKey, Plan] = {}
        self._warned_whole = self._tried = False
        self._unproven = ""  # why samples that a trial found independent are not proven to be
        faults = faults_from_environment() if faults is None else list(faults)
        check_spas(faults, len(devices))
        restored = None if save_to else self._restore()
        self.loaded = restored is not None
        save_to = None if self.loaded else self._place_to_save(save_to)
        origin = Origin.of(spec, self.dtype) if save_to else None  # read first, to detect a change while building
        self._main = restored or self._build(keep_stored=save_to is not None)
        self._plans[self._main.key] = self._main
        self._warn_unknown(self._main)
        self._take_tensors(self._main)
        remedy = (lambda _: FIXED) if self.loaded else partial(self._lowering.remedy, self._main.key)
        cost, run, threads = self._main.cost, self._main.run, self._side_by_side
        self.paced = spec.paced or paced_by_environment()
        pace = Pace() if self.paced else None
        self.card = Card(self.description, devices, cost, run, faults, threads, remedy, str(spec.ckpt), pace)
        if self.paced:
            self.streams = max(spec.streams, len(devices))  # queued calls wait side by side
        if save_to is not None and origin is not None:
            self._save(save_to, origin, self._main)
        self._main = self._plans[self._main.key] = replace(self._main, stored=None)
        self._forget()
        self.calls: deque[CallTimes] = deque(maxlen=KEPT_CALLS)  # simulated times of the newest calls, oldest first
        self._samples = self._calls = 0
        self._latency = 0.0
        self._wait = True
        self._publisher = Publisher()
        self._publisher.publish(self.card.statuses(0.0), force=True)

    @classmethod
    def opened(cls, spec: EngineSpec) -> Engine:
        """Return the engine for a spec: with ``shard_tables``, one that splits the rows of tables over all SPA."""
        if not spec.shard_tables:
            return cls(spec)
        from engine.sdaa.sharded_tables import ShardedTables

        return ShardedTables(spec, cls)

    # ------------------------------------------------------------------------------------------------------ building

    def _build(self, keep_stored: bool) -> Plan:
        from engine.batching.independence import batching_of
        from engine.onnx.load import load_apart
        from engine.onnx.shapes import check_types
        from engine.onnx.view import metadata, signature

        options = PassOptions.load(self.spec.pass_path)
        half = self.dtype == "float16"
        fits = partial(check_tables, half=half, card=self.description, count=self._spa_count)
        model, weights = load_apart(self.spec.ckpt, fits)
        check_types(model)
        self.metadata = metadata(model)
        inputs, outputs, dims = signature(model)
        self._dims: dict[str, list[Dim]] = dict(zip([t.name for t in inputs], dims, strict=True))
        self.bind(inputs, outputs, dims, partial(batching_of, model))
        self._prepare(options)
        self._lowering.keep(model, weights)
        del weights  # of which the plan may take possession
        key = PlanKey(self.shard_size, self._combinations()[-1])
        return self._lowering.plan(key, self._threads(), keep_stored, last=self._one_plan())

    def _prepare(self, options: PassOptions) -> None:
        self._options = options
        known, how = self.batching, (self.spec, options, self.dtype, self.description)
        self._lowering = Lowering(*how, known.inputs, known.outputs, known.places, known.static_batch)
        self.shard_size = self._rows()

    def _rows(self) -> int:
        if not any(tensor.batched for tensor in self.inputs):
            return 1
        if self.static_batch is not None:
            return self.static_batch
        if self.independent is False:
            return self.spec.batch_size
        given = self.spec.input_size[self.lead][self.batch_axis] if self.spec.input_size else None
        return given or -(-self.spec.batch_size // self._spa_count)

    def _combinations(self) -> list[tuple[int, ...]]:
        """Return every combination of sizes of the symbolic dimensions, the largest last."""
        return list(product(*(self.spec.dims[symbol] for symbol in self.batching.places)))

    def _threads(self) -> int | None:
        """Return the threads of a shard, so that a usual call's shards use every core once; ``None``: all cores."""
        shards = -(-self.spec.batch_size // self.shard_size)
        return usable_cores() // self._side_by_side if shards % self._side_by_side == 0 else None

    def _plan(self, key: PlanKey) -> Plan:
        """Return a plan, lowered at the first call of its shapes.

        Raise DeviceOutOfMemory if it does not fit with the others, EngineError if the engine was loaded without the
        model.
        """
        plan = self._plans.get(key)
        if plan is not None:
            return plan
        if saved_path(self.spec.ckpt) == self.spec.ckpt:
            raise EngineError(
                f"saved engine {self.spec.ckpt} has a plan for {self._main.key.rows} samples that cannot be split "
                f"({self.batching.why_dependent}), the call has {key.rows}; open the ONNX file instead"
            )
        if self.loaded:
            self._lowering.options = PassOptions.load(self.spec.pass_path)
        plan = self._lowering.plan(key, self._threads())
        kept = [other for other in self._plans.values() if other.key.rows == self.shard_size]
        others = [other for other in self._plans.values() if other.key.rows != self.shard_size]
        plans = [*kept, *others[-KEPT_WHOLE + 1 :], plan]
        self.card.hold(shared_cost(plans), partial(self._lowering.remedy, key))
        self._plans = {each.key: each for each in plans}
        if self._main.key not in self._plans:
            self._main = plan
        return plan

    def _forget(self) -> None:
        """Free the model if no other plan will be needed."""
        if self._one_plan():
            self._lowering.forget()

    def _one_plan(self) -> bool:
        return bool(self.independent) and len(self._combinations()) == 1

    def _warn_unknown(self, plan: Plan) -> None:
        if unknown := plan.cost.unknown:
            warnings.warn(
                f"{self.spec.ckpt}: {len(unknown)} kernels work on data of a size not known beforehand "
                f"({', '.join(unknown[:3])}, ...); the simulated time counts only their launch",
                stacklevel=user_stacklevel(),
            )

    def _take_tensors(self, plan: Plan) -> None:
        """Set the dtypes as stored, and the outputs' shapes if all plans have the same."""
        dtypes = {tensor.name: tensor.dtype for tensor in plan.inputs}
        self.inputs = [replace(tensor, dtype=dtypes[tensor.name]) for tensor in self.inputs]
        if self.batching.places:
            both = zip(self.outputs, plan.outputs, strict=True)
            self.outputs = [replace(out, dtype=own.dtype, batch_axis=own.batch_axis) for out, own in both]
        else:
            self.outputs = plan.outputs
        self._order = [[t.name for t in self.inputs].index(t.name) for t in plan.inputs]
        self._model_inputs = [self.inputs[i] for i in self._order]

    @property
    def cost(self) -> ShardCost:
        """Cost of one shard in the plan of the largest sizes; memory shared by plans: :attr:`Card.memory`."""
        return self._main.cost

    # ------------------------------------------------------------------------------------------------- saved engines

    def _place_to_save(self, save_to: Path | None) -> Path | None:
        if save_to is None and self.spec.save_engine:
            save_to = saved_path(self.spec.ckpt)
        several = [symbol for symbol, sizes in self.spec.dims.items() if len(sizes) > 1]
        if save_to is not None and several:
            raise ConfigError(
                f"{save_to}: a saved engine holds one plan, --dim {several[0]}="
                f"{','.join(map(str, self.spec.dims[several[0]]))} asks for several; give one size, or do not save it"
            )
        return save_to

    def _restore(self) -> Plan | None:
        """Load the saved engine that is the ``ckpt``, or the one beside it if it matches."""
        path = saved_path(self.spec.ckpt)
        by_itself = path == self.spec.ckpt
        if not by_itself and not os.path.isfile(path):
            return None
        try:
            if any(len(sizes) > 1 for sizes in self.spec.dims.values()):
                raise ModelError(f"saved engine {path} holds one plan, --dim asks for several; open the ONNX file")
            plan = self._adopt(path, read_saved(path))
        except ModelError as error:
            if by_itself:
                raise
            _log.info("%s; building from %s", error, self.spec.ckpt)
            return None
        _log.info("loaded %s", path)
        return plan

    def _adopt(self, path: Path, saved: Saved) -> Plan:
        """Load a saved engine after checking that building now would give the same."""
        if path == self.spec.ckpt:
            self.dtype = self.spec.dtype or saved.origin.dtype
            self.spec = saved.complete(self.spec, self._spa_count)
        saved.origin.check(self.spec, self.dtype)
        self.bind(saved.inputs, saved.outputs, list(saved.dims.values()), lambda _: saved.batching)
        self._prepare(PassOptions(need_convert=saved.converted, layout=saved.layout))
        key = PlanKey(self.shard_size, self._combinations()[-1])
        axes = {tensor.name: tensor.batch_axis for tensor in self.inputs}
        saved.check_shapes(self.spec.ckpt, key.rows, self._lowering.shapes(key), axes)
        self.metadata, self._dims = saved.metadata, saved.dims
        model, weights = read_model(path, saved), {"": saved.work.weights}
        made = (key, model, saved.inputs, saved.outputs, saved.work, weights, self._threads())
        return self._lowering.open(*made, saved.check_model)

    def _save(self, path: Path, origin: Origin, plan: Plan) -> None:
        assert plan.stored is not None  # noqa: S101 -- for the type checker
        saved = Saved(
            origin=origin,
            card=self.description.name,
            card_sha256=hash_files(self.description.source),
            shard_size=self.shard_size,
            shapes=self._lowering.shapes(plan.key),
            batch_axes={tensor.name: tensor.batch_axis for tensor in self.inputs},
            independent=self.independent,
            reason=self.batching.why_dependent,
            dims=self._dims,
            dtypes={tensor.name: tensor.dtype.name for tensor in plan.inputs},
            outputs=plan.outputs,
            metadata=dict(self.metadata),
            layout=self._options.layout,
            converted=self._options.need_convert,
            work=plan.work,
        )
        write_saved(path, saved, plan.stored)

    # ------------------------------------------------------------------------------------------------------- running

    def describe(self) -> str:
        """Return the number of SPA, the precision, and that the card is simulated."""
        storage = f"{self.dtype} storage"
        if not self._options.need_convert:
            storage = "stored as the model is (need_convert = False)"
        sizes = [f"{name} {', '.join(map(str, self.spec.dims[name]))}" for name in self.batching.places]
        plans = f", plans for {'; '.join(sizes)}" if sizes else ""
        spas = f"{len(self.card.spas)} SPA x batch {self.shard_size}"
        if not any(tensor.batched for tensor in self.inputs):
            spas = f"{len(self.card.spas)} SPA, no batch to split"
        if self.independent is False:
            spas = f"{len(self.card.spas)} SPA, the whole call on one (samples depend on one another)"
        if self._unproven:
            spas = f"{spas}, samples independent: tried, not proven ({self._unproven})"
        times = "times are host wall time unless they say simulated"
        if self.paced:
            times = "paced: a call takes its simulated time on the wall clock, or longer if the host computes longer"
        return f"simulated T1 card: {spas}, {storage}{plans}; {times}"

    def infer(self, inputs: list[Array]) -> list[Array]:
        """Split the batch over the SPA and gather the results in order."""
        # A call of exactly the model's own batch is one shard, which is not split.
        split = self.static_batch is None or inputs[self.lead].shape[self.batch_axis] != self.static_batch
        if split and not self.spec.simulate_only:
            if self.independent is None:
                self._find_out(inputs)
            elif self.independent is False and not self._tried:
                self._try_apart(inputs)
        ordered = [inputs[i] for i in self._order]
        if self.independent is False:
            results = self._whole(inputs, ordered)
        else:
            plan = self._plan(PlanKey(self.shard_size, self._sizes(inputs)))
            on_card = partial(self._on_card, plan=plan)
            given = (ordered, self._model_inputs, plan.outputs, self.shard_size, on_card)
            results = run_sharded(lambda shard: on_card([shard])[0], *given, owned=True)
        self._samples += batch_of(inputs, self.inputs)
        return results

    def _sizes(self, inputs: Sequence[Array]) -> tuple[int, ...]:
        if not self.batching.places:
            return ()
        return tuple(inputs[spots[0][0]].shape[spots[0][1]] for spots in self.batching.places.values())

    def _find_out(self, inputs: list[Array]) -> None:
        """Determine from this call, if possible, whether samples depend on one another."""
        sizes = self._sizes(inputs)
        plan = self._plan(PlanKey(self.shard_size, sizes))
        alone = saved_path(self.spec.ckpt) == self.spec.ckpt
        # A loaded engine avoids reading the model if possible.
        source = None if alone or (self.loaded and self.shard_size > 1) else self._lowering
        why = prove(source, plan, [inputs[i] for i in self._order], self._model_inputs, self.static_batch)
        if why is None:
            return
        self.independent = not why
        self._unproven = "" if why else self.batching.why_dependent
        self.batching.why_dependent = why or self.batching.why_dependent
        if why and self.static_batch is None:
            self.shard_size = self.spec.batch_size
            self._plans.clear()  # replaced by plans for the batches of calls
        self._forget()

    def _try_apart(self, inputs: list[Array]) -> None:
        """Try whether the samples of this call depend on one another as the graph says, before it runs on one SPA.

        A graph is followed by rules that may not recognise how it keeps samples apart. If a trial finds no dependence,
        calls are split over the SPA, which a warning and :meth:`describe` report as tried, not proven.
        """
        ordered = [inputs[i] for i in self._order]
        alone = saved_path(self.spec.ckpt) == self.spec.ckpt
        if alone or self.static_batch is not None or not samples_differ(ordered, self._model_inputs):
            return
        self._tried = True
        if tried_apart(self._lowering, ordered, self._model_inputs, self._main.outputs) != "":
            return
        self.independent, self._unproven = True, self.batching.why_dependent
        self.shard_size = self._rows()
        self._plans.clear()
        warnings.warn(
            f"{self.spec.ckpt}: calls are split over the SPA: samples alone and together give the same results in a "
            f"trial; tried, not proven ({self._unproven})",
            stacklevel=user_stacklevel(),
        )

    def _whole(self, inputs: list[Array], ordered: list[Array]) -> list[Array]:
        total = batch_of(inputs, self.inputs)
        if self.static_batch is not None and total != self.static_batch:
            self.batching.refuse_pieces(total, self.static_batch)
        if not self._warned_whole and total > 1:
            self._warned_whole = True
            reason = f"samples depend on one another ({self.batching.why_dependent})"
            warnings.warn(f"{self.spec.ckpt}: {reason}: the whole call runs on one SPA", stacklevel=user_stacklevel())
        return self._on_card([ordered], self._plan(PlanKey(total, self._sizes(inputs))))[0]

    def infer_shards(self, shards: list[list[Array]]) -> list[list[Array]]:
        """Run shards in parallel on the SPA; raise InputError if a shard's samples differ from a SPA's plan."""
        keys = [PlanKey(batch_of(shard, self.inputs), self._sizes(shard)) for shard in shards]
        for i, key in enumerate(keys):
            if key.rows != self.shard_size and (self.independent is not False or self.static_batch is not None):
                raise InputError(
                    f"shard {i} has {key.rows} samples, the plan of each SPA takes {self.shard_size}; pad the shard to "
                    "it, or open the engine with another input_size"
                )
        plans = [self._plan(key) for key in keys]
        results = self._on_card([[shard[i] for i in self._order] for shard in shards], *plans)
        self._samples += sum(key.rows for key in keys)
        return results

    def _on_card(self, shards: list[list[Array]], plan: Plan, *others: Plan) -> list[list[Array]]:
        events = len(self.card.events)
        before = self.card.elapsed
        plans = (plan, *others) if others else (plan,) * len(shards)
        instances = [Instance(each.cost, each.run) for each in plans]
        with self._publisher.computing(lambda: self.card.statuses(plan.cost.compute_share)):
            results, call = self.card.run(shards, self._samples, self._wait, instances)
        self.calls.append(call)
        self._calls += 1
        self._latency += call.completed - call.submitted
        passed = call.completed - max(call.submitted, before)
        # Queued calls overlap: less time than computing may have passed, and none after a lost SPA.
        busy = 1.0 if passed <= call.compute else call.compute / passed
        failed = len(self.card.events) > events
        if failed or self._publisher.is_due():
            self._publisher.publish(self.card.statuses(busy), force=failed)
        return results

    def run_async(self, inputs: Array | Sequence[Array]) -> Future[Array | list[Array]]:
        """Queue a call; on the simulated clock its copies overlap with the computing of earlier calls."""
        return self.queue.submit(self._overlapped, inputs)

    def _overlapped(self, inputs: Array | Sequence[Array]) -> Array | list[Array]:
        self._wait = False
        try:
            return self(inputs)
        finally:
            self._wait = True

    @property
    def events(self) -> list[str]:
        """Faults that occurred on the card so far."""
        return self.card.events

    def device_seconds(self) -> list[float]:
        """Return the simulated seconds in which each SPA had a shard."""
        return [spa.busy for spa in self.card.spas]

    def device_report(self) -> dict[str, Any]:
        """Return the card's figures of a run; all times are simulated."""
        return {
            "card": self.description.name,
            "spas": len(self.card.spas),
            "healthy": len(self.card.healthy),
            "memory_per_spa": self.card.memory,
            "simulated_latency": self._latency / max(self._calls, 1),
            "simulated_sps": self._samples / self.card.elapsed if self._calls else 0.0,
            "events": list(self.card.events),
            **({} if self.card.pace is None else {"paced": self.card.pace.report()}),
            **({"plans": plan_report(self._plans, self.batching.places)} if len(self._plans) > 1 else {}),
        }

    def cancel(self) -> None:
        """Stop the host computations for the card at their next node, and the waits of paced calls."""
        if self.card.pace is not None:
            self.card.pace.cancel()
        for plan in list(self._plans.values()):
            if plan.session is not None:
                plan.session.cancel()

    def close(self) -> None:
        """Free the devices, the engine instances and the weights they share."""
        self.card.close()
        self._publisher.close()
        self._plans.clear()
        self._lowering.forget()
        self._main = self._main.closed()
