"""The forms that a model is written in, what writes them, and the flags that say so."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from engine import ConfigError
from tecoinfer_modelzoo.text import did_you_mean

STATIC, DYNAMIC, HALF = "static", "dyn", "float16_dyn"

FORMS = (STATIC, DYNAMIC, HALF)
"""``<stem>.onnx`` of fixed sizes, ``<stem>_dyn.onnx``, and ``<stem>_float16_dyn.onnx``."""


EXPORTERS = ("dynamo", "torchscript")
"""Torch's exporters: the one that reads the model's code, and the one that records what a run of it does."""


def add_forms(parser: argparse.ArgumentParser) -> None:
    """Add ``--forms``: what ``export_onnx(..., forms=args.forms)`` takes."""
    parser.add_argument(
        "--forms", nargs="+", choices=FORMS, default=list(FORMS), metavar="FORM",
        help=f"the files to write: {', '.join(FORMS)} (default: all)",
    )  # fmt: skip


def add_exporter(parser: argparse.ArgumentParser) -> None:
    """Add ``--exporter``: what ``export_onnx(..., exporter=args.exporter)`` of PyTorch takes."""
    parser.add_argument(
        "--exporter", choices=EXPORTERS,
        help="dynamo reads the model's code (default); torchscript records one run of it, in a tenth of the time",
    )  # fmt: skip


def chosen_forms(forms: Sequence[str], float16: bool = True) -> tuple[str, ...]:
    """Return the forms in the order they are written in; ``float16=False`` leaves the float16 one out.

    Raises:
        ConfigError: one is unknown, or none is left.
    """
    asked = (forms,) if isinstance(forms, str) else tuple(forms)
    for one in asked:
        if one not in FORMS:
            raise ConfigError(f"unknown form {one!r};{did_you_mean(str(one), FORMS)} use {', '.join(FORMS)}")
    chosen = tuple(one for one in FORMS if one in asked and (float16 or one != HALF))
    if not chosen:
        raise ConfigError(f"no form of the model is asked for; use one or more of {', '.join(FORMS)}")
    return chosen
