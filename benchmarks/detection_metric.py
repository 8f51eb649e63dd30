"""The detection metric compared with pycocotools and faster-coco-eval: time, memory, and equality of the values.

Scenes are random, with the proportions of COCO's val2017: images with about seven objects of 80 classes, and the
detections of a detector that finds most of them. Each evaluation runs in a separate process; converting the detections
into the peer's layout counts as its work, as in usual use.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import importlib.util
import io
import json
import resource
import subprocess
import sys
import time

import numpy as np
from parts.bench import arguments, finish, median

from utils.datasets.image.objects import Objects
from utils.metrics.detection.metric import MeanAveragePrecision
from utils.postprocess.image.nms import Detections

CLASSES = 80
BATCH = 16
PEERS = ("ours", "pycocotools", "faster_coco_eval")
RESAMPLES = 20


def scenes(images: int, detections: int) -> list[tuple[Detections, Objects]]:
    """Return random images of 640 x 480 with their objects and detections."""
    rng = np.random.default_rng(0)
    names = tuple(f"class {label}" for label in range(CLASSES))
    made = []
    for number in range(images):
        count = int(rng.poisson(7.3))
        corners = rng.uniform(0, (560, 400), (count, 2))
        real = np.concatenate([corners, corners + np.exp(rng.uniform(1.5, 5, (count, 2)))], axis=1)
        kinds = np.minimum(rng.geometric(0.08, count) - 1, CLASSES - 1)
        hits = np.repeat(np.arange(count), rng.integers(0, 4, count))[:detections]
        size = np.tile(real[hits, 2:] - real[hits, :2], 2)
        near = real[hits] + rng.normal(0, 0.07, (len(hits), 4)) * size
        starts = rng.uniform(0, (560, 400), (detections - len(hits), 2))
        far = np.concatenate([starts, starts + np.exp(rng.uniform(1.5, 5, starts.shape))], axis=1)
        boxes = np.concatenate([near, far])
        boxes[:, 2:] = np.maximum(boxes[:, 2:], boxes[:, :2] + 1)
        scores = np.concatenate([rng.beta(5, 2, len(hits)), rng.beta(1, 12, len(far))])
        labels = np.concatenate([kinds[hits], rng.integers(0, CLASSES, len(far))])
        areas = (real[:, 2:] - real[:, :2]).prod(axis=1) * 0.7
        crowd = rng.random(count) < 0.01
        made.append((Detections(boxes, scores, labels), Objects(real, kinds, crowd, names, areas, number)))
    return made


def ours(made: list[tuple[Detections, Objects]]) -> dict[str, float]:
    """Measure with our metric, in batches; and the time of one resample of the gate afterwards."""
    started, busy = time.perf_counter(), time.process_time()
    metric = MeanAveragePrecision(made[0][1].categories)
    for start in range(0, len(made), BATCH):
        batch = made[start : start + BATCH]
        metric.update([found for found, _ in batch], [real for _, real in batch])
    value = metric.compute()
    metric.secondary()
    metric.per_class()
    result = {"seconds": time.perf_counter() - started, "cpu": time.process_time() - busy, "mAP": value}
    records = metric._all()
    rng = np.random.default_rng(0)
    started = time.perf_counter()
    weighed = metric.weighing(records)
    sorting = time.perf_counter() - started
    units = records["image"]
    started = time.perf_counter()
    for _ in range(RESAMPLES):
        weighed(rng.poisson(1, len(made)).astype(float)[units])
    each = (time.perf_counter() - started) / RESAMPLES
    return result | {"sorting": sorting, "resample": each, "record_bytes": records.nbytes}


def peer(made: list[tuple[Detections, Objects]], package: str) -> dict[str, float]:
    """Measure with a peer, from the arrays that a detector's decoding gives."""
    annotations = []
    for image, (_, real) in enumerate(made):
        rows = zip(real.boxes.tolist(), real.classes.tolist(), real.crowd.tolist(), real.areas.tolist(), strict=True)
        for box, label, crowd, area in rows:
            entry = {"id": len(annotations) + 1, "image_id": image, "category_id": label, "iscrowd": int(crowd)}
            size = [box[0], box[1], box[2] - box[0], box[3] - box[1]]
            annotations.append(entry | {"area": area, "bbox": size})
    categories = [{"id": label, "name": name} for label, name in enumerate(made[0][1].categories)]
    images = [{"id": image, "width": 640, "height": 480} for image in range(len(made))]
    content = {"info": {}, "images": images, "categories": categories, "annotations": annotations}
    started, busy = time.perf_counter(), time.process_time()
    rows = [
        np.column_stack([np.full(len(found.scores), image), found.boxes, found.scores, found.classes])
        for image, (found, _) in enumerate(made)
    ]
    table = np.concatenate(rows)
    table[:, 3:5] -= table[:, 1:3]
    with contextlib.redirect_stdout(io.StringIO()):
        run = evaluation(package, content, table)
        run.evaluate()
        run.accumulate()
        run.summarize()
    spent = {"seconds": time.perf_counter() - started, "cpu": time.process_time() - busy}
    return spent | {"mAP": float(run.stats[0])}


def evaluation(package: str, content: dict[str, object], table: np.ndarray) -> object:
    """Return a peer's evaluation of detections: image, left, top, width, height, score, class."""
    if package == "pycocotools":
        from pycocotools.coco import COCO
        from pycocotools.cocoeval import COCOeval

        truth = COCO()
        truth.dataset = content
        truth.createIndex()
        return COCOeval(truth, truth.loadRes(table), "bbox")
    import faster_coco_eval

    truth = faster_coco_eval.COCO(content)
    return faster_coco_eval.COCOeval_faster(truth, truth.loadRes(table), iouType="bbox")


def alone(who: str, images: int, detections: int) -> dict[str, float]:
    """Measure in this process, and add the peak memory in addition to that of the scenes."""
    made = scenes(images, detections)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = ours(made) if who == "ours" else peer(made, who)
    return found | {"memory_mb": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024}


def main() -> int:
    """Print a row per evaluation, and its time over ours."""
    parser = arguments(__doc__)
    parser.add_argument("--images", type=int, default=5000, help="images of the random data set")
    parser.add_argument("--detections", type=int, default=100, help="detections in each")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each, of which the median counts")
    parser.add_argument("--alone", choices=PEERS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.quick:
        args.images, args.detections, args.rounds = 50, 20, 1
    if args.alone:
        print(json.dumps(alone(args.alone, args.images, args.detections)))
        return 0
    known = [who for who in PEERS if who == "ours" or importlib.util.find_spec(who)]
    for who in set(PEERS) - set(known):
        print(f"{who} is not installed and left out")
    command = [sys.executable, __file__, "--images", str(args.images), "--detections", str(args.detections)]
    rounds: dict[str, list[dict[str, float]]] = {who: [] for who in known}
    for turn in range(args.rounds):
        for who in known if turn % 2 == 0 else known[::-1]:
            done = subprocess.run([*command, "--alone", who], capture_output=True, text=True, check=True)
            rounds[who].append(json.loads(done.stdout))
    medians = {who: {key: median([r[key] for r in runs]) for key in runs[0]} for who, runs in rounds.items()}
    print(f"{args.images} images x {args.detections} detections x {CLASSES} classes, medians of {args.rounds}")
    for who, figures in medians.items():
        version = "" if who == "ours" else f" {importlib.metadata.version(who.replace('_', '-'))}"
        ratio = figures["cpu"] / medians["ours"]["cpu"]
        print(
            f"{who + version:26} {figures['seconds']:7.2f} s, {figures['cpu']:7.2f} s of CPU ({ratio:.2f} times ours), "
            f"{figures['memory_mb']:6.0f} MB, mAP {figures['mAP']:.10f}"
        )
    mine = medians["ours"]
    print(
        f"ours: {mine['record_bytes'] / 2**20:.1f} MB of records; a resample {1e3 * mine['resample']:.1f} ms "
        f"after {mine['sorting']:.2f} s of sorting"
    )
    finish("detection_metric", {"medians": medians}, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
