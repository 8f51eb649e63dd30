"""The search itself: from a model that fails the gate on the card to the nodes that must stay float32."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from engine.base import DataError
from model_config.results import Accuracy
from toolkit.fix.graft import check_twins, grafted
from toolkit.fix.isolated import isolated_errors
from toolkit.fix.records import metric_named, needs_labels
from toolkit.fix.samples import Samples, load_samples
from toolkit.fix.search import smallest
from toolkit.fix.trials import Trial, Trials, write_pass
from toolkit.intermediates import Node, load_named, nodes_of

if TYPE_CHECKING:
    from onnx import ModelProto

GUIDES = 16
"""Samples by which nodes are ranked: half of them those that fell most, the others the first ones."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Simulated seconds of a shard on one SPA, copies included: all float16, the fixed model, all float32."""

    float16: float
    fixed: float
    float32: float

    @property
    def given_up(self) -> float:
        """Share of the float16 speed that the fix costs."""
        return 1 - self.float16 / self.fixed


@dataclass
class Fix:
    """What was found.

    Attributes:
        verdict: ``passes`` (nothing to do), ``fixed``, ``model`` (nodes differ from the baseline model's, in float32
            already) or ``other`` (all float32 fails too: not precision).
        nodes: of the model. errors: isolated error by node name.
        culprits: names in graph order: the nodes that stay float32, or those that differ.
        before, after: the gate on the model as it was, and as fixed (by the pass file); mixed: on the mixed ONNX.
        trials: every run in order. baseline: metric of the float32 baseline.
        pass_file, model_file: what was written; ``model_file`` is the mixed-precision or repaired ONNX.
        cost: simulated; ``None`` where nothing was fixed for the card.
        notes: one line each.
    """

    verdict: str
    metric: str
    baseline: float
    nodes: list[Node]
    before: Accuracy
    after: Accuracy | None = None
    mixed: Accuracy | None = None
    errors: Mapping[str, float] = field(default_factory=dict)
    culprits: list[str] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    pass_file: Path | None = None
    model_file: Path | None = None
    cost: Cost | None = None
    notes: list[str] = field(default_factory=list)


def fix(
    path: Path,
    data: Path,
    metric: str,
    out: Path,
    *,
    tolerance: float = 0.001,
    batch: int = 32,
    limit: int | None = None,
    baseline: Path | None = None,
) -> Fix:
    """Find the nodes that make a model fail the accuracy gate on the card, and write the model that passes.

    Args:
        path: the ONNX file. data: its data set (:func:`toolkit.fix.samples.load_samples`).
        metric: name of the metric (:func:`toolkit.fix.records.metric_named`).
        out: folder for the files.
        tolerance: of the gate, relative.
        batch: samples of a call. limit: samples to take; ``None`` takes all.
        baseline: the model that is right, with the same nodes by name; ``None`` takes the model itself in float32.

    Raises:
        ConfigError, DataError, ModelError: the metric, the data or a model cannot be used.
    """
    model = _named(path)
    batch = static_batch(model) or batch
    samples = open_samples(model, data, batch, limit)
    if needs_labels(metric) and not samples.labelled:
        raise DataError(f"{data}: metric {metric} needs labels, and there are none; use --metric agree or close")
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="teco-fix-") as folder:
        trials = Trials(samples, metric, metric_named(metric), tolerance, batch, Path(folder))
        search = _Search(path, model, trials, out)
        found = search.against(_named(baseline), baseline) if baseline is not None else None
        found = found or search.precision()
    found.trials = trials.ran
    return found


def open_samples(model: ModelProto, data: Path, batch: int, limit: int | None) -> Samples:
    """Open the data set of a loaded model."""
    from engine.onnx_graph import metadata, signature

    return load_samples(data, signature(model)[0], metadata(model), batch, limit)


def static_batch(model: ModelProto) -> int | None:
    """Return the batch a model is fixed to, if it is."""
    from engine.onnx_graph import signature

    return next((spec.shape[0] for spec in signature(model)[0] if spec.batched and spec.shape), None)


def _named(path: Path) -> ModelProto:
    """Load a model with unique node names, none of which is also an operator's: ``skip_ops`` takes either."""
    model = load_named(path)
    operators = {node.op_type for node in model.graph.node}
    for i, node in enumerate(model.graph.node):
        if node.name in operators:
            node.name = f"{node.name}#{i}"
    return model


class _Search:
    def __init__(self, path: Path, model: ModelProto, trials: Trials, out: Path) -> None:
        from engine.onnx_graph import save_model

        self.path, self.model, self.trials, self.out = path, model, trials, out
        self.nodes = nodes_of(model)
        self.named = trials.folder / path.name
        save_model(model, self.named)

    # ------------------------------------------------------------------------------------------------- wrong nodes

    def against(self, donor: ModelProto, path: Path) -> Fix | None:
        """Compare with the model that is right, both in float32; ``None`` where they agree."""
        from engine.onnx_graph import save_model

        trials = self.trials
        metric = trials.take_baseline(path)
        trials.demand(trials.host(path, "the baseline model itself"))
        before = trials.host(self.named, "this model in float32")
        if trials.enough(before):
            return None
        check_twins(self.model, donor, str(self.path))
        inputs = trials.samples.chosen(trials.worst(before, GUIDES)).inputs
        errors = isolated_errors(donor, self.model, inputs)

        def passes(names: frozenset[str]) -> bool:
            if not names:
                return False  # that is `before`
            file = trials.folder / "grafted.onnx"
            save_model(grafted(self.model, donor, names), file)
            what = f"{len(names)} of {len(self.nodes)} nodes from the baseline"
            return trials.enough(trials.host(file, what, len(names)))

        culprits = self._ordered(smallest(ranked(self.nodes, errors), passes))
        repaired = self.out / f"{self.path.stem}_repaired.onnx"
        save_model(grafted(self.model, donor, culprits), repaired)
        after = trials.host(repaired, "the repaired model", len(culprits)).accuracy
        found = Fix("model", trials.metric, metric, self.nodes, before.accuracy, after, errors=errors)
        found.culprits, found.model_file = culprits, repaired
        return found

    # --------------------------------------------------------------------------------------------------- precision

    def precision(self) -> Fix:
        """Search the nodes that must stay float32."""
        trials = self.trials
        metric = trials.take_baseline(self.named) if trials.baseline is None else trials.baseline
        every = [node.name for node in self.nodes]
        best = trials.card(self.named, "all nodes float32", every)
        good = trials.demand(best)
        before = trials.card(self.named, "all nodes float16")
        found = Fix("passes", trials.metric, metric, self.nodes, before.accuracy)
        if trials.enough(before):
            return found
        if not good:
            found.verdict = "other"
            found.after = best.accuracy
            return found
        inputs = trials.samples.chosen(trials.worst(before, GUIDES)).inputs
        found.errors = isolated_errors(self.model, None, inputs)

        def passes(names: frozenset[str]) -> bool:
            if not names or len(names) == len(every):
                return bool(names)  # both have run
            return trials.enough(trials.card(self.named, f"{len(names)} nodes float32", self._ordered(names)))

        found.culprits = self._ordered(smallest(ranked(self.nodes, found.errors), passes))
        self._write(found)
        return found

    def _write(self, found: Fix) -> None:
        """Write pass file and mixed model, and judge both on the whole data set."""
        from engine.onnx_graph import save_model, to_float16
        from engine.passes.options import PassOptions

        stem = self.path.stem
        why = f"found for {self.path.name} by teco fix, metric {found.metric}"
        found.pass_file = write_pass(self.out / f"{stem}_fix_pass.py", found.culprits, why)
        keeps = PassOptions.load(found.pass_file).keeps_float32
        found.model_file = self.out / f"{stem}_mixed.onnx"
        save_model(to_float16(self.model, keeps), found.model_file)
        target = self.path
        if _changed_names(self.path, self.nodes):
            target = self.out / f"{stem}_named.onnx"
            save_model(self.model, target)
            found.notes.append(f"nodes had no names of their own; {target} has those of the pass file")
        trials = self.trials
        found.after = trials.card(target, "the pass file", found.culprits, found.pass_file).accuracy
        found.mixed = trials.card(
            found.model_file, "the mixed-precision ONNX", found.culprits, found.pass_file
        ).accuracy
        found.verdict = "fixed" if trials.enough(trials.ran[-2]) and trials.enough(trials.ran[-1]) else "other"
        found.cost = self._cost(set(found.culprits))
        if found.cost.fixed > found.cost.float32:
            found.notes.append("all float32 would be faster (simulated): nodes that stay float32 share no kernel")
        if found.after.needed:
            found.notes.append(f"the gate calls {found.after.needed} samples enough; there are {trials.samples.count}")

    def _cost(self, float32: set[str]) -> Cost:
        """Price the model's three forms on one SPA."""
        from engine.onnx_graph import bind_shapes, graph_inputs
        from engine.passes.options import PassOptions
        from engine.sdaa.card import load_card
        from engine.sdaa.cost import shard_cost

        card, usual = load_card(), PassOptions()
        names = [info.name for info in graph_inputs(self.model)]
        bound = bind_shapes(self.model, dict(zip(names, self.trials.samples.shapes(self.trials.batch), strict=True)))
        layout = card.layout(usual.layout)
        costs = [
            shard_cost(bound, card, layout, True, usual.keeps_float32),
            shard_cost(bound, card, layout, True, lambda node: node.name in float32 or usual.keeps_float32(node)),
            shard_cost(bound, card, layout, False),
        ]
        return Cost(*(cost.copy_in + cost.compute + cost.copy_out for cost in costs))

    def _ordered(self, names: frozenset[str] | list[str]) -> list[str]:
        chosen = set(names)
        return [node.name for node in self.nodes if node.name in chosen]


def _changed_names(path: Path, nodes: list[Node]) -> bool:
    from engine.onnx_graph import load_model
    from engine.sdaa.float16 import inlined

    return [node.name for node in inlined(load_model(path)).graph.node] != [node.name for node in nodes]


def ranked(nodes: list[Node], errors: Mapping[str, float]) -> list[str]:
    """Return the nodes' names, the largest isolated error first; equal ones in graph order, unknown ones last."""
    return sorted((node.name for node in nodes), key=lambda name: -errors.get(name, -math.inf))
