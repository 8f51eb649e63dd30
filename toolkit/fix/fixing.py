"""Search for the nodes that must stay float32 for a model to pass the gate on the card."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from engine import ConfigError, ModelError
from engine.passes import PassOptions
from model_config.results import Accuracy
from toolkit.fix.guide import overflowing, peaks, ranked
from toolkit.fix.isolated import isolated_errors
from toolkit.fix.opening import SampleRequest, open_samples
from toolkit.fix.records import metric_named
from toolkit.fix.saving import prepare_folder, saving_on_interrupt, writing
from toolkit.fix.search import smallest
from toolkit.fix.trials import Trial, Trials, write_pass
from toolkit.fix.wide import float32_form, lifted
from toolkit.graph.inputs import Dims, Shapes, batched_specs, static_batch
from toolkit.graph.nodes import Node, load_named, nodes_of

if TYPE_CHECKING:
    from onnx import ModelProto

    from toolkit.fix.task_request import TaskRequest

GUIDES = 16
"""Number of samples for ranking nodes: one half with the largest loss, the other half the first samples."""

SAME = 1e-6
"""Largest isolated error of equal nodes of two models, which run in one graph with the same order of summation."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Simulated seconds of a shard on one SPA, copies included: all float16, the fixed model, all float32."""

    float16: float
    fixed: float
    float32: float

    @property
    def given_up(self) -> float:
        """Share of the float16 speed lost by the fix."""
        return 1 - self.float16 / self.fixed


@dataclass
class Fix:
    """Result of a search.

    Attributes:
        verdict: ``passes`` (no fix needed), ``fixed``, ``model`` (nodes differ from the baseline model in float32) or
            ``other`` (all-float32 fails too: the cause is not precision).
        metric: name of the metric. baseline: its value of the float32 baseline.
        nodes: of the model after the passes. errors: isolated error by node name.
        overflows: names of nodes that read or write values beyond float16 in the data set.
        culprits: names in graph order of the nodes that stay float32, or that differ.
        before, after, mixed: accuracy of the model, of the fix by the pass file, and of the mixed ONNX.
        trials: every run in order. pass_file: written pass file. model_file: mixed-precision or repaired ONNX.
        renamed_file: the model with the node names of the pass file, if its own are not unique.
        cost: simulated; ``None`` without a fix for the card. notes: one line each.
    """

    verdict: str
    metric: str
    baseline: float
    nodes: list[Node]
    before: Accuracy
    after: Accuracy | None = None
    mixed: Accuracy | None = None
    errors: Mapping[str, float] = field(default_factory=dict)
    overflows: frozenset[str] = frozenset()
    culprits: list[str] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    pass_file: Path | None = None
    model_file: Path | None = None
    renamed_file: Path | None = None
    cost: Cost | None = None
    notes: list[str] = field(default_factory=list)


def fix(
    path: Path,
    data: Path | Sequence[str] | None,
    metric: str | None,
    out: Path,
    *,
    tolerance: float = 0.001,
    batch: int = 32,
    limit: int | None = None,
    baseline: Path | None = None,
    pass_path: Path | None = None,
    shapes: Shapes | None = None,
    dims: Dims | None = None,
    asked: TaskRequest | None = None,
    on_trial: Callable[[Trial], None] = lambda trial: None,
) -> Fix:
    """Find the nodes that make a model fail the accuracy gate on the card, and write a model that passes.

    Args:
        path: the ONNX file. data: its data set (:func:`toolkit.fix.opening.open_samples`).
        metric: name of a metric of raw outputs (:func:`toolkit.fix.records.metric_named`); ``None`` takes the task's
            own, without a task top1.
        out: output folder. tolerance: relative tolerance of the gate. on_trial: called with every run.
        baseline: a correct model with the same node names; ``None`` takes the model itself in float32.
        pass_path: a pass file used already; the fix is added to it.
        batch, limit, shapes, dims, asked: as of :class:`~toolkit.fix.opening.SampleRequest`.

    Raises:
        ConfigError, DataError, ModelError: the metric, the data or a model is invalid.
        KeyboardInterrupt: interrupted; the message names the file with the finished runs.
    """
    options = PassOptions.load(pass_path)
    if asked is None:
        metric_named(metric or "top1")  # raises before any work
    model, renamed = _named(path)
    with open_samples(path, model, SampleRequest(data, batch, limit, shapes or {}, dims or {}, asked)) as samples:
        measure = samples.measure(metric)
        prepare_folder(out)
        with tempfile.TemporaryDirectory(prefix="teco-fix-") as folder:
            trials = Trials(samples, measure, tolerance, Path(folder), pass_path, on_trial)
            with saving_on_interrupt(trials, out / f"{path.stem}_fix_trials.json"):
                found = _Search(path, (model, renamed), trials, out, options).search(baseline)
    found.trials = trials.ran
    found.notes += [samples.left_out] if samples.left_out else []
    if asked is not None and asked.others:
        rest = ", ".join(asked.others)
        found.notes.append(f"only {asked.name} runs on the card; {rest} of task {asked.task.name} run in float32")
    return found


def _named(path: Path) -> tuple[ModelProto, bool]:
    """Load a model in float32 with unique node names that are not operator names, since ``skip_ops`` accepts both;
    return it, and whether node names differ from the file's.
    """
    from engine.onnx import load_model
    from engine.sdaa import inlined

    before = [node.name for node in inlined(load_model(path)).graph.node]
    model = load_named(path)
    operators = {node.op_type for node in model.graph.node}
    for i, node in enumerate(model.graph.node):
        if node.name in operators:
            node.name = f"{node.name}#{i}"
    renamed = [node.name for node in model.graph.node] != before
    return float32_form(model), renamed


class _Search:
    """One search.

    ``named`` is the file that runs: the model in float32 with unique node names. ``model`` is its graph after the
    passes, whose nodes are searched; ``fixed`` is the fixed batch of ``model``, ``batch`` that of the file.
    """

    def __init__(
        self, path: Path, named: tuple[ModelProto, bool], trials: Trials, out: Path, options: PassOptions
    ) -> None:
        from engine.onnx import save_model

        model, self.renamed = named
        self.path, self.trials, self.out, self.options = path, trials, out, options
        self.original, self.model = model, model
        self.fixed = self.batch = static_batch(batched_specs(model))
        self.named = trials.folder / path.name
        save_model(model, self.named)
        if options.use_passes is not None:
            self.model, self.fixed = self._passed(), trials.samples.batch
        self.nodes = nodes_of(self.model)

    def _passed(self) -> ModelProto:
        """Return the model after the passes, which need static shapes."""
        from engine.passes import apply_passes

        dims = self.trials.samples.sizes().dims
        if dims:
            symbol, sizes = next(iter(dims.items()))
            raise ConfigError(
                f"the passes of {self.trials.base} need one shape, but the calls have {len(sizes)} sizes of "
                f"{symbol!r}; pad them to one: --dim {symbol}={sizes[-1]}"
            )
        return apply_passes(self._bound(self.original), self.options, compare=False)

    def _bound(self, model: ModelProto) -> ModelProto:
        from engine.onnx import bind_shapes, graph_inputs

        names = [info.name for info in graph_inputs(model)]
        return bind_shapes(model, dict(zip(names, self.trials.samples.shapes(), strict=True)))

    def search(self, baseline: Path | None) -> Fix:
        """Search nodes that differ from the baseline model, if given; if there are none, search by precision."""
        found = None if baseline is None else self.compare_with(_named(baseline)[0], baseline)
        return found or self.precision()

    def compare_with(self, donor: ModelProto, path: Path) -> Fix | None:
        """Search nodes that differ from a correct model, both in float32; return ``None`` if the models agree."""
        from engine.onnx import save_model

        trials, model = self.trials, self.original
        nodes = nodes_of(model)
        right = trials.folder / f"baseline_{path.name}"
        save_model(donor, right)
        metric = trials.take_baseline(right)
        before = trials.host(self.named, "this model in float32")
        if trials.enough(before):
            return None
        _check_twins(model, donor, str(self.path))
        calls = [part.inputs for part in trials.samples.chosen(trials.worst(before, GUIDES))]
        errors = isolated_errors(donor, model, *calls, batch=self.batch)

        def passes(names: frozenset[str]) -> bool:
            if not names:
                return False  # the trial `before`
            file = trials.folder / "grafted.onnx"
            save_model(_grafted(model, donor, names), file)
            what = f"{len(names)} of {len(nodes)} nodes from the baseline"
            return trials.enough(trials.host(file, what, sorted(names)))

        likely = sum(error > SAME for error in errors.values())
        culprits = _ordered(nodes, smallest(ranked(nodes, errors), passes, likely))
        repaired = self.out / f"{self.path.stem}_repaired.onnx"
        with writing(self.out):
            save_model(_grafted(model, donor, culprits), repaired)
        after = trials.host(repaired, "the repaired model", culprits)
        verdict = "model" if trials.enough(after) else "other"
        found = Fix(verdict, trials.metric, metric, nodes, before.accuracy, after.accuracy, errors=errors)
        found.culprits, found.model_file = culprits, repaired
        return found

    def precision(self) -> Fix:
        """Search the nodes that must stay float32."""
        trials = self.trials
        metric = trials.take_baseline(self.named) if trials.baseline is None else trials.baseline
        # By operator, since nodes created by a pass may have no names.
        every = write_pass(trials.folder / "every_pass.py", sorted({n.op for n in self.nodes}), "all", trials.base)
        best = trials.card(self.named, "all nodes float32", [node.name for node in self.nodes], every)
        before = trials.card(self.named, "all nodes float16")
        found = Fix("passes", trials.metric, metric, self.nodes, before.accuracy)
        if trials.enough(before):
            return found
        if not trials.enough(best):
            found.verdict = "other"
            found.after = best.accuracy
            return found
        self._guide(found, before)
        order = [name for name in ranked(self.nodes, found.errors, found.overflows) if name in self._candidates()]

        def passes(names: frozenset[str]) -> bool:
            if not names or len(names) == len(order):
                return bool(names)  # these trials are done
            return trials.enough(trials.card(self.named, f"{len(names)} nodes float32", _ordered(self.nodes, names)))

        found.culprits = _ordered(self.nodes, smallest(order, passes, len(found.overflows)))
        self._write(found)
        return found

    def _candidates(self) -> set[str]:
        """Return the nodes that a pass file can name and that are not float32 already."""
        from collections import Counter

        from engine.onnx import subgraphs

        free = [
            node.name
            for node in self.model.graph.node
            if not self.options.keeps_float32(node) and not any(True for _ in subgraphs(node))
        ]
        return {name for name, count in Counter(free).items() if name and count == 1}

    def _guide(self, found: Fix, before: Trial) -> None:
        """Find the overflowing nodes over the data set, and the isolated error of every node."""
        trials, keep = self.trials, self.options.keeps_float32
        largest = peaks(self.model, trials.samples.calls(), self.fixed)
        found.overflows = frozenset(overflowing(self.model, self.nodes, largest, keep) & self._candidates())
        calls = [part.inputs for part in trials.samples.chosen(trials.worst(before, GUIDES))]
        found.errors = isolated_errors(self.model, None, *calls, batch=self.fixed, keep=keep)

    def _write(self, found: Fix) -> None:
        """Write the pass file and the mixed model, and run both on the whole data set."""
        from engine.onnx import save_model, to_float16

        stem, trials = self.path.stem, self.trials
        why = f"found for {self.path.name} by teco fix, metric {found.metric}"
        target = self.path
        found.model_file = self.out / f"{stem}_mixed.onnx"
        with writing(self.out):
            found.pass_file = write_pass(self.out / f"{stem}_fix_pass.py", found.culprits, why, trials.base)
            keeps = PassOptions.load(found.pass_file).keeps_float32
            save_model(to_float16(lifted(self.model), keeps, self.options.skip_input_name), found.model_file)
            if self.renamed:
                target = found.renamed_file = self.out / f"{stem}_named.onnx"
                save_model(self.original, target)
        if self.renamed:
            found.notes.append(f"nodes had no unique names; {target} has the names used in the pass file")
        if self.model is not self.original:
            found.notes.append(f"the mixed ONNX includes the passes of {trials.base}, for batch {trials.samples.batch}")
        after = trials.card(target, "the pass file", found.culprits, found.pass_file)
        kept = [node.name for node in self.model.graph.node if keeps(node)]  # the passes were applied already
        names = write_pass(trials.folder / "mixed_pass.py", kept, why)
        mixed = trials.card(found.model_file, "the mixed-precision ONNX", found.culprits, names)
        found.after, found.mixed = after.accuracy, mixed.accuracy
        found.verdict = "fixed" if trials.enough(after) else "other"
        if not trials.enough(mixed):
            found.notes.append(f"{found.model_file} does not pass the gate; use the pass file")
        self._cost(found)

    def _cost(self, found: Fix) -> None:
        """Compute the simulated cost of the three forms of the model on one SPA."""
        from engine.sdaa import load_card, shard_cost

        card, usual, float32 = load_card(), self.options.keeps_float32, set(found.culprits)
        bound, layout = self._bound(self.model), card.layout(self.options.layout)
        costs = [
            shard_cost(bound, card, layout, True, usual),
            shard_cost(bound, card, layout, True, lambda node: node.name in float32 or usual(node)),
            shard_cost(bound, card, layout, False),
        ]
        found.cost = Cost(*(cost.copy_in + cost.compute + cost.copy_out for cost in costs))
        if found.cost.fixed > found.cost.float32:
            found.notes.append("all-float32 is faster (simulated), since float32 nodes are not fused with others")
        if costs[1].unknown:
            found.notes.append(f"{len(costs[1].unknown)} kernels of unknown size are simulated with their launch only")


def _ordered(nodes: list[Node], names: Collection[str]) -> list[str]:
    chosen = set(names)
    return [node.name for node in nodes if node.name in chosen]


def _grafted(model: ModelProto, donor: ModelProto, names: Collection[str]) -> ModelProto:
    """Return a copy of a model with the named nodes and their weights replaced by the donor's."""
    from engine.onnx import copy_model

    copy = copy_model(model)
    weights = {tensor.name: tensor for tensor in donor.graph.initializer}
    donors = {node.name: node for node in donor.graph.node}
    added: set[str] = set()
    for node in copy.graph.node:
        if node.name not in names:
            continue
        node.CopyFrom(donors[node.name])
        for i, name in enumerate(node.input):
            if name in weights:
                node.input[i] = f"{name}:donor"
                added.add(name)
    for name in sorted(added):
        tensor = copy.graph.initializer.add()
        tensor.CopyFrom(weights[name])
        tensor.name = f"{name}:donor"
    del copy.graph.value_info[:]
    return copy


def _check_twins(model: ModelProto, donor: ModelProto, where: str) -> None:
    """Raise ModelError if two models differ in their node or tensor names."""
    ours, theirs = ({node.name: list(node.output) for node in m.graph.node} for m in (model, donor))
    if ours != theirs:
        lone = sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
        raise ModelError(
            f"{where}: node {lone[0]!r} differs between the models ({len(lone)} nodes differ), so nodes cannot be "
            "exchanged; export both with the same exporter"
        )
