"""The ONNX files (forms) that an export writes, the exporters, and their flags."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from engine import ConfigError, add_version
from tecoinfer_modelzoo.text import did_you_mean

STATIC, DYNAMIC, HALF = "static", "dyn", "float16_dyn"

FORMS = (STATIC, DYNAMIC, HALF)
"""``<stem>.onnx`` (static shapes), ``<stem>_dyn.onnx`` and ``<stem>_float16_dyn.onnx``."""


EXPORTERS = ("dynamo", "torchscript")
"""PyTorch's exporters: by analysis of the model's code, and by tracing one run."""


def add_common(parser: argparse.ArgumentParser, folder: Path, *, batch: bool = True) -> None:
    """Add the flags of all export scripts; ``folder``: default of ``--out``."""
    add_version(parser)
    parser.add_argument("--out", type=Path, default=folder, help="folder of the ONNX files")
    if batch:
        parser.add_argument("--batch_size", type=int, default=1, help="batch of the static file")
    add_forms(parser)
    add_exporter(parser)


def add_forms(parser: argparse.ArgumentParser) -> None:
    """Add ``--forms``, for ``export_onnx(..., forms=args.forms)``."""
    parser.add_argument(
        "--forms", nargs="+", choices=FORMS, default=list(FORMS), metavar="FORM",
        help=f"the files to write: {', '.join(FORMS)} (default: all)",
    )  # fmt: skip


def add_exporter(parser: argparse.ArgumentParser) -> None:
    """Add ``--exporter``, for PyTorch's ``export_onnx(..., exporter=args.exporter)``."""
    parser.add_argument(
        "--exporter", choices=EXPORTERS,
        help="dynamo analyses the model's code (default); torchscript traces one run, in a tenth of the time",
    )  # fmt: skip


def chosen_forms(forms: Sequence[str], float16: bool = True) -> tuple[str, ...]:
    """Return the forms in the order of :data:`FORMS`; ``float16=False`` leaves the float16 form out.

    Raises ConfigError for an unknown form, or if none is left.
    """
    asked = (forms,) if isinstance(forms, str) else tuple(forms)
    for one in asked:
        if one not in FORMS:
            raise ConfigError(f"unknown form {one!r};{did_you_mean(str(one), FORMS)} use {', '.join(FORMS)}")
    chosen = tuple(one for one in FORMS if one in asked and (float16 or one != HALF))
    if not chosen:
        raise ConfigError(f"no form of the model is requested; use one or more of {', '.join(FORMS)}")
    return chosen
