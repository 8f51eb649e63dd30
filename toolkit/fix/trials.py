"""Runs of a model over a data set, each judged by the accuracy gate beside the baseline's float32 run."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, Engine, EngineSpec, TecoInferError, open_engine
from model_config.judge.gate import judge
from model_config.results import Accuracy, Verdict
from tecoinfer_modelzoo.text import reason_of
from toolkit.fix.columns import Columns, joined, losses, paired
from toolkit.fix.pass_file import write_pass
from toolkit.fix.records import Feed, Measure
from toolkit.fix.samples import Samples
from utils.metrics.base import Metric, Records
from utils.pipeline.run.nan import Flaws, named, output_line

BROKEN = (TecoInferError, ArithmeticError, ValueError, IndexError)
"""What decoding and metrics may raise for values that float16 has broken."""


class Trial(NamedTuple):
    """One run: what was changed in which nodes, what the gate says, and the records; ``None`` where it broke off."""

    what: str
    names: tuple[str, ...]
    accuracy: Accuracy
    records: Columns | None


@dataclass
class Trials:
    """Runs and judges; counts what it ran.

    Attributes:
        samples, measure: the data set, and how runs over it are measured.
        tolerance: of the gate.
        folder: for pass files and models that only trials need.
        base: a pass file that every run on the card goes by, beside what stays float32.
        heard: told of every run.
        ran: all trials so far, in order.
    """

    samples: Samples
    measure: Measure
    tolerance: float
    folder: Path
    base: Path | None = None
    heard: Callable[[Trial], None] = lambda trial: None
    ran: list[Trial] = field(default_factory=list)
    baseline: float | None = None
    """The baseline's metric; ``None`` before it has run."""
    _outputs: list[Any] = field(default_factory=list)
    _records: Columns | None = None
    _need: Verdict = Verdict.PASS

    @property
    def metric(self) -> str:
        """The metric's name."""
        return self.measure.name

    def take_baseline(self, path: Path) -> float:
        """Run the baseline, a model in float32 on target ``onnx``, and return its metric.

        Raises:
            DataError: there are no samples, or the metric has no value for them.
        """
        metric = self.measure.make()
        outputs: list[Any] = []
        found: list[tuple[Feed, Array | Records]] = []
        self.samples.reference = path
        with _opened("onnx", replace(self.samples.spec(path), dtype="float32")) as engine:
            for part, ours in self.samples.run(engine):
                if self.measure.raw:
                    outputs.append(ours)
                found.append((part, self.measure.update(metric, part, ours, ours)))
        self._outputs, self._records = outputs, joined(found)
        self.baseline = float(metric.compute())
        return self.baseline

    def card(self, path: Path, what: str, float32: Collection[str] = (), pass_path: Path | None = None) -> Trial:
        """Run on the card in float16 storage.

        Args:
            path: the model. what: of the trial, for the report.
            float32: names of nodes, or operators, that stay float32.
            pass_path: a pass file that says so; ``None`` writes one for ``float32``.
        """
        # A file name of its own, so that a traceback of an earlier trial's pass still shows its source.
        own = pass_path or write_pass(self.folder / f"trial_{len(self.ran)}_pass.py", float32, "a trial", self.base)
        spec = replace(self.samples.card_spec(path), dtype="float16", pass_path=own, divided=self.samples.sharded)
        return self._judged(what, float32, "sdaa", spec)

    def host(self, path: Path, what: str, names: Collection[str] = ()) -> Trial:
        """Run another model on the baseline's engine; ``names`` are the nodes it has from the baseline."""
        return self._judged(what, names, "onnx", replace(self.samples.spec(path), dtype="float32"))

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
        """Return the samples by which the metric became worse most, and the first ones; ``count`` in all."""
        half: list[int] = []
        if trial.records is not None and self._records is not None:
            lost = losses(self.measure.make(), trial.records, self._records)
            half = np.argsort(-lost, kind="stable")[: max(1, count // 2)].tolist()
        return sorted({*half, *range(min(count - len(half), self.samples.count))})

    def _judged(self, what: str, names: Collection[str], target: str, spec: EngineSpec) -> Trial:
        metric, records, lost = self.measure.make(), None, list[str]()
        with _opened(target, spec) as engine:
            try:
                records = joined(self._measured(engine, metric, lost))
                accuracy = self._accuracy(records, metric)
                if lost and accuracy.verdict is not Verdict.FAIL:  # in samples that are wrong in any case
                    reason = output_line(lost, self.samples.count, (), engine.describe())
                    accuracy = replace(accuracy, verdict=Verdict.FAIL, reason=reason)
            except _UnjudgedError as error:
                accuracy = self._broken(str(error))
        self.ran.append(Trial(what, tuple(names), accuracy, records))
        self.heard(self.ran[-1])
        return self.ran[-1]

    def _measured(self, engine: Engine, metric: Metric, lost: list[str]) -> Iterator[tuple[Feed, Array | Records]]:
        """Yield the samples with their records, and name in ``lost`` those with NaN in the output."""
        axes = [tensor.batch_axis for tensor in engine.outputs] if self.samples.one_call else None
        theirs: Iterable[Any] = self._outputs if self.measure.raw else repeat(None)
        # What a loop makes of broken values may fail anywhere in it; a single call cannot.
        with nullcontext() if self.samples.one_call else _telling():
            for (part, ours), baseline in zip(self.samples.run(engine), theirs, strict=False):
                with _telling():
                    record = self.measure.update(metric, part, ours, baseline)
                flaws = Flaws.none(len(part.names))
                flaws.add(ours, axes)
                lost += named(flaws.nan, part.names)
                yield part, record

    def _accuracy(self, records: Columns, metric: Metric) -> Accuracy:
        assert self._records is not None  # noqa: S101 - the baseline has run
        assert self.baseline is not None  # noqa: S101
        with _telling():
            value = float(metric.compute())
        pairs = paired(records, self._records, self.metric)
        return judge(pairs, value, self.baseline, metric_of=metric, tolerance=self.tolerance)

    def _broken(self, why: str) -> Accuracy:
        """Return the failure of a run whose outputs cannot be decoded or measured."""
        reason = f"{self.metric}: the outputs cannot be judged: {why}"
        before = math.nan if self.baseline is None else self.baseline
        against = "onnx float32"
        return Accuracy(Verdict.FAIL, reason, against, self.metric, math.nan, before, math.nan, self.tolerance)


class _UnjudgedError(Exception):
    """What a run gives cannot be decoded or measured."""


@contextmanager
def _telling() -> Iterator[None]:
    """Turn what decoding and metrics raise for values that float16 has broken into :class:`_UnjudgedError`."""
    try:
        yield
    except ConfigError:  # of flags, whatever the values
        raise
    except BROKEN as error:
        raise _UnjudgedError(reason_of(error)) from error


@contextmanager
def _opened(target: str, spec: EngineSpec) -> Iterator[Engine]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*of a size not known beforehand")  # no trial is about time
        engine = open_engine(target, spec)
    with engine:
        yield engine
