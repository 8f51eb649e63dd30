"""Find the first wrong operator: compare each call with the other run, and repeat it on its own recorded inputs.

A value may be off because an input was. An operator is at fault if its result differs from its repetition on the same
inputs, if its arguments differ from the reference's, if it raised an error, or if it reads other data or weights in
the first step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, isfinite

import numpy as np

from engine import Array, DataError
from engine.measures import OTHER_SHAPE, THRESHOLD, Difference, ValueStats, differences, value_stats
from engine.training import KeptTensor, OpCall, Recorded, TrainingDump, as_numbers
from toolkit.training.dump.alignment import COPIES, is_cast
from toolkit.training.dump.isolated import Repeater
from toolkit.training.dump.matching import Matched, matched, other_arguments, tensors_of
from toolkit.training.dump.optimizers import ALONE, begun_off, off_after, steps
from toolkit.training.dump.uncleared import uncleared
from toolkit.training.dump.unmatched import (
    DRAWS,
    DRAWS_IN_OTHER_DTYPE,
    Flow,
    Way,
    forward_of,
    in_words,
    other_way,
    without_steps,
)

LIMIT = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 8e-2}
"""diff2 above which a value is off, by the lower precision of the two runs."""

ROUNDING = 1e-6  # relative difference allowed between an argument of the two runs

FAR = 10
"""Multiple of the limit by which a mixed-precision value must be off before an operator of one run only is at fault."""

_COARSE = ("bfloat16", "float16")


@dataclass
class Pair:
    """A call of the judged run and the matching call of the reference."""

    a: OpCall  # of the reference
    b: OpCall  # of the judged run
    status: str = "compared"  # ``compared``, or why not
    difference: Difference | None = None  # of the output that is furthest off
    output: int = 0  # index of that output
    value_stats: ValueStats | None = None  # statistics of that output
    inputs: float = 0.0  # largest diff2 of its inputs
    isolated: Difference | None = None  # difference between the repeated call and the run
    why: str = ""  # why the operator is at fault; "" if it is not
    at: str = "b"  # the run at fault: ``b``, or ``a`` for the reference


@dataclass
class Judged:
    """Result of a comparison."""

    pairs: list[Pair]  # in the order of the judged run
    limit: float  # see :data:`LIMIT`
    precision: str  # see :data:`LIMIT`
    matched: Matched
    notes: list[str] = field(default_factory=list)  # one line each

    @property
    def first_bad(self) -> Pair | None:
        """The first operator at fault."""
        return next((pair for pair in self.pairs if pair.why), None)

    @property
    def first_off(self) -> Pair | None:
        """The first value that is off, for any reason."""
        return next((one for one in self.pairs if one.difference and _off(one.difference.diff2, self.limit)), None)


def judged(a: TrainingDump, b: TrainingDump, limit: float | None, repeater: Repeater | None, exact: bool) -> Judged:
    """Compare a run ``b`` with the reference ``a``; raise DataError for dumps of different models, or damaged ones.

    Args:
        limit: diff2; ``None`` takes :data:`LIMIT`. repeater: repeats calls; ``None``: no call is repeated.
        exact: whether any bit difference is a fault.
    """
    found = matched(a, b)
    dtypes = {one.dtype for call in (*a.calls, *b.calls) for one in call.outputs}
    precision = next((name for name in _COARSE if name in dtypes), "float32")
    result = Judged([], (0.0 if exact else LIMIT[precision]) if limit is None else limit, precision, found)
    judge = _Judge(a, b, result, repeater)
    for ours, theirs in found.pairs:
        result.pairs.append(judge.pair(ours, theirs))
    if repeater is not None:
        result.pairs += [judge.alone(call) for call in found.only_b]
        result.pairs.sort(key=lambda pair: pair.b.index)
    judge.steps()
    judge.unmatched()
    judge.uncleared()
    result.notes += _notes(a, b, result, repeater)
    return result


def unscaled(values: Array, factor: float) -> Array:
    """Return floating-point values divided by their loss scale, in float64; other values unchanged."""
    if factor == 1.0 or values.dtype.kind != "f":
        return values
    with np.errstate(invalid="ignore"):  # uninitialized memory may hold a signalling NaN
        unscaled: Array = values.astype(np.float64) / factor
    return unscaled


class _Judge:
    """Comparison of the pairs in the order of the judged run."""

    def __init__(self, a: TrainingDump, b: TrainingDump, result: Judged, repeater: Repeater | None) -> None:
        self._a, self._b, self._result, self._repeater = a, b, result, repeater
        self._threshold = THRESHOLD["float32" if result.precision == "float32" else "float16"]
        self._made: set[str] = set()
        self._position = 0
        self._was_off = self._was_infinite = False
        self._first = min((call.step for call in b.calls), default=0)

    def pair(self, a: OpCall, b: OpCall) -> Pair:
        """Return the comparison of two matching calls."""
        self._advance(b.index)
        pair = Pair(a, b)
        if a.failed or b.failed:
            return self._refused(pair)
        if len(a.outputs) != len(b.outputs):
            pair.status = f"{len(b.outputs)} results, {len(a.outputs)} in the reference"
            other = other_arguments(a, b, ROUNDING)
            pair.why = f"gives {pair.status}" + (f", from other arguments: {other}" if other else "")
            return pair
        if not b.outputs:
            pair.status = "no results"
            return pair
        if self._is_same(a, b):
            pair.difference = Difference(1.0, 0.0, 0.0, 0.0, 0.0, 0)
            return pair
        held_a, held_b = self._a.read(a), self._b.read(b)
        factor = _scale_of(a, b)
        pair.output, pair.difference = self._worst(held_a, held_b, factor)
        pair.value_stats = _census_of(held_a, held_b, pair.output)
        pair.inputs = self._inputs(held_a, held_b, factor)
        self._isolate(pair, held_a, held_b)
        if not pair.why:
            self._judge(pair, held_a, held_b)
        return pair

    def _is_same(self, a: OpCall, b: OpCall) -> bool:
        return all(
            [one.digest for one in x] == [one.digest for one in y]
            for x, y in ((a.inputs, b.inputs), (a.outputs, b.outputs))
        ) and not other_arguments(a, b, 0.0)

    def alone(self, call: OpCall) -> Pair:
        """Return the judgement of a call that only the judged run has, from its repetition."""
        pair = Pair(call, call, "only in the judged run")
        if call.failed:
            pair.why = f"was refused: {call.failed}"
        elif call.outputs:
            self._isolate(pair, held := self._b.read(call), held)
        return pair

    def steps(self) -> None:
        """Find optimizer steps whose results are off although none of their operators is at fault."""
        if self._result.precision != "float32" or any(pair.why for pair in self._result.pairs if pair.b.failed):
            return
        pairs = {pair.b.where: pair for pair in self._result.pairs}
        ours = steps(self._a.calls)
        for key, theirs in steps(self._b.calls).items():
            if key not in ours or any(one.where in pairs and pairs[one.where].why for one in theirs):
                continue
            limit = self._result.limit
            found = off_after(self._a, self._b, ours[key], theirs, lambda *pair: self._difference(*pair).diff2, limit)
            if found is not None:
                call, k, diff2 = found
                pair = self._pair_of(call)
                pair.output = k
                pair.why = (
                    f"computes correctly, but the step of {call.module} ends with values that are off (diff2 "
                    f"{diff2:.3g}) from ones that agree: a learning rate, decay or momentum"
                )

    def unmatched(self) -> None:
        """Find operators of one run only that make values off before any other operator is at fault."""
        off = [
            pair
            for pair in self._result.pairs
            if self._is_off(pair) and not (is_cast(pair.b) and _off(pair.inputs, self._result.limit))
        ]
        both = self._result.matched.pairs
        flows = (Flow(self._a, (a.where for a, _ in both)), Flow(self._b, (b.where for _, b in both)))
        names = {id(one) for pair in off for one in (pair.a, pair.b)}
        first = self._result.first_bad
        for pair in off:
            if (first is not None and first.b.index <= pair.b.index) or self._is_off_by_unmatched(pair, flows, names):
                return
        if first is None and self._result.precision == "float32":
            self._gradients(flows[1], names)

    def uncleared(self) -> None:
        """Find the first addition to a gradient of an earlier step, which the reference clears."""
        found = uncleared(self._a, self._b)
        if found is not None:
            call, note = found
            self._result.notes.append(note)
            pair = self._pair_of(call)
            pair.why = pair.why or "adds to a gradient of an earlier step, which the reference clears"

    def _gradients(self, flow: Flow, off: set[int]) -> None:
        """Find operators of the judged run only behind wrong gradients that only the optimizer reads."""
        ours, limit = steps(self._a.calls), FAR * self._result.limit
        for key, theirs in steps(self._b.calls).items():
            for call, k, diff2 in begun_off(
                self._a, self._b, ours.get(key, []), theirs, lambda *pair: self._difference(*pair).diff2, limit
            ):
                way = flow.way(call, k)
                inherits = any(id(one) in off for one in way.ends)
                if way.alone and not inherits and all(one.phase == "backward" for one in way.alone):
                    at = forward_of(self._result.matched.only_b, way.alone[0])
                    self._pair_of(at).why = (
                        f"has no match in the reference, and the step of {call.module} reads values that are off "
                        f"(diff2 {diff2:.3g})"
                    )
                    return

    def _is_off_by_unmatched(self, pair: Pair, flows: tuple[Flow, Flow], off: set[int]) -> bool:
        """Return whether a value is off due to operators of one run only, or a different input; record the fault."""
        least = self._result.limit * (1 if self._result.precision == "float32" else FAR)
        held = self._b.read(pair.b)
        for k_a, k_b, diff2 in self._apart(self._a.read(pair.a), held, _scale_of(pair.a, pair.b)):
            if not _off(diff2, least):
                continue
            ours, theirs = without_steps(flows[0].way(pair.a, k_a), flows[1].way(pair.b, k_b))
            if any(id(one) in off for one in (*ours.ends, *theirs.ends)):
                continue
            at, why = self._of_ways(pair, ours, theirs)
            if why and not self._is_read_elsewhere(pair, held):
                self._pair_of(at).why = why
                return True
        return False

    def _of_ways(self, pair: Pair, ours: Way, theirs: Way) -> tuple[OpCall, str]:
        """Return the call at fault, and why, for the paths back from a value in both runs."""
        if ours.alone or theirs.alone:
            first_a = next((forward_of(self._result.matched.only_a, one) for one in ours.alone), None)
            first_b = next((forward_of(self._result.matched.only_b, one) for one in theirs.alone), None)
            return first_b or theirs.last_step or pair.b, in_words(first_a, first_b)
        if pair.b.phase != "forward" or ours.steps:  # the inputs of a backward follow from its forward
            return pair.b, ""
        view, why = other_way(ours, theirs, {b.where: a for a, b in self._result.matched.pairs})
        return view or pair.b, why

    def _is_read_elsewhere(self, pair: Pair, held: Recorded) -> bool:
        """Return whether another call of the reference has the same inputs: the runs differ only in order."""
        key, shapes = _group(pair.b), [one.shape for one in pair.b.inputs]
        for call in self._a.calls:
            if call is pair.a or _group(call) != key or [one.shape for one in call.inputs] != shapes:
                continue
            if not _off(self._inputs(self._a.read(call), held, _scale_of(call, pair.b)), self._result.limit):
                return True
        return False

    def _is_off(self, pair: Pair) -> bool:
        return pair.difference is not None and _off(pair.difference.diff2, self._result.limit)

    def _pair_of(self, call: OpCall) -> Pair:
        """Return the pair of a call; add one if it has none."""
        found = next((pair for pair in self._result.pairs if pair.b is call), None)
        if found is None:  # the call was not repeated
            found = Pair(call, call, "only in the judged run")
            self._result.pairs.append(found)
            self._result.pairs.sort(key=lambda pair: pair.b.index)
        return found

    def _advance(self, index: int) -> None:
        """Record the values made before ``index``; a view, cast or copy counts only if its input was made."""
        while self._position < len(self._b.calls) and self._b.calls[self._position].index < index:
            call = self._b.calls[self._position]
            passes_on = call.view or call.op.startswith(COPIES)
            if not passes_on or any(one.digest in self._made for one in call.inputs):
                self._made.update(one.digest for one in call.outputs)
            self._position += 1

    def _refused(self, pair: Pair) -> Pair:
        """Record that a call failed in one run; if both failed, neither is at fault."""
        pair.at = "b" if pair.b.failed else "a"
        words = pair.b.failed or f"in the reference: {pair.a.failed}"
        pair.status = "was refused"
        pair.why = "" if pair.a.failed and pair.b.failed else f"was refused: {words}"
        return pair

    def _worst(self, a: Recorded, b: Recorded, factor: float) -> tuple[int, Difference]:
        """Return index and difference of the worst result, with or without the loss scale, whichever is nearer."""
        found = [
            min(
                (self._difference(x, one, y, other, f) for f in dict.fromkeys((factor, 1.0))),
                key=lambda difference: difference.diff2,
            )
            for x, one, y, other in zip(a.outputs, a.call.outputs, b.outputs, b.call.outputs, strict=True)
        ]
        worst = max(range(len(found)), key=lambda k: found[k].diff2 if found[k].diff2 == found[k].diff2 else inf)
        return worst, found[worst]

    def _difference(self, x: Array, one: KeptTensor, y: Array, other: KeptTensor, factor: float = 1.0) -> Difference:
        if one.digest == other.digest and factor == 1.0:
            return Difference(1.0, 0.0, 0.0, 0.0, 0.0, 0)
        if x.shape != y.shape:
            return OTHER_SHAPE
        reference, value = _real(as_numbers(x, one.dtype)), _real(as_numbers(y, other.dtype))
        return differences([unscaled(value, factor)], reference, self._threshold)[0]

    def _inputs(self, a: Recorded, b: Recorded, factor: float) -> float:
        """Return the largest diff2 of the inputs."""
        if len(tensors_of(a.call)) != len(tensors_of(b.call)) and not other_arguments(a.call, b.call, ROUNDING):
            return inf
        return max((diff2 for _, _, diff2 in self._apart(a, b, factor)), default=0.0)

    def _apart(self, a: Recorded, b: Recorded, factor: float) -> list[tuple[int, int, float]]:
        """Return input index in ``a``, input index in ``b`` and diff2 for each argument position; tensors may recur.

        Values are compared with and without the loss scale; the smaller diff2 counts.
        """
        found = []
        for i, j in dict.fromkeys(zip(tensors_of(a.call), tensors_of(b.call), strict=False)):
            if j < b.call.read_from:
                continue
            pair = a.inputs[i], a.call.inputs[i], b.inputs[j], b.call.inputs[j]
            least = self._difference(*pair).diff2
            if factor != 1.0:
                least = min(least, self._difference(*pair, factor).diff2)
            found.append((i, j, least))
        return found

    def _isolate(self, pair: Pair, a: Recorded, b: Recorded) -> None:
        """Repeat the call, and the reference's call if only that one can be at fault."""
        limit = ALONE * self._result.limit
        pair.isolated = self._alone(pair, b)
        if pair.isolated is not None and _off(pair.isolated.diff2, limit):
            pair.why = f"diff2 {pair.isolated.diff2:.3g} by itself, beyond {limit:g}"
        elif pair.difference is not None and _off(pair.difference.diff2, limit) and not _off(pair.inputs, limit):
            alone = self._alone(pair, a)
            if alone is not None and _off(alone.diff2, limit):
                pair.at, pair.isolated = "a", alone
                pair.why = f"in the reference: diff2 {alone.diff2:.3g} by itself, beyond {limit:g}"

    def _alone(self, pair: Pair, held: Recorded) -> Difference | None:
        if self._repeater is None or (held.call.draws and held.state is None):
            return None
        try:
            again = self._repeater.outputs(held)
        except DataError as error:
            pair.status = f"compared, not repeated: {error}"
            return None
        found = [
            differences([_real(as_numbers(x, one.dtype))], _real(y), self._threshold)[0]
            for x, one, y in zip(held.outputs, held.call.outputs, again, strict=True)
            if x.shape == y.shape
        ]
        return max(found, key=lambda one: one.diff2 if one.diff2 == one.diff2 else inf, default=None)

    def _judge(self, pair: Pair, a: Recorded, b: Recorded) -> None:
        """Record why an operator is at fault that computes correctly, or that cannot be repeated."""
        limit = self._result.limit
        if pair.difference is None:
            return
        if not _off(pair.difference.diff2, limit):
            if pair.difference.diff2 > 0 and not _off(
                pair.inputs, limit
            ):  # an argument differs, even if one call shows little of it
                other = other_arguments(pair.a, pair.b, ROUNDING)
                pair.why = f"computes correctly from other arguments: {other}" if other else ""
            return
        if not _off(pair.inputs, limit):
            other = other_arguments(pair.a, pair.b, limit)
            if other:
                pair.why = f"computes correctly from other arguments: {other}"
            elif pair.b.draws and [one.dtype for one in pair.a.outputs] != [one.dtype for one in pair.b.outputs]:
                pair.why = DRAWS_IN_OTHER_DTYPE.format(pair.b.outputs[0].dtype, pair.a.outputs[0].dtype)
            elif pair.b.draws and not _same_state(a, b):
                pair.why = DRAWS
            elif pair.isolated is None and not pair.b.draws:
                pair.why = f"diff2 {pair.difference.diff2:.3g} from inputs that agree, beyond {limit:g}"
        elif pair.b.phase == "optimizer" and not self._was_infinite:
            # Its scalar arguments come from the script, not from other operators; after an overflow, steps are skipped.
            other = other_arguments(pair.a, pair.b, limit)
            pair.why = f"computes correctly from other arguments: {other}" if other else ""
        elif pair.b.phase == "forward" and (pair.b.step == self._first or not self._was_off):
            self._given(pair, a, b)
        self._was_off = True
        self._was_infinite |= not isfinite(pair.difference.diff2)

    def _given(self, pair: Pair, a: Recorded, b: Recorded) -> None:
        """Record whether an input that is off was not made by an operator: a batch or weights."""
        for k, (x, one, y, other) in enumerate(zip(a.inputs, a.call.inputs, b.inputs, b.call.inputs, strict=False)):
            difference = self._difference(x, one, y, other)
            if other.digest not in self._made and _off(difference.diff2, self._result.limit):
                pair.why = f"reads another input {k} than the reference, which no operator made: a batch or weights"
                return


def _same_state(a: Recorded, b: Recorded) -> bool:
    """Return whether two random calls started from the same generator state."""
    return a.state is not None and b.state is not None and np.array_equal(a.state, b.state)


def _scale_of(a: OpCall, b: OpCall) -> float:
    """Return the loss scale of the judged run relative to the reference's: the factor between their gradients."""
    return (b.loss_scale or 1.0) / (a.loss_scale or 1.0)


def _real(array: Array) -> Array:
    """Return a comparable array: a complex one as real and imaginary part."""
    if array.dtype.kind == "c":
        return np.stack([array.real, array.imag])
    return array


def _census_of(a: Recorded, b: Recorded, k: int) -> ValueStats | None:
    """Return statistics of result ``k`` and its reference; ``None`` for different shapes or non-numeric dtypes."""
    value, reference = (_real(as_numbers(one.outputs[k], one.call.outputs[k].dtype)) for one in (b, a))
    if value.shape != reference.shape or not value.size or value.dtype.kind not in "fiub":
        return None
    return value_stats(value, reference, b.call.outputs[k].dtype == "float16")


def _group(call: OpCall) -> tuple[str, int, str]:
    return call.op, call.step, call.phase


def _off(diff2: float, limit: float) -> bool:
    return not isfinite(diff2) or diff2 > limit


def _notes(a: TrainingDump, b: TrainingDump, result: Judged, repeater: Repeater | None) -> list[str]:
    notes = [f"{dump.path} was not finished: what it has is compared" for dump in (a, b) if not dump.finished]
    for dump, rest in ((a, result.matched.only_a), (b, result.matched.only_b)):
        if rest:
            names = ", ".join(dict.fromkeys(call.where for call in rest[:3]))
            notes.append(f"only {dump.path} has {len(rest)} calls, such as {names}")
    if repeater is None:
        notes.append("operators were not repeated: the first bad one may inherit its error")
    first = result.first_off
    if first is not None and not any(pair.why for pair in result.pairs) and first.difference is not None:
        finite = isfinite(first.difference.diff2)
        notes.append(
            f"values are off from {first.b.where} on (diff2 {first.difference.diff2:.3g}), though every operator "
            "computes correctly from its inputs: "
            + (
                "rounding that accumulates or is amplified"
                if finite
                else "an overflow; see dumper(check_overflow=True)"
            )
        )
    return notes
