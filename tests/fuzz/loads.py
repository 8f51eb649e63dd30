"""Load annotations of a task without a committed model, and read all targets.

    python tests/fuzz/loads.py LOADER PATH

Exit codes: 0 loaded; 1 loaded, with rejected samples; 2 error.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from engine import TecoInferError
from utils.datasets.base import Dataset
from utils.datasets.image.boxes import load_boxes
from utils.datasets.image.coco_api import CocoAnnotations
from utils.datasets.image.face_pairs import folder_of_people
from utils.datasets.image.lfw import load_pairs
from utils.datasets.image.pages import load_pages
from utils.datasets.loading import load_dataset
from utils.datasets.renaming import read_renames
from utils.pipeline.report.safe_stream import safe_streams


def _coco_api(path: Path) -> None:
    found = CocoAnnotations(path)
    for key in found.getImgIds():
        found.loadAnns(found.getAnnIds(imgIds=key))
    found.loadCats(found.getCatIds())


LOADERS: Mapping[str, Callable[[Path], Any]] = {
    "boxes": load_boxes,
    "coco_api": _coco_api,
    "pages": lambda path: load_pages({"data": path}),
    "pairs": load_pairs,
    "people": lambda path: folder_of_people(path, "balanced", 0),
    "images": load_dataset,
    "renames": read_renames,
}


def main(loader: str, path: Path) -> int:
    """Load, print the counts, and return the exit code."""
    with safe_streams():
        try:
            found = LOADERS[loader](path)
            if not isinstance(found, Dataset):
                return 0
            found.batch(range(len(found)))
            found.fingerprint()
        except TecoInferError as error:
            print(error, file=sys.stderr)  # noqa: T201 - a command line
            return 2
        for one in found.rejected[:20]:
            print(TecoInferError(f"{one.path}: {one.reason}"))  # noqa: T201
        print(f"{len(found)} samples, {len(found.rejected)} rejected")  # noqa: T201
        return int(bool(found.rejected))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
