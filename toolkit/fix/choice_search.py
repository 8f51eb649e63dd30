"""Which of a task's choices were made otherwise by the source: a greedy search, in pairs where single ones say nothing.

A choice of the stage ``decode`` is tried on outputs that are kept; only one of ``prepare`` runs the model. The search
sees one part of the samples. What it finds must be better, surely, on another part, and so must each choice of it by
itself: what helps by chance is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from engine import DataError
from toolkit.fix.choice_trials import Bench, Tried, Values
from utils.tasks.base import ExportSetting

SEEN, HELD = 32, 96
"""Most samples that the search sees, and most of the others that confirm it."""

LEAST = 4
"""Samples that either part must have."""

EXACT = 1e-6
"""How far from the source's own numbers another summation may be."""

LOW = 0.5
"""Share of the reference below which the search looks for two mistakes before it looks for small ones."""

SCREENED, FINALISTS = 10, 3
"""Samples that pairs are tried on first, and how many of the best pairs are tried on all seen ones."""

RUNS = 60
"""Passes of the screened samples through the model, after which no further pairs are tried."""

Changes = dict[str, Any]


@dataclass(frozen=True)
class Step:
    """Values that were tried on the samples the search sees; ``better``: surely, than what there was before."""

    values: Changes
    value: float
    better: bool


@dataclass(frozen=True)
class FoundChoices:
    """What a search found.

    Attributes:
        values: of choices, other than they are now; empty where nothing is to be changed.
        before, after: the measure over all samples.
        reached: whether the measure comes to the reference's with ``values``.
        confirmed: whether ``values`` are surely better on samples that the search has not seen.
        nearest: the best that the search came by where it found nothing, and its measure on the samples it saw.
        equal: other values of the found choices that make no difference, by their keys.
        beside: the task's own metric before and after, where it was measured.
        steps: what was tried. runs: passes through the model. seen, held: samples of either part.
    """

    values: Changes
    before: float
    after: float
    reached: bool
    confirmed: bool
    nearest: tuple[Changes, float]
    equal: dict[str, list[Any]] = field(default_factory=dict)
    beside: tuple[float, float] = (math.nan, math.nan)
    steps: Sequence[Step] = ()
    runs: int = 0
    seen: int = 0
    held: int = 0


@dataclass
class Search:
    """Looks for values of choices that explain a measure.

    Attributes:
        bench: tries values on the samples the search sees. screen: on a few of them, where there is much to try.
        heard: told of every trial.
    """

    bench: Bench
    screen: Bench
    heard: Callable[[Step], None] = lambda step: None
    steps: list[Step] = field(default_factory=list)
    _known: dict[str, Tried] = field(default_factory=dict)

    def run(self, start: Values) -> Tried:
        """Return the best that is found from some values on."""
        best: Tried = self._try(start)
        found: Tried | None = None
        while not _exact(self.bench, best.value):
            low = not self._worth(best) > LOW * abs(self.bench.goal.reference)
            # far from everything a fine choice changes nothing, and near it two rough ones are hardly wrong
            orders = (self._pairs, self._fine) if low else (self._fine, self._pairs)
            for look in (self._rough, *orders):
                found = look(best)
                if found is not None:
                    break
            if found is None:
                break
            best = found
        return best

    def _rough(self, best: Tried) -> Tried | None:
        return self._single(best, fine=False)

    def _fine(self, best: Tried) -> Tried | None:
        return self._single(best, fine=True)

    def _single(self, best: Tried, fine: bool) -> Tried | None:
        """Return the best of one change more where that is surely better; ``None`` where none is."""
        cheap = self._best(best, self._singles(best, "decode", fine))
        if cheap is not None and self.bench.goal.reached(cheap.value):
            return cheap
        # what runs the model may explain more than other forms of the answers do
        dear = self._best(best, self._singles(best, "prepare", fine))
        return max((one for one in (cheap, dear) if one is not None), key=self._worth, default=None)

    def _pairs(self, best: Tried) -> Tried | None:
        """Return the best of two rough changes more, the cheap ones first."""
        if self.bench.goal.reached(best.value):
            return None
        for first, second in (("decode", "decode"), ("prepare", "decode"), ("prepare", "prepare")):
            found = self._best(best, self._screened(self._both(best, first, second)))
            if found is not None:
                return found
        return None

    def _singles(self, best: Tried, stage: str, fine: bool) -> Iterator[Changes]:
        """Yield the best so far with one choice changed."""
        for choice in self._of(stage, fine):
            for value in self._others(choice, best):
                yield self._with(best.values, {choice.key: value})

    def _both(self, best: Tried, first: str, second: str) -> Iterator[Changes]:
        """Yield the best so far with two choices changed, whose values of the first stage come one after the other."""
        for one, a in self._changes(best, first):
            for other, b in self._changes(best, second):
                apart = one.key < other.key if first == second else one.key != other.key
                if apart and self.screen.runs < RUNS:
                    yield self._with(best.values, {one.key: a, other.key: b})

    def _changes(self, best: Tried, stage: str) -> list[tuple[ExportSetting, Any]]:
        return [(choice, value) for choice in self._of(stage, False) for value in self._others(choice, best)]

    def _screened(self, several: Iterator[Changes]) -> Iterator[Changes]:
        """Yield the few values that are best on a few samples."""
        tried = [self.screen.tried(values) for values in several]
        yield from (one.values for one in sorted(tried, key=self._worth, reverse=True)[:FINALISTS])

    def _of(self, stage: str, fine: bool) -> list[ExportSetting]:
        """Return the choices of a stage that make a difference; the rough ones too where fine ones are asked for."""
        if stage not in self.bench.goal.stages:
            return []
        return [choice for choice in self.bench.choices if choice.stage == stage and (fine or not choice.fine)]

    def _others(self, choice: ExportSetting, best: Tried) -> list[Any]:
        now = best.values.get(choice.key, self.bench.now(choice))
        return [value for value in choice.values if value != now]

    def _with(self, values: Values, changes: Changes) -> Changes:
        """Return values with changes; what is as it was from the beginning is left out."""
        now = {choice.key: self.bench.now(choice) for choice in self.bench.choices}
        return {key: value for key, value in {**values, **changes}.items() if value != now[key]}

    def _best(self, before: Tried, several: Iterator[Changes]) -> Tried | None:
        """Return the best of some values where it is surely better than what there was."""
        tried = [self._try(values) for values in several]
        best = max(tried, key=self._worth, default=None)
        if best is None or not self._worth(best) > self._worth(before) or not self.bench.surely(best, before):
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
        self.heard(self.steps[-1])
        return tried

    def _worth(self, one: Tried) -> float:
        if math.isnan(one.value):
            return -math.inf
        return one.value if self.bench.metric.higher_is_better else -one.value


def find_choices(
    make: Callable[[Sequence[int]], Bench],
    count: int,
    heard: Callable[[Step], None] = lambda step: None,
    start: Values | None = None,
) -> FoundChoices:
    """Look for values of choices that explain the source's answers, arrays or metric.

    Args:
        make: a bench over the samples at some places. count: of all samples.
        heard: told of every trial. start: values that are known already.

    Raises:
        DataError: too few samples to tell a cause from chance.
    """
    known = dict(start or {})
    whole = make(range(count))
    seen, held = halves(count)
    before = whole.tried(known, keep=False)
    if _exact(whole, before.value):
        return FoundChoices(
            known,
            before.value,
            before.value,
            True,
            False,
            (known, before.value),
            beside=(before.beside,) * 2,
            runs=whole.runs,
        )
    first, screen, other = (replace(make(part), beside=None) for part in (seen, seen[:SCREENED], held))
    search = Search(first, screen, heard)
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
        (before.beside, after.beside),
        search.steps,
        first.runs + screen.runs + other.runs + whole.runs,
        len(seen),
        len(held),
    )


def halves(count: int) -> tuple[list[int], list[int]]:
    """Return the places of the samples that a search sees, and of those that confirm it: drawn, so that no order of a
    data set puts one kind into one part.

    Raises:
        DataError: there are too few.
    """
    if count < 2 * LEAST:
        raise DataError(f"{count} samples: half of them must confirm what the rest shows; pass {2 * LEAST} or more")
    order = np.random.default_rng(0).permutation(count)
    seen = min(SEEN, count // 2)
    return sorted(order[:seen].tolist()), sorted(order[seen : seen + HELD].tolist())


def _needed(bench: Bench, values: Changes, known: Changes) -> tuple[Changes, bool]:
    """Return what of the values is needed on other samples, and whether they are surely better than none."""
    nothing, best = bench.tried(known), bench.tried(values)
    if values == known or not bench.surely(best, nothing):
        return known, False
    for key in list(values):
        if key in known and values[key] == known[key]:
            continue
        without = bench.tried({name: value for name, value in values.items() if name != key})
        if not bench.surely(best, without):
            values, best = without.values, without
    return values, True


def _equal(bench: Bench, values: Changes) -> dict[str, list[Any]]:
    """Return other values that give the same measure to six digits on the samples that confirm."""
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
    """Say whether nothing is left to explain: beside the source's own numbers even what is within the tolerance may be.

    A metric that is reached says no more.
    """
    return bench.goal.reached(value) and (bench.goal.right is None or value >= 1 - EXACT)


def _worth(value: float, bench: Bench) -> float:
    if math.isnan(value):
        return -math.inf
    return value if bench.metric.higher_is_better else -value
