"""The data of detection: its flags, and whether a model knows the classes of a data set."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

from engine import DataError
from utils.datasets.base import Dataset
from utils.datasets.image.boxes import FORMATS
from utils.datasets.image.objects import CATEGORIES, COUNTS
from utils.datasets.sharding import rank_and_size
from utils.metrics.class_names import VOC_TO_COCO, found_places, unknown
from utils.tasks.base import Flag, str2bool

METRICS = ("coco", "voc2007", "voc2012")
"""Whose rules there are (:data:`utils.metrics.detection.metric.RULES`)."""

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


def check_classes(dataset: Dataset, labels: Sequence[str], common: bool) -> None:
    """Refuse a data set with objects of a class that is not among the labels, or warn that those are left out.

    Raises:
        DataError: there are such objects, and not ``common`` (``--common_classes``).
    """
    names, counts = dataset.notes.get(CATEGORIES, ()), dataset.notes.get(COUNTS, ())
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
