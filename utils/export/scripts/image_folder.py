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
from utils.export.image_processors import of_transformers, sides
from utils.export.networks.bert_encoder import read_config
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
        trained = Scores(plain_attention(pretrained(str(folder), LOADER)))
        trained.eval()
        return trained
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
    return sides(config.get("image_size", SIDE)) or (SIDE, SIDE)


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
    images = of_transformers(read_json(weights / PREPROCESSOR), config_sides(config), str(weights / PREPROCESSOR))
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
