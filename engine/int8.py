"""Comparison of every int8 engine with float32 on its calibration samples, with warnings and refusals."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import floor

import numpy as np

from engine.agreement import Agreement
from engine.base import Array, Engine
from engine.batching.batch import batch_of
from engine.measures import RunningCosine
from engine.spec import GOOD_COSINE
from tecoinfer_modelzoo.errors import ModelError, TecoInferError
from tecoinfer_modelzoo.text import one_line

_TELLING = 8  # elements that a sample of an output must have for its own cosine to count


def agreements(
    reference: Engine, engines: Mapping[str, Engine], calls: Iterable[Sequence[Array]]
) -> dict[str, Agreement]:
    """Return each engine's agreement with a float32 one on the same calls, keeping only sums; omit failed engines."""
    places = _compared(reference)
    axes = [reference.outputs[place].batch_axis for place in places]
    sums = {name: [_Likeness(axis) for axis in axes] for name in engines}
    samples = 0
    for call in calls:
        samples += batch_of(call, reference.inputs)
        wanted = _listed(reference(list(call)))
        for name in list(sums):
            try:
                got = _listed(engines[name](list(call)))
            except TecoInferError:
                del sums[name]
                continue
            for one, place in zip(sums[name], places, strict=True):
                one.add(got[place], wanted[place])
    names = [reference.outputs[place].name for place in places]
    least = {name: min(zip((one.cosine for one in found), names, strict=True)) for name, found in sums.items()}
    return {name: Agreement(*lowest, samples) for name, lowest in least.items()}


def _listed(outputs: Array | list[Array]) -> list[Array]:
    return [outputs] if isinstance(outputs, np.ndarray) else outputs


def _compared(engine: Engine) -> list[int]:
    """Return the indices of the compared outputs: floats, or all if there are none."""
    kinds = [output.dtype.kind for output in engine.outputs]
    return [place for place, kind in enumerate(kinds) if kind == "f" or "f" not in kinds]


class _Likeness:
    """Cosine of an output and its float32 reference, over all samples as one vector and per sample.

    In one vector, samples of large values hide the others. A sample of few elements says little: the cosine of a single
    element is its sign.
    """

    def __init__(self, axis: int | None) -> None:
        self._axis, self._whole = axis, RunningCosine()
        self._sum, self._rows = 0.0, 0

    def add(self, value: Array, reference: Array) -> None:
        """Add a call's output; one of another shape than its reference counts as zeros."""
        if value.shape != reference.shape:
            value = np.zeros_like(reference)
        self._whole.add(value, reference)
        if self._axis is None or reference.size < _TELLING * reference.shape[self._axis]:
            return
        for row, wanted in zip(np.moveaxis(value, self._axis, 0), np.moveaxis(reference, self._axis, 0), strict=True):
            one = RunningCosine()
            one.add(row, wanted)
            self._sum += one.cosine
            self._rows += 1

    @property
    def cosine(self) -> float:
        """The lower of both: over all samples as one vector, and the mean over samples."""
        whole = self._whole.cosine
        return min(whole, self._sum / self._rows) if self._rows else whole


def measured(engine: Engine, baseline: Callable[[], Engine]) -> None:
    """Let an int8 engine, also a third party's, compare itself with float32 (``baseline``) when calibrated."""
    own = engine.calibrate

    def calibrate(samples: Iterable[list[Array]]) -> None:
        kept = [list(call) for call in samples]
        own(kept)
        if engine.agreement is None:
            engine.agreement = _agreement(engine, baseline, kept)
        if engine.agreement is not None:
            judge(engine, engine.agreement)

    calibrate.__doc__ = own.__doc__
    setattr(engine, "calibrate", calibrate)  # noqa: B010 -- wraps the method of this engine only


def _agreement(engine: Engine, baseline: Callable[[], Engine], calls: Sequence[list[Array]]) -> Agreement | None:
    """Compare an engine that did not compare itself; warn if that is impossible."""
    try:
        with baseline() as reference:
            found = agreements(reference, {"": engine}, calls)
    except TecoInferError as error:
        warnings.warn(f"{engine.spec.ckpt}: int8 was not compared with float32: {one_line(error)}", stacklevel=4)
        return None
    if "" not in found:
        engine(calls[0])  # raises with the reason
    return found[""]


def judge(engine: Engine, found: Agreement) -> None:
    """Warn about an int8 engine far from float32; below ``min_cosine`` of the spec, release it and raise ModelError."""
    least = engine.spec.min_cosine
    if found.cosine >= max(least, GOOD_COSINE):
        return
    what = f"{engine.spec.ckpt}: int8 answers of output {found.output!r} are far from float32's: {found.text}"
    if found.cosine < least and least > 0:
        engine.release()
        raise ModelError(
            f"{what}, below {least:g}; use --dtype float32, or accept it by --min_cosine "
            f"{max(0, floor(found.cosine * 100)) / 100:g} (0 accepts all)"
        )
    warnings.warn(f"{what}; judge it by the task's metric", stacklevel=3)


__all__ = ["agreements", "judge", "measured"]
