"""Runs of a model over a data set, each judged by the accuracy gate beside the baseline's float32 run."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from engine.base import Array, EngineSpec
from engine.registry import open_engine
from model_config.gate import Pairs, judge
from model_config.results import Accuracy, Verdict
from toolkit.fix.pass_file import write_pass
from toolkit.fix.records import Records, check_rows
from toolkit.fix.samples import Part, Samples


class Trial(NamedTuple):
    """One run: what was changed in which nodes, what the gate says, and every sample's record."""

    what: str
    names: tuple[str, ...]
    accuracy: Accuracy
    records: Array


@dataclass
class Trials:
    """Runs and judges; counts what it ran.

    Attributes:
        samples, metric, records: the data set, the metric's name and what it says of each sample.
        tolerance: of the gate.
        batch: samples of a call.
        folder: for pass files and models that only trials need.
        base: a pass file that every run on the card goes by, beside what stays float32.
        heard: told of every run.
        ran: all trials so far, in order.
    """

    samples: Samples
    metric: str
    records: Records
    tolerance: float
    batch: int
    folder: Path
    base: Path | None = None
    heard: Callable[[Trial], None] = lambda trial: None
    ran: list[Trial] = field(default_factory=list)
    _outputs: list[list[Array]] = field(default_factory=list)
    _baseline: Array = field(default_factory=lambda: np.zeros(0))
    _need: Verdict = Verdict.PASS

    @property
    def baseline(self) -> float | None:
        """The baseline's metric; ``None`` before it has run."""
        return float(self._baseline.mean()) if len(self._baseline) else None

    def take_baseline(self, path: Path) -> float:
        """Run the baseline, a model in float32 on target ``onnx``, and return its metric."""
        spec = EngineSpec(path, batch_size=self.batch, dtype="float32")
        self._outputs = list(self._run("onnx", spec))
        walk = zip(self._outputs, self.samples, strict=True)
        self._baseline = np.concatenate([self._recorded(part, outputs, outputs) for outputs, part in walk])
        return float(self._baseline.mean())

    def _recorded(self, part: Part, ours: list[Array], theirs: list[Array]) -> Array:
        check_rows(ours, len(part.names))
        return self.records(ours, part.labels, theirs)

    def card(self, path: Path, what: str, float32: Collection[str] = (), pass_path: Path | None = None) -> Trial:
        """Run on the card in float16 storage.

        Args:
            path: the model. what: of the trial, for the report.
            float32: names of nodes, or operators, that stay float32.
            pass_path: a pass file that says so; ``None`` writes one for ``float32``.
        """
        # A file name of its own, so that a traceback of an earlier trial's pass still shows its source.
        own = pass_path or write_pass(self.folder / f"trial_{len(self.ran)}_pass.py", float32, "a trial", self.base)
        size = self.samples.shapes(self.batch)
        spec = EngineSpec(path, self.batch, size, dtype="float16", pass_path=own, divided=False)
        return self._judged(what, float32, self._run("sdaa", spec))

    def host(self, path: Path, what: str, names: Collection[str] = ()) -> Trial:
        """Run another model on the baseline's engine; ``names`` are the nodes it has from the baseline."""
        return self._judged(what, names, self._run("onnx", EngineSpec(path, batch_size=self.batch, dtype="float32")))

    def demand(self, best: Trial) -> bool:
        """Take the best there can be as what a trial must reach, and say whether that is good enough to go on.

        With too few samples even equal answers are inconclusive; a difference within the tolerance must do then.
        """
        self._need = best.accuracy.verdict
        return self.enough(best)

    def enough(self, trial: Trial) -> bool:
        """Say whether the gate passes, or says what it says of the best there can be."""
        found = trial.accuracy
        if found.verdict is Verdict.PASS:
            return True
        within = abs(found.relative_difference) <= self.tolerance
        return self._need is Verdict.INCONCLUSIVE is found.verdict and within

    def worst(self, trial: Trial, count: int) -> list[int]:
        """Return the samples whose records fell most, and the first ones; ``count`` in all."""
        with np.errstate(invalid="ignore"):
            order = np.argsort(np.nan_to_num(trial.records, nan=-np.inf) - self._baseline, kind="stable")
        half = order[: max(1, count // 2)].tolist()
        return sorted({*half, *range(min(count - len(half), self.samples.count))})

    def _judged(self, what: str, names: Collection[str], outputs: Iterator[list[Array]]) -> Trial:
        walk = zip(outputs, self.samples, self._outputs, strict=True)
        records = np.concatenate([self._recorded(part, ours, theirs) for ours, part, theirs in walk])
        pairs = Pairs(records, self._baseline, self.metric)
        accuracy = judge(pairs, float(records.mean()), float(self._baseline.mean()), tolerance=self.tolerance)
        self.ran.append(Trial(what, tuple(names), accuracy, records))
        self.heard(self.ran[-1])
        return self.ran[-1]

    def _run(self, target: str, spec: EngineSpec) -> Iterator[list[Array]]:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*of a size not known beforehand")  # no trial is about time
            engine = open_engine(target, spec)
        with engine:
            for part in self.samples:
                with np.errstate(over="ignore"):
                    fed = [a.astype(s.dtype, copy=False) for a, s in zip(part.inputs, engine.inputs, strict=True)]
                outputs = engine(fed)
                found = outputs if isinstance(outputs, list) else [outputs]
                yield [array.astype(np.float32) if array.dtype == np.float16 else array for array in found]
