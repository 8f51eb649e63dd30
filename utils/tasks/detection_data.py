"""The data and the metric of detection: the flags, and whether a model knows the classes of a data set."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine import DataError
from utils.datasets.base import Dataset
from utils.datasets.boxes import FORMATS, load_boxes
from utils.datasets.objects import CATEGORIES, COUNTS
from utils.datasets.sharding import rank_and_size
from utils.metrics.base import Metric
from utils.metrics.class_names import found_places, unknown
from utils.tasks.base import Flag, Options, str2bool
from utils.tasks.model import Model

VOC_TO_COCO = {
    "aeroplane": "airplane",
    "diningtable": "dining table",
    "motorbike": "motorcycle",
    "pottedplant": "potted plant",
    "sofa": "couch",
    "tvmonitor": "tv",
}
"""What COCO calls those classes of VOC that it has by another name."""

METRICS = ("coco", "voc2007", "voc2012")
"""Whose rules there are (:data:`utils.metrics.detection.RULES`)."""

DATA_FLAGS = (
    Flag("--data_format", "layout of the data; left out: what the path is", None, choices=FORMATS),
    Flag(
        "--labels",
        "the model's names of the data set's classes, where they differ: lines such as 'aeroplane = airplane'",
        None,
        Path,
        metavar="FILE",
    ),
    Flag(
        "--common_classes",
        "leave out objects whose class the model lacks",
        False,
        str2bool,
        nargs="?",
        scripts=("valid",),
    ),
    Flag("--metric", "whose rules the metric follows", "coco", choices=METRICS, scripts=("valid",)),
)

DATA_HELP = "COCO's JSON, VOC's folder, YOLO's data.yaml, a folder of any of them or of pictures, or a picture"


def _chosen(options: Options) -> dict[str, Any]:
    """Return the values of these flags; the defaults of those that the options do not have."""
    return {flag.key: vars(options).get(flag.key, flag.default) for flag in DATA_FLAGS}


def load(paths: Mapping[str, Path], options: Options) -> Dataset:
    """Return the pictures, and their objects where they are known (:func:`~utils.datasets.boxes.load_boxes`)."""
    chosen = _chosen(options)
    found = load_boxes(paths["data"], chosen["data_format"])
    if chosen["labels"] is None:
        return found
    from utils.datasets.renaming import read_renames, renamed

    return renamed(found, read_renames(chosen["labels"]), chosen["labels"])


def metric(options: Options, dataset: Dataset, model: Model) -> Metric:
    """Return the mAP by the chosen rules; categories are found among the model's labels, where it stores labels.

    Raises:
        DataError: the model does not know a class that has objects.
    """
    from utils.metrics.detection import MeanAveragePrecision

    chosen, labels = _chosen(options), model.stored.labels
    names = dataset.notes.get(CATEGORIES, ())
    if labels is not None:
        check_classes(options, dataset, labels)
    elif len(names) > 1 and list(names) == sorted(names) and rank_and_size()[0] == 0:
        # an XML file per picture says names alone, and which there are depends on the files
        warnings.warn(
            f"the model stores no labels: its classes are taken for the data set's in alphabetical order (0 "
            f"{names[0]}, 1 {names[1]}, ...); store the labels in the model where its order is another one",
            stacklevel=2,
        )
    return MeanAveragePrecision(labels, categories=names, rules=chosen["metric"], common=chosen["common_classes"])


def check_classes(options: Options, dataset: Dataset, labels: Sequence[str]) -> None:
    """Refuse a data set with objects of a class that is not among the labels, or say that those are left out.

    Raises:
        DataError: there are such objects, and no ``--common_classes``.
    """
    names, counts = dataset.notes.get(CATEGORIES, ()), dataset.notes.get(COUNTS, ())
    _check_classes(names, counts, labels, _chosen(options)["common_classes"])


def _check_classes(names: Sequence[str], counts: Sequence[int], labels: Sequence[str], common: bool) -> None:
    """Refuse classes with objects that the model lacks, or say that they are left out."""
    if not names:
        if len(counts) > len(labels):
            raise DataError(
                f"the data set has a class {len(counts) - 1} and the model {len(labels)} labels; give the data set "
                "names (data.yaml, classes.txt), or use a model that knows it"
            )
        return
    places = found_places(names, labels).tolist()
    used = [(name, count, place) for name, count, place in zip(names, counts, places, strict=True) if count]
    missing = [name for name, _, place in used if place < 0]
    if not missing:
        return
    if not common or len(missing) == len(used):
        name = next((name for name in missing if VOC_TO_COCO.get(name) in labels), missing[0])
        line = f"{name} = {VOC_TO_COCO[name] if VOC_TO_COCO.get(name) in labels else 'LABEL'}"
        fix = (
            f"write lines such as '{line}' into a file and pass --labels FILE, or leave them out with --common_classes"
        )
        raise unknown(missing, labels, fix)
    if rank_and_size()[0] == 0:
        lost = sum(count for _, count, place in used if place < 0)
        warnings.warn(
            f"{len(missing)} of {len(used)} classes are left out, with {lost} objects, as the model has no label for "
            f"them: {', '.join(missing)}",
            stacklevel=2,
        )
