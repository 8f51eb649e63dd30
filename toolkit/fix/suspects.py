"""Known mistakes other than precision, each tried on the float32 baseline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from engine import Array, ConfigError, DataError, Engine, open_engine
from engine.batching import fits
from toolkit.fix.normalisations import FEW, likely, own_name, table_changes
from toolkit.fix.records import Feed, Measure, listed
from toolkit.fix.samples import Samples, cast_to
from utils.preprocess.image.modes import MEAN
from utils.stored import ImageNotes

SCALES: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "mean and std: 0 to 1, nothing subtracted": ((0.0,), (1.0,)),
    "mean and std: -1 to 1 (mean 0.5, std 0.5)": ((0.5,), (0.5,)),
    "mean and std: 0 to 255": ((0.0,), (1 / 255,)),
    "mean and std: 0 to 255, ImageNet's mean subtracted": (MEAN, (1 / 255,)),
}
"""Other normalisations of RGB samples in 0..1: mean and standard deviation."""

Outputs = Sequence[Array]

UNCHANGED = "nothing changed"

FILTERS = ("nearest", "bilinear", "bicubic", "lanczos", "box")
"""Filters for resizing images; that of the model's metadata is skipped."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A tried mistake; ``metric`` is NaN if the model rejects the inputs; ``cured``: the reference is reached."""

    name: str
    metric: float
    cured: bool


def try_suspects(
    path: Path,
    samples: Samples,
    measure: Measure,
    reference: float,
    *,
    golden: Sequence[Array] | None = None,
    tolerance: float = 0.01,
) -> list[Suspect]:
    """Try known mistakes between an exported model and its source, and return all, the likeliest first.

    Args:
        path: the model, run in float32 on target ``onnx``. samples: the data set. measure: the metric.
        reference: the metric of the source.
        golden: outputs of the source, a row per sample, if the metric compares with them.
        tolerance: largest relative difference to the reference that counts as explained.

    Raises ConfigError: a sample takes several calls of the model; DataError: the number of golden outputs differs from
    that of the samples.
    """
    if not samples.one_call or samples.sharded:
        raise ConfigError("--reference and --golden support tasks with a single call only; this task makes several")
    if golden is not None and any(len(array) != samples.count for array in golden):
        raise DataError(f"golden outputs have {len(golden[0])} rows for {samples.count} samples; write them again")
    found: list[Suspect] = []
    with open_engine("onnx", replace(samples.spec(path), dtype="float32")) as engine:

        def value(parts: Iterable[Feed], change: Callable[[Outputs], Outputs]) -> float:
            metric, first = measure.make(), 0
            for part in parts:
                rows = slice(first, first + len(part.names))
                first = rows.stop
                fed = cast_to(part.inputs, engine.inputs)
                if not all(fits(array.shape, spec) for spec, array in zip(engine.inputs, fed, strict=True)):
                    return float("nan")
                outputs = engine(fed)
                ours = change(listed(outputs))
                theirs = ours if golden is None else [array[rows] for array in golden]
                given = ours if measure.raw or isinstance(outputs, list) else ours[0]  # as the engine returned it
                measure.update(metric, part, given, theirs)
            return float(metric.compute())

        for name, parts, change in [*_inputs(samples), *_outputs(samples)]:
            reached = value(parts, change)
            found.append(Suspect(name, reached, abs(reached - reference) <= tolerance * abs(reference)))
        if not any(one.cured for one in found) and _like_images(samples):
            for name, normalised in _normalisations(samples, engine, golden):
                reached = value(_changed(samples, normalised), _same)
                found.append(Suspect(name, reached, abs(reached - reference) <= tolerance * abs(reference)))
    higher = measure.make().higher_is_better
    return sorted(found, key=lambda one: _order(one, reference, higher))


def _order(one: Suspect, reference: float, higher_is_better: bool) -> tuple[bool, bool, float]:
    """Return the sort key: explanations first, before them "nothing changed", each by their distance."""
    if one.cured:
        return False, one.name != UNCHANGED, abs(one.metric - reference)
    if np.isnan(one.metric):
        return True, True, 0.0
    return True, False, -one.metric if higher_is_better else one.metric


def tried_inputs(samples: Samples) -> list[str]:
    """Return a note if no changes of inputs were tried."""
    if _like_images(samples):
        return []
    return ["no input is an image: only last steps (softmax, sigmoid, logarithm) were tried, no change of inputs"]


def _like_images(samples: Samples) -> bool:
    """Return whether an input may be an image: a 4-D float array."""
    return any(map(_like_image, next(iter(samples)).inputs))


def _like_image(array: Array) -> bool:
    return array.ndim == 4 and array.dtype.kind == "f"


def _same(outputs: Outputs) -> Outputs:
    return outputs


def _inputs(samples: Samples) -> Iterator[tuple[str, Iterable[Feed], Callable[[Outputs], Outputs]]]:
    yield UNCHANGED, samples, _same
    for name, change in _changes(samples.notes).items() if _like_images(samples) else ():
        yield name, _changed(samples, change), _same
    if samples.images:
        for name in FILTERS:
            if name != samples.notes.interpolation:
                yield f"resize mode: {name}", samples.parts(filter_name=name), _same
        yield "resize: squashed to the input's size, no crop", samples.parts(squash=True), _same


def _outputs(samples: Samples) -> Iterator[tuple[str, Iterable[Feed], Callable[[Outputs], Outputs]]]:
    yield "missing softmax", samples, lambda outputs: [_softmax(array) for array in outputs]
    yield "missing sigmoid", samples, lambda outputs: [1 / (1 + np.exp(-np.clip(a, -80, 80))) for a in outputs]
    yield "missing logarithm of the softmax", samples, lambda o: [np.log(_softmax(a) + 1e-30) for a in o]


def _normalisations(
    samples: Samples, engine: Engine, golden: Sequence[Array] | None
) -> list[tuple[str, Callable[[Array], Array]]]:
    """Return the other normalisations to try; with golden outputs only those near them."""
    part = next(iter(samples))
    if golden is None:
        ours = own_name(samples.notes)
        pairs = table_changes(samples.notes, part.inputs, samples.images)
        return [(name, change) for name, change in pairs if name.endswith(f"the source has {ours}")]
    open_batch = all(spec.batch_axis == 0 and spec.shape[0] is None for spec in engine.inputs)
    few = slice(FEW if open_batch else len(part.names))

    def run(arrays: list[Array]) -> Outputs:
        fed = cast_to(arrays, engine.inputs)
        if not all(fits(array.shape, spec) for spec, array in zip(engine.inputs, fed, strict=True)):
            return [np.zeros(0)]
        return listed(engine(fed))  # type: ignore[no-any-return]

    rows = slice(len(part.names[few]))
    inputs = [array[few] for array in part.inputs] if open_batch else part.inputs
    return list(likely(run, inputs, [array[rows] for array in golden], samples.notes, samples.images))


def _changed(samples: Samples, change: Callable[[Array], Array]) -> Iterator[Feed]:
    for part in samples:
        yield part._replace(inputs=[change(array) if _like_image(array) else array for array in part.inputs])


def _changes(notes: ImageNotes) -> dict[str, Callable[[Array], Array]]:
    """Return changes of N x C x H x W arrays by the mistake that each undoes."""
    own = notes.mean, notes.std
    changes: dict[str, Callable[[Array], Array]] = {
        "channel order: BGR": lambda a: np.ascontiguousarray(a[:, ::-1]),
        "channel order: BGR, mean and std too": lambda a: _rescaled(_unscaled(a, *own)[:, ::-1], *own),
        "layout: height and width exchanged": lambda a: np.ascontiguousarray(a.swapaxes(2, 3)),
        "layout: NHWC data read as NCHW": lambda a: np.ascontiguousarray(
            a.reshape(len(a), *a.shape[2:], a.shape[1]).transpose(0, 3, 1, 2)
        ),
        "layout: NCHW data read as NHWC": lambda a: a.transpose(0, 2, 3, 1).reshape(a.shape),
        "layout: the model takes NHWC": lambda a: np.ascontiguousarray(a.transpose(0, 2, 3, 1)),
    }
    for name, (mean, std) in SCALES.items():
        changes[name] = lambda a, mean=mean, std=std: _rescaled(_unscaled(a, *own), mean, std)  # type: ignore[misc]
    changes["mean and std: missing so far"] = lambda a: _rescaled(a, *own)
    changes["mean and std: missing so far, 0 to 255"] = lambda a: _rescaled(a / 255, *own)
    return changes


def _unscaled(array: Array, mean: Sequence[float], std: Sequence[float]) -> Array:
    """Undo the model's mean and standard deviation of three channels."""
    if array.shape[1] != 3 or len(mean) not in (1, 3):
        return array
    middle, spread = (np.asarray(values, array.dtype).reshape(1, -1, 1, 1) for values in (mean, std))
    return np.asarray(array * spread + middle)


def _rescaled(array: Array, mean: Sequence[float], std: Sequence[float]) -> Array:
    if array.shape[1] % len(mean):
        return array
    middle, spread = (np.asarray(values, array.dtype).reshape(1, -1, 1, 1) for values in (mean, std))
    return np.asarray((array - middle) / spread)


def _softmax(array: Array) -> Array:
    axis = 1 if array.ndim == 4 else -1
    powers = np.exp(array - array.max(axis=axis, keepdims=True))
    return np.asarray(powers / powers.sum(axis=axis, keepdims=True))
