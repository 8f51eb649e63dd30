"""Runs of a model over a data set, each judged by the accuracy gate against the float32 baseline."""

from __future__ import annotations

import json
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
from engine.passes import PassOptions
from model_config.judge.gate import judge
from model_config.results import Accuracy, Verdict
from tecoinfer_modelzoo.files import write_file
from tecoinfer_modelzoo.text import reason_of
from toolkit.fix.columns import Columns, joined, losses, paired
from toolkit.fix.records import Feed, Measure
from toolkit.fix.samples import Samples
from utils.metrics.base import Metric, Records
from utils.pipeline.run.nan import Flaws, named, output_line

BROKEN = (TecoInferError, ArithmeticError, ValueError, IndexError)
"""Exceptions that decoding and metrics may raise for values broken by float16."""


def write_pass(path: Path, float32: Collection[str], why: str, base: Path | None = None) -> Path:
    """Write a pass file that keeps nodes (names, or operators) in float32, and return its path.

    ``why``: comment. ``base``: a pass file whose text is copied; the nodes are added to its ``skip_ops``.
    """
    before = PassOptions.load(base).skip_ops - set(float32)
    names = "".join(f"    {json.dumps(name, ensure_ascii=False)},\n" for name in (*sorted(before), *float32))
    listed = f"skip_ops = [\n{names}]\n" if names else "skip_ops = []\n"
    comment = f"Nodes that stay float32: {why}."
    if base is None:
        text = f'"""{comment}"""\n\n{listed}'
    else:
        text = f"{base.read_text(encoding='utf-8').rstrip()}\n\n\n# {comment}\n{listed}"
    write_file(path, text.encode())
    return path


class Trial(NamedTuple):
    """One run: description, changed nodes, accuracy, and records (``None`` if the run failed)."""

    what: str
    names: tuple[str, ...]
    accuracy: Accuracy
    records: Columns | None


@dataclass
class Trials:
    """Runs of a model and their accuracy.

    Attributes:
        samples, measure: the data set and the metric. tolerance: of the gate.
        folder: for temporary pass files and models. base: pass file that every run on the card is based on.
        on_trial: called with every run. ran: all runs in order.
    """

    samples: Samples
    measure: Measure
    tolerance: float
    folder: Path
    base: Path | None = None
    on_trial: Callable[[Trial], None] = lambda trial: None
    ran: list[Trial] = field(default_factory=list)
    baseline: float | None = None
    """Metric of the baseline; ``None`` before its run."""
    _outputs: list[Any] = field(default_factory=list)
    _records: Columns | None = None

    @property
    def metric(self) -> str:
        """The metric's name."""
        return self.measure.name

    def take_baseline(self, path: Path) -> float:
        """Run the baseline, a model in float32 on target ``onnx``, and return its metric.

        Raises DataError if samples are missing, or the metric is undefined for them.
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
        """Run on the card in float16 storage, with some nodes (names, or operators) in float32; ``what`` describes the
        trial.

        ``pass_path``: pass file with these names; ``None`` writes one.
        """
        # A unique file name, so that a traceback of an earlier trial's pass still shows its source.
        own = pass_path or write_pass(self.folder / f"trial_{len(self.ran)}_pass.py", float32, "a trial", self.base)
        spec = replace(self.samples.card_spec(path), dtype="float16", pass_path=own, divided=self.samples.sharded)
        return self._judged(what, float32, "sdaa", spec)

    def host(self, path: Path, what: str, names: Collection[str] = ()) -> Trial:
        """Run another model on the baseline's engine; ``names`` are its nodes taken from the baseline."""
        return self._judged(what, names, "onnx", replace(self.samples.spec(path), dtype="float32"))

    def enough(self, trial: Trial) -> bool:
        """Return whether a trial passes the gate."""
        return trial.accuracy.verdict is Verdict.PASS

    def worst(self, trial: Trial, count: int) -> list[int]:
        """Return ``count`` samples: those with the largest loss, and the first ones."""
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
                if lost and accuracy.verdict is not Verdict.FAIL:  # NaN in samples that were wrong before
                    reason = output_line(lost, self.samples.count, (), engine.describe())
                    accuracy = replace(accuracy, verdict=Verdict.FAIL, reason=reason)
            except _UnjudgedError as error:
                accuracy = self._broken(str(error))
        self.ran.append(Trial(what, tuple(names), accuracy, records))
        self.on_trial(self.ran[-1])
        return self.ran[-1]

    def _measured(self, engine: Engine, metric: Metric, lost: list[str]) -> Iterator[tuple[Feed, Array | Records]]:
        """Yield the samples with their records; append the names of samples with NaN outputs to ``lost``."""
        axes = [tensor.batch_axis for tensor in engine.outputs] if self.samples.one_call else None
        theirs: Iterable[Any] = self._outputs if self.measure.raw else repeat(None)
        # A loop over several calls may fail anywhere for broken values; a single call does not.
        with nullcontext() if self.samples.one_call else _convert_errors():
            for (part, ours), baseline in zip(self.samples.run(engine), theirs, strict=False):
                with _convert_errors():
                    record = self.measure.update(metric, part, ours, baseline)
                flaws = Flaws.none(len(part.names))
                flaws.add(ours, axes)
                lost += named(flaws.nan, part.names)
                yield part, record

    def _accuracy(self, records: Columns, metric: Metric) -> Accuracy:
        assert self._records is not None  # noqa: S101 - set by take_baseline()
        assert self.baseline is not None  # noqa: S101
        with _convert_errors():
            value = float(metric.compute())
        pairs = paired(records, self._records, self.metric)
        return judge(pairs, value, self.baseline, metric_of=metric, tolerance=self.tolerance)

    def _broken(self, why: str) -> Accuracy:
        """Return the accuracy of a run whose outputs cannot be decoded or measured."""
        reason = f"{self.metric}: the outputs cannot be judged: {why}"
        before = math.nan if self.baseline is None else self.baseline
        against = "onnx float32"
        return Accuracy(Verdict.FAIL, reason, against, self.metric, math.nan, before, math.nan, self.tolerance)


class _UnjudgedError(Exception):
    """The outputs of a run cannot be decoded or measured."""


@contextmanager
def _convert_errors() -> Iterator[None]:
    """Convert the errors of decoding and metrics for broken values to :class:`_UnjudgedError`."""
    try:
        yield
    except ConfigError:  # caused by flags, not by values
        raise
    except BROKEN as error:
        raise _UnjudgedError(reason_of(error)) from error


@contextmanager
def _opened(target: str, spec: EngineSpec) -> Iterator[Engine]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*of a size not known beforehand")  # trials do not measure time
        engine = open_engine(target, spec)
    with engine:
        yield engine
