"""Layouts of detectors' outputs: a table from a name to what reads the candidates from the outputs.

A new layout is a file here with ``LAYOUTS`` of its own, and a word below. docs/detection_layouts.md lists them.
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
    """Return the layout of a model's outputs: the one asked for, else the one its export stored, else what fits.

    Args:
        outputs: of any call.
        name: what ``--layout`` says, if anything.
        ckpt: the model, for messages.

    Raises:
        ConfigError: there is no layout of this name.
        ModelError: the export stored a name that is none, or several layouts fit.
        InputError: no layout fits.
    """
    if name is not None:
        if name not in TABLE:
            raise ConfigError(f"--layout {name}: no such layout;{did_you_mean(name, TABLE)} use {', '.join(TABLE)}")
        return TABLE[name]
    stored = outputs.note.get("layout")
    if stored is not None:
        if stored not in TABLE:
            raise ModelError(f"{ckpt}: metadata {NOTE!r}: layout {stored!r} is none of {', '.join(TABLE)}")
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
            f"{ckpt}: its outputs ({found}, for {outputs.samples} samples) have none of the known layouts; "
            f"say with --layout which of {', '.join(TABLE)}, or export it again"
        )
    raise ModelError(
        f"{ckpt}: its outputs ({found}) may be {' or '.join(one.name for one in fitting)}; say which with --layout"
    )


__all__ = ["NOTE", "TABLE", "Layout", "Outputs", "choose"]
