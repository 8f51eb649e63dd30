"""Common ``export_onnx.py`` of folders whose networks of images are chosen by name: flags, network, files.

Usage: ``cli.run(partial(export_network, __doc__, HERE, KEYPOINTS))``
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from engine import ConfigError
from utils.export.forms import add_common
from utils.export.networks.random_weights import RANDOM
from utils.export.networks.vision import depth_networks, instance_networks, pose_networks, restoration_networks
from utils.export.networks.vision.architecture import Architecture, Folders, Network, network
from utils.export.networks.vision.categories import Categories, instance_categories, keypoint_categories
from utils.export.torch_export import export_onnx


@dataclass(frozen=True)
class Family:
    """The networks of a task.

    Attributes:
        archs: by name. arch: the default name. categories: reads ``--annotations``; ``None``: there is no such flag.
        folders: reads a folder of weights. disparities: whether there is a flag ``--disparities``.
    """

    archs: Mapping[str, Architecture]
    arch: str
    categories: Callable[[Path | None], Categories] | None = None
    folders: Folders | None = None
    disparities: bool = False


KEYPOINTS = Family(pose_networks.ARCHS, "yolov8n_pose", categories=keypoint_categories)
INSTANCES = Family(instance_networks.ARCHS, "yolov8n_seg", categories=instance_categories)
DEPTH = Family(depth_networks.ARCHS, "psmnet", folders=depth_networks.from_folder, disparities=True)
RESTORATION = Family(restoration_networks.ARCHS, "edsr_baseline_x2", folders=restoration_networks.from_folder)


def export_network(description: str | None, folder: Path, family: Family, argv: Sequence[str] | None = None) -> int:
    """Run an export script: write the requested forms, print the largest relative error of each, and return 0.

    ``folder``: default of ``--out``. Raises ConfigError for an invalid flag; DataError for an invalid file of
    annotations; ModelError, ExportError: weights or a form cannot be made; TargetError: a package is not installed.
    """
    args = _arguments(description, folder, family, argv)
    if args.batch_size < 1:
        raise ConfigError(f"--batch_size {args.batch_size} must be at least 1")
    found = network(
        family.archs,
        args.arch,
        args.weights,
        args.input_size,
        categories=family.categories(args.annotations) if family.categories else None,
        disparities=args.disparities if family.disparities else 192,
        folders=family.folders,
    )
    if found.weights == RANDOM:
        print("random weights: for functional and speed checks only")
    results = export_onnx(
        found.module,
        [example(found, args.batch_size, place) for place in range(len(found.of.inputs))],
        args.out / found.name,
        forms=args.forms,
        exporter=args.exporter,
        **settings(found),
    )
    for result in results:
        print(result)
    return 0


def _arguments(description: str | None, folder: Path, family: Family, argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    add_common(parser, folder)
    parser.add_argument("--arch", default=family.arch, help=f"network (default: {family.arch})")
    folders = ", a folder of transformers' save_pretrained (instead of --arch)" if family.folders else ""
    parser.add_argument("--weights", required=True, help=f"path of a .pth or .safetensors file{folders}, or random")
    parser.add_argument(
        "--input_size", type=int, nargs="+", metavar="N", help="height (and width) (default: that of the network)"
    )
    if family.categories:
        parser.add_argument(
            "--annotations", type=Path, metavar="FILE",
            help="COCO's JSON with the categories of the weights (default: COCO's own)",
        )  # fmt: skip
    if family.disparities:
        parser.add_argument(
            "--disparities", type=int, default=192, help="disparities of psmnet, from 0 pixels on (default: 192)"
        )
    return parser.parse_args(argv)


def example(found: Network, batch: int, place: int) -> torch.Tensor:
    """Return images as an input of the network: uniform in its range, or normally distributed if it is normalised."""
    shape, made = (batch, found.of.channels, *found.asked.size), torch.Generator().manual_seed(place)
    if found.of.highest is None:
        return torch.randn(shape, generator=made)
    return torch.rand(shape, generator=made) * found.of.highest


def settings(found: Network) -> dict[str, Any]:
    """Return names, axes and metadata of a network, for :func:`.export_onnx`."""
    of, size = found.of, list(found.asked.size)
    axes = {0: "batch"} | ({2: "height", 3: "width"} if of.free else {})
    made: dict[str, Any] = {
        "input_names": list(of.inputs),
        "output_names": list(of.outputs),
        "dynamic": dict.fromkeys(of.inputs, axes),
        "provenance": {"source": of.source, "weights": found.weights},
        "notes": dict(of.notes(found.asked)),
    }
    if found.asked.categories.labels:
        made["labels"] = list(found.asked.categories.labels)
    if of.scale is not None:
        mean, std = (list(part) for part in of.scale)
        scale = {"mean": mean, "std": std, "interpolation": of.interpolation}
        made["preprocess"] = {"resize_shape": size, "crop_shape": size, **scale}
    return made
