"""Search for wrong means, standard deviations and channel orders: known ones from a table, others by fitting.

Images in 0..1 become model inputs by ``(image - mean) / std``. Data prepared with another mean and std than the model
expects differ by a factor and an offset per channel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from engine import Array
from utils.preprocess.image.modes import MEAN, STD
from utils.stored import ImageNotes

Numbers = tuple[float, ...]
Norm = tuple[Numbers, Numbers]
"""Mean and standard deviation per channel, of samples in 0..1."""

TABLE: dict[str, Norm] = {
    "0 to 1, nothing subtracted": ((0.0,) * 3, (1.0,) * 3),
    "-1 to 1 (mean 0.5, std 0.5)": ((0.5,) * 3, (0.5,) * 3),
    "0 to 255": ((0.0,) * 3, (1 / 255,) * 3),
    "0 to 255, ImageNet's mean subtracted": (MEAN, (1 / 255,) * 3),
    "0 to 255, Caffe's mean subtracted": ((123.68 / 255, 116.779 / 255, 103.939 / 255), (1 / 255,) * 3),
    "ImageNet's": (MEAN, STD),
    "CLIP's": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    "CIFAR-10's": ((0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)),
}
"""Known normalisations, in RGB order; Inception and MobileNet use -1 to 1."""

_OUTSIDE = 0.02
"""Largest excess of an image over 0..1, by rounding or by a filter that overshoots."""

_NARROW = 0.02
"""Smallest range of values of an image; a narrower range excludes a standard deviation."""

STEPS, STARTS = 25, 4
"""Largest number of steps of a fit, and number of starting points."""

_EXACT, _CLOSE = 1e-5, 1e-3
"""Relative difference of outputs that ends a fit, and the largest one of an accepted fit."""


@dataclass(frozen=True)
class Affine:
    """Change of N x 3 x H x W arrays: optionally reversed channels, then a factor and an offset per channel."""

    scale: Numbers
    shift: Numbers
    reverse: bool = False

    @classmethod
    def between(cls, given: Norm, wanted: Norm, order: str = "") -> Affine:
        """Return the change from one normalisation to another.

        Args:
            given, wanted: normalisations.
            order: "": equal channel orders; ``BGR``: the source reverses the normalised channels;
                ``BGR, mean and std too``: the source reverses the image and then normalises.
        """
        mean, std = (np.array(one, np.float64) for one in given)
        middle, spread = (np.array(one, np.float64) for one in wanted)
        if order:
            mean, std = mean[::-1], std[::-1]
        if order == "BGR":
            middle, spread = middle[::-1], spread[::-1]
        return cls(tuple(std / spread), tuple((mean - middle) / spread), bool(order))

    def __call__(self, array: Array) -> Array:
        """Return a changed array of the same dtype."""
        if array.ndim != 4 or array.shape[1] != 3:
            return array
        turned = array[:, ::-1] if self.reverse else array
        scale, shift = (np.array(one).reshape(1, 3, 1, 1) for one in (self.scale, self.shift))
        return np.ascontiguousarray(turned * scale + shift).astype(array.dtype)


ORDERS = ("", "BGR", "BGR, mean and std too")


def own_name(notes: ImageNotes) -> str:
    """Return the name of the normalisation in the model's metadata."""
    return next((name for name, one in TABLE.items() if one == (notes.mean, notes.std)), "those of its export")


def table_changes(notes: ImageNotes, arrays: Sequence[Array], images: bool) -> Iterator[tuple[str, Affine]]:
    """Yield the changes between known normalisations and channel orders, with a description of the mistake.

    ``arrays``: some inputs; ``images``: they were prepared according to ``notes``, the model's metadata; otherwise
    every plausible normalisation is tried.
    """
    own = own_name(notes)
    known = {own: (notes.mean, notes.std), **TABLE} if len(notes.mean) == 3 else dict(TABLE)
    given = [name for name, norm in known.items() if (name == own if images else _plausible(arrays, norm))]
    for order, first, second in product(ORDERS, given, known):
        if first == second:
            continue
        name = f"mean and std: the data have {first}, the source has {second}"
        if order:
            name += f"; channel order: {order}"
        yield name, Affine.between(known[first], known[second], order)


def _plausible(arrays: Sequence[Array], norm: Norm) -> bool:
    """Return whether arrays are images in 0..1 after undoing a normalisation."""
    found = [array for array in arrays if array.ndim == 4 and array.shape[1] == 3 and array.size]
    mean, std = (np.array(one).reshape(1, 3, 1, 1) for one in norm)
    undone = [array * std + mean for array in found]
    low, high = min((a.min() for a in undone), default=0.0), max((a.max() for a in undone), default=0.0)
    return bool(low >= -_OUTSIDE and high <= 1 + _OUTSIDE and high - low >= _NARROW)


Run = Callable[[Affine], Array]
"""Function from a change of the inputs to all outputs, as one row of float64."""


def fitted(run: Run, golden: Array, starts: Sequence[Affine]) -> Affine | None:
    """Fit factor and offset per channel so that the model's outputs equal the source's; ``None`` if no fit succeeds.

    Levenberg-Marquardt with finite differences (Nocedal and Wright, Numerical Optimization, chapter 10).

    Args:
        run: returns the outputs for a change of the inputs. golden: outputs of the source, in the same form.
        starts: starting points, the likeliest first.
    """
    fits = (_descend(run, golden, start) for start in starts[:STARTS])
    return next((found for found in fits if found is not None), None)


def _descend(run: Run, golden: Array, start: Affine) -> Affine | None:
    size = float(np.linalg.norm(golden)) or 1.0
    now = np.array([*start.scale, *start.shift])
    rest = run(start) - golden
    damping = 1e-2
    for _ in range(STEPS):
        if not np.isfinite(rest).all() or np.linalg.norm(rest) <= _EXACT * size:
            break
        slopes = _slopes(run, golden + rest, now, start)
        if not np.isfinite(slopes).all():
            return None
        square, step = slopes.T @ slopes, slopes.T @ rest
        for _ in range(8):
            tried = now - np.linalg.lstsq(square + damping * np.diag(np.diag(square)), step, rcond=None)[0]
            after = run(_affine(tried, start)) - golden
            if np.linalg.norm(after) < np.linalg.norm(rest):
                now, rest, damping = tried, after, damping / 5
                break
            damping *= 5
        else:
            break
    return _affine(now, start) if np.linalg.norm(rest) <= _CLOSE * size else None


def _slopes(run: Run, at: Array, now: Array, like: Affine) -> Array:
    """Return the derivatives of the outputs by each of the six numbers, from finite differences."""
    columns = []
    for i, value in enumerate(now):
        step = 1e-3 * max(abs(value), 1e-2 if i < 3 else 0.1)
        moved = now.copy()
        moved[i] += step
        columns.append((run(_affine(moved, like)) - at) / step)
    return np.stack(columns, 1)


def _affine(numbers: Array, like: Affine) -> Affine:
    scale, shift = (tuple(map(float, half)) for half in np.split(numbers, 2))
    return Affine(scale, shift, like.reverse)


def described(found: Affine, notes: ImageNotes, images: bool) -> str:
    """Return the description of a fitted change as means and standard deviations; ``images``: the data follow the
    model's ``notes`` and the source differs; otherwise the source is assumed to follow them and the data differ.
    """
    scale, shift = np.array(found.scale), np.array(found.shift)
    mean, std = np.array(notes.mean), np.array(notes.std)
    if images:
        given, middle = (std[::-1], mean[::-1]) if found.reverse else (std, mean)
        spread = given / scale
        who, numbers = "the source has", (middle - shift * spread, spread)
    else:
        numbers = (shift * std + mean, scale * std)
        numbers = tuple(one[::-1] for one in numbers) if found.reverse else numbers
        who = f"the source has {own_name(notes)}, the data have"
    text = ", ".join(f"{what} ({_listed(one)})" for what, one in zip(("mean", "std"), numbers, strict=True))
    order = "; channel order: BGR" if found.reverse else ""
    return f"mean and std: {who} {text}{order} (fitted)"


def _listed(numbers: Array) -> str:
    return ", ".join(f"{number:.3g}" for number in numbers)


NEAR = 0.01
"""Largest relative difference of outputs of a candidate, which is then tried on all samples."""

_MOST = 100_000
"""Approximate number of compared output values."""

FEW = 8
"""Number of samples for the first trials."""


def likely(
    run: Callable[[list[Array]], Sequence[Array]],
    inputs: list[Array],
    golden: Sequence[Array],
    notes: ImageNotes,
    images: bool,
) -> list[tuple[str, Affine]]:
    """Return the changes that make a model's outputs (``run``) for a few samples equal the source's (``golden``),
    described.

    All changes of the table are tried (:func:`table_changes`); if none is near, one is fitted.
    """
    goal = _row(golden)

    def outputs(change: Affine) -> Array:
        found = _row(run([change(array) for array in inputs]))
        return found if found.shape == goal.shape else np.full_like(goal, np.nan)

    tried = sorted(
        ((_away(outputs(change), goal), name, change) for name, change in table_changes(notes, inputs, images)),
        key=lambda one: one[0],
    )
    near = [(name, change) for away, name, change in tried if away <= NEAR]
    if near or len(notes.mean) != 3:
        return near
    same = [Affine((1.0,) * 3, (0.0,) * 3, reverse) for reverse in (False, True)]
    starts = sorted([*same, *(one[2] for one in tried[: 2 * STARTS])], key=lambda one: _away(outputs(one), goal))
    with np.errstate(all="ignore"):
        found = fitted(outputs, goal, starts)
    return [] if found is None else [(described(found, notes, images), found)]


def _row(arrays: Sequence[Array]) -> Array:
    """Return outputs as one row, subsampled to about :data:`_MOST` values."""
    flat = np.concatenate([np.asarray(array).ravel() for array in arrays])
    return np.asarray(flat[:: max(1, flat.size // _MOST)], np.float64)


def _away(found: Array, goal: Array) -> float:
    away = float(np.linalg.norm(found - goal)) / (float(np.linalg.norm(goal)) or 1.0)
    return away if np.isfinite(away) else np.inf
