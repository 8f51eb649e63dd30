"""timm's classification networks for export."""

from __future__ import annotations

import math
import urllib.error
import urllib.request
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from engine import ConfigError, ModelError, TargetError
from tecoinfer_modelzoo.text import did_you_mean, one_line
from utils.export.graphs import first_line
from utils.export.networks.random_weights import RANDOM, seeded
from utils.export.networks.torchvision_models import Classifier, Size, import_torchvision
from utils.export.weight_files import is_weights_file, load_weights, read_state
from utils.preprocess.image.modes import INTERPOLATIONS
from utils.stored import ImageNotes

PUBLISHED = ("DEFAULT", "pretrained")
"""Values of ``weights`` for the published weights of a name."""

_PATIENCE = 10.0
"""Seconds in which the hub must answer before its client is asked for a file."""


def import_timm() -> ModuleType:
    """Import timm; raise TargetError if it, or torchvision, is not installed."""
    import_torchvision()
    try:
        import timm
    except ModuleNotFoundError as error:
        raise TargetError(f"{error.name} is not installed; run: pip install timm") from error
    found: ModuleType = timm
    return found


def classifier(arch: str, weights: str, size: Size | None = None) -> Classifier:
    """Return a timm network for images of a height and width; ``None``: those of its data config.

    Args:
        arch: timm's name with or without a tag: ``inception_v4``, ``resnet18.a1_in1k``.
        weights: ``DEFAULT`` for the published ones of the name, another tag, a file's path, or ``random``.

    Raises TargetError: timm is not installed; ConfigError: ``arch`` or ``weights`` is unknown, not a classifier, or its
    preprocessing is unsupported; ModelError: the download failed, or the file is missing or does not match.
    """
    timm = import_timm()
    name = _tagged(timm, arch, weights)
    config = timm.get_pretrained_cfg(name)
    plain = config.to_dict() if config else {}
    data = timm.data.resolve_data_config(pretrained_cfg=plain)
    images = images_of(data, name)
    size = size or images.crop
    options = {"img_size": size} if size != images.crop and plain.get("fixed_input_size") else {}
    make = partial(_made, timm, name, options)
    if weights == RANDOM:
        is_sized = bool(plain.get("fixed_input_size"))
        module, weights_name = seeded(partial(make, pretrained=False), size if is_sized else None), RANDOM
    elif is_weights_file(weights):
        module = load_weights(make(pretrained=False, classes=_classes_in(weights, plain)), weights)
        weights_name = Path(weights).name
    else:
        module = _downloaded(make, name, plain.get("hf_hub_id") or "")
        weights_name = name.partition(".")[2] or "DEFAULT"
    labels, class_ids = _classes(timm, module)
    return Classifier(
        module=module.eval(),
        images=images,
        size=size,
        free=not plain.get("fixed_input_size"),
        labels=labels,
        class_ids=class_ids,
        name=arch,
        source=f"timm {name}",
        weights=weights_name,
    )


def _tagged(timm: ModuleType, arch: str, weights: str) -> str:
    """Return the name of an architecture with the tag of the requested weights."""
    base, _, tag = arch.partition(".")
    known = timm.list_models()
    if base not in known:
        hint = did_you_mean(base, known)
        raise ConfigError(f"unknown arch 'timm/{arch}';{hint} timm {timm.__version__} has {len(known)}")
    if weights not in (RANDOM, *PUBLISHED) and not is_weights_file(weights):
        tag = weights
    tags = [one.partition(".")[2] for one in timm.list_pretrained() if one.partition(".")[0] == base]
    wants_published = weights != RANDOM and not is_weights_file(weights)
    if (tag and tag not in tags) or (wants_published and not tags):
        published = ", ".join(filter(None, tags)) or "none"
        raise ConfigError(
            f"unknown weights {tag or weights!r} for timm/{base};{did_you_mean(tag, tags)} published: {published}; "
            "else random, or the path of a .pth or .safetensors file"
        )
    return f"{base}.{tag}" if tag else base


def images_of(data: Mapping[str, Any], name: str) -> ImageNotes:
    """Return the preprocessing of timm's data config for evaluation; raise ConfigError if it is unsupported."""
    channels, height, width = data["input_size"]
    mode, interpolation = data.get("crop_mode") or "center", data["interpolation"]
    if channels != 3 or interpolation not in INTERPOLATIONS or (mode != "squash" and height != width):
        raise ConfigError(f"timm/{name} takes {channels} x {height} x {width}, {interpolation}: not supported")
    if mode not in ("center", "squash"):
        raise ConfigError(f"timm/{name} prepares images with crop_mode {mode}: only center and squash are supported")
    tall, wide = (math.floor(side / data["crop_pct"]) for side in (height, width))
    return ImageNotes(
        resize=tall if mode == "center" else (tall, wide),
        crop=(height, width),
        mean=tuple(data["mean"]),
        std=tuple(data["std"]),
        interpolation=interpolation,
    )


def _classes_in(weights: str, config: Mapping[str, Any]) -> int | None:
    """Return the number of classes of a file of weights, such as of a fine-tuned network; ``None`` if unknown."""
    named = config.get("classifier")
    heads = [named] if isinstance(named, str) else list(named or ())
    ends = tuple(f"{head}.weight" for head in heads)
    found = next((value for key, value in read_state(weights).items() if ends and key.endswith(ends)), None)
    return None if found is None else int(found.shape[0])


def _made(
    timm: ModuleType, name: str, options: Mapping[str, Any], *, pretrained: bool, classes: int | None = None
) -> torch.nn.Module:
    own = {} if classes is None else {"num_classes": classes}
    try:
        made: torch.nn.Module = timm.create_model(name, pretrained=pretrained, **options, **own)
    except (AssertionError, TypeError, ValueError) as error:
        if not options:
            raise
        height, width = options["img_size"]
        raise ConfigError(
            f"timm/{name} cannot be built for --input_size {height} {width} ({first_line(error).rstrip('.')}); "
            "leave it out for the size of its weights"
        ) from error
    if not getattr(made, "num_classes", 0):
        raise ConfigError(f"timm/{name} has no classifier, its output is features; use another tag of its weights")
    return made


def _downloaded(make: Any, name: str, repository: str) -> torch.nn.Module:
    try:
        _check_reachable(repository)
        found: torch.nn.Module = make(pretrained=True)
    except (OSError, RuntimeError) as error:
        raise ModelError(
            f"cannot download timm/{name} ({first_line(error)}): no network: download the file elsewhere and pass "
            "--weights path.safetensors or --weights random"
        ) from error
    return found


def _check_reachable(repository: str) -> None:
    """Raise OSError if weights are neither cached nor the hub answers: its client tries again for almost a minute."""
    from huggingface_hub import constants, try_to_load_from_cache

    cached = (try_to_load_from_cache(repository, file) for file in ("model.safetensors", "pytorch_model.bin"))
    endpoint = constants.ENDPOINT
    if constants.HF_HUB_OFFLINE or any(isinstance(path, str) for path in cached) or not endpoint.startswith("http"):
        return
    try:
        # Its scheme is http or https (above).
        urllib.request.urlopen(endpoint, timeout=_PATIENCE).close()  # noqa: S310 # nosec B310
    except urllib.error.HTTPError:
        return  # it answers
    except urllib.error.URLError as error:
        raise OSError(f"{endpoint}: {one_line(error.reason)}") from error


def _classes(timm: ModuleType, module: Any) -> tuple[list[str] | None, list[str] | None]:
    """Return names and WordNet ids of the classes of an ImageNet head; ``None`` for others."""
    subset = timm.data.infer_imagenet_subset(module)
    if subset is None:
        return None, None
    info = timm.data.ImageNetInfo(subset)
    return info.label_descriptions(), info.label_names()
