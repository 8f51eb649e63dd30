"""Layouts of detectors' outputs: a table from names to functions that read candidates from the outputs.

To add a layout, add a module here with ``LAYOUTS``, and its name to :data:`TABLE`; docs/reference/detection_layouts.md
describes both.
"""

from __future__ import annotations

import pkgutil
from dataclasses import replace

from engine import ConfigError, InputError, ModelError
from tecoinfer_modelzoo.text import did_you_mean
from utils.postprocess.image.layouts import dense, nms_inside, plain, sets, ssd, yolo
from utils.postprocess.image.layouts.base import NOTE, Layout, Outputs

__path__ = pkgutil.extend_path(__path__, __name__)

TABLE: dict[str, Layout] = {
    one.name: one for part in (plain, ssd, dense, yolo, nms_inside, sets) for one in part.LAYOUTS
}
"""Every layout by its name."""


def choose(outputs: Outputs, name: str | None, ckpt: object) -> Layout:
    """Return the layout of a model's outputs: the given one, else the one stored by the export, else the one that fits.

    Raises ConfigError if the given name is unknown, ModelError if the stored name is unknown, or several layouts fit,
    and InputError if no layout fits.
    """
    if name is not None:
        if name not in TABLE:
            raise ConfigError(f"--layout {name}: unknown layout;{did_you_mean(name, TABLE)} use {', '.join(TABLE)}")
        return TABLE[name]
    stored = outputs.note.get("layout")
    if stored is not None:
        if stored not in TABLE:
            raise ModelError(f"{ckpt}: metadata {NOTE!r}: layout {stored!r} is not one of {', '.join(TABLE)}")
        return TABLE[stored]
    fitting = [one for one in TABLE.values() if one.fits is not None and one.fits(outputs)]
    if len(fitting) == 1:
        return fitting[0]
    found = ", ".join(f"{n} {list(s)}" for n, s in zip(outputs.names, outputs.shapes, strict=False))
    unlabelled = replace(outputs, labels=None)
    others = [one.name for one in TABLE.values() if not fitting and one.fits is not None and one.fits(unlabelled)]
    if others:
        raise InputError(
            f"{ckpt}: its outputs ({found}) have the shapes of layout {' or '.join(others)} for another number of "
            f"classes than the model's {outputs.labels} labels; export it for detection (task 'detect') with all labels"
        )
    if not fitting:
        raise InputError(
            f"{ckpt}: its outputs ({found}, for {outputs.samples} samples) fit no known layout; "
            f"set --layout to one of {', '.join(TABLE)}, or export it again"
        )
    raise ModelError(
        f"{ckpt}: its outputs ({found}) fit {' and '.join(one.name for one in fitting)}; choose one with --layout"
    )


__all__ = ["NOTE", "TABLE", "Layout", "Outputs", "choose"]
