"""Greedy search for the export settings that the source model has set otherwise, singly or in pairs.

A setting of stage ``decode`` is tried on stored outputs; only a setting of stage ``prepare`` runs the model. The search
uses one part of the samples. Its result, and each single setting of it, must be significantly better on another part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from engine import DataError
from toolkit.fix.choice_trials import Bench, Tried, Values
from utils.tasks.base import ExportSetting

SEEN, HELD = 32, 96
"""Largest number of samples of the search, and of the confirmation."""

LEAST = 4
"""Smallest number of samples of either part."""

EXACT = 1e-6
"""Largest difference from the source's values that is due to the order of summation."""

LOW = 0.5
"""Share of the reference below which pairs of settings are tried before fine settings."""

SCREENED, FINALISTS = 10, 3
"""Number of samples on which pairs are tried first, and number of best pairs tried on all samples of the search."""

RUNS = 60
"""Limit of the runs of the screened samples, after which no further pairs are tried."""

Changes = dict[str, Any]


@dataclass(frozen=True)
class Step:
    """Trial on the samples of the search; ``better``: significantly better than the values before."""

    values: Changes
    value: float
    better: bool


@dataclass(frozen=True)
class FoundChoices:
    """Result of a search.

    Attributes:
        values: changed settings; empty if none needs a change. before, after: the measure over all samples.
        reached: whether the measure with ``values`` reaches the reference.
        confirmed: whether ``values`` are significantly better on the held-out samples.
        nearest: the best trial of the search, and its measure on the samples of the search.
        equal: other values of the found settings that make no difference, by key.
        task_metric: the task's metric before and after, if it was measured.
        steps: all trials. runs: runs of the model. seen, held: number of samples of search and confirmation.
    """

    values: Changes
    before: float
    after: float
    reached: bool
    confirmed: bool
    nearest: tuple[Changes, float]
    equal: dict[str, list[Any]] = field(default_factory=dict)
    task_metric: tuple[float, float] = (math.nan, math.nan)
    steps: Sequence[Step] = ()
    runs: int = 0
    seen: int = 0
    held: int = 0


@dataclass
class Search:
    """Search for the values of settings that explain a measure: ``bench`` runs trials on the samples of the search,
    ``screen`` on a few of them, for pairs; ``on_trial`` is called with every trial.
    """

    bench: Bench
    screen: Bench
    on_trial: Callable[[Step], None] = lambda step: None
    steps: list[Step] = field(default_factory=list)
    _known: dict[str, Tried] = field(default_factory=dict)

    def run(self, start: Values) -> Tried:
        """Return the best trial reached from ``start``."""
        best: Tried = self._try(start)
        found: Tried | None = None
        while not _exact(self.bench, best.value):
            low = not self._worth(best) > LOW * abs(self.bench.goal.reference)
            # far from the reference a fine setting changes nothing; near it two wrong rough settings are unlikely
            fine = partial(self._single, fine=True)
            orders = (self._pairs, fine) if low else (fine, self._pairs)
            for look in (partial(self._single, fine=False), *orders):
                found = look(best)
                if found is not None:
                    break
            if found is None:
                break
            best = found
        return best

    def _single(self, best: Tried, fine: bool) -> Tried | None:
        """Return the best trial with one more change, or ``None`` if none is significantly better."""
        cheap = self._best(best, self._singles(best, "decode", fine))
        if cheap is not None and self.bench.goal.reached(cheap.value):
            return cheap
        # a setting that runs the model may explain more than one of the decoding
        dear = self._best(best, self._singles(best, "prepare", fine))
        return max((one for one in (cheap, dear) if one is not None), key=self._worth, default=None)

    def _pairs(self, best: Tried) -> Tried | None:
        """Return the best trial with two more rough changes, those without a run of the model first."""
        if self.bench.goal.reached(best.value):
            return None
        for first, second in (("decode", "decode"), ("prepare", "decode"), ("prepare", "prepare")):
            found = self._best(best, self._screened(self._both(best, first, second)))
            if found is not None:
                return found
        return None

    def _singles(self, best: Tried, stage: str, fine: bool) -> Iterator[Changes]:
        """Yield the best values with one setting changed."""
        for choice, value in self._changes(best, stage, fine):
            yield self._with(best.values, {choice.key: value})

    def _both(self, best: Tried, first: str, second: str) -> Iterator[Changes]:
        """Yield the best values with two settings changed, grouped by the value of the first."""
        for one, a in self._changes(best, first):
            for other, b in self._changes(best, second):
                apart = one.key < other.key if first == second else one.key != other.key
                if apart and self.screen.runs < RUNS:
                    yield self._with(best.values, {one.key: a, other.key: b})

    def _changes(self, best: Tried, stage: str, fine: bool = False) -> list[tuple[ExportSetting, Any]]:
        """Return the settings of a stage that affect the goal, each with every other value; ``fine``: the fine too."""
        if stage not in self.bench.goal.stages:
            return []
        own = [choice for choice in self.bench.choices if choice.stage == stage and (fine or not choice.fine)]
        now = {choice.key: best.values.get(choice.key, self.bench.now(choice)) for choice in own}
        return [(choice, value) for choice in own for value in choice.values if value != now[choice.key]]

    def _screened(self, several: Iterator[Changes]) -> Iterator[Changes]:
        """Yield the values that are best on the screened samples."""
        tried = [self.screen.tried(values) for values in several]
        yield from (one.values for one in sorted(tried, key=self._worth, reverse=True)[:FINALISTS])

    def _with(self, values: Values, changes: Changes) -> Changes:
        """Return values with changes, without those equal to the initial values."""
        now = {choice.key: self.bench.now(choice) for choice in self.bench.choices}
        return {key: value for key, value in {**values, **changes}.items() if value != now[key]}

    def _best(self, before: Tried, several: Iterator[Changes]) -> Tried | None:
        """Return the best trial of several values, or ``None`` if it is not significantly better than ``before``."""
        tried = [self._try(values) for values in several]
        best = max(tried, key=self._worth, default=None)
        if best is None or not self._worth(best) > self._worth(before) or not self.bench.is_better(best, before):
            return None
        place = next(i for i in reversed(range(len(self.steps))) if self.steps[i].values == best.values)
        self.steps[place] = replace(self.steps[place], better=True)
        return best

    def _try(self, values: Values) -> Tried:
        key = repr(sorted(values.items()))
        if key in self._known:
            return self._known[key]
        tried = self._known[key] = self.bench.tried(values)
        self.steps.append(Step(tried.values, tried.value, False))
        self.on_trial(self.steps[-1])
        return tried

    def _worth(self, one: Tried) -> float:
        return _worth(one.value, self.bench)


def find_choices(
    make: Callable[[Sequence[int]], Bench],
    count: int,
    on_trial: Callable[[Step], None] = lambda step: None,
    start: Values | None = None,
) -> FoundChoices:
    """Search for the values of settings that explain the source's answers, arrays or metric.

    Args:
        make: returns a bench for the samples at some indices. count: number of samples.
        on_trial: called with every trial. start: values that are already known.

    Raises DataError if there are too few samples.
    """
    known = dict(start or {})
    whole = make(range(count))
    seen, held = halves(count)
    before = whole.tried(known, keep=False)
    if _exact(whole, before.value):
        own, value = (before.task_metric, before.task_metric), before.value
        return FoundChoices(known, value, value, True, False, (known, value), task_metric=own, runs=whole.runs)
    first, screen, other = (replace(make(part), task_metric=None) for part in (seen, seen[:SCREENED], held))
    search = Search(first, screen, on_trial)
    best = search.run(known)
    values, confirmed = _needed(other, best.values, known)
    after = whole.tried(values, keep=False) if values != known else before
    nearest = max(search.steps, key=lambda step: _worth(step.value, whole))
    equal = _equal(other, values) if confirmed else {}
    return FoundChoices(
        values,
        before.value,
        after.value,
        whole.goal.reached(after.value),
        confirmed,
        (nearest.values, nearest.value),
        equal,
        (before.task_metric, after.task_metric),
        search.steps,
        first.runs + screen.runs + other.runs + whole.runs,
        len(seen),
        len(held),
    )


def halves(count: int) -> tuple[list[int], list[int]]:
    """Return the sample indices of search and confirmation, of a fixed seed; raise DataError for too few samples."""
    if count < 2 * LEAST:
        raise DataError(f"{count} samples are too few for a search and its confirmation; pass {2 * LEAST} or more")
    order = np.random.default_rng(0).permutation(count)
    seen = min(SEEN, count // 2)
    return sorted(order[:seen].tolist()), sorted(order[seen : seen + HELD].tolist())


def _needed(bench: Bench, values: Changes, known: Changes) -> tuple[Changes, bool]:
    """Return the values needed on the held-out samples, and whether they are significantly better than none."""
    nothing, best = bench.tried(known), bench.tried(values)
    if values == known or not bench.is_better(best, nothing):
        return known, False
    for key in list(values):
        if key in known and values[key] == known[key]:
            continue
        without = bench.tried({name: value for name, value in values.items() if name != key})
        if not bench.is_better(best, without):
            values, best = without.values, without
    return values, True


def _equal(bench: Bench, values: Changes) -> dict[str, list[Any]]:
    """Return other values that give the same measure to six digits on the held-out samples."""
    found: dict[str, list[Any]] = {}
    best = bench.tried(values).value
    for choice in bench.choices:
        if choice.key not in values or choice.fine:
            continue
        others = [one for one in choice.values if one not in (values[choice.key], bench.now(choice))]
        same = [one for one in others if abs(bench.tried({**values, choice.key: one}).value - best) < 1e-6]
        found |= {choice.key: same} if same else {}
    return found


def _exact(bench: Bench, value: float) -> bool:
    """Return whether nothing is left to explain: the metric is reached, or the source's values are equal to 1e-6."""
    return bench.goal.reached(value) and (bench.goal.right is None or value >= 1 - EXACT)


def _worth(value: float, bench: Bench) -> float:
    if math.isnan(value):
        return -math.inf
    return value if bench.metric.higher_is_better else -value
