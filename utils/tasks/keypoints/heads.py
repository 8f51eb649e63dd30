"""Outputs of models of key points: their layout, the number and the names of the points, and decoding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from engine import Array, InputError, ModelError
from tecoinfer_modelzoo.text import shape_text
from utils.metrics.detection.keypoints import usual_sigmas
from utils.postprocess.image import poses
from utils.postprocess.image.layouts import NOTE
from utils.postprocess.image.poses import Poses
from utils.tasks import Model, Options
from utils.tasks.detection.heads import note

HEATMAPS, SIMCC, ROWS, ENDS = LAYOUTS = ("heatmaps", "simcc", "yolo_pose", "yolo_pose_end")
"""``heatmaps``: N x K x h x w, of one object. ``simcc``: N x K x Wx and N x K x Wy, of one object. ``yolo_pose``:
N x (4 + C + K * D) x A. ``yolo_pose_end``: N x Q x (6 + K * D). D is 2 or 3: x, y and a score."""

OUTSIDE = 0.02
"""Tolerance of probabilities outside of 0..1, for rounding."""


class Points(NamedTuple):
    """What an export stored of its points, under ``detection``.

    Attributes:
        names: of the K points; empty if unknown. number: K; 0 if unknown. dims: numbers per point in rows.
        skeleton: pairs of indices of connected points. sigmas: of OKS; ``None``: unknown.
    """

    names: tuple[str, ...] = ()
    number: int = 0
    dims: int = 3
    skeleton: tuple[tuple[int, int], ...] = ()
    sigmas: tuple[float, ...] | None = None

    @classmethod
    def of(cls, model: Model) -> Points:
        """Read ``point_names``, ``points``, ``skeleton`` and ``sigmas``, or Ultralytics' ``kpt_shape``.
        Raises ModelError if one is invalid."""
        stored = note(model)
        names, skeleton, sigmas = (stored.get(key) or [] for key in ("point_names", "skeleton", "sigmas"))
        shape = model.stored.json("kpt_shape", [0, 3]) if "points" not in stored else [stored["points"], 3]
        count = len(names) if isinstance(names, list) and names else shape[0] if _is_shape(shape) else -1
        if not isinstance(names, list) or not all(isinstance(one, str) for one in names) or count < 0:
            raise model.unusable(NOTE, f"point_names {names!r:.60} or kpt_shape {shape!r:.60} is invalid")
        if not isinstance(skeleton, list) or not all(_is_pair(one, count or 1000) for one in skeleton):
            raise model.unusable(NOTE, f"skeleton {skeleton!r:.60} must be pairs of numbers of points, from 0")
        if not isinstance(sigmas, list) or not all(type(one) in (int, float) and 0 < one < 10 for one in sigmas):
            raise model.unusable(NOTE, f"sigmas {sigmas!r:.60} must be numbers above 0")
        pairs = tuple((one[0], one[1]) for one in skeleton)
        return cls(tuple(names), count, shape[1], pairs, tuple(map(float, sigmas)) or None)

    def table(self, points: Sequence[Sequence[float]], sure: Sequence[float]) -> Any:
        """Return an object's points as plain data: x, y and score of each, by name if names are known."""
        rows = [[round(x, 2), round(y, 2), round(own, 4)] for (x, y), own in zip(points, sure, strict=True)]
        return dict(zip(self.names, rows, strict=True)) if len(self.names) == len(rows) else rows

    def lines(self, points: Sequence[Any], sure: Sequence[float], least: float) -> dict[str, Any]:
        """Return what is drawn of an object: its points with at least this score, and lines between connected ones."""
        seen = [one if own >= least else None for one, own in zip(points, sure, strict=True)]
        pairs = [(seen[a], seen[b]) for a, b in self.skeleton if max(a, b) < len(seen)]
        return {"points": [one for one in seen if one], "lines": [pair for pair in pairs if all(pair)]}


def _is_shape(value: Any) -> bool:
    return (
        isinstance(value, list) and len(value) == 2 and type(value[0]) is int and value[0] >= 0 and value[1] in (2, 3)
    )


def _is_pair(value: Any, count: int) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(type(one) is int and 0 <= one < count for one in value)


def layout_of(model: Model, options: Options) -> str:
    """Return the layout of the outputs: the flag's, else the stored one, else by the number of their axes.
    Raises ModelError if none fits."""
    given = options.layout or note(model).get("layout")
    if given is not None:
        if given not in LAYOUTS:
            raise model.unusable(NOTE, f"layout {given!r} is not one of {', '.join(LAYOUTS)}")
        return str(given)
    ranks = [len(spec.shape) for spec in model.outputs]
    if 4 in ranks:
        return HEATMAPS
    if ranks == [3, 3]:
        return SIMCC
    if ranks == [3]:
        shape, points = model.outputs[0].shape, Points.of(model)
        return _rows_layout(shape, points, _labels(model))[0]
    shapes = ", ".join(f"{spec.name} {shape_text(spec.shape)}" for spec in model.outputs)
    raise ModelError(f"{model.ckpt}: its outputs ({shapes}) are not of a model of key points; pass --layout")


def is_top_down(model: Model, options: Options) -> bool:
    """Return whether the model finds the points of one object per input."""
    return layout_of(model, options) in (HEATMAPS, SIMCC)


def _labels(model: Model) -> int | None:
    labels = model.stored.labels
    return None if labels is None else len(labels)


def _rows_layout(shape: Sequence[int | None], points: Points, labels: int | None) -> tuple[str, int]:
    """Return the layout of rows by a shape N x P x Q, and the number of points; 0 if the shape does not give it."""
    rows, columns = shape[1:]
    if rows is None and columns is None:
        return ROWS, points.number
    if points.number:
        ends = columns == 6 + points.number * points.dims and rows != 4 + (labels or 1) + points.number * points.dims
        return ENDS if ends else ROWS, points.number
    if rows is not None and (columns is None or columns > rows):
        return ROWS, (rows - 4 - (labels or 1)) // points.dims
    return ENDS, ((columns or 6) - 6) // points.dims


def decoded_rows(outputs: Any, samples: int, model: Model, options: Options, least: float) -> tuple[list[Poses], bool]:
    """Return the candidates of each image in pixels of the input, and whether they are final.

    Raises:
        InputError: the output does not have the layout's shape, or scores are not from 0 to 1.
    """
    array = _only(outputs, model)
    points, labels, layout = Points.of(model), _labels(model), layout_of(model, options)
    if array.ndim != 3 or len(array) != samples:
        raise _refused(model, layout, array, "N x (4 + C + K * D) x A, or N x Q x (6 + K * D)")
    count = points.number or _rows_layout(array.shape, points, labels)[1]
    if layout == ENDS:
        if array.shape[2] != 6 + count * points.dims or count < 1:
            raise _refused(model, layout, array, f"N x Q x (6 + K * {points.dims})")
        _check(array[..., 4], model, layout)
        return [poses.poses_of_ends(one, least, points.dims) for one in array], True
    classes = array.shape[1] - 4 - count * points.dims
    if classes < 1 or count < 1 or (labels is not None and classes != labels):
        known = f"{labels} labels" if labels is not None else "a class"
        raise _refused(model, layout, array, f"N x (4 + C + K * {points.dims}) x A for {known} and {count} points")
    _check(array[:, 4 : 4 + classes], model, layout)
    return [poses.poses_of_rows(one, classes, least, points.dims) for one in array], False


def decoded_points(
    outputs: Any, crops: int, model: Model, options: Options, size: tuple[int, int]
) -> tuple[Array, Array]:
    """Return the points of each crop, N x K x 2 in pixels of the input, and their scores, N x K.

    Raises:
        InputError: the outputs do not have the layout's shapes.
    """
    layout, alignment = layout_of(model, options), setting("alignment", model, options)
    arrays = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    count = Points.of(model).number
    if layout == HEATMAPS:
        maps = next((one for one in arrays if one.ndim == 4), arrays[0])
        if maps.ndim != 4 or len(maps) != crops or (count and maps.shape[1] != count):
            raise _refused(model, layout, maps, f"N x {count or 'K'} x h x w for {crops} objects")
        return poses.points_of_maps(maps, size, alignment, options.refine)
    if len(arrays) != 2 or any(one.ndim != 3 or len(one) != crops for one in arrays):
        raise _refused(model, layout, arrays[0], f"N x K x Wx and N x K x Wy for {crops} objects")
    names = [spec.name for spec in model.outputs]
    if names and names[0].endswith("y") and names[-1].endswith("x"):
        arrays.reverse()
    across, down = arrays
    if across.shape[1] != down.shape[1] or across.shape[2] * size[0] != down.shape[2] * size[1]:
        raise _refused(model, layout, across, f"as many bins per pixel as {list(down.shape)} of the other one")
    return poses.points_of_bins(across, down, size)


USUAL: Mapping[str, Any] = {"alignment": poses.CORNER, "box_scale": 1.25}
"""Defaults of the settings of models of one object."""


def setting(key: str, model: Model, options: Options) -> Any:
    """Return a setting of models of one object: the flag's value, else the stored one, else the default.
    Raises ModelError if the stored one is invalid."""
    given = getattr(options, key)
    if given is not None:
        return given
    found = note(model).get(key, USUAL[key])
    fits = found in poses.ALIGNMENTS if key == "alignment" else type(found) in (int, float) and 0.5 <= found <= 4
    if not fits:
        raise model.unusable(NOTE, f"{key} {found!r:.60} is invalid")
    return found


def sigmas_of(model: Model, given: Sequence[float] | None, count: int) -> tuple[float, ...]:
    """Return the deviations of OKS: the flag's, else the stored ones, else :func:`.usual_sigmas`."""
    found = tuple(given) if given else Points.of(model).sigmas or usual_sigmas(count)
    return found * count if len(found) == 1 else found


def _only(outputs: Any, model: Model) -> Array:
    arrays = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    if len(arrays) != 1:
        raise InputError(f"{model.ckpt}: {len(arrays)} outputs; rows of key points are one output")
    return np.asarray(arrays[0])


def _check(scores: Array, model: Model, layout: str) -> None:
    """Raise InputError if scores of rows are not probabilities; NaN is ignored."""
    values = scores[np.isfinite(scores)]
    if values.size and not -OUTSIDE <= values.min() <= values.max() <= 1 + OUTSIDE:
        worst = float(values.max()) if values.max() > 1 + OUTSIDE else float(values.min())
        raise InputError(
            f"{model.ckpt}: layout {layout}: a score of {worst:.4g}, but probabilities are 0 to 1; was it exported "
            "for key points, with all labels stored?"
        )


def _refused(model: Model, layout: str, array: Array, wanted: str) -> InputError:
    return InputError(
        f"{model.ckpt}: layout {layout}: an output of shape {shape_text(array.shape)}; expected {wanted}; store labels "
        "and kpt_shape in the model, or pass --layout"
    )
