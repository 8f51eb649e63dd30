"""Common ``export_onnx.py`` of an image classifier in a folder of transformers, such as ViT, DeiT, Swin or ConvNeXt.

Usage: ``cli.run(partial(export_image_folder, __doc__, HERE, "my_vit", "where it comes from"))``

The folder has ``config.json``, the weights (random if there are none) and ``preprocessor_config.json``; nothing is
downloaded. The network is that of the package transformers.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from engine import ConfigError, ModelError
from utils.export.forms import add_common
from utils.export.graphs import first_line
from utils.export.networks.bert_encoder import read_config
from utils.export.networks.image_text_models import FILTERS, HALF
from utils.export.networks.random_weights import RANDOM, seeded
from utils.export.networks.text_models import WEIGHTS, labels_of
from utils.export.networks.transformers_detectors import plain_attention, pretrained, read_json, transformers
from utils.export.torch_export import export_onnx

LOADER = "AutoModelForImageClassification"

PREPROCESSOR = "preprocessor_config.json"

SIDE = 224
"""Side of the images in pixels, of a network that takes any."""


class Scores(torch.nn.Module):  # type: ignore[misc]
    """A classifier that returns its logits alone."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """Return N x classes logits of N x C x H x W."""
        found: torch.Tensor = self.model(pixel_values=pixel_values).logits
        return found


def folder_classifier(folder: Path, is_random: bool) -> Scores:
    """Return the classifier of a folder, in eval mode; with ``is_random``, ``config.json`` is enough.

    Raises ConfigError: transformers has no classifier of this ``model_type``; ModelError: a file is missing or damaged;
    TargetError: transformers is not installed.
    """
    if not is_random:
        return Scores(plain_attention(pretrained(str(folder), LOADER))).eval()
    found = transformers()
    try:
        config = found.AutoConfig.from_pretrained(str(folder), local_files_only=True)
        size = config_sides(read_config(folder / "config.json"))
        made = seeded(lambda: Scores(plain_attention(getattr(found, LOADER).from_config(config))), size)
    except (ValueError, TypeError, KeyError, OSError) as error:
        raise ConfigError(f"{folder / 'config.json'}: no classifier can be made of it: {first_line(error)}") from error
    assert isinstance(made, Scores)  # noqa: S101 - seeded returns what it was given
    return made


def config_sides(config: Mapping[str, Any]) -> tuple[int, int]:
    """Return height and width of the images in ``config.json``, or :data:`SIDE`."""
    return _sides(config.get("image_size", SIDE)) or (SIDE, SIDE)


def preprocess_of(found: Mapping[str, Any], usual: tuple[int, int], origin: str) -> dict[str, Any]:
    """Return the metadata ``preprocess`` of a ``preprocessor_config.json``.

    Args:
        found: its content, which may lack keys. usual: height and width of the network's images. origin: for errors.

    Raises ModelError for values that cannot be used.
    """
    size = found.get("size", list(usual))
    edge = size.get("shortest_edge") if isinstance(size, Mapping) else size if isinstance(size, int) else None
    crop = _sides(found["crop_size"]) if found.get("do_center_crop", True) and found.get("crop_size") else None
    share = found.get("crop_pct")
    resize: Any
    if type(edge) is int and share and edge < 384:  # ConvNeXt's: a smaller image is the centre of a larger one
        resize, crop = int(edge / share), (edge, edge)
    elif type(edge) is int and crop is not None:
        resize = edge
    else:
        sides = (edge, edge) if type(edge) is int else _sides(size)
        if sides is None:
            raise ModelError(f"{origin}: size {size!r} must have height and width, or shortest_edge; correct the file")
        resize, crop = list(sides), crop or sides
    number = found.get("resample", 2)
    if number not in FILTERS:
        raise ModelError(f"{origin}: resample {number!r} must be 0 to 5; correct the file")
    normal = found.get("do_normalize", True)
    mean, std = (list(found.get(key) or HALF) if normal else [rest] * 3
                 for key, rest in (("image_mean", 0.0), ("image_std", 1.0)))  # fmt: skip
    if found.get("do_rescale", True) is False:
        mean, std = [one / 255 for one in mean], [one / 255 for one in std]
    shapes = {"resize_shape": resize, "crop_shape": list(crop)}
    return {**shapes, "mean": mean, "std": std, "interpolation": FILTERS[number]}


def _sides(size: Any) -> tuple[int, int] | None:
    """Return height and width of a size as transformers writes it: a number, a pair, or an object."""
    if isinstance(size, Mapping):
        size = [size.get("height"), size.get("width")]
    pair = [size, size] if isinstance(size, int) else list(size) if isinstance(size, (list, tuple)) else []
    whole = len(pair) == 2 and all(type(one) is int and one > 0 for one in pair)
    return (pair[0], pair[1]) if whole else None


def export_image_folder(
    description: str | None, folder: Path, name: str, source: str, argv: Sequence[str] | None = None
) -> int:
    """Run an export script: write the requested forms, print the largest relative error of each, and return 0.

    ``folder``: default of ``--out``, whose ``weights/`` is the default of ``--weights``; ``name``: start of the file
    names; ``source``: for the provenance. Raises the errors of :func:`folder_classifier` and ``export_onnx``.
    """
    parser = argparse.ArgumentParser(description=description)
    add_common(parser, folder)
    text = f"folder with config.json, {PREPROCESSOR} and weights, which are random if missing"
    parser.add_argument("--weights", type=Path, default=folder / "weights", help=text)
    args = parser.parse_args(argv)
    weights: Path = args.weights
    config = read_config(weights / "config.json")
    is_random = not any((weights / one).is_file() for one in WEIGHTS)
    if is_random:
        print("random weights: for functional and speed checks only")
    elif not (weights / PREPROCESSOR).is_file():
        raise ModelError(f"{weights} has no {PREPROCESSOR}, which says how images are prepared; add it")
    images = preprocess_of(read_json(weights / PREPROCESSOR), config_sides(config), str(weights / PREPROCESSOR))
    channels = config.get("num_channels", 3)
    example = torch.randn(
        (args.batch_size, channels, *images["crop_shape"]), generator=torch.Generator().manual_seed(0)
    )
    results = export_onnx(
        folder_classifier(weights, is_random),
        example,
        args.out / name,
        input_names=["pixel_values"],
        output_names=["logits"],
        dynamic={"pixel_values": {0: "batch"}},
        labels=labels_of(config, weights / "config.json"),
        preprocess=images,
        provenance={"source": source, "weights": RANDOM if is_random else name},
        forms=args.forms,
        exporter=args.exporter,
    )
    for result in results:
        print(result)
    return 0
