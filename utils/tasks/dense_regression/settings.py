"""Settings of dense regression by flags and metadata."""

from __future__ import annotations

from functools import partial
from typing import Any

from engine import ConfigError, ModelError
from utils.metrics.images.dense import ALIGNMENTS, FIGURES, KINDS, RELATIONS
from utils.preprocess.image.lines import PIXEL_VALUES
from utils.tasks import ExportSetting, Flag, Model, Options
from utils.tasks.common.checks import setting_in_use
from utils.tasks.common.image_input import SIZE_FLAG

NOTE = "dense_regression"
"""Key of the metadata: a JSON object of keys of :data:`USUAL`."""

VIEWS = ("left_right", "right_left")
"""Order of the images of a model with two inputs."""

ORDERS = ("RGB", "BGR")

USUAL: dict[str, Any] = {
    "quantity": "depth",
    "relation": "same",
    "align": "none",
    "view_order": VIEWS[0],
    "channel_order": ORDERS[0],
    "pixel_values": None,
    "multiple": 1,
    "least": 0.0,
    "most": None,
}
"""Defaults. ``pixel_values`` ``None``: by the mean and standard deviation of ``preprocess``. ``multiple``: sides of
inputs without a size are filled up to multiples of this. ``most`` ``None``: no limit."""

_ONE_OF: dict[str, tuple[Any, ...]] = {
    "quantity": tuple(FIGURES),
    "relation": RELATIONS,
    "align": ALIGNMENTS,
    "view_order": VIEWS,
    "channel_order": ORDERS,
    "pixel_values": (None, *PIXEL_VALUES),
}

FLAGS = (
    SIZE_FLAG,
    Flag("--quantity", "what is measured (default: as stored, or depth)", None, choices=tuple(FIGURES)),
    Flag("--relation", "whether the model predicts the quantity, or its inverse up to a factor (default: as stored, or "
         "same)", None, choices=RELATIONS),
    Flag("--align", "fit the prediction to the true values of each image (default: as stored, or none)", None,
         choices=ALIGNMENTS, scripts=("valid",)),
    Flag("--view_order", "order of the images of a model with two inputs (default: as stored, or left_right)", None,
         choices=VIEWS),
    Flag("--channel_order", "of the model's inputs (default: as stored, or RGB)", None, choices=ORDERS),
    Flag("--pixel_values", "range of the model's inputs, or named mean and std (default: as stored)", None,
         choices=tuple(PIXEL_VALUES)),
    Flag("--value_scale", "levels of a PNG per unit of the true values (default: by the folder, 256 or 1000)", None,
         float),
    Flag("--least", "smallest true value that is counted (default: as stored, or 0)", None, float, scripts=("valid",)),
    Flag("--most", "largest true value that is counted (default: as stored, or no limit)", None, float,
         scripts=("valid",)),
    Flag("--metric", "the metric of record (default: abs_rel, or epe of disparity); the others are reported too", None,
         choices=KINDS, scripts=("valid",)),
)  # fmt: skip


def now(key: str, model: Model, options: Options) -> Any:
    """Return the value in use of a key of :data:`USUAL` (:func:`.setting_in_use`)."""
    allowed = _ONE_OF.get(key)
    what = "a positive number" if allowed is None else "one of " + ", ".join(map(str, allowed))
    return setting_in_use(key, model, options, NOTE, USUAL, _valid, what)


def _valid(key: str, value: Any) -> bool:
    if key in _ONE_OF:
        return value in _ONE_OF[key]
    if value is None:
        return key == "most"
    kinds = (int,) if key == "multiple" else (int, float)
    return isinstance(value, kinds) and not isinstance(value, bool) and value >= (1 if key == "multiple" else 0)


EXPORT_SETTINGS = (
    ExportSetting("--relation", RELATIONS, "decode", partial(now, "relation")),
    ExportSetting("--view_order", VIEWS, "prepare", partial(now, "view_order")),
    ExportSetting("--channel_order", ORDERS, "prepare", partial(now, "channel_order")),
    ExportSetting("--pixel_values", tuple(PIXEL_VALUES), "prepare", partial(now, "pixel_values")),
)
"""Settings that are often wrong after an export."""


def range_of(model: Model, options: Options) -> tuple[float, float | None]:
    """Return the smallest and the largest true value that are counted, the latter ``None`` for no limit.
    Raises ConfigError if there are none between."""
    least, most = now("least", model, options), now("most", model, options)
    if not 0 <= least < (most or float("inf")):
        raise ConfigError(f"--least {least:g} must be at least 0, and below --most {most or float('inf'):g}")
    return float(least), None if most is None else float(most)


def places_of(model: Model) -> tuple[int, int | None]:
    """Return the indices of the outputs with the values and with the confidence (``None``: there is none).

    A confidence has ``conf`` in its name; of the other outputs, that whose name contains ``disp``, ``depth`` or
    ``final`` is taken, else the first. Raises ModelError if there is no other output.
    """
    names = [spec.name.lower() for spec in model.outputs]
    sure = next((place for place, name in enumerate(names) if "conf" in name), None)
    others = [place for place in range(len(names)) if place != sure]
    if not others:
        raise ModelError(f"{model.ckpt}: its only output {model.outputs[0].name!r} is a confidence; export the values")
    named = [place for place in others if any(word in names[place] for word in ("disp", "depth", "final"))]
    return (named or others)[0], sure
