"""Choose the fastest of several engines for a model: measured once in a short trial, then cached."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from statistics import median
from typing import Any

import numpy as np

from engine.base import Array, Engine, EngineError, TecoInferError, TensorSpec
from tecoinfer_modelzoo.cache import exclusive, read_entry, write_entry
from tecoinfer_modelzoo.json_types import Problems, entries, number, text

TRIAL_SECONDS = 2.0
"""Seconds after which no further round starts; every engine is warmed up once and timed at least once."""

MAX_ROUNDS, REFERENCE_ROUNDS = 50, 3
"""Largest number of rounds of a trial; an engine that cannot win takes part in the first few."""

TRIAL_NUMBERS = 8 * 3 * 224 * 224
"""Approximate limit of elements in a trial's input, so that large batches do not make it long."""

MOST_NUMBERS = 2**28  # an input with more elements (1 GiB of float32) is not drawn, and nothing is measured
TOLERANCE = 1e-3  # largest difference between the outputs of two float32 engines, relative to the largest output

_HALF_TOLERANCE = 1e-2
"""The same for further calls of a float16 model, whose values ONNX Runtime rounds after every operator."""

_NOTHING = 1e-30  # difference that is allowed for outputs that are all 0
SHORTEST = 1e-9  # lower limit in seconds of a plausible call; a cached time below it is invalid

_VARIED = ((1.0, 0.3), (10.0, 1.0))
"""For each further call: the standard deviation of floats, and the share of integers that are large."""

_KIND = "trials"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Contender:
    """An engine that may be chosen, or (``may_win`` false) is only measured for comparison.

    ``name`` is unique and shown in reports, version included. If a ``judge`` cannot open or compute a model, no other
    engine that may win is used.
    """

    name: str
    open: Callable[[], Engine]
    may_win: bool = True
    judge: bool = False


@dataclass(frozen=True, slots=True)
class TrialResult:
    """Which engine was chosen and why.

    A trial with ``failed`` ones is not cached, since the cause may be the process (out of memory, a failed import).
    """

    chosen: str  # name of the contender
    seconds: Mapping[str, float] = field(default_factory=dict)  # median of a call by name; empty without a trial
    refused: Mapping[str, str] = field(default_factory=dict)  # reason by name for those that cannot be used
    failed: frozenset[str] = frozenset()  # those of them that could not be opened or could not compute

    def describe(self) -> str:
        """Return one line: the chosen engine, and how much faster it is than the others."""
        others = [
            f"{seconds / self.seconds[self.chosen]:.1f} times {name}"
            for name, seconds in self.seconds.items()
            if name != self.chosen
        ]
        notes = [f"{', '.join(others)} in a trial"] if others else []
        notes += [f"{name} was not used: {reason}" for name, reason in self.refused.items()]
        return f"{self.chosen} ({'; '.join(notes)})" if notes else self.chosen


Feed = Callable[[Engine], "list[Array] | None"]
"""Return the arrays of a call for an engine, or ``None`` if that is impossible."""

Draws = Callable[[Engine], Iterable["list[Array]"]]  # return the arrays of several calls for an engine


def _no_draws(engine: Engine) -> Iterable[list[Array]]:
    return ()


def choose(
    contenders: Sequence[Contender], key: str, feed: Feed, *, agree: bool, draws: Draws = _no_draws
) -> tuple[Engine, TrialResult]:
    """Open the fastest of several engines.

    Args:
        contenders: the baseline first. One that fails to open or to compute is skipped, and tried again next time.
        key: identifies everything the result depends on; a second call with it uses the cache, if all were measured.
        feed: returns a call's arrays for an engine, or ``None``: the first contender is taken then.
        agree: skip engines whose outputs differ from the first one's by more than :data:`TOLERANCE`.
        draws: further calls, whose outputs are only compared; those that the first engine cannot compute are skipped.

    Raise TecoInferError if none of them could be opened (the error of the first), or a judge could not.
    """
    if len(contenders) == 1:
        return contenders[0].open(), TrialResult(contenders[0].name)
    with exclusive(_KIND):
        verdict = _recall(key, contenders)
        if verdict is None:
            opened, verdict = _trial(contenders, feed, agree, draws)
            if verdict.seconds and not verdict.failed:
                write_entry(_KIND, key, _to_json(verdict))
            return opened, verdict
    _log.info("cached trial: %s", verdict.describe())
    try:
        return next(c for c in contenders if c.name == verdict.chosen).open(), verdict
    except TecoInferError as error:
        _log.info("%s cannot be opened this time: %s", verdict.chosen, error)
    return _trial(contenders, feed, agree, draws)


def _to_json(verdict: TrialResult) -> dict[str, Any]:
    return {"chosen": verdict.chosen, "seconds": dict(verdict.seconds), "refused": dict(verdict.refused)}


def _recall(key: str, contenders: Sequence[Contender]) -> TrialResult | None:
    """Return the cached result if it is complete and names one of these contenders."""
    entry = read_entry(_KIND, key)
    if entry is None:
        return None
    try:
        chosen = text(entry["chosen"])
        seconds = {name: number(taken, SHORTEST) for name, taken in entries(entry["seconds"]).items()}
        refused = {name: text(reason) for name, reason in entries(entry["refused"]).items()}
    except Problems:
        return None
    known, may_win = {c.name for c in contenders}, {c.name for c in contenders if c.may_win}
    whole = chosen in may_win and chosen in seconds and known.issuperset((*seconds, *refused))
    return TrialResult(chosen, seconds, refused) if whole else None


def _trial(
    contenders: Sequence[Contender], feed: Feed, agree: bool, draws: Draws = _no_draws
) -> tuple[Engine, TrialResult]:
    engines, refused = _open_all(contenders)
    failed = set(refused)
    able = [c.name for c in contenders if c.may_win and c.name in engines]
    chosen, seconds = None, {}
    try:
        if not able:
            raise next(iter(refused.values()))
        arrays = feed(engines[able[0]]) if len(engines) > 1 else None
        if arrays is not None:
            if agree:
                _compare_draws(engines, able[0], draws, refused)
            right = {name: engine for name, engine in engines.items() if name not in refused}
            first = [c.name for c in contenders if c.judge and c.may_win]
            seconds = _measure(right, able, arrays, refused, agree, first)
            failed |= {name for name, error in refused.items() if not isinstance(error, _OtherOutputsError)}
            judges = [c.name for c in contenders if c.judge and c.name in able and c.name in refused]
            if judges:  # its own error is reported for every call
                why = f"{judges[0]} failed in the trial: {refused.pop(judges[0])}"
                refused |= {name: EngineError(why) for name in able if name not in judges}
                able, seconds = judges, {}
            able = [name for name in able if name in seconds or name in judges]
        if not able:
            raise next(iter(refused.values()))
        chosen = min(able, key=lambda name: seconds.get(name, 0.0))
    finally:
        for name, engine in engines.items():
            if name != chosen:
                engine.release()
    reasons = {name: str(error) for name, error in refused.items()}
    return engines[chosen], TrialResult(chosen, seconds, reasons, frozenset(failed))


def _open_all(contenders: Sequence[Contender]) -> tuple[dict[str, Engine], dict[str, TecoInferError]]:
    engines: dict[str, Engine] = {}
    refused: dict[str, TecoInferError] = {}
    for contender in contenders:
        try:
            engines[contender.name] = contender.open()
        except TecoInferError as error:
            if contender.judge:
                for engine in engines.values():
                    engine.release()
                raise
            _log.info("%s is skipped: %s", contender.name, error)
            refused[contender.name] = error
    return engines, refused


def _measure(
    engines: Mapping[str, Engine],
    able: Sequence[str],
    arrays: list[Array],
    refused: dict[str, TecoInferError],
    agree: bool,
    judges: Sequence[str] = (),
) -> dict[str, float]:
    """Return the median seconds per call of each engine, measured in turns; add those that fail to ``refused``."""
    start = time.perf_counter()
    times: dict[str, list[float]] = {name: [] for name in _warm_up(engines, arrays, refused, agree, judges)}
    for done in range(MAX_ROUNDS):
        for name, taken in times.items():
            if name in able or done < REFERENCE_ROUNDS:
                taken.append(_round(engines[name], arrays)[1])
        if len(times) == 1 or time.perf_counter() - start > TRIAL_SECONDS:  # nothing to compare one engine with
            break
    return {name: median(taken) for name, taken in times.items()}


def _warm_up(
    engines: Mapping[str, Engine],
    arrays: list[Array],
    refused: dict[str, TecoInferError],
    agree: bool,
    judges: Sequence[str],
) -> list[str]:
    """Run each engine once; return the names of those with correct outputs and add the others to ``refused``.

    Inputs that a judge refuses, such as a division by 0, are not given to the others: they may end the process.
    """
    right = []
    first: list[Array] | None = None
    for name, engine in engines.items():
        try:
            outputs, _ = _round(engine, arrays)
            if agree and first is not None:
                _compare(outputs, first)
        except TecoInferError as error:
            _log.warning("%s is not used: %s", name, error)
            refused[name] = error
            if name in judges:
                break
            continue
        first = first or outputs
        right.append(name)
    return right


def _compare_draws(engines: Mapping[str, Engine], first: str, draws: Draws, refused: dict[str, TecoInferError]) -> None:
    """Run further calls on every engine; add those whose outputs differ from the first one's to ``refused``."""
    for arrays in draws(engines[first]):
        try:
            wanted = _outputs(engines[first], arrays)
        except TecoInferError as error:
            _log.info("skipped a call that %s cannot compute: %s", first, error)
            continue
        for name, engine in engines.items():
            if name == first or name in refused:
                continue
            try:
                _compare(_outputs(engine, arrays), wanted, _HALF_TOLERANCE if _is_half(wanted) else TOLERANCE)
            except TecoInferError as error:
                _log.warning("%s is not used: %s", name, error)
                refused[name] = error


def _is_half(outputs: Sequence[Array]) -> bool:
    return any(array.dtype == np.float16 for array in outputs)


def _outputs(engine: Engine, arrays: list[Array]) -> list[Array]:
    outputs = engine(arrays)
    return outputs if isinstance(outputs, list) else [outputs]


def _round(engine: Engine, arrays: list[Array]) -> tuple[list[Array], float]:
    """Run as many concurrent calls as the engine has streams; return the outputs of one and the seconds per call."""
    start = time.perf_counter()
    if engine.streams == 1:
        outputs = engine(arrays)
    else:
        calls = [engine.run_async(arrays) for _ in range(engine.streams)]
        outputs, *_ = [call.result() for call in calls]
    seconds = (time.perf_counter() - start) / engine.streams
    return outputs if isinstance(outputs, list) else [outputs], seconds


class _OtherOutputsError(EngineError):
    """Another result than the baseline's: a measurement, which is cached."""


def _compare(outputs: list[Array], wanted: list[Array], tolerance: float = TOLERANCE) -> None:
    for index, (got, want) in enumerate(zip(outputs, wanted, strict=True)):
        if got.shape != want.shape:
            raise _OtherOutputsError(f"its output {index} has shape {got.shape}, the baseline's {want.shape}")
        finite = np.isfinite(want)
        if not np.array_equal(np.isfinite(got), finite):
            raise _OtherOutputsError(f"its output {index} is not finite in other places than the baseline's")
        a, b = got[finite].astype(np.float64), want[finite].astype(np.float64)
        difference, largest = np.abs(a - b).max(initial=0), np.abs(b).max(initial=0)
        if difference > tolerance * largest + _NOTHING:
            raise _OtherOutputsError(
                f"its output {index} differs from the baseline's by {difference:.2g}, where the largest value is "
                f"{largest:.2g} and {tolerance:g} of it is allowed"
            )


def random_input(engine: Engine, batch: int) -> list[Array] | None:
    """Return arrays for one call: floats from 0 to 1, zeros for integers; fewer samples beyond :data:`TRIAL_NUMBERS`.

    ``None`` if a dimension is unknown, or an input would have more than :data:`MOST_NUMBERS` elements.
    """
    rows = _rows(engine, batch)
    if rows is None:
        return None
    random = np.random.default_rng(0)
    return [_random(random, tensor, rows, engine.spec.dims) for tensor in engine.inputs]


def varied_inputs(engine: Engine, batch: int, whole: Mapping[str, tuple[int, int]]) -> Iterator[list[Array]]:
    """Yield arrays for several calls with negative, large and odd values, and both booleans.

    Yields nothing if :func:`random_input` returns ``None``. ``whole``: smallest and largest value of integer inputs, by
    name; other integer inputs stay 0, since sizes or loop counts may follow from them.
    """
    rows = _rows(engine, batch)
    if rows is None:
        return
    for seed, (scale, share) in enumerate(_VARIED, start=1):
        random = np.random.default_rng(seed)
        yield [_varied(random, one, rows, engine.spec.dims, scale, share, whole) for one in engine.inputs]


def _rows(engine: Engine, batch: int) -> int | None:
    """Return the number of samples of a trial's call, or ``None`` if no call can be made."""
    shapes = [_open_shape(tensor, engine.spec.dims) for tensor in engine.inputs]
    if any(d is None for shape in shapes for d in shape):
        return None
    largest = max((prod(d or 1 for d in shape) for shape in shapes), default=1)
    rows = engine.static_batch or max(1, min(batch, TRIAL_NUMBERS // largest))
    return None if rows * largest > MOST_NUMBERS else rows


def _open_shape(tensor: TensorSpec, dims: Mapping[str, tuple[int, ...]]) -> list[int | None]:
    """Return a tensor's shape without the batch, symbolic dimensions at their largest known size."""
    symbols = tensor.symbols or (None,) * len(tensor.shape)
    largest = [dims[name][-1] if name is not None and name in dims else None for name in symbols]
    both = enumerate(zip(tensor.shape, largest, strict=True))
    return [size if d is None else d for i, (d, size) in both if i != tensor.batch_axis]


def _shape(tensor: TensorSpec, rows: int, dims: Mapping[str, tuple[int, ...]]) -> list[int]:
    shape = [d or 0 for d in _open_shape(tensor, dims)]
    if tensor.batch_axis is not None:
        shape.insert(tensor.batch_axis, rows)
    return shape


def _random(random: np.random.Generator, tensor: TensorSpec, rows: int, dims: Mapping[str, tuple[int, ...]]) -> Array:
    shape = _shape(tensor, rows, dims)
    if tensor.dtype.kind != "f":
        return np.zeros(shape, tensor.dtype)
    return random.random(shape, np.float32).astype(tensor.dtype)


def _varied(
    random: np.random.Generator,
    tensor: TensorSpec,
    rows: int,
    dims: Mapping[str, tuple[int, ...]],
    scale: float,
    share: float,
    whole: Mapping[str, tuple[int, int]],
) -> Array:
    shape = _shape(tensor, rows, dims)
    if tensor.dtype.kind == "f":
        return (random.standard_normal(shape, np.float32) * np.float32(scale)).astype(tensor.dtype)
    if tensor.dtype.kind == "b":
        return random.random(shape) < 0.5
    if tensor.name not in whole:
        return np.zeros(shape, tensor.dtype)
    low, high = whole[tensor.name]
    wide = random.integers(low, high, shape, endpoint=True, dtype=np.int64) if high < 2**62 else np.zeros(shape, int)
    near = np.clip(random.integers(-9, 9, shape, endpoint=True), low, high)
    return np.where(random.random(shape) < share, wide, near).astype(tensor.dtype)
