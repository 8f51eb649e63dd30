"""Common ``export_onnx.py`` of detectors: flags, notes, files."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from engine import ConfigError
from utils.export.forms import add_common as add_common
from utils.export.networks.random_weights import RANDOM
from utils.export.torch_export import export_onnx


@dataclass(frozen=True)
class Detector:
    """A detector to export.

    Attributes:
        module: takes images and the tensors of ``inputs``; returns ``outputs`` in order.
        name: start of the file names. source, weights: provenance. size: height and width of the example input.
        outputs: names of the outputs. labels: class names in the order of the layout.
        note: metadata ``detection``: the layout and its parameters.
        mean, std: for samples in 0..1. interpolation: resize filter.
        free: whether height and width are dynamic in the dynamic files. image: name of the image input.
        inputs: example tensors of further inputs by name. axes: their dynamic axes. notes: further metadata by key.
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


def sides(given: Sequence[int] | None, usual: tuple[int, int], multiple: int) -> tuple[int, int]:
    """Return height and width from ``--input_size``; raise ConfigError if they are not one or two multiples."""
    size = usual if not given else (given[0], given[-1])
    if (given and len(given) > 2) or min(size) < multiple or size[0] % multiple or size[1] % multiple:
        shown = " ".join(map(str, given or size))
        raise ConfigError(f"--input_size {shown} must be one or two positive multiples of {multiple}")
    return size


def write(found: Detector, args: argparse.Namespace) -> Iterator[str]:
    """Write the requested forms and yield lines about the weights and each file; errors as of ``export_onnx``."""
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
