"""The records of two runs over the same samples, paired and grouped in independent units."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from engine import Array, DataError
from utils.pipeline.resume.records import SampleRecord, SampleRecords


@dataclass(frozen=True, slots=True)
class Pairs:
    """Records of two runs over the same samples.

    Attributes:
        target, baseline: the records of both; the first dimension is the records. Without ``units`` one per sample that
            both ran.
        metric_name: the metric that the records belong to.
        lost, gained: names of the samples that only the baseline, and only the target, could run.
        units: for each record of both runs its unit, whole numbers from 0 to ``count`` - 1. The runs may differ in the
            number of records of a unit. ``None``: every record is a unit of its own.
        count: number of units, including those without records; 0 without ``units``.
        samples: number of samples that both ran; 0: not known.
        unit_names: name of each unit; empty: not known.
        margins: of each sample that both ran, how far its outputs are from changing its record, in both runs; ``None``:
            the metric gives none. ``sample_units`` and ``changed`` then have the unit of each of these samples, and
            whether any of its records differs.
    """

    target: Array
    baseline: Array
    metric_name: str
    lost: tuple[str, ...] = ()
    gained: tuple[str, ...] = ()
    units: tuple[Array, Array] | None = None
    count: int = 0
    samples: int = 0
    unit_names: tuple[str, ...] = ()
    margins: tuple[Array, Array] | None = None
    sample_units: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    changed: Array = field(default_factory=lambda: np.zeros(0, np.bool_))

    def __post_init__(self) -> None:
        if self.units is None and self.target.shape != self.baseline.shape:
            raise DataError(
                f"records of shape {self.target.shape} cannot be paired with records of shape {self.baseline.shape}; "
                "compare two runs over the same samples"
            )
        for records, codes in zip((self.target, self.baseline), self.units or (), strict=False):
            inside = not len(codes) or bool(codes.min() >= 0 and codes.max() < self.count)
            if len(codes) != len(records) or not inside:
                raise DataError(f"{len(codes)} unit codes for {len(records)} records of {self.count} units do not fit")

    @property
    def total(self) -> int:
        """Number of units."""
        return len(self.target) if self.units is None else self.count

    @property
    def sampled(self) -> int:
        """Number of samples; where that is not known, of records that both have, or of units."""
        return self.samples or (len(self.target) if self.matched else self.total)

    @property
    def codes(self) -> tuple[Array, Array]:
        """The unit of every record of both runs."""
        if self.units is not None:
            return self.units
        own = np.arange(len(self.target))
        return own, own

    @property
    def matched(self) -> bool:
        """Whether the two runs have the same units, record by record."""
        ours, theirs = self.codes
        same = self.target.dtype.names is None and self.target.shape == self.baseline.shape
        return same and (ours is theirs or np.array_equal(ours, theirs))

    @property
    def grouped(self) -> bool:
        """Whether any unit has several records."""
        return self.units is not None and any(len(codes) > len(np.unique(codes)) for codes in self.units)

    @property
    def records(self) -> tuple[Array, Array]:
        """Those of the target, and those of the baseline."""
        return self.target, self.baseline

    def differing(self) -> int:
        """Return in how many units the records of the two runs differ; the order within a unit matters."""
        return len(self.differing_units())

    def differing_units(self) -> Array:
        """Return the units in which the records of the two runs differ, in rising order."""
        orders = [np.argsort(codes, kind="stable") for codes in self.codes]
        ours, theirs = (codes[order] for codes, order in zip(self.codes, orders, strict=True))
        counts = [np.bincount(codes, minlength=self.total) for codes in (ours, theirs)]
        as_many = counts[0] == counts[1]
        left, right = (
            _rows(records[order][as_many[codes]])
            for records, order, codes in zip((self.target, self.baseline), orders, (ours, theirs), strict=True)
        )
        if left.shape != right.shape:
            return np.arange(self.total)
        other = np.unique(ours[as_many[ours]][(left != right).any(axis=1)])
        return np.union1d(np.flatnonzero(~as_many), other).astype(np.int64)


def _rows(records: Array) -> Array:
    """Return records as rows of bytes."""
    return np.frombuffer(records.tobytes(), np.uint8).reshape(len(records), -1 if len(records) else 0)


def read_pairs(target: Path, baseline: Path) -> Pairs:
    """Read two records files (:mod:`.records`) and pair their samples by index, name, label and unit.

    Samples that neither run could evaluate are left out; those that only one could are named in the result, and
    :func:`model_config.judge.gate.judge` fails them.

    Raises:
        DataError: a file cannot be read, or they are not of the same samples in the same order, or not of one metric.
    """
    if target.suffix != baseline.suffix:
        raise DataError(f"{target} and {baseline} are of different kinds; run both with one version of the metric")
    return _array_pairs(target, baseline) if target.suffix == ".npz" else _row_pairs(target, baseline)


def _row_pairs(target: Path, baseline: Path) -> Pairs:
    files = SampleRecords(target), SampleRecords(baseline)
    _refuse_others((target, baseline), [file.metric_name for file in files])
    rows = _Rows()
    for number, (ours, theirs) in enumerate(zip_longest(*files), start=2):
        if ours is None or theirs is None or _identity(ours) != _identity(theirs):
            raise _others((target, baseline), f"row {number}", _words(ours), _words(theirs))
        rows.add(ours, theirs)
    return rows.pairs(files[0].metric_name, files[0].has_units)


class _Rows:
    """Collects the samples that both runs could evaluate, and the names of those that only one could."""

    def __init__(self) -> None:
        self._rows: list[tuple[SampleRecord, SampleRecord]] = []
        self._alone: tuple[list[str], list[str]] = [], []

    def add(self, ours: SampleRecord, theirs: SampleRecord) -> None:
        """Add a sample."""
        if ours.value is not None and theirs.value is not None:
            self._rows.append((ours, theirs))
        elif ours.value is not theirs.value:
            self._alone[ours.value is not None].append(ours.name)

    def pairs(self, metric_name: str, has_units: bool) -> Pairs:
        """Return all of them."""
        target, baseline = (np.array([row[run].value for row in self._rows], dtype=np.float64) for run in range(2))
        codes, count = coded([[ours.unit for ours, _ in self._rows]])
        names = tuple(dict.fromkeys(ours.unit or "" for ours, _ in self._rows)) if has_units else self._names
        return Pairs(
            target,
            baseline,
            metric_name,
            tuple(self._alone[0]),
            tuple(self._alone[1]),
            units=(codes[0], codes[0]) if has_units else None,
            count=count if has_units else 0,
            samples=len(self._rows),
            unit_names=names,
            margins=self._margins(),
            sample_units=codes[0] if has_units else np.arange(len(self._rows)),
            changed=target != baseline,
        )

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(ours.name for ours, _ in self._rows)

    def _margins(self) -> tuple[Array, Array] | None:
        both = [(ours.margin, theirs.margin) for ours, theirs in self._rows]
        if not both or any(margin is None for row in both for margin in row):
            return None
        columns = np.array(both, dtype=np.float64)
        return None if np.isnan(columns).any() else (columns[:, 0], columns[:, 1])


def _array_pairs(target: Path, baseline: Path) -> Pairs:
    from utils.pipeline.resume.records.arrays import read_arrays

    both = read_arrays(target), read_arrays(baseline)
    _refuse_others((target, baseline), [one.metric_name for one in both])
    for place, (left, right) in enumerate(zip_longest(*map(_samples, both))):
        if left != right:
            raise _others((target, baseline), f"sample {place}", _words(left), _words(right))
    ours, theirs = both
    ran = ours.ran & theirs.ran
    units, names = _unit_codes(both, ran)
    found = Pairs(
        ours.values,
        theirs.values,
        ours.metric_name,
        tuple(name for name, lost in zip(ours.names, theirs.ran & ~ours.ran, strict=True) if lost),
        tuple(name for name, gained in zip(ours.names, ours.ran & ~theirs.ran, strict=True) if gained),
        units=units,
        count=len(names),
        samples=int(np.count_nonzero(ran)),
        unit_names=names,
    )
    return found if ours.margins is None or theirs.margins is None else _with_margins(found, both, ran)


def _with_margins(pairs: Pairs, both: tuple[Any, Any], ran: Array) -> Pairs:
    """Add the margins of the samples that both runs could evaluate, with the unit of each and whether it changed."""
    margins = tuple(one.margins[ran] for one in both)
    if np.isnan(margins).any():
        return pairs
    kept = np.cumsum(ran) - 1
    used = tuple(ran[one.sample] for one in both)  # records of samples that both runs could evaluate
    samples = tuple(kept[one.sample[mask]] for one, mask in zip(both, used, strict=True))
    count = int(np.count_nonzero(ran))
    target, baseline = (records[mask] for records, mask in zip(pairs.records, used, strict=True))
    by_sample = replace(pairs, target=target, baseline=baseline, units=samples, count=count, unit_names=())
    changed = np.zeros(count, np.bool_)
    changed[by_sample.differing_units()] = True
    names = both[0].sample_units
    if both[0].record_units is None and both[1].record_units is None and names:
        table = {name: code for code, name in enumerate(pairs.unit_names)}
        units = np.array([table[name] for name, done in zip(names, ran.tolist(), strict=True) if done], np.int64)
        return replace(pairs, margins=margins, sample_units=units, changed=changed)
    units = pairs.count + np.arange(count)  # a sample without records is a unit of its own
    for codes, mask, owners in zip(pairs.codes, used, samples, strict=True):
        units[owners] = codes[mask]
    return replace(pairs, margins=margins, sample_units=units, changed=changed)


def _samples(one: Any) -> list[SampleRecord]:
    """Return the samples of a run, with the fields that both runs must agree on."""
    units = one.sample_units or [None] * len(one.names)
    both = zip(one.index.tolist(), one.names, units, strict=True)
    return [SampleRecord(index, name, None, None, unit) for index, name, unit in both]


def _unit_codes(both: tuple[Any, Any], ran: Array) -> tuple[tuple[Array, Array], tuple[str, ...]]:
    """Return the unit of every record of both runs, and the names of all units.

    The unit of a record is the one given by the metric, or else by the data set for its sample, or else the sample.
    Units of samples that were evaluated and have no record are included.
    """
    first: list[str | int] = []
    if both[0].record_units is None and both[1].record_units is None:
        of_samples = both[0].sample_units or range(len(ran))
        first = [unit for unit, done in zip(of_samples, ran.tolist(), strict=True) if done]
    named = [_named(one) for one in both]
    codes, _ = coded(named, first)
    table = dict.fromkeys([*first, *named[0], *named[1]])
    names = tuple(unit if isinstance(unit, str) else both[0].names[unit] for unit in table)
    return (codes[0], codes[1]), names


def _named(one: Any) -> list[str | int]:
    """Return the unit of every record of a run."""
    units: list[str | int] = one.sample_units
    return one.record_units or [units[i] if units else i for i in one.sample.tolist()]


def coded(runs: Iterable[Iterable[Hashable]], first: Iterable[Hashable] = ()) -> tuple[list[Array], int]:
    """Return the units of runs as numbers from 0, the same for a unit in all runs, and how many there are.

    Args:
        runs: for each the unit of every record. first: units that are included even where no record has them.
    """
    table = {unit: i for i, unit in enumerate(dict.fromkeys(first))}
    codes = [np.array([table.setdefault(unit, len(table)) for unit in units], np.int64) for units in runs]
    return codes, len(table)


def _refuse_others(paths: tuple[Path, Path], names: list[str]) -> None:
    if names[0] != names[1]:
        raise DataError(f"{paths[0]} has {names[0]} and {paths[1]} has {names[1]}; compare runs of one metric")


def _others(paths: tuple[Path, Path], where: str, ours: str, theirs: str) -> DataError:
    return DataError(
        f"{paths[0]} and {paths[1]} are not of the same samples: {where} is {ours} in the first and {theirs} in the "
        "second; run both on the same data"
    )


def _identity(record: SampleRecord) -> tuple[int, str, int | str | None, str | None]:
    return record.index, record.name, record.label, record.unit


def _words(record: SampleRecord | None) -> str:
    if record is None:
        return "missing"
    label = "" if record.label is None else f", label {record.label}"
    unit = "" if record.unit is None else f", unit {record.unit}"
    return f"{record.index}, {record.name}{label}{unit}"
