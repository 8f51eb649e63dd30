"""Networks of images that are exported by their name: how one is built, with which weights, and its metadata."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from engine import ConfigError
from tecoinfer_modelzoo.text import did_you_mean
from utils.export.networks.random_weights import RANDOM, divide_layers, lift, seeded
from utils.export.networks.vision.categories import Categories
from utils.export.weight_files import is_weights_file, load_weights
from utils.preprocess.image.modes import MEAN, STD

Size = tuple[int, int]
"""Height and width in pixels."""

UNIT = ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
"""Mean and standard deviation of samples that stay in 0..1."""

IMAGENET = (MEAN, STD)


class Asked(NamedTuple):
    """What a network is built for.

    Attributes:
        size: height and width of its inputs. categories: classes and key points of models of objects.
        disparities: number of disparities of a stereo network, from 0 pixels on.
    """

    size: Size
    categories: Categories
    disparities: int = 192


def _nothing(asked: Asked) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True)
class Architecture:
    """A network with a name.

    Attributes:
        build: returns it with initial weights and the state dict of its published files; raises ConfigError or
            TargetError if it cannot be built.
        source: where it was published.
        size: usual height and width. multiple: of which both are multiples. least: the smallest side.
        notes: returns metadata by key. scale: mean and standard deviation of samples in 0..1; ``None``: the notes have
            the range. interpolation: filter of resizing. highest: number of white; ``None``: inputs are normalised.
        inputs, outputs: names. channels: of each input, N x channels x H x W float32.
        free: whether height and width are dynamic in the dynamic files.
        exported: returns the module to export, made of the network; its outputs are tensors.
        ignored: prefixes of keys of weights that only the training uses.
        without_norms, clipped: for random weights: parts of the network whose layers are scaled by their outputs, and
            the layer before the last ReLU.
    """

    build: Callable[[Asked], torch.nn.Module]
    source: str
    size: Size
    multiple: int
    notes: Callable[[Asked], Mapping[str, Any]] = _nothing
    least: int = 1
    scale: tuple[Sequence[float], Sequence[float]] | None = IMAGENET
    interpolation: str = "bilinear"
    highest: float | None = None
    inputs: tuple[str, ...] = ("input",)
    outputs: tuple[str, ...] = ("output",)
    channels: int = 3
    free: bool = False
    exported: Callable[[torch.nn.Module], torch.nn.Module] = torch.nn.Module.eval
    ignored: tuple[str, ...] = ()
    without_norms: tuple[str, ...] = ()
    clipped: str = ""


@dataclass(frozen=True)
class Network:
    """A network in eval mode to export: ``of`` has its inputs, outputs and metadata.

    Attributes:
        module: takes N x channels x H x W float32 arrays, one per input. weights: such as ``mine.pth`` or ``random``.
    """

    module: torch.nn.Module
    of: Architecture
    name: str
    asked: Asked
    weights: str


Folders = Callable[[str], Architecture]
"""Returns the architecture of a folder that transformers' ``save_pretrained`` wrote, whose ``build`` loads it.
Raises ConfigError or ModelError."""


def network(
    archs: Mapping[str, Architecture],
    arch: str,
    weights: str,
    size: Sequence[int] | None = None,
    *,
    categories: Categories | None = None,
    disparities: int = 192,
    folders: Folders | None = None,
) -> Network:
    """Return a network by its name.

    Args:
        archs: the known ones. arch: a name of them. weights: ``random``, the path of a file with a state dict
            (:mod:`utils.export.weight_files`), or of a folder for ``folders``, which decides instead of ``arch``.
        size: height and width, or one number for both; ``None``: the usual ones of the network.
        categories, disparities: see :class:`Asked`.

    Raises:
        ConfigError: a name is unknown, or the network does not take the size or the categories.
        ModelError: the file or folder is missing, damaged, or has other weights.
        TargetError: a package that the network needs is not installed.
    """
    is_folder = folders is not None and weights != RANDOM and Path(weights).is_dir()
    if is_folder and folders is not None:
        found, name = folders(weights), Path(weights).resolve().name
    elif arch in archs:
        found, name = archs[arch], arch
    else:
        raise ConfigError(f"unknown arch {arch!r};{did_you_mean(arch, archs)} known: {', '.join(archs)}")
    asked = Asked(_sides(found, name, size), categories or Categories(), disparities)
    if weights == RANDOM:
        return Network(_random(found, asked), found, name, asked, RANDOM)
    built = found.build(asked)
    if not is_folder:
        if not is_weights_file(weights):
            also = ", or of a folder of save_pretrained" if folders is not None else ""
            raise ConfigError(
                f"unknown weights {weights!r} for {arch}; use random, or the path of a .pth or .safetensors file{also}"
            )
        load_weights(built, weights, found.ignored)
    return Network(found.exported(built.eval()).eval(), found, name, asked, Path(weights).resolve().name)


def _random(found: Architecture, asked: Asked) -> torch.nn.Module:
    """Return the module to export with random weights (:mod:`utils.export.networks.random_weights`)."""
    built: list[torch.nn.Module] = []

    def make() -> torch.nn.Module:
        built.append(found.build(asked))
        return found.exported(built[0])

    module = seeded(make, asked.size, inputs=len(found.inputs), channels=found.channels)
    for part in found.without_norms:
        divide_layers(module, built[0].get_submodule(part), asked.size)
    if found.clipped:
        lift(module, built[0].get_submodule(found.clipped), asked.size)
    return module


def _sides(found: Architecture, name: str, given: Sequence[int] | None) -> Size:
    size = found.size if not given else (given[0], given[-1])
    if (
        (given and len(given) > 2)
        or min(size) < max(found.multiple, found.least)
        or any(side % found.multiple for side in size)
    ):
        shown = " ".join(map(str, given or size))
        least = f", at least {found.least}" if found.least > found.multiple else ""
        raise ConfigError(
            f"--input_size {shown}: {name} takes one or two positive multiples of {found.multiple}{least}"
        )
    return size
