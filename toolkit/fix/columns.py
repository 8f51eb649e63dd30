"""Records of a run as columns, their pairing with another run, and the loss of each sample between the two."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from engine import Array, TecoInferError
from model_config.judge.pairs import Pairs, coded
from toolkit.fix.records import Feed
from utils.metrics.base import Metric, Records

Groups = Sequence[Hashable]


@dataclass(frozen=True, eq=False)
class Columns:
    """Records of a metric over a run.

    Attributes:
        values: records along the first dimension. samples: index of the sample of each record, int64.
        count: number of samples. units: name of the unit of each record, if the metric has units.
        sample_units: name of the unit of each sample, if the data has units.
        margins: of each sample, float64 (:attr:`utils.metrics.base.Records.margins`); ``None``: a part has none.
    """

    values: Array
    samples: Array
    count: int
    units: list[str] | None = None
    sample_units: list[str] | None = None
    margins: Array | None = None

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.values)

    @classmethod
    def plain(cls, values: Array) -> Columns:
        """Return the columns of one record per sample."""
        return cls(values, np.arange(len(values)), len(values))

    @property
    def bare(self) -> bool:
        """Whether there is one record per sample, in order, and no units."""
        return self.units is None and self.sample_units is None and np.array_equal(self.samples, np.arange(self.count))

    @property
    def named(self) -> list[Hashable]:
        """The unit of each record: of the metric, else of the data, else the sample index."""
        if self.units is not None:
            return list(self.units)
        if self.sample_units is not None:
            return [self.sample_units[i] for i in self.samples.tolist()]
        return list(self.samples.tolist())


def joined(found: Iterable[tuple[Feed, Array | Records]]) -> Columns:
    """Return the records of all parts of a run, in order."""
    values: list[Array] = []
    samples: list[Array] = [np.zeros(0, np.int64)]
    units: list[str] = []
    names: list[str] = []
    margins: list[Array | None] = []
    count = 0
    for part, record in found:
        columns = record if isinstance(record, Records) else Records(record)
        values.append(np.asarray(columns.values))
        own = np.arange(len(columns.values)) if columns.samples is None else np.asarray(columns.samples, np.int64)
        samples.append(own + count)
        units += columns.units or ()
        names += part.units or ()
        margins.append(columns.margins)
        count += len(part.names)
    filled = [array for array in values if len(array)] or values[:1]  # the columns of empty ones may differ
    together = np.concatenate(filled) if filled else np.zeros(0)
    known = [one for one in margins if one is not None]
    whole = np.concatenate(known) if known and len(known) == len(margins) else None
    return Columns(together, np.concatenate(samples), count, units or None, names or None, whole)


def paired(ours: Columns, theirs: Columns, name: str) -> Pairs:
    """Return the records of a run of metric ``name`` paired, by unit, with the baseline's over the same samples."""
    if ours.bare and theirs.bare and ours.values.shape == theirs.values.shape:
        return _with_margins(Pairs(ours.values, theirs.values, name), ours, theirs, np.arange(ours.count))
    first: Sequence[Hashable] = ()
    if ours.units is None and theirs.units is None:  # includes units without records
        first = ours.sample_units or range(ours.count)
    codes, count = coded([ours.named, theirs.named, first], first)
    pairs = Pairs(ours.values, theirs.values, name, units=(codes[0], codes[1]), count=count, samples=ours.count)
    return _with_margins(pairs, ours, theirs, codes[2])


def _with_margins(pairs: Pairs, ours: Columns, theirs: Columns, units: Array) -> Pairs:
    """Add the margins of both runs, if known, with each sample's unit and whether any of its records differs.

    Args:
        units: of each sample; empty if only records have units.
    """
    if ours.margins is None or theirs.margins is None or np.isnan([ours.margins, theirs.margins]).any():
        return pairs
    if not len(units):
        units = pairs.count + np.arange(ours.count)  # a sample without records is a unit of its own
        for columns, codes in zip((ours, theirs), pairs.codes, strict=True):
            units[columns.samples] = codes
    changed = np.zeros(ours.count, np.bool_)
    changed[replace(pairs, units=(ours.samples, theirs.samples), count=ours.count).differing_units()] = True
    return replace(pairs, margins=(ours.margins, theirs.margins), sample_units=units, changed=changed)


def losses(metric: Metric, ours: Columns, theirs: Columns) -> Array:
    """Return the loss of the metric that each sample causes, compared with the baseline; 0 without a change.

    It is the loss over the records of the sample. A metric that is undefined for one sample (a ranking, an area under a
    curve) is computed over the records of its unit, or else over all records of the baseline with those of the unit
    replaced by the run's. ``ours`` and ``theirs`` (the baseline) are records over the same samples; the result is
    float64, one per sample; infinite if only the run has no value.
    """
    both = (ours, theirs)
    samples = [list(run.samples.tolist()) for run in both]
    units = [run.named for run in both]
    for groups in (samples, units):
        found = _alone(metric, both, groups)
        if found is not None:
            return _spread(found, groups, both)
    return _spread(_exchanged(metric, both, units), units, both)


def _alone(metric: Metric, both: tuple[Columns, Columns], groups: Sequence[Groups]) -> dict[Hashable, float] | None:
    """Return each group's loss by its records; ``None`` if the baseline has no value for one, or none differs."""
    rows = [_rows(names) for names in groups]
    found: dict[Hashable, float] = {}
    for group, places in rows[1].items():
        before = _value(metric, both[1].values[places])
        if not math.isfinite(before):
            return None
        after = _value(metric, both[0].values[rows[0].get(group, [])])
        found[group] = _loss(metric, after, before)
    return found if any(found.values()) or np.array_equal(both[0].values, both[1].values) else None


def _exchanged(metric: Metric, both: tuple[Columns, Columns], groups: Sequence[Groups]) -> dict[Hashable, float]:
    """Return each group's loss with its records from the run and all others from the baseline."""
    ours, theirs = both
    if ours.values.dtype != theirs.values.dtype or ours.values.shape[1:] != theirs.values.shape[1:]:
        return {}
    values = np.concatenate([theirs.values, ours.values])
    weights = np.concatenate([np.ones(len(theirs)), np.zeros(len(ours))])
    before = _value(metric, values, weights)
    mine, others = (_rows(names) for names in groups)
    found: dict[Hashable, float] = {}
    for group in {**others, **mine}:
        changed = weights.copy()
        changed[others.get(group, [])] = 0.0
        changed[len(theirs) + np.array(mine.get(group, []), np.int64)] = 1.0
        found[group] = _loss(metric, _value(metric, values, changed), before)
    return found


def _rows(names: Groups) -> dict[Hashable, list[int]]:
    found: dict[Hashable, list[int]] = {}
    for row, name in enumerate(names):
        found.setdefault(name, []).append(row)
    return found


def _value(metric: Metric, records: Array, weights: Array | None = None) -> float:
    if not len(records):
        return math.nan
    try:
        with np.errstate(all="ignore"):
            return float(metric.value(records, np.ones(len(records)) if weights is None else weights))
    except (TecoInferError, ArithmeticError, ValueError):  # the metric is undefined for these records
        return math.nan


def _loss(metric: Metric, after: float, before: float) -> float:
    if math.isnan(after):
        return 0.0 if math.isnan(before) else math.inf
    loss = before - after if metric.higher_is_better else after - before
    return 0.0 if math.isnan(loss) else loss


def _spread(found: dict[Hashable, float], groups: Sequence[Groups], both: tuple[Columns, Columns]) -> Array:
    """Return the loss of each sample: the largest of its groups."""
    result = np.full(both[0].count, -np.inf)
    for run, names in zip(both, groups, strict=True):
        for sample, group in zip(run.samples.tolist(), names, strict=True):
            result[sample] = max(result[sample], found.get(group, 0.0))
    return np.where(np.isneginf(result), 0.0, result)
