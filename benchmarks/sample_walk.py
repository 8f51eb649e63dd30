"""Count the source files that process one image in ``example_valid.py``, and the calls from one file to another.

``python benchmarks/sample_walk.py [--target sdaa] [--json FILE]`` evaluates four images of the digits model with one
batch of two beforehand, and traces the calls of the second batch in every thread: from the loop that asks for the batch
to the metric's record. A change is a call whose function is in another file (or another folder) than the last call of
the same thread; returning does not count. Files of other packages (numpy, Pillow, ONNX Runtime) are left out.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from toolkit.api import _options  # noqa: E402
from utils.pipeline.session import load_data, open_engines  # noqa: E402

FLOORS = ("tecoinfer_modelzoo", "engine", "utils", "example")


class Walk:
    """The calls of the zoo's own code, in order and by thread.

    Attributes:
        calls: file and function of each.
    """

    def __init__(self) -> None:
        self.calls: dict[int, list[tuple[str, str]]] = {}
        self.on = False

    def trace(self, frame: FrameType, event: str, arg: Any) -> None:
        """Record a call; callback of ``sys.setprofile``."""
        if not self.on or event != "call":
            return
        name = frame.f_code.co_filename
        if name.startswith(str(ROOT)):
            short = name[len(str(ROOT)) + 1 :]
            if short.split("/")[0] in FLOORS:
                self.calls.setdefault(threading.get_ident(), []).append((short, frame.f_code.co_qualname))

    def counts(self) -> dict[str, int]:
        """Return the numbers of files and folders, and of calls that change either."""
        ways = [[file for file, _ in calls] for calls in self.calls.values()]
        files = {file for way in ways for file in way}
        folders = [[str(Path(file).parent) for file in way] for way in ways]
        return {
            "files": len(files),
            "folders": len({folder for way in folders for folder in way}),
            "changes of file": sum(map(_changes, ways)),
            "changes of folder": sum(map(_changes, folders)),
            "calls": sum(map(len, ways)),
        }


def _changes(way: list[str]) -> int:
    return sum(one != other for one, other in pairwise(way))


def walk(target: str) -> Walk:
    """Evaluate four images in two batches, and trace the second."""
    from utils.pipeline.run.loops import evaluate_pipeline
    from utils.pipeline.run.pipeline import Pipeline

    cls, opt = _options("digits", "valid", target, None, None, {"batch_size": 2})
    found, task = Walk(), cls(opt)
    with open_engines(task) as engines:
        dataset = load_data(task).select(range(4))
        pipeline = Pipeline(task, engines, dataset)

        class Batches:
            """Two batches; the second turns the trace on."""

            def __iter__(self) -> Any:
                for place, batch in enumerate(dataset.batches(2)):
                    found.on = place == 1
                    yield batch
                found.on = False

        sys.setprofile(found.trace)
        threading.setprofile(found.trace)
        try:
            evaluate_pipeline(pipeline, Batches(), task.metric(dataset), workers=0)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]
    return found


def main() -> None:
    """Print the counts, and the files in the order of their first call."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="sdaa")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found = walk(args.target)
    counts = found.counts()
    files = list(dict.fromkeys(file for calls in found.calls.values() for file, _ in calls))
    for name, count in counts.items():
        print(f"{name}: {count}")
    print(*files, sep="\n")
    if args.json is not None:
        args.json.write_text(json.dumps({"schema_version": 1, **counts, "order": files}, indent=2) + "\n")


if __name__ == "__main__":
    main()
