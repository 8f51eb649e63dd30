"""Precision, recall and average precision of detections matched by a script, with the interface of YOLO's scripts."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engine import Array, InputError
from utils.metrics.detection.average_precision import at_recalls
from utils.torch_array import as_array

LEVELS = np.linspace(0.0, 1.0, 1000)
"""Confidences that are searched for the maximum F1."""


def ap_per_class(
    tp: Any,
    conf: Any,
    pred_cls: Any,
    target_cls: Any,
    plot: bool = False,
    save_dir: str | Path = ".",
    names: Mapping[int, str] | Sequence[str] = (),
) -> tuple[Array, Array, Array, Array, Array, Array, Array]:
    """Return precision, recall and average precision of each class.

    The average precision is COCO's (cocodataset.org, "Detection Evaluation"): the mean of the maximum precisions at or
    above 101 recalls from 0 to 1. The other figures are at the confidence, out of 1000 from 0 to 1, where the mean over
    the classes of F1 at the first threshold is maximal; the lowest of several such.

    Args:
        tp: N x T booleans: whether a detection is right at each threshold of overlap; in any order.
        conf: N confidences, 0 to 1.
        pred_cls: N predicted classes.
        target_cls: M classes of the objects.
        plot: unsupported; gives a warning.
        save_dir, names: unused.

    Returns:
        Arrays over the C classes that have objects, in increasing order: right and wrong detections, precision, recall
        and F1 at that confidence, C float64 each (precision 0 for a class without detections); average precisions,
        C x T float64; the classes, C int64.

    Raises:
        InputError: the arrays do not match, or a confidence is NaN.
    """
    if plot:
        warnings.warn("ap_per_class does not plot; plot the curves from the figures it returns", stacklevel=2)
    right, confidence, predicted, targets = _checked(tp, conf, pred_cls, target_cls)
    order = np.argsort(-confidence, kind="stable")
    right, confidence, predicted = right[order], confidence[order], predicted[order]
    classes, counts = np.unique(targets, return_counts=True)
    precisions = np.zeros((len(classes), right.shape[1]))
    hits, found = np.zeros((len(classes), len(LEVELS))), np.zeros((len(classes), len(LEVELS)))
    for place, (label, count) in enumerate(zip(classes, counts, strict=True)):
        own = predicted == label
        summed = np.cumsum(right[own], axis=0)
        precisions[place] = [_average(column, int(count)) for column in summed.T]
        # number of detections with at least each of the confidences, and of right ones among them
        found[place] = np.searchsorted(-confidence[own], -LEVELS, side="right")
        if right.shape[1]:
            hits[place] = np.append(0, summed[:, 0])[found[place].astype(np.int64)]
    # precision is 1 above the highest confidence of a class, and 0 for a class without detections
    empty = np.where(np.isin(classes, predicted), 1.0, 0.0)[:, None] * np.ones_like(hits)
    precision = np.divide(hits, found, out=empty, where=found > 0)
    recall = hits / counts[:, None]
    f1 = np.divide(2 * hits, found + counts[:, None])
    best = int(f1.mean(axis=0).argmax()) if len(classes) else 0
    tp_best, found_best = hits[:, best], found[:, best]
    at = (precision[:, best], recall[:, best], f1[:, best])
    return tp_best, found_best - tp_best, *at, precisions, classes.astype(np.int64)


def _average(right: Array, objects: int) -> float:
    """Return the average precision of a class from cumulative counts of right detections by falling confidence."""
    precision = right / np.arange(1, len(right) + 1)
    best = np.maximum.accumulate(precision[::-1])[::-1]
    return at_recalls(101)(right / objects, best)


def _checked(tp: Any, conf: Any, pred_cls: Any, target_cls: Any) -> tuple[Array, Array, Array, Array]:
    right, confidence = as_array(tp, "tp"), as_array(conf, "conf").astype(np.float64)
    predicted, targets = as_array(pred_cls, "pred_cls"), as_array(target_cls, "target_cls")
    right = right[:, None] if right.ndim == 1 else right
    if right.ndim != 2 or not right.shape[:1] == confidence.shape == predicted.shape or targets.ndim != 1:
        raise InputError(
            f"tp of shape {right.shape}, conf of {confidence.shape}, pred_cls of {predicted.shape} and target_cls of "
            f"{targets.shape} do not match; pass N x T, N, N and M"
        )
    if np.isnan(confidence).any():
        raise InputError(f"{np.count_nonzero(np.isnan(confidence))} of {len(confidence)} confidences are NaN")
    return right.astype(bool), confidence, predicted, targets
