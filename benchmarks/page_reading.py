"""Compare page_reading with rapidocr_onnxruntime, both on the same three files: lines read, and time per page.

rapidocr_onnxruntime needs OpenCV, pyclipper and Shapely, so it runs in a separate Python:

    python -m venv /tmp/rapid && /tmp/rapid/bin/pip install rapidocr_onnxruntime==1.4.4
    python benchmarks/page_reading.py --peer /tmp/rapid/bin/python

The peers run alternately on one thread each, page by page; the first turn of each is a warm-up. The pages are
those of ``example/ocr/ppocr_v4/data``, and scikit-image's photographed page if that is installed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from utils.datasets.image.pages import Truth, Word, load_pages  # noqa: E402
from utils.metrics.text.page_reading import PageErrorRate  # noqa: E402

PEER = """
import json, sys, time
from rapidocr_onnxruntime import RapidOCR
reader = RapidOCR(intra_op_num_threads=1)
for line in sys.stdin:
    start = time.perf_counter()
    found, _ = reader(line.strip())
    spent = time.perf_counter() - start
    lines = [{"text": text, "outline": [list(map(float, p)) for p in box]} for box, text, _ in found or []]
    print(json.dumps({"seconds": spent, "lines": lines}), flush=True)
"""

OURS = """
import json, sys, time
from contextlib import ExitStack
from pathlib import Path
from engine import EngineSpec, open_engine
from utils.fetch import fetched
from utils.pipeline.flags.options import options
from utils.pipeline.session import open_engines
from utils.tasks.page_reading.task import PageReading
folder = fetched("ppocr_v4") / "rapidocr_onnxruntime/models"
names = {"det": "ch_PP-OCRv4_det", "cls": "ch_ppocr_mobile_v2.0_cls", "rec": "ch_PP-OCRv4_rec"}
files = {key: folder / f"{name}_infer.onnx" for key, name in names.items()}
words = ["--target", sys.argv[1], "--ckpt", *(f"{key}={file}" for key, file in files.items()), "--data_path", "."]
task = PageReading(options("", PageReading, "valid", words))
with open_engines(task) as engines:
    task.state = task.setup(engines, None)
    for line in sys.stdin:
        start = time.perf_counter()
        page = task.prepare([Path(line.strip())])
        (lines,) = task.decode(task.infer(engines, list(page.arrays), page.contexts), page.contexts)
        spent = time.perf_counter() - start
        plain = [{"text": one.text, "outline": one.outline.tolist()} for one in lines]
        print(json.dumps({"seconds": spent, "lines": plain}), flush=True)
"""

SCANNED = (
    ("Region-based segmentation", (0, 8, 300, 36)),
    ("Let us first determine markers of the coins and the", (0, 47, 384, 68)),
    ("background. These markers are pixels that we can label", (0, 64, 384, 85)),
    ("unambiguously as either object or background. Here,", (0, 81, 384, 103)),
    ("the markers are found at the two extreme parts of the", (0, 99, 384, 119)),
    ("histogram of grey values:", (0, 116, 180, 137)),
    (">>> markers = np.zeros_like(coins)", (10, 166, 250, 191)),
)
"""Texts of scikit-image's page.png with manual boxes: left, top, right and bottom."""


def main() -> int:
    """Print a table of figures per page, and the sums."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True, help="a Python that has rapidocr_onnxruntime")
    parser.add_argument("--turns", type=int, default=3, help="turns that count")
    parser.add_argument("--target", default="onnx", help="our engine")
    args = parser.parse_args()
    settings = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    commands = {"ours": [sys.executable, "-c", OURS, args.target], "rapidocr": [args.peer, "-c", PEER]}
    peers = {
        name: subprocess.Popen(words, stdin=-1, stdout=-1, text=True, env=settings) for name, words in commands.items()
    }
    metrics = {name: PageErrorRate() for name in peers}
    spent: dict[str, float] = dict.fromkeys(peers, 0.0)
    for page, truth in pages():
        found = in_turns(peers, page, args.turns)
        cells = []
        for name, (lines, seconds) in found.items():
            metrics[name].update([lines], [truth])
            spent[name] += seconds
            right = sum(any(joined(one.text) == joined(word.text or "") for one in lines) for word in truth.words or ())
            cells.append(f"{name} {right}/{len(truth.words or ())} lines, {seconds:.2f} s")
        print(f"{page.name}: {'; '.join(cells)}; ratio {found['ours'][1] / found['rapidocr'][1]:.2f}", flush=True)
    for name, metric in metrics.items():
        figures = {"page_cer": metric.compute(), **metric.secondary()}
        print(name, ", ".join(f"{key} {value:.4g}" for key, value in figures.items()))
    print(f"time of all pages: ours / rapidocr = {spent['ours'] / spent['rapidocr']:.2f}")
    for peer in peers.values():
        peer.communicate()
    return 0


def joined(text: str) -> str:
    """Return a text without white space."""
    return "".join(text.split())


def pages() -> Iterator[tuple[Path, Truth]]:
    """Yield pages and their correct texts."""
    batch = load_pages({"data": ROOT / "example/ocr/ppocr_v4/data"})
    yield from zip(batch.samples, batch.targets or (), strict=True)
    try:
        import skimage
    except ImportError:
        print("scikit-image is not installed, so its page is left out")
        return
    import numpy as np

    boxes = [(text, np.array([[a, b], [c, b], [c, d], [a, d]], float)) for text, (a, b, c, d) in SCANNED]
    yield Path(skimage.__file__).parent / "data/page.png", Truth(tuple(Word(*one) for one in boxes))


def in_turns(peers: dict[str, Any], page: Path, turns: int) -> dict[str, tuple[list[Any], float]]:
    """Return the texts of each peer, and the median of its times without the first turn."""
    times: dict[str, list[float]] = {name: [] for name in peers}
    lines: dict[str, list[Any]] = {}
    for turn in range(turns + 1):
        for name, peer in peers.items():
            peer.stdin.write(f"{page}\n")
            peer.stdin.flush()
            answer = json.loads(peer.stdout.readline())
            lines[name] = [argparse.Namespace(text=one["text"], outline=one["outline"]) for one in answer["lines"]]
            if turn:
                times[name].append(answer["seconds"])
    return {name: (lines[name], statistics.median(times[name])) for name in peers}


if __name__ == "__main__":
    sys.exit(main())
