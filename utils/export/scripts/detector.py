"""What the ``export_onnx.py`` of the detection folders share: flags, notes, files."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from engine import ConfigError, add_version
from utils.export.forms import add_exporter, add_forms
from utils.export.networks.random_weights import RANDOM
from utils.export.torch_export import export_onnx


@dataclass(frozen=True)
class Detector:
    """A detector ready to be exported.

    Attributes:
        module: takes images (and what ``inputs`` names) and returns its outputs in the order of ``outputs``.
        name: start of the file names. source, weights: where it comes from.
        size: height and width of the example input.
        outputs: their names.
        labels: names of the classes, in the order of the layout's classes.
        note: what is stored under ``detection``: the layout, and what reading it needs.
        mean, std: of samples in 0..1. interpolation: the filter that images are resized with.
        free: whether height and width are open in the dynamic files.
        image: name of the images' input.
        inputs: other inputs than the images by name, as the example has them. axes: their dynamic axes.
        notes: what else is stored, by key.
    """

    module: torch.nn.Module
    name: str
    source: str
    weights: str
    size: tuple[int, int]
    outputs: Sequence[str]
    labels: Sequence[str] | None
    note: Mapping[str, Any]
    mean: Sequence[float]
    std: Sequence[float]
    interpolation: str = "bilinear"
    free: bool = False
    image: str = "input"
    inputs: Mapping[str, torch.Tensor] = field(default_factory=dict)
    axes: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)


def add_common(parser: argparse.ArgumentParser, folder: Path) -> None:
    """Add the flags that all export scripts of detectors have; the files go to ``folder`` unless ``--out`` says so."""
    add_version(parser)
    parser.add_argument("--out", type=Path, default=folder, help="folder of the ONNX files")
    parser.add_argument("--batch_size", type=int, default=1, help="batch of the static file")
    add_forms(parser)
    add_exporter(parser)


def sides(given: Sequence[int] | None, usual: tuple[int, int], multiple: int) -> tuple[int, int]:
    """Return height and width from ``--input_size``.

    Raises:
        ConfigError: more than two numbers, or one that is no multiple of what the network needs.
    """
    size = usual if not given else (given[0], given[-1])
    if (given and len(given) > 2) or min(size) < multiple or size[0] % multiple or size[1] % multiple:
        said = " ".join(map(str, given or size))
        raise ConfigError(f"--input_size {said} must be one or two positive multiples of {multiple}")
    return size


def write(found: Detector, args: argparse.Namespace) -> Iterator[str]:
    """Write the forms asked for; yield what there is to say of the weights and of each file.

    Raises:
        ConfigError: the batch is not positive.
        ExportError: a form failed; the others were written.
    """
    if args.batch_size < 1:
        raise ConfigError(f"--batch_size {args.batch_size} must be at least 1")
    if found.weights == RANDOM:
        yield "random weights: for functional and speed checks only"
    shape = (args.batch_size, 3, *found.size)
    example = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    axes = {0: "batch"} | ({2: "height", 3: "width"} if found.free else {})
    scale = {"mean": list(found.mean), "std": list(found.std), "interpolation": found.interpolation}
    results = export_onnx(
        found.module,
        [example, *found.inputs.values()],
        args.out / found.name,
        input_names=[found.image, *found.inputs],
        output_names=found.outputs,
        dynamic={found.image: axes, **found.axes},
        labels=found.labels,
        preprocess={"resize_shape": list(found.size), "crop_shape": list(found.size), **scale},
        provenance={"source": found.source, "weights": found.weights},
        notes={"detection": dict(found.note), **found.notes},
        forms=args.forms,
        exporter=args.exporter,
    )
    yield from map(str, results)
