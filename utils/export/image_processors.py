"""Preprocessing of images as transformers and timm store it beside their weights, as the metadata ``preprocess``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine import ModelError

FILTERS = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}
"""Filters by Pillow's number, ``resample`` of ``preprocessor_config.json``."""

HALF = (0.5,) * 3
"""Mean and deviation if the file has none."""

CENTRE_BELOW = 384
"""Side of images from which ConvNeXt's processor stretches them instead of cutting out the centre."""


def of_transformers(found: Mapping[str, Any], usual: tuple[int, int], origin: str) -> dict[str, Any]:
    """Return the metadata ``preprocess`` of a ``preprocessor_config.json``.

    Args:
        found: its content, which may lack keys. usual: height and width of the network's images. origin: for errors.

    Raises ModelError for values that cannot be used.
    """
    size = found.get("size", list(usual))
    edge = size.get("shortest_edge") if isinstance(size, Mapping) else size if isinstance(size, int) else None
    crop = sides(found.get("crop_size")) if found.get("do_center_crop", True) else None
    share: Any = found.get("crop_pct")
    resize: Any
    if type(edge) is int and _is_share(share) and edge < CENTRE_BELOW:
        resize, crop = int(edge / share), (edge, edge)
    elif type(edge) is int and crop is not None:
        resize = edge
    else:
        both = (edge, edge) if type(edge) is int else sides(size)
        if both is None:
            raise ModelError(f"{origin}: size {size!r} must have height and width, or shortest_edge; correct the file")
        resize, crop = list(both), crop or both
    number = found.get("resample", 2)
    if number not in FILTERS:
        raise ModelError(f"{origin}: resample {number!r} must be 0 to 5; correct the file")
    if found.get("do_normalize", True):
        mean, std = (list(found.get(key) or HALF) for key in ("image_mean", "image_std"))
    else:
        mean, std = [0.0] * 3, [1.0] * 3
    if found.get("do_rescale", True) is False:
        mean, std = [one / 255 for one in mean], [one / 255 for one in std]
    shapes = {"resize_shape": resize, "crop_shape": list(crop)}
    return {**shapes, "mean": mean, "std": std, "interpolation": FILTERS[number]}


def of_timm(found: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """Return the metadata ``preprocess`` of timm's ``pretrained_cfg``; raise ModelError if its size is missing."""
    size = found.get("input_size")
    both = sides(list(size)[-2:]) if isinstance(size, (list, tuple)) else None
    if both is None:
        raise ModelError(f"{origin}: input_size {size!r} of pretrained_cfg must be channels, height and width")
    share: Any = found.get("crop_pct")
    resize: Any = list(both)
    if found.get("crop_mode", "center") == "center":
        resize = int(min(both) / share) if _is_share(share) else min(both)
    filters = (*FILTERS.values(),)
    chosen = found.get("interpolation") if found.get("interpolation") in filters else "bicubic"
    normal = {"mean": list(found.get("mean") or HALF), "std": list(found.get("std") or HALF)}
    return {"resize_shape": resize, "crop_shape": list(both), **normal, "interpolation": chosen}


def sides(size: Any) -> tuple[int, int] | None:
    """Return height and width of a size: a number, a pair, or an object; ``None`` if it is something else."""
    if isinstance(size, Mapping):
        size = [size.get("height"), size.get("width")]
    pair = [size, size] if isinstance(size, int) else list(size) if isinstance(size, (list, tuple)) else []
    whole = len(pair) == 2 and all(type(one) is int and one > 0 for one in pair)
    return (pair[0], pair[1]) if whole else None


def _is_share(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= 1
