"""Historical interface of grounding detectors' postprocessing: from token scores to boxes of classes."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from engine import Array, ConfigError, InputError
from utils.coco_classes import IDS, NAMES
from utils.metrics.detection.coco_evaluator import CocoGroundingEvaluator
from utils.preprocess.pytorch.groundingdinot import last_read
from utils.preprocess.text.captions import get_tokenlizer, tokens_of
from utils.torch_array import as_array, like

__all__ = ["CocoGroundingEvaluator", "PostProcessCocoGrounding", "get_tokenlizer"]


class PostProcessCocoGrounding:
    """Converts token scores to the best pairs of box and class, at most ``num_select`` per image.

    The model scores every token of the caption ``"cat . dog ."``; the score of a class is the mean of the sigmoids of
    its own tokens (Liu et al. 2023, arXiv:2303.05499). Raises ConfigError if the tokenizer is missing, or
    ``num_select`` is below 1, and DataError if a class has no token.

    Args:
        coco_api: annotations whose categories are the classes, such as a data set's ``coco``; ``None``: COCO's 80.
        tokenlizer: the result of :func:`get_tokenlizer`, or a fast tokenizer of transformers.

    Attributes:
        category_dict: the classes, ``{"id": ..., "name": ...}`` each, in the order of the caption.
    """

    def __init__(self, num_select: int = 300, coco_api: Any = None, tokenlizer: Any = None) -> None:
        if num_select < 1:
            raise ConfigError(f"num_select {num_select} must be at least 1")
        if tokenlizer is None:
            raise ConfigError("PostProcessCocoGrounding needs tokenlizer; pass get_tokenlizer(folder)")
        self.num_select = num_select
        self.category_dict: list[Mapping[str, Any]] = (
            [{"id": number, "name": name} for number, name in zip(IDS, NAMES, strict=True)]
            if coco_api is None
            else list(coco_api.dataset["categories"])
        )
        self._ids = np.array([category["id"] for category in self.category_dict])
        self._tokens = tokens_of(tokenlizer, [category["name"] for category in self.category_dict])

    def __call__(self, outputs: Mapping[str, Any], target_sizes: Any) -> list[dict[str, Any]]:
        """Return the objects of each image, highest score first.

        Args:
            outputs: ``pred_logits``, N x Q x T for T tokens, -infinity at padding; and ``pred_boxes``, N x Q x 4:
                centre, width and height relative to the image. Tensors or arrays.
            target_sizes: N x 2: *height*, then *width* of each image in pixels. The historical scripts for one image
                and for a folder pass the width first; if ``preprocess`` has just read files of exactly the swapped
                sizes, they are swapped with a warning.

        Returns per image ``scores`` (K, 0 to 1), ``labels`` (K category ids) and ``boxes`` (K x 4 corners in pixels),
        tensors for tensors. An image with scores that are not numbers has none, with a warning. Raises InputError if
        the shapes are inconsistent, or there are fewer tokens than in the caption.
        """
        given = outputs["pred_logits"]
        logits, boxes = as_array(given, "pred_logits"), as_array(outputs["pred_boxes"], "pred_boxes")
        sizes = as_array(target_sizes, "target_sizes")
        if logits.ndim != 3 or boxes.shape != (*logits.shape[:2], 4) or sizes.shape != (len(logits), 2):
            raise InputError(
                f"pred_logits {logits.shape}, pred_boxes {boxes.shape} and target_sizes {sizes.shape} are "
                "inconsistent; pass N x Q x T, N x Q x 4 and N x 2"
            )
        sizes = _height_first(sizes)
        last = max(int(places[-1]) for places in self._tokens)
        if logits.shape[2] <= last:
            raise InputError(f"the caption has {last + 1} tokens, but pred_logits only {logits.shape[2]}")
        found = [self._image(*one) for one in zip(range(len(logits)), logits, boxes, sizes, strict=True)]
        return [{name: like(column, given) for name, column in one.items()} for one in found]

    def _image(self, index: int, logits: Array, boxes: Array, size: Array) -> dict[str, Array]:
        with np.errstate(over="ignore"):  # the sigmoid of -infinity is 0
            tokens = 1 / (1 + np.exp(-logits.astype(np.float32)))
        scores = np.stack([tokens[:, places].mean(axis=1) for places in self._tokens], axis=1)
        flat = scores.reshape(-1)
        count = min(self.num_select, flat.size)
        if np.isnan(flat).any() or not np.isfinite(boxes).all():
            warnings.warn(
                f"image {index} of the batch: scores or boxes are not numbers; nothing is found", stacklevel=3
            )
            count = 0
        best = np.argsort(-flat, kind="stable")[:count]
        queries, classes = np.divmod(best, len(self._tokens))
        height, width = size.tolist()
        centre, half = boxes[queries, :2].astype(np.float32), boxes[queries, 2:].astype(np.float32) / 2
        corners = np.concatenate([centre - half, centre + half], axis=1) * np.array([width, height] * 2, np.float32)
        return {"scores": flat[best], "labels": self._ids[classes], "boxes": corners}


def _height_first(sizes: Array) -> Array:
    """Return N x 2 heights and widths, swapped with a warning if they are given in the other order.

    This is so if ``preprocess`` read the images from files in its last call, and each has exactly the swapped size.
    """
    known = np.array(last_read()).reshape(-1, 2)
    if known.shape != sizes.shape or (sizes == known).all() or not (sizes[:, ::-1] == known).all():
        return sizes
    warnings.warn("target_sizes have the width first and are swapped; pass (height, width)", stacklevel=3)
    return known
