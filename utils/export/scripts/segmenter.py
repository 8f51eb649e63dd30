"""Common ``export_onnx.py`` of torchvision's segmentation networks: flags, network, files.

Usage: ``cli.run(partial(export_segmenter, __doc__, HERE, ("fcn_resnet50", "fcn_resnet101")))``
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import torch

from engine import ConfigError
from tecoinfer_modelzoo.files import text_of
from utils.export.forms import add_common
from utils.export.graphs import first_line
from utils.export.networks.random_weights import RANDOM
from utils.export.networks.torchvision_segmentation import segmenter
from utils.export.scripts.classifier import check_sizes
from utils.export.torch_export import export_onnx


def export_segmenter(
    description: str | None, folder: Path, archs: Sequence[str], argv: Sequence[str] | None = None
) -> int:
    """Run an export script: write the requested forms, print the largest relative error of each, and return 0.

    ``folder``: default of ``--out``; ``archs``: the networks of the folder, the default first.
    """
    args = _arguments(description, folder, archs, argv)
    sizes = args.input_size
    check_sizes(args.batch_size, sizes)
    found = segmenter(args.arch, args.weights)
    if found.weights == RANDOM:
        print("random weights: for functional and speed checks only")
    shape = (args.batch_size, 3, sizes[0], sizes[-1])
    results = export_onnx(
        found.module,
        torch.randn(shape, generator=torch.Generator().manual_seed(0)),
        args.out / args.arch,
        input_names=["input"],
        output_names=["logits"],
        dynamic={"input": {0: "batch", 2: "height", 3: "width"}},
        labels=found.labels if args.labels is None else _labels(args.labels),
        preprocess={
            "resize_shape": found.short_side,
            "crop_shape": sizes[0] if sizes[0] == sizes[-1] else list(sizes),
            "mean": list(found.mean),
            "std": list(found.std),
        },
        provenance={"source": f"torchvision {args.arch}", "weights": found.weights},
        notes={"segmentation": {"resize": "short_side"}},
        forms=args.forms,
        exporter=args.exporter,
    )
    for result in results:
        print(result)
    return 0


def _arguments(
    description: str | None, folder: Path, archs: Sequence[str], argv: Sequence[str] | None
) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    add_common(parser, folder)
    parser.add_argument("--arch", choices=archs, default=archs[0], help=f"network (default: {archs[0]})")
    parser.add_argument(
        "--weights",
        default="DEFAULT",
        help="name of published weights, path of a .pth or .safetensors file, or random (default: DEFAULT)",
    )
    parser.add_argument("--labels", type=Path, help="JSON list of the class names, for custom weights")
    parser.add_argument(
        "--input_size", type=int, nargs="+", default=[520], metavar="N", help="height (and width) of the static file"
    )
    return parser.parse_args(argv)


def _labels(path: Path) -> list[str]:
    try:
        found = json.loads(text_of(path))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"--labels {path}: cannot be read as JSON ({first_line(error)}); write a list") from error
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise ConfigError(f"--labels {path}: is not a JSON list of names; write one name per class")
    return found
