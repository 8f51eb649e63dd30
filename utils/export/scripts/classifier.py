"""Common ``export_onnx.py`` of every classification folder: flags, network, files.

Usage: ``cli.run(partial(export_classifier, __doc__, HERE, "vgg16"))``
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch

from engine import ConfigError, ModelError
from tecoinfer_modelzoo.text import did_you_mean
from utils.export.forms import add_common
from utils.export.networks.random_weights import RANDOM
from utils.export.networks.torchvision_models import Classifier, Size
from utils.export.onnx_files import ExportResult
from utils.export.torch_export import export_onnx

TIMM = ("timm/", "timm:")
"""Name prefixes of timm networks; other names are torchvision's."""

SMALLEST = 32
"""Minimum height and width in pixels: most networks halve them five times."""

_FIXED = "leave the axis out of dynamic"
"""Part of the error message of a network with a fixed height and width."""


def export_classifier(
    description: str | None,
    folder: Path,
    arch: str,
    *,
    archs: Sequence[str] | None = None,
    argv: Sequence[str] | None = None,
) -> int:
    """Run an export script: write the requested forms, print the largest relative error of each, and return 0.

    ``folder``, ``arch``: defaults of the flags; ``archs``: allowed networks; ``None``: any of torchvision and timm.
    Raises ConfigError for an invalid flag; ModelError, ExportError: weights or a form cannot be made; TargetError:
    torchvision, timm or safetensors is not installed.
    """
    args = _arguments(description, folder, arch, argv)
    check_sizes(args.batch_size, args.input_size)
    if archs is not None and args.arch not in archs:
        raise ConfigError(
            f"unknown arch {args.arch!r};{did_you_mean(args.arch, archs)} this folder is for {', '.join(archs)}; "
            "example/classification/imagenet exports any"
        )
    size = (args.input_size[0], args.input_size[-1]) if args.input_size else None
    found = find_classifier(args.arch, args.weights, size)
    if found.weights == RANDOM:
        print("random weights: for functional and speed checks only")
    if not found.free:
        height, width = found.size
        print(f"{args.arch} takes images of {height} x {width} only: in the dynamic files only the batch is dynamic")
    for result in _written(found, args):
        print(result)
    return 0


def _arguments(description: str | None, folder: Path, arch: str, argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    add_common(parser, folder)
    parser.add_argument("--arch", default=arch, help=f"network (default: {arch})")
    parser.add_argument(
        "--weights",
        default="DEFAULT",
        help="name of published weights, path of a .pth or .safetensors file, or random (default: DEFAULT, the best)",
    )
    parser.add_argument(
        "--input_size", type=int, nargs="+", metavar="N", help="height (and width) (default: that of the weights)"
    )
    return parser.parse_args(argv)


def check_sizes(batch_size: int, input_size: Sequence[int] | None) -> None:
    """Check ``--batch_size`` and ``--input_size``; raise ConfigError for invalid ones."""
    sizes = input_size or [SMALLEST]
    if batch_size < 1 or min(sizes) < SMALLEST or len(sizes) > 2:
        shown = " ".join(map(str, sizes))
        raise ConfigError(
            f"--batch_size {batch_size} must be at least 1, --input_size {shown} one or two numbers >= {SMALLEST}"
        )


def find_classifier(arch: str, weights: str, size: Size | None = None) -> Classifier:
    """Return a network of torchvision, or of timm if the name starts with one of :data:`TIMM`.

    ``weights``: a published name, a file's path, or ``random``. ``size``: height and width; ``None``: those of the
    weights.
    """
    if arch.startswith(TIMM):
        from utils.export.networks import timm_models

        return timm_models.classifier(arch[len(TIMM[0]) :], weights, size)
    from utils.export.networks import torchvision_models

    return torchvision_models.classifier(arch, weights, size)


def _written(found: Classifier, args: argparse.Namespace) -> list[ExportResult]:
    """Write the files; if the network cannot be exported for any size, only the batch is dynamic."""
    try:
        return _export(found, args, found.free)
    except ModelError as error:
        if not found.free or _FIXED not in str(error):
            raise
        height, width = found.size
        print(f"{args.arch} cannot be exported for any height and width: {height} x {width} only, the batch is dynamic")
        return _export(found, args, free=False)


def _export(found: Classifier, args: argparse.Namespace, free: bool) -> list[ExportResult]:
    shape = (args.batch_size, 3, *found.size)
    example = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    axes = {0: "batch"} | ({2: "height", 3: "width"} if free else {})
    return export_onnx(
        found.module,
        example,
        args.out / found.name,
        dynamic={"input": axes},
        labels=found.labels,
        preprocess=found.preprocess,
        provenance={"source": found.source, "weights": found.weights},
        notes={} if found.class_ids is None else {"class_ids": list(found.class_ids)},
        forms=args.forms,
        exporter=args.exporter,
    )
