"""Data flags of detection, and the check that a model has the classes of a data set."""

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
from utils.tasks import Flag, str2bool

METRICS = ("coco", "voc2007", "voc2012")
"""Values of ``--metric`` (:data:`utils.metrics.detection.metric.RULES`)."""

DATA_FLAGS = (
    Flag("--data_format", "layout of the data; left out: detected from the path", None, choices=FORMATS),
    Flag("--labels", "file of the data set's class names that differ from the model's: 'aeroplane = airplane'",
         None, Path, metavar="FILE"),
    Flag("--common_classes", "leave out objects of classes that the model lacks", False, str2bool, nargs="?",
         scripts=("valid",)),
    Flag("--metric", "evaluation rules", "coco", choices=METRICS, scripts=("valid",)),
)  # fmt: skip


def check_classes(dataset: Dataset, labels: Sequence[str], common: bool) -> None:
    """Check that all objects have a class of the labels; with ``common`` (``--common_classes``) warn about others.
    Raises DataError if objects have other classes, and ``common`` is false."""
    names, counts = dataset.notes.get(CATEGORIES, ()), dataset.notes.get(COUNTS, ())
    if not names:
        if len(counts) > len(labels):
            raise DataError(
                f"the data set has a class {len(counts) - 1} and the model {len(labels)} labels; add class names to "
                "the data set (data.yaml, classes.txt), or use another model"
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
            f"{len(missing)} of {len(used)} classes with {lost} objects are left out, as the model lacks them: "
            f"{', '.join(missing)}",
            stacklevel=2,
        )
